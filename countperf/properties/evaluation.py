"""Values of counts, and whether assumptions hold, at sizes given as integers or arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from countperf.errors import ParameterError
from countperf.steps import stepped
from countperf.symbolic.compiled import CompiledCounts
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial

CountsAt = Callable[[Mapping[str, int]], Mapping[str, int]]


def counts_at_sizes(counts_at: CountsAt, values: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate counts without a formula, one by one where parameters are arrays."""
    shape = np.broadcast_shapes(*(np.shape(value) for value in values.values()))
    if not shape:
        return dict(counts_at({name: int(value) for name, value in values.items()}))
    rows = {name: np.broadcast_to(value, shape) for name, value in values.items()}
    found = {
        place: counts_at({name: int(row[place]) for name, row in rows.items()})
        for place in stepped(np.ndindex(shape), "following code", total=int(np.prod(shape)))
    }
    names = sorted({name for counts in found.values() for name in counts})
    arrays = {name: np.zeros(shape, np.int64) for name in names}
    for place, counts in found.items():
        for name, count in counts.items():
            arrays[name][place] = count
    return arrays


def value_of(expression: QuasiPolynomial, values: Mapping[str, Any]) -> Any:
    """Evaluate an integer expression at integers or arrays of them."""
    compiled = CompiledCounts(
        tuple(values), [(PiecewiseQuasiPolynomial.from_value(expression), True)]
    )
    if any(isinstance(value, np.ndarray) for value in values.values()):
        return compiled.at_arrays(values)[0]
    return compiled.at(values)[0]


def integers_of(kernel: str, name: str, value: Any) -> Any:
    """Return the value of a size as a Python integer or an array of integers; refuse others."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer | np.ndarray | list):
        is_whole = isinstance(value, Fraction) and value.denominator == 1
        if is_whole or (isinstance(value, float | np.floating) and float(value).is_integer()):
            return int(value)
        raise ParameterError(
            f"kernel '{kernel}': parameter {name} is {value!r}; pass an integer or an array of "
            "integers",
            parameter=name,
        )
    if isinstance(value, int | np.integer):
        return int(value)
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise ParameterError(
            f"kernel '{kernel}': parameter {name} is an array of {array.dtype}; pass integers",
            parameter=name,
        )
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        return array.astype(object)
    return array.astype(np.int64, copy=False)
