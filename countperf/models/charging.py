"""Charge the features of a kernel by weights, and correct the time by similar kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.errors import ModelNotApplicableError
from countperf.models.breakdown import CORRECTION
from countperf.models.correction import profile
from countperf.models.function import ColumnKey, ModelInputs
from countperf.models.predictions import Quantity, Verdict
from countperf.models.validity import LAUNCH, Level, Where, log_quantile, raise_to_launch
from countperf.models.weight_document import WeightDocument
from countperf.text import ShortRepr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Charge(ShortRepr):
    """A time, and what it is made of."""

    time_s: Quantity
    values: dict[str, Quantity]  # features by key of the weights
    parts: dict[str, Quantity]  # the breakdown of the time, s
    changes: dict[str, Quantity]  # derivatives of the time by weights: rows of `scaled`, by key


def charge_inputs(weights: WeightDocument, inputs: ModelInputs) -> Charge:
    """Charge what the model sees of a kernel; what has no weight is left out."""
    function = weights.function
    amounts: dict[ColumnKey, Quantity] = {}
    for own, amount in inputs.values.items():
        column = function.find_column(own)
        amounts[column] = amounts[column] + amount if column in amounts else amount
    rows = [amounts.get(column, 0.0) for column in function.columns]
    shape = np.broadcast_shapes(*map(np.shape, (*rows, *inputs.variables.values())))
    full = [np.broadcast_to(row, shape) for row in rows] if shape else rows
    values = np.array(full, np.float64)
    scaled = function.scaled(values, inputs.variables)
    unknowns = np.asarray(weights.unknowns, np.float64)
    times = _at_each_size(lambda row: np.tensordot(unknowns, row, 1), scaled)
    if not np.all(np.isfinite(times)):
        raise ModelNotApplicableError(
            f"the {weights.model} model gives no finite time here: a derived feature divides by"
            " zero, or takes the logarithm of what is not positive"
        )
    return Charge(
        time_s=_plain(times),
        values={key: _plain(row) for key, row in zip(function.keys, values, strict=True)},
        changes={key: _plain(row) for key, row in zip(function.keys, scaled, strict=True)},
        parts={
            key: _plain(weight * row)
            for key, weight, row in zip(function.keys, weights.unknowns, scaled, strict=True)
            if np.any(row != 0)
        },
    )


def correct_charge(
    weights: WeightDocument, charge: Charge
) -> tuple[Quantity, dict[str, Quantity], tuple[Verdict, ...]]:
    """Return the time that is predicted, s, its parts, s, and what it is corrected by."""
    time_s, parts, verdicts = charge.time_s, charge.parts, ()
    if (correction := weights.correction) is not None:
        values, scaled = (np.array([*d.values()]) for d in (charge.values, charge.changes))
        columns, known = weights.function.columns, cache(correction.of_columns)

        def log_factor_at(row: NDArray[np.float64], changes: NDArray[np.float64]) -> Quantity:
            roots, logs = profile(columns, row, changes, weights.unknowns)
            there = np.flatnonzero(roots + logs)
            return known(tuple(there))(roots[there], logs[there])

        log_factor = _plain(_at_each_size(log_factor_at, values, scaled))
        time_s = _plain(np.asarray(charge.time_s * np.exp(log_factor)))
        parts = {**parts, CORRECTION: time_s - charge.time_s}
        told = profile(columns, values, scaled, weights.unknowns)
        verdicts = (correction.verdict(log_factor, told),)
    raised = raise_to_launch(time_s, weights.shortest_launch_s)
    added = raised - time_s
    return raised, {**parts, LAUNCH: added} if np.any(added) else parts, verdicts


def find_missing(weights: WeightDocument, inputs: ModelInputs) -> dict[str, Where]:
    """Return the features and names that the kernel has and the fit had not, and where."""
    known, find = set(weights.function.columns), weights.function.find_column
    names = weights.definition.base_properties
    amounts = {
        **{c[1]: n for c, n in inputs.values.items() if find(c) not in known},
        **{names.get(n, n): v for n, v in inputs.variables.items() if n not in weights.ranges},
        **{name: inputs.issued[name] for name in inputs.unknown},
    }
    places = {name: np.asarray(amount) != 0 for name, amount in amounts.items()}
    return {name: where for name, where in places.items() if np.any(where)}


def find_log_reach(weights: WeightDocument, charge: Charge, level: Level) -> Quantity:
    """Return what ``|log(predicted / measured)|`` stays below; NaN if nothing is known."""
    if weights.quality is None or weights.source is None:
        return np.nan if weights.quality is None else log_quantile(weights.quality, level)
    rank = len(weights.weights) - sum(len(g.relations) for g in weights.indistinguishable)
    errors = zip(weights.weights, charge.changes.values(), strict=True)
    squares = (((weight.standard_error_s or 0.0) * row) ** 2 for weight, row in errors)
    error = np.sqrt(sum(squares)) / np.maximum(charge.time_s, np.finfo(np.float64).tiny)
    freedom = weights.source.cases - rank
    return log_quantile(weights.quality, level, freedom=freedom, error=error)


def _plain(row: NDArray[np.float64]) -> Quantity:
    return row if row.ndim else float(row)


def _at_each_size(function: Callable[..., Any], *rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Call a function at each size by itself: BLAS rounds otherwise at several sizes at once."""
    shape = rows[0].shape[1:]
    columns = [np.ascontiguousarray(some.reshape(len(some), -1).T) for some in rows]
    return np.array([function(*at) for at in zip(*columns, strict=True)], float).reshape(shape)
