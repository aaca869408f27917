"""Designs, first guesses and shares of time, over the unknowns that devices have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from countperf.fitting.design import Design
from countperf.fitting.solve import Matrix
from countperf.fitting.transfer.penalised import Times
from countperf.fitting.transfer.prior import PARAMETER
from countperf.models.function import Column, ModelFunction

_FIRST_SHARE = 0.05
"""Share of the time that a first guess gives each feature, in the median."""

_NOTHING = 60.0


def with_columns(design: Design, columns: Sequence[Column]) -> Design:
    """Return a design over given columns; those that it lacks are zero, others are dropped."""
    places = {column: place for place, column in enumerate(design.function.columns)}
    weights = tuple(column for column in columns if column[0] != PARAMETER)
    counts = np.zeros((len(design.times_s), len(weights)))
    for number, column in enumerate(weights):
        if column in places:
            counts[:, number] = design.counts[:, places[column]]
    function = ModelFunction(model=design.function.model, columns=weights)
    names = function.keys[: len(weights)]
    return replace(design, function=function, names=names, counts=counts)


def guesses(design: Design) -> Callable[[Column], float | None]:
    """Return what guesses the logarithm of a weight: that of a small share of the time."""
    times_of = Times(design.function, design)
    places = {column: place for place, column in enumerate(design.function.columns)}
    declared = design.function.model.all_parameters
    slopes = times_of.slopes(np.ones(len(design.function.keys)))

    def guess(column: Column) -> float | None:
        if column[0] == PARAMETER:
            return float(np.log(declared[column[1]].start or 1.0))
        place = places.get(column)
        if place is None or not np.any(has := slopes[:, place] > 0):
            return None
        return float(np.log(_FIRST_SHARE * np.median(design.times_s[has] / slopes[has, place])))

    return guess


def shares_of(design: Design, logs: Sequence[float | None]) -> Matrix:
    """Return the shares of their times that cases spend on each unknown, shape (n, n_unknowns)."""
    known = np.array([-_NOTHING if log is None else log for log in logs])
    return Times(design.function, design)(known)[1]
