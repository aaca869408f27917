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

import csv
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from countperf.errors import DeviceParameterError
from countperf.hardware.parameters import DeviceParameters, declare_device

SOURCE = (
    "CUDA C Programming Guide, technical specifications per compute capability;"
    " cuda_occupancy.h of the CUDA Toolkit"
)

_SUB_GROUP_SIZE = 32
_FILE = Path(__file__).with_name("capabilities.csv")
with _FILE.open(encoding="utf-8", newline="") as _file:
    _ROWS = {row.pop("compute_capability"): row for row in csv.DictReader(_file)}

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
    limits: dict[str, Any] = {name: int(text) for name, text in _ROWS[compute_capability].items()}
    limits["sub_group_size"] = _SUB_GROUP_SIZE
    most = limits["max_sub_groups_per_compute_unit"]
    limits["max_work_items_per_compute_unit"] = most * _SUB_GROUP_SIZE
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
