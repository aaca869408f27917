"""A search under way on a terminal and in notebooks; lines instead where there is neither."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from countperf.report.numbers import format_percent, format_quantity
from countperf.steps import format_duration
from countperf.terminal import erase_status, say, show_status

if TYPE_CHECKING:
    from countperf.tuning.state import SearchState

_LINE_INTERVAL_S = 20.0
_SHORT_S = 2.0
"""A search that is over before so long is not worth a line."""


def state_text(state: SearchState) -> str:
    """Write the state of a search on a line: the best, what may be gained, the time left."""
    if state.best_s is None:
        noun = "variant" if state.predicted == 1 else "variants"
        said = [f"{state.space}: {state.predicted} {noun} predicted, none ran yet"]
    else:
        choice = " ".join(f"{name}={value}" for name, value in state.best.items())
        said = [
            f"{state.space}: best {format_quantity(state.best_s, 's')} ({choice})",
            f"{state.tried} of {state.predicted} ran",
        ]
    if state.expected_gain is not None and state.chance is not None:
        said.append(
            f"next: {format_percent(state.expected_gain)} faster on average,"
            f" {format_percent(state.chance)} chance that one left is faster"
        )
    if state.left_s is not None:
        said.append(f"{format_duration(state.left_s)} left")
    return "; ".join(said)


def in_notebook() -> bool:
    """Tell whether this runs in the kernel of a notebook, where outputs can be updated."""
    python: Any = sys.modules.get("IPython")
    shell = None if python is None else python.get_ipython()
    return hasattr(shell, "kernel")


class LiveSearch:
    """Shows a search under way: on a terminal or in a notebook one line that is updated."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._shown = ""
        self._began_s = now()
        self._last_line_s: float | None = None
        self._handle: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        erase_status()

    def __call__(self, state: SearchState) -> None:
        """Show a state."""
        text = state_text(state)
        if in_notebook():
            self._update(text)
        elif sys.stderr.isatty():
            self._shown = text
            show_status(text)
        else:
            now = self._now()
            since_s = self._began_s + _SHORT_S - _LINE_INTERVAL_S
            if now - (self._last_line_s or since_s) >= _LINE_INTERVAL_S:
                self._last_line_s = now
                say(text)

    def say(self, text: str) -> None:
        """Print a line above the one that is updated."""
        say(text)
        if self._shown:
            show_status(self._shown)

    def _update(self, text: str) -> None:
        shown = _Line(text)
        if self._handle is None:
            display = sys.modules["IPython"].display.display
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)


class _Line:
    """A line as notebooks show it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text
