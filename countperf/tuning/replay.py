"""Searches played again from records: every variant measured once, then any search in no time.

`predicted_record` asks a model about the variants of a record, and takes the processor time that it
needs for each. `ReplayRunner` and `ReplayExecutor` stand in for the device and for the pool: they
return what was recorded and predicted, and let a clock advance by what it took. While a variant is
built, which keeps one processor busy, the others go on with predictions; while one is timed, none
does. Costs are on the safe side for our own search: nothing is built ahead of its turn, and what it
computes between measurements can be counted as well (`ThinkingClock`).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from countperf.errors import KernelBuildError, MeasurementError, TuningError, WrongResultError
from countperf.harness.clock import FakeClock, Timing
from countperf.harness.devices import DeviceLimits
from countperf.harness.runner import Run
from countperf.measurements import KernelCase
from countperf.symbolic.memory import forget_counts
from countperf.tuning import shared_counts, steps
from countperf.tuning.measuring import Bench
from countperf.tuning.points import Point, Predicted, Question, predict_points
from countperf.tuning.pools import StandsStill
from countperf.tuning.records import Record
from countperf.tuning.result import Budget, Key, Plan, TuningResult, as_key
from countperf.tuning.search import tune_space
from countperf.tuning.space import Choice, Value

_MOMENT_S = 1e-9
_ERRORS: Mapping[str | None, type[MeasurementError]] = {
    "compile": KernelBuildError,
    "results": WrongResultError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model says of a variant.

    Attributes
    ----------
    point : Predicted or Refused
        The prediction.
    count_s : float
        Processor time of building, counting and predicting, s.
    """

    point: Point
    count_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A record and what a model says of its variants.

    Attributes
    ----------
    record : Record
        What was measured.
    question : Question
        What was asked of the variants.
    answers : Mapping from key to Answer
        What it says, by `countperf.tuning.result.as_key`, and what that takes in a search.
    count_s : float
        Processor time of predicting all one after the other, as ranking does, s.
    """

    record: Record
    question: Question
    answers: Mapping[Key, Answer]
    count_s: float

    @property
    def first_pick(self) -> dict[str, Value]:
        """The variant that is predicted to be the fastest of those that run.

        Raises
        ------
        TuningError
            None that runs has a prediction.
        """
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


def predicted_record(record: Record, question: Question) -> Recording:
    """Predict the variants of a record, in their order and as a search would.

    A search predicts variants here and there, which share less than neighbors do: those that are
    predicted together, one such group after the other in an order of chance.

    Parameters
    ----------
    record : Record
        What was measured.
    question : Question
        The model, and limits of the device; its space and sizes are those of the record.
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
        answers=_answered(asked, [choices[place] for company in visited for place in company]),
        count_s=sum(each.count_s for each in in_order.values()),
    )


def _answered(question: Question, choices: Sequence[Choice]) -> dict[Key, Answer]:
    """Predict variants one after the other, by a process that knows of none."""
    steps.forget()
    shared_counts.forget()
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


