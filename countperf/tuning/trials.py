"""Building and timing of the variants of a search, here or by processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from countperf.deferred_interrupts import end_if_interrupted
from countperf.errors import DeviceError, MeasurementError
from countperf.harness.runner import CaseRunner
from countperf.tuning.build_workers import BuildWorkers
from countperf.tuning.candidates import Candidates
from countperf.tuning.exclusive_timing import Background, exclusive_timing
from countperf.tuning.journal import written
from countperf.tuning.measuring import Bench, stage_of
from countperf.tuning.points import Predicted, PredictionTask, Refused
from countperf.tuning.predictions import Predictions
from countperf.tuning.ranker import Ranker
from countperf.tuning.result import Key, Plan, Trial, as_key
from countperf.tuning.space import Choice, SearchSpace
from countperf.tuning.state import Spending

_MOST_ROUNDS = 3  # in which a variant is run that may have been disturbed
_WAIT_S = 0.05  # for a variant to be built, before others are looked after


class Trials:
    """Variants of a search that are built and timed."""

    def __init__(
        self,
        task: PredictionTask,
        space: SearchSpace,
        runner: CaseRunner,
        plan: Plan,
        *,
        known: Candidates,
        spending: Spending,
        predictions: Predictions,
        rounds: Counter[Key],
        say: Callable[[str], None],
        write: Callable[[dict[str, Any]], None],
    ) -> None:
        self._task = task
        self._space = space
        self._runner = runner
        self._plan = plan
        self._known = known
        self._spending = spending
        self._predictions = predictions
        self._rounds = rounds
        self._say = say
        self._write = write
        self._begun: set[Key] = set()  # built, or being built, and not tried yet
        self._workers: BuildWorkers | None = None
        self._bench: Bench

    @contextmanager
    def at(self, ranker: Ranker, pool: Executor, longest_s: float) -> Generator[None]:
        """Build variants by processes of a pool where that can be done, else here."""
        background: list[Background] = [ranker]
        self._alone = partial(exclusive_timing, self._runner.identity, background)
        seconds = self._spending.budget.seconds
        most_s = min(self._plan.max_case_s, (seconds or float("inf")) / 50)
        with ExitStack() as stack:
            self._workers = BuildWorkers.of(
                pool,
                ranker.asked,
                self._runner,
                self._plan,
                most_s,
                longest_s=longest_s,
                left_s=self._spending.patience_s,
            )
            if self._workers is not None:
                background.append(stack.enter_context(self._workers))
            self._bench = stack.enter_context(
                Bench(
                    self._space,
                    self._task.sizes,
                    self._runner,
                    self._plan,
                    alone=self._alone,
                    most_s=most_s,
                    left_s=self._spending.left_s,
                )
            )
            yield

    def go_on(self, *, counting: bool) -> bool:
        """Try a variant, or have others built; tell whether there was time."""
        if self._workers is None:
            return self._build_and_try()
        return self._try_or_build(self._workers, counting=counting)

    def _build_and_try(self) -> bool:
        """Build and try a variant here; tell whether there was time."""
        points = self._known.promising(self._spending.unreserved_s(), (), 1)
        for point in points:
            self._try(point)
        return bool(points)

    def _try_or_build(self, workers: BuildWorkers, *, counting: bool) -> bool:
        """Try a variant that is built, or have others built; tell whether there was time."""
        left_s = self._spending.unreserved_s()
        busy = {key for key in self._begun if not workers.is_free(dict(key))}
        point = self._known.worth_a_try(left_s, self._begun - busy, busy)
        if point is not None:
            self._try(point)
            self._try_again(workers)
            return True
        building = len(workers.building)
        most = self._most(workers, counting=counting) - building
        points = self._known.promising(left_s, self._begun, max(0, most))
        if not points and not building:
            return False
        if points:
            self._begun.update(as_key(point.choice) for point in points)
            self._predictions.after(partial(workers.begin, [p.choice for p in points]))
        under_way = len(workers.building)
        while not self._spending.is_over() and len(workers.building) == under_way > 0:
            # none is left where the first variant takes all of it and more
            left_s = self._spending.left_s()
            workers.wait(min(_WAIT_S, left_s) if left_s > 0 else _WAIT_S)
            self._predictions.keep_on()
        return True

    def _most(self, workers: BuildWorkers, *, counting: bool) -> int:
        """Return how many variants are built at a time: by all processes, or all but one."""
        most = max(1, workers.processes - counting)
        limit = self._spending.budget.measurements
        done = len(self._known.tried) + len(self._known.refused)
        return most if limit is None else max(1, min(most, limit - done))

    def _try(self, point: Predicted) -> None:
        best_s = self._known.best_s
        key = as_key(point.choice)
        started = self._runner.clock.now()
        try:
            samples, cut_short = self._time(point.choice, best_s)
        except MeasurementError as error:
            refused = Refused(choice=point.choice, stage=stage_of(error), reason=str(error))
            self._write(written(refused))
            self._known.refuse(refused)
            self._say(f"failed: {self._space.label(point.choice)}: {error}")
        else:
            tried = Trial(
                choice=point.choice,
                predicted_s=point.time_s,
                interval_s=point.interval_s,
                interval_level=point.interval_level,
                samples_s=samples,
                cut_short=cut_short,
                at_s=self._spending.spent_s(),
            )
            if self._workers is not None:
                build_s = self._workers.built_s(point.choice)
            else:
                ran_s = self._bench.warm_up_s + sum(samples)
                build_s = max(0.0, self._runner.clock.now() - started - ran_s)
            self._write(written(tried))
            self._known.learn(tried, build_s)
            self._rounds[key] += 1
            if best_s is None or tried.time_s < best_s:
                self._say(f"{tried.time_s:.4g} s: {self._space.label(point.choice)}")
        self._begun.discard(key)

    def _time(self, choice: Choice, best_s: float | None) -> tuple[tuple[float, ...], bool]:
        """Time a variant, here or where it was built."""
        if self._workers is not None:
            try:
                return self._timed_by(self._workers, choice, best_s)
            except DeviceError:  # which this process has found
                self._workers = None
        return self._bench.time(choice, best_s)

    def _timed_by(
        self, workers: BuildWorkers, choice: Choice, best_s: float | None
    ) -> tuple[tuple[float, ...], bool]:
        end_if_interrupted()
        workers.load(choice)
        with self._alone():
            return workers.time(choice, best_s, self._spending.left_s())

    def _try_again(self, workers: BuildWorkers) -> None:
        """Run a variant in another round that may have been disturbed in those before."""
        busy = [key for key in self._known.tried if not workers.is_free(dict(key))]
        settled = {*busy, *self._run_in(_MOST_ROUNDS)}
        tried = self._known.disturbed(settled, self._spending.unreserved_s())
        if tried is not None:
            self._run_again(tried, self._known.best_s)

    def confirm(self) -> None:
        """Run the fastest again, each time in fresh memory, as far as there is time.

        Of many variants that ran once, the fastest is likely to have been lucky. When it is not the
        fastest any more, the one that is then takes its place.
        """
        if len(self._known.tried) < 2:
            return
        while self._spending.left_s() > 0:
            fastest = self._known.fastest
            if self._rounds[as_key(fastest.choice)] >= self._plan.rounds:
                return
            workers = self._workers
            if workers and not workers.is_free(fastest.choice):
                workers.wait(min(_WAIT_S, self._spending.left_s()))
            else:
                self._run_again(fastest, None)

    def _run_again(self, tried: Trial, best_s: float | None) -> None:
        self._rounds[as_key(tried.choice)] += 1
        try:
            more, cut_short = self._time(tried.choice, best_s)
        except MeasurementError as error:
            self._say(f"failed when run again: {self._space.label(tried.choice)}: {error}")
            return
        again = tried.again(more, cut_short=cut_short)
        self._write(written(again))
        self._known.learn(again)

    def _run_in(self, rounds: int) -> list[Key]:
        """Return the variants that were run in so many rounds, or more."""
        return [key for key, number in self._rounds.items() if number >= rounds]
