"""Prior of a device that is known itself: its own weights, which may have changed in groups.

Clocks, memory and neighbors of a machine change. Launches, work on chip, the last-level cache,
memory and address translation change together, single weights beside their group a little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from countperf.fitting.solve import LogPrior, Vector
from countperf.fitting.transfer.prior import LARGEST_SPREAD, KnownDevice, KnownModel
from countperf.models.function import Column

_CHANGE = 0.5
"""Standard deviation of the logarithm of a group's change, before anything is run."""

_OF_ITS_OWN = 0.03
"""That of what a single weight changes beside its group."""

_BY_NAME = {
    "address translation": ("out_of_reach",),
    "memory": ("beyond_llc",),
    "last-level cache": ("beyond_l2", "beyond_streams", "_lines_", ".l2_reuse"),
}
"""Groups of weights by what names of their features have."""


def groups_of(columns: Sequence[Column]) -> dict[str, Vector]:
    """Return the groups of weights that change together: launches, work on chip, memory."""
    names = [_group(column) for column in columns]
    return {
        name: np.array([float(each == name) for each in names])
        for name in dict.fromkeys(names)
        if name
    }


def _group(column: Column) -> str:
    term, feature = column
    if term == "launch":
        return "launches"
    for name, marks in _BY_NAME.items():
        if any(mark in feature for mark in marks):
            return name
    return "work on chip"


def changed_prior(
    known: KnownModel,
    own: KnownDevice,
    columns: Sequence[Column],
    guess: Callable[[Column], float | None],
) -> LogPrior:
    """Return the prior of a known device's weights."""
    logs = dict(zip(known.columns, own.logs, strict=True))
    mean, variance = np.empty(len(columns)), np.full(len(columns), _OF_ITS_OWN**2)
    for number, column in enumerate(columns):
        log = logs.get(column)
        if log is None:
            log, variance[number] = guess(column), LARGEST_SPREAD**2
        mean[number] = -30.0 if log is None else log
    covariance = np.diag(variance)
    for members in groups_of(columns).values():
        covariance += _CHANGE**2 * np.outer(members, members)
    return LogPrior(mean=mean, covariance=covariance)
