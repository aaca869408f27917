"""Pipeline simulator: worked examples, the plain simulator as oracle, bounds, refusals."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countperf.errors import DeviceParameterError, ModelNotApplicableError, ParameterError
from countperf.mechanistic.pipeline import (
    PipelineModel,
    conflict_cost,
    implied_bandwidth,
    memory_cost,
    mix_throughput,
)
from countperf.mechanistic.profile import InstructionGraph, ProfiledKernel
from countperf.mechanistic.simulation import Scheduler, Workload, simulate
from countperf.mechanistic.volkov import latency_from_graph
from tests.mechanistic.builders import (
    EXAMPLE_CLASSES,
    EXAMPLE_GRAPH,
    example_device,
    example_profile,
    launch_at,
    make_class,
)
from tests.oracles.pipeline import reference

EXAMPLE = Workload(programs=(EXAMPLE_GRAPH,), classes=EXAMPLE_CLASSES)
SCHEDULERS: tuple[Scheduler, ...] = ("rr", "oldest", "gto")


def example(concurrent_groups: int, **changes: Any) -> Workload:
    return replace(EXAMPLE, concurrent_groups=concurrent_groups, **changes)


def barrier_kernel(size: int, alu: tuple[float, float], barrier: tuple[float, float]) -> Workload:
    return Workload(
        programs=(InstructionGraph.chain(["I", "B"] * 30),),
        classes={
            "I": make_class("I", "alu", *alu),
            "B": make_class("B", "barrier", *barrier, "barrier"),
        },
        sub_groups_per_group=size,
        concurrent_groups=32 // size,
    )


def mix_kernel(repetitions: int, issue_limit: float | None = None) -> Workload:
    """Four instructions of type 1 and one of type 2, repeated."""
    return Workload(
        programs=(InstructionGraph.chain((["1"] * 4 + ["2"]) * repetitions),),
        classes={"1": make_class("1", "alu", 1, 4), "2": make_class("2", "sfu", 4, 8)},
        issue_limit=issue_limit,
    )


@pytest.mark.parametrize(
    ("scheduler", "cycles"),
    [
        ("rr", [25, 27, 29, 31, 34, 38, 43, 48]),
        ("oldest", [25, 27, 29, 31, 33, 36, 49, 51]),
        ("gto", [25, 27, 29, 31, 33, 36, 49, 51]),
    ],
)
def test_example_kernel_at_occupancy_1_to_8(scheduler: Scheduler, cycles: list[float]) -> None:
    found = [simulate(example(n, scheduler=scheduler)).cycles for n in range(1, 9)]

    assert found == cycles


def test_starts_of_one_and_two_sub_groups() -> None:
    one, two = (simulate(example(n), record=True) for n in (1, 2))

    assert [issue.time for issue in one.issues] == [0, 4, 8, 14, 15, 19]
    assert [(issue.time, issue.group) for issue in two.issues] == [
        (0, 0),
        (1, 1),
        (4, 0),
        (5, 1),
        (8, 0),
        (10, 1),
        (14, 0),
        (15, 0),
        (16, 1),
        (17, 1),
        (19, 0),
        (21, 1),
    ]
    assert two.fill == pytest.approx({"compute": 8 / 27, "memory": 8 / 27})
    assert two.overlap == 0


def test_ten_sub_groups_leave_no_gap() -> None:
    found = simulate(example(10), record=True)

    assert found.cycles == 58
    assert found.fill == pytest.approx({"compute": 40 / 58, "memory": 40 / 58})
    assert found.wpc == pytest.approx(0.172413793)
    assert found.occupied_any == pytest.approx(54 / 58)
    assert found.overlap == pytest.approx(26 / 54)
    for subsystem, cpi in (("compute", 1), ("memory", 2)):
        times = [issue.time for issue in found.issues if issue.subsystem == subsystem]
        assert {after - before for before, after in itertools.pairwise(times)} == {cpi}


@pytest.mark.parametrize(
    ("workload", "cycles"),
    [
        pytest.param(example(20), 108, id="in phase, so the roof is missed"),
        pytest.param(example(4, issue_limit=1), 34, id="issue limit"),
        pytest.param(example(4, total_groups=12), 83, id="12 groups"),
    ],
)
def test_example_kernel_in_groups(workload: Workload, cycles: float) -> None:
    assert simulate(workload).cycles == cycles


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
    found = [simulate(barrier_kernel(size, alu, barrier)).cycles for size in (1, 2, 4, 8, 16, 32)]

    assert found == cycles
    assert found == sorted(found)


def test_one_barrier() -> None:
    once = replace(barrier_kernel(4, (1, 18), (2, 40)), programs=(InstructionGraph.chain("IB"),))

    alone = simulate(replace(once, sub_groups_per_group=1, concurrent_groups=1))
    group = simulate(replace(once, concurrent_groups=1), record=True)

    assert (alone.cycles, group.cycles) == (58, 64)
    assert [issue.time for issue in group.issues] == [0, 1, 2, 3, 18, 20, 22, 24]


def test_many_groups_approach_the_roof() -> None:
    assert 0.245 < simulate(example(16, total_groups=1000)).wpc <= 0.25


def test_memory_costs() -> None:
    dram = make_class("ld", "memory", 18, 440, "memory")
    cache = make_class("ld", "memory", 4, 200, "memory")
    costs = [memory_cost(ratio, dram=dram, cache=cache) for ratio in (0.5, 1, 2.5)]

    assert [(cost.cpi, cost.latency) for cost in costs] == [(11, 320), (18, 440), (45, 467)]
    local = conflict_cost(3, make_class("ld.local", "local", 1, 28))
    assert (local.cpi, local.latency) == (4, 31)


@pytest.mark.parametrize(
    ("units", "clock", "cpi", "rate"),
    [
        pytest.param(14, 1.15e9, 23, 89.6, id="Fermi"),
        pytest.param(3, 1.058e9, 18, 22.57, id="Maxwell"),
        pytest.param(10, 1.506e9, 12, 160.64, id="Pascal"),
    ],
)
def test_bandwidth_behind_a_memory_cost(units: int, clock: float, cpi: float, rate: float) -> None:
    found = implied_bandwidth(
        num_compute_units=units,
        sub_group_size=32,
        bytes_per_work_item=4,
        cpi_mem=cpi,
        clock_hz=clock,
    )

    assert found / 1e9 == pytest.approx(rate, abs=0.005)


@pytest.mark.parametrize(
    ("ratio", "separate", "limit", "throughput"),
    [
        (4, False, None, 0.5),
        (4, True, None, 1),
        (4, True, 1, 0.8),
        (1, False, None, 0.2),
        (1, True, None, 0.25),
        (1, True, 1, 0.25),
        (16, True, 1, 16 / 17),
    ],
)
def test_analytic_mix(ratio: float, separate: bool, limit: float | None, throughput: float) -> None:
    found = mix_throughput(ratio, cpi_1=1, cpi_2=4, separate=separate, issue_limit=limit)

    assert found == pytest.approx(throughput)


@pytest.mark.parametrize("ratio", [1, 4, 16])
@pytest.mark.parametrize(
    ("separate", "limit", "least"),
    [(False, None, 0.95), (True, None, 0.95), (True, 1.0, 0.75)],
)
def test_simulated_mix_reaches_the_analytic_one(
    ratio: int, separate: bool, limit: float | None, least: float
) -> None:
    classes = {
        "1": make_class("1", "alu", 1, 4),
        "2": make_class("2", "sfu" if separate else "alu", 4, 8),
    }
    program = InstructionGraph.chain((["1"] * ratio + ["2"]) * 24)
    workload = Workload(
        programs=(program,), classes=classes, concurrent_groups=48, issue_limit=limit
    )

    found = simulate(workload).ipc * ratio / (ratio + 1)

    wanted = mix_throughput(ratio, cpi_1=1, cpi_2=4, separate=separate, issue_limit=limit)
    assert least <= found / wanted <= 1 + 1e-12


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
        scheduler=draw(st.sampled_from(SCHEDULERS)),
    )


@given(workload=workloads())
@settings(max_examples=150, deadline=None)
def test_every_start_is_that_of_the_plain_simulator(workload: Workload) -> None:
    end, starts = reference(workload)

    found = simulate(workload, record=True)

    assert found.cycles == float(end)
    assert [tuple(issue[:5]) for issue in found.issues] == [
        (float(time), *rest) for time, *rest in starts
    ]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
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
    workload: Workload, in_groups: bool, occupancies: tuple[int, ...], scheduler: Scheduler
) -> None:
    for occupancy in occupancies:
        size, groups = (occupancy, 1) if in_groups else (1, occupancy)
        full = replace(
            workload, sub_groups_per_group=size, concurrent_groups=groups, scheduler=scheduler
        )
        end, starts = reference(full)

        found = simulate(full, record=True)

        assert found.cycles == float(end)
        assert [issue[:5] for issue in found.issues] == [
            (float(time), *rest) for time, *rest in starts
        ]


def test_times_beyond_64_bits_are_simulated() -> None:
    # the common denominator of seven primes near a million is about 1e42
    primes = (999983, 999979, 999961, 999959, 999953, 999931, 999917)
    classes = {f"c{p}": make_class(f"c{p}", "alu", 1 + 1 / p, 2 + 1 / p) for p in primes}
    workload = Workload(
        programs=(InstructionGraph.chain(list(classes) * 3),), classes=classes, concurrent_groups=2
    )

    assert simulate(replace(workload, concurrent_groups=1000)).instructions == 21000


@given(workload=workloads())
@settings(max_examples=60, deadline=None)
def test_recorded_starts_give_the_utilization(workload: Workload) -> None:
    found = simulate(workload, record=True)
    points = sorted(
        {issue.time for issue in found.issues}
        | {issue.time + workload.classes[issue.name].cpi for issue in found.issues}
    )
    spans = [
        (
            after - before,
            sum(
                issue.time <= before < issue.time + workload.classes[issue.name].cpi
                for issue in found.issues
            ),
        )
        for before, after in itertools.pairwise(points)
    ]
    once = sum(length for length, count in spans if count >= 1)

    if found.cycles:
        assert found.occupied_any * found.cycles == pytest.approx(once)
    assert found.overlap * once == pytest.approx(
        sum(length for length, count in spans if count >= 2)
    )


def test_a_rebased_run_of_many_groups_agrees_with_the_plain_simulator() -> None:
    workload = example(3, total_groups=700, scheduler="gto")

    assert simulate(workload).cycles == float(reference(workload)[0])


@given(
    nodes=st.text("CM", min_size=1, max_size=8),
    data=st.data(),
    concurrent=st.integers(1, 12),
    scheduler=st.sampled_from(SCHEDULERS),
    limit=st.sampled_from([None, 0.5, 1, 1.5, 4]),
)
@settings(max_examples=120, deadline=None)
def test_one_sub_group_takes_its_latency_and_many_never_beat_volkov(
    nodes: str, data: st.DataObject, concurrent: int, scheduler: Scheduler, limit: float | None
) -> None:
    pairs = [(i, j) for j in range(len(nodes)) for i in range(j)]
    edges = data.draw(st.lists(st.sampled_from(pairs), max_size=8)) if pairs else []
    graph = InstructionGraph(nodes, edges)
    latency = latency_from_graph(graph, example_device())
    workload = replace(EXAMPLE, programs=(graph,), scheduler=scheduler)
    top = 1 / max(nodes.count("C"), 2 * nodes.count("M"))

    assert simulate(workload).cycles == latency
    many = simulate(replace(workload, concurrent_groups=concurrent, issue_limit=limit))
    if limit is not None:  # no latency is below 1 / limit
        top = min(top, limit / len(nodes))
    assert many.wpc <= min(top, concurrent / latency) * (1 + 1e-12)


def test_a_chain_takes_the_sum_of_its_latencies() -> None:
    chain = InstructionGraph.chain("CMMCCM")

    assert simulate(example(1, programs=(chain,))).cycles == 3 * 4 + 3 * 6


def test_the_other_natural_graph_of_the_example_idles() -> None:
    # two independent computations first: the closed forms are the same, the simulation is not
    other = InstructionGraph("CCMCCM", [(0, 2), (1, 2), (2, 3), (3, 4), (4, 5)])

    found = simulate(example(10, programs=(other,)), record=True)

    assert latency_from_graph(other, example_device()) == 25
    starts = [issue.time for issue in found.issues if issue.subsystem == "compute"]
    assert starts[-1] + 1 - starts[0] - len(starts) == 4


def test_order_of_the_classes_changes_nothing() -> None:
    turned = dict(reversed(list(EXAMPLE_CLASSES.items())))

    assert simulate(example(5, classes=turned)) == simulate(example(5))


def test_prediction_simulates_the_fullest_compute_unit() -> None:
    kernel = ProfiledKernel(profile=example_profile(), launch=launch_at(4, num_groups=13 * 11 + 1))

    prediction = PipelineModel(device=example_device()).predict(kernel)

    assert prediction.results["cycles"] == 83
    assert prediction.time_s == pytest.approx(83 / 1.253e9)
    assert prediction.model == "pipeline-rr"
    assert prediction.bound == "compute"
    assert sum(map(float, prediction.breakdown.values())) == pytest.approx(prediction.time_s)


def test_few_simulated_groups_stand_for_many() -> None:
    kernel = ProfiledKernel(profile=example_profile(), launch=launch_at(16, num_groups=13 * 3000))
    device = example_device()

    exact = PipelineModel(device=device).predict(kernel)
    short = PipelineModel(device=device, simulated_groups=400).predict(kernel)

    assert short.time_s == pytest.approx(exact.time_s, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        pytest.param({"issue_limit": 0}, "issue_limit", id="no issue"),
        pytest.param({"sub_groups_per_group": 0}, "sub_groups_per_group", id="empty groups"),
        pytest.param({"concurrent_groups": 0}, "concurrent_groups", id="no slots"),
        pytest.param({"total_groups": -1}, "total_groups", id="negative groups"),
        pytest.param({"scheduler": "lifo"}, "scheduler", id="scheduler"),
        pytest.param(
            {"programs": (EXAMPLE_GRAPH,) * 3, "sub_groups_per_group": 2},
            "sub_group_programs",
            id="number of programs",
        ),
        pytest.param(
            {
                "programs": (InstructionGraph("I"), InstructionGraph("IB")),
                "classes": barrier_kernel(1, (1, 1), (1, 1)).classes,
                "sub_groups_per_group": 2,
            },
            "sub_group_programs",
            id="a deadlock",
        ),
    ],
)
def test_bad_workloads_are_refused(changes: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        replace(EXAMPLE, **changes)

    assert caught.value.parameter == parameter


def test_a_class_without_costs_is_named() -> None:
    with pytest.raises(DeviceParameterError) as caught:
        replace(EXAMPLE, programs=(InstructionGraph("X"),))

    assert caught.value.field == "classes.X"


def test_negative_ratios_are_refused() -> None:
    local = make_class("ld", "local", 1, 28)

    with pytest.raises(ParameterError) as ratio:
        memory_cost(-0.1, dram=local, cache=local)
    with pytest.raises(ParameterError) as degree:
        conflict_cost(-1, local)
    with pytest.raises(ParameterError) as limit:
        mix_throughput(4, cpi_1=1, cpi_2=4, separate=False, issue_limit=1)

    assert ratio.value.parameter == "dram_ratio"
    assert degree.value.parameter == "conflict_degree"
    assert limit.value.parameter == "issue_limit"


def test_costs_from_dram_are_continuous_where_all_bytes_come_from_there() -> None:
    dram = make_class("ld", "memory", 18, 440, "memory")
    cache = make_class("ld", "memory", 4, 200, "memory")

    below, above = (memory_cost(1 + step, dram=dram, cache=cache) for step in (-1e-9, 1e-9))

    assert (below.cpi, below.latency) == pytest.approx((above.cpi, above.latency), rel=1e-8)


def test_a_kernel_without_a_graph_is_refused() -> None:
    kernel = ProfiledKernel(profile=example_profile(idg=None), launch=launch_at(4))

    with pytest.raises(ModelNotApplicableError) as caught:
        PipelineModel(device=example_device()).predict(kernel)

    assert caught.value.parameter == "idg"


def test_a_kernel_that_takes_no_time_is_refused() -> None:
    device = example_device(classes={"C": make_class("C", "compute", 1, 0)})
    profile = example_profile(alpha={}, idg=InstructionGraph("C"))
    kernel = ProfiledKernel(profile=profile, launch=launch_at(1, num_groups=1))

    with pytest.raises(ParameterError) as caught:
        PipelineModel(device=device).predict(kernel)

    assert caught.value.parameter == "cycles"
