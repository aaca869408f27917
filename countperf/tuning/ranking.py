"""Points of a space by predicted time: the best are kept, the refused are summed up."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from countperf.tuning.points import Point, Predicted, Refused
from countperf.tuning.space import SearchSpace

_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalCount:
    """How many points fell out at a stage.

    Attributes
    ----------
    count : int
        How many.
    examples : tuple of Refused
        The first few.
    """

    count: int
    examples: tuple[Refused, ...]


def by_stage(refused: Iterable[Refused]) -> dict[str, RefusalCount]:
    """Sum up points that fell out, by stage."""
    found: dict[str, list[Refused]] = {}
    for each in refused:
        found.setdefault(each.stage, []).append(each)
    return {
        stage: RefusalCount(count=len(some), examples=tuple(some[:_EXAMPLES]))
        for stage, some in found.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Points of a space by predicted time.

    Attributes
    ----------
    space : str
        Its name.
    sizes : Mapping from str to int
        Sizes for which it holds.
    device : str
        Slug of the device of the weights.
    best : tuple of Predicted
        Fastest first; at most as many as were to be kept.
    predicted : int
        How many points were predicted.
    refusals : Mapping from str to RefusalCount
        Those that have no prediction, by stage.
    position : int
        How far the space was gone through, in numbers of `SearchSpace.visit`.
    ahead : tuple of int
        Numbers beyond that whose points are done as well.
    complete : bool
        Whether that is all of it.
    seconds : float
        Time that it took, s.
    """

    space: str
    sizes: Mapping[str, int]
    device: str
    best: tuple[Predicted, ...]
    predicted: int
    refusals: Mapping[str, RefusalCount]
    position: int
    ahead: tuple[int, ...] = ()
    complete: bool
    seconds: float

    @property
    def refused(self) -> int:
        """How many points have no prediction."""
        return sum(each.count for each in self.refusals.values())


class Tally:
    """What is kept of the points that come by, the same in whatever order they come.

    Parameters
    ----------
    keep : int
        How many of the best.
    space : SearchSpace
        What they are of.
    resume : Ranking, optional
        What came by before.
    """

    def __init__(self, keep: int, space: SearchSpace, resume: Ranking | None = None) -> None:
        self._keep = keep
        self._best: list[tuple[float, int, Predicted]] = []
        self._examples: dict[str, list[tuple[int, Refused]]] = {}
        self._counts: dict[str, int] = {}
        self.predicted = 0
        if resume is None:
            return
        for number, point in _numbered(space, resume.best):
            self.add(number, point)
        for each in resume.refusals.values():
            for number, point in _numbered(space, each.examples):
                self.add(number, point)
        self.predicted = resume.predicted
        self._counts = {stage: each.count for stage, each in resume.refusals.items()}

    def add(self, number: int, point: Point) -> None:
        """Take a point and the number that `SearchSpace.visit` gives with it."""
        match point:
            case Predicted():
                self.predicted += 1
                item = (-point.time_s, -number, point)
                if len(self._best) < self._keep:
                    heapq.heappush(self._best, item)
                else:
                    heapq.heappushpop(self._best, item)
            case Refused():
                self._counts[point.stage] = self._counts.get(point.stage, 0) + 1
                examples = self._examples.setdefault(point.stage, [])
                if len(examples) < _EXAMPLES or number < examples[-1][0]:
                    examples.append((number, point))
                    examples.sort(key=lambda each: each[0])
                    del examples[_EXAMPLES:]

    def best(self) -> tuple[Predicted, ...]:
        """Return the best, fastest first; of equal ones those that are visited first."""
        return tuple(point for *_, point in sorted(self._best, key=lambda i: i[:2], reverse=True))

    def refusals(self) -> dict[str, RefusalCount]:
        """Return how many fell out at each stage."""
        return {
            stage: RefusalCount(
                count=count, examples=tuple(point for _, point in self._examples[stage])
            )
            for stage, count in sorted(self._counts.items())
        }


def _numbered(
    space: SearchSpace, points: tuple[Predicted, ...] | tuple[Refused, ...]
) -> list[tuple[int, Predicted | Refused]]:
    numbers = space.numbers(point.choice for point in points)
    return list(zip(numbers, points, strict=True))
