"""All points of integer sets at given parameters, as arrays, and quasi-polynomials on them.

And the sub-groups of a work group that execute something, from the work items that do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from math import lcm, prod
from typing import Any, cast

import islpy as isl
import numpy as np
from numpy.typing import NDArray

from countperf.errors import CountingError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.isl_sets import (
    IntegerSet,
    from_isl,
    lift_pieces,
    limit_operations,
    names_of,
    to_isl,
)
from countperf.symbolic.quasipolynomial import ZERO, Atom, QuasiPolynomial
from countperf.symbolic.sets import at_values, project_onto
from countperf.symbolic.tiles import Polyhedron, Row

Points = dict[str, NDArray[np.int64]]
"""One coordinate array for each name, all of one length."""

_DT = isl.dim_type
_LARGEST = 2**62
_SPLITTING_OPERATIONS = 200_000


def points_of_set(
    integer_set: IntegerSet, parameters: Mapping[str, int], limit: int
) -> tuple[Points, int]:
    """List all points of a set."""
    names = names_of(integer_set, parameters=False)
    parts: list[tuple[list[NDArray[np.int64]], int]] = []
    for piece in lift_pieces(at_values(integer_set, parameters)):
        columns, number = _enumerate_points(piece, parameters, limit)
        parts.append((columns[: len(names)], number))
        limit -= number
    if not parts:
        return {name: np.empty(0, np.int64) for name in names}, 0
    joined = {
        name: np.concatenate([columns[k] for columns, _ in parts]) for k, name in enumerate(names)
    }
    return joined, sum(number for _, number in parts)


def split_off_full(
    whole: IntegerSet, outer: Collection[str]
) -> tuple[IntegerSet, IntegerSet, IntegerSet] | None:
    """Split off the part of a set that is a product, such as the full work groups."""
    names = names_of(whole, parameters=False)
    inner = [name for name in names if name not in outer]
    try:
        with limit_operations(_SPLITTING_OPERATIONS, "splitting a set"):
            outside = project_onto(whole, outer)
            inside = project_onto(whole, inner)
            product = _among(outside, names) & _among(inside, names)
            partial = project_onto(product - whole, outer)
            full = (outside - partial).coalesce()
            rest = (whole - (_among(full, names) & _among(inside, names))).coalesce()
    except CountingError:
        return None
    return full, inside, rest


def _among(integer_set: IntegerSet, names: Sequence[str]) -> IntegerSet:
    """Add free dimensions to a set, so that it has all names in this order."""
    known = names_of(integer_set, parameters=False)
    for position, name in enumerate(names):
        if name not in known:
            integer_set = integer_set.insert_dims(_DT.set, position, 1)
            integer_set = integer_set.set_dim_name(_DT.set, position, name)
    return integer_set


def _enumerate_points(
    polyhedron: Polyhedron, parameters: Mapping[str, int], limit: int
) -> tuple[list[NDArray[np.int64]], int]:
    """Nest the dimensions as loops, the bounds of each from the projection onto those outside it.

    The projections may be too large (rational), so that all rows are tested in the end.
    """
    count = len(polyhedron.parameters)
    values = [parameters[name] for name in polyhedron.parameters]

    def bound(row: Row) -> Row:
        head = row[0] + sum(c * v for c, v in zip(row[1 : count + 1], values, strict=True))
        return (head, *row[count + 1 :])

    fixed = Polyhedron(
        (),
        polyhedron.dimensions,
        tuple(bound(r) for r in polyhedron.equalities),
        tuple(bound(r) for r in polyhedron.inequalities),
    )
    columns: list[NDArray[np.int64]] = []
    number = 1
    depth = len(fixed.dimensions)
    basic = to_isl(fixed)
    if basic.is_empty():
        return [np.empty(0, np.int64)] * depth, 0
    for level in range(depth):
        outer = basic.project_out(_DT.set, level + 1, depth - level - 1).remove_divs()
        rows = _inequalities(from_isl(outer, (), fixed.dimensions[: level + 1]))
        columns, number = _extend_points(columns, number, rows, limit)
    kept = np.ones(number, bool)
    for row in _inequalities(fixed):
        kept &= _affine(row, columns, number) >= 0
    if kept.all():
        return columns, number
    return [column[kept] for column in columns], int(kept.sum())


def _inequalities(polyhedron: Polyhedron) -> list[Row]:
    negated = (tuple(-c for c in row) for row in polyhedron.equalities)
    return [*polyhedron.inequalities, *polyhedron.equalities, *negated]


def _affine(
    row: Sequence[int], columns: Sequence[NDArray[np.int64]], number: int
) -> NDArray[np.int64]:
    total = np.full(number, row[0], np.int64)
    for c, column in zip(row[1:], columns, strict=False):
        if c:
            total += c * column
    return total


def _extend_points(
    columns: list[NDArray[np.int64]], number: int, rows: Sequence[Row], limit: int
) -> tuple[list[NDArray[np.int64]], int]:
    """Add the innermost dimension of rows to the points of the outer ones."""
    low: NDArray[np.int64] | None = None
    high: NDArray[np.int64] | None = None
    for row in rows:
        c = row[-1]
        if not c:
            continue
        rest = _affine(row[:-1], columns, number)
        if c > 0:
            edge = -(rest // c)
            low = edge if low is None else np.maximum(low, edge)
        else:
            edge = rest // -c
            high = edge if high is None else np.minimum(high, edge)
    if low is None or high is None:
        raise CountingError("a loop is unbounded")
    lengths = np.maximum(high - low + 1, 0)
    total = int(lengths.sum(dtype=object)) if number else 0
    if total > limit:
        raise CountingError(
            f"more than {limit} points would have to be listed one by one; choose smaller "
            "parameters"
        )
    starts = np.cumsum(lengths) - lengths
    innermost = np.arange(total, dtype=np.int64) - np.repeat(starts, lengths)
    innermost += np.repeat(low, lengths)
    return [*(np.repeat(column, lengths) for column in columns), innermost], total


def values_at(
    polynomial: QuasiPolynomial, points: Mapping[str, NDArray[np.int64]], number: int
) -> NDArray[np.int64]:
    """Evaluate an integer-valued quasi-polynomial at points."""
    largest = {
        name: int(max(abs(int(c.max())), abs(int(c.min())), 1)) if number else 1
        for name, c in points.items()
    }
    _check_size(polynomial, largest)
    scale = _scale(polynomial)
    total: Any = (polynomial * scale).evaluate(cast("Any", points))
    return np.full(number, total // scale, np.int64)


def _check_size(polynomial: QuasiPolynomial, largest: Mapping[str, int]) -> int:
    def size(atom: Atom) -> int:
        if isinstance(atom, str):
            return largest[atom]
        return _check_size(atom.numerator, largest)

    scale = _scale(polynomial)
    total = sum(
        int(abs(c) * scale) * prod(size(atom) ** exponent for atom, exponent in monomial)
        for monomial, c in polynomial.terms.items()
    )
    if total >= _LARGEST:
        raise CountingError(
            f"the values of {polynomial} do not fit into 64 bits; choose smaller parameters"
        )
    return total + 1


def _scale(polynomial: QuasiPolynomial) -> int:
    return lcm(*(Fraction(c).denominator for c in polynomial.terms.values()))


SUB_GROUP = "_sub_group"
"""Dimension that numbers the sub-groups of a group."""


def find_sub_groups_executing(
    executed: isl_sets.IntegerSet,
    lanes: Mapping[int, str],
    extents: Mapping[int, int],
    sub_group_size: int,
) -> isl_sets.IntegerSet:
    """Return where at least one work item of a sub-group executes something."""
    whole = sets.union([executed])
    position = ZERO
    stride = 1
    hidden: set[str] = set()
    for axis in sorted(extents):
        name = lanes.get(axis, f"_lane{axis}")
        if axis not in lanes:
            whole = _with_interval(whole, name, extents[axis])
        hidden.add(name)
        position = position + QuasiPolynomial.name(name) * stride
        stride *= extents[axis]
    kept = [name for name in isl_sets.names_of(whole, parameters=False) if name not in hidden]
    number = position.floor_divide(sub_group_size) if stride > sub_group_size else ZERO
    executed = sets.image(whole, [*map(QuasiPolynomial.name, kept), number])
    for position, name in enumerate((*kept, SUB_GROUP)):
        executed = executed.set_dim_name(_DT.set, position, name)
    return executed


def _with_interval(integer_set: isl_sets.IntegerSet, name: str, extent: int) -> isl_sets.IntegerSet:
    """Add a dimension that takes the values from 0 to extent - 1, whatever the others are."""
    position = integer_set.dim(_DT.set)
    wider = integer_set.add_dims(_DT.set, 1).set_dim_name(_DT.set, position, name)
    dimension = QuasiPolynomial.name(name)
    return sets.restrict(wider, nonnegative=[dimension, extent - 1 - dimension])


class Membership:
    """Tells whether points are in a set without parameters, fast where the set is simple."""

    def __init__(self, integer_set: isl_sets.IntegerSet) -> None:
        self._set = sets.union([integer_set])
        self.names = isl_sets.names_of(self._set, parameters=False)
        self.is_empty = bool(self._set.is_empty())
        self.bounds: tuple[tuple[int, int], ...] = ()
        self._pieces: list[Polyhedron] | None = None
        if self.is_empty:
            return
        bounds: list[tuple[int, int]] = []
        for name, (low, high) in sets.constant_bounds(self._set).items():
            if low is None or high is None:
                raise CountingError(f"the loop '{name}' is not bounded in {self._set}")
            bounds.append((low, high))
        self.bounds = tuple(bounds)
        basic_sets = [piece.remove_redundancies() for piece in self._set.get_basic_sets()]
        if not any(piece.dim(_DT.div) for piece in basic_sets):
            self._pieces = [isl_sets.from_isl(piece, (), self.names) for piece in basic_sets]

    def onto(self, names: Sequence[str]) -> Membership:
        """Return the same for the values of some dimensions alone."""
        return Membership(sets.project_onto(self._set, names))

    def contains(self, point: Sequence[int]) -> bool:
        """Return whether a point, in the order of `names`, is in the set."""
        if self.is_empty:
            return False
        for value, (low, high) in zip(point, self.bounds, strict=True):
            if not low <= value <= high:
                return False
        if self._pieces is None:
            values = dict(zip(self.names, point, strict=True))
            return not sets.at_values(self._set, values).is_empty()
        return any(
            all(_at(row, point) == 0 for row in piece.equalities)
            and all(_at(row, point) >= 0 for row in piece.inequalities)
            for piece in self._pieces
        )


def _at(row: Row, point: Sequence[int]) -> int:
    return row[0] + sum(c * value for c, value in zip(row[1:], point, strict=True) if c)
