"""Polyhedra with fewer dimensions: tiled loops fused, dimensions projected out.

And sums over a dimension: closed forms of powers, and floors in what is summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb, gcd, lcm
from typing import TypeAlias

from countperf.errors import UncountableSetError
from countperf.symbolic.quasipolynomial import ONE, ZERO, Floor, QuasiPolynomial
from countperf.text import ShortRepr

Row: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Polyhedron(ShortRepr):
    """Integer points that satisfy affine equalities and inequalities."""

    # names of the columns: a row holds the constant, then a coefficient for each parameter, then
    # one for each dimension
    parameters: tuple[str, ...]
    dimensions: tuple[str, ...]
    # ``row . (1, parameters, dimensions) = 0`` or ``>= 0``
    equalities: tuple[Row, ...]
    inequalities: tuple[Row, ...]


def row_polynomial(row: Row, names: Sequence[str]) -> QuasiPolynomial:
    """Return a row as an affine expression in the names of its columns."""
    return QuasiPolynomial.affine(
        [(name, c) for name, c in zip(names, row[1:], strict=False) if c], row[0]
    )


def describe(polyhedron: Polyhedron) -> str:
    """Return the set in isl's notation, for messages."""
    names = polyhedron.parameters + polyhedron.dimensions
    rows = [f"{row_polynomial(r, names)} = 0" for r in polyhedron.equalities]
    rows += [f"{row_polynomial(r, names)} >= 0" for r in polyhedron.inequalities]
    head = f"[{', '.join(polyhedron.parameters)}] -> " if polyhedron.parameters else ""
    return f"{head}{{ [{', '.join(polyhedron.dimensions)}] : {' and '.join(rows)} }}"


def fuse_tiles(polyhedron: Polyhedron, kept: AbstractSet[str]) -> Polyhedron:
    """Undo tilings: replace (o, t) with 0 <= t < d by i = d o + t where only i matters."""
    while True:
        fused = _fuse_one_tile(polyhedron, kept)
        if fused is None:
            return polyhedron
        polyhedron = fused


def _fuse_one_tile(polyhedron: Polyhedron, kept: AbstractSet[str]) -> Polyhedron | None:
    first = 1 + len(polyhedron.parameters)
    rows = polyhedron.inequalities
    for column in range(first, first + len(polyhedron.dimensions)):
        if polyhedron.dimensions[column - first] in kept:
            continue
        alone = [r for r in rows if r[column] and not any(r[1:column]) and not any(r[column + 1 :])]
        if len(alone) != 2 or {r[column] for r in alone} != {1, -1}:
            continue
        if next(r for r in alone if r[column] == 1)[0]:
            continue
        width = next(r for r in alone if r[column] == -1)[0] + 1
        joint = [r for r in (*rows, *polyhedron.equalities) if r[column] and r not in alone]
        outer = {
            k
            for r in joint
            for k in range(first, len(r))
            if k != column and r[k] == width * r[column]
        }
        for k in outer:
            if polyhedron.dimensions[k - first] in kept:
                continue
            aligned = _align_tile_columns(polyhedron, column, k, width, kept)
            if aligned is None:
                continue
            if any(abs(r[k]) > 1 for r in aligned.inequalities if r[k] and not r[column]):
                continue
            return _fuse_columns(aligned, column, k, width)
    return None


def _align_tile_columns(
    polyhedron: Polyhedron, tile: int, outer: int, width: int, kept: AbstractSet[str]
) -> Polyhedron | None:
    """Shear other dimensions so that rows know the tile's columns by their sum only, else None.

    With e = e' + q o, a row's coefficient of o grows by q times that of e.
    """
    first = 1 + len(polyhedron.parameters)

    def is_alone(row: Row) -> bool:
        return not any(row[1:tile]) and not any(row[tile + 1 :])

    def gap(row: Row) -> int:
        return width * row[tile] - row[outer]

    def has_gaps(candidate: Polyhedron) -> bool:
        return any(map(gap, candidate.equalities)) or any(
            row[tile] and gap(row) and not is_alone(row) for row in candidate.inequalities
        )

    for column in range(first, first + len(polyhedron.dimensions)):
        if not has_gaps(polyhedron):
            return polyhedron
        if column in (tile, outer) or polyhedron.dimensions[column - first] in kept:
            continue
        rows = (*polyhedron.equalities, *polyhedron.inequalities)
        quotients = {divmod(gap(row), row[column]) for row in rows if row[column]}
        if len(quotients) != 1:
            continue
        ((quotient, remainder),) = quotients
        if not quotient or remainder:
            continue

        def shear_row(row: Row, column: int = column, quotient: int = quotient) -> Row:
            value = row[outer] + quotient * row[column]
            return (*row[:outer], value, *row[outer + 1 :])

        polyhedron = Polyhedron(
            polyhedron.parameters,
            polyhedron.dimensions,
            tuple(map(shear_row, polyhedron.equalities)),
            tuple(map(shear_row, polyhedron.inequalities)),
        )
    return None if has_gaps(polyhedron) else polyhedron


def _fuse_columns(polyhedron: Polyhedron, tile: int, outer: int, width: int) -> Polyhedron:
    position = tile - 1 - len(polyhedron.parameters)

    def rewritten(row: Row) -> Row:
        values = list(row)
        if row[tile]:
            values[outer] = row[tile]
        elif row[outer]:
            values = [c * width for c in row]
            values[outer] = row[outer]
            values[0] += width - 1 if row[outer] < 0 else 0
        del values[tile]
        return tuple(values)

    return Polyhedron(
        polyhedron.parameters,
        polyhedron.dimensions[:position] + polyhedron.dimensions[position + 1 :],
        tuple(rewritten(row) for row in polyhedron.equalities),
        tuple(
            rewritten(row)
            for row in polyhedron.inequalities
            if not (row[tile] and not any(row[1:tile]) and not any(row[tile + 1 :]))
        ),
    )


def without_determined(polyhedron: Polyhedron, kept: AbstractSet[str]) -> Polyhedron:
    """Drop dimensions that have exactly one value at each point of the others.

    Such a dimension x has two rows only, ``d x <= e`` and ``e <= d x + d - 1``: it is the floor of
    e/d, such as the number of the tile that a point lies in.
    """
    first = 1 + len(polyhedron.parameters)
    if any(any(row[first:]) for row in polyhedron.equalities):
        return polyhedron
    columns = first + len(polyhedron.dimensions)
    for column in reversed(range(first, columns)):
        rows = [row for row in polyhedron.inequalities if row[column]]
        if polyhedron.dimensions[column - first] in kept or len(rows) != 2:
            continue
        total = [a + b for a, b in zip(*rows, strict=True)]
        if any(total[1:]) or total[0] != abs(rows[0][column]) - 1:
            continue
        position = column - first
        polyhedron = Polyhedron(
            polyhedron.parameters,
            polyhedron.dimensions[:position] + polyhedron.dimensions[position + 1 :],
            tuple(row[:column] + row[column + 1 :] for row in polyhedron.equalities),
            tuple(
                row[:column] + row[column + 1 :]
                for row in polyhedron.inequalities
                if not row[column]
            ),
        )
    return polyhedron


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
