"""Knowledge of variants in a search: which runs leave hope, what may be left, what is promising."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from countperf.tuning.posterior import Array, LogTimes, Posterior
from countperf.tuning.ranker import Predicted, Ranking
from countperf.tuning.refusals import Refused
from countperf.tuning.result import Key, Plan, Trial, as_key, fastest_of, ties
from countperf.tuning.space import Value

_FIRST_ALLOWANCE = 1.0
_ENOUGH = 3  # runs, two of which are no warm-up
_CHANCE = 0.2  # of being faster than what runs that agree say
_LARGEST_REGRET = 1 - 1e-6
_PRIOR_S = 0.3  # for building a variant, before any was built
FEWEST_RUNS = 2
_MOST = 2000
"""Candidates: the fastest by prediction; more would take longer to choose from than to build."""


def is_hopeless(samples_s: Sequence[float], best_s: float | None) -> bool:
    """Tell whether runs of a variant so far leave no hope of it being the fastest.

    The fastest of the runs has to exceed the best time known by an allowance for what later runs
    may gain: its whole after the first run, half of it after the second, and so on; less where
    three runs or more agree: with t1 and t2 the two shortest, it holds with a confidence of 0.8
    that no run takes less than ``t1 - 4*(t2 - t1)``.

    Source: Robson, Whitlock (1964), doi:10.1093/biomet/51.1-2.33.
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
    more show heads; of few the longest stands in (David, Nagaraja, 2003, "Order statistics", 7.1).
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


class Candidates:
    """The variants that are predicted to be fastest, and what was measured of them."""

    def __init__(self, parameters: Mapping[str, Sequence[Value]], plan: Plan) -> None:
        self._parameters = parameters
        self._plan = plan
        self._built_s: list[float] = []
        self._positions: dict[Key, int] = {}
        # variants, those that were not kept included, and those by their code
        self._predicted = (0, 0)
        self._dropped = 0  # of these, those that were not kept
        self._slowest_s = 0.0  # longest prediction of those that were kept, s
        self._learnt: tuple[Posterior, LogTimes] | None = None  # of all that is known now
        self.points: tuple[Predicted, ...] = ()
        self.tried: dict[Key, Trial] = {}
        self.refused: dict[Key, Refused] = {}

    def look(self, ranking: Ranking) -> None:
        """Take over what was predicted meanwhile."""
        if self.points and (ranking.predicted, ranking.read) == self._predicted:
            return
        kept = {as_key(point.choice): point for point in ranking.best[:_MOST]}
        self._dropped = ranking.predicted - len(kept)
        self._slowest_s = max((point.time_s for point in kept.values()), default=0.0)
        for key, tried in self.tried.items():  # by earlier sessions, or when fewer were known
            before = Predicted(choice=tried.choice, time_s=tried.predicted_s, model=tried.model)
            kept.setdefault(key, before)
        self._predicted = ranking.predicted, ranking.read
        self._positions = {key: position for position, key in enumerate(kept)}
        self._learnt = None
        self.points = tuple(kept.values())

    def learn(self, tried: Trial, build_s: float | None = None) -> None:
        """Learn from a variant's times, and from the time of building it, s."""
        self._learnt = None
        self.tried[as_key(tried.choice)] = tried
        self._built_s += [] if build_s is None else [build_s]

    def refuse(self, refused: Refused) -> None:
        """Take a variant out that failed."""
        self.refused[as_key(refused.choice)] = refused

    def _learn(self) -> tuple[Posterior, LogTimes]:
        """Return what is known of all candidates' times."""
        if self._learnt is None:
            posterior = Posterior(
                self._parameters,
                [point.choice for point in self.points],
                [point.time_s for point in self.points],
                parts=[point.parts for point in self.points],
                groups=[",".join((point.model, *point.missing)) for point in self.points],
                prior_scatter=self._plan.prior_scatter,
            )
            for key, tried in self.tried.items():
                posterior.add(self._positions[key], tried.time_s)
            self._learnt = posterior, posterior.log_times()
        return self._learnt

    @property
    def fastest(self) -> Trial:
        """The fastest of those that ran."""
        return fastest_of(self.ran)

    @property
    def best_s(self) -> float | None:
        """Shortest time so far, s."""
        return self.fastest.time_s if self.tried else None

    @property
    def ran(self) -> tuple[Trial, ...]:
        """Those that ran, in order."""
        return tuple(sorted(self.tried.values(), key=lambda trial: trial.at_s))

    @property
    def remaining(self) -> NDArray[np.bool_]:
        """Candidates that were not tried."""
        remaining = np.ones(len(self.points), np.bool_)
        done = (self._positions.get(key) for key in (*self.tried, *self.refused))
        remaining[[position for position in done if position is not None]] = False
        return remaining

    @property
    def known(self) -> int:
        """Number of variants that have a prediction and did not fail."""
        failed = sum(key in self._positions for key in self.refused)
        return len(self.points) + self._dropped - failed

    @property
    def chance(self) -> float:
        """Bound of the probability that what is left beats the best by more than the tolerance."""
        if self.best_s is None:
            return 1.0
        return chance_of_better(self._rest(), self.best_s, self._plan.tolerance)

    def _gain(self) -> Array:
        """Return the expected improvement over the best; before that, over the median prediction.

        Source: Snoek, Larochelle, Adams (2012), arXiv:1206.2944.
        """
        _, times = self._learn()
        return times.compute_expected_improvement(self.best_s or float(np.median(times.center_s)))

    def promising(self, left_s: float, most: int) -> list[Predicted]:
        """Choose variants to try, the most promising first; none if no time is left for any."""
        eligible = self.remaining
        if self.tried or self.refused:  # the first one is always tried
            center_s = self._learn()[1].center_s
            run_s = FEWEST_RUNS * center_s + self._warming_s(center_s)
            build_s = float(np.mean(self._built_s)) if self._built_s else _PRIOR_S
            eligible = eligible & (build_s + run_s <= left_s)
        order = np.argsort(-self._gain(), kind="stable")
        return [self.points[position] for position in order if eligible[position]][:most]

    def regret(self, winner: Trial) -> float:
        """Bound by which fraction of a variant's median run the fastest takes less."""
        confidence = self._plan.confidence
        median_s = median_limit(winner.samples_s, (1 + confidence) / 2)
        others = (tried for tried in self.tried.values() if tried is not winner)
        others_s = (least_hope(t.samples_s) if t.cut_short else t.time_s for t in others)
        measured = max(0.0, 1 - min(others_s, default=median_s) / median_s)
        if not self.remaining.any() and not self._dropped:
            return measured
        return max(measured, regret_bound(self._rest(), median_s, confidence))

    def _rest(self) -> Rest:
        """Return all that was not measured: candidates, and what was not kept as one."""
        posterior, times = self._learn()
        dropped = [(posterior.unknown(self._slowest_s), self._dropped)] if self._dropped else []
        return [(times.of(self.remaining), 1), *dropped]

    def _warming_s(self, run_s: Array | float) -> Array:
        """Return how long runs of so many seconds are repeated until the device is warm, s."""
        return np.where(run_s < self._plan.warm_up_s, self._plan.warm_up_s, 0.0)

    @property
    def confirming_s(self) -> float:
        """Seconds to run the fastest again, and another one if that may be faster."""
        fastest, others = ties(tuple(self.tried.values()), floor=0.0)
        samples = fastest.samples_s[-self._plan.runs :]
        round_s = float(self._warming_s(samples[0])) + sum(samples)
        return (2 if others else 1) * (self._plan.rounds - 1) * round_s
