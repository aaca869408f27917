"""Environment of a measurement: the machine as it is now, and the versions of what is installed."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata

from countperf.devices.device import DeviceLimits
from countperf.devices.machine import available_cores, read_clocks, read_processor
from countperf.measuring.lines import Environment

_PACKAGES = (
    *("countperf", "loopy", "islpy", "pymbolic", "pyopencl", "numpy", "intel-opencl-rt"),
    *("cupy-cuda13x", "cupy-cuda12x", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
)
_STORED_LIMITS = (
    *("max_group_size", "local_memory_bytes", "global_memory_bytes", "max_allocation_bytes"),
)


def gather_environment(limits: DeviceLimits, versions: Mapping[str, str]) -> Environment:
    """Describe the machine as it is now; versions are those that the device's driver gives."""
    clocks = read_clocks()
    if limits.max_clock_mhz > 0:
        clocks["device_max"] = float(limits.max_clock_mhz)
    return Environment(
        recorded_at=timestamp(),
        operating_system=platform.platform(),
        processor=read_processor(),
        cores=available_cores(),
        clocks_mhz=clocks,
        versions={**_versions(), **versions},
        device_limits={name: getattr(limits, name) for name in _STORED_LIMITS},
    )


def timestamp() -> str:
    """Return the time of day, UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
