"""State of a running search, for progress displays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from countperf.tuning.space import Value


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
    measurements: int | None

    @property
    def left_s(self) -> float | None:
        """Time that is left, s: of the budget, or by what a measurement took; None if not known."""
        left: list[float] = []
        if self.seconds is not None:
            left.append(max(0.0, self.seconds - self.spent_s))
        done = self.tried + self.failed
        if self.measurements is not None and done:
            left.append(self.spent_s / done * max(0, self.measurements - done))
        return min(left, default=None)


Watch: TypeAlias = Callable[[SearchState], None]
"""Is told the state of a search whenever it changes, and about once a second."""
