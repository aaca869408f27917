"""Cases that say no more than a name and a kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest

import countperf
from countperf.errors import KernelSpecificationError, WrongResultError
from countperf.harness.devices import Device
from countperf.harness.protocols import QUICK
from countperf.harness.runner import KernelRunner
from countperf.measurements import KernelCase


def doubled() -> Any:
    unit = lp.make_kernel(
        "{[i]: 0<=i<n}",
        "z[i] = 2*x[i]",
        [lp.GlobalArg("x,z", np.float32, shape="n", offset=lp.auto), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    return lp.split_iname(unit, "i", 16, outer_tag="g.0", inner_tag="l.0")


@pytest.mark.parametrize("field", ["kernel", "build"])
def test_a_kernel_may_be_given_itself(field: str) -> None:
    unit = doubled()

    case = KernelCase(name="double", parameters={"n": 8}, **{field: unit})

    assert case.build() is unit
    assert (case.kernel, case.family) == ("double", "double")
    assert case.check_parameters == {"n": 8}
    assert replace(case, name="other").build() is unit


def test_a_builder_is_called_when_it_is_needed() -> None:
    case = KernelCase(name="double", build=doubled)

    assert case.build is doubled


def test_without_a_kernel_there_is_no_case() -> None:
    with pytest.raises(KernelSpecificationError, match="'nothing' has no kernel; pass kernel="):
        KernelCase(name="nothing")


@pytest.mark.device
def test_a_case_of_name_and_kernel_is_checked_and_timed(device: Device) -> None:
    runner = KernelRunner.open(device)
    case = KernelCase(name="double", kernel=doubled(), parameters={"n": 100})

    runner.check(case)
    with runner.loaded(case) as run:
        assert run().time_s > 0


@pytest.mark.device
def test_the_default_tolerance_follows_the_type(device: Device) -> None:
    runner = KernelRunner.open(device)

    def case(name: str, factor: float) -> KernelCase:
        return KernelCase(
            name=name,
            kernel=doubled(),
            parameters={"n": 100},
            reference=lambda inputs, _: {"z": factor * inputs["x"]},
        )

    runner.check(case("close", 2 + 1e-6))
    with pytest.raises(WrongResultError, match="wrong numbers"):
        runner.check(case("off", 2 + 1e-2))


@pytest.mark.device
def test_a_campaign_of_such_cases(device: Device, tmp_path: Path) -> None:
    case = KernelCase(name="double/n=100", kernel=doubled(), parameters={"n": 100})

    found = countperf.measure(
        [case],
        device=device.label,
        store=tmp_path / "store.jsonl",
        protocol=QUICK.changed(name="test", extra_rounds=0),
    )

    (measured,) = found
    assert (measured.kernel, measured.parameters) == ("double/n=100", {"n": 100})
