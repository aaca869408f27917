"""Progress events of a campaign."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

EventKind = Literal[
    "limited",
    "calibrating",
    "started",
    "resumed",
    "round",
    "measured",
    "unstable",
    "failed",
    "finished",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressEvent:
    """Something happened in a campaign."""

    kind: EventKind  # ``limited``: part of the result will be missing
    case: str = ""  # the case it is about
    done: int = 0  # cases finished and cases in all, those of earlier sessions included
    total: int = 0
    remaining_s: float | None = None  # estimate of the time left, s
    message: str = ""  # more, in words


Progress = Callable[[ProgressEvent], None]


def silent(event: ProgressEvent) -> None:
    """Ignore an event."""
    del event
