"""Locks that let either one timing or any number of builds run, among all searches here.

Timings of a device that is made of this machine's processors exclude everything else that the
searches do here: building, counting by the executor, timings of other such devices. Timings of
other devices exclude nothing but what their own search does. Worker processes are stopped
meanwhile.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Protocol

from countperf.deferred_interrupts import end_if_interrupted
from countperf.errors import TuningError
from countperf.hardware.identity import DeviceIdentity

_LONGEST_S = 30.0  # that processes are stopped: what waits for one of them goes on after it


class Stops:
    """Times for which processes of this one stood still."""

    def __init__(self) -> None:
        self._since_s: dict[int, float] = {}
        self._total_s: dict[int, float] = {}
        self._lock = threading.Lock()

    def begin(self, processes: Iterable[int]) -> None:
        """Note that processes stand still from now on."""
        now = time.monotonic()
        with self._lock:
            for process in processes:
                self._since_s.setdefault(process, now)

    def end(self, processes: Iterable[int]) -> None:
        """Note that they go on."""
        now = time.monotonic()
        with self._lock:
            for process in processes:
                if process in self._since_s:
                    stood_s = now - self._since_s.pop(process)
                    self._total_s[process] = self._total_s.get(process, 0.0) + stood_s

    def stood_s(self, process: int) -> float:
        """Return for how long a process has stood still so far, s."""
        with self._lock:
            now = time.monotonic()
            return self._total_s.get(process, 0.0) + now - self._since_s.get(process, now)

    def forget(self, process: int) -> None:
        """Forget a process that has ended."""
        with self._lock:
            self._total_s.pop(process, None)
            self._since_s.pop(process, None)


STOPS = Stops()
"""Of all processes that this one has stand still."""


class Standstill:
    """Stops processes in the midst of what they do, each with the processes that it began."""

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        self._processes = processes

    @contextmanager
    def reached(self) -> Generator[None]:
        """Have all stand still, but for no longer than half a minute."""
        stopped = tuple(self._processes())
        go_on = threading.Timer(_LONGEST_S, _go_on, (stopped,))
        go_on.daemon = True
        try:
            STOPS.begin(stopped)
            _signal(stopped, "SIGSTOP")
            go_on.start()
            yield
        finally:
            go_on.cancel()
            _go_on(stopped)


def _go_on(processes: tuple[int, ...]) -> None:
    _signal(processes, "SIGCONT")
    STOPS.end(processes)


def _signal(processes: Iterable[int], name: str) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # which ended, or has just begun
            os.killpg(process, getattr(signal, name))


def can_stop() -> bool:
    """Tell whether processes of this system can be stopped and go on."""
    return hasattr(signal, "SIGSTOP") and hasattr(os, "killpg")


class SearchStoppedError(TuningError):
    """Nothing passes a gate any more, since another search was interrupted."""


class Watched(Protocol):
    """Background work of a search: a ranking under way, processes that build."""

    @property
    def standstill(self) -> Standstill | None:
        """Context manager that suspends its work; None if it cannot be suspended."""
        ...

    def pause(self) -> None:
        """Have it come to the end of what it has begun."""
        ...


class TimingLock:
    """Lets the work of several searches pass at a time, or one timing alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working = 0
        self._is_timing = False
        self._watched: list[Watched] = []
        self._is_closed = False

    def close(self) -> None:
        """Let nothing pass any more: searches end with an error."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _wait(self) -> None:
        self._changed.wait_for(lambda: self._is_closed or not self._is_timing)
        if self._is_closed:
            raise SearchStoppedError("the search was interrupted", refusals=[])

    @contextmanager
    def watching(self, other: Watched) -> Generator[None]:
        """Have something stand still whenever there is a timing on the processors."""
        with self._changed:
            self._watched.append(other)
        try:
            yield
        finally:
            with self._changed:
                self._watched.remove(other)

    @contextmanager
    def working(self) -> Generator[None]:
        """Do what uses the processors; waits while there is a timing on them."""
        end_if_interrupted()
        with self._changed:
            self._wait()
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def timing(self, device: DeviceIdentity) -> AbstractContextManager[None]:
        """Time on a device; alone if that is the processors of this machine."""
        return self._alone() if device.device_type == "cpu" else nullcontext()

    @contextmanager
    def _alone(self) -> Generator[None]:
        with self._changed:
            self._wait()
            self._is_timing = True
            self._changed.wait_for(lambda: not self._working)
            watched = tuple(self._watched)
        try:
            with _standing_still(watched):  # nobody else uses them, since nobody works
                yield
        finally:
            with self._changed:
                self._is_timing = False
                self._changed.notify_all()


@contextmanager
def _standing_still(watched: Sequence[Watched]) -> Generator[None]:
    """Have all of these do nothing, in the midst of what they do if they can."""
    able: set[Standstill] = set()  # searches may share an executor
    for other in watched:
        if other.standstill is None:
            other.pause()
        else:
            able.add(other.standstill)
    with ExitStack() as stack:
        for standstill in able:
            stack.enter_context(standstill.reached())
        yield
