"""Counts of properties, symbolic in the sizes, with what one unit of each is executed by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from countperf.counting.keys import Granularity
from countperf.display import shortened
from countperf.errors import GranularityError, ParameterError
from countperf.properties.site_names import GROUP_SHAPE
from countperf.steps import stepped
from countperf.symbolic.compiled import CompiledCounts
from countperf.symbolic.isl_counts import to_isl_text
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Count of one property, symbolic in the parameters.

    Counts of one granularity add up, by ``+`` and by ``sum``; an integer times a count is a
    count of the same granularity.

    Attributes
    ----------
    quantity : PiecewiseQuasiPolynomial
        The count.
    granularity : Granularity
        What one unit is executed by.
    exact : bool
        Whether the count is what is executed; else it rests on what the caller passed.
    reason : str
        Why it is not exact; empty if it is.
    integral : bool
        Whether its values are integers; not where it was scaled by a fraction.

    Raises
    ------
    GranularityError
        The granularity is no `Granularity`, or counts of different granularities are added.

    Examples
    --------
    >>> three = Count(quantity=PiecewiseQuasiPolynomial.from_value(3))
    >>> str(sum([three, 2 * three]))
    '{ 9 }'
    """

    quantity: PiecewiseQuasiPolynomial
    granularity: Granularity = Granularity.WORK_ITEM
    exact: bool = True
    reason: str = ""
    integral: bool = True

    def __post_init__(self) -> None:
        if type(self.granularity) is not Granularity:
            listed = ", ".join(str(member) for member in Granularity)
            raise GranularityError(
                f"{self.granularity!r} is no granularity of a count; pass a member of Granularity "
                f"({listed})"
            )

    def __add__(self, other: Count) -> Count:
        if self.granularity is not other.granularity:
            raise GranularityError(
                f"counts per {self.granularity.value} and per {other.granularity.value} cannot be "
                "added; keep them apart, or evaluate them and convert explicitly"
            )
        reasons = {r for part in (self.reason, other.reason) for r in part.split("; ") if r}
        return Count(
            quantity=self.quantity + other.quantity,
            granularity=self.granularity,
            exact=self.exact and other.exact,
            reason="; ".join(sorted(reasons)),
            integral=self.integral and other.integral,
        )

    def __radd__(self, other: int) -> Count:
        """Let ``sum`` start at its 0."""
        return self if other == 0 else NotImplemented

    def __mul__(self, factor: int | Fraction) -> Count:
        integral = self.integral and factor == int(factor)
        return replace(self, quantity=self.quantity.scale(factor), integral=integral)

    __rmul__ = __mul__

    def __str__(self) -> str:
        """Return isl's piecewise quasi-polynomial; our own notation where guards are not affine."""
        return to_isl_text(self.quantity) or str(self.quantity)

    def __repr__(self) -> str:
        exact = "" if self.exact else ", not exact"
        return shortened(f"Count({self}, each by a {self.granularity.value}{exact})")


_GRANULARITIES = {
    **dict.fromkeys(("groups", *GROUP_SHAPE), Granularity.WORK_GROUP),
    "launches": Granularity.LAUNCH,
}


def granularity_of(name: str) -> Granularity:
    """Return what one unit of a property is executed by."""
    return _GRANULARITIES.get(name, Granularity.WORK_ITEM)


# --- Values of counts, and whether assumptions hold, at sizes given as integers or arrays


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
