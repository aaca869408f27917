"""Subscripts that data decide, at the values that the data have.

First the interval of each subscript is found from the smallest and largest elements. Where that may
leave the array, the points at which the access is executed are gone through, with the conditions
under which it is, and as C computes: then what lies outside is accessed. What has too many points,
or cannot be followed, is reported as not checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.counting.extents import ArrayAccess, accesses_of
from countperf.counting.index_arrays import followed_limits, ranges_of, shapes_of_temporaries
from countperf.counting.index_points import Points, TooManyPointsError
from countperf.errors import CountingError

_FAILURES = (CountingError, NotImplementedError, KeyError, TypeError, ValueError, RecursionError)
"""Of following a subscript; whether it leaves its array is not known then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideAccess:
    """An access that leaves its array."""

    access: str  # the access, as it is written: ``load x[col[i]]``
    # the axis on which it leaves the array, and its length
    axis: int
    extent: int
    value: int
    at: Mapping[str, int]  # loop variables there
    sources: tuple[str, ...]  # arrays that decide the subscript


@dataclass(frozen=True, slots=True, kw_only=True)
class UncheckedAccess:
    """An access that may leave its array, and cannot be looked at."""

    # as in `OutsideAccess`
    access: str
    axis: int
    extent: int
    # interval in which its subscripts lie; None if it is not known
    low: int | None
    high: int | None
    sources: tuple[str, ...]
    reason: str = ""  # why it cannot be followed; empty if it has too many points


def deciding_arrays(kernel: Any, accesses: Sequence[ArrayAccess]) -> frozenset[str]:
    """Return the arrays that decide the subscripts of accesses, or whether they are executed."""
    points = Points(kernel, {}, {}, {})
    return frozenset(
        name
        for access in accesses
        for index in access.index
        for name in points.arrays_behind(access, index)
    )


def find_outside(
    kernel: Any,
    scalars: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    given: Mapping[str, NDArray[Any]],
    accesses: Sequence[ArrayAccess] | None = None,
) -> OutsideAccess | UncheckedAccess | None:
    """Find an access whose subscript, or whose execution, data decide, and that leaves its array.

    `given` are contents of arrays before the launch; by default all accesses are looked at that
    data decide.
    """
    sizes = {n: int(v) for n, v in scalars.items() if isinstance(v, int | np.integer)}
    all_shapes = {**shapes_of_temporaries(kernel, sizes), **shapes}
    followed = followed_limits(kernel, sizes, all_shapes, ranges_of(given))
    points = Points(kernel, scalars, all_shapes, given)
    unchecked: UncheckedAccess | None = None
    for access in accesses_of(kernel) if accesses is None else accesses:
        extents = all_shapes.get(access.array)
        if extents is None or access.is_flat or len(access.index) != len(extents):
            continue
        for axis, (index, extent) in enumerate(zip(access.index, extents, strict=True)):
            sources = points.arrays_behind(access, index)
            if (accesses is None and not sources) or _is_inside(followed, index, extent):
                continue
            at_place: dict[str, Any] = {
                "access": access.text,
                "axis": axis,
                "extent": int(extent),
                "sources": sources,
            }
            reason = ""
            try:
                leaving = points.outside(access, index, extent)
            except TooManyPointsError:
                if _is_inside(replace(followed, is_strict=False), index, extent):
                    continue
            except _FAILURES as error:
                reason = str(error) or type(error).__name__
            else:
                if leaving is not None:
                    value, at = leaving
                    return OutsideAccess(value=value, at=at, **at_place)
                continue
            low, high = _interval(followed, index)
            unchecked = unchecked or UncheckedAccess(low=low, high=high, reason=reason, **at_place)
    return unchecked


def _is_inside(followed: Any, index: Any, extent: int) -> bool:
    low, high = _interval(followed, index)
    if low is None or high is None:
        return False
    return low > high or (low >= 0 and high < extent)


def _interval(followed: Any, index: Any) -> tuple[int, int] | tuple[None, None]:
    try:
        return followed.interval(index)
    except _FAILURES:
        return None, None
