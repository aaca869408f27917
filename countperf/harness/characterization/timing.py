"""Time of one iteration of a loop, from runs with different trip counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from countperf.errors import MeasurementError

MAX_TURNS = 2**26


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its spread."""

    value: float  # the number
    spread: float  # median distance of the repetitions from it, relative to it

    def checked(self, what: str) -> Estimate:
        """Return the number if it is positive."""
        if self.value > 0:
            return self
        message = f"{what}: longer runs take no longer; the machine is too busy, or runs too short"
        raise MeasurementError(message)

    def scaled(self, factor: float) -> Estimate:
        """Return the number in another unit."""
        return Estimate(value=self.value * factor, spread=self.spread)


def estimate(repetitions: Sequence[float], value: float | None = None) -> Estimate:
    """Summarize repetitions."""
    middle = median(repetitions) if value is None else value
    distance = median(abs(each - middle) for each in repetitions)
    return Estimate(value=middle, spread=distance / abs(middle) if middle else 0.0)


def time_per_turn(
    run: Callable[[int], float],
    *,
    shortest_s: float,
    repetitions: int = 3,
    tries: int = 3,
    first: int = 8,
) -> Estimate:
    """Measure the time of a turn of a loop, without what it takes to launch it."""
    turns = first
    elapsed = run(turns)
    while elapsed < shortest_s and turns < MAX_TURNS:
        turns *= 4 if elapsed < shortest_s / 8 else 2
        elapsed = min(run(turns), run(turns))
    shorts: list[float] = []
    longs: list[float] = []
    for _ in range(repetitions):
        shorts.append(min(run(turns) for _ in range(tries)))
        longs.append(min(run(3 * turns) for _ in range(tries)))
    differences = [(long - short) / (2 * turns) for short, long in zip(shorts, longs, strict=True)]
    # other load on the machine only ever adds time
    return estimate(differences, (min(longs) - min(shorts)) / (2 * turns))
