"""A progress bar on standard error; lines instead of a bar where that is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from countperf.steps import format_duration, listening

if TYPE_CHECKING:
    from countperf.harness.progress import ProgressEvent
    from countperf.steps import Step

_LINE_INTERVAL_S = 20.0
_SHORT_S = 2.0
"""Work that is over before so long is not worth a word."""

_STAGES = {"calibrating": "choosing sizes", "predicting": "predicting"}


class _Bar:
    """A bar on a terminal, which is closed with the context."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class ProgressBar(_Bar):
    """Shows what runs and how long it will take."""

    def __init__(self) -> None:
        super().__init__()
        self._stage = ""
        self._last_line = 0.0

    def __call__(self, event: ProgressEvent) -> None:
        """Show an event of a campaign."""
        stage = _STAGES.get(event.kind, "measuring")
        left = f"about {format_duration(event.remaining_s)} left" if event.remaining_s else ""
        said = ", ".join(filter(None, (event.case, left)))
        if event.kind in ("failed", "unstable"):
            self._say(f"{event.kind}: {event.case}: {event.message}")
        if event.kind == "resumed" and event.message:
            self._say(f"resumed: {event.message}")
        if not sys.stderr.isatty():
            now = time.monotonic()
            if stage != self._stage or now - self._last_line >= _LINE_INTERVAL_S:
                self._stage, self._last_line = stage, now
                self._say(f"{stage}: {event.done} of {event.total}{said and f': {said}'}")
            return
        if stage != self._stage:
            self._close()
            self._stage = stage
            self._bar = _new_bar(event.total, stage, leave=stage == "measuring")
        self._bar.total = event.total
        self._bar.n = event.done
        self._bar.set_postfix_str(said, refresh=True)

    def _say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)


class StepDisplay(_Bar):
    """Shows how far long work is, and about how long it will take.

    Parameters
    ----------
    now : callable
        A clock, s.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._work = ""
        self._began_s = 0.0
        self._last_line_s = 0.0

    def __call__(self, step: Step) -> None:
        """Show a step: at first when the work will take more than two seconds in all."""
        now = self._now()
        if step.work != self._work or step.done == 0:
            self._close()
            self._work, self._began_s, self._last_line_s = step.work, now, 0.0
        spent_s = now - self._began_s
        left_s = None
        if step.total and step.done:
            left_s = spent_s / step.done * max(0, step.total - step.done)
        if spent_s + (left_s or 0.0) < _SHORT_S or step.done == 0:
            return
        left = "" if not left_s else f", about {format_duration(left_s)} left"
        if sys.stderr.isatty():
            self._draw(step, left)
        elif not self._last_line_s or now - self._last_line_s >= _LINE_INTERVAL_S:
            self._last_line_s = now
            of = "" if step.total is None else f" of {step.total}"
            print(f"{step.work}: {step.done}{of}{left}", file=sys.stderr, flush=True)

    def _draw(self, step: Step, left: str) -> None:
        if self._bar is None:
            self._bar = _new_bar(step.total, step.work, leave=False)
        self._bar.n = step.done
        self._bar.set_postfix_str(left.removeprefix(", "), refresh=True)


def _new_bar(total: int | None, text: str, *, leave: bool) -> Any:
    from tqdm import tqdm

    layout = "{desc} |{bar}| {n_fmt}/{total_fmt}{postfix}"
    return tqdm(total=total, desc=text, leave=leave, bar_format=layout)


@contextmanager
def shown_steps() -> Generator[None]:
    """Show the steps of the work within the block on standard error."""
    with StepDisplay() as display, listening(display):
        yield
