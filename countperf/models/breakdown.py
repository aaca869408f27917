"""Parts of a predicted time: their plain names and groups, few rows of them, what bounds the time.

Models name parts by features, such as ``issue.scalar.gmem.load.set_conflict``. People read "scalar
global loads that miss L1 by set conflicts", in the group "memory: L2".

A correction multiplies a time: parts are shown as it leaves them, so that they sum to the time.
Shares are of the parts that cost time; what negative weights take off is a row without a share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from countperf.text import format_share

CORRECTION = "correction"
"""Part of a time that is none of the model's: what a correction adds or takes away."""

OTHER = "other"
"""Resource of a part for which the model states none."""

_WORDS: Mapping[str, str] = {
    **{"issue": "", "code": "machine code:", "gmem": "global", "lmem": "local", "pmem": "private"},
    **{"load": "loads", "store": "stores", "launches": "launching", "chain": "dependent"},
    **{"groups": "starting work groups", "items": "starting work items", "iop": "integer"},
    **{"free": "without barriers", "sync": "between barriers", "loop": "in loops", "flop": ""},
    **{"passes": "loops over the items of groups", "carried": "loop-carried values in memory"},
    **{"arithmetic": "add, multiply, fma", "minor": "comparisons, selections, conversions"},
    **{"add": "additions", "mul": "multiplications", "div": "divisions", "mod": "remainders"},
    **{"pow": "powers", "special": "special functions", "conditional": "under conditions:"},
    **{"fma": "fma", "barrier": "barrier", "barriers": "barriers", "subgroups": "subgroups"},
    **{"square_roots": "square roots", "beyond": "beyond"},
    **{"minmax": "minima and maxima", "guarded": "masked", "idle": "slots without work"},
    **{"divide": "integer divisions", "divisions": "machine code: divisions", "l2": "L2"},
    "shortest": "as long as the shortest known",
    "waiting_cycles": "stall cycles of dependent instructions",
    "same": "of one address by all items",
    "next": "of consecutive addresses",
    "offset": "of consecutive unaligned addresses",
    "shifted": "of consecutive addresses at any offset",
    "near": "of several addresses in a cache line",
    "walk": "item by item within a cache line",
    "l1_reuse": "of another cache line per item",
    "data": "at addresses read from data",
    "strided": "of consecutive addresses in another cache line per iteration",
    "l2_reuse": "that miss L1",
    "set_conflict": "that miss L1 by set conflicts",
    "lines_l2": "in lines that miss L1",
    "lines_conflict": "in lines that miss L1 by set conflicts",
    "beyond_l2": "that miss L2",
    "beyond_llc": "beyond the last-level cache",
    "out_of_reach": "(address translation)",
}
_WORD = re.compile(
    rf"(?<![a-z0-9])(?:{'|'.join(sorted(_WORDS, key=len, reverse=True))})(?![a-z0-9])"
)


def plain_name(part: str) -> str:
    """Return the name of a part of a time for people; one without any word of ours stays."""
    if not _WORD.search(part):
        return part
    text = re.sub(r"[._]", " ", _WORD.sub(lambda word: _WORDS[word[0]], part))
    return " ".join(text.split())


_FEW = 3


def uncharged_lines(names: Sequence[str], *, every: bool = False) -> list[str]:
    """Write which properties a model leaves out: few by name, of more how many, or all of them."""
    if not names:
        return []
    said = [plain_name(name) for name in names] if len(names) <= _FEW else names
    if len(names) > _FEW and not every:
        said = [f"{len(names)} properties (countperf predict --explain lists them)"]
    return [f"not charged by this model: {', '.join(said)}"]


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

    group: str
    text: str  # what takes the time
    time_s: float
    fraction: float | None = None  # its share of all that costs time

    @property
    def share(self) -> str:
        """The share as text: ``61 %``."""
        return "" if self.fraction is None else format_share(self.fraction)


def corrected_parts(prediction: Any) -> dict[str, float]:
    """Return the parts of a time as the correction leaves them, s, without those that are zero."""
    parts = {name: _number(part) for name, part in prediction.breakdown.items()}
    added, whole = parts.pop(CORRECTION, 0.0), _number(prediction.time_s)
    factor = whole / (whole - added) if added and whole != added else 1.0
    return {name: factor * part for name, part in parts.items() if part != 0}


def breakdown_rows(prediction: Any) -> tuple[BreakdownRow, ...]:
    """Return where a predicted time goes, the largest parts first."""
    parts = corrected_parts(prediction)
    costs = sorted(((s, name) for name, s in parts.items() if s > 0), reverse=True)
    whole = sum(s for s, _ in costs)
    taken_s = sum(s for s in parts.values() if s < 0)
    stated = prediction.resources
    shown = [
        (s, plain_name(name), stated.get(name, OTHER))
        for s, name in costs
        if s >= _LEAST_SHARE * whole
    ]
    shown = shown if len(costs) == len(shown) <= MOST_ROWS - 1 else shown[: MOST_ROWS - 2]
    left_s = whole - sum(s for s, *_ in shown)
    shown += [(left_s, "all else", OTHER)] if left_s > 1e-9 * whole else []
    rows = [BreakdownRow(group, text, s, s / whole) for s, text, group in shown]
    taken = "taken off by negative weights, which no device has"
    return (*rows, *([BreakdownRow(OTHER, taken, taken_s)] if taken_s < 0 else []))


def describe_bound(prediction: Any) -> str:
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
