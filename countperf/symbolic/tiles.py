"""Polyhedra with fewer dimensions: tiled loops fused, dimensions projected out.

And sums over a dimension: closed forms of powers, and floors in what is summed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import compress, count
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

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns but that of the constant."""
        return self.parameters + self.dimensions

    @property
    def first(self) -> int:
        """The column of the first dimension."""
        return 1 + len(self.parameters)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Equalities and inequalities."""
        return self.equalities + self.inequalities

    def map_rows(self, change: Callable[[Row], Row], *, without: str = "") -> Polyhedron:
        """Change each row, which may lose the column of a dimension."""
        return Polyhedron(
            self.parameters,
            tuple([name for name in self.dimensions if name != without]),
            tuple([change(row) for row in self.equalities]),
            tuple([change(row) for row in self.inequalities]),
        )

    def drop(self, name: str) -> Polyhedron:
        """Drop the column of a dimension."""
        column = 1 + self.names.index(name)
        return self.map_rows(lambda row: row[:column] + row[column + 1 :], without=name)

    def add_column(self, column: int, factors: Mapping[int, int]) -> Polyhedron:
        """Add multiples of a column to others."""
        return self.map_rows(
            lambda row: tuple([c + factors.get(k, 0) * row[column] for k, c in enumerate(row)])
        )

    def find_components(self, together: AbstractSet[str] = frozenset()) -> list[set[str]]:
        """Partition the dimensions by shared rows; some of them belong together."""
        first = self.first
        groups = [{*compress(self.dimensions, row[first:])} for row in self.rows]
        components: list[set[str]] = []
        for group in (*groups, together, *({name} for name in self.dimensions)):
            if group:
                touching = [c for c in components if c & group]
                merged = set(group).union(*touching)
                components = [c for c in components if c not in touching] + [merged]
        return components

    def take_apart(self, component: AbstractSet[str]) -> Polyhedron:
        """Return the rows of one component; of none, those in parameters alone."""
        first = self.first
        columns = [k for k, n in enumerate(self.dimensions, start=first) if n in component]
        names = tuple([self.dimensions[k - first] for k in columns])

        def select(rows: Iterable[Row]) -> tuple[Row, ...]:
            if not columns:
                return tuple([row[:first] for row in rows if not any(row[first:])])
            parts = ((row[:first], tuple([row[k] for k in columns])) for row in rows)
            return tuple([head + part for head, part in parts if any(part)])

        return Polyhedron(
            self.parameters, names, select(self.equalities), select(self.inequalities)
        )


def row_polynomial(row: Row, names: Sequence[str]) -> QuasiPolynomial:
    """Return a row as an affine expression in the names of its columns."""
    return QuasiPolynomial.affine(
        [(name, c) for name, c in zip(names, row[1:], strict=False) if c], row[0]
    )


def describe(polyhedron: Polyhedron) -> str:
    """Return the set in isl's notation, for messages."""
    rows = [f"{row_polynomial(r, polyhedron.names)} = 0" for r in polyhedron.equalities]
    rows += [f"{row_polynomial(r, polyhedron.names)} >= 0" for r in polyhedron.inequalities]
    head = f"[{', '.join(polyhedron.parameters)}] -> " if polyhedron.parameters else ""
    return f"{head}{{ [{', '.join(polyhedron.dimensions)}] : {' and '.join(rows)} }}"


def fuse_tiles(polyhedron: Polyhedron, kept: AbstractSet[str]) -> Polyhedron:
    """Undo tilings: replace (o, t) with 0 <= t < d by i = d o + t where only i matters."""
    while True:
        fused = _fuse_one_tile(polyhedron, kept)
        if fused is None:
            return polyhedron
        polyhedron = fused


def _is_alone(row: Row, column: int) -> bool:
    return not any(row[1:column]) and not any(row[column + 1 :])


