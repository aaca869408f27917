"""Points of integer sets at given sizes: listed in arrays, by sub-group, and sorted into kinds.

Kinds of points of a box are those at which some sets have the same slices; the first dimensions of
a set are those of the box. Slices that differ by a shift are the same, if it grows by as much from
each point to the next: those of a window that moves with the group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import lcm, prod
from typing import Any, cast

import islpy as isl
import numpy as np
from numpy.typing import NDArray

from countperf.errors import CountingError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.compiled import nothing_wraps
from countperf.symbolic.elimination import Polyhedron, Row
from countperf.symbolic.isl_sets import IntegerSet, names_of
from countperf.symbolic.quasipolynomial import ZERO, QuasiPolynomial

Points = dict[str, NDArray[np.int64]]  # one coordinate array for each name, all of one length

_DT = isl.dim_type
_SPLITTING_OPERATIONS = 200_000


def points_of_set(
    integer_set: IntegerSet, parameters: Mapping[str, int], limit: int
) -> tuple[Points, int]:
    """List all points of a set."""
    names = names_of(integer_set, parameters=False)
    parts = [np.empty((len(names), 0), np.int64)]
    for piece in isl_sets.lift_pieces(sets.at_values(integer_set, parameters)):
        assert not piece.parameters
        left = limit - sum(part.shape[1] for part in parts)
        parts.append(_enumerate_points(piece, left)[: len(names)])
    joined = np.concatenate(parts, axis=1)
    return dict(zip(names, joined, strict=True)), joined.shape[1]


def split_off_full(
    whole: IntegerSet, outer: Collection[str]
) -> tuple[IntegerSet, IntegerSet, IntegerSet] | None:
    """Split off the part of a set that is a product, such as the full work groups."""
    names = names_of(whole, parameters=False)
    try:
        with isl_sets.limit_operations(_SPLITTING_OPERATIONS, "splitting a set"):
            outside = sets.project_onto(whole, outer)
            inside = sets.project_onto(whole, {*names} - {*outer})
            everywhere = sets.add_dimensions(inside, names)
            partial = (sets.add_dimensions(outside, names) & everywhere) - whole
            full = (outside - sets.project_onto(partial, outer)).coalesce()
            rest = (whole - (sets.add_dimensions(full, names) & everywhere)).coalesce()
    except CountingError:
        return None
    return full, inside, rest


def _enumerate_points(polyhedron: Polyhedron, limit: int) -> NDArray[np.int64]:
    """Nest the dimensions as loops; return an array of shape (dimensions, points)."""
    depth = len(polyhedron.dimensions)
    basic = isl_sets.to_isl(polyhedron)
    if basic.is_empty():
        return np.empty((depth, 0), np.int64)
    points = np.empty((0, 1), np.int64)
    for level in range(1, depth + 1):
        outer = basic.project_out(_DT.set, level, depth - level).remove_divs()
        bounds = isl_sets.from_isl(outer, (), polyhedron.dimensions[:level])
        points = _extend_points(points, _inequalities(bounds), limit)
    kept = np.ones(points.shape[1], bool)  # rational projections may be too large
    for row in _inequalities(polyhedron):
        kept &= row[0] + np.array(row[1:], np.int64) @ points >= 0
    return points[:, kept]


def _inequalities(polyhedron: Polyhedron) -> list[Row]:
    negated = (tuple(-c for c in row) for row in polyhedron.equalities)
    return [*polyhedron.rows, *negated]


def _extend_points(points: NDArray[np.int64], rows: Sequence[Row], limit: int) -> NDArray[np.int64]:
    """Add the innermost dimension of rows to the points of the outer ones."""
    bounds = [(row[-1], row[0] + np.array(row[1:-1], np.int64) @ points) for row in rows if row[-1]]
    lows = [-(rest // c) for c, rest in bounds if c > 0]
    highs = [rest // -c for c, rest in bounds if c < 0]
    if not lows or not highs:
        raise CountingError("a loop is unbounded")
    low = np.maximum.reduce(lows)
    lengths = np.maximum(np.minimum.reduce(highs) - low + 1, 0)
    total = int(lengths.sum(dtype=object))
    if total > limit:
        raise CountingError(
            f"more than {limit} points would have to be listed one by one; choose smaller "
            "parameters"
        )
    starts = np.cumsum(lengths) - lengths
    innermost = np.arange(total, dtype=np.int64) - np.repeat(starts - low, lengths)
    return np.vstack([np.repeat(points, lengths, axis=1), innermost])


def values_at(
    polynomial: QuasiPolynomial, points: Mapping[str, NDArray[np.int64]], number: int
) -> NDArray[np.int64]:
    """Evaluate an integer-valued quasi-polynomial at points."""
    scale = lcm(*(c.denominator for c in polynomial.terms.values()))
    scaled = polynomial * scale
    if not nothing_wraps([scaled], points):
        raise CountingError(
            f"the values of {polynomial} do not fit into 64 bits; choose smaller parameters"
        )
    total: Any = scaled.evaluate(cast("Any", points))
    return np.full(number, total // scale, np.int64)


SUB_GROUP = "_sub_group"  # dimension that numbers the sub-groups of a group


def find_sub_groups_executing(
    executed: isl_sets.IntegerSet,
    lanes: Mapping[int, str],
    extents: Mapping[int, int],
    sub_group_size: int,
) -> isl_sets.IntegerSet:
    """Return where at least one work item of a sub-group executes something."""
    names = names_of(executed, parameters=False)
    added = [f"_lane{axis}" for axis in sorted(extents) if axis not in lanes]
    whole = sets.add_dimensions(sets.union([executed]), [*names, *added])
    position, stride = ZERO, 1
    for axis in sorted(extents):
        item = QuasiPolynomial.name(lanes.get(axis, f"_lane{axis}"))
        if axis not in lanes:
            whole = sets.restrict(whole, nonnegative=[item, extents[axis] - 1 - item])
        position = position + item * stride
        stride *= extents[axis]
    kept = [name for name in names if name not in position.names()]
    number = position.floor_divide(sub_group_size) if stride > sub_group_size else ZERO
    image = sets.image(whole, [*map(QuasiPolynomial.name, kept), number])
    return sets.name_dimensions(image, (*kept, SUB_GROUP))


class Membership:
    """Tells whether points are in a set without parameters."""

    def __init__(self, integer_set: IntegerSet) -> None:
        self._set = sets.union([integer_set])
        self.names = names_of(self._set, parameters=False)
        self.is_empty = bool(self._set.is_empty())
        found = {} if self.is_empty else sets.constant_bounds(self._set)
        for name, ends in found.items():
            if None in ends:
                raise CountingError(f"the loop '{name}' is not bounded in {self._set}")
        self.bounds: tuple[Any, ...] = tuple(found.values())
        self._guards = isl_sets.guards_of(sets.as_parameters(self._set, self.names).params())

    def onto(self, names: Sequence[str]) -> Membership:
        """Return the same for the values of some dimensions alone."""
        return Membership(sets.project_onto(self._set, names))

    def contains(self, point: Sequence[int]) -> bool:
        """Return whether a point, in the order of `names`, is in the set."""
        values = dict(zip(self.names, point, strict=True))
        return any(
            all(guard.evaluate(values) >= 0 for guard in nonnegative)
            and not any(guard.evaluate(values) for guard in zero)
            for nonnegative, zero in self._guards
        )


MAX_KINDS = 16  # kinds that are told apart; with more, parts of the box have a point each

Point = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Points with the same slices, or with similar ones."""

    point: Point  # one of them
    times: int | Fraction  # how many of that one they amount to
    members: IntegerSet = None  # all of them, a set
    is_exact: bool = True  # whether the slices of all of them are the same


