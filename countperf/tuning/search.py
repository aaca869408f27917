"""Tuning: predict all, measure the most promising, learn, stop when the rest has no chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from countperf.errors import DeviceError, DocumentError, MeasurementError, TuningError
from countperf.harness.runner import CaseRunner
from countperf.tuning.build_workers import Builders, BuildWorkers
from countperf.tuning.candidates import Candidates
from countperf.tuning.checked_space import checked_space
from countperf.tuning.code_order import SHARE, CodeOrder, CodeReader, read_order
from countperf.tuning.contrast import Contrast, contrast_of, first_listed
from countperf.tuning.exclusive_timing import SearchStoppedError, TimingLock
from countperf.tuning.journal import Journal, search_header
from countperf.tuning.measuring import Bench, stage_of
from countperf.tuning.points import Point, Predicted, PredictionTask, Refused
from countperf.tuning.pools import pool_or
from countperf.tuning.predictions import Predictions
from countperf.tuning.ranker import KEPT, LONGEST_S, Ranker
from countperf.tuning.ranking import Ranking, by_stage
from countperf.tuning.result import (
    Budget,
    Key,
    Plan,
    SearchInterrupt,
    Stop,
    Trial,
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
from countperf.tuning.sending import Packed
from countperf.tuning.space import Choice, SearchSpace
from countperf.tuning.watching import SearchState, Watch

Progress = Callable[[str], None]

_MOST_ROUNDS = 3  # in which a variant is run that may have been disturbed
_WAIT_S = 0.05  # for a variant to be built, before others are looked after
_UNPREDICTED = ("count", "predict")  # stages at which variants fall out that there may well be
_SHORTEST_S = 3.0  # that a variant may take in the shortest of searches
_SHOWN_EVERY_S = 1.0  # to who watches
_OVERTIME_S = 1.0  # for a variant that is being timed when the seconds are over
RESERVED = 0.1
"""Fraction of the seconds that is kept for running the best again, if that takes so long."""


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
    gate: TimingLock | None = None,
    on_point: Callable[[Point], None] | None = None,
    longest_s: float | None = None,
    watch: Watch | None = None,
    reader: CodeReader | None = None,
) -> TuningResult:
    """Find the fastest variant of a space on a device within a budget.

    Parameters
    ----------
    question : PredictionTask
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
    gate : TimingLock, optional
        Of several searches in this process; what keeps their timings apart.
    on_point : callable, optional
        Is told of every point that is predicted in this session, refused ones included.
    longest_s : float, optional
        What predicting, building or timing a variant may take, s, where processes of a pool of ours
        do it: a process that takes longer, or ends, is replaced, and its variant refused. By
        default a quarter of the budget, but 3 s at least and a minute at most.
    watch : callable, optional
        Is told the state of the search when it changes, and about once a second.
    reader : CodeReader, optional
        What puts the first variants in order by their compiled code before any is timed, for a
        fifth of the seconds at most.

    Returns
    -------
    TuningResult

    Raises
    ------
    TuningError
        No variant could be predicted, or none ran.
    SearchInterrupt
        Ctrl-C, or another search of the same gate was interrupted; with what was found by then.
    ParameterError, SearchSpaceError
        A size is not positive or none of the space, or the space cannot be measured.
    IncompatibleMeasurementsError, DocumentError, MeasurementError, OutputError
        The store is of another search, is damaged, or cannot be written.
    """
    plan = plan or Plan()
    space = checked_space(question.space, question.sizes)
    with ExitStack() as stack:
        journal = None
        if store is not None:
            journal = stack.enter_context(
                Journal.open(store, search_header(question, space, runner, plan))
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
            resume=search.earlier_ranking(),
            on_point=on_point,
            now=runner.clock.now,
            by_promise=budget.seconds is not None,
            longest_s=longest_s,
        )
        stack.enter_context(ranker)
        stack.enter_context(search.at(ranker, gate or TimingLock(), pool))
        try:
            search.begin()
            if reader is not None:
                search.read_code(reader, ranker.asked, pool)
            stopped = search.measure()
            search.confirm()
        except (KeyboardInterrupt, SearchStoppedError) as error:
            raise search.interrupted() from error
        return search.end(stopped)


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
        self._budget = budget
        self._plan = plan
        self._longest_s = longest_s
        self._journal = journal
        self._say = progress or (lambda _: None)
        self.watch: Watch | None = None
        self._watched: tuple[int, ...] = ()
        self._watched_s = 0.0
        self._entries = [] if journal is None else journal.entries
        self._before_s = max((float(e.get("spent_s", 0.0)) for e in self._entries), default=0.0)
        self._began_s = runner.clock.now() if began_s is None else began_s
        self._rounds: Counter[Key] = Counter()  # in which each was run
        self._begun: set[Key] = set()  # built, or being built, and not tried yet
        self._elsewhere: Builders | None = None
        self._known = Candidates(space, plan)
        self._order = CodeOrder()
        self._ranking: Ranking
        self._noted: Ranking | None = None  # what was written down last
        self._predictions: Predictions
        self._gate: TimingLock
        self._bench: Bench
        self._recall()

    @contextmanager
    def at(self, ranker: Ranker, gate: TimingLock, pool: Executor) -> Generator[None]:
        """Work with a ranking under way, and among the searches of a gate."""
        self._gate = gate
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
        with ExitStack() as stack:
            stack.enter_context(gate.watching(ranker))
            self._elsewhere = BuildWorkers.of(
                pool,
                ranker.asked,
                self._runner,
                self._plan,
                most_s,
                longest_s=self._longest_s,
                left_s=self._patience_s,
            )
            if self._elsewhere is not None:
                stack.enter_context(self._elsewhere)
                stack.enter_context(gate.watching(self._elsewhere))
            self._bench = stack.enter_context(
                Bench(
                    self._space,
                    self._question.sizes,
                    self._runner,
                    self._plan,
                    gate=gate,
                    most_s=most_s,
                    left_s=self._left_s,
                )
            )
            yield

    # {{{ budget

    def _spent_s(self) -> float:
        return self._before_s + self._runner.clock.now() - self._began_s

    def _left_s(self) -> float:
        seconds = self._budget.seconds
        return float("inf") if seconds is None else seconds - self._spent_s()

    def _patience_s(self) -> float:
        """Return what may be waited for at most, s; the first variant is always tried."""
        if not self._known.tried and not self._known.refused:
            return float("inf")
        return max(0.0, self._left_s()) + _OVERTIME_S

    def _is_spent(self) -> bool:
        """Tell whether the budget is; the first variant is always tried."""
        tried, failed = len(self._known.tried), len(self._known.refused)
        limit = self._budget.measurements
        if limit is not None and tried + failed >= limit:
            return tried > 0 or failed >= 2 * limit
        return self._left_s() <= self._reserved_s() and tried + failed > 0

    def _reserved_s(self) -> float:
        """Return what running the best again is to take, s."""
        seconds = self._budget.seconds
        if seconds is None or len(self._known.tried) < 2:
            return 0.0
        return min(RESERVED * seconds, self._known.confirming_s)

    def _write(self, entry: dict[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append({**entry, "spent_s": self._spent_s()})

    # }}}

    # {{{ earlier sessions

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

    def found_before(self) -> TuningResult | None:
        """Return the result of a search that has ended, unless more may be spent now than then."""
        end = self._entries[-1] if self._entries else {}
        if end.get("kind") != "end":
            return None
        if end["stopped"] == "budget" and self._budget.exceeds(Budget(**end["budget"])):
            return None
        ranking = self.earlier_ranking()
        assert ranking is not None  # it is written before the end
        self._ranking = ranking
        self._known.look(ranking)
        self._say("the search has ended before; its file has the answer")
        return self._result(end["stopped"], self._before_s)

    def _recall(self) -> None:
        """Take over what earlier sessions measured."""
        for number, entry in enumerate(self._entries, start=2):
            _check_choices(entry, number, self._space, self._journal)
            if entry["kind"] == "refused":
                self._known.refuse(read_refused(entry))
            elif entry["kind"] == "tried":
                key = as_key(entry["choice"])
                self._rounds[key] += 1
                self._known.tried[key] = read_tried(entry)

    # }}}

    # {{{ predicting

    def begin(self) -> None:
        """Predict: a sample of the variants where seconds are scarce, else all of them."""
        ranking = self._predictions.begin()
        ranking.check_predicted()
        self._look()

    def _note(self, ranking: Ranking) -> None:
        self._noted = ranking
        self._write(ranking_line(ranking))
        self._say(
            f"{ranking.predicted} variants predicted, {ranking.refused} refused"
            f"{'' if ranking.complete else ', others not looked at'}"
        )

    def read_code(self, reader: CodeReader, asked: Packed | PredictionTask, pool: Executor) -> None:
        """Put the first variants in order by their code, unless some were measured already."""
        if self._known.tried:
            return
        seconds = self._budget.seconds
        seconds = min(float("inf") if seconds is None else SHARE * seconds, self._left_s())

        def read() -> None:
            self._order = read_order(
                self._ranking, asked, reader, pool, seconds=seconds, now=self._runner.clock.now
            )

        with self._gate.working():
            self._predictions.after(read)
        number, model = len(self._order.times_s), self._question.weights.model
        if number:
            self._say(
                f"model {reader.weights.model} orders the first {number} variants, whose code was"
                f" read in {self._order.seconds:.1f} s; model {model} orders the others"
            )
        else:
            self._say(f"model {model} orders all variants: code was not read in {seconds:.1f} s")
        self._look(is_reordered=True)

    def _look(self, *, is_reordered: bool = False) -> None:
        self._ranking = self._order.applied(self._predictions.ranking())
        self._known.look(self._ranking, is_reordered=is_reordered)

    # }}}

    # {{{ measuring

    def measure(self) -> Stop:
        """Measure one variant after the other until one of the reasons to stop.

        Meanwhile the executor goes on with predictions, as long as there is time for them: longer
        where no variant that is predicted is worth a measurement.
        """
        while True:
            counting = not self._is_spent() and self._predictions.go_on()
            self._look()
            if self._is_spent():
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
            if self._elsewhere is None:
                went_on = self._build_and_try()
            else:
                went_on = self._try_or_build(self._elsewhere, counting=counting)
            if not went_on:
                return "budget"

    def _show(self) -> None:
        """Tell who watches the state, if it has changed or a second has passed."""
        if self.watch is None:
            return
        known, now_s = self._known, self._spent_s()
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
                seconds=self._budget.seconds,
                measurements=self._budget.measurements,
            )
        )

    def _build_and_try(self) -> bool:
        """Build and try a variant here, and another one ahead; tell whether there was time."""
        left_s = self._left_s() - self._reserved_s()
        point = self._known.worth_a_try(left_s, self._begun)
        following = self._known.promising(left_s, self._begun, 1 if point else 2)
        if point is None:
            if not following:
                return False
            point, *following = following
        self._try(point, *following)
        return True

    def _try_or_build(self, elsewhere: Builders, *, counting: bool) -> bool:
        """Try a variant that is built, or have others built; tell whether there was time."""
        left_s = self._left_s() - self._reserved_s()
        busy = {key for key in self._begun if not elsewhere.is_free(dict(key))}
        point = self._known.worth_a_try(left_s, self._begun - busy, busy)
        if point is not None:
            self._try(point)
            self._try_again(elsewhere)
            return True
        building = len(elsewhere.building)
        most = self._most(elsewhere, counting=counting) - building
        points = self._known.promising(left_s, self._begun, max(0, most))
        if not points and not building:
            return False
        with self._gate.working():
            if points:
                self._begun.update(as_key(point.choice) for point in points)
                self._predictions.after(partial(elsewhere.begin, [p.choice for p in points]))
            under_way = len(elsewhere.building)
            while not self._is_spent() and len(elsewhere.building) == under_way > 0:
                left_s = self._left_s()  # none where the first variant takes all of it and more
                elsewhere.wait(min(_WAIT_S, left_s) if left_s > 0 else _WAIT_S)
                self._predictions.keep_on()
        return True

    def _most(self, elsewhere: Builders, *, counting: bool) -> int:
        """Return how many variants are built at a time: by all processes, or all but one."""
        most = max(1, elsewhere.processes - counting)
        limit = self._budget.measurements
        done = len(self._known.tried) + len(self._known.refused)
        return most if limit is None else max(1, min(most, limit - done))

    def _try(self, point: Predicted, *following: Predicted) -> None:
        best_s = self._known.best_s
        key = as_key(point.choice)
        was_built = key in self._begun
        started = self._runner.clock.now()
        try:
            samples, cut_short = self._time(point.choice, best_s, *(p.choice for p in following))
        except MeasurementError as error:
            refused = Refused(choice=point.choice, stage=stage_of(error), reason=str(error))
            self._write({"kind": "refused", **refused_object(refused)})
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
                at_s=self._spent_s(),
            )
            build_s = None
            if self._elsewhere is not None:
                build_s = self._elsewhere.built_s(point.choice)
            elif not was_built:
                ran_s = self._bench.warm_up_s + sum(samples)
                build_s = max(0.0, self._runner.clock.now() - started - ran_s)
            self._write(tried_line(tried))
            self._known.learn(tried, build_s)
            self._rounds[key] += 1
            if best_s is None or tried.time_s < best_s:
                self._say(f"{tried.time_s:.4g} s: {self._space.label(point.choice)}")
        self._begun.update(as_key(each.choice) for each in following)
        self._begun.discard(key)

    def _time(
        self, choice: Choice, best_s: float | None, *following: Choice
    ) -> tuple[tuple[float, ...], bool]:
        """Time a variant, here or where it was built, and have others built meanwhile."""
        if self._elsewhere is not None:
            try:
                return self._timed_elsewhere(self._elsewhere, choice, best_s)
            except DeviceError:  # which this process has found
                self._elsewhere = None
        return self._bench.time(choice, best_s, following[0] if following else None)

    def _timed_elsewhere(
        self, elsewhere: Builders, choice: Choice, best_s: float | None
    ) -> tuple[tuple[float, ...], bool]:
        with self._gate.working():
            elsewhere.load(choice)
        with self._gate.timing(self._runner.identity):
            return elsewhere.time(choice, best_s, self._left_s())

    def _try_again(self, elsewhere: Builders) -> None:
        """Run a variant in another round that may have been disturbed in those before."""
        busy = [key for key in self._known.tried if not elsewhere.is_free(dict(key))]
        settled = {*busy, *self._run_in(_MOST_ROUNDS)}
        tried = self._known.disturbed(settled, self._left_s() - self._reserved_s())
        if tried is not None:
            self._run_again(tried, self._known.best_s)

    def confirm(self) -> None:
        """Run the fastest again, each time in fresh memory, as far as there is time.

        Of many variants that ran once, the fastest is likely to have been lucky. When it is not the
        fastest any more, the one that is then takes its place.
        """
        if len(self._known.tried) < 2:
            return
        while self._left_s() > 0:
            fastest = self._known.fastest
            if self._rounds[as_key(fastest.choice)] >= self._plan.rounds:
                return
            elsewhere = self._elsewhere
            if elsewhere and not elsewhere.is_free(fastest.choice):
                elsewhere.wait(min(_WAIT_S, self._left_s()))
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
        self._write(tried_line(again))
        self._known.learn(again)

    def _run_in(self, rounds: int) -> list[Key]:
        """Return the variants that were run in so many rounds, or more."""
        return [key for key, number in self._rounds.items() if number >= rounds]

    # }}}

    def end(self, stopped: Stop) -> TuningResult:
        """Sum up, and write down that the search has ended, so that it is not begun again.

        All that was predicted is written down as well, which the bound of the regret is about.
        """
        spent_s = self._spent_s()
        result = self._result(stopped, spent_s)
        if self._journal is not None:
            if self._ranking != self._noted:
                self._journal.append({**ranking_line(self._ranking), "spent_s": spent_s})
            end = {"kind": "end", "stopped": stopped, "budget": self._budget.to_object()}
            if result.contrast is not None:
                end["default"] = result.contrast.default.choice
            self._journal.append({**end, "spent_s": spent_s})
        return result

    def interrupted(self) -> SearchInterrupt:
        """Sum up a search that does not go on now, and write down what was predicted meanwhile."""
        spent_s = self._spent_s()
        self._look()
        store = None
        if self._journal is not None:
            store = str(self._journal.path)
            if self._ranking != self._noted and self._ranking.predicted:
                self._journal.append({**ranking_line(self._ranking), "spent_s": spent_s})
        tried, failed = len(self._known.tried), len(self._known.refused)
        counted = f"{self._ranking.predicted} variants predicted, {tried} ran, {failed} failed"
        result = self._result("interrupted", spent_s) if tried else None
        return SearchInterrupt(result, store, counted)

    def _result(self, stopped: Stop, spent_s: float) -> TuningResult:
        """Sum up."""
        failed = tuple(self._known.refused.values())
        if not self._known.tried:
            reasons = [refused.reason for refused in failed]
            raise TuningError(
                f"no variant of '{self._space.name}' ran on {self._runner.identity.slug}"
                f" ({len(reasons)} tried): {reasons[0] if reasons else 'no time for one'}",
                refusals=reasons,
            )
        tried = tuple(sorted(self._known.tried.values(), key=lambda each: each.at_s))
        winner, within = ties(tried, floor=0.0)
        unbounded = self._unbounded()
        is_alone = self._known.known == 1 and unbounded > 0
        return TuningResult(
            space=self._space.name,
            device=self._runner.identity.slug,
            sizes=self._ranking.sizes,
            winner=winner,
            within_noise=within,
            tried=tried,
            failed=failed,
            refusals={**self._ranking.refusals, **by_stage(failed)},
            predicted=self._ranking.predicted,
            ranking_complete=self._ranking.complete,
            stopped=stopped,
            confidence=self._plan.confidence,
            regret_bound=None if is_alone else self._known.regret(winner),
            bounded=self._known.known,
            unbounded=unbounded,
            spent_s=spent_s,
            ranking_s=self._ranking.seconds,
            numbers_checked=self._space.reference is not None,
            contrast=self._contrast(winner),
        )

    def _contrast(self, winner: Trial) -> Contrast | None:
        """Hold the winner against the default variant."""
        default = first_listed(self._ranking.best, self._space)
        if default is None:
            return None
        tried = self._known.tried
        return contrast_of(
            self._ranking.best,
            winner.choice,
            default.choice,
            time_of=lambda each: tried[as_key(each)].time_s if as_key(each) in tried else None,
            model=self._question.weights.model,
            device=self._question.weights.device.slug,
            sizes=self._ranking.sizes,
        )

    def _unbounded(self) -> int:
        """Return how many variants there may be of which nothing is known."""
        ranking = self._ranking
        without = sum(ranking.refusals[s].count for s in _UNPREDICTED if s in ranking.refusals)
        if ranking.complete:
            return without
        return without + max(0, self._space.left(ranking.position) - len(ranking.ahead))


def _check_choices(
    entry: Mapping[str, Any], number: int, space: SearchSpace, journal: Journal | None
) -> None:
    """Refuse a line about variants that the space does not have."""
    names = tuple(space.parameters)
    choices = [entry["choice"]] if "choice" in entry else []
    for values, *_ in entry.get("best", ()):
        choices.append(dict(zip(names, values, strict=False)) if len(values) == len(names) else {})
    for choice in choices:
        if not space.has_values(choice):
            path = None if journal is None else str(journal.path)
            field = f"line {number}: $.{'choice' if 'choice' in entry else 'best'}"
            message = f"{path}: {field}: {choice or 'a choice'} is none of the space '{space.name}'"
            raise DocumentError(message, path=path, field=field, line=number)
