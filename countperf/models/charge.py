"""Charge of a kernel by fitted weights at given parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.predictions import Quantity


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Charge(ShortRepr):
    """A time, and what it is made of."""

    time_s: Quantity
    values: dict[str, Quantity]  # features by key of the weights
    parts: dict[str, Quantity]  # the breakdown of the time, s
    changes: dict[str, Quantity]  # derivatives of the time by weights: rows of `scaled`, by key
    scales: dict[str, Quantity]  # of terms
    features: NDArray[np.float64]  # shape (n_columns, *shape)
    scaled: NDArray[np.float64]  # the same times the scales of their terms
