"""Memory hierarchies of devices, by their identity."""

from __future__ import annotations

import re

from countperf.execution.memory_hierarchy import (
    ASSUMED,
    DEFAULT_CACHES,
    UNKNOWN,
    CountedCaches,
    MemoryHierarchy,
    available_hierarchies,
    load_hierarchy,
    read_system,
)
from countperf.hardware.identity import DeviceIdentity, processor_generation

_VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}


def memory_hierarchy_of(identity: DeviceIdentity, *, is_here: bool = False) -> MemoryHierarchy:
    """Return the memory hierarchy of a device."""
    vendor = re.search(r"\((\w+) family", identity.processor)
    if vendor is not None and vendor[1] in _VENDORS:
        name = f"{_VENDORS[vendor[1]]}-{processor_generation(identity.processor)}"
        if name in available_hierarchies():
            return load_hierarchy(name)
    system = read_system() if is_here and identity.device_type == "cpu" else None
    return system or load_hierarchy(ASSUMED).model_copy(update={"name": UNKNOWN})


def counted_caches_of(identity: DeviceIdentity, *, is_here: bool = False) -> CountedCaches:
    """Return the caches for which kernels are counted for a device."""
    counted_caches = memory_hierarchy_of(identity, is_here=is_here)
    return DEFAULT_CACHES if counted_caches.name == UNKNOWN else counted_caches.counted
