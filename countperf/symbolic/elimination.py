"""Exact sums over the integer points of parametric polyhedra, by eliminating dimensions.

One dimension at a time is summed by Faulhaber's formula, for each pair of a lower and an upper
bound where these are the tightest. That is decided on the rational bounds (rounding is monotone),
so that domains stay affine. Where these do not cross, the rounded upper bound is at least the
rounded lower one minus one, for which the formula gives zero.

Source: Pugh (1994), Counting solutions to Presburger formulas, doi:10.1145/178243.178254, with
floors kept in the weight. Results are the piecewise quasi-polynomials of Verdoolaege et al. (2007),
doi:10.1007/s00453-006-1231-0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import compress, count
from math import comb, gcd, lcm
from typing import TypeAlias

from countperf.errors import CountingError, UncountableSetError
from countperf.symbolic.piecewise import Piece, multiply_terms
from countperf.symbolic.quasipolynomial import ONE, ZERO, Conjunction, Floor, QuasiPolynomial
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
        groups = [{*compress(self.dimensions, row[self.first :])} for row in self.rows]
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


Simplifier: TypeAlias = Callable[[Polyhedron], Polyhedron | None]
"""Returns an equal set (under the context) with fewer rows, or None for an empty one."""

_MAXIMUM_DEPTH = 200
_LIFTING_DEPTH = 12
_MAXIMUM_RESIDUES = 1024
_MAXIMUM_TERMS = 60_000  # limit of terms of all intermediate weights together, about two seconds


def sum_weight(
    polyhedron: Polyhedron, weight: QuasiPolynomial, simplify: Simplifier
) -> tuple[Piece, ...]:
    """Sum a weight over the integer points of a polyhedron."""
    if len(polyhedron.dimensions) > 1:
        polyhedron = fuse_tiles(polyhedron, weight.names())
    simplified = simplify(polyhedron)
    if simplified is None or not weight:
        return ()
    return _Elimination(simplify).sum(_Sum(simplified, weight))


@dataclass(frozen=True, slots=True)
class _Sum:
    """A weight to be summed over a polyhedron, where quasi-polynomials in parameters are zero."""

    polyhedron: Polyhedron
    weight: QuasiPolynomial
    congruences: Conjunction = frozenset()
    depth: int = 0

    def as_term(self) -> Piece:
        """Return the weight where a polyhedron without dimensions has its point."""
        names = self.polyhedron.parameters
        guards = frozenset([row_polynomial(r, names) for r in self.polyhedron.inequalities])
        zeros = [row_polynomial(r, names) for r in self.polyhedron.equalities]
        return Piece(guards, self.congruences.union(zeros), self.weight)

    def solve_equalities(self) -> _Sum | None:
        """Solve equalities for dimensions; None where one has no integer solutions."""
        polyhedron, first = self.polyhedron, self.polyhedron.first
        row = next((r for r in polyhedron.equalities if any(r[first:])), None)
        if row is None:
            return self
        common = gcd(*row[1:])
        if row[0] % common:
            return None
        size, pivot = min((abs(c), k) for k, c in enumerate(row) if k >= first and c)
        name = polyhedron.names[pivot - 1]
        others = {k: c for k, c in enumerate(row) if k >= first and k != pivot and c}
        if size != 1 and others:
            # Change dimensions so that the coefficients beside the pivot shrink below it: with
            # x_p' = x_p + sum_j q_j x_j for row[j] = q_j row[p] + r_j they become r_j; the change
            # is unimodular, so that points stay in one-to-one correspondence
            factors = {k: -(c // row[pivot]) for k, c in others.items()}
            terms = [(polyhedron.names[k - 1], factor) for k, factor in factors.items()]
            weight = self.weight.substitute({name: QuasiPolynomial.affine([(name, 1), *terms])})
            sheared = polyhedron.add_column(pivot, factors)
            return replace(self, polyhedron=sheared, weight=weight).solve_equalities()
        sign = 1 if row[pivot] > 0 else -1
        rest = tuple(0 if k == pivot else c for k, c in enumerate(row))
        expression = row_polynomial(rest, polyhedron.names) * -sign
        congruences = self.congruences
        if size != 1:
            congruences = congruences | {expression.modulo(size)} - {ZERO}
            expression = expression / size

        def clear(other: Row) -> Row:
            factor = other[pivot] * sign
            if factor:
                other = tuple([c * size - factor * e for c, e in zip(other, row, strict=True)])
            return other[:pivot] + other[pivot + 1 :]

        kept = tuple(other for other in polyhedron.equalities if other is not row)
        solved = replace(polyhedron, equalities=kept).map_rows(clear, without=name)
        weight = self.weight.substitute({name: expression})
        return _Sum(solved, weight, congruences, self.depth).solve_equalities()


class _Elimination:
    """Eliminates dimensions, and gives up after an amount of work, the same on every machine."""

    def __init__(self, simplify: Simplifier) -> None:
        self._simplify = simplify
        self._spent = 0

    def sum(self, given: _Sum) -> tuple[Piece, ...]:
        """Sum a weight over a polyhedron."""
        if given.depth > _MAXIMUM_DEPTH:
            raise UncountableSetError("its elimination does not end")
        self._spent += len(given.weight.terms) + 1
        if self._spent > _MAXIMUM_TERMS:
            raise UncountableSetError(f"its elimination makes more than {_MAXIMUM_TERMS} terms")
        if given.polyhedron.equalities:
            fused = fuse_tiles(given.polyhedron, given.weight.names())
            given = replace(given, polyhedron=fused)
        solved = given.solve_equalities()
        if solved is None:
            return ()
        weight = solved.weight
        polyhedron = without_determined(solved.polyhedron, weight.names())
        if len(polyhedron.dimensions) > 1:
            polyhedron = fuse_tiles(polyhedron, weight.names())
        solved = replace(solved, polyhedron=polyhedron)
        if not polyhedron.dimensions:
            return (solved.as_term(),)
        weighted = weight.names() & {*polyhedron.dimensions}
        components = polyhedron.find_components(weighted)
        if len(components) > 1:
            return self._sum_components(solved, components, weighted)
        name = _choose_dimension(polyhedron, weight)
        floors = floors_in(weight, name)
        can_lift = solved.depth < _LIFTING_DEPTH and all(
            abs(reduce_coefficient(floor, name)) == 1 for floor in floors
        )
        if floors and not can_lift:
            return self._split_by_residues(solved, name)
        for floor in floors:
            polyhedron, weight = lift_floor(polyhedron, weight, floor, name)
        return self._eliminate(replace(solved, polyhedron=polyhedron, weight=weight), name)

    def _sum_components(
        self, given: _Sum, components: Sequence[set[str]], weighted: set[str]
    ) -> tuple[Piece, ...]:
        """Multiply the sums over components of dimensions, one of which may have the weight."""
        alone = given.polyhedron.take_apart(frozenset())
        factor = ONE if weighted else given.weight
        result: tuple[Piece, ...] = (_Sum(alone, factor, given.congruences).as_term(),)
        for component in components:
            part = given.polyhedron.take_apart(component)
            factor = given.weight if weighted & component else ONE
            terms = self.sum(_Sum(part, factor, depth=given.depth + 1))
            result = multiply_terms(result, terms)
        return result

    def _split_by_residues(self, given: _Sum, name: str) -> tuple[Piece, ...]:
        """Sum over a dimension that floors involve, one residue class at a time."""
        modulus = lcm(*(period_of(floor, name) for floor in floors_in(given.weight, name)))
        if modulus > _MAXIMUM_RESIDUES:
            raise UncountableSetError(
                f"its elimination needs {modulus} residue classes of {name}, more than "
                f"{_MAXIMUM_RESIDUES} (smaller common multiples of the tile sizes would help)"
            )
        column = 1 + given.polyhedron.names.index(name)
        multiples = given.polyhedron.add_column(column, {column: modulus - 1}).inequalities
        result: list[Piece] = []
        for residue in range(modulus):
            rows = tuple(
                (row[0] + residue * row[column], *scaled[1:])
                for row, scaled in zip(given.polyhedron.inequalities, multiples, strict=True)
            )
            part = self._simplify(replace(given.polyhedron, inequalities=rows))
            if part is not None:
                value = QuasiPolynomial.name(name) * modulus + residue
                weight = given.weight.substitute({name: value})
                result += self.sum(_Sum(part, weight, given.congruences, given.depth + 1))
        return tuple(result)

    def _eliminate(self, given: _Sum, name: str) -> tuple[Piece, ...]:
        """Sum over a dimension, for each pair of bounds where these are the tightest."""
        polyhedron = given.polyhedron
        column = 1 + polyhedron.names.index(name)
        rest = polyhedron.drop(name)
        rows = [*zip(polyhedron.inequalities, rest.inequalities, strict=True)]
        lowers = [(row[column], without) for row, without in rows if row[column] > 0]
        uppers = [(-row[column], without) for row, without in rows if row[column] < 0]
        others = [without for row, without in rows if not row[column]]
        if not lowers or not uppers:
            raise CountingError(
                f"the set {describe(polyhedron)} is unbounded in {name}: "
                "it has infinitely many points"
            )
        result: list[Piece] = []
        for lower_index, (c, lower_rest) in enumerate(lowers):
            # x >= -rest/c rounded up is floor((c - 1 - rest)/c)
            lower = (-row_polynomial(lower_rest, rest.names) + (c - 1)).floor_divide(c)
            lower_rows = [*_dominates(lowers, lower_index)]
            for upper_index, (d, upper_rest) in enumerate(uppers):
                gap = tuple([c * u + d * v for u, v in zip(upper_rest, lower_rest, strict=True)])
                bounds = (*others, *lower_rows, *_dominates(uppers, upper_index), gap)
                part = self._simplify(replace(rest, inequalities=bounds))
                if part is None:
                    continue
                upper = row_polynomial(upper_rest, rest.names).floor_divide(d)
                summed = sum_over(given.weight, name, lower, upper)
                if summed:
                    result += self.sum(_Sum(part, summed, given.congruences, given.depth + 1))
        return tuple(result)


def _choose_dimension(polyhedron: Polyhedron, weight: QuasiPolynomial) -> str:
    """Return the dimension whose elimination makes no or few floors, then few pieces."""

    def cost(name: str) -> tuple[int, int, int]:
        values = [row[1 + polyhedron.names.index(name)] for row in polyhedron.inequalities]
        pairs = sum(v > 0 for v in values) * sum(v < 0 for v in values)
        floors = sum(abs(reduce_coefficient(f, name)) != 1 for f in floors_in(weight, name))
        return floors, max(map(abs, values), default=0), pairs

    return min(polyhedron.dimensions, key=cost)


def _dominates(bounds: Sequence[tuple[int, Row]], chosen: int) -> Iterator[Row]:
    """Yield rows that say that the chosen bound is the tightest, the first of equal ones.

    A bound (c, rest), of c x + rest >= 0 or -c x + rest >= 0, is the tighter, the smaller rest / c.
    """
    c, rest = bounds[chosen]
    for index, (other, other_rest) in enumerate(bounds):
        if index != chosen:
            row = [c * o - other * r for o, r in zip(other_rest, rest, strict=True)]
            yield (row[0] - (index < chosen), *row[1:])


def _is_alone(row: Row, column: int) -> bool:
    return not any(row[1:column]) and not any(row[column + 1 :])


def fuse_tiles(polyhedron: Polyhedron, kept: AbstractSet[str]) -> Polyhedron:
    """Undo tilings: replace (o, t) with 0 <= t < d by i = d o + t where only i matters."""
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
        columns = [k for k in range(first, first + len(names)) if k != column]
        for k in {k for r in joint for k in columns if r[k] == width * r[column]}:
            if names[k - first] in kept:
                continue
            aligned = _align_tile_columns(polyhedron, column, k, width, kept)
            if aligned is not None and not any(
                abs(r[k]) > 1 for r in aligned.inequalities if not r[column]
            ):
                return fuse_tiles(_fuse_columns(aligned, column, k, width), kept)
    return polyhedron


def _align_tile_columns(
    polyhedron: Polyhedron, tile: int, outer: int, width: int, kept: AbstractSet[str]
) -> Polyhedron | None:
    """Shear other dimensions so that rows know the tile's columns by their sum only, else None."""

    def gap(row: Row) -> int:
        return width * row[tile] - row[outer]

    for column, name in enumerate((*polyhedron.dimensions, ""), start=polyhedron.first):
        if not any(map(gap, polyhedron.equalities)) and not any(
            row[tile] and gap(row) and not _is_alone(row, tile) for row in polyhedron.inequalities
        ):
            return polyhedron
        if column in (tile, outer) or name in kept or not name:
            continue
        quotients = {divmod(gap(row), row[column]) for row in polyhedron.rows if row[column]}
        if len(quotients) == 1:
            ((quotient, remainder),) = quotients
            if quotient and not remainder:
                polyhedron = polyhedron.add_column(column, {outer: quotient})
    return None


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


