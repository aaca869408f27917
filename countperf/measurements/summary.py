r"""Time of a case and its uncertainty, from samples.

The time is the smallest sample that counts, :math:`\min_r m_r` over the minima :math:`m_r` of the
:math:`R` rounds. Two things can be wrong with it, and each has a stated measure:

*Noise*, how well the time would repeat: :math:`\sqrt{((R - 1) b^2 + w^2) / R}`, a standard
deviation of the time's logarithm, where

- :math:`b = (\mathrm{median}_r \log m_r - \min_r \log m_r) / e_R` is between rounds;
  :math:`e_R` is how far the smallest of :math:`R` normal values lies below the mean on average, in
  standard deviations (Harter (1961), "Expected Values of Normal Order Statistics",
  doi:10.1093/biomet/48.1-2.151). Slow rounds, if fewer than half, do not move it; a fast round that
  no other one reaches does;
- :math:`w` is within rounds, and stands for one more round's worth of knowledge: the median over
  rounds of the logarithm of lower quartile over minimum.

*Two levels*: the case has two times, and which one is met is chance (a core lost to other load, an
allocation that lies badly). Sorted logarithms have two levels if the widest empty stretch between
them (with enough values on either side) is at least `EMPTY_SHARE` of the distance between the
medians of both sides, and these differ by a factor of at least `LEVEL_RATIO`. A case has two levels
if the minima of its rounds have, one value being enough for a level, of which the slowest does not
count: one disturbance that the others contradict; or if the runs of two of its rounds have (of its
only one, if there is but one), a level of runs being at least `LEVEL_SHARE` of them. Two rounds
that disagree are noise as yet: which of them is the disturbance, only a third one can tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

LEVEL_RATIO = 1.2
"""Levels that are closer than this factor are noise."""

EMPTY_SHARE = 0.75
"""Share of the distance between two levels that is empty; for three even values it is 2/3."""

LEVEL_SHARE = 0.15
"""Fewer of the runs than this are stragglers, and no level."""

Settling = Literal["settled", "unsettled", "bimodal"]
"""Agreement of a case's rounds: on one level, on two levels, or none."""

_NORMAL_MINIMUM = (0.5641896, 0.8462844, 1.0293754, 1.1629645, 1.2672064, 1.3521784, 1.4236003)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of the samples of a case."""

    time_s: float  # the statistic: the minimum of all runs that were not dropped, s
    spread: float  # how far the median of the fastest round lies above its minimum, relative
    # how far the median of the rounds' minima lies above the smallest of them, relative
    noise_floor: float
    # how well the time repeats: standard deviation of its logarithm, by the module's formula
    noise: float
    # if the samples have two levels, the slower over the faster one
    level_ratio: float | None = None

    def settling(self, *, stable: bool) -> Settling:
        """Return the verdict on a case, given whether a protocol's limits are kept."""
        if self.level_ratio is not None:
            return "bimodal"
        return "settled" if stable else "unsettled"


def summarize(
    samples_s: Sequence[Sequence[float]], dropped: int, *, resolution_s: float = 0.0
) -> Summary:
    """Reduce the samples of a case to its time and how far to trust it."""
    kept = [sorted(runs[dropped:]) for runs in samples_s]
    minima = sorted(runs[0] for runs in kept)
    fastest = min(kept, key=lambda runs: runs[0])
    time_s = minima[0]
    if time_s <= 0:
        return Summary(time_s=time_s, spread=0.0, noise_floor=0.0, noise=0.0)
    spread = median(fastest) / time_s - 1
    repeats = median(minima) / time_s - 1 if len(minima) > 1 else spread
    return Summary(
        time_s=time_s,
        spread=spread,
        noise_floor=max(repeats, resolution_s / time_s),
        noise=max(_noise(kept, minima), resolution_s / time_s),
        level_ratio=_level_ratio(kept, minima),
    )


def _noise(kept: Sequence[Sequence[float]], minima: Sequence[float]) -> float:
    within = median(math.log(runs[(len(runs) - 1) // 4] / runs[0]) for runs in kept)
    rounds = len(minima)
    if rounds == 1:
        return within
    expected = _NORMAL_MINIMUM[min(rounds - 2, len(_NORMAL_MINIMUM) - 1)]
    between = (median(map(math.log, minima)) - math.log(minima[0])) / expected
    return math.sqrt(((rounds - 1) * between**2 + within**2) / rounds)


def _level_ratio(kept: Sequence[Sequence[float]], minima: Sequence[float]) -> float | None:
    if ratio := two_levels(minima[:-1], fewest=1):
        return ratio
    inside = [
        ratio
        for runs in kept
        if (ratio := two_levels(runs, fewest=max(2, math.ceil(LEVEL_SHARE * len(runs)))))
    ]
    return max(inside) if len(inside) >= min(2, len(kept)) else None


def two_levels(values: Sequence[float], *, fewest: int) -> float | None:
    """Return the ratio of two levels that values cluster around; None if they do not."""
    logs = [math.log(value) for value in values]
    places = range(fewest, len(logs) - fewest + 1)
    if not places:
        return None
    split = max(places, key=lambda place: logs[place] - logs[place - 1])
    distance = median(logs[split:]) - median(logs[:split])
    empty = logs[split] - logs[split - 1]
    if distance < math.log(LEVEL_RATIO) or empty < EMPTY_SHARE * distance:
        return None
    return median(values[split:]) / median(values[:split])
