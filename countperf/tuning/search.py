"""Tuning: predict all, measure the most promising, learn, stop when the rest has no chance."""

from __future__ import annotations

import hashlib
import inspect
import io
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.errors import KernelBuildError, MeasurementError, TuningError, WrongResultError
from countperf.harness.runner import CaseRunner
from countperf.tuning.journal import Journal
from countperf.tuning.points import Predicted, Question, Refused, Stage, load_space
from countperf.tuning.posterior import LogTimes, Posterior
from countperf.tuning.ranker import KEPT, rank_points
from countperf.tuning.ranking import Ranking, RefusalCount
from countperf.tuning.result import (
    Budget,
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
from countperf.tuning.stopping import Rest, chance_of_better, is_hopeless, regret_bound, select

Progress = Callable[[str], None]

_FEWEST_RUNS = 2
_RANKING_SLICE_S = 60.0  # after which what was predicted is written down


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
                Journal.open(store, _header(question, space, runner, plan))
            )
        search = _Search(question, space, runner, budget, plan, journal, progress, began_s)
        search.rank(executor, keep)
        stopped = search.measure()
        search.confirm()
        return search.result(stopped)


def _header(
    question: Question, space: SearchSpace, runner: CaseRunner, plan: Plan
) -> dict[str, Any]:
    weights = question.weights
    text = repr((sorted(weights.to_object().items()), question.incomplete_ok))
    listed = repr([(name, list(values)) for name, values in space.parameters.items()])
    rules = repr([str(getattr(each, "__qualname__", each)) for each in space.constraints])
    return {
        "space": space.name,
        "parameters": list(space.parameters),
        "space_digest": hashlib.sha256(
            (listed + rules + _source(space.build)).encode()
        ).hexdigest()[:16],
        "sizes": {**space.sizes, **question.sizes},
        "device": runner.identity.to_object(),
        "timer": runner.clock.timer,
        "weights": f"{weights.model} for {weights.device.slug}",
        "weights_digest": hashlib.sha256(text.encode()).hexdigest()[:16],
        "plan": plan.to_object(),
    }


