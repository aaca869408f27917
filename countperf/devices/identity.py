"""Identity of a device: it decides whether weights apply, and names the fit."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from countperf.counting.structure import memory_hierarchy as memory
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
    """A device as far as it matters for whether measured weights apply to it."""

    format: Literal["countperf-device-identity"] = "countperf-device-identity"
    version: Literal[1] = 1
    # short name of the device: vendor and model, lower case
    slug: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    platform: str  # as OpenCL reports them
    vendor: str
    name: str
    driver_version: str
    device_type: DeviceType  # kind of device
    compute_units: int = Field(gt=0)  # number of compute units
    processor: str = ""

    def differences(self, other: DeviceIdentity) -> dict[str, tuple[object, object]]:
        """Return the fields that differ, with both values, without the slug."""
        fields = (*_DECIDING_FIELDS, "driver_version")
        pairs = {field: (getattr(self, field), getattr(other, field)) for field in fields}
        return {field: pair for field, pair in pairs.items() if pair[0] != pair[1]}

    def differences_text(self, other: DeviceIdentity) -> str:
        """Return the fields that differ, with both values, in words."""
        pairs = self.differences(other).items()
        return ", ".join(f"{field} ({one!r}, {two!r})" for field, (one, two) in pairs)

    def matches(self, other: DeviceIdentity) -> bool:
        """Tell whether weights of one device hold on the other.

        All of platform, vendor, name, type, number of compute units and processor must agree. The
        version of the driver may differ: that is a caveat which `differences` shows.
        """
        return not any(field in _DECIDING_FIELDS for field in self.differences(other))


def platform_prefix(platform: str) -> str:
    """Return the short name of an OpenCL platform, as used in ``pocl:0``."""
    lowered = platform.lower()
    for beginning, prefix in _PLATFORM_PREFIXES:
        if lowered.startswith(beginning):
            return prefix
    words = re.findall(r"[a-z0-9]+", lowered)
    return words[0] if words else "opencl"


def make_slug(platform: str, name: str, processor: str = "") -> str:
    """Derive a device's short name from what OpenCL and the operating system call it."""
    prefix = platform_prefix(platform)
    model, generation = name, ""
    if processor:
        model = processor.rpartition(" (")[0] or processor
        generation = processor_generation(processor)
    words = re.findall(r"[a-z0-9]+", _NOISE.sub(" ", model.lower()))
    known = {prefix, "amd", "intel", "nvidia"} if processor else {prefix}
    kept = [word for word in words if word not in known]
    return "-".join([prefix, *(kept or ["device"]), *([generation] if generation else [])])


def processor_generation(processor: str) -> str:
    """Return the generation of a processor; empty where it has none of its own."""
    match = re.search(r"(AuthenticAMD|GenuineIntel) family (\d+) model (\d+)", processor)
    if match is None:
        return ""
    family, model = int(match[2]), int(match[3])
    if match[1] == "GenuineIntel":  # hypervisors show the numbers of older generations: no names
        name = processor.rpartition(" (")[0]
        return "" if re.search(r"\d", name) else f"model{model}"
    names = [name for first, name in _ZEN_GENERATIONS.get(family, ()) if first <= model]
    return names[-1] if names else ""


_VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}


def memory_hierarchy_of(
    identity: DeviceIdentity, *, is_here: bool = False
) -> memory.MemoryHierarchy:
    """Return the memory hierarchy of a device."""
    vendor = re.search(r"\((\w+) family", identity.processor)
    if vendor is not None and vendor[1] in _VENDORS:
        name = f"{_VENDORS[vendor[1]]}-{processor_generation(identity.processor)}"
        if name in memory.available_hierarchies():
            return memory.load_hierarchy(name)
    system = memory.read_system() if is_here and identity.device_type == "cpu" else None
    assumed = memory.load_hierarchy(memory.ASSUMED)
    return system or assumed.model_copy(update={"name": memory.UNKNOWN})


def counted_caches_of(identity: DeviceIdentity, *, is_here: bool = False) -> memory.CountedCaches:
    """Return the caches for which kernels are counted for a device."""
    known = memory_hierarchy_of(identity, is_here=is_here)
    return memory.DEFAULT_CACHES if known.name == memory.UNKNOWN else known.counted
