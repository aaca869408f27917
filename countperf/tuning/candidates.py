"""What a search knows of the variants that may be the fastest, and which one it tries next."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from countperf.tuning.building import BuildTimes
from countperf.tuning.measuring import FEWEST_RUNS
from countperf.tuning.points import Predicted, Refused
from countperf.tuning.posterior import Array, LogTimes, Posterior
from countperf.tuning.ranking import Ranking
from countperf.tuning.result import Key, Plan, Tried, as_key
from countperf.tuning.space import SearchSpace
from countperf.tuning.stopping import Rest, chance_of_better, regret_bound, select

MOST = 2000
"""Candidates: the fastest by prediction; more would take longer to choose from than to build."""

_WORTH_WAITING = 0.2  # gain of a variant that is built already, in that of the most promising
_PATIENCE = 0.05  # share of what is left of the budget against which times are small


class Candidates:
    """The variants that are predicted to be fastest, and what was measured of them.

    Parameters
    ----------
    space : SearchSpace
        What they are of.
    plan : Plan
        Confidence and tolerance of the search.

    Attributes
    ----------
    points : tuple of Predicted
        The candidates, the fastest by prediction first.
    tried : dict from key to Tried
        Those that ran.
    refused : dict from key to Refused
        Those that failed on the device.
    """

    def __init__(self, space: SearchSpace, plan: Plan) -> None:
        self._space = space
        self._plan = plan
        self._places: dict[Key, int] = {}
        self._builds = BuildTimes()
        self._written: Array = np.empty(0)
        self._posterior: Posterior
        self._found: LogTimes | None = None  # of the posterior as it is
        self._ranking: Ranking | None = None
        self.points: tuple[Predicted, ...] = ()
        self.tried: dict[Key, Tried] = {}
        self.refused: dict[Key, Refused] = {}

    # {{{ what is known

    def look(self, ranking: Ranking) -> None:
        """Take over what was predicted meanwhile."""
        before = self._ranking
        if before is not None and ranking.predicted == before.predicted:
            return
        self._ranking = ranking = replace(ranking, best=ranking.best[:MOST])
        kept = {as_key(point.choice): point for point in ranking.best}
        for tried in self.tried.values():  # by earlier sessions, or when fewer were known
            kept.setdefault(
                as_key(tried.choice), Predicted(choice=tried.choice, time_s=tried.predicted_s)
            )
        self.points = tuple(kept.values())
        self._places = {key: place for place, key in enumerate(kept)}
        self._found = None
        self._written = np.array([point.written for point in self.points], np.float64)
        self._posterior = Posterior(
            self._space,
            [point.choice for point in self.points],
            [point.time_s for point in self.points],
            parts=[point.parts for point in self.points],
            groups=[",".join(point.missing) for point in self.points],
            prior_scatter=self._plan.prior_scatter,
        )
        for key, tried in self.tried.items():
            self._posterior.add(self._places[key], tried.time_s)

    def learn(self, tried: Tried, build_s: float | None = None) -> None:
        """Learn from a variant's times, and from the time of building it, s."""
        key = as_key(tried.choice)
        self.tried[key] = tried
        place = self._places[key]
        self._posterior.add(place, tried.time_s)
        self._found = None
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
    def best_s(self) -> float | None:
        """Shortest time so far, s."""
        return min((tried.time_s for tried in self.tried.values()), default=None)

    @property
    def remaining(self) -> NDArray[np.bool_]:
        """Which candidates were not tried."""
        remaining = np.ones(len(self.points), np.bool_)
        done = [self._places[key] for key in (*self.tried, *self.refused) if key in self._places]
        remaining[done] = False
        return remaining

    # }}}

    # {{{ when to stop

    @property
    def is_confident(self) -> bool:
        """Whether what is left has no chance, at the plan's confidence."""
        best_s = self.best_s
        if best_s is None:
            return False
        return chance_of_better(self._rest(), best_s, self._plan.tolerance) <= (
            1 - self._plan.confidence
        )

    @property
    def regret(self) -> float:
        """By which fraction of the best time what is left may still be faster."""
        best_s = self.best_s
        assert best_s is not None
        assert self._ranking is not None
        if not self.remaining.any() and self._ranking.predicted == len(self._ranking.best):
            return 0.0
        return regret_bound(self._rest(), best_s, self._plan.confidence)

    def _rest(self) -> tuple[Rest, ...]:
        """Return all that was not measured: candidates, and what was not kept as one."""
        assert self._ranking is not None
        dropped = self._ranking.predicted - len(self._ranking.best)
        candidates = Rest(times=select(self._times, self.remaining))
        if not dropped:
            return (candidates,)
        cutoff = self._posterior.unknown(self._ranking.best[-1].time_s)
        return candidates, Rest(times=cutoff, count=dropped)

    # }}}

    # {{{ what to try next

    def promising(
        self, left_s: float, built: Collection[Key], *, most: int = 2, together: bool = False
    ) -> list[Predicted]:
        """Choose the variant to try, and those to be built meanwhile; none if no time is left.

        It is the one of the largest expected improvement, where seconds are scarce by the time that
        it takes to find out (Snoek, Larochelle, Adams 2012, section 3.2, arXiv:1206.2944); times
        that are small against what is left count as equal. Before anything is measured, an
        improvement is one over the median of the predictions.

        Parameters
        ----------
        left_s : float
            What is left of the budget, s; infinite if it is none of seconds.
        built : collection of key
            Which ones are built already.
        most : int
            How many to choose at most.
        together : bool
            Whether several are built at a time, so that nothing is while one that is built is
            tried.
        """
        times = self._times
        cost_s = self._builds.expected_s(self._written) + FEWEST_RUNS * times.center_s
        eligible = self.remaining
        if self.tried or self.refused:  # the first one is always tried
            eligible = eligible & (cost_s <= left_s)
        gain = np.where(eligible, self._gain(times), -1.0)
        if left_s < np.inf:
            gain = gain / (cost_s + _PATIENCE * left_s)
        order = np.argsort(-gain, kind="stable")[: min(most + len(built), int(eligible.sum()))]
        places = [int(place) for place in order]
        if not places:
            return []
        known = {self._places[key] for key in built if key in self._places}
        ready = {place for place in known if eligible[place]}
        first = max(sorted(ready), key=lambda place: gain[place], default=places[0])
        if gain[first] < _WORTH_WAITING * gain[places[0]]:
            first = places[0]
        following = [place for place in places if place != first and place not in ready]
        if together and first in ready:
            following = []
        return [self.points[place] for place in (first, *following[: most - 1])]

    def _gain(self, times: LogTimes) -> Array:
        reference_s = self.best_s
        if reference_s is None:
            reference_s = float(np.median(times.center_s))
        return times.expected_improvement(reference_s)

    def finalists(self, confirmed: Iterable[Key]) -> list[Tried]:
        """Return the fastest ones that were not run once more."""
        known = set(confirmed)
        order = sorted(self.tried, key=lambda key: self.tried[key].time_s)
        return [self.tried[key] for key in order[: self._plan.finalists] if key not in known]

    # }}}
