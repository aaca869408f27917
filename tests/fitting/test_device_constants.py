"""Calibration of mechanistic models, on times that models with known constants gave."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest

from countperf.errors import DeviceParameterError, FitError
from countperf.fitting.device_constants import (
    Observation,
    calibrate_factor,
    calibrate_fully,
    constants_of,
    free_constants,
    starting_device,
    times_of,
    with_constants,
)
from countperf.hardware.parameters import DeviceParameters, declare_device
from countperf.mechanistic.profile import (
    InstructionGraph,
    KernelProfile,
    LaunchConfiguration,
    ProfiledKernel,
)
from countperf.mechanistic.restated_mwp_cwp import RestatedMwpCwpModel
from countperf.mechanistic.roofline import RooflineModel
from countperf.mechanistic.tmm import TmmModel
from countperf.mechanistic.volkov import VolkovModel
from tests.mechanistic.builders import make_class


def a_device(**changes: Any) -> DeviceParameters:
    return declare_device(
        num_compute_units=4,
        clock_hz=1e9,
        sub_group_size=32,
        launch_overhead_s=1e-6,
        max_sub_groups_per_compute_unit=64,
        classes={
            each.name: each
            for each in (
                make_class("add", "alu", 0.5, 6.0),
                make_class("div", "sfu", 4.0, 30.0),
                make_class("load", "memory", 8.0, 300.0, "memory"),
            )
        },
        **changes,
    )


def a_kernel(adds: int, divs: int, loads: int, occupancy: int, groups: int) -> ProfiledKernel:
    graph = InstructionGraph.chain(["load"] * loads + ["add"] * adds + ["div"] * divs)
    return ProfiledKernel(
        profile=KernelProfile(name=f"{adds}-{divs}-{loads}", idg=graph),
        launch=LaunchConfiguration(
            work_items_per_group=64, num_groups=groups, occupancy=float(occupancy)
        ),
    )


KERNELS = [
    a_kernel(adds, divs, loads, occupancy, 4000)
    for (adds, divs, loads), occupancy in itertools.product(
        ((40, 0, 1), (1, 20, 1), (2, 1, 6), (10, 2, 2)), (2, 8, 48)
    )
] + [a_kernel(1, 1, 1, 2, 4)]


def observed(device: DeviceParameters, factor: float = 1.0) -> list[Observation]:
    times = times_of(VolkovModel(device=device), KERNELS) * factor
    return [Observation(kernel=k, measured_s=float(t)) for k, t in zip(KERNELS, times, strict=True)]


def test_every_constant_that_times_depend_on_is_found() -> None:
    device = a_device(peak_flops=1e12)
    roofline = free_constants(_roofline, device, KERNELS)
    volkov = free_constants(_volkov, device, KERNELS)
    assert roofline == (
        "launch_overhead_s",
        "classes.add.cpi",
        "classes.div.cpi",
        "classes.load.cpi",
    )
    assert set(volkov) == {
        *roofline,
        "classes.add.latency",
        "classes.div.latency",
        "classes.load.latency",
    }


def _roofline(device: DeviceParameters) -> RooflineModel:
    return RooflineModel(device=device)


def _volkov(device: DeviceParameters) -> VolkovModel:
    return VolkovModel(device=device)


def test_one_factor_is_recovered() -> None:
    device = a_device()
    found = calibrate_factor(_volkov, device, observed(device, factor=2.5))
    assert math.isclose(found.factor, 2.5, rel_tol=1e-12)
    assert (found.used, found.refused) == (len(KERNELS), 0)
    assert found.residual < 1e-12


def test_known_constants_are_recovered_from_other_starting_values() -> None:
    truth = a_device()
    start = with_constants(
        truth,
        {
            "classes.add.cpi": 1.0,
            "classes.div.cpi": 2.0,
            "classes.load.cpi": 12.0,
            "classes.load.latency": 500.0,
            "launch_overhead_s": 3e-6,
        },
    )
    found = calibrate_fully(_volkov, start, observed(truth))
    assert found.converged
    # a pull towards the starting values of relative size 1e-3 remains
    for name in ("classes.add.cpi", "classes.div.cpi", "classes.load.cpi"):
        assert math.isclose(
            constants_of(found.device)[name], constants_of(truth)[name], rel_tol=0.02
        )
    assert found.residual < 0.02
    assert found.constants["classes.load.cpi"][0] == 12.0
    assert found.device.classes["load"].source == "calibrated"


def test_only_the_constants_that_were_asked_for_move() -> None:
    device = a_device()
    found = calibrate_fully(
        _volkov, device, observed(device, factor=1.5), constants=["classes.load.cpi"]
    )
    assert list(found.constants) == ["classes.load.cpi"]
    assert constants_of(found.device)["classes.add.cpi"] == 0.5


def test_a_document_without_costs_starts_from_values_that_are_marked_so() -> None:
    bare = declare_device(num_compute_units=4, sub_group_size=32)
    start = starting_device(_volkov, bare, observed(a_device()))
    assert set(start.classes) == {"add", "div", "load"}
    assert start.classes["load"].kind == "memory"
    assert start.clock_hz == 1e9
    assert start.launch_overhead_s == min(o.measured_s for o in observed(a_device()))
    assert {each.source for each in start.classes.values()} == {"start of a calibration"}


def test_facts_of_a_device_are_not_invented() -> None:
    bare = declare_device(num_compute_units=4, sub_group_size=32)
    with pytest.raises(DeviceParameterError) as caught:
        starting_device(lambda d: TmmModel(device=d), bare, observed(a_device()))
    assert caught.value.field == "cores_per_compute_unit"


def _no_memory() -> Sequence[ProfiledKernel]:
    return [a_kernel(4, 0, 0, 2, 8)]


def test_a_model_that_covers_no_kernel_is_refused() -> None:
    observations = [Observation(kernel=k, measured_s=1e-3) for k in _no_memory()]
    with pytest.raises(FitError, match="covers none of the 1 measurements"):
        calibrate_factor(lambda d: RestatedMwpCwpModel(device=d), a_device(), observations)
    with pytest.raises(FitError, match="no measurement"):
        starting_device(_volkov, a_device(), [])


@pytest.mark.parametrize("name", ["classes.mul.cpi", "classes.add.price", "num_compute_units"])
def test_a_constant_that_cannot_change_is_refused_by_name(name: str) -> None:
    with pytest.raises(DeviceParameterError) as caught:
        with_constants(a_device(), {name: 1.0})
    assert caught.value.field == name
