"""Tuning: predict all, measure the most promising, learn, stop when the rest has no chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from countperf.devices.workers import pool_or
from countperf.errors import MeasurementError, TuningError
from countperf.measuring import KernelCase
from countperf.measuring.runner import CaseRunner
from countperf.steps import defer_interrupts, end_if_interrupted, format_duration, report
from countperf.text import choice_text, format_percent, format_quantity
from countperf.tuning import ranker as rankers
from countperf.tuning import result as results
from countperf.tuning.candidates import FEWEST_RUNS, Candidates, is_hopeless
from countperf.tuning.refusals import Refused, Stage, count_refusals
from countperf.tuning.space import Choice

_STAGES: Mapping[str, Stage] = {"build": "compile", "check": "results", "run": "run"}
"""Stages at which variants fail on the device, by those of measurements."""

Progress = Callable[[str], None]

_READING = 0.2  # fraction of the seconds in which compiled code is read before any variant runs
_OVERTIME_S = 1.0  # for a first prediction, where others were refused
_ANSWER_S = 0.25  # for an answer of the executor, before it is seen whether Ctrl-C was pressed
_BUILD_S = 0.05  # for a variant, before others are looked after
RESERVED = 0.1
"""Fraction of the seconds that is kept for running the best again, if that takes so long."""
_UNPREDICTED = ("count", "predict")  # stages at which variants fall out that there may well be
CHEAP = 0.05
"""Runs that take no more than this fraction of the time of building a variant are not spared."""

COLD = 3.0  # so many times as long as later ones, or less, runs take before a device is warm


@dataclass(eq=False)
class VariantBench:
    """Measures variants on a device, one at a time."""

    task: rankers.PredictionTask
    runner: CaseRunner
    plan: results.Plan
    _: KW_ONLY
    most_s: float = math.inf  # after so long a variant gets no further runs, once it has two, s
    left_s: Callable[[], float] = lambda: math.inf
    built_s: dict[str, float] = field(default_factory=dict[str, float])

    def build(self, choice: Choice) -> float:
        """Build a variant and check its numbers; return the time that it took, s."""
        case = self.task.space.case(choice, self.task.sizes, self.task.statistics)
        began_s = self.runner.clock.now()
        self.runner.check(case)
        took_s = self.runner.clock.now() - began_s
        self.built_s.setdefault(case.kernel, took_s)
        return took_s

    def time(self, choice: Choice, best_s: float | None) -> tuple[tuple[float, ...], bool]:
        """Check a variant's numbers and run it; runs before the device is warm are not kept."""
        self.build(choice)
        case = self.task.space.case(choice, self.task.sizes, self.task.statistics)
        cheap_s = CHEAP * fmean(self.built_s.values())
        most_s = min(self.most_s, self.plan.max_case_s)
        limits = best_s, cheap_s, most_s, self.left_s()
        return self.runner.apply(time_while_hopeful, case, self.plan, *limits)


def time_while_hopeful(
    runner: CaseRunner,
    case: KernelCase,
    plan: results.Plan,
    best_s: float | None,
    cheap_s: float,
    most_s: float,
    left_s: float,
) -> tuple[tuple[float, ...], bool]:
    """Run a case while it may be the fastest and there is time, s; see `VariantBench.time`."""
    samples: list[float] = []
    cold: list[float] = []
    with runner.load_case(case) as run:
        began_s = runner.clock.now()
        while len(samples) < plan.runs:
            sample = run().time_s
            if not sample > 0:
                raise MeasurementError(f"{case.name}: a time of {sample} s", case=case.name)
            spent = runner.clock.now() - began_s
            spared = spent > cheap_s
            if spent < plan.warm_up_s and spent < left_s:
                cold.append(sample)
                if spared and best_s is not None and min(cold) > COLD * best_s:
                    return tuple(cold), True
                continue
            samples.append(sample)
            if spared and is_hopeless(samples, best_s):
                return tuple(samples), True
            if len(samples) >= FEWEST_RUNS and (spent > most_s or spent >= left_s):
                break
    return tuple(samples), False


