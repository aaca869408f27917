"""Pipeline simulator: worked examples, the plain simulator as oracle, bounds, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countperf.errors import ParameterError
from countperf.mechanistic.pipeline import (
    IssueOrder,
    PipelineModel,
    Scheduler,
    Simulation,
    Workload,
)
from countperf.mechanistic.profile import (
    InstructionGraph,
    KernelProfile,
    LaunchConfiguration,
    ProfiledKernel,
)
from countperf.mechanistic.roofline import latency_from_graph
from tests.mechanistic.builders import (
    EXAMPLE_CLASSES,
    EXAMPLE_GRAPH,
    chain,
    example_device,
    example_profile,
    launch_at,
    make_class,
)
from tests.oracles.pipeline import reference

EXAMPLE = Workload(programs=(EXAMPLE_GRAPH,), classes=EXAMPLE_CLASSES)


def example(concurrent_groups: int, **changes: Any) -> Workload:
    return replace(EXAMPLE, concurrent_groups=concurrent_groups, **changes)


def barrier_kernel(size: int, alu: tuple[float, float], barrier: tuple[float, float]) -> Workload:
    return Workload(
        programs=(chain(["I", "B"] * 30),),
        classes={
            "I": make_class("I", "alu", *alu),
            "B": make_class("B", "barrier", *barrier, "barrier"),
        },
        sub_groups_per_group=size,
        concurrent_groups=32 // size,
    )


Sharing = Literal["one subsystem", "two subsystems", "two subsystems with an issue limit"]


def mix_throughput(
    ratio: float, cpi_fast: float, cpi_slow: float, sharing: Sharing, issue_limit: float
) -> float:
    """Throughput of the fast class of a mix, instruction/cycle (Lemeire et al., section 5)."""
    if sharing == "one subsystem":
        return ratio / (ratio * cpi_fast + cpi_slow)
    bound = min(1 / cpi_fast, ratio / cpi_slow)
    if sharing == "two subsystems":
        return bound
    return min(bound, ratio / (ratio + 1) * issue_limit)


def mix_kernel(repetitions: int, issue_limit: float | None = None) -> Workload:
    """Four instructions of type 1 and one of type 2, repeated."""
    return Workload(
        programs=(chain((["1"] * 4 + ["2"]) * repetitions),),
        classes={"1": make_class("1", "alu", 1, 4), "2": make_class("2", "sfu", 4, 8)},
        issue_limit=issue_limit,
    )


def test_example_kernel() -> None:
    cycles = [Simulation(example(n)).cycles for n in (*range(1, 9), 10, 20)]
    assert cycles == [25, 27, 29, 31, 34, 38, 43, 48, 58, 108]  # in phase, so no roof at 20
    assert Simulation(example(4, issue_limit=1)).cycles == 34
    assert Simulation(example(4, total_groups=12)).cycles == 83
    assert Simulation(example(1, programs=(chain("CMMCCM"),))).cycles == 3 * 4 + 3 * 6
    many = example(3, total_groups=700)
    assert Simulation(many).cycles == float(reference(many)[0])
    turned = dict(reversed(list(EXAMPLE_CLASSES.items())))
    assert Simulation(example(5, classes=turned)).cycles == Simulation(example(5)).cycles


def _are_without_gap(run: Simulation) -> bool:
    """Return whether each subsystem starts an instruction as soon as the one before lets it."""
    times = {name: [s.time for s in run.profile if s.subsystem == name] for name in run.subsystems}
    cpi = {"compute": 1, "memory": 2}
    return all({b - a for a, b in pairwise(times[name])} == {cpi[name]} for name in cpi)


def test_profiles_of_figures_8_and_9() -> None:
    one, two, ten = (Simulation(example(n), record=True) for n in (1, 2, 10))
    assert [start.time for start in one.profile] == [0, 4, 8, 14, 15, 19]
    assert [(start.time, start.group) for start in two.profile] == [
        *((0, 0), (1, 1), (4, 0), (5, 1), (8, 0), (10, 1)),
        *((14, 0), (15, 0), (16, 1), (17, 1), (19, 0), (21, 1)),
    ]
    assert (one.overlap, two.overlap) == (0, 0)
    # at ten, no subsystem is idle but for fill and drain, which are 18 of 58 cycles; it would be
    # with the other schedulers
    others = [Simulation(example(10, scheduler=name), record=True) for name in ("gto", "oldest")]
    assert [_are_without_gap(run) for run in (ten, *others)] == [True, False, False]
    assert ten.fill == pytest.approx({"compute": 40 / 58, "memory": 40 / 58})
    assert (ten.wpc, ten.overlap) == pytest.approx((10 / 58, 26 / 54))


@pytest.mark.parametrize(
    ("scheduler", "issue_order", "cycles"),
    [
        ("oldest", "in_order", [25, 27, 29, 31, 33, 36, 49, 51]),
        ("gto", "in_order", [25, 27, 29, 31, 33, 36, 49, 51]),
    ],
)
def test_schedulers_and_orders_of_the_example(
    scheduler: Scheduler, issue_order: IssueOrder, cycles: list[float]
) -> None:
    choice: dict[str, Any] = {"scheduler": scheduler, "issue_order": issue_order}
    found = [Simulation(example(n, **choice)).cycles for n in range(1, 9)]
    assert found == cycles
    model = PipelineModel(device=example_device(), **choice)
    estimate = model.estimate(ProfiledKernel(example_profile(), launch_at(5, num_groups=13 * 5)))
    assert (model.model, estimate.results["cycles"]) == (f"pipeline-{scheduler}", cycles[4])


def test_any_order_starts_what_depends_on_nothing() -> None:
    # the second computation needs no load: in order it waits for the first one
    graph = InstructionGraph("MCC", [(0, 1)])
    orders: tuple[IssueOrder, ...] = ("in_order", "any")
    for order, starts in zip(orders, ([0, 6, 7], [0, 0, 6]), strict=True):
        workload = example(1, programs=(graph,), issue_order=order)
        assert [start.time for start in Simulation(workload, record=True).profile] == starts


def test_the_launch_of_a_group_takes_its_latency() -> None:
    pairs = example(2, sub_groups_per_group=2, total_groups=4, group_launch_latency=10)
    assert Simulation(pairs).cycles == 70
    # 25 cycles alone, a group after the other, with Gajger & Czarnul's 150 cycles between them
    kernel = ProfiledKernel(example_profile(), launch_at(1, num_groups=13 * 2))
    model = PipelineModel(device=example_device(), group_launch_latency=150)
    assert model.estimate(kernel).results["cycles"] == 25 + 150 + 25


@pytest.mark.parametrize(
    "changes", [{"scheduler": "lifo"}, {"issue_order": "random"}, {"group_launch_latency": -1}]
)
def test_refused_choices(changes: dict[str, Any]) -> None:
    with pytest.raises(ParameterError) as caught:
        example(1, **changes)
    assert caught.value.parameter in changes


@pytest.mark.parametrize(
    ("alu", "barrier", "cycles"),
    [
        pytest.param((1, 18), (2, 40), [1976, 1976, 1976, 2208, 2672, 3600], id="Fermi"),
        pytest.param(
            (0.25, 6), (2.25, 70), [2349.75, 2415, 2545.5, 2806.5, 3328.5, 4372.5], id="Pascal"
        ),
    ],
)
def test_barrier_kernel(
    alu: tuple[float, float], barrier: tuple[float, float], cycles: list[float]
) -> None:
    result = [
        Simulation(barrier_kernel(size, alu, barrier)).cycles for size in (1, 2, 4, 8, 16, 32)
    ]
    assert result == cycles


def test_one_barrier() -> None:
    once = replace(barrier_kernel(4, (1, 18), (2, 40)), programs=(chain("IB"),))
    alone = Simulation(replace(once, sub_groups_per_group=1, concurrent_groups=1))
    group = Simulation(replace(once, concurrent_groups=1))
    assert (alone.cycles, group.cycles) == (58, 64)


@pytest.mark.parametrize("ratio", [1, 4, 16])
@pytest.mark.parametrize(
    ("sharing", "limit", "least"),
    [
        ("one subsystem", None, 0.95),
        ("two subsystems", None, 0.95),
        ("two subsystems with an issue limit", 1.0, 0.75),
    ],
)
def test_simulated_mix_reaches_the_analytic_one(
    ratio: int, sharing: Sharing, limit: float | None, least: float
) -> None:
    classes = {
        "1": make_class("1", "alu", 1, 4),
        "2": make_class("2", "alu" if sharing == "one subsystem" else "sfu", 4, 8),
    }
    program = chain((["1"] * ratio + ["2"]) * 24)
    workload = Workload(
        programs=(program,), classes=classes, concurrent_groups=48, issue_limit=limit
    )
    result = Simulation(workload).ipc * ratio / (ratio + 1)
    wanted = mix_throughput(ratio, 1, 4, sharing, limit or math.inf)
    assert least <= result / wanted <= 1 + 1e-12


COSTS = st.sampled_from([0.25, 0.5, 1, 1.5, 2, 3])
LATENCIES = st.sampled_from([0, 1, 2, 5, 7.5])


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    classes = {
        name: make_class(
            name,
            draw(st.sampled_from("xyz")),
            draw(COSTS),
            draw(LATENCIES),
            "barrier" if name == "B" else "compute",
        )
        for name in "abB"
    }
    size = draw(st.integers(1, 3))
    barriers = draw(st.integers(0, 2))
    programs: list[InstructionGraph] = []
    for _ in range(draw(st.sampled_from([1, size]))):
        body = draw(st.lists(st.sampled_from("ab"), min_size=1, max_size=5))
        nodes = draw(st.permutations([*body, *"B" * barriers]))
        pairs = [(i, j) for j in range(len(nodes)) for i in range(j)]
        edges = draw(st.lists(st.sampled_from(pairs), max_size=8)) if pairs else []
        programs.append(InstructionGraph(nodes, edges))
    return Workload(
        programs=tuple(programs),
        classes=classes,
        sub_groups_per_group=size,
        concurrent_groups=draw(st.integers(1, 3)),
        total_groups=draw(st.sampled_from([None, 1, 5])),
        issue_limit=draw(st.sampled_from([None, 0.5, 1, 1.5])),
        scheduler=draw(st.sampled_from(get_args(Scheduler))),
        issue_order=draw(st.sampled_from(get_args(IssueOrder))),
        group_launch_latency=draw(st.sampled_from([0, 3])),
    )


@given(workload=workloads())
@settings(max_examples=150, deadline=None)
def test_every_start_is_that_of_the_plain_simulator(workload: Workload) -> None:
    end, starts = reference(workload)
    result = Simulation(workload, record=True)
    assert result.cycles == float(end)
    assert result.instructions == len(starts)
    assert [tuple(start) for start in result.profile] == [
        (float(time), *rest) for time, *rest in starts
    ]
    # how many subsystems are occupied between any two events
    cost = {node: workload.classes[name].cpi for node, name in _names(workload).items()}
    spans = [(s.time, s.time + cost[s.sub_group, s.node]) for s in result.profile]
    points = sorted({point for span in spans for point in span})
    counts = [sum(low <= at < high for low, high in spans) for at in points[:-1]]
    lengths = [(after - at, k) for (at, after), k in zip(pairwise(points), counts, strict=True)]
    once, twice = (sum(length for length, k in lengths if k >= least) for least in (1, 2))
    assert result.overlap * once == pytest.approx(twice)


def _names(workload: Workload) -> dict[tuple[int, int], str]:
    """Return the class of each instruction by sub-group and position."""
    programs = workload.programs * (workload.sub_groups_per_group // len(workload.programs))
    return {(s, n): name for s, p in enumerate(programs) for n, name in enumerate(p.nodes)}


@pytest.mark.parametrize(
    ("workload", "in_groups", "occupancies"),
    [
        pytest.param(EXAMPLE, False, (1, 2, 7, 20, 33, 64), id="example"),
        pytest.param(mix_kernel(4), False, (1, 5, 33), id="mix"),
        pytest.param(mix_kernel(4, issue_limit=1), False, (1, 5, 33), id="mix under a valve"),
        pytest.param(barrier_kernel(1, (1, 18), (2, 40)), True, (1, 5, 20), id="barrier"),
    ],
)
def test_published_kernels_at_many_occupancies_are_those_of_the_plain_simulator(
    workload: Workload, in_groups: bool, occupancies: tuple[int, ...]
) -> None:
    for occupancy in occupancies:
        size, groups = (occupancy, 1) if in_groups else (1, occupancy)
        full = replace(workload, sub_groups_per_group=size, concurrent_groups=groups)
        assert Simulation(full).cycles == float(reference(full)[0])


def test_times_beyond_64_bits_are_simulated() -> None:
    # the common denominator of seven primes near a million is about 1e42
    primes = (999983, 999979, 999961, 999959, 999953, 999931, 999917)
    classes = {f"c{p}": make_class(f"c{p}", "alu", 1 + 1 / p, 2 + 1 / p) for p in primes}
    workload = Workload(programs=(chain(list(classes) * 3),), classes=classes, concurrent_groups=2)
    assert Simulation(replace(workload, concurrent_groups=1000)).instructions == 21000


@given(
    nodes=st.text("CM", min_size=1, max_size=8),
    data=st.data(),
    concurrent=st.integers(1, 12),
    limit=st.sampled_from([None, 0.5, 1, 1.5, 4]),
    scheduler=st.sampled_from(get_args(Scheduler)),
)
@settings(max_examples=120, deadline=None)
def test_one_sub_group_takes_its_latency_and_many_never_beat_volkov(
    nodes: str, data: st.DataObject, concurrent: int, limit: float | None, scheduler: Scheduler
) -> None:
    pairs = [(i, j) for j in range(len(nodes)) for i in range(j)]
    edges = data.draw(st.lists(st.sampled_from(pairs), max_size=8)) if pairs else []
    graph = InstructionGraph(nodes, edges)
    latency = latency_from_graph(graph, example_device())
    workload = replace(EXAMPLE, programs=(graph,), scheduler=scheduler)
    top = 1 / max(nodes.count("C"), 2 * nodes.count("M"))
    assert Simulation(workload).cycles == latency
    many = Simulation(replace(workload, concurrent_groups=concurrent, issue_limit=limit))
    if limit is not None:  # no latency is below 1 / limit
        top = min(top, limit / len(nodes))
    assert many.wpc <= min(top, concurrent / latency) * (1 + 1e-12)


def test_prediction_simulates_the_fullest_compute_unit() -> None:
    kernel = ProfiledKernel(profile=example_profile(), launch=launch_at(4, num_groups=13 * 7 + 1))
    prediction = PipelineModel(device=example_device()).predict(kernel)
    cycles = Simulation(example(4, total_groups=8)).cycles
    assert prediction.results["cycles"] == cycles
    assert prediction.time_s == pytest.approx(cycles / 1.253e9)
    assert prediction.bound == "compute"
    # two waves and the partial one stand for many groups
    many = ProfiledKernel(profile=example_profile(), launch=launch_at(16, num_groups=13 * 3000))
    cycles = Simulation(example(16, total_groups=3000)).cycles
    prediction = PipelineModel(device=example_device()).predict(many)
    assert prediction.results["cycles"] == pytest.approx(cycles, rel=0.02)


@pytest.mark.parametrize("groups", [8, 9, 15, 16, 17, 23])
def test_the_last_partial_wave_is_simulated(groups: int) -> None:
    barrier = make_class("B", "barrier", 1, 9, "barrier")
    device = example_device(classes={**EXAMPLE_CLASSES, "B": barrier})
    profile = KernelProfile(name="k", idg=chain("MCCBMCB" * 20))
    launch = LaunchConfiguration(work_items_per_group=64, num_groups=13 * groups, active_groups=8)
    estimate = PipelineModel(device=device).estimate(ProfiledKernel(profile, launch))
    workload = Workload(
        programs=(chain("MCCBMCB" * 20),),
        classes=device.classes,
        sub_groups_per_group=2,
        concurrent_groups=8,
        total_groups=groups,
    )
    assert estimate.results["cycles"] == Simulation(workload).cycles


@pytest.mark.parametrize("groups", [25, 33, 84, 97])
def test_many_waves_with_a_partial_one_take_what_their_simulation_does(groups: int) -> None:
    kernel = ProfiledKernel(example_profile(), launch_at(8, num_groups=13 * groups))
    cycles = PipelineModel(device=example_device()).estimate(kernel).results["cycles"]
    assert cycles == pytest.approx(Simulation(example(8, total_groups=groups)).cycles, rel=0.025)
