"""Progress events of a campaign."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

EventKind = Literal[
    "limited",
    "calibrating",
    "predicting",
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
    """Something happened in a campaign.

    Attributes
    ----------
    kind : str
        ``limited`` (part of the result will be missing; before a calibration),
        ``calibrating`` (a kernel's sizes are being chosen; before any campaign), ``predicting``
        (the times are being predicted; before a timing),
        ``started`` or ``resumed`` (the first event), ``round`` (a case is about to be run),
        ``measured``, ``unstable`` (measured, but its samples spread too far), ``failed``,
        ``finished`` (the last event).
    case : str
        The case it is about; empty for the first and last event.
    done, total : int
        Cases finished and cases in all, those of earlier sessions included.
    remaining_s : float or None
        Estimate of the time left, s; None if nothing is known yet.
    message : str
        More, in words.
    """

    kind: EventKind
    case: str = ""
    done: int = 0
    total: int = 0
    remaining_s: float | None = None
    message: str = ""


Progress = Callable[[ProgressEvent], None]


def silent(event: ProgressEvent) -> None:
    """Ignore an event."""
    del event
