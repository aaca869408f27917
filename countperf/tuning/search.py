"""Tuning: predict all, measure the most promising, learn, stop when the rest has no chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from countperf.deferred_interrupts import deferred_interrupts, end_if_interrupted
from countperf.errors import DocumentError, TuningError
from countperf.harness.runner import CaseRunner
from countperf.tuning.points import PredictionTask, Refused, checked_space
from countperf.tuning.pools import pool_or
from countperf.tuning.ranker import KEPT, Ranker, Ranking
from countperf.tuning.result import (
    Budget,
    End,
    Journal,
    Key,
    Outlook,
    Plan,
    SearchInterrupt,
    Stop,
    TuningResult,
    as_key,
    search_header,
    ties,
    written,
)
from countperf.tuning.space import SearchSpace
from countperf.tuning.trials import Candidates, SearchState, Spending, Trials, Watch, outlook

Progress = Callable[[str], None]

_OVERTIME_S = 1.0  # for a first prediction, where others were refused
_WAIT_S = 0.25  # for an answer of the executor, before it is seen whether Ctrl-C was pressed


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
    with ExitStack() as stack:
        journal = None
        if store is not None:
            journal = stack.enter_context(
                Journal(store, search_header(question, space, runner, plan))
            )
        search = _Search(question, space, runner, budget, plan, journal, progress, began_s)
        search.watch = watch
        if (earlier := search.earlier_result()) is not None:
            return earlier
        ranker = Ranker(
            question,
            stack.enter_context(pool_or(executor)),
            keep=keep,
            now=runner.clock.now,
            by_promise=budget.seconds is not None,
            longest_s=budget.longest_s if longest_s is None else longest_s,
        )
        stack.enter_context(ranker)
        stack.callback(search.work_with(ranker, (runner, *builders)).close)
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
        runner: CaseRunner,
        budget: Budget,
        plan: Plan,
        journal: Journal | None,
        progress: Progress | None,
        began_s: float | None,
    ) -> None:
        self._question = question
        self._space = space
        self._runner = runner
        self._plan = plan
        self._journal = journal
        self._say = progress or (lambda _: None)
        self.watch: Watch | None = None
        self._entries = [] if journal is None else journal.entries
        self._rounds: Counter[Key] = Counter()  # in which each was run
        self._known = Candidates(space, plan)
        self._spending = Spending(
            budget,
            self._known,
            runner.clock.now,
            before_s=max((entry.spent_s for entry in self._entries), default=0.0),
            began_s=runner.clock.now() if began_s is None else began_s,
        )
        self._ranking: Ranking
        self._ranker: Ranker
        self._trials: Trials
        self._recall()

    def work_with(self, ranker: Ranker, runners: Sequence[CaseRunner]) -> Trials:
        """Work with a ranking under way and with what runs variants."""
        self._ranker = ranker
        self._trials = Trials(
            self._question,
            self._space,
            runners,
            self._plan,
            known=self._known,
            spending=self._spending,
            ranker=ranker,
            rounds=self._rounds,
            say=self._say,
            write=self._write,
        )
        return self._trials

    def _write(self, entry: dict[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append({**entry, "spent_s": self._spending.spent_s()})

    def earlier_result(self) -> TuningResult | None:
        """Return the result of a search that has ended, unless more may be spent now than then."""
        end = self._entries[-1].content if self._entries else None
        if not isinstance(end, End):
            return None
        if end.stopped == "budget" and self._spending.budget.exceeds(end.budget):
            return None
        self._say("the search has ended before; its file has the answer")
        return self._result(end.stopped, end, self._spending.before_s)

    def _recall(self) -> None:
        """Take over what earlier sessions measured."""
        for entry in self._entries:
            content = entry.content
            if isinstance(content, End):
                continue
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

    def begin(self) -> None:
        """Predict for the first share of the seconds, and go on until there is a prediction.

        Where no variant can be predicted, that ends soon after the seconds.
        """
        ranker = self._ranker
        while not ranker.is_done:
            end_if_interrupted()
            if self._left_s(self._plan.first_share) <= 0 and ranker.has_predictions:
                break
            if self._left_s(1.0) < -_OVERTIME_S and ranker.answered:
                break
            ranker.work(_WAIT_S)
        self._look()
        self._ranking.check_predicted()
        some = "" if self._ranking.complete else ", others not looked at"
        counted = f"{self._ranking.predicted} variants predicted, {self._ranking.refused} refused"
        self._say(f"{counted}{some}")

    def _left_s(self, share: float) -> float:
        """Return what is left of a share of the seconds, s."""
        seconds = self._spending.budget.seconds
        return float("inf") if seconds is None else share * seconds - self._spending.spent_s()

    def _look(self) -> None:
        self._ranking = self._ranker.ranking()
        if self._ranking.best or self._known.tried:
            self._known.look(self._ranking)

    def _take_up(self) -> None:
        """Make what is known of the variants anew, since an interrupt may split any update of it.

        What ran and what failed is kept: each is entered by one step, with its line in the journal.
        """
        known = Candidates(self._space, self._plan)
        known.tried, known.refused = self._known.tried, self._known.refused
        self._known = known
        self._look()

    def measure(self) -> Stop:
        """Measure one variant after the other until one of the reasons to stop.

        While variants are built, the executor goes on with predictions, for a share of the seconds;
        it gets all that is left where no variant that is predicted is worth a measurement.
        """
        while True:
            self._look()
            if self._spending.is_over():
                return "budget"
            self._show()
            if not self._known.remaining.any() or self._known.is_confident:
                if self._ranker.is_done:
                    return "confident" if self._known.remaining.any() else "exhausted"
                if self._left_s(1.0) <= 0:
                    return "budget"
                end_if_interrupted()
                self._ranker.work(_WAIT_S)
            elif not self._trials.go_on(self._predict_on):
                return "budget"

    def _predict_on(self) -> None:
        if self._left_s(self._plan.ranking_share) > 0:
            self._ranker.work(0.0)

    def _show(self) -> None:
        """Tell who watches the state."""
        if self.watch is None:
            return
        known = self._known
        self.watch(
            SearchState(
                space=self._space.name,
                device=self._runner.identity.slug,
                best_s=known.best_s,
                best=known.fastest.choice if known.tried else {},
                tried=len(known.tried),
                failed=len(known.refused),
                predicted=self._ranking.predicted,
                expected_gain=known.expected_gain,
                chance=known.chance,
                spent_s=self._spending.spent_s(),
                seconds=self._spending.budget.seconds,
            )
        )

    def confirm(self) -> None:
        """Run the fastest again."""
        self._trials.be_alone()
        self._trials.confirm()

    def end(self, stopped: Stop) -> TuningResult:
        """Sum up, and write down that the search has ended, so that it is not begun again."""
        spent_s = self._spending.spent_s()
        if not self._known.tried:
            reasons = [refused.reason for refused in self._known.refused.values()]
            raise TuningError(
                f"no variant of '{self._space.name}' ran on {self._runner.identity.slug}"
                f" ({len(reasons)} tried): {reasons[0] if reasons else 'no time for one'}",
                refusals=reasons,
            )
        about = outlook(self._space, self._known, self._ranking)
        if self._journal is not None:
            known = {field.name: getattr(about, field.name) for field in fields(Outlook)}
            end = End(stopped=stopped, budget=self._spending.budget, **known)
            self._journal.append({**written(end), "spent_s": spent_s})
        return self._result(stopped, about, spent_s)

    def _result(self, stopped: Stop, about: Outlook, spent_s: float) -> TuningResult:
        winner, within = ties(self._known.ran, floor=0.0)
        return TuningResult(
            space=self._space.name,
            device=self._runner.identity.slug,
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
        spent_s = self._spending.spent_s()
        self._take_up()
        store = None if self._journal is None else str(self._journal.path)
        tried, failed = len(self._known.tried), len(self._known.refused)
        counted = f"{self._ranking.predicted} variants predicted, {tried} ran, {failed} failed"
        result = None
        if tried:
            about = outlook(self._space, self._known, self._ranking)
            result = self._result("interrupted", about, spent_s)
        return SearchInterrupt(result, store, counted)
