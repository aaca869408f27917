"""Rates of a device that microbenchmarks measured, for the features of models."""

from __future__ import annotations

from countperf.hardware.parameters import DeviceParameters
from countperf.models.units import Charged

_WORD = 4
_CLASSES = {"special": "rsqrt"}  # which class of instructions stands for a kind of operation


def measured_rate(feature: str, amount: Charged, device: DeviceParameters) -> float | None:
    """Return how much of a feature per second microbenchmarks found, or documents state."""
    _, *parts = feature.split(".")
    match amount.kind:
        case "flop":
            rate = _class_rate(device, ".".join([_CLASSES.get(parts[0], parts[0]), *parts[1:2]]))
            return None if rate is None else rate * amount.size
        case "gmem":
            return device.bandwidth_byte_per_s
        case "lmem":
            words = _class_rate(device, "ld.local.s32")
            return None if words is None else words * _WORD
        case "barrier":
            return _class_rate(device, "bar.sync")
        case _:
            return None


def _class_rate(device: DeviceParameters, name: str) -> float | None:
    """Return how many work items execute an instruction of a class, 1/s."""
    known = device.classes.get(name)
    if known is None or device.clock_hz is None or device.num_compute_units is None:
        return None
    lanes = device.sub_group_size or 1
    return lanes * device.num_compute_units * device.clock_hz / known.cpi
