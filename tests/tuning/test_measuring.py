"""One variant at a time, on a scripted device."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from countperf.errors import MeasurementError
from countperf.harness.runner import Run
from countperf.measurements import KernelCase
from countperf.tuning.measuring import Bench
from countperf.tuning.result import Plan
from tests.harness.fakes import FakeRunner
from tests.tuning.spaces import DOUBLE

FIRST, SECOND = ({"group": 16, "each": each, "fetch": False} for each in (1, 2))


class Counting(FakeRunner):
    """Notes what is in memory, and what failed there."""

    def __init__(self) -> None:
        super().__init__(lambda _name, _turn, _run: 0.1)
        self.in_memory: list[str] = []
        self.failed: list[str] = []

    @contextmanager
    def loaded(self, case: KernelCase) -> Generator[Run]:
        self.in_memory.append(case.variant)
        try:
            with super().loaded(case) as run:
                yield run
        except Exception as error:
            self.failed.append(case.variant)
            raise MeasurementError("the driver is gone", case=case.name) from error
        finally:
            self.in_memory.remove(case.variant)


def _cold_for(seconds: float, time_s: float) -> tuple[FakeRunner, list[float]]:
    """A device that takes 2.6 times as long at first, and what its runs take."""
    runs: list[float] = []

    def duration(_name: str, _turn: int, _run: int) -> float:
        runs.append(time_s * (2.6 if sum(runs) < seconds else 1))
        return runs[-1]

    return FakeRunner(duration), runs


def test_runs_before_the_device_is_warm_are_not_kept() -> None:
    runner, runs = _cold_for(0.02, 1e-3)

    bench = Bench(DOUBLE, {"n": 4096}, runner, Plan(runs=3, warm_up_s=0.05))
    samples, hopeless = bench.time(FIRST, best_s=1.1e-3)

    assert (samples, hopeless) == ((1e-3,) * 3, False)
    assert sum(runs[:-3]) < 0.05


def test_a_cold_device_does_not_make_a_variant_hopeless_but_three_times_the_best_does() -> None:
    hopes: dict[float, int] = {}
    for best_s in (1.1e-3, 0.8e-3):
        runner, runs = _cold_for(0.02, 1e-3)
        bench = Bench(DOUBLE, {"n": 4096}, runner, Plan(runs=3, warm_up_s=0.05))
        samples, hopeless = bench.time(FIRST, best_s)
        assert hopeless == (best_s == 0.8e-3) == (len(samples) == 1)
        hopes[best_s] = len(runs)

    assert hopes[0.8e-3] == 1 < hopes[1.1e-3]


def test_a_run_that_outlasts_the_time_to_warm_up_is_kept() -> None:
    runner, runs = _cold_for(0.02, 0.2)

    bench = Bench(DOUBLE, {"n": 4096}, runner, Plan(runs=3, warm_up_s=0.05))
    samples, _ = bench.time(FIRST, None)

    assert samples == tuple(runs) == (0.52, 0.2, 0.2)


def test_no_run_is_spent_on_warming_up_when_no_time_is_left() -> None:
    runner, runs = _cold_for(0.02, 1e-3)

    bench = Bench(DOUBLE, {"n": 4096}, runner, Plan(warm_up_s=0.05), left_s=lambda: 0.0)
    samples, _ = bench.time(FIRST, None)

    assert samples == tuple(runs) == pytest.approx((2.6e-3,) * 2)


def test_what_fails_in_a_run_fails_as_the_device_says() -> None:
    runner = Counting()
    runner._duration = _fail  # pyright: ignore[reportPrivateUsage]
    bench = Bench(DOUBLE, {"n": 4096}, runner, Plan(runs=3))
    with pytest.raises(MeasurementError, match="the driver is gone"):
        bench.time(FIRST, None)
    assert (runner.failed, runner.in_memory) == ([DOUBLE.label(FIRST)], [])
    runner._duration = lambda _name, _turn, _run: 0.1  # pyright: ignore[reportPrivateUsage]
    assert len(bench.time(SECOND, None)[0]) == 3


def _fail(name: str, turn: int, run: int) -> float:
    raise RuntimeError(f"{name}: run {run} of turn {turn}")
