"""Measurement of one variant: its numbers are checked, then it runs while it may be fastest."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stdout,
)
from statistics import fmean
from typing import Self

from countperf.counting.unattended import shared_by_threads
from countperf.deferred_interrupts import end_if_interrupted
from countperf.errors import KernelBuildError, MeasurementError, WrongResultError
from countperf.harness.runner import CaseRunner, Run
from countperf.measurements import KernelCase
from countperf.tuning.points import Stage
from countperf.tuning.result import Plan
from countperf.tuning.space import Choice, SearchSpace
from countperf.tuning.stopping import is_hopeless


@shared_by_threads
@contextmanager
def silence() -> Generator[None]:
    """Silence standard output and warnings until the last thread that asked for it is through."""
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


FEWEST_RUNS = 2

CHEAP = 0.05
"""Runs that take no more than this fraction of the time of building a variant are not spared."""

COLD = 3.0
"""So many times as long as later ones, or less, runs take before a device is warm."""

LUKEWARM = 1.5
"""So many times as long, or less, the shortest one took by half the time of warming up."""


class Bench:
    """Measures variants on a device, one at a time; a context manager."""

    def __init__(
        self,
        space: SearchSpace,
        sizes: Mapping[str, int],
        runner: CaseRunner,
        plan: Plan,
        *,
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
        most_s: float | None = None,
        left_s: Callable[[], float] = lambda: float("inf"),
    ) -> None:
        self._space = space
        self._sizes = sizes
        self._runner = runner
        self._plan = plan
        self._alone = alone  # of a timing: with nothing beside it
        self._most_s = plan.max_case_s if most_s is None else most_s
        self._left_s = left_s
        self._built_s: list[float] = []
        self._checked: set[str] = set()
        self._loaded: tuple[str, Run] | None = None
        self._memory = ExitStack()  # of what is loaded
        self.warm_up_s = 0.0

    def build(self, choice: Choice) -> None:
        """Build a variant and check its numbers, ahead of timing it."""
        with silence():
            self._check(self._case(choice))

    def load(self, choice: Choice) -> None:
        """Build and check a variant and put its arguments into memory, ahead of timing it."""
        case = self._case(choice)
        with silence():
            self._check(case)
        self._load(case)

    def time(self, choice: Choice, best_s: float | None) -> tuple[tuple[float, ...], bool]:
        """Check a variant's numbers and run it.

        Runs that are over before the device is warm are not kept, see `Plan.warm_up_s`.
        """
        case = self._case(choice)
        end_if_interrupted()
        with silence():
            self._check(case)
        cheap_s = CHEAP * fmean(self._built_s)
        run = self._load(case)
        self._loaded = None
        with self._alone(), self._memory.pop_all(), silence():
            return self._run(case, run, best_s, cheap_s)

    def _run(
        self, case: KernelCase, run: Run, best_s: float | None, cheap_s: float
    ) -> tuple[tuple[float, ...], bool]:
        clock = self._runner.clock
        began_s = clock.now()
        self.warm_up_s = 0.0
        samples: list[float] = []
        cold: list[float] = []
        while len(samples) < self._plan.runs:
            sample = run().time_s
            if not sample > 0:
                raise MeasurementError(f"{case.name}: a time of {sample} s", case=case.name)
            spent = clock.now() - began_s
            spared = spent > cheap_s
            if spent < self._plan.warm_up_s and self._left_s() > 0:
                cold.append(sample)
                allowed = LUKEWARM if spent > self._plan.warm_up_s / 2 else COLD
                if spared and best_s is not None and min(cold) > allowed * best_s:
                    self.warm_up_s = 0.0
                    return tuple(cold), True
                self.warm_up_s = spent
                continue
            samples.append(sample)
            if spared and is_hopeless(samples, best_s):
                return tuple(samples), True
            if len(samples) >= FEWEST_RUNS and (spent > self._most_s or self._left_s() <= 0):
                break
        return tuple(samples), False

    def _load(self, case: KernelCase) -> Run:
        """Put a case's arguments into memory, unless they are there."""
        if self._loaded is None or self._loaded[0] != case.name:
            self._loaded = None
            self._memory.close()
            with silence():
                run = self._memory.enter_context(self._runner.loaded(case))
            self._loaded = case.name, run
        return self._loaded[1]

    def _check(self, case: KernelCase) -> None:
        began_s = self._runner.clock.now()
        self._runner.check(case)
        if case.kernel not in self._checked:
            self._checked.add(case.kernel)
            self._built_s.append(self._runner.clock.now() - began_s)

    def _case(self, choice: Choice) -> KernelCase:
        return self._space.case(choice, self._sizes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.close()


def stage_of(error: MeasurementError) -> Stage:
    """Tell where on the device a variant failed."""
    match error:
        case KernelBuildError():
            return "compile"
        case WrongResultError():
            return "results"
        case _:
            return "run"
