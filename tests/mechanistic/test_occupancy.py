"""Groups resident on a compute unit: worked examples, monotonicity, refusals."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countperf.devices import parameters
from countperf.errors import ParameterError
from countperf.mechanistic.occupancy import (
    KernelOccupancy,
    Residency,
    find_unused_local_bytes,
    launch_geometry,
    program_occupancy,
    resident_groups,
)
from countperf.mechanistic.profile import KernelProfile, LaunchConfiguration, ProfiledKernel
from tests.mechanistic.builders import example_device, example_profile, launch_at
from tests.oracles.cuda_occupancy import active_groups_of_cuda_7
from tests.printing import text_of

GOLDEN = Path(__file__).parents[1] / "golden" / "cuda_occupancy.csv"


USES: tuple[str, ...] = ("work_items_per_group", "registers_per_work_item", "local_bytes_per_group")


def gtx480(**changes: Any) -> parameters.DeviceParameters:
    values = {
        "sub_group_size": 32,
        "max_work_items_per_compute_unit": 1536,
        "max_groups_per_compute_unit": 8,
        "registers_per_compute_unit": 32768,
        "local_bytes_per_compute_unit": 49152,
        "num_compute_units": 16,
    }
    return parameters.declare_device("gtx480", **{**values, **changes})


SUB_GROUPS = {"max_sub_groups_per_compute_unit": 48}


@pytest.mark.parametrize(
    ("changes", "kernel", "active", "limiter", "limits"),
    [
        (SUB_GROUPS, (256, 20, 12288), 4, "local", "8 6 6 6 4"),
        ({}, (64, 16, 0), 8, "groups", "8 24 32"),
        ({}, (256, 0, 0), 6, "work_items", "8 6"),
        # a part of a sub-group counts as one
        (
            {"max_groups_per_compute_unit": 32, **SUB_GROUPS},
            (48, 0, 0),
            24,
            "sub_groups",
            "32 32 24",
        ),
        (
            {"register_mode": "sub_group", "register_unit": 64},
            (256, 21, 0),
            5,
            "registers",
            "8 6 5",
        ),
        ({}, (256, 21, 0), 6, "work_items", "8 6 6"),  # registers per work item
    ],
)
def test_worked_examples(
    changes: dict[str, Any], kernel: tuple[int, int, int], active: int, limiter: str, limits: str
) -> None:
    device = gtx480(**changes)
    residency = resident_groups(device, **dict(zip(USES, kernel, strict=True)))
    occupancy = active * -(-kernel[0] // 32)
    assert (residency.active_groups, residency.limiter) == (active, limiter)
    assert residency.occupancy_max == occupancy
    there = ["groups", "work_items"] + ["sub_groups"] * (SUB_GROUPS.items() <= changes.items())
    there += [use for use, n in zip(("registers", "local"), kernel[1:], strict=True) if n]
    assert residency.limits == dict(zip(there, map(int, limits.split()), strict=True))
    if device.max_sub_groups_per_compute_unit is not None:
        assert residency.ratio == pytest.approx(occupancy / 48)


def test_concurrent_groups_of_a_launch() -> None:
    launch = LaunchConfiguration(work_items_per_group=256, num_groups=17, active_groups=4)
    small = launch_geometry(ProfiledKernel(KernelProfile(name="k"), launch), gtx480())
    assert (small.concurrent_groups, small.occupancy) == (2, 16)
    assert (small.groups_on_compute_unit, small.total_sub_groups) == (2, 136)
    # a stated occupancy wins
    stated = launch_geometry(ProfiledKernel(example_profile(), launch_at(5.5)), example_device())
    assert (stated.occupancy, stated.concurrent_groups) == (5.5, 5)


@pytest.mark.parametrize("slug", ["pocl-epyc-zen5", "intel-epyc-zen5"])
def test_a_sub_group_of_a_cpu_is_its_vector_in_elements(slug: str) -> None:
    device = parameters.load_device(slug)
    residency = resident_groups(device, work_items_per_group=100)
    assert "AVX-512 holds 16 elements" in device.source_of("sub_group_size")
    assert (residency.sub_groups_per_group, residency.active_groups) == (7, 1)


def resident(device: parameters.DeviceParameters, row: dict[str, int]) -> Residency | None:
    """Return what is resident; None where not even one group is."""
    try:
        return resident_groups(device, **{name: row[name] for name in USES})
    except ParameterError:
        return None


def golden_rows() -> dict[str, list[dict[str, int]]]:
    """Return the rows of the golden file by compute capability; absent limits are left out."""
    lines = [line for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]
    rows: dict[str, list[dict[str, int]]] = {}
    for row in csv.DictReader(lines):
        capability = row.pop("capability")
        numbers = {name: int(value) for name, value in row.items() if value}
        rows.setdefault(capability, []).append(numbers)
    return rows


@pytest.mark.parametrize("capability", golden_rows())
def test_occupancy_is_that_of_the_vendors_header(capability: str) -> None:
    device = parameters.capability_device(capability)
    rows = golden_rows()[capability]
    assert len(rows) == 90
    for row in rows:
        residency = resident(device, row)
        if residency is None:
            assert row["active_groups"] == 0, row
            continue
        assert residency.active_groups == row["active_groups"], row
        limits = residency.limits
        assert limits["groups"] == row["groups"]
        assert min(limits["work_items"], limits["sub_groups"]) == row["sub_groups"], row
        assert limits.get("registers") == row.get("registers"), row
        if row["local_bytes_per_group"]:
            assert limits["local"] == row["local"], row


def test_two_register_files_of_a_p100_waste_less_than_four() -> None:
    held = [
        resident_groups(
            parameters.capability_device(capability),
            work_items_per_group=64,
            registers_per_work_item=39,
        )
        for capability in ("6.0", "6.1")
    ]

    # a sub-group has 1280 registers, of which 32768 hold 25 and 16384 hold 12 (cuda_occupancy.h)
    assert [residency.active_groups for residency in held] == [2 * 25 // 2, 4 * 12 // 2]


@pytest.mark.parametrize("capability", ["1.0", "1.1", "1.3", "2.0"])
@given(
    items=st.one_of(st.integers(1, 512), st.integers(1, 16).map(lambda count: 32 * count)),
    registers=st.integers(0, 63),
    local=st.one_of(st.integers(0, 4096), st.integers(0, 50000)),
)
@settings(max_examples=150, deadline=None)
def test_occupancy_of_early_capabilities_is_that_of_the_older_header(
    capability: str, items: int, registers: int, local: int
) -> None:
    row = dict(zip(USES, (items, registers, local), strict=True))
    residency = resident(parameters.capability_device(capability), row)
    assert (residency.active_groups if residency else 0) == active_groups_of_cuda_7(capability, row)


@given(
    capability=st.sampled_from(parameters.COMPUTE_CAPABILITIES),
    items=st.integers(1, 512),
    registers=st.integers(0, 40),
    local=st.integers(0, 8192),
)
@settings(max_examples=100, deadline=None)
def test_more_resources_never_give_more_groups_and_all_fit(
    capability: str, items: int, registers: int, local: int
) -> None:
    device = parameters.capability_device(capability)

    def active(*uses: int) -> int:
        found = resident(device, dict(zip(USES, uses, strict=True)))
        return found.active_groups if found else 0

    here = active(items, registers, local)
    assert active(items + 1, registers, local) <= here
    assert active(items, registers + 1, local) <= here
    assert active(items, registers, local + 1) <= here
    assert here * items * registers <= device.require("registers_per_compute_unit")
    assert here * local <= device.require("local_bytes_per_compute_unit")
    assert here * items <= device.require("max_work_items_per_compute_unit")


def _profiled(group: int, registers: int | None) -> ProfiledKernel:
    return ProfiledKernel(
        profile=KernelProfile(name="k", registers_per_work_item=registers),
        launch=LaunchConfiguration(work_items_per_group=group, num_groups=1000),
    )


def test_without_registers_the_occupancy_of_a_kernel_is_a_bound() -> None:
    # a sub-group takes 40*32 = 1280 registers, a multiple of 256: 51 of them fit, 48 in fours
    known, bound = (
        program_occupancy(_profiled(256, n), parameters.load_device("nvidia-gtx-970"))
        for n in (40, None)
    )
    assert (known.residency.active_groups, known.residency.limiter) == (6, "registers")
    assert not known.is_bound
    assert (bound.residency.active_groups, bound.is_bound) == (8, True)
    residency = KernelOccupancy(kernel="k", device="gtx", parameters={}, programs=(known, bound))
    assert list(residency.to_frame()["occupancy"]) == [0.75, 1.0]
    assert "at most 8 groups" in text_of(residency)
    assert "state them (registers_per_work_item=N" in text_of(residency)


def test_a_device_whose_registers_limit_nothing_needs_none() -> None:
    device = parameters.declare_device(
        sub_group_size=8, max_work_items_per_compute_unit=64, max_groups_per_compute_unit=1
    )
    assert not program_occupancy(_profiled(16, None), device).is_bound


@pytest.mark.parametrize("slug", ["nvidia-gtx-970", "nvidia-k620", "nvidia-h200", "amd-r9-380"])
def test_so_much_local_memory_leaves_so_many_groups(slug: str) -> None:
    device = parameters.load_device(slug).with_values(max_local_bytes_per_group=None)

    def resident(local_bytes: int) -> int:
        return resident_groups(
            device, work_items_per_group=32, local_bytes_per_group=local_bytes
        ).active_groups

    profile = KernelProfile(name="k", local_bytes_per_group=64)
    able = find_unused_local_bytes(
        ProfiledKernel(profile, launch_at(None, num_groups=2**20)), device
    )
    for groups in range(1, 9):
        found = able[groups] + 64
        assert resident(found) == groups < resident(found - 1)
