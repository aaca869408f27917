"""Exact sums over the integer points of parametric polyhedra, by eliminating dimensions.

What it computes
    The sum of a quasi-polynomial weight over the integer points of a set given by affine equalities
    and inequalities in dimensions and parameters, as guarded quasi-polynomials in the parameters.

Method
    1. Equalities are solved for a dimension, after a unimodular change of dimensions where no
       coefficient is one. An equality left with parameters only becomes a congruence guard.
    2. Dimensions that share neither a constraint nor a floor are summed apart (connected
       components); the results are multiplied.
    3. One dimension at a time is summed: for each pair of a lower and an upper bound, on the part
       of the remaining space where these two are the tightest, by Faulhaber's formula. A bound with
       a coefficient c > 1 is rounded, which brings a floor into the weight. Which bounds are
       tightest is decided on the rational bounds (rounding is monotone), so domains stay affine,
       and it suffices that the rational bounds do not cross: then the rounded upper bound is at
       least the rounded lower one minus one, for which Faulhaber's formula gives zero.
    4. A floor in the dimension to be summed is first replaced by a new dimension q with
       d q <= numerator < d q + d, where the dimension's coefficient in it can be reduced to one;
       else the dimension is split into residue classes, within which the floor is affine.

Refused: unbounded sets; floors of products that involve the dimension that is summed; sums that
need more residue classes, terms or steps than the limits below, which are there so that a count
ends: such sets are left to others (`UncountableSetError`).

Source of the idea: Verdoolaege et al. (2007), Counting integer points in parametric polytopes using
Barvinok's rational functions, doi:10.1007/s00453-006-1231-0, whose piecewise quasi-polynomials
these are; the elimination itself follows Pugh (1994), Counting solutions to Presburger formulas,
doi:10.1145/178243.178254, with floors kept in the weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd, lcm
from typing import TypeAlias

from countperf.errors import CountingError, UncountableSetError
from countperf.symbolic import tiles
from countperf.symbolic.piecewise import Piece, multiply_terms
from countperf.symbolic.quasipolynomial import ONE, ZERO, Conjunction, QuasiPolynomial
from countperf.symbolic.tiles import Polyhedron, Row

Simplifier: TypeAlias = Callable[[Polyhedron], Polyhedron | None]
"""Returns an equal set (under the context) with fewer rows, or None for an empty one."""

_MAXIMUM_DEPTH = 200
_LIFTING_DEPTH = 12
_MAXIMUM_RESIDUES = 1024
_MAXIMUM_TERMS = 60_000
"""Limit of terms of all intermediate weights together, about two seconds."""


def sum_weight(
    polyhedron: Polyhedron, weight: QuasiPolynomial, simplify: Simplifier
) -> tuple[Piece, ...]:
    """Sum a weight over the integer points of a polyhedron."""
    if len(polyhedron.dimensions) > 1:
        polyhedron = tiles.fuse_tiles(polyhedron, weight.names())
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
        guards = frozenset([tiles.row_polynomial(r, names) for r in self.polyhedron.inequalities])
        zeros = [tiles.row_polynomial(r, names) for r in self.polyhedron.equalities]
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
            old = {name: QuasiPolynomial.affine([(name, 1), *terms])}
            sheared = polyhedron.add_column(pivot, factors)
            return replace(
                self, polyhedron=sheared, weight=self.weight.substitute(old)
            ).solve_equalities()
        sign = 1 if row[pivot] > 0 else -1
        rest = tuple(0 if k == pivot else c for k, c in enumerate(row))
        expression = tiles.row_polynomial(rest, polyhedron.names) * -sign
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
        return _Sum(
            replace(polyhedron, equalities=kept).map_rows(clear, without=name),
            self.weight.substitute({name: expression}),
            congruences,
            self.depth,
        ).solve_equalities()


class _Elimination:
    """Eliminates dimensions, and gives up after an amount of work, the same on every machine."""

    def __init__(self, simplify: Simplifier) -> None:
        self._simplify = simplify
        self._spent = 0

    def sum(self, given: _Sum) -> tuple[Piece, ...]:
        """Sum a weight over a polyhedron."""
        if given.depth > _MAXIMUM_DEPTH:
            where = tiles.describe(given.polyhedron)
            raise UncountableSetError(f"its elimination does not end at {where}")
        self._spent += len(given.weight.terms) + 1
        if self._spent > _MAXIMUM_TERMS:
            raise UncountableSetError(f"its elimination makes more than {_MAXIMUM_TERMS} terms")
        if given.polyhedron.equalities:
            fused = tiles.fuse_tiles(given.polyhedron, given.weight.names())
            given = replace(given, polyhedron=fused)
        solved = given.solve_equalities()
        if solved is None:
            return ()
        weight = solved.weight
        polyhedron = tiles.without_determined(solved.polyhedron, weight.names())
        if len(polyhedron.dimensions) > 1:
            polyhedron = tiles.fuse_tiles(polyhedron, weight.names())
        solved = replace(solved, polyhedron=polyhedron)
        if not polyhedron.dimensions:
            return (solved.as_term(),)
        weighted = weight.names() & {*polyhedron.dimensions}
        components = polyhedron.find_components(weighted)
        if len(components) > 1:
            return self._sum_components(solved, components, weighted)
        name = _choose_dimension(polyhedron, weight)
        floors = tiles.floors_in(weight, name)
        can_lift = solved.depth < _LIFTING_DEPTH and all(
            abs(tiles.reduced_coefficient(floor, name)) == 1 for floor in floors
        )
        if floors and not can_lift:
            return self._split_by_residues(solved, name)
        for floor in floors:
            polyhedron, weight = tiles.lift_floor(polyhedron, weight, floor, name)
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
        modulus = lcm(
            *(tiles.period_of(floor, name) for floor in tiles.floors_in(given.weight, name))
        )
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
                f"the set {tiles.describe(polyhedron)} is unbounded in {name}: "
                "it has infinitely many points"
            )
        result: list[Piece] = []
        for lower_index, (c, lower_rest) in enumerate(lowers):
            # x >= -rest/c rounded up is floor((c - 1 - rest)/c)
            lower = (-tiles.row_polynomial(lower_rest, rest.names) + (c - 1)).floor_divide(c)
            lower_rows = _dominates(lowers, lower_index)
            for upper_index, (d, upper_rest) in enumerate(uppers):
                gap = tuple([c * u + d * v for u, v in zip(upper_rest, lower_rest, strict=True)])
                bounds = (*others, *lower_rows, *_dominates(uppers, upper_index), gap)
                part = self._simplify(replace(rest, inequalities=bounds))
                if part is None:
                    continue
                upper = tiles.row_polynomial(upper_rest, rest.names).floor_divide(d)
                summed = tiles.sum_over(given.weight, name, lower, upper)
                if summed:
                    result += self.sum(_Sum(part, summed, given.congruences, given.depth + 1))
        return tuple(result)


def _choose_dimension(polyhedron: Polyhedron, weight: QuasiPolynomial) -> str:
    """Return the dimension whose elimination makes no or few floors, then few pieces."""

    def cost(name: str) -> tuple[int, int, int]:
        values = [row[1 + polyhedron.names.index(name)] for row in polyhedron.inequalities]
        pairs = sum(v > 0 for v in values) * sum(v < 0 for v in values)
        floors = sum(
            abs(tiles.reduced_coefficient(f, name)) != 1 for f in tiles.floors_in(weight, name)
        )
        return floors, max(map(abs, values), default=0), pairs

    return min(polyhedron.dimensions, key=cost)


def _dominates(bounds: Sequence[tuple[int, Row]], chosen: int) -> list[Row]:
    """Rows that say that the chosen bound is the tightest, the first of equal ones.

    A bound (c, rest) stands for c x + rest >= 0 (lower) or -c x + rest >= 0 (upper): in both cases
    it is the tighter, the smaller rest / c.
    """
    coefficient, rest = bounds[chosen]
    rows: list[Row] = []
    for index, (other_coefficient, other_rest) in enumerate(bounds):
        if index == chosen:
            continue
        row = [
            coefficient * o - other_coefficient * r for o, r in zip(other_rest, rest, strict=True)
        ]
        if index < chosen:
            row[0] -= 1
        rows.append(tuple(row))
    return rows
