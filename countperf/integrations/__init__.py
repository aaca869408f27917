"""Plug-ins for the tuners of others; each needs the package that it plugs into.

They choose as `countperf.tune` does, and take any cost function that ranks configurations, or none:
a fitted model, a mechanistic one, or times of another device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from countperf.errors import CountperfError, ParameterError
from countperf.tuning.space import Choice

Cost: TypeAlias = Callable[[dict[str, Any]], float]
"""Function from a configuration to predicted seconds; what it cannot predict it refuses with a
`CountperfError`, or returns nan or infinity."""


def predict_times(cost: Cost, configurations: Sequence[Choice]) -> NDArray[np.float64]:
    """Return the predicted time of each configuration, s; nan where there is none."""
    times = np.full(len(configurations), np.nan)
    reason = "all predictions are nan or infinite"
    for position, configuration in enumerate(configurations):
        try:
            time_s = float(cost(dict(configuration)))
        except CountperfError as error:
            reason = str(error)
            continue
        if time_s <= 0:
            said = f"the cost function returns {time_s} for {dict(configuration)}"
            mend = "it has to return seconds, or nan where it has no prediction"
            raise ParameterError(f"{said}: {mend}", parameter="cost")
        times[position] = time_s if math.isfinite(time_s) else np.nan
    if np.isnan(times).all():
        said = f"the cost function predicts none of {len(configurations)} configurations: {reason}"
        raise ParameterError(f"{said}; leave it out to search without a model", parameter="cost")
    return times
