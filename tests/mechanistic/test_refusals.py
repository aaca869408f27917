"""Input that the mechanistic models refuse, each by the name of what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from countperf.devices.parameters import declare_device
from countperf.errors import DeviceParameterError, ModelNotApplicableError, ParameterError
from countperf.mechanistic.gpumech import Interval, IntervalCycles
from countperf.mechanistic.merpsys import MerpsysModel
from countperf.mechanistic.mwp_cwp import MwpCwpModel, RestatedMwpCwpModel
from countperf.mechanistic.occupancy import check_occupancy, resident_groups
from countperf.mechanistic.pipeline import PipelineModel, Workload
from countperf.mechanistic.profile import (
    InstructionGraph,
    KernelProfile,
    MechanisticModel,
    ProfiledKernel,
)
from countperf.mechanistic.roofline import ByteRooflineModel, TwoSubsystems, latency_alone, roof
from countperf.mechanistic.tmm import TmmModel, step_bound
from countperf.mechanistic.wfg import Block, WorkFlowCosts, WorkFlowCycles, WorkFlowModel
from tests.mechanistic.builders import (
    EXAMPLE_CLASSES,
    EXAMPLE_GRAPH,
    example_device,
    example_profile,
    full_device,
    full_profile,
    launch_at,
    make_class,
)
from tests.mechanistic.test_mwp_cwp import TABLE_2
from tests.mechanistic.test_tmm_and_merpsys import STEPS

COSTS = WorkFlowCosts(cpi_comp=1, latency_comp=4, cpi_mem=2, latency_mem=6)
EXAMPLE = TwoSubsystems(
    alpha_comp=4, alpha_mem=2, cpi_comp=1, latency_comp=4, cpi_mem=2, latency_mem=6
)


def _changed(value: Any) -> Callable[..., object]:
    return lambda **changes: replace(value, **changes)


NUMBERS: list[tuple[Callable[..., object], str, tuple[float, ...]]] = [
    (_changed(EXAMPLE), "cpi_comp latency_comp cpi_mem latency_mem", (0, -1, nan)),
    (
        _changed(full_profile()),
        "alpha_comp alpha_mem alpha_sync alpha_mem_coal alpha_mem_uncoal gmem_bytes total_flops "
        "total_bytes ins_cuda ins_issued work span transactions registers_per_work_item",
        (-1, nan, inf),
    ),
    (_changed(full_profile()), "load_bytes_per_sub_group latency_bound", (0, -1, nan, inf)),
    (_changed(full_profile()), "uncoal_per_mw", (0.5, -1)),
    (_changed(launch_at(1)), "work_items_per_group num_groups occupancy active_groups", (0,)),
]


@pytest.mark.parametrize(("call", "names", "bad"), NUMBERS)
def test_numbers(call: Callable[..., object], names: str, bad: tuple[float, ...]) -> None:
    for name in names.split():
        for value in bad:
            with pytest.raises(ParameterError) as caught:
                call(**{name: value})
            assert caught.value.parameter == name


def _workload(**changes: Any) -> Workload:
    values: dict[str, Any] = {"programs": (EXAMPLE_GRAPH,), "classes": EXAMPLE_CLASSES}
    return Workload(**{**values, **changes})


def _groups(**changes: Any) -> Callable[[], object]:
    device = example_device(
        max_work_items_per_group=1024,
        registers_per_compute_unit=32768,
        local_bytes_per_compute_unit=49152,
    )
    return lambda: resident_groups(device, **{"work_items_per_group": 32, **changes})


def _estimate(
    model: type[MechanisticModel] | Any,
    profile: KernelProfile | None = None,
    occupancy: float | None = 4,
    /,
    **device: Any,
) -> Callable[[], object]:
    used = full_device(**device) if device else full_device()
    return lambda: model(device=used).estimate(
        ProfiledKernel(profile or full_profile(), launch_at(occupancy))
    )


def _original_work_flow(**changes: Any) -> WorkFlowModel:
    return WorkFlowModel(variant="original", **changes)


BARRIERS = {"I": make_class("I", "alu", 1, 1), "B": make_class("B", "barrier", 1, 1, "barrier")}
BUS = {"bandwidth_byte_per_s": None, "mem_clock_hz": 1e9, "bus_width_bits": 256, "data_rate": 4}
COUNTED: tuple[Any, ...] = ("ins_cuda", "ins_issued", "gmem_bytes")
ZERO_CYCLES = example_device(classes={"C": make_class("C", "compute", 1, 0)})
ROWS: dict[type[Exception], list[tuple[str, Callable[[], object]]]] = {
    ParameterError: [
        ("alpha[C]", lambda: example_profile(alpha={"C": -1})),
        ("alpha", lambda: roof({"C": 0, "M": 0}, example_device())),
        ("total_flops", _estimate(ByteRooflineModel, full_profile(total_flops=0, total_bytes=0))),
        (
            "latency_app",
            lambda: latency_alone(example_profile(idg=None, alpha={"C": 0}), example_device()),
        ),
        ("nodes", lambda: InstructionGraph("", [])),
        ("edges", lambda: InstructionGraph("ab", [(0, 1), (1, 0)])),
        ("edges", lambda: InstructionGraph("ab", [(1, 1)])),
        ("edges", lambda: InstructionGraph("ab", [(0, 2)])),
        ("edges", lambda: InstructionGraph("ab", [(-1, 1)])),
        ("occupancy", lambda: IntervalCycles([Interval(2, 6)], 0.5, "gto")),
        ("blocks", lambda: WorkFlowCycles([], 1, COSTS)),
        ("blocks", lambda: WorkFlowCycles([Block("sync")], 1, COSTS)),
        ("blocks", lambda: WorkFlowCycles([Block("comp", 0)], 1, COSTS)),
        ("work_items_per_core", lambda: step_bound(**STEPS, max_work_items_per_core=3)),
        ("work", lambda: step_bound(**{**STEPS, "work": 0, "span": 0, "transactions": 0})),
        ("work_items_per_core", _estimate(TmmModel, max_work_items_per_core=0.5)),
        ("ins_cuda", _estimate(MerpsysModel, full_profile(**dict.fromkeys(COUNTED, 0)))),
        (
            "sub_group_programs",
            lambda: _workload(programs=(EXAMPLE_GRAPH,) * 3, sub_groups_per_group=2),
        ),
        (  # a deadlock
            "sub_group_programs",
            lambda: _workload(
                programs=(InstructionGraph("I"), InstructionGraph("IB")),
                classes=BARRIERS,
                sub_groups_per_group=2,
            ),
        ),
        (
            "cycles",
            lambda: PipelineModel(device=ZERO_CYCLES).predict(
                ProfiledKernel(
                    profile=example_profile(alpha={}, idg=InstructionGraph("C")),
                    launch=launch_at(1, num_groups=1),
                )
            ),
        ),
        ("work_items_per_group", _groups(work_items_per_group=0)),
        ("work_items_per_group", _groups(work_items_per_group=2048)),
        ("work_items_per_group", _groups(work_items_per_group=2.0)),
        ("registers_per_work_item", _groups(registers_per_work_item=-1)),
        ("registers_per_work_item", _groups(work_items_per_group=1024, registers_per_work_item=99)),
        ("local_bytes_per_group", _groups(local_bytes_per_group=50000)),
        *(
            ("occupancy", lambda bad=bad: check_occupancy(bad, example_device()))
            for bad in (0, -1, nan, inf, 65)
        ),
    ],
    ModelNotApplicableError: [
        ("span", lambda: KernelProfile(name="k", work=1.0).require("span", model="tmm")),
        ("work", _estimate(TmmModel, KernelProfile(name="k", transactions=1))),
        ("transactions", _estimate(TmmModel, KernelProfile(name="k", work=1))),
        ("alpha", _estimate(MerpsysModel, KernelProfile(name="k", gmem_bytes=1, ins_issued=1))),
        ("gmem_bytes", _estimate(MerpsysModel, KernelProfile(name="k", ins_cuda=1, ins_issued=1))),
        (
            "latency_app",
            _estimate(
                MerpsysModel, KernelProfile(name="k", ins_cuda=1, ins_issued=1, gmem_bytes=1)
            ),
        ),
        ("alpha_mem", _estimate(WorkFlowModel, example_profile(alpha={"C": 1}))),
        ("alpha_mem", lambda: replace(TABLE_2, alpha_mem_uncoal=0)),
        (
            "uncoal_per_mw",
            _estimate(MwpCwpModel, full_profile(alpha_mem_uncoal=1, uncoal_per_mw=None)),
        ),
        ("alpha", _estimate(RestatedMwpCwpModel, KernelProfile(name="k"))),
        ("alpha_mem", _estimate(RestatedMwpCwpModel, KernelProfile(name="k", alpha={"C": 1}))),
        ("alpha_comp", _estimate(RestatedMwpCwpModel, KernelProfile(name="k", alpha={"M": 1}))),
    ],
    DeviceParameterError: [
        ("classes.X", lambda: roof({"X": 1}, example_device())),
        ("classes.X", lambda: example_profile(alpha={"X": 1}).count_of("compute", full_device())),
        *(
            (name, lambda name=name: full_device(**{name: 0}))
            for name in ("bandwidth_byte_per_s", "clock_hz", "num_compute_units")
        ),
        ("register_mode", lambda: example_device(register_mode="warp")),
        (
            "max_groups_per_compute_unit",
            lambda: resident_groups(declare_device(sub_group_size=32), work_items_per_group=32),
        ),
        ("latency_steps", _estimate(TmmModel, latency_steps=None)),
        ("bus_width_bits", _estimate(MerpsysModel, **{**BUS, "bus_width_bits": None})),
        ("issue_cycles", _estimate(MwpCwpModel, issue_cycles=None)),
        ("classes.C", _estimate(WorkFlowModel, classes={"M": EXAMPLE_CLASSES["M"]})),
        (
            "cpi_mem_instr",
            _estimate(
                _original_work_flow,
                KernelProfile(name="k", idg=InstructionGraph("M")),
                cpi_mem_instr=None,
            ),
        ),
    ],
}


@pytest.mark.parametrize(
    ("error", "name", "call"),
    [
        pytest.param(error, name, call, id=f"{name}-{number}")
        for error, rows in ROWS.items()
        for number, (name, call) in enumerate(rows)
    ],
)
def test_refusals(error: type[Exception], name: str, call: Callable[[], object]) -> None:
    with pytest.raises(error) as caught:
        call()
    assert getattr(caught.value, "field" if error is DeviceParameterError else "parameter") == name
