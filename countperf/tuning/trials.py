"""Candidates of a search: what is predicted of variants, and what was measured of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from countperf.steps import format_duration
from countperf.text import choice_text, format_percent, format_quantity
from countperf.tuning.points import Predicted, Refused
from countperf.tuning.posterior import Array, Draw, LogTimes, Posterior
from countperf.tuning.ranker import Ranking
from countperf.tuning.result import Key, Plan, Trial, as_key, fastest_of, ties
from countperf.tuning.space import SearchSpace, Value
from countperf.tuning.variant_bench import (
    FEWEST_RUNS,
    Rest,
    chance_of_better,
    least_hope,
    median_limit,
    regret_bound,
)

PRIOR_S = 0.3
"""Time of building a variant, before any was built, s."""

MOST = 2000
"""Candidates: the fastest by prediction; more would take longer to choose from than to build."""


class Candidates:
    """The variants that are predicted to be fastest, and what was measured of them."""

    def __init__(self, space: SearchSpace, plan: Plan) -> None:
        self._space = space
        self._plan = plan
        self._positions: dict[Key, int] = {}
        self._built_s: list[float] = []
        self._posterior: Posterior
        self._drawn: dict[tuple[float, ...], tuple[Draw, ...]] = {}
        self._distributions: LogTimes | None = None  # of the posterior as it is
        self._gained: Array | None = None  # the same
        self._ranking: Ranking | None = None
        self.points: tuple[Predicted, ...] = ()
        self.tried: dict[Key, Trial] = {}
        self.refused: dict[Key, Refused] = {}

    def look(self, ranking: Ranking) -> None:
        """Take over what was predicted meanwhile."""
        before = self._ranking
        if before is not None and ranking.predicted == before.predicted:
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
        self._positions = {key: position for position, key in enumerate(kept)}
        self._distributions = self._gained = None
        self._posterior = Posterior(
            self._space.parameters,
            [point.choice for point in self.points],
            [point.time_s for point in self.points],
            parts=[point.parts for point in self.points],
            groups=[",".join(point.missing) for point in self.points],
            prior_scatter=self._plan.prior_scatter,
            drawn=self._drawn,
        )
        for key, tried in self.tried.items():
            self._posterior.add(self._positions[key], tried.time_s)

    def learn(self, tried: Trial, build_s: float | None = None) -> None:
        """Learn from a variant's times, and from the time of building it, s."""
        key = as_key(tried.choice)
        self.tried[key] = tried
        self._posterior.add(self._positions[key], tried.time_s)
        self._distributions = self._gained = None
        if build_s is not None:
            self._built_s.append(build_s)

    def refuse(self, refused: Refused) -> None:
        """Take a variant out that failed."""
        self.refused[as_key(refused.choice)] = refused

    @property
    def _times(self) -> LogTimes:
        """Distributions of the candidates' times."""
        if self._distributions is None:
            self._distributions = self._posterior.log_times()
        return self._distributions

    @property
    def best_s(self) -> float | None:
        """Shortest time so far, s."""
        return self.fastest.time_s if self.tried else None

    @property
    def remaining(self) -> NDArray[np.bool_]:
        """Candidates that were not tried."""
        remaining = np.ones(len(self.points), np.bool_)
        done = [
            self._positions[key] for key in (*self.tried, *self.refused) if key in self._positions
        ]
        remaining[done] = False
        return remaining

    @property
    def is_confident(self) -> bool:
        """True if what is left has no chance, at the plan's confidence."""
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
        failed = sum(key in self._positions for key in self.refused)
        return len(self.points) + self._dropped - failed

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

    def _rest(self) -> Rest:
        """Return all that was not measured: candidates, and what was not kept as one."""
        assert self._ranking is not None
        candidates = self._times.of(self.remaining), 1
        if not self._dropped:
            return [candidates]
        cutoff = self._posterior.unknown(self._ranking.best[-1].time_s)
        return [candidates, (cutoff, self._dropped)]

    def promising(self, left_s: float, most: int) -> list[Predicted]:
        """Choose variants to try, the most promising first; none if no time is left for any.

        They are those of the largest expected improvement (Snoek, Larochelle, Adams 2012,
        arXiv:1206.2944). Before anything is measured, an improvement is one over the median of the
        predictions.
        """
        eligible = self.remaining
        if self.tried or self.refused:  # the first one is always tried
            run_s = FEWEST_RUNS * self._times.center_s + self._warming_s(self._times.center_s)
            build_s = float(np.mean(self._built_s)) if self._built_s else PRIOR_S
            eligible = eligible & (build_s + run_s <= left_s)
        order = np.argsort(-self._gain(), kind="stable")
        return [self.points[position] for position in order if eligible[position]][:most]

    def _warming_s(self, run_s: Array | float) -> Array:
        """Return how long runs of so many seconds are repeated until the device is warm, s."""
        return np.where(run_s < self._plan.warm_up_s, self._plan.warm_up_s, 0.0)

    def _gain(self) -> Array:
        if self._gained is None:
            times = self._times
            reference_s = self.best_s
            if reference_s is None:
                reference_s = float(np.median(times.center_s))
            self._gained = times.expected_improvement(reference_s)
        return self._gained

    @property
    def fastest(self) -> Trial:
        """The fastest of those that ran."""
        return fastest_of(self.ran)

    @property
    def ran(self) -> tuple[Trial, ...]:
        """Those that ran, in order."""
        return tuple(sorted(self.tried.values(), key=lambda trial: trial.at_s))

    @property
    def confirming_s(self) -> float:
        """Seconds to run the fastest again, and another one if that may be faster."""
        fastest, others = ties(tuple(self.tried.values()), floor=0.0)
        samples = fastest.samples_s[-self._plan.runs :]
        round_s = float(self._warming_s(samples[0])) + sum(samples)
        return (2 if others else 1) * (self._plan.rounds - 1) * round_s


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


def state_text(state: SearchState) -> str:
    """Write the state of a search on a line: the best, what may be gained, the time left."""
    if state.best_s is None:
        noun = "variant" if state.predicted == 1 else "variants"
        said = [f"{state.space}: {state.predicted} {noun} predicted, none ran yet"]
    else:
        said = [
            f"{state.space}: best {format_quantity(state.best_s, 's')} ({choice_text(state.best)})",
            f"{state.tried} of {state.predicted} ran",
        ]
    if state.expected_gain is not None and state.chance is not None:
        said.append(
            f"next: {format_percent(state.expected_gain)} faster on average,"
            f" {format_percent(state.chance)} chance that one left is faster"
        )
    if state.left_s is not None:
        said.append(f"{format_duration(state.left_s)} left")
    return "; ".join(said)
