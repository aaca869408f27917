"""Variants that there are not, counted by stage and reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from countperf.text import ShortRepr
from countperf.tuning.space import Value

Stage: TypeAlias = Literal[
    "build", "schedule", "count", "limits", "sizes", "predict", "compile", "results", "run"
]
"""Stage at which a variant was refused; the last three on the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(ShortRepr):
    """A variant that there is not."""

    choice: dict[str, Value]  # which one
    stage: Stage  # where it fell out
    reason: str  # why
    # those that counting asks for, which no search's file keeps
    statistics: Mapping[str, float | str] | None = field(default=None, repr=False, compare=False)


_KINDS = 50  # of reasons that are told apart at a stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason(ShortRepr):
    """Reason why points were refused at a stage, with a count and an example."""

    count: int  # how many, for a reason that differs in nothing but numbers
    example: Refused  # the first of them


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalCount(ShortRepr):
    """Number of points that were refused at a stage, and the reasons."""

    count: int  # how many
    reasons: tuple[Reason, ...]  # why, the most frequent one first


class RefusalCounter:
    """Counts points that fall out, by stage and reason; of each reason it keeps the first."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._reasons: dict[str, dict[str, tuple[int, int, Refused]]] = {}

    def add(self, number: int, point: Refused) -> None:
        """Count a point with its number in the order of the space."""
        self._counts[point.stage] += 1
        reasons = self._reasons.setdefault(point.stage, {})
        kind = re.sub(r"\d+", "#", point.reason)
        if kind in reasons or len(reasons) < _KINDS:
            count, first, example = reasons.get(kind, (0, number, point))
            if number < first:
                first, example = number, point
            reasons[kind] = count + 1, first, example

    def by_stage(self) -> dict[str, RefusalCount]:
        """Sum up."""
        summary: dict[str, RefusalCount] = {}
        for stage, total in sorted(self._counts.items()):
            order = sorted(self._reasons[stage].values(), key=lambda it: (-it[0], it[1]))
            reasons = tuple(Reason(count=count, example=example) for count, _, example in order)
            summary[stage] = RefusalCount(count=total, reasons=reasons)
        return summary


def count_refusals(refused: Iterable[Refused]) -> dict[str, RefusalCount]:
    """Sum up points that fell out, by stage."""
    counter = RefusalCounter()
    for number, point in enumerate(refused):
        counter.add(number, point)
    return counter.by_stage()
