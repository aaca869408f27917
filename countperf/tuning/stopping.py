"""Rules that end the runs of a slow variant, and the search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from countperf.tuning.posterior import LogTimes

_FIRST_ALLOWANCE = 1.0
_ENOUGH = 3  # runs, two of which are no warm-up
_CHANCE = 0.2  # of being faster than what runs that agree say
_LARGEST_REGRET = 1 - 1e-6


def is_hopeless(samples_s: Sequence[float], best_s: float | None) -> bool:
    """Tell whether runs of a variant so far leave no hope of it being the fastest.

    The fastest of the runs has to exceed the best time known by an allowance for what later runs
    may gain: the whole of it after the first run, which may be a warm-up, half of it after the
    second, and so on; less where three runs or more agree: with t1 and t2 the two shortest, it
    holds with a confidence of 0.8 that no run takes less than ``t1 - 4*(t2 - t1)``.

    Source: Robson, Whitlock (1964), "Estimation of a truncation point", Biometrika 51,
    doi:10.1093/biomet/51.1-2.33, the limit of confidence for an end of a distribution.
    """
    return best_s is not None and bool(samples_s) and least_hope(samples_s) > best_s


def least_hope(samples_s: Sequence[float]) -> float:
    """Return the shortest time that later runs may come to, as `is_hopeless` has it, s."""
    shortest, *others = sorted(samples_s)
    least_s = shortest / (1 + _FIRST_ALLOWANCE / len(samples_s))
    if len(samples_s) < _ENOUGH:
        return least_s
    return max(least_s, shortest - (1 - _CHANCE) / _CHANCE * (others[0] - shortest))


def median_limit(samples_s: Sequence[float], confidence: float) -> float:
    """Bound the median run of a variant from above, s, whatever the distribution of its runs.

    The j-th shortest of n runs is below the median with the probability that of n fair coins j or
    more show heads. Of less than six runs, or so, none is long enough; the longest stands in.

    Source: David, Nagaraja (2003), "Order statistics", section 7.1.
    """
    from scipy.special import bdtrc

    number = len(samples_s)
    heads = 0  # of which more show with this probability
    while bdtrc(heads, number, 0.5) > 1 - confidence and heads + 1 < number:
        heads += 1
    return sorted(samples_s)[heads]


Rest: TypeAlias = Sequence[tuple[LogTimes, int]]
"""Variants that were not measured: distributions, and how many variants each of them stands for."""


def chance_of_better(rest: Rest, best_s: float, margin: float = 0.0) -> float:
    """Bound the probability that some unmeasured variant beats the best by more than a margin."""
    time_s = best_s * (1 - margin)
    expected = sum(count * float(times.probability_below(time_s).sum()) for times, count in rest)
    return min(1.0, expected)


def regret_bound(rest: Rest, best_s: float, confidence: float) -> float:
    """Bound by which fraction of a time the fastest of what was not measured may take less."""
    allowed = 1 - confidence
    if chance_of_better(rest, best_s) <= allowed:
        return 0.0
    if chance_of_better(rest, best_s, _LARGEST_REGRET) > allowed:
        return 1.0
    from scipy.optimize import bisect

    def over(share: float) -> float:
        return chance_of_better(rest, best_s, share) - allowed

    root: Any = bisect(over, 0.0, _LARGEST_REGRET)
    return float(root)
