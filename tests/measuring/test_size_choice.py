"""Sizes chosen by launch overhead, memory and time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from countperf.devices.device import Device
from countperf.devices.opencl import OpenCLSession
from countperf.errors import KernelBuildError, MeasurementError, ParameterError
from countperf.measuring import KernelCase
from countperf.measuring.size_choice import (
    SizeCalibration,
    SizeLimits,
    calibrate,
    choose_sizes,
    limit_memory,
    measure_launch_overhead,
    measure_limits,
    time_case,
)
from countperf.steps import listening
from tests.devices.fakes import LIMITS as FAKE_LIMITS
from tests.devices.fakes import FakeRunner, make_case

LIMITS = SizeLimits(
    launch_overhead_s=1e-5, memory_bytes=2**20, overhead_factor=10, max_run_s=0.1, max_setup_s=1.0
)


@dataclass(frozen=True)
class Entry:
    """A kernel on ``2**exponent`` elements."""

    name: str = "copy/16x1/f32"
    family: str = "copy"
    variant: str = "plain"
    element_type: str = "f32"
    exponents: range = range(2, 30)
    exponent_steps: tuple[int, ...] = (0, 1, 2, 3)
    bytes_per_element: int = 1
    largest: int = 60

    def case(self, exponent: int) -> KernelCase:
        if exponent > self.largest:
            raise ParameterError(f"no array has 2**{exponent} elements")
        n = 2**exponent
        memory = n * self.bytes_per_element
        return make_case(self.name, n, memory=memory, family=self.family)


CHOICES: dict[str, tuple[Any, ...]] = {
    # 1e-4 s is reached at 1000 elements, so from 2**10 on
    "beyond the overhead": ({}, (1e-7, 1), 0, {}, (10, 11, 12, 13), ""),
    # 1e-3 s is reached from 2**14 on, but of 2**14 to 2**17 only two take at most 5e-3 s; 2**12 is
    # still clearly longer than a launch
    "all sizes from a smaller one are better than some": (
        *({}, (1e-7, 1), 0, {"overhead_factor": 100.0, "max_run_s": 5e-3}, (12, 13, 14, 15)),
        "longer than 0.005 s",
    ),
    "memory": ({"bytes_per_element": 4}, (1e-9, 1), 0, {}, (17, 18), "more than 1048576 byte of"),
    "time": ({"exponent_steps": (0, 2, 4, 6, 8)}, (1e-8, 2), 0, {}, (7, 9, 11), "longer than 0.1"),
    "time to set up": ({}, (1e-4, 0), 1 / 8, {}, (2, 3), "to set up"),
    "too fast": ({"exponents": range(2, 5)}, (1e-9, 1), 0, {}, (4, 5, 6, 7), "no size takes"),
    "refused": ({"largest": 12}, (1e-7, 1), 0, {}, (10, 11, 12), "no array has"),
    "slow at any size": ({}, (0.05, 1), 0, {}, (2,), "longer than"),
    "hopeless": ({}, (1.0, 1), 0, {}, (), "longer than"),
}


@pytest.mark.parametrize(
    ("entry", "run_s", "setup_s", "limits", "exponents", "reason"), CHOICES.values(), ids=CHOICES
)
def test_sizes_are_chosen_by_overhead_memory_and_time(
    entry: Any, run_s: Any, setup_s: float, limits: Any, exponents: Any, reason: str
) -> None:
    asked: list[int] = []
    factor, power = run_s

    def cost_of(case: KernelCase) -> tuple[float, float]:
        n = case.parameters["n"]
        asked.append(n)
        return factor * n**power, setup_s * n

    choice = choose_sizes(Entry(**entry), cost_of, LIMITS.model_copy(update=limits))
    assert choice.exponents == exponents
    assert choice.run_s == pytest.approx([factor * 2 ** (power * e) for e in exponents])
    assert reason in choice.reason
    # larger sizes than one that does not fit are not tried
    assert max(asked) <= LIMITS.memory_bytes
    assert max(asked) <= 4 * 2 ** (max(exponents) if exponents else 2)


def test_no_size_comes_near_the_launch_overhead_for_the_sake_of_others() -> None:
    limits = LIMITS.model_copy(update={"overhead_factor": 100.0, "max_run_s": 1.7e-3})
    entry = Entry(exponent_steps=(0, 4, 8))
    choice = choose_sizes(entry, lambda case: (1e-7 * case.parameters["n"], 0.0), limits)
    assert choice.run_s[0] >= limits.clear_run_s


def test_a_kernel_without_arrays_shows_the_overhead_at_its_smallest_size() -> None:
    entry = Entry(bytes_per_element=0, exponent_steps=(0, 1, 2, 3, 4, 5))
    choice = choose_sizes(entry, lambda case: (1e-6 + 1e-8 * case.parameters["n"], 0.0), LIMITS)
    assert choice.exponents == (9, 10, 11, 12, 13, 14)
    assert choice.run_s[0] < LIMITS.shortest_run_s <= choice.run_s[-1]


def test_a_trial_does_not_count_its_first_run_and_does_not_repeat_hopeless_ones() -> None:
    times = iter([0.05, 0.03, 0.02, 0.04, 9.0])
    runner = FakeRunner(lambda *_: next(times))
    runner.setup_s = 0.5
    assert time_case(runner, make_case(n=1), LIMITS) == (0.02, 0.5)
    assert time_case(runner, make_case(n=2), LIMITS)[0] == 9.0


ENTRIES = [
    Entry(name=f"{family}/{group}/f32", family=family)
    for family in ("copy", "add")
    for group in ("16x1", "32x1", "64x1")
]


def _runner(**broken: KernelBuildError) -> FakeRunner:
    failing = {f"{name}/32x1/f32": error for name, error in broken.items()}
    return FakeRunner(lambda case, *_: 1e-7 * int(case.rpartition("=")[2]), broken=failing)


def test_kernels_that_differ_in_their_groups_only_are_measured_at_the_same_sizes() -> None:
    runner = _runner()
    found = calibrate(ENTRIES, runner, LIMITS)
    assert {case.rpartition("/")[0] for case in runner.rounds} == {"copy/32x1/f32", "add/32x1/f32"}
    assert len(found.cases(ENTRIES)) == 6 * 4
    assert "add/64x1/f32/n=1024" in {case.name for case in found.cases(ENTRIES)}


def test_sizes_that_are_rounded_to_the_same_are_measured_once() -> None:
    class Rounded(Entry):
        def case(self, exponent: int) -> KernelCase:
            return super().case(max(exponent, 11))

    found = calibrate([Rounded()], _runner(), LIMITS)
    assert found.choices[0].exponents == (2, 3, 4, 5)
    assert [case.parameters["n"] for case in found.cases([Rounded()])] == [2048]


def test_a_kernel_that_fails_keeps_a_size_so_that_the_campaign_records_the_failure() -> None:
    found = calibrate(ENTRIES, _runner(add=KernelBuildError("does not build")), LIMITS)
    choice = found.choice(ENTRIES[-1])
    assert choice is not None
    assert choice.exponents == (2,)
    assert choice.reason == "does not build"


def test_an_interrupted_calibration_resumes_with_the_same_limits(tmp_path: Path) -> None:
    store = tmp_path / "sizes.json"

    def interrupt(_: str, done: int, __: int | None) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), listening(interrupt):
        calibrate(ENTRIES, _runner(), LIMITS, store=store)
    runner = _runner()
    slower = LIMITS.model_copy(update={"launch_overhead_s": 5e-5})
    found = calibrate(ENTRIES, runner, slower, store=store)
    assert {case.rpartition("/")[0] for case in runner.rounds} == {"add/32x1/f32"}
    assert found.limits == LIMITS
    assert found.choices[0].exponents == found.choices[1].exponents
    assert SizeCalibration.read_file(store) == found


def test_sizes_of_another_device_or_patience_are_refused(tmp_path: Path) -> None:
    store = tmp_path / "sizes.json"
    calibrate(ENTRIES, _runner(), LIMITS, store=store)
    other = _runner()
    other.identity = other.identity.model_copy(update={"name": "other"})
    patient = LIMITS.model_copy(update={"max_run_s": 1.0})
    for runner, limits in ((other, LIMITS), (_runner(), patient)):
        with pytest.raises(MeasurementError, match="holds other sizes"):
            calibrate(ENTRIES, runner, limits, store=store)


@pytest.mark.parametrize(
    ("device_bytes", "host_bytes", "limit"),
    [(2**33, 2**40, 2**31), (2**32, 2**40, 2**30), (2**33, 2**31, 2**29), (2**34, None, 2**31)],
    ids=["largest array", "a quarter of the device", "a quarter of the host", "host unknown"],
)
def test_limit_memory(device_bytes: int, host_bytes: int | None, limit: int) -> None:
    limits = replace(FAKE_LIMITS, global_memory_bytes=device_bytes, max_allocation_bytes=2**31)
    assert limit_memory(limits, host_bytes) == limit


@pytest.mark.device
def test_limits_of_a_real_device(device: Device) -> None:
    session = OpenCLSession(device)
    overhead = measure_launch_overhead(session, runs=8)
    limits = measure_limits(session, max_run_s=0.05)
    assert 0 < overhead.time_s < 0.1
    assert 0 < overhead.host_s < 0.1
    assert limits.max_run_s == 0.05
    assert limits.memory_bytes > 2**20
