"""Sets that the elimination refuses: summed by barvinok where it is there, bounded on request.

`islpy-barvinok` (GPL) replaces `islpy` by a build whose sets have ``card`` and whose piecewise
quasi-polynomials have ``sum``. countperf never needs it, and uses it for this remainder only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import islpy as isl

from countperf.symbolic.isl_sets import IntegerSet, limited_operations, names_of
from countperf.symbolic.quasipolynomial import QuasiPolynomial

Summation: TypeAlias = Callable[[IntegerSet, QuasiPolynomial], Any]
"""Sums a weight over a set; returns a piecewise quasi-polynomial of isl in the parameters."""

_DT = isl.dim_type

MEND = (
    "install islpy-barvinok in place of islpy, which counts such sets, or pass approximate=True "
    "for an upper bound"
)

_BOX_OPERATIONS = 5_000_000


def installed_barvinok() -> Summation | None:
    """Return barvinok's summation if the installed islpy is built with it."""
    return sum_by_barvinok if hasattr(isl.Set, "card") else None


def sum_by_barvinok(integer_set: IntegerSet, weight: QuasiPolynomial) -> Any:
    """Sum a weight over the points of a set with barvinok."""
    whole: Any = isl.Set.from_basic_set(integer_set) if _is_basic(integer_set) else integer_set
    if weight.is_constant:
        return whole.card().scale_val(isl.Val(str(weight.constant_term)))
    dimensions = ", ".join(names_of(whole, parameters=False))
    names = sorted(
        {*names_of(whole, parameters=True), *weight.names()} - set(dimensions.split(", "))
    )
    head = f"[{', '.join(names)}] -> " if names else ""
    function: Any = isl.PwQPolynomial(f"{head}{{ [{dimensions}] -> {weight} }}")
    return function.intersect_domain(whole.align_params(function.get_domain_space())).sum()


def _is_basic(integer_set: IntegerSet) -> bool:
    return isinstance(integer_set, isl.BasicSet)


def box_of(
    integer_set: IntegerSet, lifted: int, assumptions: IntegerSet | None
) -> tuple[IntegerSet, list[Any]] | None:
    """Return the smallest box around a set's hull, for an upper bound of its number of points."""
    with limited_operations(_BOX_OPERATIONS, f"the bounding box of {integer_set}"):
        hull = _hull(integer_set, lifted)
        if assumptions is not None:
            hull = hull.intersect_params(assumptions)
        extents: list[Any] = []
        for position in range(hull.dim(_DT.set)):
            if not (
                hull.dim_has_lower_bound(_DT.set, position)
                and hull.dim_has_upper_bound(_DT.set, position)
            ):
                return None
            extent = hull.dim_max(position).sub(hull.dim_min(position))
            extents.append(extent.add_constant_val(isl.Val(1)))
        return hull.params(), extents


def _hull(integer_set: IntegerSet, lifted: int) -> Any:
    whole: Any = isl.Set.from_basic_set(integer_set) if _is_basic(integer_set) else integer_set
    whole = whole.project_out(_DT.set, whole.dim(_DT.set) - lifted, lifted)
    return isl.Set.from_basic_set(whole.remove_divs().simple_hull())
