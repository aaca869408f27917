"""Standstill of a search's worker processes while a variant is timed on this machine's processors.

Timings of other devices exclude nothing.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol

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


class Background(Protocol):
    """Background work of a search: a ranking under way, processes that build."""

    @property
    def standstill(self) -> Standstill | None:
        """Context manager that suspends its work; None if it cannot be suspended."""
        ...

    def pause(self) -> None:
        """Have it come to the end of what it has begun."""
        ...


@contextmanager
def exclusive_timing(device: DeviceIdentity, background: Iterable[Background]) -> Generator[None]:
    """Time on a device; if that is the processors of this machine, background work stands still."""
    with ExitStack() as stack:
        if device.device_type == "cpu":
            for each in background:
                if each.standstill is None:
                    each.pause()
                else:
                    stack.enter_context(each.standstill.reached())
        yield
