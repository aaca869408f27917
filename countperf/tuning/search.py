"""Tuning: predict all, measure the most promising, learn, stop when the rest has no chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from countperf.deferred_interrupts import deferred_interrupts
from countperf.errors import DocumentError, TuningError
from countperf.harness.runner import CaseRunner
from countperf.tuning.candidates import Candidates
from countperf.tuning.code_order import SHARE, CodeOrder, CodeReader, read_order
from countperf.tuning.journal import End, Journal, search_header, written
from countperf.tuning.points import Point, PredictionTask, Refused
from countperf.tuning.pools import pool_or
from countperf.tuning.predictions import Predictions
from countperf.tuning.ranker import KEPT, LONGEST_S, Ranker
from countperf.tuning.ranking import Ranking
from countperf.tuning.result import (
    Budget,
    Key,
    Outlook,
    Plan,
    SearchInterrupt,
    Stop,
    TuningResult,
    as_key,
)
from countperf.tuning.sending import Packed, checked_space
from countperf.tuning.space import SearchSpace
from countperf.tuning.state import SearchState, Spending, Watch, outcome, outlook
from countperf.tuning.trials import Trials

Progress = Callable[[str], None]

_SHORTEST_S = 3.0  # that a variant may take in the shortest of searches
_SHOWN_EVERY_S = 1.0  # to who watches


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
    on_point: Callable[[Point], None] | None = None,
    longest_s: float | None = None,
    watch: Watch | None = None,
    reader: CodeReader | None = None,
) -> TuningResult:
    """Find the fastest variant of a space on a device within a budget."""
    plan = plan or Plan()
    space = checked_space(question.space, question.sizes)
    with ExitStack() as stack:
        journal = None
        if store is not None:
            journal = stack.enter_context(
                Journal(store, search_header(question, space, runner, plan))
            )
        longest_s = _longest_s(budget) if longest_s is None else longest_s
        search = _Search(
            question, space, runner, budget, plan, journal, progress, began_s, longest_s
        )
        search.watch = watch
        if (found := search.found_before()) is not None:
            return found
        pool = stack.enter_context(pool_or(executor))
        ranker = Ranker(
            question,
            pool,
            keep=keep,
            on_point=on_point,
            now=runner.clock.now,
            by_promise=budget.seconds is not None,
            longest_s=longest_s,
        )
        stack.enter_context(ranker)
        stack.enter_context(search.at(ranker, pool))
        try:
            with deferred_interrupts():
                search.begin()
                if reader is not None:
                    search.read_code(reader, ranker.asked, pool)
                stopped = search.measure()
                search.confirm()
                return search.end(stopped)
        except KeyboardInterrupt as error:
            raise search.interrupted() from error


def _longest_s(budget: Budget) -> float:
    """Return what a variant may take unless the caller says otherwise, s."""
    seconds = budget.seconds
    return LONGEST_S if seconds is None else min(LONGEST_S, max(_SHORTEST_S, seconds / 4))


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
        longest_s: float,
    ) -> None:
        self._question = question
        self._space = space
        self._runner = runner
        self._plan = plan
        self._longest_s = longest_s
        self._journal = journal
        self._say = progress or (lambda _: None)
        self.watch: Watch | None = None
        self._watched: tuple[int, ...] = ()
        self._watched_s = 0.0
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
        self._order = CodeOrder()
        self._ranking: Ranking
        self._predictions: Predictions
        self._trials: Trials
        self._recall()

    @contextmanager
    def at(self, ranker: Ranker, pool: Executor) -> Generator[None]:
        """Work with a ranking under way."""
        self._predictions = Predictions(ranker, self._plan, self._spending, self._say)
        self._trials = Trials(
            self._question,
            self._space,
            self._runner,
            self._plan,
            known=self._known,
            spending=self._spending,
            predictions=self._predictions,
            rounds=self._rounds,
            say=self._say,
            write=self._write,
        )
        with self._trials.at(ranker, pool, self._longest_s):
            yield

    def _write(self, entry: dict[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append({**entry, "spent_s": self._spending.spent_s()})

    def found_before(self) -> TuningResult | None:
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
        """Predict: a sample of the variants where seconds are scarce, else all of them."""
        ranking = self._predictions.begin()
        ranking.check_predicted()
        self._look()

    def read_code(self, reader: CodeReader, asked: Packed | PredictionTask, pool: Executor) -> None:
        """Put the first variants in order by their code, unless some were measured already."""
        if self._known.tried:
            return
        seconds = self._spending.budget.seconds
        share = float("inf") if seconds is None else SHARE * seconds
        seconds = max(0.0, min(share, self._spending.left_s()))

        def read() -> None:
            self._order = read_order(
                self._ranking, asked, reader, pool, seconds=seconds, now=self._runner.clock.now
            )

        self._predictions.after(read)
        number, model = len(self._order.times_s), self._question.weights.model
        if number:
            self._say(
                f"model {reader.weights.model} orders the first {number} variants, whose code was"
                f" read in {self._order.seconds:.1f} s; model {model} orders the others"
            )
        else:
            self._say(f"model {model} orders all variants: no code was read in {seconds:.1f} s")
        self._look(is_reordered=True)

    def _look(self, *, is_reordered: bool = False) -> None:
        self._ranking = self._order.applied(self._predictions.ranking())
        self._known.look(self._ranking, is_reordered=is_reordered)

    def _take_up(self) -> None:
        """Make what is known of the variants anew, since an interrupt may split any update of it.

        What ran and what failed is kept: each is entered by one step, with its line in the journal.
        """
        known = Candidates(self._space, self._plan)
        known.tried, known.refused = self._known.tried, self._known.refused
        self._known = known
        self._ranking = self._order.applied(self._predictions.ranking())
        if self._ranking.best or known.tried:
            known.look(self._ranking)

    def measure(self) -> Stop:
        """Measure one variant after the other until one of the reasons to stop.

        Meanwhile the executor goes on with predictions, as long as there is time for them: longer
        where no variant that is predicted is worth a measurement.
        """
        while True:
            counting = not self._spending.is_over() and self._predictions.go_on()
            self._look()
            if self._spending.is_over():
                return "budget"
            self._predictions.correct(self._known.promising_s)
            self._show()
            if not self._known.remaining.any():
                if not counting and not self._predictions.resume():
                    return "exhausted" if self._ranking.complete else "budget"
                self._predictions.wait()
                continue
            if self._known.is_confident:
                if not counting and not self._predictions.resume():
                    return "confident" if self._ranking.complete else "budget"
                self._predictions.wait()
                continue
            if not self._trials.go_on(counting=counting):
                return "budget"

    def _show(self) -> None:
        """Tell who watches the state, if it has changed or a second has passed."""
        if self.watch is None:
            return
        known, now_s = self._known, self._spending.spent_s()
        counts = len(known.tried), len(known.refused), self._ranking.predicted
        if counts == self._watched and now_s - self._watched_s < _SHOWN_EVERY_S:
            return
        self._watched, self._watched_s = counts, now_s
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
                spent_s=now_s,
                seconds=self._spending.budget.seconds,
                measurements=self._spending.budget.measurements,
            )
        )

    def confirm(self) -> None:
        """Run the fastest again."""
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
        return outcome(
            self._space,
            {**self._space.sizes, **self._question.sizes},
            self._plan,
            self._known,
            about,
            device=self._runner.identity.slug,
            stopped=stopped,
            spent_s=spent_s,
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
