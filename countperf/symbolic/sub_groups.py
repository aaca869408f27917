"""Sub-groups of a work group that execute something, from the work items that do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl

from countperf.errors import CountingError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.quasipolynomial import ZERO, QuasiPolynomial
from countperf.symbolic.tiles import Polyhedron, Row

SUB_GROUP = "_sub_group"
"""Dimension that numbers the sub-groups of a group."""

_DT = isl.dim_type


def executed_by_sub_groups(
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
