"""Search strategy for Kernel Tuner (1.3 and later), by its interface for user-defined strategies.

>>> from kernel_tuner import tune_kernel  # doctest: +SKIP
>>> from kernel_tuner.strategies.wrapper import OptAlgWrapper  # doctest: +SKIP
>>> from countperf.integrations.kernel_tuner import PosteriorStrategy  # doctest: +SKIP
>>> tune_kernel(..., strategy=OptAlgWrapper(PosteriorStrategy()),  # doctest: +SKIP
...             strategy_options={"max_fevals": 50})

Source: Kernel Tuner's documentation, "User-defined optimization strategies"
(``kernel_tuner.strategies.wrapper.OptAlg``).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from countperf.errors import ParameterError
from countperf.integrations import Cost, predict_times
from countperf.tuning.posterior import FIRST, Chooser

_MS = 1e-3
_INVALID = sys.float_info.max / 2  # Kernel Tuner's cost of what failed is above it


class PosteriorStrategy:
    """Strategy that measures where the expected improvement is largest.

    The objective has to be positive and better where it is smaller, as Kernel Tuner's default
    objective, the time, is; of an objective that is better where it is larger, Kernel Tuner passes
    the negative, and the reciprocal is searched.
    """

    def __init__(self, cost: Cost | None = None, *, first: int = FIRST, seed: int = 0) -> None:
        self.costfunc_kwargs = {"scaling": False, "snap": False}
        self._cost = cost
        self._first = first
        self._seed = seed

    def __call__(self, func: Any, searchspace: Any) -> tuple[tuple[Any, ...], float]:
        """Search until Kernel Tuner's budget is spent or all configurations were measured."""
        names = list(searchspace.tune_params)
        values = [tuple(value) for value in searchspace.list]
        configurations = [dict(zip(names, value, strict=True)) for value in values]
        predicted_s = None
        if self._cost is not None:
            predicted_s = predict_times(self._cost, configurations)
        chooser = Chooser(configurations, predicted_s, first=self._first, seed=self._seed)
        best: tuple[tuple[Any, ...], float] = ((), sys.float_info.max)
        while (index := chooser.ask()) is not None:
            if isinstance(value := func(values[index]), list):
                said = "this strategy searches by one objective: pass objective=, not objectives="
                raise ParameterError(said, parameter="objectives")
            objective = float(value)
            chooser.tell(index, _time_like(objective))
            if objective < best[1]:
                best = values[index], objective
        return best


def _time_like(objective: float) -> float | None:
    """Return something positive that is better where it is smaller; None for what failed."""
    if not np.isfinite(objective) or objective > _INVALID or objective == 0:
        return None
    return objective * _MS if objective > 0 else -1 / objective
