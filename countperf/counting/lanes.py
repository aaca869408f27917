"""Addresses that all work items of a group access at the same time, at given parameters.

The items of a sub-group execute an instruction together. A loop that contains no barrier runs at
each item's own pace, so that items meet in its first, second ... iteration, whatever the value of
the loop variable; a loop that contains a barrier, and an unrolled one, has the same value for all
items. Here the executions of an instruction are sorted into *patterns*: all passes at which the
same items are active with the same distances between their addresses.

The loop domain is taken apart into components that share neither constraints, nor conditions, nor
terms of the address. Components without work items only shift addresses: how often by how much is
found for the shift modulo a number of elements (a cache line, say), since more never matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from countperf.counting.components import (
    MAXIMUM_ENTRIES,
    Component,
    bound_case,
    components_of,
    pieces_of,
)
from countperf.counting.domains import Domains
from countperf.counting.scopes import Scope
from countperf.errors import CountingError
from countperf.symbolic import sets
from countperf.symbolic.point_arrays import Points, values_at
from countperf.symbolic.quasipolynomial import QuasiPolynomial

Histogram = dict[int, int]
"""Occurrences of each remainder of an address."""

_MAXIMUM_PATTERNS = 2**16
_INACTIVE = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class LanePattern:
    """Passes of one kind."""

    # addresses in elements; items in order of local axes, axis 0 fastest
    offsets: NDArray[np.int64]
    active: NDArray[np.bool_]  # which items execute it
    # number of passes (of one group each) for each shift of all addresses, modulo the number of
    # elements that was asked for
    shifts: Histogram


def lane_patterns(
    scope: Scope, address: QuasiPolynomial, parameters: Mapping[str, int], modulus: int
) -> list[LanePattern]:
    """Sort the executions of an instruction into patterns."""
    bound = {name: QuasiPolynomial.constant(value) for name, value in parameters.items()}
    numeric = address.substitute(bound)
    cases = [bound_case(case, bound) for case in scope.cases]
    base = int(numeric.constant_term)
    summands = [QuasiPolynomial({m: c}) for m, c in numeric.terms.items() if m]
    groups = _count_unused_groups(scope, parameters)
    result: list[LanePattern] = []
    for piece in pieces_of(scope, cases, parameters):
        result += _patterns_in_piece(
            list(components_of(piece, summands)), scope, base % modulus, groups, modulus
        )
    return result


def _patterns_in_piece(
    components: Sequence[Component], scope: Scope, base: int, groups: int, modulus: int
) -> Iterator[LanePattern]:
    shifts: Histogram = {base: 1}
    axes = sorted(scope.grid.items, reverse=True)
    shape = tuple(scope.grid.items[axis] for axis in axes)
    parts: list[list[_Part]] = []
    for component in components:
        if component.names & scope.lanes.keys():
            parts.append(_patterns_of(component, scope, modulus))
        else:
            shifts = _join_lanes(shifts, _shifts_of(component, modulus), modulus)
    if prod(len(part) for part in parts) > _MAXIMUM_PATTERNS:
        raise CountingError(
            f"the work items of a group access in more than {_MAXIMUM_PATTERNS} different "
            "patterns; choose smaller parameters"
        )
    for combination in product(*parts):
        offsets = np.zeros(shape, np.int64)
        active = np.ones(shape, bool)
        joined = shifts
        for part in combination:
            spread = tuple(scope.grid.items[axis] if axis in part.axes else 1 for axis in axes)
            offsets = offsets + part.offsets.reshape(spread)
            active = active & part.active.reshape(spread)
            joined = _join_lanes(joined, part.shifts, modulus)
        counted = {shift: number * groups for shift, number in joined.items() if number * groups}
        if counted:
            yield LanePattern(offsets.ravel(), active.ravel(), counted)


def _count_unused_groups(scope: Scope, parameters: Mapping[str, int]) -> int:
    """Return how many groups differ only along axes that the instruction does not use."""
    used = {scope.domains.group_axes.get(name) for name in scope.within}
    result = 1
    for axis, size in scope.grid.groups.items():
        if axis not in used:
            result *= int(size.evaluate(parameters))
    return result


def _join_lanes(left: Histogram, right: Histogram, modulus: int) -> Histogram:
    result: Histogram = {}
    for a, number in left.items():
        for b, more in right.items():
            residue = (a + b) % modulus
            result[residue] = result.get(residue, 0) + number * more
    return result


def _shifts_of(component: Component, modulus: int) -> Histogram:
    """Return how often a component without work items shifts addresses by how much."""
    if not component.cases and all(_is_multiple(s, modulus) for s in component.summands):
        number = component.count()
        return {0: number} if number else {}
    points, number = component.points()
    kept = component.executed(points, number)
    total = np.zeros(number, np.int64)
    for summand in component.summands:
        total += values_at(summand, points, number)
    return _histogram(total[kept], modulus)


def _is_multiple(summand: QuasiPolynomial, modulus: int) -> bool:
    return all(c.denominator == 1 and int(c) % modulus == 0 for c in summand.terms.values())


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A pattern over some of the local axes."""

    axes: frozenset[int]
    offsets: NDArray[np.int64]
    active: NDArray[np.bool_]
    shifts: Histogram


