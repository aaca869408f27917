"""What holds for every mechanistic model: bad inputs are refused by name, parts add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from countperf.errors import (
    DeviceParameterError,
    ModelNotApplicableError,
    ParameterError,
)
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.gpumech import GpuMechModel
from countperf.mechanistic.merpsys import MerpsysModel
from countperf.mechanistic.model import MechanisticModel, seconds_from_throughput
from countperf.mechanistic.mwp_cwp import MwpCwpModel, RestatedMwpCwpModel
from countperf.mechanistic.pipeline import PipelineModel
from countperf.mechanistic.profile import InstructionGraph, KernelProfile, ProfiledKernel
from countperf.mechanistic.roofline import ByteRooflineModel, RooflineModel
from countperf.mechanistic.tmm import TmmModel
from countperf.mechanistic.transit import TransitModel
from countperf.mechanistic.volkov import VolkovModel
from countperf.mechanistic.wfg import WorkFlowModel
from tests.mechanistic.builders import (
    EXAMPLE_CLASSES,
    example_device,
    example_profile,
    launch_at,
    make_class,
)


def full_device(**changes: Any) -> DeviceParameters:
    """Return a device with all constants that any model asks for."""
    values: dict[str, Any] = {
        "classes": {**EXAMPLE_CLASSES, "B": make_class("B", "barrier", 1, 9, "barrier")},
        "bandwidth_byte_per_s": 1e11,
        "peak_flops": 1e12,
        "cores_per_compute_unit": 128,
        "schedulers_per_compute_unit": 4,
        "issue_cycles": 4,
        "mem_ld_cycles": 420,
        "departure_del_coal_cycles": 4,
        "departure_del_uncoal_cycles": 10,
        "cpi_mem_instr": 1,
        "latency_steps": 400,
    }
    return example_device(**{**values, **changes})


def full_profile(**changes: Any) -> KernelProfile:
    """Return the example kernel with all that any model asks for."""
    values: dict[str, Any] = {
        "alpha_mem_coal": 2,
        "alpha_mem_uncoal": 0,
        "uncoal_per_mw": 1,
        "load_bytes_per_sub_group": 128,
        "gmem_bytes": 256,
        "total_flops": 1e9,
        "total_bytes": 1e9,
        "work": 1e9,
        "span": 1e3,
        "transactions": 1e6,
    }
    return example_profile(**{**values, **changes})


def models(device: DeviceParameters) -> dict[str, MechanisticModel]:
    """Return every model in every variant, by name."""
    found: list[MechanisticModel] = [
        RooflineModel(device=device),
        ByteRooflineModel(device=device),
        VolkovModel(device=device),
        TransitModel(device=device),
        MwpCwpModel(device=device),
        RestatedMwpCwpModel(device=device, variant="published"),
        RestatedMwpCwpModel(device=device, variant="corrected"),
        WorkFlowModel(device=device, variant="original"),
        WorkFlowModel(device=device, variant="corrected"),
        GpuMechModel(device=device, policy="rr"),
        GpuMechModel(device=device, policy="rr_corrected"),
        GpuMechModel(device=device, policy="gto"),
        PipelineModel(device=device),
        TmmModel(device=device),
        MerpsysModel(device=device),
    ]
    return {model.model: model for model in found}


NAMES = tuple(models(full_device()))
KERNEL = ProfiledKernel(profile=full_profile(), launch=launch_at(4))


def test_every_model_has_a_name_of_its_own() -> None:
    assert len(NAMES) == 15


@pytest.mark.parametrize("name", NAMES)
def test_time_is_positive_and_the_sum_of_its_parts(name: str) -> None:
    prediction = models(full_device(launch_overhead_s=1e-6))[name].predict(KERNEL)

    assert float(prediction.time_s) > 1e-6
    assert sum(map(float, prediction.breakdown.values())) == pytest.approx(
        float(prediction.time_s), rel=1e-12
    )
    assert prediction.breakdown["launch"] == 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_an_occupancy_above_the_limit_is_refused(name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        models(full_device())[name].estimate(full_profile(), launch_at(65))

    assert caught.value.parameter == "occupancy"


@pytest.mark.parametrize("name", [name for name in NAMES if "roofline" not in name])
def test_active_groups_above_the_limit_are_refused(name: str) -> None:
    launch = replace(launch_at(None), active_groups=65)

    with pytest.raises(ParameterError) as caught:
        models(full_device())[name].estimate(full_profile(), launch)

    assert caught.value.parameter == "occupancy"


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_profile_is_refused_with_what_is_lacking(name: str) -> None:
    with pytest.raises(ModelNotApplicableError, match="empty") as caught:
        models(full_device())[name].estimate(KernelProfile(name="empty"), launch_at(4))

    assert caught.value.parameter is not None
    assert name in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_device_is_refused_with_what_is_lacking(name: str) -> None:
    empty = DeviceParameters(slug="empty", name="empty")

    with pytest.raises(DeviceParameterError) as caught:
        models(empty)[name].estimate(full_profile(), launch_at(4))

    assert caught.value.field is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_of_nothing_is_refused(name: str) -> None:
    zeros = dict.fromkeys(("total_flops", "total_bytes", "work", "span", "transactions"), 0)
    profile = full_profile(
        alpha={"C": 0, "M": 0}, idg=None, alpha_mem_coal=0, gmem_bytes=0, **zeros
    )

    with pytest.raises(ParameterError) as caught:
        models(full_device())[name].estimate(profile, launch_at(4))

    assert caught.value.parameter is not None


@pytest.mark.parametrize("name", [name for name in NAMES if "mwp" in name or name == "transit"])
def test_a_model_that_divides_by_memory_instructions_refuses_a_kernel_without(name: str) -> None:
    profile = full_profile(alpha={"C": 4}, idg=InstructionGraph("CCCC"), alpha_mem_coal=0)

    with pytest.raises(ModelNotApplicableError) as caught:
        models(full_device())[name].estimate(profile, launch_at(4))

    assert caught.value.parameter == "alpha_mem"


@pytest.mark.parametrize("name", [n for n in NAMES if "mwp" not in n and n != "transit"])
def test_every_other_model_predicts_a_kernel_without_memory_instructions(name: str) -> None:
    profile = full_profile(
        alpha={"C": 4},
        idg=InstructionGraph("CCCC"),
        gmem_bytes=0,
        total_bytes=0,
        transactions=0,
    )

    estimate = models(full_device())[name].estimate(profile, launch_at(4))

    assert estimate.time_s > 0
    assert "memory" not in {part for part, seconds in estimate.breakdown.items() if seconds}


@pytest.mark.parametrize("field", ["bandwidth_byte_per_s", "clock_hz", "num_compute_units"])
def test_a_device_without_bandwidth_clock_or_units_cannot_be_described(field: str) -> None:
    with pytest.raises(DeviceParameterError) as caught:
        full_device(**{field: 0})

    assert caught.value.field == field


COUNTS = [
    "alpha_comp",
    "alpha_mem",
    "alpha_sync",
    "alpha_mem_coal",
    "alpha_mem_uncoal",
    "gmem_bytes",
    "load_bytes_per_sub_group",
    "total_flops",
    "total_bytes",
    "ins_cuda",
    "ins_issued",
    "work",
    "span",
    "transactions",
]


@pytest.mark.parametrize("field", COUNTS)
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_impossible_counts_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ParameterError) as caught:
        full_profile(**{field: value})

    assert caught.value.parameter == field


def test_seconds_from_throughput() -> None:
    device = example_device(num_compute_units=13, clock_hz=1.253e9)

    found = seconds_from_throughput(1 / 37.75, 312504, device, model="merpsys")

    assert found == pytest.approx(7.242326724e-4, rel=1e-9)
