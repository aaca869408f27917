"""Work flow graph: the worked examples, limits of the corrected model, refused input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.errors import DeviceParameterError, ModelNotApplicableError, ParameterError
from countperf.hardware.parameters import DeviceParameters, InstructionClass, declare_device
from countperf.mechanistic.profile import (
    InstructionGraph,
    KernelProfile,
    LaunchConfiguration,
    ProfiledKernel,
)
from countperf.mechanistic.wfg import (
    Block,
    Variant,
    WorkFlowCosts,
    WorkFlowModel,
    blocks_of,
    work_flow_cycles,
)
from tests.mechanistic.builders import chain

MEM = Block("mem")
B1 = (Block("comp", 2), MEM, Block("comp", 2), MEM)
B2 = (Block("comp", 2), MEM, Block("comp", 2, 2), MEM)
COSTS = WorkFlowCosts(cpi_comp=1, latency_comp=4, cpi_mem=2, latency_mem=6, cpi_mem_instr=1)
CORRECTED = replace(COSTS, cpi_mem_instr=None)
GRAPH = InstructionGraph("CCMCCM", [(0, 1), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5)])
PRINTED = 5e-5
"""Half a unit of the last digit of numbers given with four decimals."""


def _device(**changes: Any) -> DeviceParameters:
    values: dict[str, Any] = {
        "num_compute_units": 10,
        "clock_hz": 1e9,
        "sub_group_size": 32,
        "max_sub_groups_per_compute_unit": 48,
        "classes": {
            "C": InstructionClass(name="C", subsystem="alu", cpi=1, latency=4, kind="compute"),
            "M": InstructionClass(name="M", subsystem="mem", cpi=2, latency=6, kind="memory"),
            "B": InstructionClass(name="B", subsystem="bar", cpi=1, latency=0, kind="barrier"),
        },
    }
    return declare_device("example", **{**values, **changes})


LAUNCH = LaunchConfiguration(work_items_per_group=32, num_groups=200, occupancy=2)


def _curve(
    blocks: Sequence[Block],
    occupancies: Sequence[float],
    variant: Variant,
    costs: WorkFlowCosts = COSTS,
) -> list[float]:
    return [work_flow_cycles(blocks, omega, costs, variant=variant).cpr for omega in occupancies]


@pytest.mark.parametrize(
    ("blocks", "variant", "costs", "cycles"),
    [
        (B1, "original", COSTS, [28, 26.6667, 22.6667, 24, 30, 36, 42]),
        (B2, "original", COSTS, [24, 25.3333, 23.3333, 24, 30, 36, 42]),
        (B1, "corrected", CORRECTED, [28, 28, 28, 28, 32, 36, 40, 41.3333]),
        (B2, "corrected", CORRECTED, [24, 24, 26, 28, 30.6667, 33.3333, 36]),
    ],
)
def test_cycles_per_run_of_the_example(
    blocks: Sequence[Block], variant: Variant, costs: WorkFlowCosts, cycles: list[float]
) -> None:
    occupancies = range(1, len(cycles) + 1)

    assert _curve(blocks, occupancies, variant, costs) == pytest.approx(cycles, abs=PRINTED)


def test_the_corrected_example_reaches_the_roofline() -> None:
    assert _curve(B1, [12], "corrected", CORRECTED) == [48]
    assert _curve(B2, [20], "corrected", CORRECTED) == [80]


def test_the_original_example_at_two_sub_groups_by_hand() -> None:
    result = work_flow_cycles(B1, 2, COSTS, variant="original")

    assert result.computation == 8
    assert result.memory == pytest.approx(2 * (6 - 10 / 3))
    assert result.cpw == pytest.approx(40 / 3)


def test_the_original_lies_above_volkov_at_three_and_four_sub_groups_only() -> None:
    throughput = [
        work_flow_cycles(B1, omega, COSTS, variant="original").wpc for omega in range(1, 16)
    ]
    volkov = [min(0.25, omega / 25) for omega in range(1, 16)]

    above = [omega for omega in range(1, 16) if throughput[omega - 1] > volkov[omega - 1]]
    assert above == [3, 4]


@pytest.mark.parametrize(("variant", "cycles"), [("original", 6), ("corrected", 4)])
def test_saturation_of_the_example(variant: Variant, cycles: float) -> None:
    costs = CORRECTED if variant == "corrected" else COSTS

    assert work_flow_cycles(B1, 1e6, costs, variant=variant).cpw == pytest.approx(cycles)


@pytest.mark.parametrize(
    ("alone", "latency", "cycles"),
    [
        (8, 6, [14, 16, 18, 20]),
        (11, 3, [14, 11.5, 9, 6.5]),
        (3, 11, [14, 23.5, 33, 42.5]),
    ],
)
def test_closed_form_of_one_block_and_one_memory_instruction(
    alone: float, latency: float, cycles: list[float]
) -> None:
    costs = WorkFlowCosts(
        cpi_comp=1e-9, latency_comp=alone, cpi_mem=1e-9, latency_mem=latency, cpi_mem_instr=0
    )
    closed = [alone + latency * w - (w - 1) * alone / 2 for w in (1, 2, 3, 4)]

    assert closed == cycles  # Eq. (40)
    # Eq. (40) takes the memory latency as never hidden completely, which the graph need not
    assert _curve([Block("comp", 1), MEM], [1, 2], "original", costs) == pytest.approx(cycles[:2])


def test_unequal_blocks_may_take_less_with_more_sub_groups() -> None:
    costs = WorkFlowCosts(cpi_comp=1, latency_comp=4, cpi_mem=2, latency_mem=60)
    blocks = [Block("comp", 1), MEM, Block("comp", 12), MEM]

    assert _curve(blocks, range(1, 6), "corrected", costs) == pytest.approx(
        [172, 167.333, 164.444, 163, 171.667], abs=5e-4
    )


_positive = st.floats(0.125, 512)
_costs = st.builds(
    WorkFlowCosts,
    cpi_comp=_positive,
    latency_comp=st.floats(0, 512),
    cpi_mem=_positive,
    latency_mem=st.floats(0, 2048),
)
_blocks = st.lists(
    st.one_of(
        st.builds(Block, st.just("comp"), st.floats(0.125, 64), st.floats(1, 8)),
        st.just(MEM),
        st.just(Block("sync")),
    ),
    min_size=1,
    max_size=8,
).filter(lambda blocks: any(block.kind != "sync" for block in blocks))


@given(_blocks, _costs, st.floats(0, 8))
def test_one_sub_group_takes_the_same_in_all_variants(
    blocks: list[Block], costs: WorkFlowCosts, issue: float
) -> None:
    same = replace(costs, cpi_mem_instr=issue)
    original, corrected = (
        work_flow_cycles(blocks, 1, same, variant=variant).cpw
        for variant in ("original", "corrected")
    )

    assert corrected == pytest.approx(original, rel=1e-12)


@given(_blocks, _costs, st.floats(1, 1e3))
def test_corrected_cycles_are_never_below_the_roofline(
    blocks: list[Block], costs: WorkFlowCosts, occupancy: float
) -> None:
    result = work_flow_cycles(blocks, occupancy, costs)

    assert result.cpw >= max(result.busy_comp, result.busy_mem) * (1 - 1e-12)


@given(_blocks, _costs)
def test_corrected_cycles_of_many_sub_groups_are_those_of_the_roofline(
    blocks: list[Block], costs: WorkFlowCosts
) -> None:
    result = work_flow_cycles(blocks, 1e9, costs)

    # at most latency / 1e9 cycles of each of 8 memory instructions are left: 2e-5
    assert result.cpw == pytest.approx(max(result.busy_comp, result.busy_mem), abs=2e-5)


@given(
    st.integers(1, 6),
    st.floats(0.125, 64),
    st.floats(1, 8),
    _costs,
    st.floats(1, 64),
    st.floats(1, 64),
)
def test_corrected_runs_of_equal_blocks_never_get_shorter(
    times: int,
    count: float,
    ilp: float,
    costs: WorkFlowCosts,
    first: float,
    second: float,
) -> None:
    blocks = [Block("comp", count, ilp), MEM] * times
    fewer, more = _curve(blocks, sorted((first, second)), "corrected", costs)
    alone = work_flow_cycles(blocks, 1, costs).cpr

    assert fewer <= more * (1 + 1e-12)
    assert alone <= fewer * (1 + 1e-12)


def test_a_kernel_without_memory_takes_its_computations() -> None:
    result = work_flow_cycles([Block("comp", 8, 2)], 2, COSTS)

    assert (result.cpw, result.memory) == (8, 0)


def test_barriers_enlarge_the_share_that_is_hidden() -> None:
    free = work_flow_cycles([*B1, Block("sync")], 2, COSTS, variant="original")

    assert free.memory == pytest.approx(2 * (6 - 10 / 4))  # Eq. (35) with one barrier


def test_blocks_of_the_example_graph() -> None:
    assert blocks_of(GRAPH, _device()) == B2


def test_blocks_of_a_graph_with_a_barrier_and_no_computation_at_the_end() -> None:
    graph = InstructionGraph("MCCCBM", [(0, 1), (1, 2), (2, 5)])

    assert blocks_of(graph, _device()) == (MEM, Block("comp", 3, 1.5), Block("sync"), MEM)


@pytest.mark.parametrize(
    ("variant", "cycles"),
    [("original", 25.3333 / 2), ("corrected", 12)],
)
def test_the_model_gives_the_time_of_the_example(variant: Variant, cycles: float) -> None:
    model = WorkFlowModel(device=_device(cpi_mem_instr=1.0), variant=variant)

    prediction = model.predict(
        ProfiledKernel(profile=KernelProfile(name="example", idg=GRAPH), launch=LAUNCH)
    )

    assert prediction.time_s == pytest.approx(200 * cycles / 10 / 1e9, rel=1e-5)
    assert (prediction.model, prediction.bound) == (f"wfg-{variant}", "latency")
    assert sum(map(float, prediction.breakdown.values())) == pytest.approx(
        float(prediction.time_s), rel=1e-12
    )


@pytest.mark.parametrize(
    ("nodes", "bound"),
    [
        pytest.param("CCCCCCCCCM", "compute", id="computations"),
        pytest.param("CM", "memory", id="memory"),
    ],
)
def test_the_model_says_what_bounds_the_time(nodes: str, bound: str) -> None:
    model = WorkFlowModel(device=_device())
    launch = replace(LAUNCH, occupancy=48)

    estimate = model.estimate(KernelProfile(name="k", idg=InstructionGraph(nodes)), launch)

    assert estimate.bound == bound


def test_memory_instructions_take_no_issue_slot_in_the_corrected_model() -> None:
    launch, profile = replace(LAUNCH, occupancy=48), KernelProfile(name="k", idg=GRAPH)
    device = _device(cpi_mem_instr=1.0)

    cycles = {
        variant: WorkFlowModel(device=device, variant=variant).estimate(profile, launch).results
        for variant in ("original", "corrected")
    }

    assert (cycles["original"]["cpw"], cycles["corrected"]["cpw"]) == (6, 4)


def test_costs_are_means_over_the_classes_of_the_kernel() -> None:
    slow = InstructionClass(name="S", subsystem="sfu", cpi=4, latency=16, kind="compute")
    device = _device(classes={**_device().classes, "S": slow})
    profile = KernelProfile(name="k", idg=chain("CCCS"), alpha={"C": 3, "S": 1})

    estimate = WorkFlowModel(device=device).estimate(profile, replace(LAUNCH, occupancy=1))

    assert estimate.results["cpw"] == 4 * 7  # latency (3 * 4 + 16) / 4


def _estimate(profile: KernelProfile, **changes: Any) -> Callable[[], object]:
    return lambda: WorkFlowModel(device=_device(**changes)).estimate(profile, LAUNCH)


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        pytest.param(lambda: work_flow_cycles([], 1, COSTS), "blocks", id="no block"),
        pytest.param(lambda: work_flow_cycles([Block("sync")], 1, COSTS), "blocks", id="no work"),
        pytest.param(
            lambda: work_flow_cycles([Block("comp", 0)], 1, COSTS), "blocks", id="no computation"
        ),
        pytest.param(
            lambda: work_flow_cycles([Block("mem", 2)], 1, COSTS), "blocks", id="two at once"
        ),
        pytest.param(lambda: Block("comp", -1), "blocks", id="negative count"),
        pytest.param(lambda: Block("comp", 1, 0.5), "blocks", id="ilp below 1"),
        pytest.param(lambda: Block("jump"), "blocks", id="kind"),  # pyright: ignore[reportArgumentType] - refused
        pytest.param(lambda: work_flow_cycles(B1, 0, COSTS), "occupancy", id="no sub-group"),
        pytest.param(lambda: replace(COSTS, cpi_comp=0), "cpi_comp", id="free computation"),
        pytest.param(lambda: replace(COSTS, cpi_mem=0), "cpi_mem", id="free memory"),
        pytest.param(lambda: replace(COSTS, latency_comp=-1), "latency_comp", id="latency"),
        pytest.param(lambda: replace(COSTS, latency_mem=-1), "latency_mem", id="memory latency"),
        pytest.param(lambda: replace(COSTS, cpi_mem_instr=-1), "cpi_mem_instr", id="issue"),
        pytest.param(
            lambda: work_flow_cycles(B1, 1, COSTS, variant="x"),  # pyright: ignore[reportArgumentType] - refused
            "variant",
            id="variant",
        ),
        pytest.param(
            lambda: WorkFlowModel(device=_device(), variant="x"),  # pyright: ignore[reportArgumentType] - refused
            "variant",
            id="variant of the model",
        ),
        pytest.param(
            lambda: InstructionGraph("CC", [(1, 0)]), "edges", id="a graph that leads back"
        ),
    ],
)
def test_refused_input(call: Callable[[], object], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        call()

    assert caught.value.parameter == parameter


def test_counts_without_the_instructions_of_the_graph_are_refused() -> None:
    with pytest.raises(ModelNotApplicableError) as caught:
        _estimate(KernelProfile(name="k", idg=GRAPH, alpha={"C": 1}))()

    assert caught.value.parameter == "alpha"


@pytest.mark.parametrize(
    ("variant", "graph", "field"),
    [
        ("corrected", GRAPH, "classes.C"),
        ("original", InstructionGraph("M"), "cpi_mem_instr"),
    ],
)
def test_a_constant_that_the_device_lacks_is_named(
    variant: Variant, graph: InstructionGraph, field: str
) -> None:
    memory = {"M": _device().classes["M"]}
    model = WorkFlowModel(device=_device(classes=memory), variant=variant)

    with pytest.raises(DeviceParameterError) as caught:
        model.estimate(KernelProfile(name="k", idg=graph), LAUNCH)

    assert caught.value.field == field
