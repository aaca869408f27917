"""Kinds of points of a box: those at which some sets have the same slices.

The box holds the numbers of work groups, and each set what the groups execute of something; the
first dimensions of a set are those of the box. Slices that differ by a shift are the same, if it
grows by as much from each point to the next: those of a window that moves with the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod

import islpy as isl
import numpy as np
from numpy.typing import NDArray

from countperf.symbolic.cardinality import Counter
from countperf.symbolic.isl_sets import IntegerSet, names_of
from countperf.symbolic.point_arrays import points_of_set
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.symbolic.sets import at_values, image

_DT = isl.dim_type

MAX_KINDS = 16
"""Kinds that are told apart; with more, parts of the box have a point each."""

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
    box = _box(extents)
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
        point = _first_point(rest)
        members = rest
        for part in uneven:
            like_it = _everywhere(box, _slice(part, point))
            differences = (part - like_it) | (like_it - part)
            members = members - _onto_box(differences, extents)
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
    for ranges in product(*map(_parts, extents)):
        members = _box([r.stop for r in ranges], [r.start for r in ranges])
        size = prod(map(len, ranges))
        total = sum(_size(_within(members, part)) for part in executed)
        sizes = {
            point: sum(_size(_slice(part, point)) for part in executed)
            for point in _quarters(ranges)
        }
        point = min(sizes, key=lambda point: abs(sizes[point] * size - total))
        times = Fraction(total, sizes[point]) if sizes[point] else size
        yield Kind(point, times, members, is_exact=size == 1)


def kinds_in_order(
    kinds: Sequence[Kind], extents: Sequence[int], limit: int
) -> NDArray[np.intp] | None:
    """Return the kind of each point, first axis fastest; None for more points than a limit."""
    if prod(extents) > limit:
        return None
    order = np.zeros(prod(extents), np.intp)
    steps = [prod(extents[:axis]) for axis in range(len(extents))]
    for number, kind in enumerate(kinds[1:], start=1):
        points, _ = points_of_set(kind.members, {}, limit)
        order[sum(column * step for column, step in zip(points.values(), steps, strict=True))] = (
            number
        )
    return order


def _parts(extent: int) -> list[range]:
    parts = (range(1), range(1, extent - 1), range(max(1, extent - 1), extent))
    return [part for part in parts if part]


def _quarters(ranges: Sequence[range]) -> list[Point]:
    """Return the point in the middle, and those halfway to the ends."""
    return [tuple(part[len(part) * k // 4] for part in ranges) for k in (2, 1, 3)]


def place_in_box(part: IntegerSet, axes: Sequence[int], number: int) -> IntegerSet:
    """Return a set whose first dimensions are some axes of a box with all axes of the box."""
    for axis in range(number):
        if axis not in axes:
            part = part.insert_dims(_DT.set, axis, 1)
    return _name_dimensions(part)


def _box(stops: Sequence[int], starts: Sequence[int] = ()) -> IntegerSet:
    box = isl.Set.universe(isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, len(stops)))
    for axis, stop in enumerate(stops):
        start = starts[axis] if starts else 0
        box = box.lower_bound_val(_DT.set, axis, isl.Val(start))
        box = box.upper_bound_val(_DT.set, axis, isl.Val(stop - 1))
    return _name_dimensions(box)


def _name_dimensions(integer_set: IntegerSet) -> IntegerSet:
    for k in range(integer_set.dim(_DT.set)):
        integer_set = integer_set.set_dim_name(_DT.set, k, f"_i{k}")
    return integer_set


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
    return image(part, functions)


def _slice(part: IntegerSet, point: Sequence[int]) -> IntegerSet:
    return at_values(part, {f"_i{axis}": value for axis, value in enumerate(point)})


def _onto_box(part: IntegerSet, extents: Sequence[int]) -> IntegerSet:
    axes = len(extents)
    return part.project_out(_DT.set, axes, part.dim(_DT.set) - axes)


def _first_point(integer_set: IntegerSet) -> Point:
    point = integer_set.lexmin().sample_point()
    return tuple(
        point.get_coordinate_val(_DT.set, k).to_python() for k in range(integer_set.dim(_DT.set))
    )


def _size(integer_set: IntegerSet) -> int:
    return int(Counter().count(integer_set).evaluate({}))
