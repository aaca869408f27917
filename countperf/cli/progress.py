"""A progress bar on standard error; lines instead of a bar where that is no terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from countperf.harness.progress import ProgressEvent

_LINE_INTERVAL_S = 20.0

_STAGES = {"calibrating": "choosing sizes", "predicting": "predicting"}


class ProgressBar:
    """Shows what runs and how long it will take."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._stage = ""
        self._last_line = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __call__(self, event: ProgressEvent) -> None:
        """Show an event of a campaign."""
        stage = _STAGES.get(event.kind, "measuring")
        left = "" if event.remaining_s is None else f", about {_duration(event.remaining_s)} left"
        if event.kind in ("failed", "unstable"):
            self._say(f"{event.kind}: {event.case}: {event.message}")
        if event.kind == "resumed" and event.message:
            self._say(f"resumed: {event.message}")
        if not sys.stderr.isatty():
            now = time.monotonic()
            if stage != self._stage or now - self._last_line >= _LINE_INTERVAL_S:
                self._stage, self._last_line = stage, now
                self._say(f"{stage}: {event.done} of {event.total}{left}: {event.case}")
            return
        if stage != self._stage:
            from tqdm import tqdm

            self._close()
            self._stage = stage
            self._bar = tqdm(
                total=event.total,
                desc=stage,
                bar_format="{desc} |{bar}| {n_fmt}/{total_fmt}{postfix}",
            )
        self._bar.total = event.total
        self._bar.n = event.done
        self._bar.set_postfix_str(f"{event.case}{left}", refresh=True)

    def _say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"
