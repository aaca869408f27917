"""The example kernel of the literature, and devices to run it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from countperf.devices.parameters import (
    DeviceParameters,
    InstructionClass,
    InstructionKind,
    declare_device,
    load_device,
)
from countperf.measuring import MeasurementSet, TimedSize, Timing
from countperf.measuring.tables import identity_elsewhere
from countperf.mechanistic.profile import InstructionGraph, KernelProfile, LaunchConfiguration
from tests.kernels import made

EXAMPLE_GRAPH = InstructionGraph("CCMCCM", [(0, 1), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5)])
"""Four computations and two memory instructions; one sub-group alone takes 25 cycles."""


def chain(nodes: Sequence[str]) -> InstructionGraph:
    """Return instructions each of which waits for the one before."""
    return InstructionGraph(nodes, [(index, index + 1) for index in range(len(nodes) - 1)])


def implied_bandwidth(device: DeviceParameters, clock_hz: float | None = None) -> float:
    """Return the bandwidth, byte/s, that the cost of loading 4 byte per work item implies."""
    items = device.require_int("num_compute_units") * device.require_int("sub_group_size")
    cpi = device.require_class("ld.global.s32").cpi
    return 4 * items / cpi * (clock_hz or device.require("clock_hz"))


def make_class(
    name: str, subsystem: str, cpi: float, latency: float, kind: InstructionKind = "compute"
) -> InstructionClass:
    return InstructionClass(name=name, subsystem=subsystem, cpi=cpi, latency=latency, kind=kind)


EXAMPLE_CLASSES = {
    "C": make_class("C", "compute", 1, 4),
    "M": make_class("M", "memory", 2, 6, "memory"),
}


def example_device(**changes: Any) -> DeviceParameters:
    """Return a device of the example kernel with one sub-group per group."""
    values = {
        "classes": EXAMPLE_CLASSES,
        "num_compute_units": 13,
        "clock_hz": 1.253e9,
        "sub_group_size": 32,
        "max_work_items_per_compute_unit": 2048,
        "max_sub_groups_per_compute_unit": 64,
        "max_groups_per_compute_unit": 64,
    }
    return declare_device("example", **{**values, **changes})


def example_profile(**changes: Any) -> KernelProfile:
    """Return the example kernel's profile."""
    values: dict[str, Any] = {"name": "example", "alpha": {"C": 4, "M": 2}, "idg": EXAMPLE_GRAPH}
    return KernelProfile(**{**values, **changes})


def launch_at(occupancy: float | None, num_groups: int = 1300) -> LaunchConfiguration:
    """Return a launch of groups of one sub-group."""
    return LaunchConfiguration(work_items_per_group=32, num_groups=num_groups, occupancy=occupancy)


def full_device(**changes: Any) -> DeviceParameters:
    """Return a device with all constants that any model asks for."""
    values: dict[str, Any] = {
        "classes": {**EXAMPLE_CLASSES, "B": make_class("B", "barrier", 1, 9, "barrier")},
        "bandwidth_byte_per_s": 1e11,
        "peak_flops": 1e12,
        "cores_per_compute_unit": 128,
        "schedulers_per_compute_unit": 4,
        "issue_cycles": 4,
        "mem_ld_cycles": 420,
        "departure_del_coal_cycles": 4,
        "departure_del_uncoal_cycles": 10,
        "cpi_mem_instr": 1,
        "latency_steps": 400,
    }
    return example_device(**{**values, **changes})


def full_profile(**changes: Any) -> KernelProfile:
    """Return the example kernel with all that any model asks for."""
    values: dict[str, Any] = {
        "alpha_mem_coal": 2,
        "alpha_mem_uncoal": 0,
        "uncoal_per_mw": 1,
        "load_bytes_per_sub_group": 128,
        "gmem_bytes": 256,
        "total_flops": 1e9,
        "total_bytes": 1e9,
        "work": 1e9,
        "span": 1e3,
        "transactions": 1e6,
    }
    return example_profile(**{**values, **changes})


STREAM = made("{ [i] : 0 <= i < n }", "z[i] = 2*x[i]", "x,z f32 n; n i32", split="i:256")
"""A kernel that reads and writes an array."""


def time_as(slug: str, times_s: dict[int, float]) -> Timing:
    """Return a timing of the streaming kernel: times at sizes, as if taken on a device."""
    known = load_device(slug)
    measured = MeasurementSet.from_table(
        pd.DataFrame({"kernel": "mine", "n": [*times_s], "seconds": [*times_s.values()]}),
        {"mine": STREAM},
        device=identity_elsewhere(slug, known.name, known.num_compute_units or 1),
    )
    return Timing(
        kernel="mine",
        device=measured.device,
        protocol=measured.header.protocol,
        environment=measured.header.environment,
        sizes=tuple(TimedSize(measurement=one) for one in measured),
    )
