"""Sums over a dimension: closed forms of powers, and floors in what is summed."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb, gcd, lcm

from countperf.errors import UncountableSetError
from countperf.symbolic.quasipolynomial import ONE, ZERO, Floor, QuasiPolynomial
from countperf.symbolic.tiles import Polyhedron


def floors_in(weight: QuasiPolynomial, name: str) -> list[Floor]:
    """Return the floors of the weight that involve a name, in a fixed order."""
    floors = [f for f in weight.floors() if name in f.numerator.names()]
    return sorted(floors, key=lambda f: f.key)


def reduced_coefficient(floor: Floor, name: str) -> int:
    """Return the coefficient of a name in a floor, reduced to at most half the denominator.

    Zero stands for a numerator that is not affine with the name outside inner floors: such a
    floor is not lifted.
    """
    if not floor.numerator.is_linear:
        return 0
    coefficient = int(floor.numerator.terms.get(((name, 1),), 0))
    return coefficient - floor.denominator if 2 * coefficient > floor.denominator else coefficient


def lift_floor(
    polyhedron: Polyhedron, weight: QuasiPolynomial, floor: Floor, name: str
) -> tuple[Polyhedron, QuasiPolynomial]:
    """Replace a floor by a new dimension, with the two rows that define it."""
    names = polyhedron.parameters + polyhedron.dimensions
    d = floor.denominator
    fresh = _fresh_name(names)
    replacement = QuasiPolynomial.name(fresh)
    row = [0] * (1 + len(names))
    for monomial, value in floor.numerator.terms.items():
        row[0 if not monomial else 1 + names.index(str(monomial[0][0]))] = int(value)
    reduced = reduced_coefficient(floor, name)
    if row[1 + names.index(name)] != reduced:
        row[1 + names.index(name)] = reduced
        replacement = replacement + QuasiPolynomial.name(name)
    lower = (*row, -d)
    upper = (-row[0] + d - 1, *(-c for c in row[1:]), d)
    lifted = Polyhedron(
        polyhedron.parameters,
        (*polyhedron.dimensions, fresh),
        tuple((*r, 0) for r in polyhedron.equalities),
        (*((*r, 0) for r in polyhedron.inequalities), lower, upper),
    )
    return lifted, weight.map_atoms(lambda atom: replacement if atom == floor else None)


def period_of(floor: Floor, name: str) -> int:
    """Return a modulus m such that replacing the name by m times itself frees the floor of it."""
    period = 1
    for monomial, value in floor.numerator.terms.items():
        for atom, exponent in monomial:
            if atom == name:
                if len(monomial) > 1 or exponent > 1:
                    raise UncountableSetError(
                        f"{floor} cannot be summed over {name}: it is no floor of an affine "
                        "expression"
                    )
                period = lcm(period, floor.denominator // gcd(floor.denominator, int(value)))
            elif isinstance(atom, Floor) and name in atom.numerator.names():
                inner = period_of(atom, name)
                outer = floor.denominator // gcd(floor.denominator, int(value))
                period = lcm(period, inner * outer)
    return period


def _fresh_name(names: Sequence[str]) -> str:
    number = 0
    while f"_q{number}" in names:
        number += 1
    return f"_q{number}"


# --- Sums of quasi-polynomials over intervals of a name, by Faulhaber's formula


@lru_cache(64)
def power_sum_coefficients(exponent: int) -> tuple[Fraction, ...]:
    r"""Return the coefficients of Faulhaber's polynomial.

    Found from :math:`(N+1)^{k+1} - 1 = \sum_j \binom{k+1}{j} S_j(N)`, Graham, Knuth, Patashnik
    (1994), Concrete Mathematics, Eq. (6.78) and section 2.5. Here :math:`S_0(N) = N`.
    """
    total = [Fraction(comb(exponent + 1, j)) for j in range(exponent + 2)]
    total[0] -= 1
    for lower in range(exponent):
        factor = comb(exponent + 1, lower)
        for j, value in enumerate(power_sum_coefficients(lower)):
            total[j] -= factor * value
    return tuple(value / (exponent + 1) for value in total)


def sum_over(
    weight: QuasiPolynomial, name: str, lower: QuasiPolynomial, upper: QuasiPolynomial
) -> QuasiPolynomial:
    """Sum a quasi-polynomial over a name from `lower` to `upper`, both included."""
    before = lower - 1
    result = ZERO
    for exponent, coefficient in weight.coefficients_in(name).items():
        if exponent == 0:
            result = result + coefficient * (upper - before)
            continue
        partial = ZERO
        upper_power = before_power = ONE
        for value in power_sum_coefficients(exponent)[1:]:
            upper_power = upper_power * upper
            before_power = before_power * before
            partial = partial + (upper_power - before_power) * value
        result = result + coefficient * partial
    return result
