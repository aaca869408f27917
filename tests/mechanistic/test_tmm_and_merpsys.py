"""TMM and MERPSYS: the worked examples, waves of groups, critical paths, transfers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.devices.parameters import DeviceParameters, LinkParameters, declare_device
from countperf.errors import ParameterError
from countperf.mechanistic import tmm
from countperf.mechanistic.merpsys import MerpsysModel, issue_slots, transfer_time
from countperf.mechanistic.occupancy import resident_groups
from countperf.mechanistic.profile import (
    InstructionGraph,
    KernelProfile,
    LaunchConfiguration,
    ProfiledKernel,
)
from tests.mechanistic.builders import make_class

STEPS: dict[str, Any] = {
    "work": 4.8e9,
    "span": 1e3,
    "transactions": 3e6,
    "latency_steps": 400,
    "work_items_per_core": 4,
    "num_cores": 480,
}
VERTICES, CHUNK, LATENCY = 8192, 32, 16384.0
"""The paper's largest graph; latency from where its curves become flat (512 = L / C)."""
GTX_480 = declare_device(
    "gtx-480",
    num_compute_units=15,
    cores_per_compute_unit=32,
    sub_group_size=32,
    clock_hz=1.4e9,
    latency_steps=LATENCY,
    max_work_items_per_compute_unit=1536,
    max_groups_per_compute_unit=8,
    max_sub_groups_per_compute_unit=48,
    registers_per_compute_unit=32768,
    local_bytes_per_compute_unit=49152,
)
# 4 groups of 32 work items on 32 cores: 4 work items per core
PATHS_LAUNCH = LaunchConfiguration(work_items_per_group=32, num_groups=65536, active_groups=4)


def shortest_paths(sub_block: int) -> dict[str, Any]:
    """Return T_1 = n^3 lg n and M = T_1 / (S_D C) by Eq. (10), the paper's example."""
    work = VERTICES**3 * math.log2(VERTICES)
    return {"work": work, "transactions": work / (sub_block * CHUNK)}


def paths_steps(sub_block: int, items: float) -> Any:
    return tmm.compute_scheduled_steps(
        **shortest_paths(sub_block),
        latency_steps=LATENCY,
        work_items_per_core=items,
        num_cores=480,
        num_groups=(VERTICES // sub_block) ** 2,  # B_r
        active_groups=4,
        num_compute_units=15,
    )


@pytest.mark.parametrize(
    ("changes", "steps", "which"),
    [
        ({}, 1e7, "work"),
        ({"transactions": 3e8}, 6.25e7, "memory"),
        ({"span": 2e7}, 2e7, "span"),
        ({"work": 0, "transactions": 3e6}, 625000, "memory"),
    ],
)
def test_the_largest_term_bounds_the_steps(
    changes: dict[str, Any], steps: float, which: str
) -> None:
    bound = tmm.step_bound(**{**STEPS, **changes})
    assert (bound.steps, bound.which) == (steps, which)


def test_the_zigzag_over_groups() -> None:
    factors = {1: 15, 14: 15 / 14, 15: 1, 16: 1.875, 30: 1, 31: 45 / 31, 46: 60 / 46}
    for groups, factor in factors.items():
        assert tmm.scheduling_factor(groups, 1, 15) == pytest.approx(factor, rel=1e-15)
    assert tmm.scheduling_factor(65536, 4, 15) == 1093 * 60 / 65536 == 1.00067138671875


@pytest.mark.parametrize(("sub_block", "threshold"), [(64, 8), (32, 16), (16, 32)])
def test_curves_become_flat_where_latency_is_hidden(sub_block: int, threshold: float) -> None:
    paths = shortest_paths(sub_block)

    def bound(items: float) -> tuple[str, float]:
        constants = {"latency_steps": LATENCY, "work_items_per_core": items, "num_cores": 480}
        steps = tmm.step_bound(span=0, **paths, **constants)
        return steps.which, steps.steps

    assert bound(threshold) == bound(2 * threshold) == ("work", paths["work"] / 480)
    assert bound(threshold / 2) == ("memory", 2 * paths["work"] / 480)


def test_steps_of_the_shortest_paths() -> None:
    steps = paths_steps(32, 4)
    assert steps.steps == pytest.approx(59596865536, rel=1e-14)
    assert (steps.which, steps.waves) == ("memory", 1093)
    tiles = {"work_items_per_group": 32, "local_bytes_per_group": 3 * 32 * 32 * 4}
    resident = resident_groups(GTX_480, **tiles)
    assert (resident.active_groups, resident.limiter) == (4, "local")
    # a step takes a cycle
    model, profile = tmm.TmmModel(device=GTX_480), KernelProfile(name="paths", **shortest_paths(32))
    prediction = model.predict(ProfiledKernel(profile=profile, launch=PATHS_LAUNCH))
    assert prediction.time_s == pytest.approx(59596865536 / 1.4e9, rel=1e-14)
    assert (prediction.bound, prediction.results["work_items_per_core"]) == ("memory", 4)
    # Eq. (2), (5): a hit in nine of ten, and misses of eight times the time
    factor = tmm.caching_factor(hit_rate=0.9, slowdown=8)
    cached = replace(model, caching=factor).predict(ProfiledKernel(profile, PATHS_LAUNCH))
    assert factor == pytest.approx(1.7, rel=1e-15)
    assert cached.time_s == pytest.approx(1.7 * prediction.time_s, rel=1e-14)
    # fewer groups than slots run on as many compute units
    few = model.estimate(ProfiledKernel(profile, replace(PATHS_LAUNCH, num_groups=3))).results
    assert (few["scheduling"], few["waves"], few["work_items_per_core"]) == (5, 1, 1)


@pytest.mark.parametrize(
    ("fits", "rates", "slowdown", "factor"),
    [
        (True, {"hit_rate": 0.9}, 8, 1),
        (False, {}, 8, 1),
        (False, {"hit_rate": 0.0}, 8, 8),
        (False, {"hit_rate": 0.5, "miss_rate": 0.25}, 4, 1.5),
    ],
)
def test_misses_cost_their_slowdown_unless_the_data_fit(
    fits: bool, rates: dict[str, float], slowdown: float, factor: float
) -> None:
    assert tmm.caching_factor(fits_on_chip=fits, slowdown=slowdown, **rates) == factor


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({"hit_rate": 1.1}, "hit_rate"),
        ({"miss_rate": -1}, "miss_rate"),
        ({"slowdown": 0.5}, "slow"),
    ],
)
def test_impossible_caches_are_refused(changes: dict[str, Any], parameter: str) -> None:
    arguments: dict[str, Any] = {"slowdown": 8, **changes}
    with pytest.raises(ParameterError, match=parameter):
        tmm.caching_factor(**arguments)


