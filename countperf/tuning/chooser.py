"""The choice of the configuration to measure next, among those of an explicit list."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from countperf.errors import ParameterError
from countperf.tuning.posterior import Draw, Posterior
from countperf.tuning.space import Choice

FIRST = 8
"""Configurations that are drawn at random before any is chosen by what is known; 2 with a model."""

_MOST = 2000  # configurations that are chosen from: the fastest by prediction, or some at random
_OFTEN = 100  # measurements up to which each one is learnt from at once
_SELDOM = 10  # beyond those, so many are waited for
_FAILED = 1.5  # what failed counts as this multiple of the slowest time


class Chooser:
    """Chooses the configuration with the largest expected improvement, as `countperf.tune` does.

    Without predicted times all configurations are held to be as fast as the first one that ran.
    """

    def __init__(
        self,
        configurations: Sequence[Choice],
        predicted_s: NDArray[np.float64] | None = None,
        *,
        first: int = FIRST,
        seed: int = 0,
    ) -> None:
        if not configurations:
            raise ParameterError(
                "there is no configuration to search: pass at least one", parameter="configurations"
            )
        if predicted_s is None:
            predicted_s = np.ones(len(configurations))
            order = np.random.default_rng(seed).permutation(len(configurations))
        else:
            predicted_s = np.where(np.isnan(predicted_s), np.nanmax(predicted_s), predicted_s)
            order = np.argsort(predicted_s, kind="stable")
            first = max(2, first // 4)
        self._left = dict.fromkeys(order.tolist())
        self._count = len(configurations)
        self._places = {place: position for position, place in enumerate([*self._left][:_MOST])}
        self._configurations = [configurations[place] for place in self._places]
        self._predicted_s = predicted_s[list(self._places)]
        self._parameters = {
            name: list(dict.fromkeys(each[name] for each in self._configurations))
            for name in configurations[0]
        }
        self._first = first
        self._posterior: Posterior | None = None
        self._drawn: dict[tuple[float, ...], tuple[Draw, ...]] = {}
        self._gain: NDArray[np.float64] | None = None
        self._times_s: dict[int, float] = {}

    @property
    def best(self) -> int:
        """Position of the fastest configuration so far; the first one if none ran."""
        return min(self._times_s, key=self._times_s.__getitem__, default=0)

    def tell(self, place: int, time_s: float | None) -> None:
        """Learn what a configuration took, s; None for one that failed."""
        self._left.pop(place, None)
        position = self._places.get(place)
        if time_s is not None:
            self._times_s[place] = time_s
            if self._posterior is None and position is not None:
                scale = time_s / self._predicted_s[position]
                self._posterior = Posterior(
                    self._parameters,
                    self._configurations,
                    scale * self._predicted_s,
                    drawn=self._drawn,
                )
        elif self._times_s:
            time_s = _FAILED * max(self._times_s.values())
        if self._posterior is not None and position is not None and time_s is not None:
            self._posterior.add(position, time_s)

    def ask(self) -> int | None:
        """Return the position of the configuration to measure next; None if all were told."""
        if not self._left:
            return None
        told = self._count - len(self._left)
        next_one = next(iter(self._left))
        if self._posterior is None or told < self._first or next_one not in self._places:
            return next_one
        if self._gain is None or told < _OFTEN or told % _SELDOM == 0:
            best_s = self._times_s[self.best]
            self._gain = self._posterior.log_times().expected_improvement(best_s)
        gain = self._gain
        there = (place for place in self._places if place in self._left)
        return max(there, key=lambda place: gain[self._places[place]])