def reduce_coefficient(floor: Floor, name: str) -> int:
    """Return the coefficient of a name in a floor, reduced to at most half the denominator.

    Zero stands for a numerator that is not linear: such a floor is not lifted.
    """
    if not floor.numerator.is_linear:
        return 0
    coefficient = int(floor.numerator.coefficient_of(name))
    return coefficient - floor.denominator if 2 * coefficient > floor.denominator else coefficient


def lift_floor(
    polyhedron: Polyhedron, weight: QuasiPolynomial, floor: Floor, name: str
) -> tuple[Polyhedron, QuasiPolynomial]:
    """Replace a floor by a new dimension, with the two rows that define it."""
    names, d = polyhedron.names, floor.denominator
    fresh = next(q for q in map("_q{}".format, count()) if q not in names)
    replacement = QuasiPolynomial.name(fresh)
    numerator = floor.numerator
    row = [int(c) for c in (numerator.constant_term, *map(numerator.coefficient_of, names))]
    place, reduced = 1 + names.index(name), reduce_coefficient(floor, name)
    if row[place] != reduced:
        row[place] = reduced
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
        own = floor.denominator // gcd(floor.denominator, int(value))
        for atom, exponent in monomial:
            if atom == name:
                if len(monomial) > 1 or exponent > 1:
                    raise UncountableSetError(
                        f"{floor} cannot be summed over {name}: it is no floor of an affine "
                        "expression"
                    )
                period = lcm(period, own)
            elif isinstance(atom, Floor) and name in atom.numerator.names():
                period = lcm(period, own * period_of(atom, name))
    return period


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
        partial = ZERO
        upper_power = before_power = ONE
        for value in power_sum_coefficients(exponent)[1:]:
            upper_power = upper_power * upper
            before_power = before_power * before
            partial = partial + (upper_power - before_power) * value
        result = result + coefficient * partial
    return result
