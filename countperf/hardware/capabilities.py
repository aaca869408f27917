"""Limits of NVIDIA's compute capabilities, and a generic device for the rest.

Source: CUDA C Programming Guide, "Technical Specifications per Compute Capability" (limits), and
``cuda_occupancy.h`` of the CUDA Toolkit (granularity of allocation), which computes what the CUDA
Occupancy Calculator does. Capabilities 1.x and 2.x have left both since; their numbers are those of
the editions of their time (the header: CUDA Toolkit 7.0).

From 3.0 on, the results are checked against the header itself, with the limits that CCCL states
(``cuda/__device/arch_traits.h``, 5.0 and later). Where the sources differ: registers of a work item
are at most 63 on 3.0 and 255 from 7.0 on (the guide), not 255 and 256 (the header). Kernels here
take one barrier of a group; where one takes two, 8.6 and later but 9.0 and 10.0 hold half as many.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from countperf.errors import DeviceParameterError
from countperf.hardware.parameters import DeviceParameters, declare_device

SOURCE = (
    "CUDA C Programming Guide, technical specifications per compute capability;"
    " cuda_occupancy.h of the CUDA Toolkit"
)

_FIELDS = (
    "max_sub_groups_per_compute_unit",
    "max_groups_per_compute_unit",
    "max_work_items_per_group",
    "registers_per_compute_unit",
    "max_registers_per_work_item",
    "register_unit",
    "sub_group_unit",
    "local_bytes_per_compute_unit",
    "max_local_bytes_per_group",
    "local_unit",
    "local_reserved_bytes_per_group",
)
_KIB = 1024
_SUB_GROUP_SIZE = 32

# in the order of _FIELDS
_ROWS = {
    "1.0": (24, 8, 512, 8192, 128, 256, 2, 16 * _KIB, 16 * _KIB, 512, 0),
    "1.1": (24, 8, 512, 8192, 128, 256, 2, 16 * _KIB, 16 * _KIB, 512, 0),
    "1.3": (32, 8, 512, 16384, 128, 512, 2, 16 * _KIB, 16 * _KIB, 512, 0),
    "2.0": (48, 8, 1024, 32768, 63, 64, 2, 48 * _KIB, 48 * _KIB, 128, 0),
    "3.0": (64, 16, 1024, 65536, 63, 256, 4, 48 * _KIB, 48 * _KIB, 256, 0),
    "3.5": (64, 16, 1024, 65536, 255, 256, 4, 48 * _KIB, 48 * _KIB, 256, 0),
    "5.0": (64, 32, 1024, 65536, 255, 256, 4, 64 * _KIB, 48 * _KIB, 256, 0),
    "5.2": (64, 32, 1024, 65536, 255, 256, 4, 96 * _KIB, 48 * _KIB, 256, 0),
    "6.1": (64, 32, 1024, 65536, 255, 256, 4, 96 * _KIB, 48 * _KIB, 256, 0),
    "7.0": (64, 32, 1024, 65536, 255, 256, 4, 96 * _KIB, 96 * _KIB, 256, 0),
    "7.5": (32, 16, 1024, 65536, 255, 256, 4, 64 * _KIB, 64 * _KIB, 256, 0),
    "8.0": (64, 32, 1024, 65536, 255, 256, 4, 164 * _KIB, 163 * _KIB, 128, _KIB),
    "8.6": (48, 16, 1024, 65536, 255, 256, 4, 100 * _KIB, 99 * _KIB, 128, _KIB),
    "8.7": (48, 16, 1024, 65536, 255, 256, 4, 164 * _KIB, 163 * _KIB, 128, _KIB),
    "8.9": (48, 24, 1024, 65536, 255, 256, 4, 100 * _KIB, 99 * _KIB, 128, _KIB),
    "9.0": (64, 32, 1024, 65536, 255, 256, 4, 228 * _KIB, 227 * _KIB, 128, _KIB),
    "10.0": (64, 32, 1024, 65536, 255, 256, 4, 228 * _KIB, 227 * _KIB, 128, _KIB),
    "10.3": (64, 32, 1024, 65536, 255, 256, 4, 228 * _KIB, 227 * _KIB, 128, _KIB),
    "10.7": (32, 16, 1024, 65536, 255, 256, 4, 228 * _KIB, 227 * _KIB, 128, _KIB),
    "11.0": (48, 24, 1024, 65536, 255, 256, 4, 228 * _KIB, 227 * _KIB, 128, _KIB),
    "12.0": (48, 24, 1024, 65536, 255, 256, 4, 100 * _KIB, 99 * _KIB, 128, _KIB),
    "12.1": (48, 24, 1024, 65536, 255, 256, 4, 100 * _KIB, 99 * _KIB, 128, _KIB),
}

# of compute capability 2.x
_COARSE_REGISTERS = (21, 22, 29, 30, 37, 38, 45, 46)

COMPUTE_CAPABILITIES: tuple[str, ...] = tuple(_ROWS)
"""The compute capabilities whose limits are known."""


def capability_limits(compute_capability: str) -> Mapping[str, Any]:
    """Return the limits of a compute capability, as fields of `DeviceParameters`."""
    if compute_capability not in _ROWS:
        known = ", ".join(COMPUTE_CAPABILITIES)
        message = f"no limits of compute capability {compute_capability!r} (known: {known})"
        raise DeviceParameterError(message, field="compute_capability")
    row = _ROWS[compute_capability]
    limits: dict[str, Any] = dict(zip(_FIELDS, row, strict=True))
    limits["sub_group_size"] = _SUB_GROUP_SIZE
    limits["max_work_items_per_compute_unit"] = row[0] * _SUB_GROUP_SIZE
    limits["register_mode"] = "group" if compute_capability.startswith("1.") else "sub_group"
    limits["coarse_registers"] = _COARSE_REGISTERS if compute_capability.startswith("2.") else ()
    return MappingProxyType(limits)


def with_capability_limits(device: DeviceParameters) -> DeviceParameters:
    """Return a device with the limits of its compute capability where it states none itself."""
    if device.compute_capability is None:
        message = f"device {device.slug!r}: no compute_capability, which its limits follow from"
        raise DeviceParameterError(message, field="compute_capability")
    limits = capability_limits(device.compute_capability)
    absent = {name: value for name, value in limits.items() if getattr(device, name) is None}
    sources = dict.fromkeys(absent, SOURCE)
    for name in ("register_mode", "coarse_registers"):
        if name not in device.model_fields_set:
            absent[name] = limits[name]
    return device.replaced(**absent, sources={**device.sources, **sources})


def capability_device(compute_capability: str) -> DeviceParameters:
    """Return a device that has nothing but the limits of a compute capability."""
    slug = f"compute-capability-{compute_capability.replace('.', '-')}"
    return with_capability_limits(declare_device(slug, compute_capability=compute_capability))
