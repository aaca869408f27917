"""Designs, first guesses and shares of time, over the unknowns that devices have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from countperf.fitting.design import Design
from countperf.fitting.solve import Matrix
from countperf.models.function import Column, ModelFunction

_FIRST_SHARE = 0.05
"""Share of the time that a first guess gives each feature, in the median."""

_NOTHING = 60.0
_TINY_S = 1e-15


def with_columns(design: Design, columns: Sequence[Column]) -> Design:
    """Return a design over given columns; those that it lacks are zero, others are dropped."""
    places = {column: place for place, column in enumerate(design.function.columns)}
    counts = np.zeros((len(design.times_s), len(columns)))
    for number, column in enumerate(columns):
        if column in places:
            counts[:, number] = design.counts[:, places[column]]
    function = ModelFunction(model=design.function.model, columns=tuple(columns))
    return replace(design, function=function, names=function.keys, counts=counts)


def guesses(design: Design) -> Callable[[Column], float | None]:
    """Return what guesses the logarithm of a weight: that of a small share of the time."""
    places = {column: place for place, column in enumerate(design.function.columns)}
    slopes = design.scaled

    def guess(column: Column) -> float | None:
        place = places.get(column)
        if place is None or not np.any(has := slopes[:, place] > 0):
            return None
        return float(np.log(_FIRST_SHARE * np.median(design.times_s[has] / slopes[has, place])))

    return guess


def shares_of(design: Design, logs: Sequence[float | None]) -> Matrix:
    """Return the shares of their times that cases spend on each unknown, shape (n, n_unknowns)."""
    known = np.array([-_NOTHING if log is None else log for log in logs])
    parts = design.scaled * np.exp(known)
    return parts / (parts.sum(axis=1, keepdims=True) + _TINY_S)
