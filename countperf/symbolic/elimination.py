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

from collections.abc import Callable, Iterable, Sequence
from math import gcd, lcm
from typing import TypeAlias

from countperf.errors import CountingError, UncountableSetError
from countperf.symbolic.piecewise import Piece, multiply_terms
from countperf.symbolic.quasipolynomial import ONE, ZERO, QuasiPolynomial
from countperf.symbolic.tiles import (
    Polyhedron,
    Row,
    describe,
    floors_in,
    fuse_tiles,
    lift_floor,
    period_of,
    reduced_coefficient,
    row_polynomial,
    sum_over,
    without_determined,
)

Simplifier: TypeAlias = Callable[[Polyhedron], Polyhedron | None]
"""Returns an equal set (under the context) with fewer rows, or None for an empty one."""


def sum_weight(
    polyhedron: Polyhedron, weight: QuasiPolynomial, simplify: Simplifier
) -> tuple[Piece, ...]:
    """Sum a weight over the integer points of a polyhedron."""
    if len(polyhedron.dimensions) > 1:
        polyhedron = fuse_tiles(polyhedron, weight.names())
    simplified = simplify(polyhedron)
    if simplified is None or not weight:
        return ()
    return _sum(simplified, weight, frozenset(), _LimitedSimplifier(simplify, polyhedron), 0)


def _term(
    polyhedron: Polyhedron,
    value: QuasiPolynomial,
    congruences: frozenset[QuasiPolynomial] = frozenset(),
) -> Piece:
    """Return a value that counts where a polyhedron without dimensions has its point."""
    names = polyhedron.parameters
    guards = frozenset([row_polynomial(row, names) for row in polyhedron.inequalities])
    zeros = congruences.union([row_polynomial(row, names) for row in polyhedron.equalities])
    return Piece(guards, zeros, value)


_MAXIMUM_DEPTH = 200
_LIFTING_DEPTH = 12
_MAXIMUM_RESIDUES = 1024
_MAXIMUM_TERMS = 60_000
"""Limit of terms of all intermediate weights together, about two seconds."""


class _LimitedSimplifier:
    """A simplifier that gives up after an amount of work, the same on every machine."""

    __slots__ = ("_simplify", "_spent", "_whole")

    def __init__(self, simplify: Simplifier, whole: Polyhedron) -> None:
        self._simplify = simplify
        self._whole = whole
        self._spent = 0

    def __call__(self, polyhedron: Polyhedron) -> Polyhedron | None:
        return self._simplify(polyhedron)

    def spend(self, terms: int) -> None:
        """Note the size of an intermediate weight."""
        self._spent += terms + 1
        if self._spent > _MAXIMUM_TERMS:
            raise UncountableSetError(f"its elimination makes more than {_MAXIMUM_TERMS} terms")


def _sum(
    polyhedron: Polyhedron,
    weight: QuasiPolynomial,
    congruences: frozenset[QuasiPolynomial],
    simplify: _LimitedSimplifier,
    depth: int,
) -> tuple[Piece, ...]:
    if depth > _MAXIMUM_DEPTH:
        raise UncountableSetError(f"its elimination does not end at {describe(polyhedron)}")
    simplify.spend(len(weight.terms))
    if polyhedron.equalities:
        polyhedron = fuse_tiles(polyhedron, weight.names())
    solved = _solve_equalities(polyhedron, weight, congruences)
    if solved is None:
        return ()
    polyhedron, weight, congruences = solved
    polyhedron = without_determined(polyhedron, weight.names())
    if not polyhedron.dimensions:
        return (_term(polyhedron, weight, congruences),)
    if len(polyhedron.dimensions) > 1:
        polyhedron = fuse_tiles(polyhedron, weight.names())
        components = _components(polyhedron, weight)
        if len(components) > 1:
            return _product_of_components(
                polyhedron, weight, components, congruences, simplify, depth
            )
    position = _choose_dimension(polyhedron, weight)
    name = polyhedron.dimensions[position]
    floors = floors_in(weight, name)
    if not floors:
        return _eliminate(polyhedron, weight, name, congruences, simplify, depth)
    if depth < _LIFTING_DEPTH and all(abs(reduced_coefficient(f, name)) == 1 for f in floors):
        for floor in floors:
            polyhedron, weight = lift_floor(polyhedron, weight, floor, name)
        return _eliminate(polyhedron, weight, name, congruences, simplify, depth)
    return _split_by_residues(polyhedron, weight, name, congruences, simplify, depth)


