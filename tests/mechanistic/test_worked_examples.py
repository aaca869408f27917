"""Roofline, Volkov, transit, GPUMech and work flow graphs: worked examples, limits, equalities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countperf.devices.parameters import DeviceParameters, declare_device
from countperf.errors import ParameterError
from countperf.mechanistic import wfg
from countperf.mechanistic.gpumech import (
    GpuMechModel,
    Interval,
    IntervalCycles,
    Policy,
    intervals_of,
)
from countperf.mechanistic.profile import (
    InstructionGraph,
    KernelProfile,
    MechanisticModel,
    ProfiledKernel,
)
from countperf.mechanistic.roofline import (
    ByteRooflineModel,
    TransitModel,
    VolkovModel,
    latency_alone,
    latency_from_graph,
    roof,
)
from tests.mechanistic import builders


def device_of(*costs: str) -> DeviceParameters:
    """Return a device of classes as ``name subsystem cpi latency``; memory is of its kind."""
    classes = {}
    for name, subsystem, cpi, latency in map(str.split, costs):
        kind = "memory" if subsystem == "memory" else "compute"
        classes[name] = builders.make_class(name, subsystem, float(cpi), float(latency), kind)
    return declare_device(classes=classes)


UNIT: dict[str, Any] = {"num_compute_units": 1, "clock_hz": 1.0, "sub_group_size": 32}
EXAMPLE_COSTS = ("C compute 1 4", "M memory 2 6")
THREE_COSTS = ("a alu 0.25 6", "s sfu 1 15", "d dp 7.5 42")
ONES = {"x": 1.0, "y": 1.0}


@pytest.mark.parametrize(
    ("costs", "counts", "limit", "wpc", "kind"),
    [
        (EXAMPLE_COSTS, {"C": 4, "M": 2}, None, 1 / 4, "compute"),
        (EXAMPLE_COSTS, {"C": 4, "M": 2}, 1, 1 / 6, "issue"),
        (THREE_COSTS, {"a": 3, "s": 2, "d": 1.5}, None, 1 / 11.25, "compute"),
        # ties: those that compute before memory, issue last
        (("x zeta 2 4", "y memory 2 4"), ONES, None, 1 / 2, "compute"),
        (("x zeta 2 4", "y eta 2 4"), ONES, 1, 1 / 2, "compute"),
    ],
)
def test_roof(
    costs: tuple[str, ...], counts: dict[str, float], limit: float | None, wpc: float, kind: str
) -> None:
    top = roof(counts, device_of(*costs).with_values(issue_limit=limit))
    assert (top.wpc, top.kind) == (wpc, kind)


def test_roof_in_bytes() -> None:
    device = declare_device(peak_flops=1e12, bandwidth_byte_per_s=1e11, launch_overhead_s=1.0)
    profile = KernelProfile(name="k", total_flops=2e9, total_bytes=1.2e10)
    kernel = ProfiledKernel(profile=profile, launch=builders.launch_at(1))
    model = ByteRooflineModel(device=device)
    top = model.estimate(kernel)
    assert (top.time_s, top.bound) == (pytest.approx(0.12), "memory")
    assert top.results == pytest.approx({"intensity": 1 / 6, "ridge": 10})
    prediction = model.predict(kernel)
    assert prediction.bound == "launch"
    assert prediction.breakdown == pytest.approx({"launch": 1.0, "memory": 0.12})


POSITIVE = st.floats(0.01, 100)


@given(c=POSITIVE, m=POSITIVE, cpi_c=POSITIVE, cpi_m=POSITIVE)
@settings(max_examples=60, deadline=None)
def test_the_roof_of_two_subsystems_is_equation_1(
    c: float, m: float, cpi_c: float, cpi_m: float
) -> None:
    device = device_of(f"C compute {cpi_c} 4", f"M memory {cpi_m} 6")
    # Lemeire et al., computations per cycle over computations
    assert min(1 / cpi_c, c / m / cpi_m) / c == pytest.approx(roof({"C": c, "M": m}, device).wpc)


def test_latency_of_one_sub_group() -> None:
    device = builders.example_device()
    assert latency_from_graph(builders.EXAMPLE_GRAPH, device) == latency_alone(
        builders.example_profile(), device
    )
    assert latency_alone(builders.example_profile(), device) == 25
    assert latency_alone(builders.example_profile(idg=None), device) == 28
    # a result that is used later is waited for
    assert latency_from_graph(InstructionGraph("MCC", [(0, 2)]), device) == 10


def rate_at(
    model: type[MechanisticModel], occupancy: float, device: DeviceParameters, **profile: Any
) -> Mapping[str, float]:
    kernel = ProfiledKernel(builders.example_profile(**profile), builders.launch_at(occupancy))
    return model(device=device).estimate(kernel).results


@pytest.mark.parametrize(
    ("occupancy", "limit", "wpc", "cpr", "ridge"),
    [
        (0.5, None, 0.02, 25, 6.25),
        (1, None, 0.04, 25, 6.25),
        (6, None, 0.24, 25, 6.25),
        (7, None, 0.25, 28, 6.25),
        (25, None, 0.25, 100, 6.25),
        (7, 1, 1 / 6, 42, 25 / 6),
    ],
)
def test_volkov_over_occupancy(
    occupancy: float, limit: float | None, wpc: float, cpr: float, ridge: float
) -> None:
    rate = rate_at(VolkovModel, occupancy, builders.example_device(issue_limit=limit))
    names = ("wpc", "cpr", "ridge_occupancy")
    assert [rate[name] for name in names] == pytest.approx([wpc, cpr, ridge])


def test_volkov_with_three_subsystems() -> None:
    device = device_of("a alu 0.375 6", "s sfu 1 15", "m memory 18 440").with_values(**UNIT)
    counts = {"a": 20.0, "s": 4.0, "m": 2.0}
    assert latency_alone(builders.example_profile(alpha=counts, idg=None), device) == 1060
    assert list(roof(counts, device).busy.values()) == [7.5, 4, 36]
    at_16, at_48 = (
        rate_at(VolkovModel, occupancy, device, alpha=counts, idg=None) for occupancy in (16, 48)
    )
    assert at_16["wpc"] == pytest.approx(0.0150943396, abs=1e-10)
    assert at_16["ridge_occupancy"] == pytest.approx(29.4444444)
    assert at_48["wpc"] == 1 / 36


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_dependency_never_lowers_the_latency(data: st.DataObject) -> None:
    nodes = data.draw(st.text("CM", min_size=2, max_size=8))
    pairs = [(i, j) for j in range(len(nodes)) for i in range(j)]
    edges = data.draw(st.lists(st.sampled_from(pairs), max_size=6))
    extra = data.draw(st.sampled_from(pairs))
    before = latency_from_graph(InstructionGraph(nodes, edges), builders.example_device())
    assert (
        latency_from_graph(InstructionGraph(nodes, [*edges, extra]), builders.example_device())
        >= before
    )


LONG_COSTS = ("C compute 1 20", "M memory 8 400")


@pytest.mark.parametrize(
    ("costs", "alpha", "occupancy", "wpc"),
    [
        pytest.param(EXAMPLE_COSTS, (4, 2), 5, 5 / 28, id="example, below the roofs"),
        pytest.param(EXAMPLE_COSTS, (4, 2), 7, 0.25, id="example, at both roofs"),
        pytest.param(EXAMPLE_COSTS, (4, 2), 10, 0.25, id="example, above"),
        pytest.param(LONG_COSTS, (10, 1), 40, 1 / 15, id="long latency"),
        pytest.param(LONG_COSTS, (10, 1), 64, 0.1, id="compute roof"),
        pytest.param(EXAMPLE_COSTS, (1, 2), 20, 0.25, id="memory roof"),
    ],
)
def test_transit(
    costs: tuple[str, ...], alpha: tuple[float, float], occupancy: float, wpc: float
) -> None:
    counts = dict(zip("CM", alpha, strict=True))
    device = device_of(*costs).with_values(**UNIT)
    rate = rate_at(TransitModel, occupancy, device, alpha=counts, idg=None)
    assert rate["wpc"] == pytest.approx(wpc, rel=1e-9)


def test_theorem_1_without_parallelism_transit_is_volkov() -> None:
    grid = product((1, 4, 30), (1, 2, 9), (0.25, 1, 4), (4, 40), (0.5, 2, 42), (6, 136, 450))
    for comp, mem, cpi_comp, latency_comp, cpi_mem, latency_mem in grid:
        costs = (f"C compute {cpi_comp} {latency_comp}", f"M memory {cpi_mem} {latency_mem}")
        device = device_of(*costs).with_values(**UNIT)
        for occupancy in (0.5, 1, 2, 7, 48, 64):
            volkov, transit = (
                rate_at(model, occupancy, device, alpha={"C": comp, "M": mem}, idg=None)["wpc"]
                for model in (VolkovModel, TransitModel)
            )
            assert transit == pytest.approx(volkov, rel=1e-12), (costs, comp, mem)


TWO_AND_SIX = (Interval(2, 6), Interval(2, 6))


@pytest.mark.parametrize(
    ("policy", "nonoverlapped", "cycles"), [("rr", 2, 11), ("rr_corrected", 6, 15), ("gto", 3, 12)]
)  # printed: 2 as published, 6 in the figure, one that overlaps for each of three sub-groups
def test_one_interval(policy: Policy, nonoverlapped: float, cycles: float) -> None:
    result = IntervalCycles([Interval(3, 6)], 4, policy)
    assert result.issue_probability == pytest.approx(1 / 3, rel=1e-15)
    assert result.nonoverlapped == pytest.approx((nonoverlapped,), rel=1e-15)
    rates = (result.cpr, result.ipc, result.wpc)
    assert rates == pytest.approx((cycles, 12 / cycles, 4 / cycles), rel=1e-15)
    assert result.overlap == pytest.approx(1 - nonoverlapped / 9, rel=1e-15)
    # in cycles of another length, all takes so much longer
    slow = IntervalCycles([Interval(3, 12, cpi_issue=2)], 4, policy)
    assert (slow.cpr, slow.overlap) == pytest.approx((2 * cycles, result.overlap), rel=1e-15)


def test_issue_costs_make_intervals_longer_and_stalls_shorter() -> None:
    device, graph = builders.example_device(), builders.EXAMPLE_GRAPH
    assert intervals_of(graph, device, count_memory_issue=True) == (Interval(3, 5),) * 2
    assert IntervalCycles([Interval(3, 5)] * 2, 1, "gto").issue_probability == 0.375
    # 0 to 6: two computations and a memory instruction that delivers at 4 + 6
    slow = intervals_of(graph, device, cpi_issue=2, count_memory_issue=True)
    assert slow == (Interval(3, 4, cpi_issue=2),) * 2
    assert IntervalCycles(slow, 1, "gto").cpr == 20
    # intervals may differ: 9 instructions of the others, of which 3 and 1 fit into stalls of 6
    both = IntervalCycles([Interval(3, 6), Interval(3, 6, cpi_issue=6)], 4, "rr_corrected")
    assert (both.nonoverlapped, both.cpr) == ((6, 8), 3 + 18 + 12 + 6 + 6 * 8)
    model = GpuMechModel(device=device, cpi_issue=2, count_memory_issue=True)
    kernel = ProfiledKernel(builders.example_profile(), builders.launch_at(1))
    assert model.estimate(kernel).results["cpr"] == 20
    assert model.estimate(kernel).results["overlap"] == 0
    with pytest.raises(ParameterError, match="cpi_issue must be positive"):
        IntervalCycles([Interval(3, 6, cpi_issue=0)], 4, "gto")
    with pytest.raises(ParameterError, match="policy must be one of"):
        IntervalCycles([Interval(3, 6)], 4, "lrr")  # pyright: ignore[reportArgumentType] - refused


@pytest.mark.parametrize(
    ("policy", "cycles"),
    [
        ("rr", [16, 16.5, 17, 17.5, 18]),  # as published: through the roof, 4 * 5 cycles
        ("rr_corrected", [16, 18, 20, 22, 24, 26, 28, 32, 36]),
        ("gto", [16, 16, 16, 16, 20, 24, 28, 32]),
    ],
)
def test_gpumech_over_occupancy(policy: Policy, cycles: list[float]) -> None:
    runs = [IntervalCycles(TWO_AND_SIX, w, policy) for w in range(1, len(cycles) + 1)]
    assert [run.cpr for run in runs] == cycles
    assert runs[0].issue_probability == 0.25


def test_corrected_round_robin_overlaps_no_more_instructions_than_there_are() -> None:
    result = IntervalCycles([Interval(0, 6), Interval(2, 1)], 4, "rr_corrected")
    assert (result.nonoverlapped, result.cpr) == ((0, 5), 2 + 7 + 5)


@pytest.mark.parametrize(
    ("graph", "intervals"),
    [
        (builders.EXAMPLE_GRAPH, TWO_AND_SIX),
        (InstructionGraph("MMC", [(0, 1), (1, 2)]), ((0, 6), (0, 6), (1, 0))),  # without any
        (InstructionGraph("CBC"), ((3, 0),)),  # a barrier takes a slot
    ],
)
def test_intervals_of_graphs(graph: InstructionGraph, intervals: Sequence[Sequence[int]]) -> None:
    assert intervals_of(graph, builders.full_device()) == tuple(
        each if isinstance(each, Interval) else Interval(each[0], each[1]) for each in intervals
    )


_intervals = st.lists(
    st.builds(Interval, st.floats(0, 64), st.floats(0, 512)), min_size=1, max_size=6
).filter(lambda intervals: sum(interval.insts for interval in intervals) > 1e-3)
_policies: st.SearchStrategy[Policy] = st.sampled_from(("rr", "rr_corrected", "gto"))


@given(_intervals, _policies, st.floats(1, 64), st.floats(1, 64))
def test_cycles_by_gpumech_begin_with_those_alone_and_never_fall(
    intervals: list[Interval], policy: Policy, first: float, second: float
) -> None:
    alone = IntervalCycles(intervals, 1, policy).cpr
    fewer, more = (IntervalCycles(intervals, w, policy).cpr for w in sorted((first, second)))
    slots = first * sum(interval.insts for interval in intervals)
    assert alone == pytest.approx(sum(each.insts + each.stall for each in intervals), rel=1e-12)
    assert fewer <= more * (1 + 1e-12)
    assert IntervalCycles(intervals, first, "rr_corrected").cpr >= slots * (1 - 1e-12)


@given(st.integers(1, 6), st.floats(1, 64), st.floats(1, 64), st.floats(1, 64))
def test_greedy_with_equal_intervals_that_always_fill_is_volkovs_model(
    times: int, insts: float, more: float, occupancy: float
) -> None:
    # the stall is so long that p * stall >= 1: with n >= 1, s = n + 1 + more is enough
    stall = insts + 1 + more
    result = IntervalCycles([Interval(insts, stall)] * times, occupancy, "gto")
    volkov = max(times * (insts + stall), occupancy * times * insts)
    if insts * stall >= insts + stall:
        assert result.cpr == pytest.approx(volkov, rel=1e-12)


MEM = wfg.Block("mem")
B1 = (wfg.Block("comp", 2), MEM, wfg.Block("comp", 2), MEM)
B2 = (wfg.Block("comp", 2), MEM, wfg.Block("comp", 2, 2), MEM)
COSTS = wfg.WorkFlowCosts(cpi_comp=1, latency_comp=4, cpi_mem=2, latency_mem=6, cpi_mem_instr=1)
CORRECTED = replace(COSTS, cpi_mem_instr=None)


def _cycles(
    blocks: Sequence[wfg.Block],
    occupancies: Sequence[float],
    variant: wfg.Variant,
    costs: wfg.WorkFlowCosts = COSTS,
) -> list[float]:
    return [wfg.WorkFlowCycles(blocks, omega, costs, variant=variant).cpr for omega in occupancies]


@pytest.mark.parametrize(
    ("blocks", "variant", "costs", "cycles"),
    [
        (B1, "original", COSTS, [28, 26.6667, 22.6667, 24, 30, 36, 42]),
        (B2, "original", COSTS, [24, 25.3333, 23.3333, 24, 30, 36, 42]),
        (B1, "first_fix", COSTS, [28, 21.3333, 22, 24, 30]),
        (B2, "first_fix", COSTS, [24, 18.6667, 20, 24, 30]),
        (B1, "corrected", CORRECTED, [28, 28, 28, 28, 32, 36, 40, 41.3333]),
        (B2, "corrected", CORRECTED, [24, 24, 26, 28, 30.6667, 33.3333, 36]),
        ([wfg.Block("comp", 8, 2)], "corrected", COSTS, [16, 16, 24]),
        (  # unequal blocks may take less with more sub-groups
            [wfg.Block("comp", 1), MEM, wfg.Block("comp", 12), MEM],
            "corrected",
            replace(CORRECTED, latency_mem=60),
            [172, 167.3333, 164.4444, 163, 171.6667],
        ),
    ],
)
def test_work_flow_over_occupancy(
    blocks: Sequence[wfg.Block], variant: wfg.Variant, costs: wfg.WorkFlowCosts, cycles: list[float]
) -> None:
    occupancies = range(1, len(cycles) + 1)
    assert _cycles(blocks, occupancies, variant, costs) == pytest.approx(cycles, abs=5e-5)


def test_parts_and_limits_of_the_work_flow() -> None:
    at_2 = wfg.WorkFlowCycles(B1, 2, COSTS, variant="original")
    assert (at_2.computation, at_2.memory) == pytest.approx((8, 2 * (6 - 10 / 3)))
    barrier = wfg.WorkFlowCycles([*B1, wfg.Block("sync")], 2, COSTS, variant="original")
    assert barrier.memory == pytest.approx(2 * (6 - 10 / 4))  # Eq. (35) with one barrier
    assert _cycles(B1, [12], "corrected", CORRECTED) == [48]  # the roofline
    assert _cycles(B2, [20], "corrected", CORRECTED) == [80]
    assert wfg.WorkFlowCycles(B1, 1e6, COSTS, variant="original").cpw == pytest.approx(6)
    assert wfg.WorkFlowCycles(B1, 1e6, CORRECTED).cpw == pytest.approx(4)
    rates = [1 / cycles * (k + 1) for k, cycles in enumerate(_cycles(B1, range(1, 16), "original"))]
    above = [k for k, wpc in enumerate(rates, 1) if wpc > min(0.25, k / 25)]
    assert above == [3, 4]  # the original lies above Volkov there only


@pytest.mark.parametrize(
    ("alone", "latency", "cycles"),
    [(8, 6, [14, 16, 18, 20]), (11, 3, [14, 11.5, 9, 6.5]), (3, 11, [14, 23.5, 33, 42.5])],
)
def test_closed_form_of_one_block_and_one_memory_instruction(
    alone: float, latency: float, cycles: list[float]
) -> None:
    costs = wfg.WorkFlowCosts(
        cpi_comp=1e-9, latency_comp=alone, cpi_mem=1e-9, latency_mem=latency, cpi_mem_instr=0
    )
    closed = [alone + latency * w - (w - 1) * alone / 2 for w in (1, 2, 3, 4)]
    assert closed == cycles  # Eq. (40)
    # Eq. (40) takes the memory latency as never hidden completely, which the graph need not
    assert _cycles([wfg.Block("comp"), MEM], [1, 2], "original", costs) == pytest.approx(cycles[:2])


_positive = st.floats(0.125, 512)
_pairs = st.tuples(_positive, _positive)
_costs = st.builds(
    wfg.WorkFlowCosts,
    cpi_comp=_positive,
    latency_comp=st.floats(0, 512),
    cpi_mem=_positive,
    latency_mem=st.floats(0, 2048),
    cpi_mem_instr=st.floats(0, 8),
)
_blocks = st.lists(
    st.one_of(
        st.builds(wfg.Block, st.just("comp"), st.floats(0.125, 64), st.floats(1, 8)),
        st.just(MEM),
        st.just(wfg.Block("sync")),
    ),
    min_size=1,
    max_size=8,
).filter(lambda blocks: any(block.kind != "sync" for block in blocks))


@given(_blocks, _costs, st.floats(1, 1e3))
def test_corrected_work_flow_is_the_original_alone_and_reaches_the_roofline(
    blocks: list[wfg.Block], costs: wfg.WorkFlowCosts, occupancy: float
) -> None:
    at_1, many, some = (wfg.WorkFlowCycles(blocks, omega, costs) for omega in (1, 1e9, occupancy))
    for variant in ("original", "first_fix"):
        alone = wfg.WorkFlowCycles(blocks, 1, costs, variant=variant)
        assert at_1.cpw == pytest.approx(alone.cpw, rel=1e-12)
    assert some.cpw >= max(some.busy_comp, some.busy_mem) * (1 - 1e-12)
    # at most latency / 1e9 cycles of each of 8 memory instructions are left: 2e-5
    assert many.cpw == pytest.approx(max(many.busy_comp, many.busy_mem), abs=2e-5)


@given(
    st.integers(1, 6), st.floats(0.125, 64), st.floats(1, 8), _costs, st.tuples(*[_positive] * 2)
)
def test_corrected_runs_of_equal_blocks_never_get_shorter(
    times: int, count: float, ilp: float, costs: wfg.WorkFlowCosts, occupancies: tuple[float, float]
) -> None:
    blocks = [wfg.Block("comp", count, ilp), MEM] * times
    low, high = (max(1.0, omega) for omega in sorted(occupancies))
    costs = replace(costs, cpi_mem_instr=None)
    alone, fewer, more = _cycles(blocks, (1, low, high), "corrected", costs)
    assert alone <= fewer * (1 + 1e-12)
    assert fewer <= more * (1 + 1e-12)


@pytest.mark.parametrize(
    ("graph", "blocks"),
    [
        (builders.EXAMPLE_GRAPH, B2),
        (
            InstructionGraph("MCCCBM", [(0, 1), (1, 2), (2, 5)]),
            (MEM, wfg.Block("comp", 3, 1.5), wfg.Block("sync"), MEM),
        ),
    ],
)
def test_blocks_of_graphs(graph: InstructionGraph, blocks: tuple[wfg.Block, ...]) -> None:
    assert wfg.blocks_of(graph, builders.full_device()) == blocks


def test_work_flow_of_a_device() -> None:
    device = builders.example_device(cpi_mem_instr=1.0)
    at_48 = builders.launch_at(48)

    def estimate(graph: InstructionGraph, variant: wfg.Variant = "corrected"):
        model = wfg.WorkFlowModel(device=device, variant=variant)
        return model.estimate(ProfiledKernel(KernelProfile(name="k", idg=graph), at_48))

    assert estimate(InstructionGraph("CCCCCCCCCM")).bound == "compute"
    assert estimate(InstructionGraph("CM")).bound == "memory"
    with pytest.raises(ParameterError, match="variant must be one of original, first_fix"):
        estimate(builders.EXAMPLE_GRAPH, "second_fix")  # pyright: ignore[reportArgumentType] - refused
    # memory instructions take no slot of the scheduler in the corrected model
    assert estimate(builders.EXAMPLE_GRAPH, "original").results["cpw"] == 6
    assert estimate(builders.EXAMPLE_GRAPH).results["cpw"] == 4
    # costs are means over the classes of the kernel: latency (3 * 4 + 16) / 4
    device = builders.example_device(
        classes={**device.classes, "S": builders.make_class("S", "sfu", 4, 16)}
    )
    at_48 = builders.launch_at(1)
    assert estimate(builders.chain("CCCS")).results["cpw"] == 4 * 7
