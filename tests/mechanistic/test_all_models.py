"""Rules for every mechanistic model: worked times, parts that add up, input that is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from countperf.devices.parameters import DeviceParameters, declare_device
from countperf.errors import DeviceParameterError, ModelNotApplicableError, ParameterError
from countperf.mechanistic.gpumech import Interval, IntervalCycles
from countperf.mechanistic.merpsys import MerpsysModel
from countperf.mechanistic.mwp_cwp import MwpCwpModel, RestatedMwpCwpModel
from countperf.mechanistic.occupancy import check_occupancy, resident_groups
from countperf.mechanistic.pipeline import PipelineModel, Workload
from countperf.mechanistic.predict_all import ALL, build_models, model_names
from countperf.mechanistic.profile import (
    InstructionGraph,
    KernelProfile,
    MechanisticModel,
    MechanisticPrediction,
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


def models(device: DeviceParameters) -> dict[str, MechanisticModel]:
    """Return every model in every variant, by name."""
    return {model.model: model for model in build_models(ALL, device)}


NAMES = model_names()
KERNEL = ProfiledKernel(profile=full_profile(), launch=launch_at(4))


@pytest.mark.parametrize(
    ("name", "alpha", "occupancy", "cycles", "bound"),
    [
        ("roofline", None, 1, 4, "compute"),
        ("volkov", None, 20, 80, "compute"),
        ("transit", None, 5, 28, "latency"),
        ("transit", {"C": 1, "M": 2}, 20, 80, "memory"),
        ("gpumech-gto", None, 3, 16, "latency"),
        ("gpumech-gto", None, 5, 20, "issue"),
        ("gpumech-rr_corrected", None, 4, 22, "latency"),
        ("wfg-original", None, 2, 76 / 3, "latency"),
        ("wfg-corrected", None, 2, 24, "latency"),
        ("mwp-cwp-restated", None, 5, 26, "memory"),
        ("mwp-cwp-corrected", None, 5, 33, "latency"),
    ],
)
def test_time_of_the_example(
    name: str, alpha: dict[str, float] | None, occupancy: float, cycles: float, bound: str
) -> None:
    """`cycles` are those of as many sub-groups as are resident, by hand."""
    profile = example_profile(**({"alpha": alpha} if alpha else {}))
    kernel = ProfiledKernel(profile=profile, launch=launch_at(occupancy))
    prediction = models(full_device())[name].predict(kernel)
    time_s = 1300 * cycles / occupancy / (13 * 1.253e9)
    assert prediction.time_s == pytest.approx(time_s, rel=1e-12)
    assert (prediction.model, prediction.bound) == (name, bound)


def test_shares_of_the_example() -> None:
    def predicted(name: str, occupancy: float) -> MechanisticPrediction:
        kernel = ProfiledKernel(profile=example_profile(), launch=launch_at(occupancy))
        return models(full_device())[name].predict(kernel)

    volkov = predicted("volkov", 5)
    assert volkov.results["ridge_occupancy"] == 6.25
    assert volkov.breakdown == pytest.approx(
        {"compute": float(volkov.time_s) * 0.8, "latency": float(volkov.time_s) * 0.2}
    )
    transit = predicted("transit", 5).results
    assert (transit["waiting"], transit["computing"]) == pytest.approx((15 / 7, 20 / 7))


@pytest.mark.parametrize(
    ("name", "occupancy", "shares"),
    [
        # C at 0 and 4, M at 8, C at 14 and 15, M at 19 until 25
        ("pipeline-rr", 1, {"C": 12 / 25, "M": 12 / 25}),
        # two intervals with two instructions and six cycles of stall, of 16 cycles
        ("gpumech-gto", 3, {"M": 12 / 16}),
        # of 38/3 cycles: blocks of 4 and 2 for 2 each; 10/3 twice for a memory instruction of 1
        ("wfg-original", 2, {"results of computations": 6 / 38, "results of memory": 14 / 38}),
        ("volkov", 1, {}),
    ],
)
def test_stalls_of_the_example_by_cause(
    name: str, occupancy: float, shares: dict[str, float]
) -> None:
    kernel = ProfiledKernel(profile=example_profile(), launch=launch_at(occupancy))
    prediction = models(full_device())[name].predict(kernel)
    stalls = {cause: part / float(prediction.time_s) for cause, part in prediction.stalls.items()}
    assert stalls == pytest.approx(shares)


@pytest.mark.parametrize("name", NAMES)
def test_time_is_the_sum_of_its_parts_and_limits_are_kept(name: str) -> None:
    model = models(full_device(launch_overhead_s=1e-6))[name]
    prediction = model.predict(KERNEL)
    assert float(prediction.time_s) > 1e-6
    parts = sum(map(float, prediction.breakdown.values()))
    assert parts == pytest.approx(float(prediction.time_s), rel=1e-12)
    assert prediction.breakdown["launch"] == 1e-6
    crowded = [launch_at(65)]
    if "roofline" not in name:
        crowded.append(replace(launch_at(None), active_groups=65))
    for launch in crowded:
        with pytest.raises(ParameterError) as caught:
            model.estimate(ProfiledKernel(full_profile(), launch))
        assert caught.value.parameter == "occupancy"


@pytest.mark.parametrize("name", NAMES)
def test_what_kernel_or_device_lack_is_named(name: str) -> None:
    with pytest.raises(ModelNotApplicableError, match="empty") as caught:
        models(full_device())[name].estimate(
            ProfiledKernel(KernelProfile(name="empty"), launch_at(4))
        )
    assert caught.value.parameter is not None
    assert name in str(caught.value)
    empty = DeviceParameters(slug="empty", name="empty")
    with pytest.raises(DeviceParameterError) as lacking:
        models(empty)[name].estimate(ProfiledKernel(full_profile(), launch_at(4)))
    assert lacking.value.field is not None
    zeros = dict.fromkeys(("total_flops", "total_bytes", "work", "span", "transactions"), 0)
    nothing = full_profile(
        alpha={"C": 0, "M": 0}, idg=None, alpha_mem_coal=0, gmem_bytes=0, **zeros
    )
    with pytest.raises(ParameterError):
        models(full_device())[name].estimate(ProfiledKernel(nothing, launch_at(4)))


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_without_memory_instructions(name: str) -> None:
    absent = dict.fromkeys(("alpha_mem_coal", "gmem_bytes", "total_bytes", "transactions"), 0)
    profile = full_profile(alpha={"C": 4}, idg=InstructionGraph("CCCC"), **absent)
    model = models(full_device())[name]
    if "mwp" in name or name == "transit":  # they divide by their number
        with pytest.raises(ModelNotApplicableError) as caught:
            model.estimate(ProfiledKernel(profile, launch_at(4)))
        assert caught.value.parameter == "alpha_mem"
        return
    estimate = model.estimate(ProfiledKernel(profile, launch_at(4)))
    assert estimate.time_s > 0
    assert "memory" not in {part for part, seconds in estimate.breakdown.items() if seconds}


def test_a_prediction_says_what_the_model_ignores() -> None:
    apart = (EXAMPLE_GRAPH, InstructionGraph("C"))
    profile = example_profile(alpha={"C": 4, "B": 1}, sub_group_idgs=apart)
    kernel = ProfiledKernel(profile=profile, launch=launch_at(1))
    assert models(full_device())["roofline"].predict(kernel).ignored == ("barriers", "divergence")
    profile = KernelProfile(name="k", idg=InstructionGraph("CBC"))
    kernel = ProfiledKernel(profile=profile, launch=launch_at(4))
    assert models(full_device())["gpumech-gto"].predict(kernel).ignored == ("barriers",)


def test_counts_of_a_profile() -> None:
    device = full_device()
    assert example_profile().counts() == {"C": 4, "M": 2}
    assert example_profile(alpha={}).counts() == {"C": 4, "M": 2}
    assert example_profile().count_of("compute", device) == 4
    assert example_profile().count_of("barrier", device) == 0
    assert example_profile(alpha_mem=7.0).count_of("memory", device) == 7
    assert KernelProfile(name="k", alpha_comp=1).count_of("barrier", device) == 0
