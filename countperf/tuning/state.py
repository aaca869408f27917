"""State of a search: what its budget leaves, for progress displays, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from countperf.tuning.candidates import Candidates
from countperf.tuning.ranking import Ranking, by_stage
from countperf.tuning.result import Budget, Outlook, ties
from countperf.tuning.space import SearchSpace, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState:
    """State of a search under way."""

    space: str  # name of the space, slug of the device
    device: str
    best_s: float | None  # time of the fastest variant so far, s
    best: Mapping[str, Value]  # which one
    tried: int  # variants that ran, that failed on the device, that have a prediction
    failed: int
    predicted: int
    expected_gain: float | None
    # bound of the probability that any variant left is faster by more than the tolerance
    chance: float | None
    spent_s: float  # time spent over all sessions, s
    seconds: float | None  # the budget

    @property
    def left_s(self) -> float | None:
        """Time that is left of the budget, s; None where measurements alone are limited."""
        return None if self.seconds is None else max(0.0, self.seconds - self.spent_s)


Watch: TypeAlias = Callable[[SearchState], None]
"""Is told the state of a search whenever it may have changed."""


_OVERTIME_S = 1.0  # for a variant that is being timed when the seconds are over
RESERVED = 0.1
"""Fraction of the seconds that is kept for running the best again, if that takes so long."""


class Spending:
    """Budget of a search, earlier sessions included."""

    def __init__(
        self,
        budget: Budget,
        known: Candidates,
        now: Callable[[], float],
        *,
        before_s: float,
        began_s: float,
    ) -> None:
        self.budget = budget
        self.before_s = before_s
        self._known = known
        self.now = now
        self._began_s = began_s

    def spent_s(self) -> float:
        """Return what was spent, s."""
        return self.before_s + self.now() - self._began_s

    def left_s(self) -> float:
        """Return what is left, s."""
        seconds = self.budget.seconds
        return float("inf") if seconds is None else seconds - self.spent_s()

    def patience_s(self) -> float:
        """Return what may be waited for at most, s; the first variant is always tried."""
        if not self._known.tried and not self._known.refused:
            return float("inf")
        return max(0.0, self.left_s()) + _OVERTIME_S

    def is_over(self) -> bool:
        """Tell whether the budget is spent; the first variant is always tried."""
        tried, failed = len(self._known.tried), len(self._known.refused)
        limit = self.budget.measurements
        if limit is not None and tried + failed >= limit:
            return tried > 0 or failed >= 2 * limit
        return self.left_s() <= self.reserved_s() and tried + failed > 0

    def reserved_s(self) -> float:
        """Return what running the best again is to take, s."""
        seconds = self.budget.seconds
        if seconds is None or len(self._known.tried) < 2:
            return 0.0
        return min(RESERVED * seconds, self._known.confirming_s)

    def unreserved_s(self) -> float:
        """Return what is left for variants that were not tried yet, s."""
        return self.left_s() - self.reserved_s()


_UNPREDICTED = ("count", "predict")  # stages at which variants fall out that there may well be


def outlook(space: SearchSpace, known: Candidates, ranking: Ranking) -> Outlook:
    """Return what is known of variants that were not measured, as soon as one was."""
    without = sum(ranking.refusals[s].count for s in _UNPREDICTED if s in ranking.refusals)
    others = 0
    if not ranking.complete:
        others = space.number_of_choices() - ranking.predicted - ranking.refused
    unbounded = without + max(0, others)
    is_alone = known.known == 1 and unbounded > 0
    return Outlook(
        refusals={**ranking.refusals, **by_stage(known.refused.values())},
        predicted=ranking.predicted,
        ranking_complete=ranking.complete,
        regret_bound=None if is_alone else known.regret(ties(known.ran, floor=0.0)[0]),
        bounded=known.known,
        unbounded=unbounded,
        ranking_s=ranking.seconds,
    )
