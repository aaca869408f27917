"""Sets that cover others, and the extremes of an expression on a set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import islpy as isl

from countperf.errors import CountingError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.quasipolynomial import QuasiPolynomial


def is_all_or_nothing(part: isl_sets.IntegerSet, whole: isl_sets.IntegerSet, name: str) -> bool:
    """Return whether a set has all values of a dimension that another has, at any other values."""
    names = isl_sets.names_of(whole, parameters=False)
    order = [QuasiPolynomial.name(n) for n in names]
    covered, everything = (sets.image(domain, order) for domain in (part, whole))
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
    whole, inside = (sets.image(domain, order) for domain in (integer_set, part))
    if assumptions is not None:
        inside = inside.intersect_params(sets.union([assumptions]).params())
    return bool(inside.is_subset(whole))


# --- Smallest and largest values of integer expressions over sets of isl


_DT = isl.dim_type


def at_values(
    integer_set: isl_sets.IntegerSet, values: Mapping[str, int]
) -> tuple[isl_sets.IntegerSet, tuple[str, ...]]:
    """Fix the parameters of a set whose values are known, and eliminate the others."""
    names = isl_sets.names_of(integer_set, parameters=True)
    result = sets.at_values(integer_set, {name: values[name] for name in names if name in values})
    unknown = isl_sets.names_of(result, parameters=True)
    eliminated = tuple(
        name for k, name in enumerate(unknown) if result.involves_dims(_DT.param, k, 1)
    )
    return result.project_out(_DT.param, 0, len(unknown)), eliminated


def contains_values(parameter_set: isl_sets.IntegerSet | None, values: Mapping[str, int]) -> bool:
    """Return whether parameters may have these values, whatever those of the others are."""
    if parameter_set is None:
        return True
    return not at_values(parameter_set, values)[0].is_empty()


def ends_along(
    integer_set: isl_sets.IntegerSet, name: str, known: Iterable[str]
) -> tuple[Any, Any]:
    """Return the smallest and the largest value of a dimension where others have known values."""
    names = list(known)
    line = sets.as_parameters(sets.project_onto(integer_set, [*names, name]), names)
    try:
        return line.dim_min(0).coalesce(), line.dim_max(0).coalesce()
    except isl.Error as error:
        raise CountingError(f"{name} has no bounds") from error


def extremes(
    integer_set: isl_sets.IntegerSet, expressions: Sequence[QuasiPolynomial]
) -> tuple[tuple[int, int], ...] | None:
    """Find the smallest and the largest value of affine expressions over a set, exactly."""
    if integer_set.is_empty():
        return None
    pairs: list[tuple[int, int]] = []
    for expression in expressions:
        aff = sets.as_aff(expression, integer_set.get_space())
        bounds = (integer_set.min_val(aff), integer_set.max_val(aff))
        if not all(bound.is_int() for bound in bounds):
            raise CountingError(f"{expression} has no bounds")
        pairs.append((bounds[0].to_python(), bounds[1].to_python()))
    return tuple(pairs)