def _solve_equalities(
    polyhedron: Polyhedron, weight: QuasiPolynomial, congruences: frozenset[QuasiPolynomial]
) -> tuple[Polyhedron, QuasiPolynomial, frozenset[QuasiPolynomial]] | None:
    first = 1 + len(polyhedron.parameters)
    while True:
        row = next((r for r in polyhedron.equalities if any(r[first:])), None)
        if row is None:
            return polyhedron, weight, congruences
        candidates = [(abs(c), k) for k, c in enumerate(row) if k >= first and c]
        size, pivot = min(candidates)
        if gcd(*row[1:]) and row[0] % gcd(*row[1:]):
            return None
        if size != 1 and len(candidates) > 1:
            polyhedron, weight = _shear(polyhedron, weight, row, pivot)
            continue
        name = polyhedron.dimensions[pivot - first]
        rest = tuple(0 if k == pivot else c for k, c in enumerate(row))
        names = polyhedron.parameters + polyhedron.dimensions
        expression = row_polynomial(rest, names) * (-1 if row[pivot] > 0 else 1)
        if size != 1:
            congruences = congruences | {expression.modulo(size)} - {ZERO}
            expression = expression / size
        weight = weight.substitute({name: expression}) if name in weight.names() else weight
        sign = 1 if row[pivot] > 0 else -1

        def cleared(other: Row, row: Row = row, pivot: int = pivot, sign: int = sign) -> Row:
            factor = other[pivot] * sign
            if not factor:
                return other[:pivot] + other[pivot + 1 :]
            size = abs(row[pivot])
            values = [c * size - factor * e for c, e in zip(other, row, strict=True)]
            del values[pivot]
            return tuple(values)

        position = pivot - first
        polyhedron = Polyhedron(
            polyhedron.parameters,
            polyhedron.dimensions[:position] + polyhedron.dimensions[position + 1 :],
            tuple(cleared(other) for other in polyhedron.equalities if other is not row),
            tuple(cleared(other) for other in polyhedron.inequalities),
        )


