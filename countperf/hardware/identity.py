"""Identity of a device: it decides whether weights apply, and names the fit."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from countperf.documents import Document

DeviceType = Literal["cpu", "gpu", "accelerator", "other"]

# what two devices must share for one's weights to hold on the other; a new driver is a caveat only
_DECIDING_FIELDS = (
    "platform",
    "vendor",
    "name",
    "device_type",
    "compute_units",
    "processor",
)

# family numbers of AMD's processors as the kernel gives them: (family, first model) -> generation;
# from the Linux kernel, arch/x86/kernel/cpu/amd.c (bsp_init_amd, early_init_amd)
_ZEN_GENERATIONS = {
    23: ((0x00, "zen1"), (0x30, "zen2")),
    25: ((0x00, "zen3"), (0x10, "zen4"), (0x20, "zen3"), (0x60, "zen4"), (0xB0, "zen3")),
    26: ((0x00, "zen5"), (0x50, "zen6"), (0x60, "zen5"), (0x80, "zen6")),
}

_PLATFORM_PREFIXES = (
    ("portable computing language", "pocl"),
    ("intel", "intel"),
    ("nvidia", "nvidia"),
    ("amd accelerated", "amd"),
    ("advanced micro", "amd"),
    ("rusticl", "rusticl"),
    ("clover", "clover"),
    ("apple", "apple"),
    ("arm", "arm"),
    ("oclgrind", "oclgrind"),
)

_NOISE = re.compile(
    r"\(r\)|\(tm\)|\bcorporation\b|\bgenuine\b|\bauthentic\w*\b|\bpthread\b|\bbasic\b|\bcpu\b|\bgpu\b|"
    r"\bprocessor\b|\bwith\b.*|@.*|\b\d+-core\b|\bmulti-core\b"
)


class DeviceIdentity(Document):
    """A device as far as it matters for whether measured weights apply to it.

    Attributes
    ----------
    slug : str
        Short name of the device: vendor and model, lower case; the name of its folder of fits.
    platform, vendor, name, driver_version : str
        As OpenCL reports them.
    device_type : {"cpu", "gpu", "accelerator", "other"}
        Kind of device.
    compute_units : int
        Number of compute units.
    processor : str
        For a CPU, the processor as the operating system names it, since OpenCL drivers call
        different processors by the same name; empty for other devices.
    """

    format: Literal["countperf-device-identity"] = "countperf-device-identity"
    version: Literal[1] = 1
    slug: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    platform: str
    vendor: str
    name: str
    driver_version: str
    device_type: DeviceType
    compute_units: int = Field(gt=0)
    processor: str = ""

    def differences(self, other: DeviceIdentity) -> dict[str, tuple[object, object]]:
        """Return the fields that differ, with both values, without the slug.

        Parameters
        ----------
        other : DeviceIdentity
            Identity to compare with.

        Returns
        -------
        dict from str to tuple
            Field name to (own value, other's value), in the order of the fields.
        """
        fields = (*_DECIDING_FIELDS, "driver_version")
        pairs = {field: (getattr(self, field), getattr(other, field)) for field in fields}
        return {field: pair for field, pair in pairs.items() if pair[0] != pair[1]}

    def matches(self, other: DeviceIdentity) -> bool:
        """Tell whether weights of one device hold on the other.

        All of platform, vendor, name, type, number of compute units and processor must agree. The
        version of the driver may differ: that is a caveat which `differences` shows.
        """
        return not any(field in _DECIDING_FIELDS for field in self.differences(other))


def platform_prefix(platform: str) -> str:
    """Return the short name of an OpenCL platform, as used in ``pocl:0``.

    Examples
    --------
    >>> platform_prefix("Portable Computing Language")
    'pocl'
    >>> platform_prefix("NVIDIA CUDA")
    'nvidia'
    """
    lowered = platform.lower()
    for beginning, prefix in _PLATFORM_PREFIXES:
        if lowered.startswith(beginning):
            return prefix
    words = re.findall(r"[a-z0-9]+", lowered)
    return words[0] if words else "opencl"


def make_slug(platform: str, name: str, processor: str = "") -> str:
    """Derive a device's short name from what OpenCL and the operating system call it.

    Parameters
    ----------
    platform, name : str
        Names of platform and device.
    processor : str
        For a CPU, its description by `describe_processor`, else empty.

    Returns
    -------
    str
        Platform and model; for AMD processors also the generation; for Intel's, where the name
        has no number (virtual machines), that of the model.

    Examples
    --------
    >>> make_slug("NVIDIA CUDA", "NVIDIA H200")
    'nvidia-h200'
    >>> make_slug("Portable Computing Language", "pthread-skylake-avx512-AMD EPYC",
    ...           "AMD EPYC (AuthenticAMD family 26 model 2)")
    'pocl-epyc-zen5'
    >>> make_slug("Intel(R) OpenCL", "Intel(R) Xeon(R) Processor",
    ...           "Intel(R) Xeon(R) Processor (GenuineIntel family 6 model 167)")
    'intel-xeon-model167'
    """
    prefix = platform_prefix(platform)
    model, generation = name, ""
    if processor:
        model = processor.rpartition(" (")[0] or processor
        generation = processor_generation(processor)
    words = re.findall(r"[a-z0-9]+", _NOISE.sub(" ", model.lower()))
    known = {prefix, "amd", "intel", "nvidia"} if processor else {prefix}
    kept = [word for word in words if word not in known]
    return "-".join([prefix, *(kept or ["device"]), *([generation] if generation else [])])


def describe_processor(model_name: str, vendor: str, family: int, model: int) -> str:
    """Write what ``/proc/cpuinfo`` says of a processor on one line.

    Examples
    --------
    >>> describe_processor("AMD EPYC", "AuthenticAMD", 26, 2)
    'AMD EPYC (AuthenticAMD family 26 model 2)'
    """
    return f"{model_name} ({vendor} family {family} model {model})"


def processor_generation(processor: str) -> str:
    """Return the generation of a processor; empty where it has none of its own.

    Parameters
    ----------
    processor : str
        Its description by `describe_processor`.

    Examples
    --------
    >>> processor_generation("AMD EPYC (AuthenticAMD family 25 model 17)")
    'zen4'
    """
    found = re.search(r"(AuthenticAMD|GenuineIntel) family (\d+) model (\d+)", processor)
    if found is None:
        return ""
    family, model = int(found[2]), int(found[3])
    if found[1] == "GenuineIntel":  # hypervisors show the numbers of older generations: no names
        name = processor.rpartition(" (")[0]
        return "" if re.search(r"\d", name) else f"model{model}"
    names = [name for first, name in _ZEN_GENERATIONS.get(family, ()) if first <= model]
    return names[-1] if names else ""
