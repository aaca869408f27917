"""Smallest and largest values of integer expressions over sets of isl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import islpy as isl

from countperf.errors import CountingError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.quasipolynomial import QuasiPolynomial

_DT = isl.dim_type


def at_values(
    integer_set: isl_sets.IntegerSet, values: Mapping[str, int]
) -> tuple[isl_sets.IntegerSet, tuple[str, ...]]:
    """Fix the parameters of a set whose values are known, and eliminate the others."""
    result = isl_sets.as_set(integer_set)
    eliminated: list[str] = []
    for place, name in enumerate(isl_sets.names_of(result, parameters=True)):
        if name in values:
            result = result.fix_val(_DT.param, place, isl.Val(str(int(values[name]))))
        elif result.involves_dims(_DT.param, place, 1):
            eliminated.append(name)
    result = result.project_out(_DT.param, 0, result.dim(_DT.param))
    return result, tuple(eliminated)


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
    found: list[tuple[int, int]] = []
    for expression in expressions:
        aff = sets.as_aff(expression, integer_set.get_space())
        bounds = (integer_set.min_val(aff), integer_set.max_val(aff))
        if not all(bound.is_int() for bound in bounds):
            raise CountingError(f"{expression} has no bounds")
        found.append((bounds[0].to_python(), bounds[1].to_python()))
    return tuple(found)
