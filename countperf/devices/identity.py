"""Identity of a device, which decides whether weights apply and names the fit; and the machine."""

from __future__ import annotations

import os
import platform
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from countperf.counting.structure import memory_hierarchy as memory
from countperf.documents import Document

DeviceType = Literal["cpu", "gpu", "accelerator", "other"]
# what two devices must share for one's weights to hold on the other; a new driver is a caveat only
_DECIDING_FIELDS = ("platform", "vendor", "name", "device_type", "compute_units", "processor")
# of AMD's families, from the first model on (the Linux kernel's arch/x86/kernel/cpu/amd.c)
_ZEN_GENERATIONS = {
    23: ((0x00, "zen1"), (0x30, "zen2")),
    25: ((0x00, "zen3"), (0x10, "zen4"), (0x20, "zen3"), (0x60, "zen4"), (0xB0, "zen3")),
    26: ((0x00, "zen5"), (0x50, "zen6"), (0x60, "zen5"), (0x80, "zen6")),
}
_PLATFORM_PREFIXES = {
    "portable computing language": "pocl",
    "amd accelerated": "amd",
    "advanced micro": "amd",
    **{name: name for name in ("intel", "nvidia", "rusticl", "clover", "apple", "arm", "oclgrind")},
}
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
        """Tell whether weights of one device hold on the other: all agrees but for the driver."""
        return not any(field in _DECIDING_FIELDS for field in self.differences(other))


def platform_prefix(platform: str) -> str:
    """Return the short name of an OpenCL platform, as used in ``pocl:0``."""
    lowered = platform.lower()
    for beginning, prefix in _PLATFORM_PREFIXES.items():
        if lowered.startswith(beginning):
            return prefix
    first = re.search(r"[a-z0-9]+", lowered)
    return first[0] if first else "opencl"


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
    maker = _VENDORS.get(vendor[1]) if vendor else None
    name = f"{maker}-{processor_generation(identity.processor)}"
    if name in memory.available_hierarchies():
        return memory.load_hierarchy(name)
    system = memory.read_system() if is_here and identity.device_type == "cpu" else None
    assumed = memory.load_hierarchy(memory.ASSUMED)
    return system or assumed.model_copy(update={"name": memory.UNKNOWN})


def choose_caches(identity: DeviceIdentity, *, is_here: bool = False) -> memory.CountedCaches:
    """Return the caches for which kernels are counted for a device."""
    known = memory_hierarchy_of(identity, is_here=is_here)
    return memory.DEFAULT_CACHES if known.name == memory.UNKNOWN else known.counted


# --- the machine: processor, cores, memory, clocks, load of other programs

_WINDOW_S = 0.5  # the system counts processor time in hundredths of a second
_BUSY_SHARE = 1 / 8


def available_cores() -> int:
    """Return how many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory(path: Path = Path("/proc/meminfo")) -> int | None:
    """Return the host's free memory, byte; None where it is not readable."""
    for key, value in _fields(path):
        if key == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


@cache
def read_processor(path: Path = Path("/proc/cpuinfo")) -> str:
    """Describe the processor: model, vendor, family; as far as the system tells."""
    fields: dict[str, str] = {}
    for key, value in _fields(path):
        fields.setdefault(key, value)
    try:
        family = f"{fields['vendor_id']} family {int(fields['cpu family'])}"
        return f"{fields['model name']} ({family} model {int(fields['model'])})"
    except (KeyError, ValueError):  # not x86: Arm's cpuinfo has neither name nor family
        return platform.processor() or platform.machine()


def _fields(path: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        key, _, value = line.partition(":")
        yield key.strip(), value.strip()


def read_clocks(root: Path = Path("/")) -> dict[str, float]:
    """Return the processor's clock frequencies that are readable, MHz, by where they were read."""
    clocks: dict[str, float] = {}
    fields = _fields(root / "proc/cpuinfo")
    if current := [float(value) for key, value in fields if key == "cpu MHz" and value]:
        clocks["cpu_current_mean"] = sum(current) / len(current)
    folder = root / "sys/devices/system/cpu/cpu0/cpufreq"
    for name in ("scaling_min_freq", "scaling_max_freq", "cpuinfo_max_freq", "base_frequency"):
        with suppress(OSError, ValueError):
            clocks[name] = int((folder / name).read_text()) / 1000
    return clocks


def time_of_others_s(path: Path = Path("/proc/stat")) -> float | None:
    """Return the time that other programs and machines have used so far on our cores, s."""
    try:
        lines = [line.split() for line in path.read_text(encoding="ascii").splitlines() if line]
        spent = {name: times for name, *times in lines}
        ticks = 0
        for number in os.sched_getaffinity(0):
            user, nice, system, _idle, _waiting, irq, soft, stolen, *_ = spent[f"cpu{number}"]
            ticks += sum(map(int, (user, nice, system, irq, soft, stolen)))
        return ticks / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])
    except (AttributeError, KeyError, OSError, ValueError):  # not Linux, or not as we know it
        return None


class Neighbors:
    """Other programs, which may keep cores busy, and hold up all runs of all rounds alike."""

    def __init__(self, time_s: Callable[[], float | None], now: Callable[[], float]) -> None:
        self._time_s = time_s
        self._now = now
        self._readings: deque[tuple[float, float]] = deque()

    def are_busy(self) -> bool:
        """Tell whether they kept an eighth of our cores busy since the last call, or for 0.5 s."""
        spent = self._time_s()
        if spent is None:
            return False
        now = self._now()
        while len(self._readings) > 1 and self._readings[1][0] <= now - _WINDOW_S:
            self._readings.popleft()
        self._readings.append((now, spent))
        began, before = self._readings[0]
        elapsed = now - began
        return elapsed >= _WINDOW_S and spent - before > _BUSY_SHARE * available_cores() * elapsed
