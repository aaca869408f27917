"""One variant at a time, on a scripted device."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from countperf.errors import MeasurementError
from countperf.measuring import KernelCase
from countperf.measuring.runner import Run
from countperf.tuning.ranker import PredictionTask
from countperf.tuning.result import Plan
from countperf.tuning.search import VariantBench
from tests.devices.fakes import FakeRunner
from tests.tuning.spaces import DOUBLE
from tests.tuning.test_ranking import WEIGHTS

CHOICE = {"group": 16, "each": 1, "fetch": False}
PLAN = Plan(runs=3, warm_up_s=0.05)
TASK = PredictionTask(space=DOUBLE, weights=WEIGHTS, sizes={"n": 4096})


def _time(
    time_s: float, best_s: float | None, left_s: float = 1e3
) -> tuple[tuple[float, ...], bool, list[float]]:
    """Time a variant on a device that takes 2.6 times as long for its first .02 s."""
    runs: list[float] = []

    def duration(_name: str, _turn: int, _run: int) -> float:
        runs.append(time_s * (2.6 if sum(runs) < 0.02 else 1))
        return runs[-1]

    bench = VariantBench(TASK, FakeRunner(duration), PLAN, left_s=lambda: left_s)
    return *bench.time(CHOICE, best_s), runs


def test_runs_before_the_device_is_warm_are_not_kept() -> None:
    samples, hopeless, runs = _time(1e-3, best_s=1.1e-3)

    assert (samples, hopeless) == ((1e-3,) * 3, False)
    assert 0.04 < sum(runs[:-3]) < 0.05


def test_a_variant_that_takes_three_times_the_best_while_cold_is_hopeless() -> None:
    samples, hopeless, runs = _time(1e-3, best_s=0.8e-3)

    assert (samples, hopeless) == (pytest.approx((2.6e-3,)), True)
    assert len(runs) == 1


def test_a_run_that_outlasts_the_time_to_warm_up_is_kept() -> None:
    samples, _, runs = _time(0.2, best_s=None)

    assert samples == tuple(runs) == (0.52, 0.2, 0.2)


def test_no_run_is_spent_on_warming_up_when_no_time_is_left() -> None:
    samples, _, runs = _time(1e-3, best_s=None, left_s=0.0)

    assert samples == tuple(runs) == pytest.approx((2.6e-3,) * 2)


class _Failing(FakeRunner):
    """Its first run fails; notes what is in memory."""

    in_memory = 0

    @contextmanager
    def loaded(self, case: KernelCase) -> Generator[Run]:
        self.in_memory += 1
        try:
            with super().loaded(case) as run:
                yield run
        except RuntimeError as error:
            raise MeasurementError("the driver is gone", case=case.name) from error
        finally:
            self.in_memory -= 1


def test_what_fails_in_a_run_fails_as_the_device_says_and_leaves_no_memory() -> None:
    first = iter([RuntimeError("run 0")])

    def duration(_name: str, _turn: int, _run: int) -> float:
        for error in first:
            raise error
        return 0.1

    runner = _Failing(duration)
    bench = VariantBench(TASK, runner, PLAN)

    with pytest.raises(MeasurementError, match="the driver is gone"):
        bench.time(CHOICE, None)
    assert runner.in_memory == 0
    assert len(bench.time(CHOICE, None)[0]) == 3