@given(st.integers(1, 500), st.integers(1, 16), st.integers(1, 64), st.integers(1, 50))
def test_the_scheduling_factor_depends_on_the_ratio_only(
    groups: int, active: int, units: int, scale: int
) -> None:
    factor = tmm.scheduling_factor(groups, active, units)
    scaled = tmm.scheduling_factor(groups * scale, active * scale, units)
    assert scaled == pytest.approx(factor, rel=1e-14)
    assert factor >= 1
    assert (factor == 1) == (groups % (active * units) == 0)


@given(st.sampled_from((16, 32, 64)), st.floats(0.25, 4))
def test_memory_bound_shortest_paths_follow_equation_14(sub_block: int, items: float) -> None:
    steps = paths_steps(sub_block, items)
    squared = VERTICES**2 * math.log2(VERTICES) * LATENCY
    root_of_groups = VERTICES // sub_block
    by_groups = squared * root_of_groups / (CHUNK * items) * steps.scheduling / 480
    assert steps.which == "memory"
    assert steps.steps == pytest.approx(by_groups, rel=1e-12)


EXACT = 1e-14
LINK = LinkParameters(startup_s=3.9687e-6, bandwidth_byte_per_s=15.8e9, lambda_c=0.689)
"""To a device over PCI Express 3."""
SAXPY_LAUNCH = LaunchConfiguration(work_items_per_group=256, num_groups=39063, occupancy=64)


def _gtx_970(**changes: Any) -> DeviceParameters:
    values: dict[str, Any] = {
        "num_compute_units": 13,
        "clock_hz": 1253e6,
        "sub_group_size": 32,
        "cores_per_compute_unit": 128,
        "schedulers_per_compute_unit": 4,
        "mem_clock_hz": 1753e6,
        "bus_width_bits": 256,
        "data_rate": 4.0,
        "max_sub_groups_per_compute_unit": 64,
    }
    return declare_device("gtx-970", **{**values, **changes})


def _saxpy(repeats: int) -> KernelProfile:
    return KernelProfile(
        name="saxpy2",
        ins_cuda=23 + 4 * repeats,
        ins_issued=23 + 4 * repeats,
        gmem_bytes=3 * 4 * 32,
        latency_bound=942 + 24 * repeats,
    )


@pytest.mark.parametrize(
    ("mem_clock_hz", "width", "units", "clock_hz", "expected"),
    [
        pytest.param(1753e6, 256, 13, 1253e6, 13.775185708146601, id="GTX 970"),
        pytest.param(1753e6, 384, 24, 1076e6, 13.033457249070633, id="Titan X"),
        pytest.param(2002e6, 256, 15, 1923e6, 8.8838966892009, id="GTX 1070"),
    ],
)
def test_bytes_per_cycle_of_the_published_devices(
    mem_clock_hz: float, width: int, units: int, clock_hz: float, expected: float
) -> None:
    device = _gtx_970(
        mem_clock_hz=mem_clock_hz, bus_width_bits=width, num_compute_units=units, clock_hz=clock_hz
    )
    assert MerpsysModel(device=device).bytes_per_cycle == pytest.approx(expected, rel=EXACT)