class ReplayRunner:
    """Stands in for a device: a `CaseRunner` that returns what was recorded.

    Parameters
    ----------
    record : Record
        What was measured.
    seed : int
        The runs of a variant come in another order, but for the first one.
    beside : callable, optional
        Is told for how long a variant is built, s: what goes on meanwhile.
    clock : FakeClock, optional
        Advances by what was recorded.

    Attributes
    ----------
    identity, limits, clock
        As in `CaseRunner`; the clock shows what the search would have taken.
    """

    def __init__(
        self,
        record: Record,
        seed: int = 0,
        beside: Callable[[float], None] | None = None,
        clock: FakeClock | None = None,
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
        self.beside = beside
        self._built: set[str] = set()
        self._random = random.Random(seed)

    def device_state(self) -> dict[str, float]:
        """Return nothing."""
        return {}

    def versions(self) -> dict[str, str]:
        """Return nothing."""
        return {}

    def time_of_others_s(self) -> float | None:
        """Return nothing."""
        return None

    def prepare(self, case: KernelCase) -> None:
        """Do nothing ahead."""

    def check(self, case: KernelCase) -> None:
        """Let the time pass that building took, once; fail as the variant did."""
        measured = self._known[case.variant]
        if case.variant not in self._built:
            self._built.add(case.variant)
            self.clock.sleep(measured.build_s)
            if self.beside is not None:
                self.beside(measured.build_s)
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


@dataclass(slots=True)
class _Task:
    """Predictions that were asked for.

    Attributes
    ----------
    points : list of Predicted or Refused
        The answers.
    left_s : float
        Processor time that they still take, s.
    """

    points: list[Point]
    left_s: float


class _Standing:
    """Predictions of a replay stand still whenever the clock advances for something else."""

    @contextmanager
    def reached(self, is_idle: Callable[[], bool]) -> Generator[None]:
        """Do nothing."""
        del is_idle
        yield


class ReplayExecutor(Executor):
    """Stands in for a pool: predictions as found before, which take their processor time.

    Parameters
    ----------
    recording : Recording
        What was predicted.
    clock : FakeClock
        Advances while somebody waits for predictions.
    workers : int
        Processors.

    Attributes
    ----------
    standstill : StandsStill
        As the pool's.
    """

    def __init__(self, recording: Recording, clock: FakeClock, workers: int) -> None:
        self.standstill: StandsStill = _Standing()
        self._answers = recording.answers
        self._clock = clock
        self._max_workers = workers
        self._tasks: dict[Future[Any], _Task] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Take on the prediction of the points that a `Ranker` asks for."""
        del fn, kwargs
        choices: Sequence[Choice] = args[1]
        answers = [self._answers[as_key(choice)] for choice in choices]
        future: Future[Any] = Future()
        self._tasks[future] = _Task(
            [each.point for each in answers], sum(each.count_s for each in answers)
        )
        return future

    def wait_in_replay(
        self, tasks: Collection[Future[Any]], seconds: float | None, return_when: str
    ) -> tuple[set[Future[Any]], set[Future[Any]]]:
        """Let the clock advance until one of some tasks is done, or for so long, s."""
        del return_when
        left_s = math.inf if seconds is None else seconds
        while left_s > 0 and not any(task.done() for task in tasks):
            step_s = min(left_s, min(self._begun(self._max_workers), default=math.inf))
            if step_s == math.inf:
                break
            self._clock.sleep(step_s)
            self._work(step_s, self._max_workers)
            left_s -= step_s
        done = {task for task in tasks if task.done()}
        return done, set(tasks) - done

    def go_on(self, seconds: float) -> None:
        """Work for so long, s, on all processors but one."""
        while seconds > 0 and (busy := self._begun(self._max_workers - 1)):
            step_s = min(seconds, *busy)
            self._work(step_s, self._max_workers - 1)
            seconds -= step_s

    def _begun(self, workers: int) -> list[float]:
        """Begin as many tasks as there are workers; return what is left of each, s."""
        self._tasks = {future: task for future, task in self._tasks.items() if not future.done()}
        begun = [future for future in self._tasks if future.running()]
        for future in self._tasks:
            if len(begun) < workers and future not in begun:
                future.set_running_or_notify_cancel()
                begun.append(future)
        return [self._tasks[future].left_s for future in begun[:workers]]

    def _work(self, seconds: float, workers: int) -> None:
        for future in [future for future in self._tasks if future.running()][:workers]:
            task = self._tasks[future]
            task.left_s -= seconds
            if task.left_s <= _MOMENT_S:
                future.set_result(task.points)


# {{{ searches


def replayed_tuning(
    recording: Recording,
    seconds: float,
    *,
    seed: int,
    workers: int,
    plan: Plan | None = None,
    thinking: bool = False,
) -> TuningResult:
    """Search as `countperf.tuning.search.tune_space` would have within a budget, s.

    Each seed has the values of the parameters in another order, so that the space is visited in
    another one: which variants a search meets first is chance. Where `thinking` counts, what the
    search computes itself is spent as well, so that no two replays are quite the same.
    """
    clock = ThinkingClock() if thinking else FakeClock()
    runner = ReplayRunner(recording.record, seed, clock=clock)
    executor = ReplayExecutor(recording, runner.clock, workers)
    runner.beside = executor.go_on
    part = recording.record.part
    order = random.Random(seed)
    values = {name: order.sample(some, len(some)) for name, some in part.parameters.items()}
    return tune_space(
        replace(recording.question, space=replace(part, parameters=values)),
        runner,
        Budget(seconds=seconds),
        executor=executor,
        plan=plan,
    )


def random_search(
    record: Record, seconds: float, *, seed: int, plan: Plan | None = None
) -> dict[str, Value]:
    """Measure variants in random order, and return the best that a budget allows.

    Each is measured as in our own search: those whose first runs leave no hope are run no further,
    and the one that is under way when the time is up does not count unless there is no other.
    """
    runner = ReplayRunner(record, seed)
    order = list(record.variants)
    random.Random(seed).shuffle(order)
    best: tuple[float, dict[str, Value]] | None = None
    with Bench(record.space, record.sizes, runner, plan or Plan()) as bench:
        for each in order:
            try:
                samples, _ = bench.time(each.choice, None if best is None else best[0])
            except MeasurementError:
                continue
            if best is not None and runner.clock.now() > seconds:
                break
            if best is None or min(samples) < best[0]:
                best = min(samples), each.choice
            if runner.clock.now() >= seconds:
                break
    assert best is not None  # a record has a variant that ran
    return best[1]


# }}}
