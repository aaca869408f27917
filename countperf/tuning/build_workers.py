"""Variants built, checked and timed by processes of their own, so that several build at a time.

Code generation holds up all threads of a process, and a driver may compile one kernel at a time in
each: so variants are divided among processes. A variant stays with the process that built it, which
times it later on; that nothing else is done meanwhile is up to whoever asks. A variant that brings
its process down fails like one that does not build. Devices other than the processors of this
machine would be disturbed, and their variants are built by the search's process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Self

from countperf.deferred_interrupts import end_if_interrupted
from countperf.errors import MeasurementError
from countperf.harness.clock import EventClock
from countperf.harness.devices import discover, select_device
from countperf.harness.runner import CaseRunner, KernelRunner
from countperf.tuning.apart import ApartRunner
from countperf.tuning.exclusive_timing import Standstill, can_stop
from countperf.tuning.measuring import Bench
from countperf.tuning.points import PredictionTask
from countperf.tuning.pools import Pool, Remote, WorkerLostError, capacity
from countperf.tuning.ranker import LONGEST_S
from countperf.tuning.result import Key, Plan, as_key
from countperf.tuning.sending import Packed
from countperf.tuning.space import Choice

MOST = 8
"""Processes: what is chosen together learns nothing from one another."""


_FIRST_S = 10.0  # that the first variants may take at least, for which drivers get ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Task of the building processes."""

    asked: Packed  # the question, of which they take space and sizes
    label: str  # of the device, as for `countperf.harness.devices.select_device`
    plan: Plan  # how many runs
    most_s: float  # after so long a variant gets no further runs, s
    longest_s: float = LONGEST_S  # what building a variant, or timing it, may take, s