def tune_space(
    task: rankers.PredictionTask,
    runner: CaseRunner,
    budget: results.Budget,
    *,
    store: Path | str | None = None,
    plan: results.Plan = results.Plan(),  # noqa: B008 - immutable
    executor: Executor | None = None,
    progress: Progress | None = None,
    began_s: float | None = None,
    longest_s: float | None = None,
    builders: Sequence[CaseRunner] = (),
) -> results.TuningResult:
    """Find the fastest variant of a space within a budget; `builders` build more at a time."""
    now = runner.clock.now
    began_s = now() if began_s is None else began_s
    with ExitStack() as stack:
        journal = None
        if store is not None:
            journal = stack.enter_context(results.Journal(store, task, runner.identity, plan))
        pool = stack.enter_context(pool_or(executor))
        longest_s = budget.longest_s if longest_s is None else longest_s
        by_promise = budget.seconds is not None
        ranker = rankers.Ranker(task, pool, now=now, by_promise=by_promise, longest_s=longest_s)
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

    task: rankers.PredictionTask
    ranker: rankers.Ranker
    runners: Sequence[CaseRunner]
    threads: ThreadPoolExecutor  # one for each runner
    budget: results.Budget
    plan: results.Plan
    journal: results.Journal | None
    began_s: float
    say: Progress

    def __post_init__(self) -> None:
        self.before_s = 0.0  # what earlier sessions took, s
        self.earlier_end: results.End | None = None
        self.known = Candidates(self.task.space.parameters, self.plan)
        self.number = self.task.space.number_of_choices()
        self.rounds: Counter[results.Key] = Counter()  # in which each was run
        most_s = (self.budget.seconds or math.inf) / 50
        limits: dict[str, Any] = {"most_s": most_s, "left_s": self.left_s}
        self.benches = [VariantBench(self.task, one, self.plan, **limits) for one in self.runners]
        self.built_by: dict[results.Key, VariantBench] = {}
        self.ranking: rankers.Ranking
        for entry in [] if self.journal is None else self.journal.entries:
            content = entry.content
            self.before_s = max(self.before_s, entry.spent_s)
            self.earlier_end = content if isinstance(content, results.End) else None
            if isinstance(content, Refused):
                self.known.refuse(content)
            elif isinstance(content, results.Trial):
                self.known.learn(content)
                self.rounds[results.as_key(content.choice)] += 1

    def run(self) -> results.TuningResult:
        """Predict, measure, run the fastest again, and sum up; Ctrl-C ends each step."""
        try:
            with defer_interrupts():
                self.predict_first()
                stopped = self.measure()
                self.confirm()
                return self.end(stopped)
        except KeyboardInterrupt as error:
            raise self.interrupt() from error

    def recall_result(self) -> results.TuningResult | None:
        """Return the result of a search that has ended, unless more may be spent now than then."""
        end = self.earlier_end
        if end is None or (end.stopped == "budget" and self.budget.exceeds(end.budget)):
            return None
        self.say("the search has ended before; its file has the answer")
        return self.make_result(end, self.before_s)

    def write(
        self, content: results.Trial | Refused | results.End, spent_s: float | None = None
    ) -> None:
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
        if self.budget.seconds is None or len(self.known.tried) < 2:
            return self.left_s()
        return self.left_s() - min(RESERVED * self.budget.seconds, self.known.confirming_s)

    # --- predicting and measuring

    def predict_first(self) -> None:
        """Predict for the first share of the seconds, or until there is a prediction or no time."""
        while not self.ranker.is_done:
            end_if_interrupted()
            is_late = self.left_s(self.plan.first_share) <= 0 and self.ranker.predicted
            if is_late or (self.left_s() < -_OVERTIME_S and self.ranker.answered):
                break
            report("predicting variants", self.ranker.answered, self.number)
            self.ranker.work(_ANSWER_S)
        reading_s = _READING * (self.budget.seconds or math.inf)
        self.ranker.read_code(reading_s)
        until_s = self.spent_s() + reading_s
        while self.ranker.tried < self.ranker.to_read and self.spent_s() < until_s:
            end_if_interrupted()
            report("reading compiled code of variants", self.ranker.tried, self.ranker.to_read)
            self.ranker.work(_ANSWER_S)
        self.look()
        self.ranking.check_predicted()
        some = "" if self.ranking.complete else ", others not looked at"
        counts = f"{self.ranking.predicted} variants predicted, {self.ranking.refused} refused"
        read = f", {self.ranking.read} from compiled code" if self.ranking.read else ""
        self.say(f"{counts}{some}{read}")

    def look(self) -> None:
        self.ranking = self.ranker.ranking()
        self.known.look(self.ranking)

    def measure(self) -> results.Stop:
        """Measure one variant after the other, and predict more while none is worth it."""
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
            said = [f"{said[0]}: best {best_s} ({choice_text(choice)})"]
            said.append(f"{format_percent(known.chance)} chance that one left is faster")
        if self.budget.seconds is not None:
            said.append(f"{format_duration(max(0.0, self.left_s()))} left")
        report(f"{'; '.join(said)}; variants that ran", len(known.tried))

    def try_promising(self) -> bool:
        """Build the most promising variants and try them; tell whether there was time for any."""
        most = len(self.benches)
        if (limit := self.budget.measurements) is not None:
            most = max(1, min(most, limit - self.done))
        points = self.known.promising(self.find_unreserved_s(), most)
        builds: list[tuple[rankers.Predicted, Future[float]]] = []
        for bench, point in zip(self.benches, points, strict=False):
            self.built_by[results.as_key(point.choice)] = bench
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

    def try_variant(self, point: rankers.Predicted, build: Future[float]) -> None:
        label = self.task.space.label(point.choice)
        best_s = self.known.best_s
        try:
            build_s = build.result()
            samples, cut_short = self.time_variant(point.choice, best_s)
        except MeasurementError as error:
            reason = str(error)
            refused = Refused(choice=point.choice, stage=_STAGES[error.stage], reason=reason)
            self.write(refused)
            self.known.refuse(refused)
            self.say(f"failed: {label}: {error}")
            return
        tried = results.Trial(
            choice=point.choice,
            predicted_s=point.time_s,
            model=point.model,
            interval_s=point.interval_s,
            interval_level=point.interval_level,
            samples_s=samples,
            cut_short=cut_short,
            at_s=self.spent_s(),
        )
        self.write(tried)
        self.known.learn(tried, build_s)
        self.rounds[results.as_key(point.choice)] += 1
        if best_s is None or tried.time_s < best_s:
            self.say(f"{format_quantity(tried.time_s, 's')}: {label}")

    def time_variant(self, choice: Choice, best_s: float | None) -> tuple[tuple[float, ...], bool]:
        """Time a variant where it was built."""
        end_if_interrupted()
        bench = self.built_by.get(results.as_key(choice), self.benches[0])
        timing = self.threads.submit(bench.time, choice, best_s)
        self.wait_for([timing])
        return timing.result()

    def confirm(self) -> None:
        """Run the fastest, which may have been lucky, again in fresh memory while there is time."""
        self.be_alone()
        while len(self.known.tried) > 1 and self.left_s() > 0:
            fastest = self.known.fastest
            key = results.as_key(fastest.choice)
            if self.rounds[key] >= self.plan.rounds:
                return
            self.rounds[key] += 1
            try:
                more, cut_short = self.time_variant(fastest.choice, None)
            except MeasurementError as error:
                self.say(f"failed when run again: {self.task.space.label(fastest.choice)}: {error}")
                continue
            again = fastest.again(more, cut_short=cut_short)
            self.write(again)
            self.known.learn(again)

    # --- the end

    def end(self, stopped: results.Stop) -> results.TuningResult:
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

    def interrupt(self) -> results.SearchInterrupt:
        """Sum up a search that does not go on now."""
        spent_s = self.spent_s()
        self.look()
        tried, failed = len(self.known.tried), len(self.known.refused)
        counts = f"{self.ranking.predicted} variants predicted, {tried} ran, {failed} failed"
        result = self.make_result(self.sum_up("interrupted"), spent_s) if tried else None
        store = None if self.journal is None else str(self.journal.path)
        return results.SearchInterrupt(result, store, counts)

    def sum_up(self, stopped: results.Stop) -> results.End:
        """Return what is known of variants that were not measured, as soon as one was."""
        ranking, known = self.ranking, self.known
        without = sum(ranking.refusals[s].count for s in _UNPREDICTED if s in ranking.refusals)
        looked = ranking.predicted + ranking.refused
        there = looked if ranking.complete else self.number
        unbounded = without + max(0, there - looked)
        is_alone = known.known == 1 and unbounded > 0
        return results.End(
            stopped=stopped,
            budget=self.budget,
            refusals={**ranking.refusals, **count_refusals(known.refused.values())},
            predicted=ranking.predicted,
            ranking_complete=ranking.complete,
            regret_bound=None if is_alone else known.regret(results.ties(known.ran, floor=0.0)[0]),
            bounded=known.known,
            unbounded=unbounded,
            ranking_s=ranking.seconds,
        )

    def make_result(self, end: results.End, spent_s: float) -> results.TuningResult:
        winner, within = results.ties(self.known.ran, floor=0.0)
        weights = self.task.reading or self.task.weights
        return results.TuningResult(
            space=self.task.space.name,
            device=self.runners[0].identity.slug,
            weights=weights.name,
            model=weights.model,
            model_choice=self.task.model_choice,
            sizes=self.task.sizes,
            winner=winner,
            within_noise=within,
            tried=self.known.ran,
            failed=tuple(self.known.refused.values()),
            stopped=end.stopped,
            confidence=self.plan.confidence,
            spent_s=spent_s,
            numbers_checked=self.task.space.reference is not None,
            **{field.name: getattr(end, field.name) for field in fields(results.Outlook)},
        )
