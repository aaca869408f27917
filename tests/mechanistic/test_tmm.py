"""TMM: the worked examples, waves of groups, the shortest-paths example, refused input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.errors import DeviceParameterError, ModelNotApplicableError, ParameterError
from countperf.hardware.parameters import DeviceParameters, declare_device
from countperf.mechanistic.occupancy import resident_groups
from countperf.mechanistic.profile import KernelProfile, LaunchConfiguration, ProfiledKernel
from countperf.mechanistic.tmm import (
    ScheduledSteps,
    TmmModel,
    scheduled_steps,
    scheduling_factor,
    step_bound,
)

STEPS: dict[str, Any] = {
    "work": 4.8e9,
    "span": 1e3,
    "transactions": 3e6,
    "latency_steps": 400,
    "work_items_per_core": 4,
    "num_cores": 480,
}
SCHEDULED: dict[str, Any] = {
    "work": 4.8e9,
    "transactions": 3e6,
    "latency_steps": 400,
    "work_items_per_core": 4,
    "num_cores": 480,
    "num_groups": 60,
    "active_groups": 4,
    "num_compute_units": 15,
}
VERTICES, CHUNK, LATENCY = 8192, 32, 16384.0
"""The paper's largest graph; latency from where its curves become flat (512 = L / C)."""


def _scheduled(**changes: Any) -> ScheduledSteps:
    return scheduled_steps(**{**SCHEDULED, **changes})


def _gtx_480(**changes: Any) -> DeviceParameters:
    values: dict[str, Any] = {
        "num_compute_units": 15,
        "cores_per_compute_unit": 32,
        "sub_group_size": 32,
        "clock_hz": 1.4e9,
        "latency_steps": LATENCY,
        "max_work_items_per_compute_unit": 1536,
        "max_groups_per_compute_unit": 8,
        "max_sub_groups_per_compute_unit": 48,
        "registers_per_compute_unit": 32768,
        "local_bytes_per_compute_unit": 49152,
    }
    return declare_device("gtx-480", **{**values, **changes})


class ShortestPaths(NamedTuple):
    """Work of all-pairs shortest paths by repeated squaring in sub-blocks, the paper's example."""

    work: float
    transactions: float
    num_groups: int


