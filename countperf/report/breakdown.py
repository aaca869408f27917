"""Breakdown of a predicted time into few rows, and its bound in one line.

A correction multiplies a time: parts are shown as it leaves them, so that they sum to the time.
Shares are of the parts that cost time; what negative weights take off is a row without a share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from countperf.models.correction import CORRECTION
from countperf.report.names import OTHER, plain_name
from countperf.report.numbers import format_share

if TYPE_CHECKING:
    from countperf.predictions import Prediction

MOST_ROWS = 8
"""Rows of a breakdown for people."""

_LEAST_SHARE = 0.005
"""Of a time: parts that take less are shown together."""
_BOUND_SHARE = 0.5
"""Of a time: what takes so much bounds it by itself."""
_SAID_SHARE = 0.15
"""Of a time: parts that take less are not named as reasons."""


@dataclass(frozen=True, slots=True)
class BreakdownRow:
    """A row of a breakdown."""

    group: str  # group that the row belongs to
    text: str  # what takes the time
    time_s: float  # its part, s
    fraction: float | None = None  # its share of all that costs time

    @property
    def share(self) -> str:
        """The share as text: ``61 %``."""
        return "" if self.fraction is None else format_share(self.fraction)


def correction_factor(prediction: Prediction) -> float:
    """Return what the correction multiplies a time by; 1 without a correction."""
    added = _number(prediction.breakdown.get(CORRECTION, 0.0))
    whole = _number(prediction.time_s)
    return whole / (whole - added) if added and whole != added else 1.0


def corrected_parts(prediction: Prediction) -> dict[str, float]:
    """Return the parts of a time as the correction leaves them, s, without those that are zero."""
    factor = correction_factor(prediction)
    return {
        name: factor * _number(part)
        for name, part in prediction.breakdown.items()
        if name != CORRECTION and _number(part) != 0
    }


def breakdown_rows(prediction: Prediction, most: int = MOST_ROWS) -> tuple[BreakdownRow, ...]:
    """Return where a time goes, the largest parts first."""
    parts = corrected_parts(prediction)
    costs = sorted(((s, name) for name, s in parts.items() if s > 0), reverse=True)
    whole = sum(s for s, _ in costs)
    taken_s = sum(s for s in parts.values() if s < 0)
    shown = [(s, *plain_name(name)) for s, name in costs if s >= _LEAST_SHARE * whole]
    shown = shown if len(costs) == len(shown) <= most - 1 else shown[: most - 2]
    left_s = whole - sum(s for s, *_ in shown)
    shown += [(left_s, "all else", OTHER)] if left_s > 1e-9 * whole else []
    rows = [BreakdownRow(group, text, s, s / whole) for s, text, group in shown]
    taken = "taken off by negative weights, which no device has"
    return (*rows, *([BreakdownRow(OTHER, taken, taken_s)] if taken_s < 0 else []))


def bound_text(prediction: Prediction) -> str:
    """Say what bounds a time, and which parts take the most of it."""
    shares: dict[str, float] = {}
    rows = [row for row in breakdown_rows(prediction) if row.fraction]
    for row in rows:
        shares[_kind(row)] = shares.get(_kind(row), 0.0) + (row.fraction or 0.0)
    if not rows:
        return ""
    largest = sorted(shares, key=lambda kind: -shares[kind])
    bounding = largest[: 1 if shares[largest[0]] >= _BOUND_SHARE else 2]
    reasons = [row for row in rows if _kind(row) in bounding]
    named = [row for row in reasons if (row.fraction or 0.0) >= _SAID_SHARE][:3] or reasons[:1]
    return f"bound by {' and '.join(bounding)}: {', '.join(f'{r.text} ({r.share})' for r in named)}"


def _kind(row: BreakdownRow) -> str:
    return row.group.partition(":")[0]


def _number(value: object) -> float:
    return float(np.asarray(value).item())
