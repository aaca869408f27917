"""Plain enumeration of integer sets: the oracle of counts at small parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import islpy as isl


def _at(integer_set: Any, parameters: Mapping[str, int]) -> Any:
    kind = isl.dim_type.param
    for position in range(integer_set.dim(kind)):
        name = integer_set.get_dim_name(kind, position)
        integer_set = integer_set.fix_val(kind, position, isl.Val(parameters[name]))
    return integer_set


def points(text: str, parameters: Mapping[str, int]) -> list[tuple[int, ...]]:
    """List the points of a set in isl's notation at given parameters."""
    integer_set = _at(isl.Set(text), parameters)
    dimensions = range(integer_set.dim(isl.dim_type.set))
    listed: list[tuple[int, ...]] = []

    def collect(point: Any) -> None:
        values = (point.get_coordinate_val(isl.dim_type.set, k) for k in dimensions)
        listed.append(tuple(value.to_python() for value in values))

    integer_set.foreach_point(collect)
    return listed


def weighted_sum(
    text: str, parameters: Mapping[str, int], weight: Callable[..., int] = lambda *_: 1
) -> int:
    """Sum a weight over the points of a set."""
    return sum(weight(*point) for point in points(text, parameters))


def extents(
    integer_set: Any, names: Collection[str], parameters: Mapping[str, int]
) -> dict[str, int]:
    """Return how many values some dimensions of a set run through, at given parameters."""
    whole = _at(isl.Set.from_basic_set(integer_set), parameters)
    sizes: dict[str, int] = {}
    for position in range(whole.dim(isl.dim_type.set)):
        name = whole.get_dim_name(isl.dim_type.set, position)
        if name in names:
            low, high = whole.dim_min_val(position), whole.dim_max_val(position)
            sizes[name] = high.to_python() - low.to_python() + 1
    return sizes