def kinds_of_points(
    extents: Sequence[int], executed: Sequence[IntegerSet], most: int = MAX_KINDS
) -> list[Kind]:
    """Sort the points of a box by the slices of sets.

    With more kinds than are wanted, the first, the last and the points between them along each
    axis are each represented by one that has about the mean number of points in its slices.
    """
    box = _box([*map(range, extents)])
    whole = [_within(box, part) for part in executed]
    uneven = [
        _align_slices(extents, part)
        for part in whole
        if not part.is_equal(_everywhere(box, part.project_out(_DT.set, 0, len(extents))))
    ]
    if not uneven:
        return [Kind(tuple(extent // 2 for extent in extents), prod(extents), box)]
    kinds: list[Kind] = []
    rest = box
    while not rest.is_empty():
        if len(kinds) == most:
            return list(parts_by_place(extents, whole))
        sample = rest.lexmin().sample_point()
        values = (sample.get_coordinate_val(_DT.set, axis) for axis in range(len(extents)))
        point = tuple(value.to_python() for value in values)
        members = rest
        for part in uneven:
            like_it = _everywhere(box, _slice(part, point))
            differences = (part - like_it) | (like_it - part)
            within = differences.dim(_DT.set) - len(extents)
            members = members - differences.project_out(_DT.set, len(extents), within)
        kinds.append(Kind(point, _size(members), members.coalesce()))
        rest = (rest - members).coalesce()
    return kinds


def typical_point(extents: Sequence[int], executed: Sequence[IntegerSet]) -> Point:
    """Return a point of the kind with the most points in all of its slices; the middle if it is."""
    middle = tuple(extent // 2 for extent in extents)
    kinds = kinds_of_points(extents, executed)
    if len(kinds) > 1:
        sizes = [k.times * sum(_size(_slice(part, k.point)) for part in executed) for k in kinds]
        largest = kinds[sizes.index(max(sizes))]
        if _slice(largest.members, middle).is_empty():
            return largest.point
    return middle


def parts_by_place(extents: Sequence[int], executed: Sequence[IntegerSet] = ()) -> Iterator[Kind]:
    """Yield the first, the last and the points between along each axis, weighted by their slices.

    Without sets, parts are weighted by their size, and represented by their middle.
    """
    parts = ((range(1), range(1, n - 1), range(max(1, n - 1), n)) for n in extents)
    for ranges in product(*(filter(None, along_axis) for along_axis in parts)):
        members = _box(ranges)
        size = prod(map(len, ranges))
        total = sum(_size(_within(members, part)) for part in executed)
        # the point in the middle, and those halfway to the ends
        quarters = [tuple(part[len(part) * k // 4] for part in ranges) for k in (2, 1, 3)]
        sizes = {point: sum(_size(_slice(part, point)) for part in executed) for point in quarters}
        point = min(sizes, key=lambda point: abs(sizes[point] * size - total))
        times = Fraction(total, sizes[point]) if sizes[point] else size
        yield Kind(point, times, members, is_exact=size == 1)


def kinds_in_order(
    kinds: Sequence[Kind], extents: Sequence[int], limit: int
) -> NDArray[np.intp] | None:
    """Return the kind of each point, first axis fastest; None for more points than a limit."""
    if prod(extents) > limit:
        return None
    order = np.zeros(tuple(extents), np.intp)
    for number, kind in enumerate(kinds[1:], start=1):
        points, _ = points_of_set(kind.members, {}, limit)
        order[tuple(points.values())] = number
    return order.ravel(order="F")


def place_in_box(part: IntegerSet, axes: Sequence[int], number: int) -> IntegerSet:
    """Return a set whose first dimensions are some axes of a box with all axes of the box."""
    for axis in range(number):
        if axis not in axes:
            part = part.insert_dims(_DT.set, axis, 1)
    return _name_dimensions(part)


def _box(ranges: Sequence[range]) -> IntegerSet:
    bounds = [f"{r.start} <= _i{axis} < {r.stop}" for axis, r in enumerate(ranges)]
    names = [f"_i{axis}" for axis in range(len(ranges))]
    return isl.Set(f"{{ [{', '.join(names)}] : {' and '.join(bounds)} }}")


def _name_dimensions(integer_set: IntegerSet) -> IntegerSet:
    return sets.name_dimensions(integer_set, map("_i{}".format, range(integer_set.dim(_DT.set))))


def _within(box: IntegerSet, part: IntegerSet) -> IntegerSet:
    """Restrict a set to the slices at points of a box."""
    return part & _name_dimensions(box.add_dims(_DT.set, part.dim(_DT.set) - box.dim(_DT.set)))


def _everywhere(box: IntegerSet, inside: IntegerSet) -> IntegerSet:
    """Return the set that has the same slice at all points of a box."""
    return _name_dimensions(box.flat_product(inside))


def _align_slices(extents: Sequence[int], part: IntegerSet) -> IntegerSet:
    """Shift slices back that move evenly with the point."""
    axes = len(extents)
    names = names_of(part, parameters=False)
    functions = [QuasiPolynomial.name(name) for name in names]
    middle = [extent // 2 for extent in extents]
    for axis, extent in enumerate(extents):
        if extent < 3:
            continue
        before = [*middle[:axis], middle[axis] - 1, *middle[axis + 1 :]]
        slices = _slice(part, before), _slice(part, middle)
        if any(one.is_empty() for one in slices):
            continue
        for inner in range(len(names) - axes):
            low, high = (one.dim_min_val(inner) for one in slices)
            if low.is_int() and high.is_int():
                step = high.to_python() - low.to_python()
                functions[axes + inner] -= step * functions[axis]
    return sets.image(part, functions)


def _slice(part: IntegerSet, point: Sequence[int]) -> IntegerSet:
    return sets.at_values(part, {f"_i{axis}": value for axis, value in enumerate(point)})


def _size(integer_set: IntegerSet) -> int:
    return int(Counter().count(integer_set).evaluate({}))