@pytest.mark.parametrize(
    ("repeats", "cycles", "bound"),
    [
        (1, 27.876212207644045, "memory"),
        (22, 27.876212207644045, "memory"),
        (23, 28.75, "cuda_cores"),
        (32, 37.75, "cuda_cores"),
        (4096, 4101.75, "cuda_cores"),
    ],
)
def test_the_busiest_resource_of_saxpy2(repeats: int, cycles: float, bound: str) -> None:
    taken = MerpsysModel(device=_gtx_970()).count_cycles(_saxpy(repeats))
    assert max(taken, key=taken.__getitem__) == bound
    assert taken[bound] == pytest.approx(cycles, rel=EXACT)
    assert taken["cuda_cores"] == taken["schedulers"]


@pytest.mark.parametrize(
    ("occupancy", "repeats", "wpc", "bound"),
    [
        (64, 1, 0.035872879448298436, "memory"),
        (8, 32, 8 / 1710, "latency"),
        (64, 32, 1 / 37.75, "compute"),
    ],
)
def test_throughput_of_saxpy2(occupancy: float, repeats: int, wpc: float, bound: str) -> None:
    model = MerpsysModel(device=_gtx_970())
    estimate = model.estimate(
        ProfiledKernel(_saxpy(repeats), replace(SAXPY_LAUNCH, occupancy=occupancy))
    )
    assert estimate.results["wpc"] == pytest.approx(wpc, rel=EXACT)
    assert estimate.bound == bound


def test_times_of_saxpy2_and_of_a_transfer() -> None:
    estimate = MerpsysModel(device=_gtx_970(lambda_k=0.703787)).estimate(
        ProfiledKernel(_saxpy(32), SAXPY_LAUNCH)
    )
    assert estimate.time_s == pytest.approx(1.0290509377916576e-3, rel=EXACT)
    assert transfer_time(LINK, 4e7) == pytest.approx(3.678345433846521e-3, rel=EXACT)
    assert transfer_time(LINK, 0) == LINK.startup_s


@given(
    st.floats(0.1, 10), st.floats(0.1, 10), st.integers(1, 8), st.floats(1, 64), st.floats(1, 64)
)
def test_time_is_inverse_to_factor_clock_and_compute_units_and_falls_with_occupancy(
    factor: float, speed: float, units: int, first: float, second: float
) -> None:
    low, high = sorted((first, second))
    device = _gtx_970()
    # bytes per cycle stay as they are where the memory clock grows alike
    scaled = device.with_values(
        clock_hz=1253e6 * speed, num_compute_units=13 * units, mem_clock_hz=1753e6 * speed * units
    )

    def time(parameters: DeviceParameters, occupancy: float, lambda_k: float = 1.0) -> float:
        model = MerpsysModel(device=parameters.with_values(lambda_k=lambda_k))
        return model.estimate(
            ProfiledKernel(_saxpy(8), replace(SAXPY_LAUNCH, occupancy=occupancy))
        ).time_s

    assert time(device, low, factor) == pytest.approx(time(device, low) / factor, rel=1e-12)
    assert time(scaled, low) == pytest.approx(time(device, low) / speed / units, rel=1e-12)
    assert time(device, high) <= time(device, low)


def test_what_a_profile_does_not_state_is_derived_from_its_instructions() -> None:
    classes = {"C": make_class("C", "alu", 0.25, 6), "M": make_class("M", "mem", 9, 350, "memory")}
    graph = InstructionGraph("MCCM", [(0, 1), (1, 2), (2, 3)])
    device = _gtx_970(
        classes=classes, mem_clock_hz=None, data_rate=None, bandwidth_byte_per_s=224.384e9
    )
    profile = KernelProfile(name="k", idg=graph, load_bytes_per_sub_group=128)
    results = MerpsysModel(device=device).estimate(ProfiledKernel(profile, SAXPY_LAUNCH)).results
    assert results["latency_bound"] == 350 + 6 + 6 + 350
    assert results["cycles[cuda_cores]"] == 2 * 32 / 128
    assert results["cycles[schedulers]"] == 1
    assert results["cycles[memory]"] == pytest.approx(256 / 13.775185708146601, rel=EXACT)
    # two accesses split into 32 transactions each, and one pair: 4 + 62 - 1 slots
    split = replace(profile, reissues=62, dual_issued_pairs=1)
    cycles = MerpsysModel(device=device).count_cycles(split)
    assert cycles["schedulers"] == 65 / 4


@pytest.mark.parametrize("repeats", [1, 32, 4096])
def test_issue_slots_of_saxpy2(repeats: int) -> None:
    executed = 26 + 4 * repeats
    # section 5.2 counts three pairs once: 23 + 4a; one of them is in the loop of Listing 3
    assert issue_slots(executed, dual_issued_pairs=3) == 23 + 4 * repeats
    assert issue_slots(executed, dual_issued_pairs=2 + repeats) == 24 + 3 * repeats
    with pytest.raises(ParameterError, match="make fewer pairs"):
        issue_slots(executed, dual_issued_pairs=executed)
