"""Replays of searches from records of whole spaces.

`predicted_record` predicts the variants of a record and measures the processor time of each
prediction. `ReplayRunner`, `ReplayExecutor` and `ReplayBuilders` stand in for the device, for the
pool, and for the processes that build: they return recorded times and predictions, and advance a
clock by the time that each step took. Predictions and builds share the processors
(`ReplayProcessors`); nothing else runs while a variant is timed. The time that a search computes
between measurements can be counted as well (`ThinkingClock`).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Self
from unittest.mock import patch

from countperf.errors import KernelBuildError, MeasurementError, TuningError, WrongResultError
from countperf.harness.clock import FakeClock, Timing
from countperf.harness.device import DeviceLimits
from countperf.harness.runner import CaseRunner, Run
from countperf.measurements import KernelCase
from countperf.symbolic.memory import forget_counts
from countperf.tuning import ranker, steps
from countperf.tuning.build_workers import MOST, BuildWorkers, Task
from countperf.tuning.exclusive_timing import Standstill
from countperf.tuning.measuring import Bench
from countperf.tuning.points import Point, Predicted, PredictionTask, predict_points
from countperf.tuning.result import Budget, Key, Plan, TuningResult, as_key
from countperf.tuning.search import tune_space
from countperf.tuning.sending import Packed
from countperf.tuning.space import Choice, Value
from tuning_replay.records import Measured, Record

_MOMENT_S = 1e-9
_ERRORS: Mapping[str | None, type[MeasurementError]] = {
    "compile": KernelBuildError,
    "results": WrongResultError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Prediction of a variant, and its cost."""

    point: Point  # the prediction
    count_s: float  # processor time of building, counting and predicting, s


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A record and what a model says of its variants."""

    record: Record  # what was measured
    question: PredictionTask  # what was asked of the variants
    # what it says, by `countperf.tuning.result.as_key`, and what that takes in a search
    answers: Mapping[Key, Answer]
    count_s: float  # processor time of predicting all one after the other, as ranking does, s

    @property
    def first_pick(self) -> dict[str, Value]:
        """The variant that is predicted to be the fastest of those that run."""
        ran = [
            point
            for each in self.record.variants
            if each.samples_s
            and isinstance(point := self.answers[as_key(each.choice)].point, Predicted)
        ]
        if not ran:
            name = self.record.space.name
            raise TuningError(f"no variant of '{name}' that runs has a prediction", refusals=[])
        return min(ran, key=lambda point: point.time_s).choice


def predicted_record(record: Record, question: PredictionTask, *, workers: int = 1) -> Recording:
    """Predict the variants of a record, in their order and as a search would.

    A search predicts variants here and there, which share less than neighbors do: those that are
    predicted together, one such group after the other in an order of chance, and each by any of the
    processes, which know nothing of what the others did.
    """
    asked = replace(question, space=record.space, sizes=dict(record.sizes))
    choices = [each.choice for each in record.variants]
    companies = record.space.companies(choices)
    visited = random.Random(0).sample(companies, len(companies))
    if choices:
        predict_points(asked, choices[:1])  # imports are no variant's cost
    in_order = _answered(asked, choices)
    return Recording(
        record=record,
        question=asked,
        answers={
            key: answer
            for number in range(workers)
            for key, answer in _answered(
                asked, [choices[place] for each in visited[number::workers] for place in each]
            ).items()
        },
        count_s=sum(each.count_s for each in in_order.values()),
    )


def _answered(question: PredictionTask, choices: Sequence[Choice]) -> dict[Key, Answer]:
    """Predict variants one after the other, by a process that knows of none."""
    steps.forget()
    forget_counts()
    answers: dict[Key, Answer] = {}
    for choice in choices:
        began_s = time.process_time()
        (point,) = predict_points(question, [choice])
        count_s = time.process_time() - began_s
        answers[as_key(choice)] = Answer(point=point, count_s=count_s)
    return answers


class ThinkingClock(FakeClock):
    """Advances by what this thread computes, too, as a search does between measurements."""

    def __init__(self) -> None:
        super().__init__()
        self._computed_s = time.thread_time()

    def now(self) -> float:
        """Return the sum of what was spent and computed, s."""
        before_s, self._computed_s = self._computed_s, time.thread_time()
        self.sleep(self._computed_s - before_s)
        return super().now()


class ReplayRunner(CaseRunner):
    """Stands in for a device: a `CaseRunner` that returns what was recorded."""

    def __init__(
        self,
        record: Record,
        seed: int = 0,
        clock: FakeClock | None = None,
        build: Callable[[float], None] | None = None,
    ) -> None:
        self.identity = record.device
        self.limits = DeviceLimits(
            max_group_size=2**31 - 1,
            max_group_shape=(2**31 - 1,) * 3,
            local_memory_bytes=2**63 - 1,
            global_memory_bytes=2**63 - 1,
            max_allocation_bytes=2**63 - 1,
        )
        self.clock = clock or FakeClock()
        self._known = {record.space.label(each.choice): each for each in record.variants}
        self._build = build or self.clock.sleep
        self._built: set[str] = set()
        self._random = random.Random(seed)

    def check(self, case: KernelCase) -> None:
        """Let the time pass that building took, once; fail as the variant did."""
        measured = self._known[case.variant]
        if case.variant not in self._built:
            self._built.add(case.variant)
            self._build(measured.build_s)
        if not measured.samples_s:
            error = _ERRORS.get(measured.stage, MeasurementError)
            raise error(measured.reason, case=case.name)

    @contextmanager
    def loaded(self, case: KernelCase) -> Generator[Run]:
        """Give what takes the next of the recorded times."""
        first, *later = self._known[case.variant].samples_s
        order = [first, *self._random.sample(later, len(later))]
        turn = iter(range(10**9))

        def run() -> Timing:
            number = next(turn)
            sample = order[number] if number < len(order) else self._random.choice(order)
            self.clock.sleep(sample)
            return Timing(time_s=sample, host_s=sample)

        yield run


class ReplayProcessors:
    """Processors that all jobs share evenly while a clock advances."""

    def __init__(self, clock: FakeClock, number: int) -> None:
        self.number = number
        self.clock = clock
        self._queues: list[ReplayQueue] = []

    def queue(self, width: int) -> ReplayQueue:
        """Return a new queue of jobs, of which so many are under way at a time."""
        self._queues.append(ReplayQueue(width))
        return self._queues[-1]

    def work(self, is_over: Callable[[], bool], seconds: float = math.inf) -> None:
        """Let jobs go on until something is over, nothing is left to do, or for so long, s."""
        while seconds > 0 and not is_over():
            jobs = [job for queue in self._queues for job in queue.begun()]
            if not jobs:
                return
            slowdown = max(1.0, len(jobs) / self.number)
            step_s = min(seconds, slowdown * min(job.left_s for job in jobs))
            self.clock.sleep(step_s)
            seconds -= step_s
            for job in jobs:
                job.advance(step_s / slowdown)


@dataclass(slots=True, eq=False)
class _Job:
    """Task that occupies a processor for a while."""

    future: Future[Any]  # is done when it is
    result: Any  # what comes out
    left_s: float  # processor time that it still takes, s

    def advance(self, seconds: float) -> None:
        self.left_s -= seconds
        if self.left_s <= _MOMENT_S:
            self.future.set_result(self.result)


class ReplayQueue:
    """Jobs of a pool of processes."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._jobs: list[_Job] = []

    def submit(self, seconds: float, result: Any = None) -> Future[Any]:
        """Take on a job that takes so long, s."""
        self._jobs.append(_Job(Future(), result, max(seconds, _MOMENT_S)))
        return self._jobs[-1].future

    def begun(self) -> list[_Job]:
        """Begin jobs as far as there are processes for them; return those under way."""
        self._jobs = [job for job in self._jobs if not job.future.done()]
        under_way = self._jobs[: self._width]
        for job in under_way:
            if not job.future.running():
                job.future.set_running_or_notify_cancel()
        return under_way