def _source(function: Callable[..., Any]) -> str:
    """Return a function's source, if there is, so that no search goes on with another function."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""


def _stage(error: MeasurementError) -> Stage:
    """Tell where on the device a variant failed."""
    match error:
        case KernelBuildError():
            return "compile"
        case WrongResultError():
            return "results"
        case _:
            return "run"


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
        self._tried: dict[int, Tried] = {}
        self._refused: dict[int, Refused] = {}
        self._confirmed: set[int] = set()
        self._case_s: list[float] = []
        self._ranking: Ranking
        self._posterior: Posterior

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

    def rank(self, executor: Executor | None, keep: int) -> None:
        """Predict all variants, or as many as there is time for; go on where that was left."""
        question, space = self._question, self._space
        found: Ranking | None = None
        for entry in self._entries:
            if entry["kind"] == "ranking":
                found = read_ranking(
                    entry,
                    space=space.name,
                    names=tuple(space.parameters),
                    sizes={**space.sizes, **question.sizes},
                    device=question.weights.device.slug,
                )
        now = self._runner.clock.now
        while found is None or (not found.complete and self._ranking_left_s(found) > 0):
            until = now() + min(_RANKING_SLICE_S, self._ranking_left_s(found))
            found = rank_points(
                question, executor=executor, keep=keep, deadline_s=until, resume=found, now=now
            )
            self._write(ranking_line(found))
            self._say(
                f"{found.predicted} variants predicted, {found.refused} refused"
                f"{'' if found.complete else ', others not looked at'}"
            )
        if not found.best:
            reasons = [e.reason for each in found.refusals.values() for e in each.examples]
            raise TuningError(
                f"no variant of '{space.name}' has a prediction: "
                f"{reasons[0] if reasons else 'no choice satisfies the constraints'}",
                refusals=reasons,
            )
        self._ranking = found
        self._posterior = Posterior(
            space,
            [point.choice for point in found.best],
            [point.time_s for point in found.best],
            groups=[",".join(point.missing) for point in found.best],
            prior_scatter=self._plan.prior_scatter,
        )
        self._recall()

    def _ranking_left_s(self, found: Ranking | None) -> float:
        """Return what is left of the time that may go into predictions, s."""
        if self._budget.seconds is None:
            return float("inf")
        used = self._spent_s() if found is None else found.seconds
        return self._budget.seconds * self._plan.ranking_share - used

    def _recall(self) -> None:
        """Take over what earlier sessions measured."""
        places = {as_key(p.choice): place for place, p in enumerate(self._ranking.best)}
        for entry in self._entries:
            if entry["kind"] not in ("tried", "refused"):
                continue
            place = places.get(as_key(entry["choice"]))
            if place is None:
                continue
            if entry["kind"] == "refused":
                self._refused[place] = read_refused(entry)
            else:
                if place in self._tried:
                    self._confirmed.add(place)
                self._learn(place, read_tried(entry))

    def _learn(self, place: int, tried: Tried) -> None:
        self._tried[place] = tried
        self._posterior.add(place, tried.time_s)

    # }}}

    # {{{ measuring

    def measure(self) -> Stop:
        """Measure one variant after the other until one of the reasons to stop."""
        while True:
            remaining = self._remaining()
            if not remaining.any():
                return "exhausted" if self._ranking.complete else "budget"
            if self._is_spent():
                return "budget"
            times = self._posterior.log_times()
            if self._tried:
                chance = chance_of_better(
                    self._rest(times, remaining), self._best_s(), self._plan.tolerance
                )
                if chance <= 1 - self._plan.confidence:
                    return "confident"
            place = self._most_promising(times, remaining)
            if place is None:
                return "budget"
            self._try(place)

    def _remaining(self) -> NDArray[np.bool_]:
        remaining = np.ones(len(self._ranking.best), np.bool_)
        remaining[[*self._tried, *self._refused]] = False
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

    def _most_promising(self, times: LogTimes, remaining: NDArray[np.bool_]) -> int | None:
        """Choose the variant of the largest expected improvement among those there is time for."""
        if not self._tried:
            return int(np.flatnonzero(remaining)[0])  # the ranking's first that did not fail
        affordable = remaining & (_FEWEST_RUNS * np.exp(times.mean) <= self._left_s())
        if not affordable.any():
            return None
        gain = times.expected_improvement(self._best_s())
        return int(np.argmax(np.where(affordable, gain, -1.0)))

    def _try(self, place: int) -> None:
        point = self._ranking.best[place]
        started = self._runner.clock.now()
        best_s = self._best_s() if self._tried else None
        try:
            # what Loopy prints and warns of variants that it refuses is in the reason
            with redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                samples, cut_short = self._time(point, best_s)
        except MeasurementError as error:
            refused = Refused(choice=point.choice, stage=_stage(error), reason=str(error))
            self._refused[place] = refused
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
            self._learn(place, tried)
            self._write(tried_line(tried))
            if best_s is None or tried.time_s < best_s:
                self._say(f"{tried.time_s:.4g} s: {self._space.label(point.choice)}")
        self._case_s.append(self._runner.clock.now() - started)

    def _time(self, point: Predicted, best_s: float | None) -> tuple[tuple[float, ...], bool]:
        """Check a variant's numbers and run it, as long as there is hope and time."""
        case = self._space.case(point.choice, self._question.sizes, point.group_shape)
        self._runner.check(case)
        samples: list[float] = []
        most_s = min(self._plan.max_case_s, (self._budget.seconds or float("inf")) / 50)
        with self._runner.loaded(case) as run:
            started = self._runner.clock.now()
            while len(samples) < self._plan.runs:
                sample = run().time_s
                if not sample > 0:
                    raise MeasurementError(f"{case.name}: a time of {sample} s", case=case.name)
                samples.append(sample)
                if is_hopeless(samples, best_s):
                    return tuple(samples), True
                spent = self._runner.clock.now() - started
                if len(samples) >= _FEWEST_RUNS and (spent > most_s or self._left_s() <= 0):
                    break
        return tuple(samples), False

    def confirm(self) -> None:
        """Run the best once more, in fresh memory, as far as there is time; keep the shortest."""
        if len(self._tried) < 2:
            return
        order = sorted(self._tried, key=lambda place: self._tried[place].time_s)
        for place in order[: self._plan.finalists]:
            if self._left_s() <= 0:
                return
            if place in self._confirmed:
                continue
            tried = self._tried[place]
            try:
                more, _ = self._time(self._ranking.best[place], None)
            except MeasurementError as error:
                self._say(f"failed when run again: {self._space.label(tried.choice)}: {error}")
                continue
            again = replace(tried, samples_s=(*tried.samples_s, *more), cut_short=False)
            self._learn(place, again)
            self._write(tried_line(again))
            self._confirmed.add(place)

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
