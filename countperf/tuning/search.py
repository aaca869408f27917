"""Tuning: predict all, measure the most promising, learn, stop when the rest has no chance.

Variants are built several at a time, and timed one at a time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.devices.workers import pool_or
from countperf.errors import MeasurementError, TuningError
from countperf.measuring.runner import CaseRunner
from countperf.steps import defer_interrupts, end_if_interrupted, format_duration, report
from countperf.text import choice_text, format_percent, format_quantity
from countperf.tuning.posterior import Array, LogTimes, Posterior
from countperf.tuning.ranker import (
    KEPT,
    Predicted,
    PredictionTask,
    Ranker,
    Ranking,
    Refused,
    Stage,
    count_refusals,
)
from countperf.tuning.result import (
    Budget,
    End,
    Journal,
    Key,
    Outlook,
    Plan,
    SearchInterrupt,
    Stop,
    Trial,
    TuningResult,
    as_key,
    fastest_of,
    ties,
)
from countperf.tuning.space import Choice, Value
from countperf.tuning.variant_bench import (
    FEWEST_RUNS,
    Rest,
    VariantBench,
    chance_of_better,
    least_hope,
    median_limit,
    regret_bound,
)

_STAGES: Mapping[str, Stage] = {"build": "compile", "check": "results", "run": "run"}
"""Stages at which variants fail on the device, by those of measurements."""

Progress = Callable[[str], None]

_OVERTIME_S = 1.0  # for a first prediction, where others were refused
_ANSWER_S = 0.25  # for an answer of the executor, before it is seen whether Ctrl-C was pressed
_BUILD_S = 0.05  # for a variant, before others are looked after
_PRIOR_S = 0.3  # for building a variant, before any was built
RESERVED = 0.1
"""Fraction of the seconds that is kept for running the best again, if that takes so long."""
_UNPREDICTED = ("count", "predict")  # stages at which variants fall out that there may well be
MOST = 2000
"""Candidates: the fastest by prediction; more would take longer to choose from than to build."""


class Candidates:
    """The variants that are predicted to be fastest, and what was measured of them."""

    def __init__(self, parameters: Mapping[str, Sequence[Value]], plan: Plan) -> None:
        self._parameters = parameters
        self._plan = plan
        self._built_s: list[float] = []
        self._positions: dict[Key, int] = {}
        self._predicted = 0  # variants, those that were not kept included
        self._dropped = 0  # of these, those that were not kept
        self._slowest_s = 0.0  # longest prediction of those that were kept, s
        self._learnt: tuple[Posterior, LogTimes] | None = None  # of all that is known now
        self.points: tuple[Predicted, ...] = ()
        self.tried: dict[Key, Trial] = {}
        self.refused: dict[Key, Refused] = {}

    def look(self, ranking: Ranking) -> None:
        """Take over what was predicted meanwhile."""
        if self.points and ranking.predicted == self._predicted:
            return
        kept = {as_key(point.choice): point for point in ranking.best[:MOST]}
        self._dropped = ranking.predicted - len(kept)
        self._slowest_s = max((point.time_s for point in kept.values()), default=0.0)
        for key, tried in self.tried.items():  # by earlier sessions, or when fewer were known
            kept.setdefault(key, Predicted(choice=tried.choice, time_s=tried.predicted_s))
        self._predicted = ranking.predicted
        self._positions = {key: position for position, key in enumerate(kept)}
        self._learnt = None
        self.points = tuple(kept.values())

    def learn(self, tried: Trial, build_s: float | None = None) -> None:
        """Learn from a variant's times, and from the time of building it, s."""
        self._learnt = None
        self.tried[as_key(tried.choice)] = tried
        if build_s is not None:
            self._built_s.append(build_s)

    def refuse(self, refused: Refused) -> None:
        """Take a variant out that failed."""
        self.refused[as_key(refused.choice)] = refused

    def _learn(self) -> tuple[Posterior, LogTimes]:
        """Return what is known of all candidates' times."""
        if self._learnt is None:
            posterior = Posterior(
                self._parameters,
                [point.choice for point in self.points],
                [point.time_s for point in self.points],
                parts=[point.parts for point in self.points],
                groups=[",".join(point.missing) for point in self.points],
                prior_scatter=self._plan.prior_scatter,
            )
            for key, tried in self.tried.items():
                posterior.add(self._positions[key], tried.time_s)
            self._learnt = posterior, posterior.log_times()
        return self._learnt

    @property
    def best_s(self) -> float | None:
        """Shortest time so far, s."""
        return self.fastest.time_s if self.tried else None

    @property
    def fastest(self) -> Trial:
        """The fastest of those that ran."""
        return fastest_of(self.ran)

    @property
    def ran(self) -> tuple[Trial, ...]:
        """Those that ran, in order."""
        return tuple(sorted(self.tried.values(), key=lambda trial: trial.at_s))

    @property
    def remaining(self) -> NDArray[np.bool_]:
        """Candidates that were not tried."""
        remaining = np.ones(len(self.points), np.bool_)
        done = (self._positions.get(key) for key in (*self.tried, *self.refused))
        remaining[[position for position in done if position is not None]] = False
        return remaining

    @property
    def known(self) -> int:
        """Number of variants that have a prediction and did not fail."""
        failed = sum(key in self._positions for key in self.refused)
        return len(self.points) + self._dropped - failed

    @property
    def chance(self) -> float:
        """Bound of the probability that what is left beats the best by more than the tolerance."""
        if self.best_s is None:
            return 1.0
        return chance_of_better(self._rest(), self.best_s, self._plan.tolerance)

    @property
    def expected_gain(self) -> float:
        """Fraction of the best time that the most promising one left is expected to gain.

        By the expected decrease of the time's logarithm.
        """
        left = self._gain()[self.remaining]
        return -math.expm1(-float(left.max())) if len(left) else 0.0

    def _gain(self) -> Array:
        """Return the expected improvement over the best; before that, over the median prediction.

        Source: Snoek, Larochelle, Adams (2012), arXiv:1206.2944.
        """
        _, times = self._learn()
        return times.compute_expected_improvement(self.best_s or float(np.median(times.center_s)))

    def promising(self, left_s: float, most: int) -> list[Predicted]:
        """Choose variants to try, the most promising first; none if no time is left for any."""
        eligible = self.remaining
        if self.tried or self.refused:  # the first one is always tried
            center_s = self._learn()[1].center_s
            run_s = FEWEST_RUNS * center_s + self._warming_s(center_s)
            build_s = float(np.mean(self._built_s)) if self._built_s else _PRIOR_S
            eligible = eligible & (build_s + run_s <= left_s)
        order = np.argsort(-self._gain(), kind="stable")
        return [self.points[position] for position in order if eligible[position]][:most]

    def regret(self, winner: Trial) -> float:
        """Bound by which fraction of a variant's median run the fastest that is known takes less.

        Of those that were measured, the shortest runs count, and what later ones might have come
        to where there were few: that the variant is the fastest of them may be luck of its own. Of
        its median there is a limit as well, with half the chance to be wrong. The sum over what was
        not measured takes the whole chance, as where the search stops, but is far from it in
        replays of recorded searches, so that there is room for both.
        """
        confidence = self._plan.confidence
        median_s = median_limit(winner.samples_s, (1 + confidence) / 2)
        others_s = (
            least_hope(tried.samples_s) if tried.cut_short else tried.time_s
            for tried in self.tried.values()
            if tried is not winner
        )
        measured = max(0.0, 1 - min(others_s, default=median_s) / median_s)
        if not self.remaining.any() and not self._dropped:
            return measured
        return max(measured, regret_bound(self._rest(), median_s, confidence))

    def _rest(self) -> Rest:
        """Return all that was not measured: candidates, and what was not kept as one."""
        posterior, times = self._learn()
        candidates = times.of(self.remaining), 1
        if not self._dropped:
            return [candidates]
        return [candidates, (posterior.unknown(self._slowest_s), self._dropped)]

    def _warming_s(self, run_s: Array | float) -> Array:
        """Return how long runs of so many seconds are repeated until the device is warm, s."""
        return np.where(run_s < self._plan.warm_up_s, self._plan.warm_up_s, 0.0)

    @property
    def confirming_s(self) -> float:
        """Seconds to run the fastest again, and another one if that may be faster."""
        fastest, others = ties(tuple(self.tried.values()), floor=0.0)
        samples = fastest.samples_s[-self._plan.runs :]
        round_s = float(self._warming_s(samples[0])) + sum(samples)
        return (2 if others else 1) * (self._plan.rounds - 1) * round_s