def shortest_paths(num_vertices: int, sub_block: int, chunk: float) -> ShortestPaths:
    """Return T_1 = n^3 lg n, M = T_1 / (S_D C) by Eq. (10), and B_r = (n/S_D)^2."""
    work = num_vertices**3 * math.log2(num_vertices)
    groups = (num_vertices // sub_block) ** 2
    return ShortestPaths(work, work / (sub_block * chunk), groups)


def _paths(sub_block: int) -> KernelProfile:
    found = shortest_paths(VERTICES, sub_block, CHUNK)
    return KernelProfile(name="paths", work=found.work, transactions=found.transactions)


def _launch(num_groups: int = 65536, active_groups: int = 4) -> LaunchConfiguration:
    # 4 groups of 32 work items on 32 cores: 4 work items per core
    return LaunchConfiguration(
        work_items_per_group=32, num_groups=num_groups, active_groups=active_groups
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
    found = step_bound(**{**STEPS, **changes})

    assert (found.steps, found.which) == (steps, which)


@pytest.mark.parametrize(
    ("groups", "factor"),
    [(1, 15), (14, 15 / 14), (15, 1), (16, 1.875), (30, 1), (31, 45 / 31), (46, 60 / 46)],
)
def test_the_zigzag_over_groups(groups: int, factor: float) -> None:
    assert scheduling_factor(groups, 1, 15) == pytest.approx(factor, rel=1e-15)


def test_the_scheduling_factor_of_the_shortest_paths() -> None:
    assert scheduling_factor(65536, 4, 15) == 1093 * 60 / 65536 == 1.00067138671875


@pytest.mark.parametrize(("sub_block", "threshold"), [(64, 8), (32, 16), (16, 32)])
def test_curves_become_flat_where_latency_is_hidden(sub_block: int, threshold: float) -> None:
    found = shortest_paths(VERTICES, sub_block, CHUNK)

    def bound(items: float) -> tuple[str, float]:
        steps = step_bound(
            work=found.work,
            span=0,
            transactions=found.transactions,
            latency_steps=LATENCY,
            work_items_per_core=items,
            num_cores=480,
        )
        return steps.which, steps.steps

    assert bound(threshold) == ("work", found.work / 480)
    assert bound(threshold / 2) == ("memory", 2 * found.work / 480)
    assert bound(2 * threshold) == ("work", found.work / 480)


def test_scheduled_steps_of_the_shortest_paths() -> None:
    found = shortest_paths(VERTICES, 32, CHUNK)
    steps = scheduled_steps(
        work=found.work,
        transactions=found.transactions,
        latency_steps=LATENCY,
        work_items_per_core=4,
        num_cores=480,
        num_groups=found.num_groups,
        active_groups=4,
        num_compute_units=15,
    )

    assert steps.steps == pytest.approx(59596865536, rel=1e-14)
    assert (steps.which, steps.waves) == ("memory", 1093)


def test_three_tiles_of_the_shortest_paths_leave_room_for_four_groups() -> None:
    found = resident_groups(
        _gtx_480(), work_items_per_group=32, local_bytes_per_group=3 * 32 * 32 * 4
    )

    assert (found.active_groups, found.limiter) == (4, "local")


@given(st.integers(1, 500), st.integers(1, 16), st.integers(1, 64), st.integers(1, 50))
def test_the_scheduling_factor_depends_on_the_ratio_only(
    groups: int, active: int, units: int, scale: int
) -> None:
    factor = scheduling_factor(groups, active, units)

    assert scheduling_factor(groups * scale, active * scale, units) == pytest.approx(
        factor, rel=1e-14
    )
    assert factor >= 1
    assert (factor == 1) == (groups % (active * units) == 0)


@given(st.sampled_from((16, 32, 64)), st.floats(0.25, 4))
def test_memory_bound_shortest_paths_follow_equation_14(sub_block: int, items: float) -> None:
    found = shortest_paths(VERTICES, sub_block, CHUNK)
    steps = scheduled_steps(
        work=found.work,
        transactions=found.transactions,
        latency_steps=LATENCY,
        work_items_per_core=items,
        num_cores=480,
        num_groups=found.num_groups,
        active_groups=4,
        num_compute_units=15,
    )
    squared = VERTICES**2 * math.log2(VERTICES) * LATENCY  # Eq. (14)
    by_groups = squared * math.sqrt(found.num_groups) / (CHUNK * items) * steps.scheduling / 480

    assert steps.which == "memory"
    assert steps.steps == pytest.approx(by_groups, rel=1e-12)


def test_the_model_gives_a_cycle_to_a_step() -> None:
    prediction = TmmModel(device=_gtx_480()).predict(
        ProfiledKernel(profile=_paths(32), launch=_launch())
    )

    assert prediction.time_s == pytest.approx(59596865536 / 1.4e9, rel=1e-14)
    assert (prediction.model, prediction.bound) == ("tmm", "memory")
    assert prediction.results["work_items_per_core"] == 4
    assert sum(map(float, prediction.breakdown.values())) == pytest.approx(
        float(prediction.time_s), rel=1e-12
    )


def test_fewer_groups_than_slots_run_on_as_many_compute_units() -> None:
    estimate = TmmModel(device=_gtx_480()).estimate(_paths(32), _launch(num_groups=3))

    assert (estimate.results["scheduling"], estimate.results["waves"]) == (5, 1)
    assert estimate.results["work_items_per_core"] == 1


def _model(profile: KernelProfile, **changes: Any) -> Callable[[], object]:
    return lambda: TmmModel(device=_gtx_480(**changes)).estimate(profile, _launch())


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        *(
            pytest.param(
                lambda name=name, value=value: step_bound(**{**STEPS, name: value}),
                name,
                id=f"{name} {value}",
            )
            for name, value in (
                ("work", -1),
                ("span", -1),
                ("transactions", -1),
                ("latency_steps", 0),
                ("work_items_per_core", 0),
                ("num_cores", 0),
                ("work", float("nan")),
            )
        ),
        *(
            pytest.param(lambda name=name: _scheduled(**{name: 0}), name, id=f"no {name}")
            for name in ("num_groups", "active_groups", "num_compute_units")
        ),
        pytest.param(
            lambda: step_bound(**STEPS, max_work_items_per_core=3),
            "work_items_per_core",
            id="above the limit",
        ),
        pytest.param(
            lambda: step_bound(**{**STEPS, "work": 0, "span": 0, "transactions": 0}),
            "work",
            id="no work",
        ),
        pytest.param(lambda: scheduling_factor(1, 1, 0), "num_compute_units", id="no unit"),
        pytest.param(
            lambda: TmmModel(device=_gtx_480()).estimate(
                _paths(32), replace(_launch(), occupancy=49)
            ),
            "occupancy",
            id="occupancy",
        ),
        pytest.param(
            _model(_paths(32), max_work_items_per_core=3.0), "work_items_per_core", id="device"
        ),
        pytest.param(_model(KernelProfile(name="k", work=0, transactions=0)), "work", id="profile"),
    ],
)
def test_refused_input(call: Callable[[], object], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        call()

    assert caught.value.parameter == parameter


@pytest.mark.parametrize(
    ("profile", "parameter"),
    [
        (KernelProfile(name="k", transactions=1), "work"),
        (KernelProfile(name="k", work=1), "transactions"),
    ],
)
def test_a_profile_that_lacks_a_count_is_refused(profile: KernelProfile, parameter: str) -> None:
    with pytest.raises(ModelNotApplicableError) as caught:
        _model(profile)()

    assert caught.value.parameter == parameter


@pytest.mark.parametrize("field", ["latency_steps", "cores_per_compute_unit", "clock_hz"])
def test_a_constant_that_the_device_lacks_is_named(field: str) -> None:
    with pytest.raises(DeviceParameterError) as caught:
        _model(_paths(32), **{field: None})()

    assert caught.value.field == field
