"""Building of the variants of a search, several at a time, and their timing, one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from countperf.deferred_interrupts import end_if_interrupted
from countperf.errors import MeasurementError
from countperf.harness.runner import CaseRunner
from countperf.tuning.candidates import Candidates
from countperf.tuning.journal import written
from countperf.tuning.measuring import Bench, stage_of
from countperf.tuning.points import Predicted, PredictionTask, Refused
from countperf.tuning.ranker import Ranker
from countperf.tuning.result import Key, Plan, Trial, as_key
from countperf.tuning.space import Choice, SearchSpace
from countperf.tuning.state import Spending

_WAIT_S = 0.05  # for a variant, before others are looked after


class Trials:
    """Variants of a search that are built and timed."""

    def __init__(
        self,
        task: PredictionTask,
        space: SearchSpace,
        runners: Sequence[CaseRunner],
        plan: Plan,
        *,
        known: Candidates,
        spending: Spending,
        ranker: Ranker,
        rounds: Counter[Key],
        say: Callable[[str], None],
        write: Callable[[dict[str, Any]], None],
    ) -> None:
        self._space = space
        self._plan = plan
        self._known = known
        self._spending = spending
        self._ranker = ranker
        self._rounds = rounds
        self._say = say
        self._write = write
        self._is_alone = runners[0].identity.device_type == "cpu"
        self._threads = ThreadPoolExecutor(len(runners))
        most_s = min(plan.max_case_s, (spending.budget.seconds or float("inf")) / 50)
        self._benches = [
            Bench(space, task.sizes, runner, plan, most_s=most_s, left_s=spending.left_s)
            for runner in runners
        ]
        self._built_by: dict[Key, Bench] = {}

    def close(self) -> None:
        """Wait for nothing."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def go_on(self, meanwhile: Callable[[], None]) -> bool:
        """Build the most promising variants and try them; tell whether there was time for any.

        While variants are built, something else is done. While they are timed on the processors of
        this machine, nothing else is.
        """
        most = len(self._benches)
        if (limit := self._spending.budget.measurements) is not None:
            done = len(self._known.tried) + len(self._known.refused)
            most = max(1, min(most, limit - done))
        points = self._known.promising(self._spending.unreserved_s(), most)
        builds: list[tuple[Predicted, Future[float]]] = []
        for bench, point in zip(self._benches, points, strict=False):
            self._built_by[as_key(point.choice)] = bench
            builds.append((point, self._threads.submit(bench.build, point.choice)))
        self._await([build for _, build in builds], meanwhile)
        self.be_alone()
        for point, build in builds:
            if build.done() and not (self._known.tried and self._spending.is_over()):
                self._try(point, build)
        return bool(points)

    def be_alone(self) -> None:
        """Have predictions pause where they would disturb timings."""
        if self._is_alone:
            self._ranker.pause()

    def _await(
        self, tasks: Iterable[Future[Any]], meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Wait for tasks, but not much longer than there is time."""
        while under_way := [task for task in tasks if not task.done()]:
            end_if_interrupted()
            if self._spending.patience_s() <= 0:
                return
            wait(under_way, timeout=_WAIT_S)
            meanwhile()

    def _try(self, point: Predicted, build: Future[float]) -> None:
        best_s = self._known.best_s
        try:
            build_s = build.result()
            samples, cut_short = self._time(point.choice, best_s)
        except MeasurementError as error:
            refused = Refused(choice=point.choice, stage=stage_of(error), reason=str(error))
            self._write(written(refused))
            self._known.refuse(refused)
            self._say(f"failed: {self._space.label(point.choice)}: {error}")
            return
        tried = Trial(
            choice=point.choice,
            predicted_s=point.time_s,
            interval_s=point.interval_s,
            interval_level=point.interval_level,
            samples_s=samples,
            cut_short=cut_short,
            at_s=self._spending.spent_s(),
        )
        self._write(written(tried))
        self._known.learn(tried, build_s)
        self._rounds[as_key(point.choice)] += 1
        if best_s is None or tried.time_s < best_s:
            self._say(f"{tried.time_s:.4g} s: {self._space.label(point.choice)}")

    def _time(self, choice: Choice, best_s: float | None) -> tuple[tuple[float, ...], bool]:
        """Time a variant where it was built."""
        end_if_interrupted()
        bench = self._built_by.get(as_key(choice), self._benches[0])
        timing = self._threads.submit(bench.time, choice, best_s)
        self._await([timing])
        if not timing.done():
            raise MeasurementError(f"{dict(choice)} was still running when the time was up")
        return timing.result()

    def confirm(self) -> None:
        """Run the fastest again, each time in fresh memory, as far as there is time.

        Of many variants that ran once, the fastest is likely to have been lucky. When it is not the
        fastest any more, the one that is then takes its place.
        """
        if len(self._known.tried) < 2:
            return
        while self._spending.left_s() > 0:
            fastest = self._known.fastest
            key = as_key(fastest.choice)
            if self._rounds[key] >= self._plan.rounds:
                return
            self._rounds[key] += 1
            try:
                more, cut_short = self._time(fastest.choice, None)
            except MeasurementError as error:
                self._say(f"failed when run again: {self._space.label(fastest.choice)}: {error}")
                continue
            again = fastest.again(more, cut_short=cut_short)
            self._write(written(again))
            self._known.learn(again)