class _Standing(Standstill):
    """Predictions of a replay stand still whenever the clock advances for something else."""

    def __init__(self) -> None:
        super().__init__(lambda: ())

    @contextmanager
    def reached(self) -> Generator[None]:
        """Do nothing."""
        yield


class ReplayExecutor(ThreadPoolExecutor):
    """Stands in for a pool: predictions as found before, which take their processor time."""

    def __init__(self, recording: Recording, processors: ReplayProcessors, seed: int = 0) -> None:
        super().__init__(processors.number)
        self.standstill = _Standing()
        self._recording = recording
        self._processors = processors
        self._seed = seed
        self._queue = processors.queue(processors.number)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Take on the prediction of the points that a `Ranker` asks for."""
        del fn, kwargs
        choices: Sequence[Choice] = args[1]
        answers = [self._recording.answers[as_key(choice)] for choice in choices]
        return self._queue.submit(
            sum(each.count_s for each in answers), [each.point for each in answers]
        )

    def wait_in_replay(
        self, tasks: Collection[Future[Any]], seconds: float | None, return_when: str
    ) -> tuple[set[Future[Any]], set[Future[Any]]]:
        """Let the clock advance until one of some tasks is done, or for so long, s."""
        del return_when
        self._processors.work(
            lambda: any(task.done() for task in tasks), math.inf if seconds is None else seconds
        )
        done = {task for task in tasks if task.done()}
        return done, set(tasks) - done

    @contextmanager
    def taking_over(self) -> Generator[None]:
        """Have searches wait by the clock, and replayed build workers in place of real ones."""

        def builders(
            _pool: object,
            _asked: object,
            runner: CaseRunner,
            plan: Plan,
            most_s: float,
            **_: object,
        ) -> ReplayBuilders | None:
            if runner.identity.device_type != "cpu":
                return None
            record = self._recording.record
            return ReplayBuilders(record, self._processors, plan, most_s, self._seed)

        with (
            patch.object(ranker, "wait", self.wait_in_replay),
            patch.object(BuildWorkers, "of", builders),
        ):
            yield


class ReplayBuilders(BuildWorkers):
    """Replayed build workers, in place of `countperf.tuning.build_workers.BuildWorkers`."""

    def __init__(
        self,
        record: Record,
        processors: ReplayProcessors,
        plan: Plan,
        most_s: float,
        seed: int,
    ) -> None:
        nothing = Packed("", b"")
        super().__init__(
            Task(asked=nothing, label="", plan=plan, most_s=most_s), min(MOST, processors.number)
        )
        self.standstill = _Standing()
        self._processors = processors
        self._replayed = [
            _Lane(record, processors.queue(1), plan, most_s, seed + place)
            for place in range(self.processes)
        ]

    def _build(self, place: int, choice: Choice) -> Future[float | None]:
        return self._replayed[place].build(choice)

    def wait(self, seconds: float) -> None:
        """Wait until another variant is built, but no longer than so long, s."""
        before = len(self.building)
        self._processors.work(lambda: len(self.building) < before, seconds)

    def pause(self) -> None:
        """Wait until nothing is built."""
        self._processors.work(lambda: not self.building)

    def load(self, choice: Choice) -> None:
        """Wait until a variant is built; of its arguments in memory records say nothing."""
        self.begin([choice])
        self._processors.work(self._builds[as_key(choice)].done)

    def time(
        self, choice: Choice, best_s: float | None, left_s: float
    ) -> tuple[tuple[float, ...], bool]:
        """Time a variant, as recorded."""
        self.load(choice)
        lane = self._replayed[self._places[as_key(choice)]]
        began_s = lane.clock.now()
        lane.until_s = began_s + left_s
        try:
            return lane.bench.time(choice, best_s)
        finally:
            self._processors.clock.sleep(lane.clock.now() - began_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for lane in self._replayed:
            lane.bench.__exit__(*error)


class _Lane:
    """One of the processes: what it does takes time by a clock of its own."""

    def __init__(
        self, record: Record, queue: ReplayQueue, plan: Plan, most_s: float, seed: int
    ) -> None:
        self.queue = queue
        self.clock = FakeClock()
        self.until_s = math.inf
        self.bench = Bench(
            record.space,
            record.sizes,
            ReplayRunner(record, seed, self.clock),
            plan,
            most_s=most_s,
            left_s=lambda: self.until_s - self.clock.now(),
        )

    def build(self, choice: Choice) -> Future[float | None]:
        """Take a job that takes as long as building the variant did."""
        began_s = self.clock.now()
        failed = False
        try:
            self.bench.build(choice)
        except MeasurementError:  # which comes again when it is timed
            failed = True
        build_s = self.clock.now() - began_s
        return self.queue.submit(build_s, None if failed else build_s)


# --- searches


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Result of a search in a record, and its result with unlimited time."""

    result: TuningResult  # what it found
    # by which fraction of the median recorded run of the winner the shortest one of another
    # variant is shorter, of those that its regret bound is about; 0 if none is
    regret: float
    whole_regret: float  # the same, of all recorded variants

    @property
    def bound_holds(self) -> bool | None:
        """True if the regret is within its bound; None if there is no bound."""
        bound = self.result.regret_bound
        return None if bound is None else self.regret <= bound


