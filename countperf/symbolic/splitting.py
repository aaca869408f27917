"""Sets taken apart: by the values of a quotient, into products."""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from countperf.symbolic.isl_sets import IntegerSet, as_set, names_of
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.symbolic.sets import project_onto, restrict, under_assumptions

_MAXIMUM_QUOTIENTS = 8


def quotients(
    integer_set: IntegerSet,
    numerator: QuasiPolynomial,
    divisor: QuasiPolynomial,
    assumptions: IntegerSet | None,
) -> list[tuple[int, IntegerSet]] | None:
    """Return the values of the floor of a quotient on a set, and where it has them."""
    if not (numerator.is_affine and divisor.is_affine):
        return None
    whole = restrict(under_assumptions(integer_set, assumptions), nonnegative=[divisor - 1])
    found: list[tuple[int, IntegerSet]] = []
    for values in (range(_MAXIMUM_QUOTIENTS + 1), range(-1, -_MAXIMUM_QUOTIENTS - 2, -1)):
        for value in values:
            low = numerator - divisor * value
            beyond = low if value >= 0 else divisor - low - 1
            if restrict(whole, nonnegative=[beyond]).is_empty():
                break
            part = restrict(whole, nonnegative=[low, divisor - low - 1])
            if not part.is_empty():
                found.append((value, part))
        else:
            return None
    return found if len(found) <= _MAXIMUM_QUOTIENTS else None


def is_product(
    integer_set: IntegerSet,
    names: Sequence[str],
    nonnegative: Sequence[QuasiPolynomial],
    assumptions: IntegerSet | None,
) -> bool:
    """Return whether some dimensions are independent of the others within the guards."""
    kind = isl.dim_type.set
    whole = as_set(integer_set)
    outer = as_set(project_onto(whole, names))
    for position, name in enumerate(names_of(whole, parameters=False)):
        if name not in names:
            outer = outer.insert_dims(kind, position, 1).set_dim_name(kind, position, name)
    full = restrict(outer, nonnegative=nonnegative)
    return bool(under_assumptions(full, assumptions).is_subset(whole))
