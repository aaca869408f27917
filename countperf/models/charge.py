"""Charge of a kernel by fitted weights at given parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.predictions import Quantity


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Charge(ShortRepr):
    """A time, and what it is made of.

    Attributes
    ----------
    time_s : float or ndarray
        The time, s.
    values : dict from str to float or ndarray
        Feature values by key of the weights.
    terms : dict from str to float or ndarray
        What each term of the model comes to by itself, s, whatever hides it.
    changes : dict from str to float or ndarray
        Derivative of the time by each weight and parameter.
    parts : dict from str to float or ndarray
        The breakdown of the time, s.
    arguments : (ndarray of shape (n_columns, *shape), dict from str to float or ndarray)
        What the model's function was given: feature values, and names of the expression.
    gradient : ndarray, shape (n_unknowns, *shape)
        `changes` as rows.
    """

    time_s: Quantity
    values: dict[str, Quantity]
    terms: dict[str, Quantity]
    changes: dict[str, Quantity]
    parts: dict[str, Quantity]
    arguments: tuple[NDArray[np.float64], dict[str, Quantity]]
    gradient: NDArray[np.float64]
