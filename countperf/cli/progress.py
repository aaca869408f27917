"""What long work is at, on standard error: a line of status on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from countperf.steps import format_duration, listening
from countperf.terminal import erase_status, say, show_status, silence_s

if TYPE_CHECKING:
    from countperf.harness.progress import ProgressEvent
    from countperf.steps import Step

_LINE_INTERVAL_S = 20.0
_SHORT_S = 2.0
"""Work that is over before so long is not worth a word."""
_SILENCE_S = 5.0
"""After so long without a word, the work under way is named."""
_BAR = 24  # characters

_STAGES = {
    "calibrating": "choosing sizes",
    "finished": "gathering what was measured",
}


class Progress:
    """Shows what runs, how far it is and how long it will take."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._work = ""
        self._began_s = now()
        self._last_line_s: float | None = None

    def step(self, step: Step) -> None:
        """Show a step of work, if the work takes more than two seconds in all."""
        now = self._now()
        if step.work != self._work or step.done == 0:
            self._begin(step.work, now)
        spent_s = now - self._began_s
        left_s = None
        if step.total and step.done:
            left_s = spent_s / step.done * max(0, step.total - step.done)
        if spent_s + (left_s or 0.0) >= _SHORT_S and step.done:
            left = f"about {format_duration(left_s)} left" if left_s else ""
            self._show(step.done, step.total, left, now)

    def event(self, event: ProgressEvent) -> None:
        """Show an event of a campaign."""
        stage = _STAGES.get(event.kind, "measuring")
        if event.kind in ("limited", "resumed", "failed", "unstable") and event.message:
            say(": ".join(filter(None, (event.kind, event.case, event.message))))
        if event.kind == "limited":
            return
        now = self._now()
        if stage != self._work:
            self._begin(stage, now)
        left = f"about {format_duration(event.remaining_s)} left" if event.remaining_s else ""
        self._show(event.done, event.total, ", ".join(filter(None, (event.case, left))), now)

    def state(self, work: str, text: str) -> None:
        """Show the state of some work, if it takes more than two seconds."""
        now = self._now()
        if self._work != work:
            self._begin(work, now)
        if now - self._began_s >= _SHORT_S:
            self._say(text, now)

    def wait(self) -> None:
        """Name the work under way, if nothing was shown for long."""
        now = self._now()
        if now - self._began_s < _SILENCE_S:
            return
        text = f"{self._work or 'working'}: {format_duration(now - self._began_s)} so far"
        if sys.stderr.isatty():
            if silence_s() >= _SILENCE_S:
                show_status(text)
        elif silence_s() >= (_SILENCE_S if self._last_line_s is None else _LINE_INTERVAL_S):
            self._last_line_s = now
            say(text)

    def _begin(self, work: str, now: float) -> None:
        erase_status()
        self._work, self._began_s, self._last_line_s = work, now, None

    def _show(self, done: int, total: int | None, more: str, now: float) -> None:
        of = f"{done} of {total}" if total is not None else f"{done}"
        bar = ": "
        if total and sys.stderr.isatty():
            full = min(_BAR, _BAR * done // total)
            bar = f" |{'#' * full}{' ' * (_BAR - full)}| "
        self._say(f"{self._work}{bar}{of}{more and f', {more}'}", now)

    def _say(self, text: str, now: float) -> None:
        """Show a text as the status of a terminal, elsewhere as a line now and then."""
        if sys.stderr.isatty():
            show_status(text)
        elif self._last_line_s is None or now - self._last_line_s >= _LINE_INTERVAL_S:
            self._last_line_s = now
            say(text)


_shown: list[Progress] = []


def show_state(work: str, text: str) -> None:
    """Show the state of some work where the steps of the command's work are shown."""
    if _shown:
        _shown[-1].state(work, text)


def show_event(event: ProgressEvent) -> None:
    """Show an event of a campaign where the steps of the command's work are shown."""
    if _shown:
        _shown[-1].event(event)


@contextmanager
def shown_steps() -> Generator[None]:
    """Show the steps of the work within the block, and name work that takes long in silence."""
    progress = Progress()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(1.0):
            progress.wait()

    watcher = threading.Thread(target=watch, daemon=True, name="progress")
    watcher.start()
    _shown.append(progress)
    try:
        with listening(progress.step):
            yield
    finally:
        _shown.pop()
        over.set()
        watcher.join()
        erase_status()
