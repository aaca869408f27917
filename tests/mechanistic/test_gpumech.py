"""GPUMech: the worked examples, intervals of graphs, limits of the schedulers, refused input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.errors import ParameterError
from countperf.hardware.parameters import DeviceParameters, InstructionClass, declare_device
from countperf.mechanistic.gpumech import (
    GpuMechModel,
    Interval,
    Policy,
    interval_cycles,
    intervals_of,
)
from countperf.mechanistic.profile import (
    InstructionGraph,
    KernelProfile,
    LaunchConfiguration,
    ProfiledKernel,
)

GRAPH = InstructionGraph("CCMCCM", [(0, 1), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5)])
TWO_AND_SIX = (Interval(2, 6), Interval(2, 6))


def _device(**changes: Any) -> DeviceParameters:
    values: dict[str, Any] = {
        "num_compute_units": 10,
        "clock_hz": 1e9,
        "sub_group_size": 32,
        "max_sub_groups_per_compute_unit": 48,
        "classes": {
            "C": InstructionClass(name="C", subsystem="alu", cpi=1, latency=4, kind="compute"),
            "M": InstructionClass(name="M", subsystem="mem", cpi=2, latency=6, kind="memory"),
            "B": InstructionClass(name="B", subsystem="bar", cpi=1, latency=9, kind="barrier"),
        },
    }
    return declare_device("example", **{**values, **changes})


LAUNCH = LaunchConfiguration(work_items_per_group=32, num_groups=200, occupancy=4)


@pytest.mark.parametrize(
    ("policy", "nonoverlapped", "cycles"), [("rr", 2, 11), ("rr_corrected", 6, 15), ("gto", 3, 12)]
)
def test_one_interval(policy: Policy, nonoverlapped: float, cycles: float) -> None:
    result = interval_cycles([Interval(3, 6)], 4, policy)

    assert result.issue_probability == pytest.approx(1 / 3, rel=1e-15)
    assert result.nonoverlapped == pytest.approx((nonoverlapped,), rel=1e-15)
    assert result.cpr == pytest.approx(cycles, rel=1e-15)
    assert (result.ipc, result.cpi) == pytest.approx((12 / cycles, cycles / 12), rel=1e-15)
    assert result.wpc == pytest.approx(4 / cycles, rel=1e-15)


@pytest.mark.parametrize(
    ("policy", "cycles"),
    [
        ("rr", [16, 16.5, 17, 17.5, 18]),
        ("rr_corrected", [16, 18, 20, 22, 24, 26, 28, 32, 36]),
        ("gto", [16, 16, 16, 16, 20, 24, 28, 32]),
    ],
)
def test_cycles_per_run_of_the_example(policy: Policy, cycles: list[float]) -> None:
    runs = [interval_cycles(TWO_AND_SIX, w, policy) for w in range(1, len(cycles) + 1)]

    assert [run.cpr for run in runs] == cycles
    assert runs[0].issue_probability == 0.25


def test_corrected_round_robin_overlaps_no_more_instructions_than_there_are() -> None:
    result = interval_cycles([Interval(0, 6), Interval(2, 1)], 4, "rr_corrected")

    assert result.nonoverlapped == (0, 5)
    assert result.cpr == 2 + 7 + 5


def test_round_robin_as_published_goes_through_the_roof() -> None:
    rates = [interval_cycles(TWO_AND_SIX, w, "rr").ipc for w in (4, 5)]

    assert rates[0] < 1 < rates[1]


def test_intervals_of_the_example_graph() -> None:
    assert intervals_of(GRAPH, _device()) == TWO_AND_SIX


def test_the_probability_to_issue_with_memory_instructions_counted() -> None:
    assert interval_cycles([Interval(3, 5)] * 2, 1, "gto").issue_probability == 0.375


def test_an_interval_may_hold_no_instruction() -> None:
    graph = InstructionGraph("MMC", [(0, 1), (1, 2)])

    assert intervals_of(graph, _device()) == (Interval(0, 6), Interval(0, 6), Interval(1, 0))


def test_a_barrier_takes_a_slot() -> None:
    assert intervals_of(InstructionGraph("CBC"), _device()) == (Interval(3, 0),)


_intervals = st.lists(
    st.builds(Interval, st.floats(0, 64), st.floats(0, 512)), min_size=1, max_size=6
).filter(lambda intervals: sum(interval.insts for interval in intervals) > 1e-3)
_policies: st.SearchStrategy[Policy] = st.sampled_from(("rr", "rr_corrected", "gto"))


@given(_intervals, _policies)
def test_one_sub_group_takes_its_instructions_and_stalls(
    intervals: list[Interval], policy: Policy
) -> None:
    result = interval_cycles(intervals, 1, policy)
    alone = sum(interval.insts + interval.stall for interval in intervals)

    assert result.cpr == pytest.approx(alone, rel=1e-12)


@given(_intervals, _policies, st.floats(1, 64), st.floats(1, 64))
def test_cycles_never_fall_with_occupancy(
    intervals: list[Interval], policy: Policy, first: float, second: float
) -> None:
    fewer, more = (interval_cycles(intervals, w, policy).cpr for w in sorted((first, second)))

    assert fewer <= more * (1 + 1e-12)


@given(_intervals, st.floats(1, 64))
def test_corrected_round_robin_never_issues_more_than_there_are_slots(
    intervals: list[Interval], occupancy: float
) -> None:
    result = interval_cycles(intervals, occupancy, "rr_corrected")
    busy = occupancy * sum(interval.insts for interval in intervals)

    assert result.cpr >= busy * (1 - 1e-12)


@given(st.integers(1, 6), st.floats(1, 64), st.floats(1, 64), st.floats(1, 64))
def test_greedy_with_equal_intervals_that_always_fill_is_volkovs_model(
    times: int, insts: float, more: float, occupancy: float
) -> None:
    # the stall is so long that p * stall >= 1: with n >= 1, s = n + 1 + more is enough
    stall = insts + 1 + more
    result = interval_cycles([Interval(insts, stall)] * times, occupancy, "gto")
    volkov = max(times * (insts + stall), occupancy * times * insts)

    if insts * stall >= insts + stall:
        assert result.cpr == pytest.approx(volkov, rel=1e-12)


@pytest.mark.parametrize(
    ("policy", "occupancy", "cycles", "bound"),
    [
        ("gto", 3, 16, "latency"),
        ("gto", 5, 20, "issue"),
        ("rr_corrected", 4, 22, "latency"),
        ("rr_corrected", 8, 32, "issue"),
    ],
)
def test_the_model_gives_the_time_of_the_example(
    policy: Policy, occupancy: float, cycles: float, bound: str
) -> None:
    model = GpuMechModel(device=_device(), policy=policy)
    launch = replace(LAUNCH, occupancy=occupancy)

    prediction = model.predict(
        ProfiledKernel(profile=KernelProfile(name="example", idg=GRAPH), launch=launch)
    )

    assert prediction.time_s == pytest.approx(200 * cycles / occupancy / 10 / 1e9, rel=1e-14)
    assert (prediction.model, prediction.bound) == (f"gpumech-{policy}", bound)
    assert sum(map(float, prediction.breakdown.values())) == pytest.approx(
        float(prediction.time_s), rel=1e-12
    )


def test_barriers_are_ignored_and_the_prediction_says_so() -> None:
    profile = KernelProfile(name="k", idg=InstructionGraph("CBC"))

    prediction = GpuMechModel(device=_device()).predict(
        ProfiledKernel(profile=profile, launch=LAUNCH)
    )

    assert prediction.ignored == ("barriers",)


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        pytest.param(lambda: interval_cycles([], 1, "gto"), "intervals", id="no interval"),
        pytest.param(
            lambda: interval_cycles([Interval(0, 6)], 1, "gto"), "intervals", id="no instruction"
        ),
        pytest.param(lambda: Interval(-1, 0), "intervals", id="negative instructions"),
        pytest.param(lambda: Interval(1, -1), "intervals", id="negative stall"),
        pytest.param(lambda: interval_cycles(TWO_AND_SIX, 0.5, "gto"), "occupancy", id="below one"),
        pytest.param(
            lambda: interval_cycles(TWO_AND_SIX, 1, "lrr"),  # pyright: ignore[reportArgumentType] - refused
            "policy",
            id="policy",
        ),
        pytest.param(
            lambda: GpuMechModel(device=_device(), policy="lrr"),  # pyright: ignore[reportArgumentType] - refused
            "policy",
            id="policy of the model",
        ),
        pytest.param(
            lambda: GpuMechModel(device=_device()).estimate(
                KernelProfile(name="k", idg=GRAPH), replace(LAUNCH, occupancy=49)
            ),
            "occupancy",
            id="above the limit",
        ),
    ],
)
def test_refused_input(call: Callable[[], object], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        call()

    assert caught.value.parameter == parameter
