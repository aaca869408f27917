"""State of a running search, for progress displays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from countperf.tuning.space import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState:
    """State of a search under way.

    Attributes
    ----------
    space, device : str
        Name of the space, slug of the device.
    best_s : float or None
        Time of the fastest variant so far, s; None before one ran.
    best : Mapping from str to value
        Which one.
    tried, failed, predicted : int
        Variants that ran, that failed on the device, that have a prediction.
    expected_gain : float or None
        Fraction of the best time by which the most promising variant left is expected to be faster
        (the expected improvement); None before one ran.
    chance : float or None
        Bound of the probability that any variant left is faster by more than the tolerance.
    spent_s : float
        Time spent over all sessions, s.
    seconds, measurements : float or None, int or None
        The budget.
    """

    space: str
    device: str
    best_s: float | None
    best: Mapping[str, Value]
    tried: int
    failed: int
    predicted: int
    expected_gain: float | None
    chance: float | None
    spent_s: float
    seconds: float | None
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
