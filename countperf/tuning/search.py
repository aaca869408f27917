"""Tuning: predict all, measure the most promising, learn, stop when the rest has no chance."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.errors import MeasurementError, TuningError
from countperf.harness.runner import CaseRunner
from countperf.tuning.gate import Gate
from countperf.tuning.journal import Journal, search_header
from countperf.tuning.measuring import FEWEST_RUNS, Bench, stage_of
from countperf.tuning.points import Predicted, Question, Refused, load_space
from countperf.tuning.pools import pool_or
from countperf.tuning.posterior import LogTimes, Posterior
from countperf.tuning.predictions import Predictions
from countperf.tuning.ranker import KEPT, Ranker
from countperf.tuning.ranking import Ranking, RefusalCount
from countperf.tuning.result import (
    Budget,
    Key,
    Plan,
    Stop,
    Tried,
    TuningResult,
    as_key,
    ranking_line,
    read_ranking,
    read_refused,
    read_tried,
    refused_object,
    ties,
    tried_line,
)
from countperf.tuning.space import SearchSpace
from countperf.tuning.stopping import Rest, chance_of_better, regret_bound, select

Progress = Callable[[str], None]

_WORTH_WAITING = 0.5  # gain of a variant that is built already, in that of the most promising


def tune_space(
    question: Question,
    runner: CaseRunner,
    budget: Budget,
    *,
    store: Path | str | None = None,
    plan: Plan | None = None,
    executor: Executor | None = None,
    keep: int = KEPT,
    progress: Progress | None = None,
    began_s: float | None = None,
    gate: Gate | None = None,
) -> TuningResult:
    """Find the fastest variant of a space on a device within a budget.

    Parameters
    ----------
    question : Question
        Space, weights, sizes, limits of the device.
    runner : CaseRunner
        What builds, checks and times variants, one at a time.
    budget : Budget
        What may be spent, earlier sessions of the same store included.
    store : Path or str, optional
        A file that a search goes on from when it was interrupted, or was given a larger budget.
    plan : Plan, optional
        Confidence, tolerance, runs.
    executor : concurrent.futures.Executor, optional
        What predicts; by default a pool of processes.
    keep : int
        How many of the variants that are predicted to be fastest stay candidates.
    progress : callable, optional
        Is told what happens, a line at a time.
    began_s : float, optional
        When the session began by the runner's clock, if work was done before, s.
    gate : Gate, optional
        Of several searches in this process; what keeps their timings apart.

    Returns
    -------
    TuningResult

    Raises
    ------
    TuningError
        No variant could be predicted, or none ran.
    IncompatibleMeasurementsError, DocumentError, MeasurementError
        The store is of another search, is damaged, or cannot be written.
    """
    plan = plan or Plan()
    space = load_space(question.space) if isinstance(question.space, str) else question.space
    with ExitStack() as stack:
        journal = None
        if store is not None:
            journal = stack.enter_context(
                Journal.open(store, search_header(question, space, runner, plan))
            )
        search = _Search(question, space, runner, budget, plan, journal, progress, began_s)
        pool = stack.enter_context(pool_or(executor))
        ranker = Ranker(
            question,
            pool,
            keep=keep,
            resume=search.earlier_ranking(),
            now=runner.clock.now,
            by_promise=budget.seconds is not None,
        )
        stack.enter_context(ranker)
        stack.enter_context(search.at(ranker, gate or Gate()))
        search.begin()
        stopped = search.measure()
        search.confirm()
        return search.result(stopped)


class _Search:
    """The state of one call of `tune_space`."""

    def __init__(
        self,
        question: Question,
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
        self._budget = budget
        self._plan = plan
        self._journal = journal
        self._say = progress or (lambda _: None)
        self._entries = [] if journal is None else journal.entries
        self._before_s = max((float(e.get("spent_s", 0.0)) for e in self._entries), default=0.0)
        self._began_s = runner.clock.now() if began_s is None else began_s
        self._tried: dict[Key, Tried] = {}
        self._refused: dict[Key, Refused] = {}
        self._confirmed: set[Key] = set()
        self._case_s: list[float] = []
        self._ahead: Key | None = None  # built ahead of its turn
        self._points: tuple[Predicted, ...] = ()  # candidates, the fastest by prediction first
        self._places: dict[Key, int] = {}
        self._ranking: Ranking
        self._posterior: Posterior
        self._predictions: Predictions
        self._bench: Bench
        self._recall()

    @contextmanager
    def at(self, ranker: Ranker, gate: Gate) -> Generator[None]:
        """Work with a ranking under way, and among the searches of a gate."""
        self._predictions = Predictions(
            ranker,
            gate,
            self._plan,
            seconds=self._budget.seconds,
            now=self._runner.clock.now,
            spent_s=self._spent_s,
            note=self._note,
        )
        most_s = min(self._plan.max_case_s, (self._budget.seconds or float("inf")) / 50)
        with (
            gate.watching(ranker),
            Bench(
                self._space,
                self._question.sizes,
                self._runner,
                self._plan,
                gate=gate,
                most_s=most_s,
                left_s=self._left_s,
            ) as self._bench,
        ):
            yield

    # {{{ budget

    def _spent_s(self) -> float:
        return self._before_s + self._runner.clock.now() - self._began_s

    def _left_s(self) -> float:
        seconds = self._budget.seconds
        return float("inf") if seconds is None else seconds - self._spent_s()

    def _is_spent(self) -> bool:
        """Tell whether another variant would exceed the budget; the first one is always tried."""
        limit = self._budget.measurements
        if limit is not None and len(self._tried) + len(self._refused) >= limit:
            return bool(self._tried) or len(self._refused) >= 2 * limit
        if not self._tried:
            return self._left_s() <= 0 and bool(self._refused)
        usual = float(np.mean(self._case_s)) if self._case_s else 0.0
        return self._left_s() <= usual

    def _write(self, entry: dict[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append({**entry, "spent_s": self._spent_s()})

    # }}}

    # {{{ predicting

    def earlier_ranking(self) -> Ranking | None:
        """Return what earlier sessions predicted."""
        question, space = self._question, self._space
        lines = [entry for entry in self._entries if entry["kind"] == "ranking"]
        if not lines:
            return None
        return read_ranking(
            lines[-1],
            space=space.name,
            names=tuple(space.parameters),
            sizes={**space.sizes, **question.sizes},
            device=question.weights.device.slug,
        )

    def begin(self) -> None:
        """Predict: a sample of the variants where seconds are scarce, else all of them."""
        ranking = self._predictions.begin()
        if not ranking.predicted:
            reasons = [e.reason for each in ranking.refusals.values() for e in each.examples]
            raise TuningError(
                f"no variant of '{self._space.name}' has a prediction: "
                f"{reasons[0] if reasons else 'no choice satisfies the constraints'}",
                refusals=reasons,
            )
        self._look()

    def _note(self, ranking: Ranking) -> None:
        self._write(ranking_line(ranking))
        self._say(
            f"{ranking.predicted} variants predicted, {ranking.refused} refused"
            f"{'' if ranking.complete else ', others not looked at'}"
        )

    def _look(self) -> None:
        """Take over what was predicted meanwhile."""
        found = self._predictions.ranking()
        if self._points and found.predicted == self._ranking.predicted:
            self._ranking = found
            return
        self._ranking = found
        kept = {as_key(point.choice): point for point in found.best}
        for tried in self._tried.values():  # by earlier sessions, or when fewer were known
            kept.setdefault(
                as_key(tried.choice), Predicted(choice=tried.choice, time_s=tried.predicted_s)
            )
        self._points = tuple(kept.values())
        self._places = {key: place for place, key in enumerate(kept)}
        self._posterior = Posterior(
            self._space,
            [point.choice for point in self._points],
            [point.time_s for point in self._points],
            groups=[",".join(point.missing) for point in self._points],
            prior_scatter=self._plan.prior_scatter,
        )
        for key, tried in self._tried.items():
            self._posterior.add(self._places[key], tried.time_s)

    def _recall(self) -> None:
        """Take over what earlier sessions measured."""
        for entry in self._entries:
            if entry["kind"] == "refused":
                self._refused[as_key(entry["choice"])] = read_refused(entry)
            elif entry["kind"] == "tried":
                key = as_key(entry["choice"])
                if key in self._tried:
                    self._confirmed.add(key)
                self._tried[key] = read_tried(entry)

    def _learn(self, tried: Tried) -> None:
        key = as_key(tried.choice)
        self._tried[key] = tried
        self._posterior.add(self._places[key], tried.time_s)

    # }}}

    # {{{ measuring

    def measure(self) -> Stop:
        """Measure one variant after the other until one of the reasons to stop.

        Meanwhile the executor goes on with predictions, as long as there is time for them.
        """
        while True:
            counting = not self._is_spent() and self._predictions.go_on()
            self._look()
            remaining = self._remaining()
            if self._is_spent():
                return "budget"
            if not remaining.any():
                if not counting:
                    return "exhausted" if self._ranking.complete else "budget"
                self._predictions.wait()
                continue
            times = self._posterior.log_times()
            if self._tried and self._is_confident(times, remaining):
                if not counting:
                    return "confident"
                self._predictions.wait()
                continue
            places = self._most_promising(times, remaining)
            if not places:
                return "budget"
            self._try(*places)

    def _is_confident(self, times: LogTimes, remaining: NDArray[np.bool_]) -> bool:
        chance = chance_of_better(
            self._rest(times, remaining), self._best_s(), self._plan.tolerance
        )
        return chance <= 1 - self._plan.confidence

    def _remaining(self) -> NDArray[np.bool_]:
        remaining = np.ones(len(self._points), np.bool_)
        done = [self._places[key] for key in (*self._tried, *self._refused) if key in self._places]
        remaining[done] = False
        return remaining

    def _best_s(self) -> float:
        return min(tried.time_s for tried in self._tried.values())

    def _rest(self, times: LogTimes, remaining: NDArray[np.bool_]) -> tuple[Rest, ...]:
        """Return all that was not measured: candidates, and what was not kept as one."""
        dropped = self._ranking.predicted - len(self._ranking.best)
        candidates = Rest(times=select(times, remaining))
        if not dropped:
            return (candidates,)
        cutoff = self._posterior.unknown(self._ranking.best[-1].time_s)
        return candidates, Rest(times=cutoff, count=dropped)

    def _most_promising(self, times: LogTimes, remaining: NDArray[np.bool_]) -> list[int]:
        """Choose the variant of the largest expected improvement, and the one to be built ahead.

        Among those that there is time for.
        """
        if not self._tried:
            return [int(place) for place in np.flatnonzero(remaining)[:2]]
        affordable = remaining & (FEWEST_RUNS * np.exp(times.mean) <= self._left_s())
        gain = np.where(affordable, times.expected_improvement(self._best_s()), -1.0)
        order = np.argsort(-gain, kind="stable")[: min(2, int(affordable.sum()))]
        places = [int(place) for place in order]
        ahead = self._places.get(self._ahead) if self._ahead else None
        if ahead is None or not places or ahead == places[0] or not affordable[ahead]:
            return places
        is_as_good = gain[ahead] >= _WORTH_WAITING * gain[places[0]]
        return [ahead, places[0]] if is_as_good else places

    def _try(self, place: int, following: int | None = None) -> None:
        point = self._points[place]
        started = self._runner.clock.now()
        best_s = self._best_s() if self._tried else None
        ahead = None if following is None else self._points[following]
        try:
            samples, cut_short = self._bench.time(
                point.choice, best_s, None if ahead is None else ahead.choice
            )
        except MeasurementError as error:
            refused = Refused(choice=point.choice, stage=stage_of(error), reason=str(error))
            self._refused[as_key(point.choice)] = refused
            self._write({"kind": "refused", **refused_object(refused)})
            self._say(f"failed: {self._space.label(point.choice)}: {error}")
        else:
            tried = Tried(
                choice=point.choice,
                predicted_s=point.time_s,
                samples_s=samples,
                cut_short=cut_short,
                at_s=self._spent_s(),
            )
            self._learn(tried)
            self._write(tried_line(tried))
            if best_s is None or tried.time_s < best_s:
                self._say(f"{tried.time_s:.4g} s: {self._space.label(point.choice)}")
        self._ahead = None if ahead is None else as_key(ahead.choice)
        self._case_s.append(self._runner.clock.now() - started)

    def confirm(self) -> None:
        """Run the best once more, in fresh memory, as far as there is time; keep the shortest."""
        if len(self._tried) < 2:
            return
        order = sorted(self._tried, key=lambda key: self._tried[key].time_s)
        for key in order[: self._plan.finalists]:
            if self._left_s() <= 0:
                return
            if key in self._confirmed:
                continue
            tried = self._tried[key]
            try:
                more, _ = self._bench.time(tried.choice, None)
            except MeasurementError as error:
                self._say(f"failed when run again: {self._space.label(tried.choice)}: {error}")
                continue
            again = replace(tried, samples_s=(*tried.samples_s, *more), cut_short=False)
            self._learn(again)
            self._write(tried_line(again))
            self._confirmed.add(key)

    # }}}

    def result(self, stopped: Stop) -> TuningResult:
        """Sum up."""
        if not self._tried:
            reasons = [refused.reason for refused in self._refused.values()]
            raise TuningError(
                f"no variant of '{self._space.name}' ran on {self._runner.identity.slug}"
                f" ({len(reasons)} tried): {reasons[0] if reasons else 'no time for one'}",
                refusals=reasons,
            )
        remaining = self._remaining()
        regret = 0.0
        if remaining.any() or self._ranking.predicted > len(self._ranking.best):
            rest = self._rest(self._posterior.log_times(), remaining)
            regret = regret_bound(rest, self._best_s(), self._plan.confidence)
        tried = tuple(sorted(self._tried.values(), key=lambda each: each.at_s))
        winner, within = ties(tried, floor=0.0)
        return TuningResult(
            space=self._space.name,
            device=self._runner.identity.slug,
            sizes=self._ranking.sizes,
            winner=winner,
            within_noise=within,
            tried=tried,
            failed=tuple(self._refused.values()),
            refusals=self._all_refusals(),
            predicted=self._ranking.predicted,
            ranking_complete=self._ranking.complete,
            stopped=stopped,
            confidence=self._plan.confidence,
            regret_bound=regret,
            spent_s=self._spent_s(),
            ranking_s=self._ranking.seconds,
        )

    def _all_refusals(self) -> dict[str, RefusalCount]:
        found = dict(self._ranking.refusals)
        by_stage: dict[str, list[Refused]] = {}
        for refused in self._refused.values():
            by_stage.setdefault(refused.stage, []).append(refused)
        for stage, failed in by_stage.items():
            found[stage] = RefusalCount(count=len(failed), examples=tuple(failed[:3]))
        return found