def replayed_tuning(
    recording: Recording,
    seconds: float,
    *,
    seed: int,
    workers: int,
    plan: Plan | None = None,
    thinking: bool = False,
) -> Replay:
    """Search as `countperf.tuning.search.tune_space` would have within a budget, s.

    Without a plan, variants warm up for as long as they did when they were recorded. Each seed has
    the values of the parameters in another order, so that the space is visited in another one:
    which variants a search meets first is chance. Where `thinking` counts, what the search computes
    itself is spent as well, so that no two replays are quite the same.
    """
    clock = ThinkingClock() if thinking else FakeClock()
    processors = ReplayProcessors(clock, workers)
    executor = ReplayExecutor(recording, processors, seed)
    building = processors.queue(1)

    def build(seconds: float) -> None:
        processors.work(building.submit(seconds).done)

    runner = ReplayRunner(recording.record, seed, clock, build)
    part = recording.record.part
    order = random.Random(seed)
    values = {name: order.sample(some, len(some)) for name, some in part.parameters.items()}
    points: list[Point] = []
    with executor.taking_over():
        result = tune_space(
            replace(recording.question, space=replace(part, parameters=values)),
            runner,
            Budget(seconds=seconds),
            executor=executor,
            plan=plan or _plan_of(recording.record),
            on_point=points.append,
        )
    predicted = [as_key(point.choice) for point in points if isinstance(point, Predicted)]
    by_choice = recording.record.by_choice
    return Replay(
        result=result,
        regret=_regret(result, [by_choice[key] for key in predicted]),
        whole_regret=_regret(result, recording.record.variants),
    )


