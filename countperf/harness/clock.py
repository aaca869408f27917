"""Timing one run: by the device's event timer, or by a script in tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

# host minus event is 5 to 40 us on CPU devices; what is beyond this is no launch overhead
_PLAUSIBLE_OVERHEAD_S = 1e-3
_CLOCK_RATE_TOLERANCE = 0.01


class Event(Protocol):
    """Protocol of an event: the part of ``pyopencl.Event`` that the harness uses."""

    def wait(self) -> object:
        """Wait until the command is done."""
        ...

    @property
    def profile(self) -> Any:
        """When the command began and ended: `start` and `end`, ns."""
        ...


Launch = Callable[[], Sequence[Event]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One run."""

    time_s: float  # by the timer of the clock, s
    host_s: float  # from before the launch to after the end by the host's clock, s


class EventClock:
    """Run times from the device's event timer."""

    def now(self) -> float:
        """Return the host's time, s."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Wait, s."""
        time.sleep(seconds)

    def time_run(self, launch: Launch) -> Timing:
        """Time from the start of the first command to the end of the last one."""
        before = time.perf_counter()
        events = launch()
        events[-1].wait()
        after = time.perf_counter()
        elapsed_ns = events[-1].profile.end - events[0].profile.start
        return Timing(time_s=elapsed_ns * 1e-9, host_s=after - before)


class FakeClock:
    """Scripted run times for tests; nothing is launched and nobody waits."""

    def __init__(self, durations: Iterable[float] = (), *, overhead_s: float = 1e-5) -> None:
        self._durations = iter(durations)
        self._overhead_s = overhead_s
        self._now = 0.0

    def now(self) -> float:
        """Return the sum of what was spent, s."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let scripted time pass, s."""
        self._now += seconds

    def time_run(self, launch: Launch) -> Timing:
        """Return the next scripted time."""
        del launch
        duration = next(self._durations)
        self.sleep(duration + self._overhead_s)
        return Timing(time_s=duration, host_s=duration + self._overhead_s)


Clock = EventClock | FakeClock


def check_clocks(runs: Sequence[tuple[float, float]]) -> tuple[float, str]:
    """Compare event times with the host's clock, pairs of s.

    An event lies within the host's interval, so it is not longer (but for 1 % between the clocks'
    rates), and what the host adds is launching and waking up: at most 1 ms or half the event.
    Returns the median of what it adds, s, and what is wrong.
    """
    event, host = (median(times) for times in zip(*runs, strict=True))
    overhead = median(of_host - of_event for of_event, of_host in runs)
    if event > host * (1 + _CLOCK_RATE_TOLERANCE):
        return overhead, f"event time {event:.3g} s exceeds the host's {host:.3g} s"
    if overhead > max(_PLAUSIBLE_OVERHEAD_S, 0.5 * event):
        return overhead, f"event time {event:.3g} s is far below the host's {host:.3g} s"
    return overhead, ""
