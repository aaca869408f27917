"""Occupancy roofline: worked examples, shape, refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countperf.errors import ParameterError
from countperf.hardware.parameters import declare_device
from countperf.mechanistic.profile import InstructionGraph, ProfiledKernel
from countperf.mechanistic.roofline import roof
from countperf.mechanistic.volkov import (
    VolkovModel,
    latency_alone,
    latency_from_counts,
    latency_from_graph,
    occupancy_roof,
)
from tests.mechanistic.builders import (
    EXAMPLE_GRAPH,
    example_device,
    example_profile,
    launch_at,
    make_class,
)


def test_latency_of_the_example_kernel() -> None:
    assert latency_from_graph(EXAMPLE_GRAPH, example_device()) == 25


def test_a_result_used_later_is_waited_for() -> None:
    assert latency_from_graph(InstructionGraph("MCC", [(0, 2)]), example_device()) == 10


@pytest.mark.parametrize(
    ("occupancy", "wpc", "cpr"),
    [(1, 0.04, 25), (2, 0.08, 25), (6, 0.24, 25), (7, 0.25, 28)],
)
def test_throughput_of_the_example_kernel(occupancy: float, wpc: float, cpr: float) -> None:
    found = occupancy_roof(occupancy=occupancy, latency_app=25, wpc_roof=0.25)

    assert (found.wpc, found.cpr) == (pytest.approx(wpc), pytest.approx(cpr))
    assert found.ridge_occupancy == 6.25


def test_example_kernel_under_an_issue_limit() -> None:
    found = occupancy_roof(occupancy=7, latency_app=25, wpc_roof=1 / 6)

    assert found.wpc == 1 / 6
    assert found.ridge_occupancy == pytest.approx(25 / 6)


def test_three_subsystems() -> None:
    device = declare_device(
        classes={
            "a": make_class("a", "alu", 0.375, 6),
            "s": make_class("s", "sfu", 1, 15),
            "m": make_class("m", "memory", 18, 440, "memory"),
        }
    )
    counts = {"a": 20.0, "s": 4.0, "m": 2.0}
    latency, top = latency_from_counts(counts, device), roof(counts, device)

    assert latency == 1060
    assert list(top.busy.values()) == [7.5, 4, 36]
    at_16 = occupancy_roof(occupancy=16, latency_app=latency, wpc_roof=top.wpc)
    assert at_16.wpc == pytest.approx(0.0150943396, abs=1e-10)
    assert at_16.ridge_occupancy == pytest.approx(29.4444444)
    assert occupancy_roof(occupancy=48, latency_app=latency, wpc_roof=top.wpc).wpc == 1 / 36


def test_best_source_of_the_latency_is_taken() -> None:
    device = example_device()

    assert latency_alone(example_profile(), device) == 25
    assert latency_alone(example_profile(idg=None), device) == 28


def test_cycles_per_run_are_constant_below_the_ridge_and_linear_above() -> None:
    cycles = {
        omega: occupancy_roof(occupancy=omega, latency_app=25, wpc_roof=0.25).cpr
        for omega in (0.5, 3, 6.25, 12.5, 25)
    }

    assert list(cycles.values()) == pytest.approx([25, 25, 25, 50, 100])


@given(
    latency=st.floats(1, 1000),
    top=st.floats(0.001, 4),
    occupancies=st.tuples(*[st.floats(0.5, 64)] * 2),
)
@settings(max_examples=80, deadline=None)
def test_throughput_rises_and_is_concave(
    latency: float, top: float, occupancies: tuple[float, float]
) -> None:
    def wpc(occupancy: float) -> float:
        return occupancy_roof(occupancy=occupancy, latency_app=latency, wpc_roof=top).wpc

    low, high = sorted(occupancies)

    assert wpc(low) <= wpc(high)
    assert wpc((low + high) / 2) >= (wpc(low) + wpc(high)) / 2 - 1e-12


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_dependency_never_lowers_the_latency(data: st.DataObject) -> None:
    nodes = data.draw(st.text("CM", min_size=2, max_size=8))
    pairs = [(i, j) for j in range(len(nodes)) for i in range(j)]
    edges = data.draw(st.lists(st.sampled_from(pairs), max_size=6))
    extra = data.draw(st.sampled_from(pairs))
    device = example_device()

    before = latency_from_graph(InstructionGraph(nodes, edges), device)

    assert latency_from_graph(InstructionGraph(nodes, [*edges, extra]), device) >= before


def test_prediction_below_the_ridge_is_bound_by_latency() -> None:
    kernel = ProfiledKernel(profile=example_profile(), launch=launch_at(5))

    prediction = VolkovModel(device=example_device()).predict(kernel)

    assert prediction.time_s == pytest.approx(1300 * 5 / (13 * 1.253e9))
    assert prediction.bound == "latency"
    assert prediction.breakdown == pytest.approx(
        {"compute": prediction.time_s * 0.8, "latency": prediction.time_s * 0.2}
    )
    assert prediction.results["ridge_occupancy"] == 6.25


def test_prediction_above_the_ridge_is_bound_by_the_roof() -> None:
    kernel = ProfiledKernel(profile=example_profile(), launch=launch_at(20))

    prediction = VolkovModel(device=example_device()).predict(kernel)

    assert prediction.bound == "compute"
    assert prediction.breakdown == {"compute": prediction.time_s}


def test_twice_the_clock_is_half_the_time() -> None:
    kernel = ProfiledKernel(profile=example_profile(), launch=launch_at(5))
    slow, fast = (
        VolkovModel(device=example_device(clock_hz=clock)).predict(kernel) for clock in (1e9, 2e9)
    )

    assert slow.time_s == pytest.approx(2 * fast.time_s)
    assert slow.results == fast.results


@pytest.mark.parametrize("name", ["occupancy", "latency_app", "wpc_roof"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_bad_numbers_are_refused(name: str, value: float) -> None:
    values = {"occupancy": 1.0, "latency_app": 1.0, "wpc_roof": 1.0, name: value}

    with pytest.raises(ParameterError) as caught:
        occupancy_roof(**values)

    assert caught.value.parameter == name


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        pytest.param(
            lambda: latency_from_counts({"C": -1}, example_device()), "alpha[C]", id="counts"
        ),
        pytest.param(
            lambda: latency_alone(example_profile(idg=None, alpha={"C": 0}), example_device()),
            "latency_app",
            id="no work by count",
        ),
    ],
)
def test_bad_instructions_are_refused(call: Callable[[], object], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        call()

    assert caught.value.parameter == parameter
