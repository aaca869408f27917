"""Load of other programs on the processor while one of its devices is timed.

A program that keeps a core busy can hold up all runs of all rounds alike, so that nothing in their
times tells.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

from countperf.harness.environment import available_cores

_WINDOW_S = 0.5
"""The system counts in hundredths of a second."""
_BUSY_SHARE = 1 / 8


def time_of_others_s(path: Path = Path("/proc/stat")) -> float | None:
    """Return the processor time that other programs have used so far on our cores, s.

    Time that a hypervisor gave to other machines counts as theirs.
    """
    try:
        ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
        ticks = 0
        for name, user, nice, system, _idle, _waiting, irq, soft, stolen, *_ in (
            line for line in lines if line and line[0] in ours
        ):
            ticks += sum(map(int, (user, nice, system, irq, soft, stolen)))
            ours.remove(name)
        if ours:
            return None
        own = os.times()
        per_second = os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError):  # not Linux, or not as we know it
        return None
    return ticks / per_second - sum(own[:4])


class Neighbors:
    """Watches how many cores other programs keep busy."""

    def __init__(self, time_s: Callable[[], float | None], now: Callable[[], float]) -> None:
        self._time_s = time_s
        self._now = now
        self._readings: deque[tuple[float, float]] = deque()

    def look(self) -> float:
        """Return how many cores they have kept busy since the last look, or longer, on average.

        The times of the system are coarse: over half a second at least, and zero before.
        """
        spent = self._time_s()
        if spent is None:
            return 0.0
        now = self._now()
        while len(self._readings) > 1 and self._readings[1][0] <= now - _WINDOW_S:
            self._readings.popleft()
        self._readings.append((now, spent))
        began, before = self._readings[0]
        return max(spent - before, 0.0) / (now - began) if now - began >= _WINDOW_S else 0.0

    @staticmethod
    def disturb(cores: float) -> bool:
        """Return whether so many busy cores make times doubtful: more than an eighth of ours."""
        return cores > _BUSY_SHARE * available_cores()
