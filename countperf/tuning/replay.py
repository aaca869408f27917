"""Searches played again from records: every variant measured once, then any search in no time.

A record holds what predicting, building and checking a variant took, and the times of its runs.
`ReplayRunner` and `ReplayExecutor` stand in for the device and for the pool: they return what was
recorded, and let a clock advance by what it took. Costs are on the safe side for our own search:
predictions hold it up, and nothing is built while something else is done.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from countperf.devices.identity import DeviceIdentity
from countperf.errors import KernelBuildError, MeasurementError, TuningError, WrongResultError
from countperf.harness.clock import FakeClock, Timing
from countperf.harness.devices import DeviceLimits
from countperf.harness.runner import CaseRunner, Run
from countperf.measurements import KernelCase
from countperf.tuning.gate import Gate
from countperf.tuning.journal import Journal
from countperf.tuning.measuring import Bench, stage_of
from countperf.tuning.points import Point, Predicted, Question, Refused, load_space, predict_points
from countperf.tuning.result import Budget, Key, Plan, TuningResult, as_key
from countperf.tuning.search import tune_space
from countperf.tuning.space import Choice, SearchSpace, Value

_ERRORS: Mapping[str, type[MeasurementError]] = {
    "compile": KernelBuildError,
    "results": WrongResultError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What is known of a variant.

    Attributes
    ----------
    predicted : Predicted
        The variant and its prediction.
    count_s : float
        Processor time of building, counting and predicting, s.
    build_s : float
        Time of building it and checking its numbers on the device, s.
    samples_s : tuple of float
        Time of each run, s; empty if it failed.
    stage, reason : str
        Where and why it failed; empty if it ran.
    """

    predicted: Predicted
    count_s: float
    build_s: float
    samples_s: tuple[float, ...] = ()
    stage: str = ""
    reason: str = ""

    @property
    def choice(self) -> dict[str, Value]:
        """Which variant."""
        return self.predicted.choice

    @property
    def time_s(self) -> float:
        """Shortest of the runs, s."""
        return min(self.samples_s)

    @property
    def cost_s(self) -> float:
        """Time that measuring it took, s."""
        return self.build_s + sum(self.samples_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Variants of a space on a device, all measured.

    Attributes
    ----------
    question : Question
        What was asked of them.
    device : DeviceIdentity
        Where they ran.
    variants : tuple of Recorded
        Those that have a prediction.
    """

    question: Question
    device: DeviceIdentity
    variants: tuple[Recorded, ...]

    def __post_init__(self) -> None:
        if not any(each.samples_s for each in self.variants):
            reasons = [each.reason for each in self.variants]
            why = reasons[0] if reasons else "none has a prediction"
            raise TuningError(f"no variant that was recorded ran: {why}", refusals=reasons)

    @property
    def best_s(self) -> float:
        """Time of the fastest variant, s."""
        return min(each.time_s for each in self.variants if each.samples_s)

    @property
    def exhaustive_s(self) -> float:
        """Time of building, checking and running all, s."""
        return sum(each.cost_s for each in self.variants)

    @property
    def count_s(self) -> float:
        """Processor time of predicting all, s."""
        return sum(each.count_s for each in self.variants)

    @property
    def space(self) -> SearchSpace:
        """The space, restricted to what was recorded."""
        given = self.question.space
        space = load_space(given) if isinstance(given, str) else given
        known = {as_key(each.choice) for each in self.variants}
        parameters = {
            name: [value for value in values if any(value == v.choice[name] for v in self.variants)]
            for name, values in space.parameters.items()
        }
        return replace(
            space, parameters=parameters, constraints=(lambda choice: as_key(choice) in known,)
        )

    def quality(self, choice: Choice) -> float:
        """Return the time of the fastest variant as a fraction of a variant's time."""
        return self.best_s / self.by_choice()[as_key(choice)].time_s

    def by_choice(self) -> dict[Key, Recorded]:
        """Return the variants by their choice."""
        return {as_key(each.choice): each for each in self.variants}


def record(
    question: Question,
    runner: CaseRunner,
    path: Path | str,
    *,
    points: int,
    plan: Plan | None = None,
    progress: Callable[[str], None] | None = None,
) -> Recording:
    """Measure all variants of a part of a space, or go on with that.

    Parameters
    ----------
    question : Question
        Space, weights, sizes, limits.
    runner : CaseRunner
        What builds, checks and times.
    path : Path or str
        The record; the same call goes on where it was interrupted.
    points : int
        How many variants at most; see `part_of`.
    plan : Plan, optional
        How many runs each has, and for how long.
    progress : callable, optional
        Is told how far it is, a line at a time.

    Raises
    ------
    TuningError
        Nothing ran.
    IncompatibleMeasurementsError, DocumentError, MeasurementError
        The file is of another record, is damaged, or cannot be written.
    """
    plan = plan or Plan()
    given = question.space
    space = load_space(given) if isinstance(given, str) else given
    header = {
        "content": "record",
        "space": space.name,
        "parameters": list(space.parameters),
        "sizes": {**space.sizes, **question.sizes},
        "device": runner.identity.to_object(),
        "weights": f"{question.weights.model} for {question.weights.device.slug}",
        "plan": plan.to_object(),
    }
    choices = sorted(part_of(space, points).choices(), key=space.index)
    with (
        Journal.open(path, header) as journal,
        Bench(
            space,
            question.sizes,
            runner,
            plan,
            gate=Gate(),
            most_s=plan.max_case_s,
            left_s=lambda: float("inf"),
        ) as bench,
    ):
        entries = {as_key(entry["choice"]): entry for entry in journal.entries}
        if len(entries) < len(choices):
            predict_points(question, choices[:1])  # what is imported then is not the variant's cost
        for number, choice in enumerate(choices):
            if as_key(choice) not in entries:
                entry = _measured(question, runner, bench, choice)
                journal.append(entry)
                entries[as_key(choice)] = entry
                if progress is not None:
                    progress(f"{space.name}: {number + 1} of {len(choices)} variants")
    wanted = [entries[as_key(choice)] for choice in choices]
    return Recording(
        question=question,
        device=runner.identity,
        variants=tuple(_recorded(entry) for entry in wanted if entry["predicted_s"] is not None),
    )


def part_of(space: SearchSpace, points: int) -> SearchSpace:
    """Return a space with fewer values of its parameters, so that it has at most so many points.

    Values are left out one by one, each the middle one of the parameter that has the most, of equal
    ones the last; what is left is as dense as the whole, with the neighbors that local searches go
    through.

    Examples
    --------
    >>> space = SearchSpace(name="s", parameters={"x": [1, 2], "y": range(9)}, build=dict)
    >>> part_of(space, 8).cardinality
    8
    """
    parameters = {name: list(values) for name, values in space.parameters.items()}
    while True:
        part = replace(space, parameters=parameters)
        longest = max(reversed(parameters), key=lambda name: len(parameters[name]))
        if sum(1 for _ in part.choices()) <= points or len(parameters[longest]) == 1:
            return part
        del parameters[longest][len(parameters[longest]) // 2]


def _measured(
    question: Question, runner: CaseRunner, bench: Bench, choice: dict[str, Value]
) -> dict[str, Any]:
    began_s = time.process_time()
    (point,) = predict_points(question, [choice])
    entry: dict[str, Any] = {
        "choice": choice,
        "count_s": time.process_time() - began_s,
        "predicted_s": None,
        "group_shape": [],
        "missing": [],
        "build_s": 0.0,
        "samples_s": [],
        "stage": "",
        "reason": "",
    }
    if isinstance(point, Refused):
        return {**entry, "stage": point.stage, "reason": point.reason}
    entry["predicted_s"] = point.time_s
    entry["group_shape"] = list(point.group_shape)
    entry["missing"] = list(point.missing)
    before_s = runner.clock.now()
    try:
        samples, _ = bench.time(point, None)
    except MeasurementError as error:
        entry.update(stage=stage_of(error), reason=str(error))
        return {**entry, "build_s": runner.clock.now() - before_s}
    build_s = runner.clock.now() - before_s - sum(samples)
    return {**entry, "build_s": max(0.0, build_s), "samples_s": list(samples)}


def _recorded(entry: Mapping[str, Any]) -> Recorded:
    return Recorded(
        predicted=Predicted(
            choice=dict(entry["choice"]),
            time_s=float(entry["predicted_s"]),
            group_shape=tuple(entry["group_shape"]),
            missing=tuple(entry["missing"]),
        ),
        count_s=float(entry["count_s"]),
        build_s=float(entry["build_s"]),
        samples_s=tuple(float(sample) for sample in entry["samples_s"]),
        stage=str(entry["stage"]),
        reason=str(entry["reason"]),
    )


class ReplayRunner:
    """Stands in for a device: a `CaseRunner` that returns what was recorded.

    Parameters
    ----------
    recording : Recording
        What was measured.
    seed : int
        The runs of a variant come in another order, but for the first one.

    Attributes
    ----------
    identity, limits, clock
        As in `CaseRunner`; the clock shows what the search would have taken.
    """

    def __init__(self, recording: Recording, seed: int = 0) -> None:
        self.identity = recording.device
        self.limits = DeviceLimits(
            max_group_size=2**31 - 1,
            max_group_shape=(2**31 - 1,) * 3,
            local_memory_bytes=2**63 - 1,
            global_memory_bytes=2**63 - 1,
            max_allocation_bytes=2**63 - 1,
        )
        self.clock = FakeClock()
        space = recording.space
        self._known = {space.label(each.choice): each for each in recording.variants}
        self._built: set[str] = set()
        self._random = random.Random(seed)

    def device_state(self) -> dict[str, float]:
        """Return nothing."""
        return {}

    def versions(self) -> dict[str, str]:
        """Return nothing."""
        return {}

    def prepare(self, case: KernelCase) -> None:
        """Do nothing ahead."""

    def check(self, case: KernelCase) -> None:
        """Let the time pass that building took, once; fail as the variant did."""
        recorded = self._known[case.variant]
        if case.variant not in self._built:
            self._built.add(case.variant)
            self.clock.sleep(recorded.build_s)
        if not recorded.samples_s:
            error = _ERRORS.get(recorded.stage, MeasurementError)
            raise error(recorded.reason, case=case.name)

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


class ReplayExecutor(Executor):
    """Stands in for a pool: predictions as recorded, which take the recorded processor time.

    Parameters
    ----------
    recording : Recording
        What was predicted.
    clock : FakeClock
        Advances by the time that all processors together need.
    workers : int
        Processors.
    """

    def __init__(self, recording: Recording, clock: FakeClock, workers: int) -> None:
        self._known = recording.by_choice()
        self._clock = clock
        self._max_workers = workers

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return the recorded predictions of the points that a `Ranker` asks for."""
        del fn, kwargs
        choices: Sequence[Choice] = args[1]
        recorded = [self._known[as_key(choice)] for choice in choices]
        self._clock.sleep(sum(each.count_s for each in recorded) / self._max_workers)
        answer: Future[list[Point]] = Future()
        answer.set_result([each.predicted for each in recorded])
        return answer


# {{{ searches


def replayed_tuning(
    recording: Recording, seconds: float, *, seed: int, workers: int, plan: Plan | None = None
) -> TuningResult:
    """Search as `countperf.tuning.search.tune_space` would have within a budget, s."""
    runner = ReplayRunner(recording, seed)
    return tune_space(
        replace(recording.question, space=recording.space, limits=None),
        runner,
        Budget(seconds=seconds),
        executor=ReplayExecutor(recording, runner.clock, workers),
        plan=plan,
    )


def random_search(
    recording: Recording, seconds: float, *, seed: int, plan: Plan | None = None
) -> dict[str, Value]:
    """Measure variants in random order, and return the best that a budget allows.

    Each is measured as in our own search: those whose first runs leave no hope are run no further,
    and the one that is under way when the time is up does not count unless there is no other.
    """
    runner = ReplayRunner(recording, seed)
    order = list(recording.variants)
    random.Random(seed).shuffle(order)
    best: tuple[float, dict[str, Value]] | None = None
    with Bench(
        recording.space,
        recording.question.sizes,
        runner,
        plan or Plan(),
        gate=Gate(),
        most_s=(plan or Plan()).max_case_s,
        left_s=lambda: float("inf"),
    ) as bench:
        for each in order:
            try:
                samples, _ = bench.time(each.predicted, None if best is None else best[0])
            except MeasurementError:
                continue
            if best is not None and runner.clock.now() > seconds:
                break
            if best is None or min(samples) < best[0]:
                best = min(samples), each.choice
            if runner.clock.now() >= seconds:
                break
    assert best is not None  # a recording has a variant that ran
    return best[1]


def first_pick(recording: Recording) -> dict[str, Value]:
    """Return the variant that is predicted to be the fastest of those that run."""
    ran = [each for each in recording.variants if each.samples_s]
    return min(ran, key=lambda each: each.predicted.time_s).choice


# }}}
