r"""Candidates of a search for the fastest variant, and the choice of the next trial.

Build times of variants are estimated from the measured ones. Compilers take longer the more
instructions the code generator writes, copies of unrolled loops included: :math:`a (1 + w/W)` for w
instructions, where a is learnt from what was built. W was found with five families of kernels under
two CPU runtimes, whose build times follow the rule with correlations of 0.2 to 0.9; all that hangs
on it is in which order variants are tried.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.tuning.measuring import FEWEST_RUNS
from countperf.tuning.points import Predicted, Refused
from countperf.tuning.posterior import Array, Draw, LogTimes, Posterior
from countperf.tuning.ranking import Ranking
from countperf.tuning.result import Key, Plan, Trial, as_key, ties
from countperf.tuning.space import SearchSpace
from countperf.tuning.stopping import (
    Rest,
    chance_of_better,
    least_hope,
    median_limit,
    regret_bound,
    select,
)

WRITTEN = 40.0
"""Instructions that take as long to compile as everything else about a variant."""

PRIOR_S = 0.3
"""Time of building a small variant, before any was built, s."""


class BuildTimes:
    """Expected times of building variants."""

    def __init__(self) -> None:
        self._small_s: list[float] = []

    def add(self, written: float, seconds: float) -> None:
        """Learn from a variant of so many written instructions."""
        self._small_s.append(seconds / _size(written))

    def expected_s(self, written: Array) -> Array:
        """Return expected times, s, of variants of so many written instructions."""
        small_s = float(np.mean(self._small_s)) if self._small_s else PRIOR_S
        return small_s * _size(written)


def _size(written: Any) -> Any:
    return 1 + written / WRITTEN


MOST = 2000
"""Candidates: the fastest by prediction; more would take longer to choose from than to build."""

_WORTH_WAITING = 0.2  # gain of a variant that is built already, in that of the most promising
_DISTURBED = 2.0  # how much slower a variant is beside somebody else's thread on the same core
_CHEAP = 0.2  # of the time of building a small variant: what another look at one may take
_SLOW_BUILD = 8.0  # medians up to which building times count as equal
_PATIENCE = 0.05  # share of what is left of the budget against which times are small


class Candidates:
    """The variants that are predicted to be fastest, and what was measured of them."""

    def __init__(self, space: SearchSpace, plan: Plan) -> None:
        self._space = space
        self._plan = plan
        self._places: dict[Key, int] = {}
        self._builds = BuildTimes()
        self._written: Array = np.empty(0)
        self._posterior: Posterior
        self._drawn: dict[tuple[float, ...], tuple[Draw, ...]] = {}
        self._found: LogTimes | None = None  # of the posterior as it is
        self._gained: Array | None = None  # the same
        self._ranking: Ranking | None = None
        self.points: tuple[Predicted, ...] = ()
        self.tried: dict[Key, Trial] = {}
        self.refused: dict[Key, Refused] = {}

    def look(self, ranking: Ranking, *, is_reordered: bool = False) -> None:
        """Take over what was predicted meanwhile, or the order in which it is now."""
        before = self._ranking
        same = before is not None and ranking.predicted == before.predicted
        if same and not is_reordered:
            return
        self._ranking = ranking = replace(ranking, best=ranking.best[:MOST])
        kept = {as_key(point.choice): point for point in ranking.best}
        for tried in self.tried.values():  # by earlier sessions, or when fewer were known
            kept.setdefault(
                as_key(tried.choice),
                Predicted(
                    choice=tried.choice,
                    time_s=tried.predicted_s,
                    interval_s=tried.interval_s,
                    interval_level=tried.interval_level,
                ),
            )
        self.points = tuple(kept.values())
        self._places = {key: position for position, key in enumerate(kept)}
        self._found = self._gained = None
        self._written = np.array([point.written for point in self.points], np.float64)
        self._posterior = Posterior(
            self._space,
            [point.choice for point in self.points],
            [point.time_s for point in self.points],
            parts=[point.parts for point in self.points],
            groups=[",".join(point.missing) for point in self.points],
            prior_scatter=self._plan.prior_scatter,
            drawn=self._drawn,
        )
        for key, tried in self.tried.items():
            self._posterior.add(self._places[key], tried.time_s)

    def learn(self, tried: Trial, build_s: float | None = None) -> None:
        """Learn from a variant's times, and from the time of building it, s."""
        key = as_key(tried.choice)
        self.tried[key] = tried
        place = self._places[key]
        self._posterior.add(place, tried.time_s)
        self._found = self._gained = None
        if build_s is not None:
            self._builds.add(self._written[place], build_s)

    def refuse(self, refused: Refused) -> None:
        """Take a variant out that failed."""
        self.refused[as_key(refused.choice)] = refused

    @property
    def _times(self) -> LogTimes:
        """Distributions of the candidates' times."""
        if self._found is None:
            self._found = self._posterior.log_times()
        return self._found

    @property
    def promising_s(self) -> dict[Key, float]:
        """Optimistic times of the candidates, s, given the measurements; empty before the first.

        Half a scale below what is typical, so that what little is known of counts as promising
        (Srinivas, Krause, Kakade, Seeger 2010, arXiv:0912.3995).
        """
        if not self.tried:
            return {}
        times = self._times
        low_s = np.exp((times.mean - times.scale / 2).mean(axis=0))
        measured_s = {key: tried.time_s for key, tried in self.tried.items()}
        return dict(zip(self._places, low_s.tolist(), strict=True)) | measured_s

    @property
    def best_s(self) -> float | None:
        """Shortest time so far, s."""
        return self.fastest.time_s if self.tried else None

    @property
    def remaining(self) -> NDArray[np.bool_]:
        """Candidates that were not tried."""
        remaining = np.ones(len(self.points), np.bool_)
        done = [self._places[key] for key in (*self.tried, *self.refused) if key in self._places]
        remaining[done] = False
        return remaining

    @property
    def is_confident(self) -> bool:
        """Whether what is left has no chance, at the plan's confidence."""
        chance = self.chance
        return chance is not None and chance <= 1 - self._plan.confidence

    @property
    def chance(self) -> float | None:
        """Bound of the probability that what is left beats the best by more than the tolerance."""
        best_s = self.best_s
        if best_s is None:
            return None
        return chance_of_better(self._rest(), best_s, self._plan.tolerance)

    @property
    def expected_gain(self) -> float | None:
        """Fraction of the best time that the most promising one left is expected to gain.

        By the expected decrease of the time's logarithm.
        """
        if self.best_s is None:
            return None
        left = self._gain()[self.remaining]
        return -math.expm1(-float(left.max())) if len(left) else 0.0

    @property
    def known(self) -> int:
        """Number of variants that have a prediction and did not fail."""
        return len(self.points) + self._dropped - len(self._found_at(self.refused))

    def regret(self, winner: Trial) -> float:
        """Bound by which fraction of a variant's median run the fastest that is known takes less.

        Of those that were measured, the shortest runs count, and what later ones might have come
        to where there were few: that the variant is the fastest of them may be luck of its own. Of
        its median there is a limit as well, with half the chance to be wrong. The sum over what was
        not measured takes the whole chance, as where the search stops, but is far from it in
        replays of recorded searches, so that there is room for both.
        """
        confidence = self._plan.confidence
        median_s = median_limit(winner.samples_s, (1 + confidence) / 2)
        others_s = (
            least_hope(tried.samples_s) if tried.cut_short else tried.time_s
            for tried in self.tried.values()
            if tried is not winner
        )
        measured = max(0.0, 1 - min(others_s, default=median_s) / median_s)
        if not self.remaining.any() and not self._dropped:
            return measured
        return max(measured, regret_bound(self._rest(), median_s, confidence))

    @property
    def _dropped(self) -> int:
        """Number of variants with a prediction that were not kept as candidates."""
        assert self._ranking is not None
        return self._ranking.predicted - len(self._ranking.best)

    def _rest(self) -> tuple[Rest, ...]:
        """Return all that was not measured: candidates, and what was not kept as one."""
        assert self._ranking is not None
        candidates = Rest(times=select(self._times, self.remaining))
        if not self._dropped:
            return (candidates,)
        cutoff = self._posterior.unknown(self._ranking.best[-1].time_s)
        return candidates, Rest(times=cutoff, count=self._dropped)

    def promising(self, left_s: float, begun: Collection[Key], most: int) -> list[Predicted]:
        """Choose variants to build, the most promising first; none if no time is left for any.

        They are those of the largest expected improvement, where seconds are scarce by the time
        that it takes to find out (Snoek, Larochelle, Adams 2012, section 3.2, arXiv:1206.2944);
        times that are small against what is left count as equal, and so do building times of up to
        eight medians: long code is slow to build, and where its loops are unrolled, it is what
        predictions know least of. Before anything is measured, an improvement is one over the
        median of the predictions.
        """
        gain = self._gains(left_s, begun)
        gain[self._found_at(begun)] = -1.0
        order = np.argsort(-gain, kind="stable")[:most]
        return [self.points[place] for place in order if gain[place] >= 0]

    def worth_a_try(
        self, left_s: float, built: Collection[Key], building: Collection[Key] = ()
    ) -> Predicted | None:
        """Choose the variant to try now, of those that are built; None to build others first.

        The most promising one, unless one that is not built promises far more.
        """
        gain = self._gains(left_s, [*built, *building])
        ready = self._found_at(built)
        if not ready:
            return None
        best = max(ready, key=lambda place: gain[place])
        if gain[best] < max(0.0, _WORTH_WAITING * gain.max()):
            return None
        return self.points[best]

    def _gains(self, left_s: float, begun: Collection[Key]) -> Array:
        """Return what trying each candidate promises; below zero where there is no time for it."""
        times = self._times
        run_s = FEWEST_RUNS * times.center_s + self._warming_s(times.center_s)
        build_s = self._builds.expected_s(self._written)
        eligible = self.remaining
        if self.tried or self.refused:  # the first one is always tried
            needed_s = build_s + run_s
            there = self._found_at(begun)
            needed_s[there] = run_s[there]
            eligible = eligible & (needed_s <= left_s)
        gain = self._gain()
        if left_s < np.inf:
            alike_s = np.maximum(np.median(build_s), build_s / _SLOW_BUILD)
            gain = gain / (alike_s + run_s + _PATIENCE * left_s)
        return np.where(eligible, gain, -1.0)

    def _warming_s(self, run_s: Array | float) -> Array:
        """Return how long runs of so many seconds are repeated until the device is warm, s."""
        return np.where(run_s < self._plan.warm_up_s, self._plan.warm_up_s, 0.0)

    def _found_at(self, keys: Collection[Key]) -> list[int]:
        return sorted(self._places[key] for key in keys if key in self._places)

    def _gain(self) -> Array:
        if self._gained is None:
            times = self._times
            reference_s = self.best_s
            if reference_s is None:
                reference_s = float(np.median(times.center_s))
            self._gained = times.expected_improvement(reference_s)
        return self._gained

    def disturbed(self, settled: Collection[Key], left_s: float) -> Trial | None:
        """Return a variant that may be the fastest, but was disturbed when it ran; None if none.

        It is slower than the best by no more than another thread on the same core costs, and to run
        it again, once the device is warm, takes little against building another one.
        """
        best_s = self.best_s
        most_s = min(_CHEAP * float(self._builds.expected_s(np.ones(1))[0]), left_s)
        doubtful = [
            tried
            for key, tried in self.tried.items()
            if best_s is not None
            and key not in settled
            and best_s < tried.time_s < _DISTURBED * best_s
            and self._warming_s(tried.time_s) + sum(tried.samples_s) < most_s
        ]
        return min(doubtful, key=lambda tried: tried.time_s, default=None)

    @property
    def fastest(self) -> Trial:
        """The fastest of those that ran."""
        return min(self.tried.values(), key=lambda tried: tried.time_s)

    @property
    def ran(self) -> tuple[Trial, ...]:
        """Those that ran, in order."""
        return tuple(sorted(self.tried.values(), key=lambda each: each.at_s))

    @property
    def confirming_s(self) -> float:
        """Seconds to run the fastest again, and another one if that may be faster."""
        fastest, others = ties(tuple(self.tried.values()), floor=0.0)
        samples = fastest.samples_s[-self._plan.runs :]
        round_s = float(self._warming_s(samples[0])) + sum(samples)
        return (2 if others else 1) * (self._plan.rounds - 1) * round_s
