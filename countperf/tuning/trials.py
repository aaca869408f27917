"""Building of the variants of a search, several at a time, and their timing, one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeAlias

from countperf.deferred_interrupts import end_if_interrupted
from countperf.errors import MeasurementError
from countperf.harness.runner import CaseRunner
from countperf.tuning.candidates import Candidates
from countperf.tuning.journal import written
from countperf.tuning.measuring import Bench, stage_of
from countperf.tuning.points import Predicted, PredictionTask, Refused
from countperf.tuning.ranker import Ranker, Ranking, by_stage
from countperf.tuning.result import Budget, Key, Outlook, Plan, Trial, as_key, ties
from countperf.tuning.space import Choice, SearchSpace, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState:
    """State of a search under way."""

    space: str  # name of the space, slug of the device
    device: str
    best_s: float | None  # time of the fastest variant so far, s
    best: Mapping[str, Value]  # which one
    tried: int  # variants that ran, that failed on the device, that have a prediction
    failed: int
    predicted: int
    expected_gain: float | None
    # bound of the probability that any variant left is faster by more than the tolerance
    chance: float | None
    spent_s: float  # time spent over all sessions, s
    seconds: float | None  # the budget

    @property
    def left_s(self) -> float | None:
        """Time that is left of the budget, s; None where measurements alone are limited."""
        return None if self.seconds is None else max(0.0, self.seconds - self.spent_s)


Watch: TypeAlias = Callable[[SearchState], None]
"""Is told the state of a search whenever it may have changed."""

_OVERTIME_S = 1.0  # for a variant that is being timed when the seconds are over
RESERVED = 0.1
"""Fraction of the seconds that is kept for running the best again, if that takes so long."""


class Spending:
    """Budget of a search, earlier sessions included."""

    def __init__(
        self,
        budget: Budget,
        known: Candidates,
        now: Callable[[], float],
        *,
        before_s: float,
        began_s: float,
    ) -> None:
        self.budget = budget
        self.before_s = before_s
        self._known = known
        self.now = now
        self._began_s = began_s

    def spent_s(self) -> float:
        """Return what was spent, s."""
        return self.before_s + self.now() - self._began_s

    def left_s(self) -> float:
        """Return what is left, s."""
        seconds = self.budget.seconds
        return float("inf") if seconds is None else seconds - self.spent_s()

    def patience_s(self) -> float:
        """Return what may be waited for at most, s; the first variant is always tried."""
        if not self._known.tried and not self._known.refused:
            return float("inf")
        return max(0.0, self.left_s()) + _OVERTIME_S

    def is_over(self) -> bool:
        """Tell whether the budget is spent; the first variant is always tried."""
        tried, failed = len(self._known.tried), len(self._known.refused)
        limit = self.budget.measurements
        if limit is not None and tried + failed >= limit:
            return tried > 0 or failed >= 2 * limit
        return self.left_s() <= self.reserved_s() and tried + failed > 0

    def reserved_s(self) -> float:
        """Return what running the best again is to take, s."""
        seconds = self.budget.seconds
        if seconds is None or len(self._known.tried) < 2:
            return 0.0
        return min(RESERVED * seconds, self._known.confirming_s)

    def unreserved_s(self) -> float:
        """Return what is left for variants that were not tried yet, s."""
        return self.left_s() - self.reserved_s()


_UNPREDICTED = ("count", "predict")  # stages at which variants fall out that there may well be


def outlook(space: SearchSpace, known: Candidates, ranking: Ranking) -> Outlook:
    """Return what is known of variants that were not measured, as soon as one was."""
    without = sum(ranking.refusals[s].count for s in _UNPREDICTED if s in ranking.refusals)
    others = 0
    if not ranking.complete:
        others = space.number_of_choices() - ranking.predicted - ranking.refused
    unbounded = without + max(0, others)
    is_alone = known.known == 1 and unbounded > 0
    return Outlook(
        refusals={**ranking.refusals, **by_stage(known.refused.values())},
        predicted=ranking.predicted,
        ranking_complete=ranking.complete,
        regret_bound=None if is_alone else known.regret(ties(known.ran, floor=0.0)[0]),
        bounded=known.known,
        unbounded=unbounded,
        ranking_s=ranking.seconds,
    )


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