def _shear(
    polyhedron: Polyhedron, weight: QuasiPolynomial, row: Row, pivot: int
) -> tuple[Polyhedron, QuasiPolynomial]:
    """Change dimensions so that the coefficients beside the pivot shrink below it.

    With x_p' = x_p + sum_j q_j x_j for row[j] = q_j row[p] + r_j, the row's coefficients become
    r_j; the change is unimodular, so that points stay in one-to-one correspondence.
    """
    first = 1 + len(polyhedron.parameters)
    quotients = {k: c // row[pivot] for k, c in enumerate(row) if k >= first and k != pivot and c}

    def changed(other: Row) -> Row:
        values = list(other)
        for k, quotient in quotients.items():
            values[k] -= quotient * other[pivot]
        return tuple(values)

    names = polyhedron.parameters + polyhedron.dimensions
    pivot_name = names[pivot - 1]
    old = QuasiPolynomial.affine(
        [(pivot_name, 1)] + [(names[k - 1], -q) for k, q in quotients.items()]
    )
    if pivot_name in weight.names():
        weight = weight.substitute({pivot_name: old})
    return (
        Polyhedron(
            polyhedron.parameters,
            polyhedron.dimensions,
            tuple(changed(r) for r in polyhedron.equalities),
            tuple(changed(r) for r in polyhedron.inequalities),
        ),
        weight,
    )


def _components(polyhedron: Polyhedron, weight: QuasiPolynomial) -> list[set[str]]:
    """Partition the dimensions by shared rows, floors and monomials of the weight."""
    first = 1 + len(polyhedron.parameters)
    groups: list[set[str]] = [
        {name for name, c in zip(polyhedron.dimensions, row[first:], strict=True) if c}
        for row in (*polyhedron.equalities, *polyhedron.inequalities)
    ]
    used = weight.names() & set(polyhedron.dimensions)
    groups += [used] + [{name} for name in polyhedron.dimensions]
    components: list[set[str]] = []
    for group in groups:
        if not group:
            continue
        touching = [c for c in components if c & group]
        merged = set(group).union(*touching)
        components = [c for c in components if c not in touching] + [merged]
    return components


def _product_of_components(
    polyhedron: Polyhedron,
    weight: QuasiPolynomial,
    components: list[set[str]],
    congruences: frozenset[QuasiPolynomial],
    simplify: _LimitedSimplifier,
    depth: int,
) -> tuple[Piece, ...]:
    first = 1 + len(polyhedron.parameters)
    weighted = weight.names()
    parameter_rows = [r for r in polyhedron.inequalities if not any(r[first:])]
    result: tuple[Piece, ...] = (
        Piece(
            frozenset(row_polynomial(r[:first], polyhedron.parameters) for r in parameter_rows),
            congruences
            | {
                row_polynomial(r[:first], polyhedron.parameters)
                for r in polyhedron.equalities
                if not any(r[first:])
            },
            ONE if weighted & set(polyhedron.dimensions) else weight,
        ),
    )
    for component in components:
        keep = [k for k, name in enumerate(polyhedron.dimensions) if name in component]
        part = Polyhedron(
            polyhedron.parameters,
            tuple(polyhedron.dimensions[k] for k in keep),
            _select(polyhedron.equalities, first, keep),
            _select(polyhedron.inequalities, first, keep),
        )
        part_weight = weight if weighted & component else ONE
        terms = _sum(part, part_weight, frozenset(), simplify, depth + 1)
        result = multiply_terms(result, terms)
    return result


def _select(rows: Iterable[Row], first: int, keep: Sequence[int]) -> tuple[Row, ...]:
    return tuple(
        row[:first] + tuple(row[first + k] for k in keep)
        for row in rows
        if any(row[first + k] for k in keep)
    )


def _split_by_residues(
    polyhedron: Polyhedron,
    weight: QuasiPolynomial,
    name: str,
    congruences: frozenset[QuasiPolynomial],
    simplify: _LimitedSimplifier,
    depth: int,
) -> tuple[Piece, ...]:
    """Sum over a dimension that floors involve, one residue class at a time."""
    modulus = lcm(*(period_of(floor, name) for floor in floors_in(weight, name)))
    if modulus > _MAXIMUM_RESIDUES:
        raise UncountableSetError(
            f"its elimination needs {modulus} residue classes of {name}, more than "
            f"{_MAXIMUM_RESIDUES} (smaller common multiples of the tile sizes would help)"
        )
    column = 1 + len(polyhedron.parameters) + polyhedron.dimensions.index(name)
    result: list[Piece] = []
    for residue in range(modulus):
        rows = tuple(
            (
                row[0] + residue * row[column],
                *(c * modulus if k == column else c for k, c in enumerate(row) if k),
            )
            for row in polyhedron.inequalities
        )
        part = simplify(
            Polyhedron(polyhedron.parameters, polyhedron.dimensions, polyhedron.equalities, rows)
        )
        if part is None:
            continue
        replaced = weight.substitute({name: QuasiPolynomial.name(name) * modulus + residue})
        result += _sum(part, replaced, congruences, simplify, depth + 1)
    return tuple(result)


def _eliminate(
    polyhedron: Polyhedron,
    weight: QuasiPolynomial,
    name: str,
    congruences: frozenset[QuasiPolynomial],
    simplify: _LimitedSimplifier,
    depth: int,
) -> tuple[Piece, ...]:
    first = 1 + len(polyhedron.parameters)
    column = first + polyhedron.dimensions.index(name)
    names = (
        polyhedron.parameters
        + polyhedron.dimensions[: column - first]
        + polyhedron.dimensions[column - first + 1 :]
    )

    def without(row: Row) -> Row:
        return row[:column] + row[column + 1 :]

    lowers = [(row[column], without(row)) for row in polyhedron.inequalities if row[column] > 0]
    uppers = [(-row[column], without(row)) for row in polyhedron.inequalities if row[column] < 0]
    others = tuple(without(row) for row in polyhedron.inequalities if not row[column])
    if not lowers or not uppers:
        raise CountingError(
            f"the set {describe(polyhedron)} is unbounded in {name}: it has infinitely many points"
        )
    result: list[Piece] = []
    for lower_index, (lower_coefficient, lower_rest) in enumerate(lowers):
        # x >= -rest/c rounded up is floor((c - 1 - rest)/c)
        lower = (-row_polynomial(lower_rest, names) + (lower_coefficient - 1)).floor_divide(
            lower_coefficient
        )
        lower_rows = _dominates(lowers, lower_index)
        for upper_index, (upper_coefficient, upper_rest) in enumerate(uppers):
            upper = row_polynomial(upper_rest, names).floor_divide(upper_coefficient)
            gap = tuple(
                lower_coefficient * u + upper_coefficient * v
                for u, v in zip(upper_rest, lower_rest, strict=True)
            )
            part = simplify(
                Polyhedron(
                    polyhedron.parameters,
                    polyhedron.dimensions[: column - first]
                    + polyhedron.dimensions[column - first + 1 :],
                    tuple(without(row) for row in polyhedron.equalities),
                    (*others, *lower_rows, *_dominates(uppers, upper_index), gap),
                )
            )
            if part is None:
                continue
            summed = sum_over(weight, name, lower, upper)
            if summed:
                result += _sum(part, summed, congruences, simplify, depth + 1)
    return tuple(result)


def _choose_dimension(polyhedron: Polyhedron, weight: QuasiPolynomial) -> int:
    """Return the dimension whose elimination makes no or few floors, then few pieces."""
    if len(polyhedron.dimensions) == 1:
        return 0
    first = 1 + len(polyhedron.parameters)

    def cost(position: int) -> tuple[int, int, int]:
        values = [row[first + position] for row in polyhedron.inequalities]
        lowers = sum(v > 0 for v in values)
        uppers = sum(v < 0 for v in values)
        name = polyhedron.dimensions[position]
        floors = sum(abs(reduced_coefficient(f, name)) != 1 for f in floors_in(weight, name))
        return floors, max(map(abs, values), default=0), lowers * uppers

    return min(range(len(polyhedron.dimensions)), key=cost)


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
