"""Plain enumeration of integer sets: the oracle of counts at small parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import islpy as isl


def points(text: str, parameters: Mapping[str, int]) -> list[tuple[int, ...]]:
    """List the points of a set in isl's notation at given parameters."""
    integer_set: Any = isl.Set(text)
    kind = isl.dim_type.param
    for position in range(integer_set.dim(kind)):
        name = integer_set.get_dim_name(kind, position)
        integer_set = integer_set.fix_val(kind, position, isl.Val(parameters[name]))
    found: list[tuple[int, ...]] = []
    dimensions = integer_set.dim(isl.dim_type.set)

    def collect(point: Any) -> None:
        found.append(
            tuple(
                point.get_coordinate_val(isl.dim_type.set, k).to_python() for k in range(dimensions)
            )
        )

    integer_set.foreach_point(collect)
    return found


def weighted_sum(
    text: str, parameters: Mapping[str, int], weight: Callable[..., int] = lambda *_: 1
) -> int:
    """Sum a weight over the points of a set."""
    return sum(weight(*point) for point in points(text, parameters))


def extents(
    integer_set: Any, names: Collection[str], parameters: Mapping[str, int]
) -> dict[str, int]:
    """Return how many values some dimensions of a set run through, at given parameters."""
    kinds = isl.dim_type
    whole: Any = isl.Set.from_basic_set(integer_set)
    for position in range(whole.dim(kinds.param)):
        name = whole.get_dim_name(kinds.param, position)
        whole = whole.fix_val(kinds.param, position, isl.Val(parameters[name]))
    found: dict[str, int] = {}
    for position in range(whole.dim(kinds.set)):
        name = whole.get_dim_name(kinds.set, position)
        if name in names:
            low, high = whole.dim_min_val(position), whole.dim_max_val(position)
            found[name] = high.to_python() - low.to_python() + 1
    return found


def holds(assumptions: str, parameters: Mapping[str, int]) -> bool:
    """Tell whether parameters lie in a parameter set in isl's notation."""
    integer_set: Any = isl.Set(assumptions)
    kind = isl.dim_type.param
    for position in range(integer_set.dim(kind)):
        name = integer_set.get_dim_name(kind, position)
        integer_set = integer_set.fix_val(kind, position, isl.Val(parameters[name]))
    return not integer_set.is_empty()