def tune_space(
    task: PredictionTask,
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
) -> TuningResult:
    """Find the fastest variant of a space on a device within a budget.

    More runners of the device build as many more variants at a time.
    """
    plan = plan or Plan()
    now = runner.clock.now
    began_s = now() if began_s is None else began_s
    with ExitStack() as stack:
        journal = None
        if store is not None:
            journal = stack.enter_context(Journal(store, task, runner.identity, plan))
        ranker = Ranker(
            task,
            stack.enter_context(pool_or(executor)),
            keep=keep,
            now=now,
            by_promise=budget.seconds is not None,
            longest_s=budget.longest_s if longest_s is None else longest_s,
        )
        search = _Search(
            task=task,
            ranker=stack.enter_context(ranker),
            runners=(runner, *builders),
            threads=ThreadPoolExecutor(1 + len(builders)),
            budget=budget,
            plan=plan,
            journal=journal,
            began_s=began_s,
            say=progress or (lambda _: None),
        )
        stack.callback(search.threads.shutdown, wait=False, cancel_futures=True)
        return search.recall_result() or search.run()


@dataclass(kw_only=True, eq=False)
class _Search:
    """The state of one call of `tune_space`."""

    task: PredictionTask
    ranker: Ranker
    runners: Sequence[CaseRunner]
    threads: ThreadPoolExecutor  # one for each runner
    budget: Budget
    plan: Plan
    journal: Journal | None
    began_s: float
    say: Progress
    before_s: float = 0.0  # what earlier sessions took, s
    earlier_end: End | None = None

    def __post_init__(self) -> None:
        self.known = Candidates(self.task.space.parameters, self.plan)
        self.rounds: Counter[Key] = Counter()  # in which each was run
        most_s = (self.budget.seconds or math.inf) / 50
        self.benches = [
            VariantBench(self.task, runner, self.plan, most_s=most_s, left_s=self.left_s)
            for runner in self.runners
        ]
        self.built_by: dict[Key, VariantBench] = {}
        self.ranking: Ranking
        for entry in () if self.journal is None else self.journal.entries:
            self.before_s = max(self.before_s, entry.spent_s)
            self.earlier_end = entry.content if isinstance(entry.content, End) else None
            if isinstance(entry.content, Refused):
                self.known.refuse(entry.content)
            elif isinstance(entry.content, Trial):
                self.known.learn(entry.content)
                self.rounds[as_key(entry.content.choice)] += 1

    def run(self) -> TuningResult:
        """Predict, measure, run the fastest again, and sum up; Ctrl-C ends each step."""
        try:
            with defer_interrupts():
                self.predict_first()
                stopped = self.measure()
                self.confirm()
                return self.end(stopped)
        except KeyboardInterrupt as error:
            raise self.interrupt() from error

    def recall_result(self) -> TuningResult | None:
        """Return the result of a search that has ended, unless more may be spent now than then."""
        end = self.earlier_end
        if end is None or (end.stopped == "budget" and self.budget.exceeds(end.budget)):
            return None
        self.say("the search has ended before; its file has the answer")
        return self.make_result(end, self.before_s)

    def write(self, content: Trial | Refused | End, spent_s: float | None = None) -> None:
        if self.journal is not None:
            self.journal.append(content, self.spent_s() if spent_s is None else spent_s)

    # --- the budget, earlier sessions included

    def spent_s(self) -> float:
        return self.before_s + self.runners[0].clock.now() - self.began_s

    def left_s(self, share: float = 1.0) -> float:
        """Return what is left of a share of the seconds, s."""
        seconds = self.budget.seconds
        return math.inf if seconds is None else share * seconds - self.spent_s()

    @property
    def done(self) -> int:
        """Number of variants that ran or failed."""
        return len(self.known.tried) + len(self.known.refused)

    def is_over(self) -> bool:
        """Tell whether the budget is spent; the first variant is always tried."""
        limit = self.budget.measurements
        if limit is not None and self.done >= limit:
            return bool(self.known.tried) or self.done >= 2 * limit
        return self.find_unreserved_s() <= 0 and self.done > 0

    def find_unreserved_s(self) -> float:
        """Return what is left, but for running the best again, s."""
        seconds = self.budget.seconds
        if seconds is None or len(self.known.tried) < 2:
            return self.left_s()
        return self.left_s() - min(RESERVED * seconds, self.known.confirming_s)

    # --- predicting and measuring

    def predict_first(self) -> None:
        """Predict for the first share of the seconds, and go on until there is a prediction.

        Where no variant can be predicted, that ends soon after the seconds.
        """
        while not self.ranker.is_done:
            end_if_interrupted()
            if self.left_s(self.plan.first_share) <= 0 and self.ranker.predicted:
                break
            if self.left_s() < -_OVERTIME_S and self.ranker.answered:
                break
            self.ranker.work(_ANSWER_S)
        self.look()
        self.ranking.check_predicted()
        some = "" if self.ranking.complete else ", others not looked at"
        counts = f"{self.ranking.predicted} variants predicted, {self.ranking.refused} refused"
        self.say(f"{counts}{some}")

    def look(self) -> None:
        self.ranking = self.ranker.ranking()
        self.known.look(self.ranking)

    def measure(self) -> Stop:
        """Measure one variant after the other until one of the reasons to stop.

        While variants are built, the executor goes on with predictions, for a share of the seconds;
        it gets all that is left where no variant that is predicted is worth a measurement.
        """
        while True:
            self.look()
            if self.is_over():
                return "budget"
            self.report_state()
            is_confident = self.known.chance <= 1 - self.plan.confidence
            if self.known.remaining.any() and not is_confident:
                if not self.try_promising():
                    return "budget"
            elif self.ranker.is_done:
                return "confident" if self.known.remaining.any() else "exhausted"
            elif self.left_s() <= 0:
                return "budget"
            else:
                end_if_interrupted()
                self.ranker.work(_ANSWER_S)

    def report_state(self) -> None:
        """Tell who listens the best time, what may be gained, and the time that is left."""
        known = self.known
        said = [f"searching {self.task.space.name}"]
        if known.tried:
            best_s, choice = format_quantity(known.fastest.time_s, "s"), known.fastest.choice
            said = [
                f"{said[0]}: best {best_s} ({choice_text(choice)})",
                f"next: {format_percent(known.expected_gain)} faster on average,"
                f" {format_percent(known.chance)} chance that one left is faster",
            ]
        if self.budget.seconds is not None:
            said.append(f"{format_duration(max(0.0, self.left_s()))} left")
        report(f"{'; '.join(said)}; variants that ran", len(known.tried))

    def try_promising(self) -> bool:
        """Build the most promising variants and try them; tell whether there was time for any.

        While they are timed on the processors of this machine, nothing else is done.
        """
        most = len(self.benches)
        if (limit := self.budget.measurements) is not None:
            most = max(1, min(most, limit - self.done))
        points = self.known.promising(self.find_unreserved_s(), most)
        builds: list[tuple[Predicted, Future[float]]] = []
        for bench, point in zip(self.benches, points, strict=False):
            self.built_by[as_key(point.choice)] = bench
            builds.append((point, self.threads.submit(bench.build, point.choice)))
        self.wait_for([build for _, build in builds], self.plan.ranking_share)
        self.be_alone()
        for point, build in builds:
            if not (self.known.tried and self.is_over()):
                self.try_variant(point, build)
        return bool(points)

    def be_alone(self) -> None:
        """Have predictions pause where they would disturb timings."""
        if self.runners[0].identity.device_type == "cpu":
            self.ranker.pause()

    def wait_for(self, tasks: Iterable[Future[Any]], share: float = 0.0) -> None:
        """Wait for tasks, and predict meanwhile for a share of the seconds."""
        while under_way := [task for task in tasks if not task.done()]:
            end_if_interrupted()
            wait(under_way, timeout=_BUILD_S)
            if share and self.left_s(share) > 0:
                self.ranker.work(0.0)

    def try_variant(self, point: Predicted, build: Future[float]) -> None:
        label = self.task.space.label(point.choice)
        best_s = self.known.best_s
        try:
            build_s = build.result()
            samples, cut_short = self.time_variant(point.choice, best_s)
        except MeasurementError as error:
            stage = _STAGES[error.stage]
            refused = Refused(choice=point.choice, stage=stage, reason=str(error))
            self.write(refused)
            self.known.refuse(refused)
            self.say(f"failed: {label}: {error}")
            return
        tried = Trial(
            choice=point.choice,
            predicted_s=point.time_s,
            interval_s=point.interval_s,
            interval_level=point.interval_level,
            samples_s=samples,
            cut_short=cut_short,
            at_s=self.spent_s(),
        )
        self.write(tried)
        self.known.learn(tried, build_s)
        self.rounds[as_key(point.choice)] += 1
        if best_s is None or tried.time_s < best_s:
            self.say(f"{tried.time_s:.4g} s: {label}")

    def time_variant(self, choice: Choice, best_s: float | None) -> tuple[tuple[float, ...], bool]:
        """Time a variant where it was built."""
        end_if_interrupted()
        bench = self.built_by.get(as_key(choice), self.benches[0])
        timing = self.threads.submit(bench.time, choice, best_s)
        self.wait_for([timing])
        return timing.result()

    def confirm(self) -> None:
        """Run the fastest again, each time in fresh memory, as far as there is time.

        Of many variants that ran once, the fastest is likely to have been lucky. When it is not the
        fastest any more, the one that is then takes its place.
        """
        self.be_alone()
        while len(self.known.tried) > 1 and self.left_s() > 0:
            fastest = self.known.fastest
            key = as_key(fastest.choice)
            if self.rounds[key] >= self.plan.rounds:
                return
            self.rounds[key] += 1
            try:
                more, cut_short = self.time_variant(fastest.choice, None)
            except MeasurementError as error:
                label = self.task.space.label(fastest.choice)
                self.say(f"failed when run again: {label}: {error}")
                continue
            again = fastest.again(more, cut_short=cut_short)
            self.write(again)
            self.known.learn(again)

    # --- the end

    def end(self, stopped: Stop) -> TuningResult:
        """Sum up, and write down that the search has ended, so that it is not begun again."""
        spent_s = self.spent_s()
        if not self.known.tried:
            reasons = [refused.reason for refused in self.known.refused.values()]
            raise TuningError(
                f"no variant of '{self.task.space.name}' ran on {self.runners[0].identity.slug}"
                f" ({len(reasons)} tried): {reasons[0] if reasons else 'no time for one'}",
                refusals=reasons,
            )
        end = self.sum_up(stopped)
        self.write(end, spent_s)
        return self.make_result(end, spent_s)

    def interrupt(self) -> SearchInterrupt:
        """Sum up a search that does not go on now."""
        spent_s = self.spent_s()
        self.look()
        tried, failed = len(self.known.tried), len(self.known.refused)
        counts = f"{self.ranking.predicted} variants predicted, {tried} ran, {failed} failed"
        result = self.make_result(self.sum_up("interrupted"), spent_s) if tried else None
        store = None if self.journal is None else str(self.journal.path)
        return SearchInterrupt(result, store, counts)

    def sum_up(self, stopped: Stop) -> End:
        """Return what is known of variants that were not measured, as soon as one was."""
        ranking, known = self.ranking, self.known
        without = sum(ranking.refusals[s].count for s in _UNPREDICTED if s in ranking.refusals)
        others = 0
        if not ranking.complete:
            there = self.task.space.number_of_choices()
            others = max(0, there - ranking.predicted - ranking.refused)
        unbounded = without + others
        is_alone = known.known == 1 and unbounded > 0
        return End(
            stopped=stopped,
            budget=self.budget,
            refusals={**ranking.refusals, **count_refusals(known.refused.values())},
            predicted=ranking.predicted,
            ranking_complete=ranking.complete,
            regret_bound=None if is_alone else known.regret(ties(known.ran, floor=0.0)[0]),
            bounded=known.known,
            unbounded=unbounded,
            ranking_s=ranking.seconds,
        )

    def make_result(self, end: End, spent_s: float) -> TuningResult:
        winner, within = ties(self.known.ran, floor=0.0)
        return TuningResult(
            space=self.task.space.name,
            device=self.runners[0].identity.slug,
            weights=self.task.weights.name,
            model=self.task.weights.model,
            sizes=self.task.sizes,
            winner=winner,
            within_noise=within,
            tried=self.known.ran,
            failed=tuple(self.known.refused.values()),
            stopped=end.stopped,
            confidence=self.plan.confidence,
            spent_s=spent_s,
            numbers_checked=self.task.space.reference is not None,
            **{field.name: getattr(end, field.name) for field in fields(Outlook)},
        )
