"""Tuning: predict all, measure the most promising, learn, stop when the rest has no chance.

Variants are built several at a time, and timed one at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from countperf.devices.workers import pool_or
from countperf.errors import DocumentError, MeasurementError, TuningError
from countperf.measuring.runner import CaseRunner
from countperf.steps import deferred_interrupts, end_if_interrupted
from countperf.tuning.points import Predicted, PredictionTask, Refused, Stage, checked_space
from countperf.tuning.ranker import KEPT, Ranker, Ranking, by_stage
from countperf.tuning.result import (
    Budget,
    End,
    Entry,
    Journal,
    Key,
    Outlook,
    Plan,
    SearchInterrupt,
    Stop,
    Trial,
    TuningResult,
    as_key,
    search_header,
    ties,
    written,
)
from countperf.tuning.space import Choice, SearchSpace
from countperf.tuning.trials import Candidates, SearchState, Watch
from countperf.tuning.variant_bench import VariantBench

_STAGES: Mapping[str, Stage] = {"build": "compile", "check": "results", "run": "run"}
"""Stages at which variants fail on the device, by those of measurements."""

Progress = Callable[[str], None]

_OVERTIME_S = 1.0  # for a first prediction, where others were refused
_ANSWER_S = 0.25  # for an answer of the executor, before it is seen whether Ctrl-C was pressed
_BUILD_S = 0.05  # for a variant, before others are looked after
RESERVED = 0.1
"""Fraction of the seconds that is kept for running the best again, if that takes so long."""
_UNPREDICTED = ("count", "predict")  # stages at which variants fall out that there may well be


def tune_space(
    question: PredictionTask,
    runner: CaseRunner,
    budget: Budget,
    *,
    store: Path | str | None = None,
    plan: Plan | None = None,
    executor: Executor | None = None,
    keep: int = KEPT,
    progress: Progress | None = None,
    began_s: float | None = None,
    longest_s: float | None = None,
    builders: Sequence[CaseRunner] = (),
    watch: Watch | None = None,
) -> TuningResult:
    """Find the fastest variant of a space on a device within a budget.

    More runners of the device build as many more variants at a time.
    """
    plan = plan or Plan()
    space = checked_space(question.space, question.sizes)
    began_s = runner.clock.now() if began_s is None else began_s
    with ExitStack() as stack:
        journal = None
        if store is not None:
            journal = stack.enter_context(
                Journal(store, search_header(question, space, runner, plan))
            )
        search = _Search(question, space, (runner, *builders), budget, plan, journal, began_s)
        search.say = progress or search.say
        search.watch = watch
        if (earlier := search.earlier_result()) is not None:
            return earlier
        search.ranker = Ranker(
            question,
            stack.enter_context(pool_or(executor)),
            keep=keep,
            now=runner.clock.now,
            by_promise=budget.seconds is not None,
            longest_s=budget.longest_s if longest_s is None else longest_s,
        )
        stack.enter_context(search.ranker)
        stack.callback(search.threads.shutdown, wait=False, cancel_futures=True)
        try:
            with deferred_interrupts():
                search.begin()
                stopped = search.measure()
                search.confirm()
                return search.end(stopped)
        except KeyboardInterrupt as error:
            raise search.interrupted() from error


class _Search:
    """The state of one call of `tune_space`."""

    def __init__(
        self,
        question: PredictionTask,
        space: SearchSpace,
        runners: Sequence[CaseRunner],
        budget: Budget,
        plan: Plan,
        journal: Journal | None,
        began_s: float,
    ) -> None:
        self._question = question
        self._space = space
        self._device = runners[0].identity
        self._now = runners[0].clock.now
        self._budget = budget
        self._plan = plan
        self._journal = journal
        self._began_s = began_s
        self._entries = [] if journal is None else journal.entries
        self._before_s = max((entry.spent_s for entry in self._entries), default=0.0)
        self._rounds: Counter[Key] = Counter()  # in which each was run
        self._known = Candidates(space, plan)
        self._ranking: Ranking
        most_s = min(plan.max_case_s, (budget.seconds or float("inf")) / 50)
        self._benches = [
            VariantBench(
                space,
                question.sizes,
                runner,
                plan,
                statistics=question.statistics,
                most_s=most_s,
                left_s=self._left_s,
            )
            for runner in runners
        ]
        self._built_by: dict[Key, VariantBench] = {}
        self.threads = ThreadPoolExecutor(len(runners))
        self.ranker: Ranker
        self.say: Progress = lambda _: None
        self.watch: Watch | None = None
        for entry in self._entries:
            self._recall(entry)

    def _recall(self, entry: Entry) -> None:
        """Take over what an earlier session measured."""
        content = entry.content
        if isinstance(content, End):
            return
        key = as_key(content.choice)
        if not self._space.has_values(content.choice):
            path = None if self._journal is None else str(self._journal.path)
            field = f"line {entry.number}: $.choice"
            message = f"{path}: {field}: {dict(key)} is none of the space '{self._space.name}'"
            raise DocumentError(message, path=path, field=field)
        if isinstance(content, Refused):
            self._known.refuse(content)
        else:
            self._rounds[key] += 1
            self._known.tried[key] = content

    def _write(self, content: Trial | Refused | End, spent_s: float | None = None) -> None:
        if self._journal is not None:
            spent_s = self._spent_s() if spent_s is None else spent_s
            self._journal.append({**written(content), "spent_s": spent_s})

    def earlier_result(self) -> TuningResult | None:
        """Return the result of a search that has ended, unless more may be spent now than then."""
        end = self._entries[-1].content if self._entries else None
        if not isinstance(end, End):
            return None
        if end.stopped == "budget" and self._budget.exceeds(end.budget):
            return None
        self.say("the search has ended before; its file has the answer")
        return self._result(end.stopped, end, self._before_s)

    # --- the budget, earlier sessions included

    def _spent_s(self) -> float:
        return self._before_s + self._now() - self._began_s

    def _left_s(self, share: float = 1.0) -> float:
        """Return what is left of a share of the seconds, s."""
        seconds = self._budget.seconds
        return float("inf") if seconds is None else share * seconds - self._spent_s()

    @property
    def _done(self) -> int:
        """Number of variants that ran or failed."""
        return len(self._known.tried) + len(self._known.refused)

    def _is_over(self) -> bool:
        """Tell whether the budget is spent; the first variant is always tried."""
        limit = self._budget.measurements
        if limit is not None and self._done >= limit:
            return bool(self._known.tried) or self._done >= 2 * limit
        return self._unreserved_s() <= 0 and self._done > 0

    def _unreserved_s(self) -> float:
        """Return what is left, but for running the best again, s."""
        seconds = self._budget.seconds
        if seconds is None or len(self._known.tried) < 2:
            return self._left_s()
        return self._left_s() - min(RESERVED * seconds, self._known.confirming_s)

    # --- predicting and measuring

    def begin(self) -> None:
        """Predict for the first share of the seconds, and go on until there is a prediction.

        Where no variant can be predicted, that ends soon after the seconds.
        """
        while not self.ranker.is_done:
            end_if_interrupted()
            if self._left_s(self._plan.first_share) <= 0 and self.ranker.has_predictions:
                break
            if self._left_s() < -_OVERTIME_S and self.ranker.answered:
                break
            self.ranker.work(_ANSWER_S)
        self._look()
        self._ranking.check_predicted()
        some = "" if self._ranking.complete else ", others not looked at"
        counted = f"{self._ranking.predicted} variants predicted, {self._ranking.refused} refused"
        self.say(f"{counted}{some}")

    def _look(self) -> None:
        self._ranking = self.ranker.ranking()
        if self._ranking.best or self._known.tried:
            self._known.look(self._ranking)

    def measure(self) -> Stop:
        """Measure one variant after the other until one of the reasons to stop.

        While variants are built, the executor goes on with predictions, for a share of the seconds;
        it gets all that is left where no variant that is predicted is worth a measurement.
        """
        while True:
            self._look()
            if self._is_over():
                return "budget"
            self._show()
            if not self._known.remaining.any() or self._known.is_confident:
                if self.ranker.is_done:
                    return "confident" if self._known.remaining.any() else "exhausted"
                if self._left_s() <= 0:
                    return "budget"
                end_if_interrupted()
                self.ranker.work(_ANSWER_S)
            elif not self._go_on():
                return "budget"

    def _go_on(self) -> bool:
        """Build the most promising variants and try them; tell whether there was time for any.

        While they are timed on the processors of this machine, nothing else is done.
        """
        most = len(self._benches)
        if (limit := self._budget.measurements) is not None:
            most = max(1, min(most, limit - self._done))
        points = self._known.promising(self._unreserved_s(), most)
        builds: list[tuple[Predicted, Future[float]]] = []
        for bench, point in zip(self._benches, points, strict=False):
            self._built_by[as_key(point.choice)] = bench
            builds.append((point, self.threads.submit(bench.build, point.choice)))
        self._await([build for _, build in builds], self._plan.ranking_share)
        self._be_alone()
        for point, build in builds:
            if not (self._known.tried and self._is_over()):
                self._try(point, build)
        return bool(points)

    def _be_alone(self) -> None:
        """Have predictions pause where they would disturb timings."""
        if self._device.device_type == "cpu":
            self.ranker.pause()

    def _await(self, tasks: Iterable[Future[Any]], share: float = 0.0) -> None:
        """Wait for tasks, and predict meanwhile for a share of the seconds."""
        while under_way := [task for task in tasks if not task.done()]:
            end_if_interrupted()
            wait(under_way, timeout=_BUILD_S)
            if share and self._left_s(share) > 0:
                self.ranker.work(0.0)

    def _try(self, point: Predicted, build: Future[float]) -> None:
        best_s = self._known.best_s
        try:
            build_s = build.result()
            samples, cut_short = self._time(point.choice, best_s)
        except MeasurementError as error:
            stage = _STAGES[error.stage]
            refused = Refused(choice=point.choice, stage=stage, reason=str(error))
            self._write(refused)
            self._known.refuse(refused)
            self.say(f"failed: {self._space.label(point.choice)}: {error}")
            return
        tried = Trial(
            choice=point.choice,
            predicted_s=point.time_s,
            interval_s=point.interval_s,
            interval_level=point.interval_level,
            samples_s=samples,
            cut_short=cut_short,
            at_s=self._spent_s(),
        )
        self._write(tried)
        self._known.learn(tried, build_s)
        self._rounds[as_key(point.choice)] += 1
        if best_s is None or tried.time_s < best_s:
            self.say(f"{tried.time_s:.4g} s: {self._space.label(point.choice)}")

    def _time(self, choice: Choice, best_s: float | None) -> tuple[tuple[float, ...], bool]:
        """Time a variant where it was built."""
        end_if_interrupted()
        bench = self._built_by.get(as_key(choice), self._benches[0])
        timing = self.threads.submit(bench.time, choice, best_s)
        self._await([timing])
        return timing.result()

    def confirm(self) -> None:
        """Run the fastest again, each time in fresh memory, as far as there is time.

        Of many variants that ran once, the fastest is likely to have been lucky. When it is not the
        fastest any more, the one that is then takes its place.
        """
        self._be_alone()
        while len(self._known.tried) > 1 and self._left_s() > 0:
            fastest = self._known.fastest
            key = as_key(fastest.choice)
            if self._rounds[key] >= self._plan.rounds:
                return
            self._rounds[key] += 1
            try:
                more, cut_short = self._time(fastest.choice, None)
            except MeasurementError as error:
                self.say(f"failed when run again: {self._space.label(fastest.choice)}: {error}")
                continue
            again = fastest.again(more, cut_short=cut_short)
            self._write(again)
            self._known.learn(again)

    # --- what there is to say

    def _show(self) -> None:
        """Tell who watches the state."""
        if self.watch is None:
            return
        known = self._known
        self.watch(
            SearchState(
                space=self._space.name,
                device=self._device.slug,
                best_s=known.best_s,
                best=known.fastest.choice if known.tried else {},
                tried=len(known.tried),
                failed=len(known.refused),
                predicted=self._ranking.predicted,
                expected_gain=known.expected_gain,
                chance=known.chance,
                spent_s=self._spent_s(),
                seconds=self._budget.seconds,
            )
        )

    def end(self, stopped: Stop) -> TuningResult:
        """Sum up, and write down that the search has ended, so that it is not begun again."""
        spent_s = self._spent_s()
        if not self._known.tried:
            reasons = [refused.reason for refused in self._known.refused.values()]
            raise TuningError(
                f"no variant of '{self._space.name}' ran on {self._device.slug}"
                f" ({len(reasons)} tried): {reasons[0] if reasons else 'no time for one'}",
                refusals=reasons,
            )
        about = self._outlook()
        known = {field.name: getattr(about, field.name) for field in fields(Outlook)}
        self._write(End(stopped=stopped, budget=self._budget, **known), spent_s)
        return self._result(stopped, about, spent_s)

    def _outlook(self) -> Outlook:
        """Return what is known of variants that were not measured, as soon as one was."""
        ranking, known = self._ranking, self._known
        without = sum(ranking.refusals[s].count for s in _UNPREDICTED if s in ranking.refusals)
        others = 0
        if not ranking.complete:
            others = self._space.number_of_choices() - ranking.predicted - ranking.refused
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

    def _result(self, stopped: Stop, about: Outlook, spent_s: float) -> TuningResult:
        winner, within = ties(self._known.ran, floor=0.0)
        return TuningResult(
            space=self._space.name,
            device=self._device.slug,
            weights=self._question.weights.name,
            model=self._question.weights.model,
            sizes={**self._space.sizes, **self._question.sizes},
            winner=winner,
            within_noise=within,
            tried=self._known.ran,
            failed=tuple(self._known.refused.values()),
            stopped=stopped,
            confidence=self._plan.confidence,
            spent_s=spent_s,
            numbers_checked=self._space.reference is not None,
            **{field.name: getattr(about, field.name) for field in fields(Outlook)},
        )

    def interrupted(self) -> SearchInterrupt:
        """Sum up a search that does not go on now."""
        spent_s = self._spent_s()
        # anew, since an interrupt may split any update; what ran and what failed is entered by one
        # step, with its line in the journal
        known = Candidates(self._space, self._plan)
        known.tried, known.refused = self._known.tried, self._known.refused
        self._known = known
        self._look()
        store = None if self._journal is None else str(self._journal.path)
        tried, failed = len(self._known.tried), len(self._known.refused)
        counted = f"{self._ranking.predicted} variants predicted, {tried} ran, {failed} failed"
        result = self._result("interrupted", self._outlook(), spent_s) if tried else None
        return SearchInterrupt(result, store, counted)
