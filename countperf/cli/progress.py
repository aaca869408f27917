"""Progress of long work: a line on standard error now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

from countperf.steps import format_duration
from countperf.terminal import say

_INTERVAL_S = 10.0


class Progress:
    """Says what runs, how far it is and how long it will take, every ten seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.begin()

    def begin(self) -> None:
        """Begin the work of a command, whose first line comes after ten seconds."""
        self._work = ""
        self._began_s = self._said_s = self._now()

    def step(self, work: str, done: int, total: int | None = None) -> None:
        """Show a step of work."""
        if work != self._work or done == 0:
            self._work, self._began_s = work, self._now()
        spent_s = self._now() - self._began_s
        left_s = spent_s / done * (total - done) if total and done else None
        self.show(_text(work, done, total, left_s))

    def show(self, text: str) -> None:
        """Print a line, unless one was printed in the last ten seconds."""
        if self._now() - self._said_s >= _INTERVAL_S:
            self._said_s = self._now()
            say(text)


def _text(work: str, done: int, total: int | None, left_s: float | None) -> str:
    of = "" if total is None else f" of {total}"
    left = f", about {format_duration(left_s)} left" if left_s else ""
    return f"{work}: {done}{of}{left}"


PROGRESS = Progress()
"""That of the command that runs."""
