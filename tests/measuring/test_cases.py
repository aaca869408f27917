"""Cases that say no more than a name and a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.api.timing import time_kernel
from countperf.devices.device import Device
from countperf.errors import KernelBuildError, KernelSpecificationError, WrongResultError
from countperf.measuring import KernelCase
from countperf.measuring.runner import KernelRunner
from tests.kernels import made


def doubled() -> Any:
    arrays = lp.GlobalArg("x,z", np.float32, shape="n", offset=lp.auto)
    return made("i<n", "z[i] = 2*x[i]", "n i32", arrays, split="i:16")


@pytest.mark.parametrize("field", ["kernel", "build"])
def test_a_kernel_may_be_given_itself(field: str) -> None:
    unit = doubled()
    case = KernelCase(name="double", parameters={"n": 8}, **{field: unit})
    assert case.build() is unit
    assert (case.kernel, case.family) == ("double", "double")
    assert case.check_parameters == {"n": 8}
    assert replace(case, name="other").build() is unit


def test_a_builder_is_called_when_it_is_needed_and_without_one_there_is_no_case() -> None:
    assert KernelCase(name="double", build=doubled).build is doubled
    with pytest.raises(KernelSpecificationError, match="'nothing' has no kernel; pass kernel="):
        KernelCase(name="nothing")


@pytest.mark.device
def test_the_default_tolerance_follows_the_type(device: Device) -> None:
    def check(name: str, factor: float) -> None:
        reference: Any = lambda inputs, _: {"z": factor * inputs["x"]}  # noqa: E731
        case = KernelCase(name=name, kernel=doubled(), parameters={"n": 100}, reference=reference)
        KernelRunner.open(device).check(case)

    check("close", 2 + 1e-6)
    with pytest.raises(WrongResultError, match="wrong numbers"):
        check("off", 2 + 1e-2)


def gathered() -> Any:
    """Return what `pytato.generate_loopy` does: a kernel, and data, on a device, that it is for."""
    unit = made("i<n", "z[i] = 2*x[at[i] + off]", "x,z f32 n; at i32 n; n,off i32")
    at = np.arange(40, dtype=np.int32)[::-1] - 1  # leads to all elements but one
    bound = {"at": SimpleNamespace(get=lambda: at), "off": 1, "n": 40}
    return SimpleNamespace(program=unit, bound_arguments=bound)


@pytest.mark.device
def test_arguments_that_come_with_a_kernel_are_its_inputs(device: Device) -> None:
    def reversed_and_doubled(inputs: Mapping[str, Any], _: Any) -> dict[str, Any]:
        assert list(inputs["at"][:2]) == [38, 37]  # else the numbers are said to be wrong
        return {"z": 2 * inputs["x"][::-1]}

    reference: Any = {"reference": reversed_and_doubled}
    case = KernelCase(name="any", kernel=gathered(), parameters={"n": 40, "off": 1}, **reference)
    KernelRunner.open(device).check(case)
    assert case.bound_arguments["off"] == 1
    # sizes that come with it need not be given
    timing = time_kernel(gathered(), device=device, statistics={"x": "stride1"}, **reference)
    assert [dict(size.measurement.parameters) for size in timing.sizes] == [{"off": 1, "n": 40}]


@pytest.mark.device
def test_other_arguments_go_before_those_that_come_with_a_kernel(device: Device) -> None:
    at, program = np.zeros(40, np.int32), gathered()
    given: Any = {
        "make_arguments": lambda rng, _: {"at": at, "x": rng.random(40, np.float32)},
        "reference": lambda inputs, _: {"z": np.full(40, 2 * inputs["x"][1])},
    }
    case = KernelCase(name="first", kernel=program, parameters={"n": 40, "off": 3}, **given)
    # the offset that comes with the program is 1, which nothing else gives
    KernelRunner.open(device).check(case)
    wrong = KernelCase(name="wrong", kernel=program, parameters={"n": 41, "off": 1})
    with pytest.raises(KernelBuildError, match="argument 'at' wants int32 of shape"):
        KernelRunner.open(device).check(wrong)