class BuildWorkers:
    """Processes that build variants, several at a time, and time them; a context manager."""

    def __init__(
        self, task: Task, processes: int, left_s: Callable[[], float] = lambda: float("inf")
    ) -> None:
        self.processes = processes
        self._places: dict[Key, int] = {}
        self._builds: dict[Key, Future[float | None]] = {}
        self._task = task
        self._left_s = left_s
        self._lanes = [Remote(_Place, task) for _ in range(processes)]
        self.standstill = Standstill(self._busy) if can_stop() else None
        self._opening: list[Future[Any]] = []
        self._lost: dict[Key, WorkerLostError] = {}  # when they were to be loaded

    @classmethod
    def of(
        cls,
        executor: Executor,
        asked: Packed | PredictionTask,
        runner: CaseRunner,
        plan: Plan,
        most_s: float,
        *,
        longest_s: float = LONGEST_S,
        left_s: Callable[[], float] = lambda: float("inf"),
    ) -> BuildWorkers | None:
        """Return what builds variants for a runner; None if its own process has to.

        As many processes as the executor has, if that is a pool of this machine.
        """
        if not isinstance(executor, Pool | ProcessPoolExecutor) or not isinstance(asked, Packed):
            return None
        if not isinstance(runner, KernelRunner | ApartRunner):
            return None
        if runner.identity.device_type != "cpu":
            return None
        if not isinstance(runner.clock, EventClock):
            return None  # the others have that one
        label = runner.device.label
        task = Task(asked=asked, label=label, plan=plan, most_s=most_s, longest_s=longest_s)
        return cls(task, min(MOST, capacity(executor)), left_s)

    @property
    def building(self) -> Collection[Key]:
        """Variants that are being built, or wait for it."""
        return [key for key, build in self._builds.items() if not build.done()]

    def begin(self, choices: Iterable[Choice]) -> None:
        """Have variants built and checked, those that were not before."""
        for choice in choices:
            key = as_key(choice)
            if key not in self._places:
                busy = [self._places[other] for other in self.building]
                place = min(range(self.processes), key=busy.count)
                self._builds[key] = self._build(place, choice)
                self._places[key] = place

    def _build(self, place: int, choice: Choice) -> Future[float | None]:
        """Have a process build a variant; return processor time, s, or None if that fails."""
        limit_s = self._task.longest_s
        if all(self.built_s(dict(key)) is None for key in self._builds):
            limit_s = max(limit_s, _FIRST_S)
        return self._lanes[place].call(limit_s, "build", dict(choice))

    def is_free(self, choice: Choice) -> bool:
        """Tell whether the process of a variant is building no other one, nor this one."""
        position = self._places.get(as_key(choice))
        return all(self._places[key] != position for key in self.building)

    def built_s(self, choice: Choice) -> float | None:
        """Return the processor time that building a variant took, s; None if it failed."""
        build = self._builds.get(as_key(choice))
        if build is None or not build.done() or build.exception() is not None:
            return None
        return build.result()

    def wait(self, seconds: float) -> None:
        """Wait until another variant is built, but no longer than so long, s."""
        end_if_interrupted()
        building = [self._builds[key] for key in self.building]
        wait(building, timeout=seconds, return_when=FIRST_COMPLETED)

    def pause(self) -> None:
        """Wait until nothing is built."""
        wait(self._opening)
        wait(self._builds.values())

    def load(self, choice: Choice) -> None:
        """Have a variant put its arguments into memory when it is built, ahead of timing it.

        What goes wrong does so again when it is timed, or is said then.
        """
        self.begin([choice])
        key = as_key(choice)
        if self._builds[key].exception() is None:
            error = self._call(self._places[key], "load", dict(choice)).exception()
            if isinstance(error, WorkerLostError):
                self._lost[key] = error

    def time(
        self, choice: Choice, best_s: float | None, left_s: float
    ) -> tuple[tuple[float, ...], bool]:
        """Time a variant that is built, as `countperf.tuning.measuring.Bench.time`."""
        self.begin([choice])
        key = as_key(choice)
        place = self._places[key]
        try:
            self._builds[key].result()
            if key in self._lost:
                raise self._lost.pop(key)
            return self._call(place, "time", dict(choice), best_s, left_s).result()
        except WorkerLostError as error:
            raise MeasurementError(
                f"the process that was to build and run {dict(choice)} was lost: {error.reason}"
            ) from error

    def _busy(self) -> list[int]:
        """Return the numbers of the processes that are building, or about to be able to."""
        busy = {self._places[key] for key in self.building}
        busy.update(position for position, lane in enumerate(self._lanes) if lane.pool.is_starting)
        return [number for position in busy for number in self._lanes[position].pool.running()]

    def _call(self, place: int, method: str, *given: Any) -> Future[Any]:
        """Have a process do what is waited for, which may take no longer than there is time."""
        limit_s = min(self._task.longest_s, self._left_s())
        return self._lanes[place].call(limit_s, method, *given)

    def __enter__(self) -> Self:
        self._opening = [lane.open() for lane in self._lanes]
        return self

    def __exit__(self, *_: object) -> None:
        for lane in self._lanes:
            lane.pool.end()


# --- what the processes do


class _Place:
    """The state of such a process."""

    def __init__(self, task: Task) -> None:
        question = task.asked.question()
        space = question.found_space()
        # that it works the search's own process has tried
        device = select_device(task.label, discover().devices)
        self.until_s = float("inf")
        self.bench = Bench(
            space,
            question.sizes,
            KernelRunner.open(device),
            task.plan,
            most_s=task.most_s,
            left_s=lambda: self.until_s - time.monotonic(),
        )

    def build(self, choice: Choice) -> float:
        """Build and check a variant; return the processor time that it took, s."""
        began_s = time.process_time()
        self.bench.build(choice)
        return time.process_time() - began_s

    def load(self, choice: Choice) -> None:
        """Put a variant's arguments into memory."""
        self.bench.load(choice)

    def time(
        self, choice: Choice, best_s: float | None, left_s: float
    ) -> tuple[tuple[float, ...], bool]:
        """Time a variant while there is time, s."""
        self.until_s = time.monotonic() + left_s
        return self.bench.time(choice, best_s)