def _fuse_one_tile(polyhedron: Polyhedron, kept: AbstractSet[str]) -> Polyhedron | None:
    first, names = polyhedron.first, polyhedron.dimensions
    for column, name in enumerate(names, start=first):
        if name in kept:
            continue
        alone = [r for r in polyhedron.inequalities if r[column] and _is_alone(r, column)]
        alone.sort(key=lambda row: -row[column])
        if [row[column] for row in alone] != [1, -1] or alone[0][0]:
            continue
        width = alone[1][0] + 1
        joint = [r for r in polyhedron.rows if r[column] and r not in alone]
        outer = {
            k
            for r in joint
            for k in range(first, len(r))
            if k != column and r[k] == width * r[column]
        }
        for k in outer:
            if names[k - first] in kept:
                continue
            aligned = _align_tile_columns(polyhedron, column, k, width, kept)
            if aligned is not None and not any(
                abs(r[k]) > 1 for r in aligned.inequalities if not r[column]
            ):
                return _fuse_columns(aligned, column, k, width)
    return None


def _align_tile_columns(
    polyhedron: Polyhedron, tile: int, outer: int, width: int, kept: AbstractSet[str]
) -> Polyhedron | None:
    """Shear other dimensions so that rows know the tile's columns by their sum only, else None.

    With e = e' + q o, a row's coefficient of o grows by q times that of e.
    """

    def gap(row: Row) -> int:
        return width * row[tile] - row[outer]

    def has_gaps(candidate: Polyhedron) -> bool:
        return any(map(gap, candidate.equalities)) or any(
            row[tile] and gap(row) and not _is_alone(row, tile) for row in candidate.inequalities
        )

    for column, name in enumerate(polyhedron.dimensions, start=polyhedron.first):
        if not has_gaps(polyhedron):
            return polyhedron
        if column in (tile, outer) or name in kept:
            continue
        quotients = {divmod(gap(row), row[column]) for row in polyhedron.rows if row[column]}
        if len(quotients) == 1:
            ((quotient, remainder),) = quotients
            if quotient and not remainder:
                polyhedron = polyhedron.add_column(column, {outer: quotient})
    return None if has_gaps(polyhedron) else polyhedron


def _fuse_columns(polyhedron: Polyhedron, tile: int, outer: int, width: int) -> Polyhedron:
    def rewrite(row: Row) -> Row:
        values = list(row)
        if row[tile]:
            values[outer] = row[tile]
        elif row[outer]:
            values = [c * width for c in row]
            values[outer] = row[outer]
            values[0] += width - 1 if row[outer] < 0 else 0
        del values[tile]
        return tuple(values)

    others = tuple(r for r in polyhedron.inequalities if not (r[tile] and _is_alone(r, tile)))
    joint = replace(polyhedron, inequalities=others)
    return joint.map_rows(rewrite, without=polyhedron.names[tile - 1])


def without_determined(polyhedron: Polyhedron, kept: AbstractSet[str]) -> Polyhedron:
    """Drop dimensions that have exactly one value at each point of the others.

    Such a dimension x has two rows only, ``d x <= e`` and ``e <= d x + d - 1``: it is the floor of
    e/d, such as the number of the tile that a point lies in.
    """
    if any(any(row[polyhedron.first :]) for row in polyhedron.equalities):
        return polyhedron
    for name in reversed(polyhedron.dimensions):
        column = 1 + polyhedron.names.index(name)
        rows = [row for row in polyhedron.inequalities if row[column]]
        if name in kept or len(rows) != 2:
            continue
        total = [a + b for a, b in zip(*rows, strict=True)]
        if not any(total[1:]) and total[0] == abs(rows[0][column]) - 1:
            others = tuple([row for row in polyhedron.inequalities if not row[column]])
            polyhedron = replace(polyhedron, inequalities=others).drop(name)
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
    names, d = polyhedron.names, floor.denominator
    fresh = next(q for q in map("_q{}".format, count()) if q not in names)
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
    wider = polyhedron.map_rows(lambda row: (*row, 0))
    rows = (*wider.inequalities, lower, upper)
    lifted = replace(wider, dimensions=(*polyhedron.dimensions, fresh), inequalities=rows)
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