def _patterns_of(component: Component, scope: Scope, modulus: int) -> list[_Part]:
    points, number = component.points()
    lanes = {name: axis for name, axis in scope.lanes.items() if name in component.names}
    axes = sorted(lanes.values(), reverse=True)
    items = scope.grid.items
    lane = np.zeros(number, np.int64)
    for axis in axes:
        (name,) = [n for n, a in lanes.items() if a == axis]
        lane = lane * items[axis] + (points[name] - _lowest(scope.domains, name))
    address = np.zeros(number, np.int64)
    for summand in component.summands:
        address += values_at(summand, points, number)
    others = {name: column for name, column in points.items() if name not in lanes}
    for name in scope.loops:
        if name in others and name in scope.own_loops:
            others[name] = _ranks(name, points, scope)
    passes, pass_of = _number_tuples(list(others.values()), number)
    width = prod(items[axis] for axis in axes)
    if passes * width > MAXIMUM_ENTRIES:
        raise CountingError(
            f"more than {MAXIMUM_ENTRIES} points of the loops {', '.join(sorted(points))} would "
            "have to be listed; choose smaller parameters"
        )
    table = np.full((passes, width), _INACTIVE, np.int64)
    kept = component.executed(points, number)
    table[pass_of[kept], lane[kept]] = address[kept]
    table = table[(table != _INACTIVE).any(axis=1)]
    lowest = table.min(axis=1, initial=_INACTIVE)
    table = np.where(table == _INACTIVE, _INACTIVE, table - lowest[:, np.newaxis])
    return [
        _Part(
            axes=frozenset(axes),
            offsets=np.where(row == _INACTIVE, 0, row),
            active=row != _INACTIVE,
            shifts=_histogram(lowest[equal], modulus),
        )
        for row, equal in _distinct_rows(table)
    ]


def _histogram(values: NDArray[np.int64], modulus: int) -> Histogram:
    counts = np.bincount(values % modulus, minlength=modulus)
    return {shift: int(counts[shift]) for shift in range(modulus) if counts[shift]}


def _distinct_rows(
    table: NDArray[np.int64],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.intp]]]:
    """Yield each distinct row and the positions at which it stands; few rows are expected."""
    remaining = np.arange(len(table))
    for _ in range(16):
        if not len(remaining):
            return
        row = table[remaining[0]]
        equal = (table[remaining] == row).all(axis=1)
        yield row, remaining[equal]
        remaining = remaining[~equal]
    if not len(remaining):
        return
    rows, inverse = np.unique(table[remaining], axis=0, return_inverse=True)
    if len(rows) > _MAXIMUM_PATTERNS:
        raise CountingError(
            f"the work items of a group access in more than {_MAXIMUM_PATTERNS} different "
            "patterns; choose smaller parameters"
        )
    order = np.argsort(inverse.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(inverse.ravel(), minlength=len(rows)))
    for row, part in zip(rows, np.split(remaining[order], ends[:-1]), strict=True):
        yield row, part


def _lowest(domains: Domains, name: str) -> int:
    """Return the value of a work-item index for the first item."""
    low, _ = sets.constant_bounds(domains.domain(frozenset([name])))[name]
    assert low is not None  # else the launch geometry was refused
    return low


def _number_tuples(
    columns: Sequence[NDArray[np.int64]], number: int
) -> tuple[int, NDArray[np.intp]]:
    """Return how many distinct tuples of columns there are, and the number of each point's."""
    code = np.zeros(number, np.intp)
    count = 1 if number else 0
    for column in columns:
        low = int(column.min(initial=_INACTIVE))
        span = int(column.max(initial=low)) - low + 1
        values = column - low
        if span * count > 4 * number + 1024:  # far apart: number the values first
            distinct, values = np.unique(column, return_inverse=True)
            span, values = len(distinct), values.ravel()
        code = code * span + values
        present = np.zeros(count * span, bool)
        present[code] = True
        code = (np.cumsum(present) - 1)[code]
        count = int(present.sum())
    return count, code


def _ranks(name: str, points: Points, scope: Scope) -> NDArray[np.int64]:
    """Return the number of the iteration of an item's own loop, from zero."""
    order = scope.loops
    axes = (scope.domains.local_axes, scope.domains.group_axes)
    around = set(order[: order.index(name)]).union(*axes)
    outside = [column for other, column in points.items() if other in around]
    number = len(points[name])
    count, code = _number_tuples(outside, number)
    first = np.full(count, _INACTIVE, np.int64)
    np.minimum.at(first, code, points[name])
    return points[name] - first[code]
