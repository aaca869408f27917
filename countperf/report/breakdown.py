"""Breakdown of a predicted time into few rows, and its bound in one line.

A correction multiplies a time, so it is shown as a factor, and the parts as the factor leaves them:
they sum to the time. Shares are of the parts that cost time, and sum to 100 %; what negative
weights take off is a row of its own, without a share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from countperf.models.correction import CORRECTION
from countperf.report.names import GROUPS, OTHER, PlainName, plain_name

if TYPE_CHECKING:
    from countperf.predictions import Prediction

MOST_ROWS = 8
"""Rows of a breakdown for people."""

_REST = "all else"
_TAKEN_OFF = "taken off by negative weights, which no device has"
_LEAST_SHARE = 0.005
"""Of a time: groups that take less are shown together."""
_BOUND_SHARE = 0.5
"""Of a time: what takes so much bounds it by itself."""
_SAID_SHARE = 0.15
"""Of a time: parts that take less are not named as reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakdownRow:
    """A row of a breakdown."""

    group: str  # group that the row belongs to
    text: str  # what takes the time
    time_s: float  # its part, s
    percent: int | None  # its share of all that costs time

    @property
    def share(self) -> str:
        """The share as text: ``61 %``."""
        return "" if self.percent is None else f"{self.percent} %"


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
    """Return where a time goes: groups with the largest first, in each the largest parts."""
    found = corrected_parts(prediction)
    parts = {name: part for name, part in found.items() if part > 0}
    whole = sum(parts.values())
    taken_s = sum(part for part in found.values() if part < 0)
    if not parts:
        return ()
    most -= taken_s < 0
    order = sorted(parts, key=lambda name: (-parts[name], name))
    shown = _rows(parts, order, 0)[: most - 1]
    for number in range(min(len(order), most), 0, -1):
        rows = _rows(parts, order, number)
        if len(rows) <= most:
            shown = rows
            break
    left = whole - sum(row.time_s for row in shown)
    if left > 1e-9 * whole:
        shown = [*shown, _Row(name=PlainName(_REST, OTHER), time_s=left)]
    percents = whole_percents([row.time_s / whole for row in shown])
    rows = [
        BreakdownRow(group=row.name.group, text=row.name.text, time_s=row.time_s, percent=percent)
        for row, percent in zip(shown, percents, strict=True)
        if percent
    ]
    if taken_s < 0:
        rows.append(BreakdownRow(group=OTHER, text=_TAKEN_OFF, time_s=taken_s, percent=None))
    return tuple(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    name: PlainName
    time_s: float


@dataclass(slots=True)
class _Group:
    rows: list[_Row] = field(default_factory=list[_Row])
    rest: list[str] = field(default_factory=list[str])


def _rows(parts: Mapping[str, float], order: Sequence[str], number: int) -> list[_Row]:
    """Return rows that show so many of the largest parts by themselves."""
    groups: dict[str, _Group] = {}
    whole = sum(parts.values())
    for position, part in enumerate(order):
        name = plain_name(part)
        group = groups.setdefault(name.group, _Group())
        if position < number and parts[part] >= _LEAST_SHARE * whole:
            group.rows.append(_Row(name=name, time_s=parts[part]))
        else:
            group.rest.append(part)
    small = 0.0
    for name, group in groups.items():
        rest_s = sum(parts[part] for part in group.rest)
        if rest_s < _LEAST_SHARE * whole:
            small += rest_s
        elif len(group.rest) == 1:
            group.rows.append(_Row(name=plain_name(group.rest[0]), time_s=rest_s))
        else:
            text = f"{plain_name(group.rest[0]).text} and {len(group.rest) - 1} more"
            group.rows.append(_Row(name=PlainName(text, name), time_s=rest_s))
    sums = {name: sum(row.time_s for row in group.rows) for name, group in groups.items()}
    by_size = sorted(groups, key=lambda name: (-sums[name], GROUPS.index(name)))
    rows = [row for name in by_size for row in groups[name].rows]
    return [*rows, _Row(name=PlainName(_REST, OTHER), time_s=small)] if small else rows


def whole_percents(shares: Sequence[float]) -> list[int]:
    """Round shares to whole percents that sum to 100, by largest remainders."""
    floors = [math.floor(100 * share) for share in shares]
    missing = 100 - sum(floors)
    remainders = [100 * share - low for share, low in zip(shares, floors, strict=True)]
    for place in sorted(range(len(shares)), key=lambda i: (-remainders[i], i))[: max(0, missing)]:
        floors[place] += 1
    return floors


def bound_text(prediction: Prediction) -> str:
    """Say what bounds a time, and which parts take the most of it."""
    rows = breakdown_rows(prediction)
    percents = {row: row.percent for row in rows if row.percent is not None}
    if not percents:
        return ""
    order = sorted(percents, key=lambda row: -percents[row])
    kinds: dict[str, int] = {}
    for row in order:
        kinds[_kind(row)] = kinds.get(_kind(row), 0) + percents[row]
    largest = sorted(kinds, key=lambda kind: -kinds[kind])
    bounding = largest[:1] if kinds[largest[0]] >= 100 * _BOUND_SHARE else largest[:2]
    if _kind(order[0]) not in bounding:  # the largest row is never left out
        bounding = [*bounding[:1], _kind(order[0])]
    reasons = [row for row in order if _kind(row) in bounding]
    named = [row for row in reasons if percents[row] >= 100 * _SAID_SHARE][:3] or reasons[:1]
    shares = [f"{row.text} ({row.share})" for row in named]
    return f"bound by {' and '.join(bounding)}: {', '.join(shares)}"


def _kind(row: BreakdownRow) -> str:
    return row.group.partition(":")[0]


def _number(value: object) -> float:
    return float(np.asarray(value).item())