def _regret(result: TuningResult, variants: Sequence[Measured]) -> float:
    """Return by which fraction of the winner's median recorded run others take less."""
    (winner,) = (each for each in variants if each.choice == result.winner.choice)
    others_s = [e.time_s for e in variants if e is not winner and e.samples_s]
    return max(0.0, 1 - min(others_s, default=math.inf) / median(winner.samples_s))


def random_search(
    record: Record, seconds: float, *, seed: int, workers: int = 1, plan: Plan | None = None
) -> dict[str, Value]:
    """Measure variants in random order, and return the best that a budget allows.

    Each is measured as in our own search: as many are built at a time as there are workers, those
    whose first runs leave no hope are run no further, and the one that is under way when the time
    is up does not count unless there is no other.
    """
    clock = FakeClock()
    plan = plan or _plan_of(record)
    order = [each.choice for each in record.variants]
    random.Random(seed).shuffle(order)
    best: tuple[float, Choice] | None = None
    processors = ReplayProcessors(clock, workers)
    with ReplayBuilders(record, processors, plan, plan.max_case_s, seed) as builders:
        for number, choice in enumerate(order):
            if number % workers == 0:
                builders.begin(order[number : number + workers])
                builders.pause()
            try:
                samples, _ = builders.time(
                    choice, None if best is None else best[0], seconds - clock.now()
                )
            except MeasurementError:
                continue
            if best is not None and clock.now() > seconds:
                break
            if best is None or min(samples) < best[0]:
                best = min(samples), choice
            if clock.now() >= seconds:
                break
    assert best is not None  # a record has a variant that ran
    return dict(best[1])


def _plan_of(record: Record) -> Plan:
    """Return a plan by which variants warm up as those of the record did."""
    return Plan(warm_up_s=record.warm_up_s)
