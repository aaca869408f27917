"""Sets that cover others: instructions that all items execute in all iterations."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from countperf.symbolic import isl_sets, sets
from countperf.symbolic.quasipolynomial import QuasiPolynomial


def is_all_or_nothing(part: isl_sets.IntegerSet, whole: isl_sets.IntegerSet, name: str) -> bool:
    """Return whether a set has all values of a dimension that another has, at any other values."""
    names = isl_sets.names_of(whole, parameters=False)
    order = [QuasiPolynomial.name(n) for n in names]
    covered, everything = (sets.image(each, order) for each in (part, whole))
    position = names.index(name)
    shadow = covered.project_out(isl.dim_type.set, position, 1).insert_dims(
        isl.dim_type.set, position, 1
    )
    shadow = shadow.set_dim_name(isl.dim_type.set, position, f"_i{position}")
    return bool((everything & shadow).is_subset(covered))


def widened_along(
    integer_set: isl_sets.IntegerSet, ranges: Mapping[str, tuple[int, int]]
) -> isl_sets.IntegerSet:
    """Let some dimensions take all values of constant ranges, where they take any value."""
    result = sets.union([integer_set])
    for name, (low, high) in ranges.items():
        position = isl_sets.names_of(result, parameters=False).index(name)
        result = result.project_out(isl.dim_type.set, position, 1).insert_dims(
            isl.dim_type.set, position, 1
        )
        result = result.set_dim_name(isl.dim_type.set, position, name)
        result = result.lower_bound_val(isl.dim_type.set, position, isl.Val(low))
        result = result.upper_bound_val(isl.dim_type.set, position, isl.Val(high))
    return result


def contains(
    integer_set: isl_sets.IntegerSet,
    part: isl_sets.IntegerSet,
    assumptions: isl_sets.IntegerSet | None,
) -> bool:
    """Return whether a set contains another one of the same dimensions, on the assumptions."""
    order = [QuasiPolynomial.name(n) for n in isl_sets.names_of(part, parameters=False)]
    whole, inside = (sets.image(each, order) for each in (integer_set, part))
    if assumptions is not None:
        inside = inside.intersect_params(sets.union([assumptions]).params())
    return bool(inside.is_subset(whole))
