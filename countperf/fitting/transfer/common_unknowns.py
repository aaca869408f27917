"""Designs and first guesses, over the unknowns that devices have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from countperf.fitting.design import Design
from countperf.models.function import Column, ModelFunction

_FIRST_SHARE = 0.05
"""Share of the time that a first guess gives each feature, in the median."""


def with_columns(design: Design, columns: Sequence[Column]) -> Design:
    """Return a design over given columns; those that it lacks are zero, others are dropped."""
    places = {column: position for position, column in enumerate(design.function.columns)}
    counts = np.zeros((len(design.times_s), len(columns)))
    for number, column in enumerate(columns):
        if column in places:
            counts[:, number] = design.counts[:, places[column]]
    function = ModelFunction(model=design.function.model, columns=tuple(columns))
    return replace(design, function=function, names=function.keys, counts=counts)


def guesses(design: Design) -> Callable[[Column], float | None]:
    """Return what guesses the logarithm of a weight: that of a small share of the time."""
    places = {column: position for position, column in enumerate(design.function.columns)}
    slopes = design.scaled

    def guess(column: Column) -> float | None:
        place = places.get(column)
        if place is None or not np.any(has := slopes[:, place] > 0):
            return None
        return float(np.log(_FIRST_SHARE * np.median(design.times_s[has] / slopes[has, place])))

    return guess
