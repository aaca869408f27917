"""Seconds and measurements of a search that are spent, and that are left."""

from __future__ import annotations

from collections.abc import Callable

from countperf.tuning.candidates import Candidates
from countperf.tuning.result import Budget

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
        self._now = now
        self._began_s = began_s

    def spent_s(self) -> float:
        """Return what was spent, s."""
        return self.before_s + self._now() - self._began_s

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
