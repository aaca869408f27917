"""Surrogate of the predictions, which chooses the points to predict next.

Predictions take time, too. What a model says of points that are alike in most parameters is alike,
so that it can be estimated by kernel ridge regression: of the logarithm of predicted times, with a
kernel that multiplies over the parameters, as in `countperf.tuning.posterior`. Once variants are
measured, what they say of the predictions (`Surrogate.correct`) takes their place. The estimates
decide nothing but the order in which points are predicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from countperf.tuning.posterior import Array, alike, ranks
from countperf.tuning.result import Key, as_key
from countperf.tuning.space import Choice, SearchSpace

MOST = 256
"""Points from which others are estimated: the latest ones."""

_RIDGE = 0.02


class Surrogate:
    """Estimates predicted times of points from those of others."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._choices: list[Choice] = []
        self._times: list[float | None] = []
        self._corrected: Mapping[Key, float] = {}

    def correct(self, times_s: Mapping[Key, float]) -> None:
        """Take these times for those of points, s, in place of the predicted ones."""
        self._corrected = times_s

    def add(self, choice: Choice, time_s: float | None) -> None:
        """Learn from the predicted time of a point, s; None if it has none."""
        self._choices.append(choice)
        self._times.append(time_s)
        del self._choices[:-MOST], self._times[:-MOST]

    def order(self, choices: Sequence[Choice]) -> list[int]:
        """Return the positions of points, those first that should have the shortest times."""
        times = [
            None if time_s is None else self._corrected.get(as_key(choice), time_s)
            for choice, time_s in zip(self._choices, self._times, strict=True)
        ]
        known = [time_s for time_s in times if time_s is not None]
        if not known:
            return list(range(len(choices)))
        slowest = max(known)  # what has no prediction is as good as that
        logarithms = np.log([slowest if t is None else t for t in times])
        codes, numeric = ranks(self._space, [*self._choices, *choices])
        there, asked = codes[: len(self._choices)], codes[len(self._choices) :]
        center = float(np.mean(logarithms))
        among = _kernel(there, there, numeric) + _RIDGE * np.eye(len(there))
        weights = np.linalg.solve(among, logarithms - center)
        estimates = _kernel(asked, there, numeric) @ weights
        return [int(place) for place in np.argsort(estimates, kind="stable")]


def _kernel(some: Array, others: Array, numeric: NDArray[np.bool_]) -> Array:
    product = np.ones((len(some), len(others)))
    for column, is_number in enumerate(numeric):
        apart = np.abs(some[:, column, None] - others[None, :, column])
        product *= (1 + alike(apart, is_number)) / 2
    return product
