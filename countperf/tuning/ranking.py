"""Ranking of the points of a space by predicted time, with a summary of refusals."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from countperf.display import ShortRepr, Table, printed
from countperf.errors import TuningError
from countperf.tuning.points import Point, Predicted, Refused

_KINDS = 50  # of reasons that are told apart at a stage
_NAMED = 3  # of them in a sentence


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

    @property
    def examples(self) -> tuple[Refused, ...]:
        """A point for each reason."""
        return tuple(reason.example for reason in self.reasons)


class _Refusals:
    """Counts points that fall out at a stage."""

    def __init__(self) -> None:
        self._count = 0
        self._reasons: dict[str, tuple[int, Reason]] = {}

    def add(self, number: int, point: Refused) -> None:
        self._count += 1
        kind = _kind(point)
        if kind not in self._reasons:
            if len(self._reasons) < _KINDS:
                self._reasons[kind] = number, Reason(count=1, example=point)
            return
        first, reason = self._reasons[kind]
        reason = replace(reason, count=reason.count + 1)
        if number < first:
            first, reason = number, replace(reason, example=point)
        self._reasons[kind] = first, reason

    def found(self) -> RefusalCount:
        order = sorted(self._reasons.values(), key=lambda each: (-each[1].count, each[0]))
        return RefusalCount(count=self._count, reasons=tuple(reason for _, reason in order))


def _kind(point: Refused) -> str:
    return re.sub(r"\d+", "#", point.reason)


def by_stage(refused: Iterable[Refused]) -> dict[str, RefusalCount]:
    """Sum up points that fell out, by stage."""
    stages: dict[str, _Refusals] = {}
    for number, each in enumerate(refused):
        stages.setdefault(each.stage, _Refusals()).add(number, each)
    return {stage: counted.found() for stage, counted in stages.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking(Table):
    """Points of a space by predicted time."""

    space: str  # its name
    sizes: Mapping[str, int]  # sizes for which it holds
    device: str  # slug of the device of the weights
    best: tuple[Predicted, ...]  # fastest first
    predicted: int  # how many points were predicted
    refusals: Mapping[str, RefusalCount]  # those that have no prediction, by stage
    complete: bool  # whether that is all of the space
    seconds: float  # time that it took, s

    __repr__ = printed

    @property
    def refused(self) -> int:
        """Number of points without a prediction."""
        return sum(refusal.count for refusal in self.refusals.values())

    def check_predicted(self) -> None:
        """Raise an error with the most frequent reasons if no variant has a prediction."""
        if self.predicted:
            return
        reasons = [(r, stage) for stage, refusal in self.refusals.items() for r in refusal.reasons]
        reasons.sort(key=lambda refusal: -refusal[0].count)
        said = [f"{r.count} ({stage}): {r.example.reason}" for r, stage in reasons[:_NAMED]]
        if len(reasons) > _NAMED:
            said.append("others for other reasons")
        why = f"{self.refused} refused: {'; '.join(said)}"
        raise TuningError(
            f"no variant of '{self.space}' has a prediction: "
            f"{why if reasons else 'no choice satisfies the constraints'}",
            refusals=[reason.example.reason for reason, _ in reasons],
        )


class Tally:
    """Summary of the points of a ranking, independent of their order."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._best: list[tuple[float, int, Predicted]] = []
        self._refusals: dict[str, _Refusals] = {}
        self.predicted = 0

    def add(self, number: int, point: Point) -> None:
        """Take a point and its number in the order of `SearchSpace.choices`."""
        match point:
            case Predicted():
                self.predicted += 1
                item = (-point.time_s, -number, point)
                if len(self._best) < self._keep:
                    heapq.heappush(self._best, item)
                else:
                    heapq.heappushpop(self._best, item)
            case Refused():
                self._refusals.setdefault(point.stage, _Refusals()).add(number, point)

    def best(self) -> tuple[Predicted, ...]:
        """Return the best, fastest first; of equal ones those that are visited first."""
        return tuple(point for *_, point in sorted(self._best, key=lambda i: i[:2], reverse=True))

    def refusals(self) -> dict[str, RefusalCount]:
        """Return how many fell out at each stage, and why."""
        return {stage: counted.found() for stage, counted in sorted(self._refusals.items())}
