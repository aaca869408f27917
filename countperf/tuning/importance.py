r"""Importance of the parameters of a space, from the configurations that ran.

A parameter's importance is the share of the variance of the logarithm of times that its value alone
explains, the first-order effect

.. math:: S_q = \operatorname{Var}_q(\operatorname{E}[\ln t \mid q]) / \operatorname{Var}(\ln t).

Searches measure promising configurations more often than others, so that it describes what ran, not
the whole space. Of n configurations a parameter of k values without any effect is expected to
explain (k - 1)/(n - 1) by chance. Interactions are what is left to 1.

Source: Sobol' (2001), doi:10.1016/S0378-4754(00)00270-6, equation 8 (first-order effects).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from countperf.errors import ParameterError
from countperf.tuning.space import Choice


def parameter_importance(
    configurations: Sequence[Choice], times_s: Sequence[float]
) -> dict[str, float]:
    """Return the importance of each parameter that varies, the largest first."""
    if len(times_s) < 3:
        raise ParameterError(
            f"{len(times_s)} configurations ran: too few to tell which parameters matter; measure"
            " more",
            parameter="configurations",
        )
    logs = np.log(np.asarray(times_s, np.float64))
    whole = float(((logs - logs.mean()) ** 2).sum())
    found: dict[str, float] = {}
    for name in configurations[0]:
        values = [each[name] for each in configurations]
        groups = [logs[[value == one for value in values]] for one in dict.fromkeys(values)]
        if len(groups) == 1:
            continue
        between = sum(len(group) * float(group.mean() - logs.mean()) ** 2 for group in groups)
        found[name] = between / whole if whole else 0.0
    return dict(sorted(found.items(), key=lambda item: -item[1]))
