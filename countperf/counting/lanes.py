"""Addresses that all work items of a group access at the same time, at given parameters.

Loops without a barrier run at each item's own pace: items meet in their first, second ...
iteration. Loops with one, and unrolled ones, have the same value for all items. The executions of
an instruction are sorted into *patterns*: all passes at which the same items are active with the
same distances between their addresses. Components of the domain without work items only shift
addresses, which matters modulo a number of elements (a cache line, say).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from countperf.counting.keys import Case
from countperf.counting.scopes import Scope
from countperf.errors import CountingError
from countperf.symbolic import sets
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.isl_sets import IntegerSet, names_of, to_isl
from countperf.symbolic.piecewise import one_count
from countperf.symbolic.point_arrays import Points, points_of_set, split_off_full, values_at
from countperf.symbolic.quasipolynomial import QuasiPolynomial

Histogram = dict[int, int]
"""Occurrences of each remainder of an address."""

_MAXIMUM_PATTERNS = 2**16
_PATTERNS = "different patterns in which the work items of a group access memory"
_INACTIVE = np.iinfo(np.int64).max

_SPLIT_FROM = 2**18  # points; full work groups are split off, so as not to list them one by one
_MAXIMUM_POINTS = 2**24
_MAXIMUM_ENTRIES = 2**25
"""Points of one part, and addresses, that are listed at most."""


def _check_number(number: int, most: int, what: str) -> None:
    if number > most:
        raise CountingError(
            f"more than {most} {what} would have to be listed; choose smaller parameters"
        )


def _names(points: IntegerSet) -> frozenset[str]:
    return frozenset(names_of(points, parameters=False))


def _count_points(points: IntegerSet) -> int:
    return int(Counter(None).count(points).evaluate({}))


@dataclass(slots=True, eq=False)
class _Component:
    """Loop variables that belong together."""

    names: frozenset[str] = frozenset()
    factors: list[IntegerSet] = field(default_factory=list[IntegerSet])  # that share no constraint
    summands: list[QuasiPolynomial] = field(default_factory=list[QuasiPolynomial])
    cases: list[Case] = field(default_factory=list[Case])

    def list_addresses(self) -> tuple[Points, NDArray[np.int64], NDArray[np.bool_]]:
        """List all points, the sum of the terms there, and whether all conditions hold."""
        points: Points = {}
        number = 1
        for factor in self.factors:
            more, more_number = points_of_set(factor, {}, _MAXIMUM_POINTS)
            loops = f"points of the loops {', '.join(sorted(self.names))}"
            _check_number(number * more_number, _MAXIMUM_POINTS, loops)
            points = {name: np.repeat(column, more_number) for name, column in points.items()}
            points |= {name: np.tile(column, number) for name, column in more.items()}
            number *= more_number
        kept = np.ones(number, bool)
        for case in self.cases:
            holding = np.zeros(number, bool)
            for guards in case.alternatives:
                inside = [values_at(guard, points, number) >= 0 for guard in guards]
                holding |= np.logical_and.reduce([np.ones(number, bool), *inside])
            kept &= holding == case.holds
        summands = (values_at(summand, points, number) for summand in self.summands)
        return points, sum(summands, np.zeros(number, np.int64)), kept


def _split_domain(
    scope: Scope, address: QuasiPolynomial, parameters: Mapping[str, int]
) -> tuple[int, list[list[_Component]]]:
    """Return the constant of an address, and disjoint parts of its domain: their components."""
    bound = {name: QuasiPolynomial.constant(value) for name, value in parameters.items()}
    numeric = address.substitute(bound)
    summands = [QuasiPolynomial({m: c}) for m, c in numeric.terms.items() if m]
    cases = [
        Case(
            alternatives=frozenset(
                frozenset(guard.substitute(bound) for guard in guards)
                for guards in case.alternatives
            ),
            holds=case.holds,
        )
        for case in scope.cases
    ]
    parts = [
        _join_factors(factors, summands, remaining)
        for factors, remaining in _split_full_groups(scope, cases, parameters)
    ]
    return int(numeric.constant_term), parts


def _join_factors(
    factors: Sequence[IntegerSet], summands: Sequence[QuasiPolynomial], cases: Sequence[Case]
) -> list[_Component]:
    """Return the components of a part of a loop domain: factors that a term or condition joins."""
    components = [_Component(), *(_Component(_names(factor), [factor]) for factor in factors)]
    joints = [_Component(frozenset(s.names()), summands=[s]) for s in summands]
    joints += [_Component(case.names, cases=[case]) for case in cases]
    for joint in joints:
        touched = [c for c in components if c.names & joint.names] or components[:1]
        components = [c for c in components if all(c is not t for t in touched)]
        for each in touched:
            joint.factors += each.factors
            joint.summands = each.summands + joint.summands
            joint.cases = each.cases + joint.cases
        joint.names = frozenset[str]().union(*(each.names for each in touched))
        components.append(joint)
    return components


def _split_full_groups(
    scope: Scope, cases: Sequence[Case], parameters: Mapping[str, int]
) -> Iterator[tuple[list[IntegerSet], list[Case]]]:
    """Yield disjoint parts of the loop domain of a place, and the conditions that remain there."""
    remaining = list(cases)
    alternatives: list[list[list[IntegerSet]]] = []
    for factor in _list_factors(scope, parameters):
        names = _names(factor)
        outer = names & scope.domains.group_axes.keys()
        halves, absorbed = None, list[Case]()
        if outer and outer < names and _count_points(factor) > _SPLIT_FROM:
            absorbed = [case for case in remaining if _is_convex(case, names)]
            guards = [g for case in absorbed for guards in case.alternatives for g in guards]
            halves = split_off_full(sets.restrict(factor, nonnegative=guards), outer)
        if halves is None:
            alternatives.append([[factor]])
            continue
        remaining = [case for case in remaining if case not in absorbed]
        full, items, rest = halves
        alternatives.append([[full, items], [rest]])
    for choice in product(*alternatives):
        yield [factor for part in choice for factor in part], remaining


def _is_convex(case: Case, names: frozenset[str]) -> bool:
    """Return whether a condition is a conjunction of affine ones on some loop variables."""
    guards = [guard for guards in case.alternatives for guard in guards]
    is_linear = all(g.is_linear and g.names() <= names for g in guards)
    return case.holds and len(case.alternatives) == 1 and is_linear


def _list_factors(scope: Scope, parameters: Mapping[str, int]) -> list[IntegerSet]:
    """Return the independent parts of the loop domain."""
    if not scope.within:
        return []
    factored = scope.domains.factored(scope.within)
    polyhedra = None if factored is None else factored.onto(scope.within)
    if polyhedra is None:
        return [sets.at_values(scope.domains.domain(scope.within), parameters)]
    return [sets.at_values(to_isl(polyhedron), parameters) for polyhedron in polyhedra]


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
    base, pieces = _split_domain(scope, address, parameters)
    # that differ only along axes that the instruction does not use
    groups = scope.domains.times_groups(one_count(), scope.within, scope.grid).evaluate(parameters)
    return [
        pattern
        for components in pieces
        for pattern in _sort_piece(components, scope, base % modulus, int(groups), modulus)
    ]


def _sort_piece(
    components: Iterable[_Component], scope: Scope, base: int, groups: int, modulus: int
) -> Iterator[LanePattern]:
    shifts: Histogram = {base: 1}
    axes = sorted(scope.grid.items, reverse=True)
    shape = tuple(scope.grid.items[axis] for axis in axes)
    parts: list[list[tuple[frozenset[int], LanePattern]]] = []
    for component in components:
        if component.names & scope.lanes.keys():
            parts.append(_sort_component(component, scope, modulus))
        else:
            shifts = _add_shifts(shifts, _count_shifts(component, modulus), modulus)
    _check_number(prod(map(len, parts)), _MAXIMUM_PATTERNS, _PATTERNS)
    for combination in product(*parts):
        offsets = np.zeros(shape, np.int64)
        active = np.ones(shape, bool)
        joined = shifts
        for along, part in combination:
            spread = tuple(scope.grid.items[axis] if axis in along else 1 for axis in axes)
            offsets = offsets + part.offsets.reshape(spread)
            active = active & part.active.reshape(spread)
            joined = _add_shifts(joined, part.shifts, modulus)
        counted = {shift: number * groups for shift, number in joined.items() if number * groups}
        if counted:
            yield LanePattern(offsets.ravel(), active.ravel(), counted)


def _add_shifts(left: Histogram, right: Histogram, modulus: int) -> Histogram:
    result: Histogram = {}
    for a, number in left.items():
        for b, more in right.items():
            residue = (a + b) % modulus
            result[residue] = result.get(residue, 0) + number * more
    return result


def _count_shifts(component: _Component, modulus: int) -> Histogram:
    """Return how often a component without work items shifts addresses by how much."""
    is_aligned = all(
        c.denominator == 1 and int(c) % modulus == 0
        for summand in component.summands
        for c in summand.terms.values()
    )
    if is_aligned and not component.cases:
        number = prod(map(_count_points, component.factors))
        return {0: number} if number else {}
    _, addresses, kept = component.list_addresses()
    return _count_remainders(addresses[kept], modulus)


def _sort_component(
    component: _Component, scope: Scope, modulus: int
) -> list[tuple[frozenset[int], LanePattern]]:
    """Sort the executions of a component with work items; return patterns and their local axes."""
    points, address, kept = component.list_addresses()
    lanes = {name: axis for name, axis in scope.lanes.items() if name in component.names}
    items = scope.grid.items
    lane = np.zeros(len(address), np.int64)
    for name, axis in sorted(lanes.items(), key=lambda item: -item[1]):
        first, _ = sets.constant_bounds(scope.domains.domain(frozenset([name])))[name]
        assert first is not None  # else the launch geometry was refused
        lane = lane * items[axis] + (points[name] - first)
    others = {name: column for name, column in points.items() if name not in lanes}
    for name in scope.loops:
        if name in others and name in scope.own_loops:
            others[name] = _number_iterations(name, points, scope)
    passes, pass_of = _number_tuples(list(others.values()), len(address))
    width = prod(items[axis] for axis in lanes.values())
    loops = f"points of the loops {', '.join(sorted(points))}"
    _check_number(passes * width, _MAXIMUM_ENTRIES, loops)
    table = np.full((passes, width), _INACTIVE, np.int64)
    table[pass_of[kept], lane[kept]] = address[kept]
    table = table[(table != _INACTIVE).any(axis=1)]
    lowest = table.min(axis=1, initial=_INACTIVE)
    table = np.where(table == _INACTIVE, _INACTIVE, table - lowest[:, np.newaxis])
    axes = frozenset(lanes.values())
    return [
        (
            axes,
            LanePattern(
                offsets=np.where(row == _INACTIVE, 0, row),
                active=row != _INACTIVE,
                shifts=_count_remainders(lowest[equal], modulus),
            ),
        )
        for row, equal in _find_distinct_rows(table)
    ]


def _count_remainders(values: NDArray[np.int64], modulus: int) -> Histogram:
    counts = np.bincount(values % modulus, minlength=modulus)
    return {shift: int(counts[shift]) for shift in range(modulus) if counts[shift]}


def _find_distinct_rows(
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
    _check_number(len(rows), _MAXIMUM_PATTERNS, _PATTERNS)
    order = np.argsort(inverse.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(inverse.ravel(), minlength=len(rows)))
    yield from zip(rows, np.split(remaining[order], ends[:-1]), strict=True)


def _number_tuples(
    columns: Sequence[NDArray[np.int64]], number: int
) -> tuple[int, NDArray[np.intp]]:
    """Return how many distinct tuples of columns there are, and the number of each point's."""
    code = np.zeros(number, np.intp)
    for column in columns:
        distinct, values = np.unique(column, return_inverse=True)
        code = np.unique(code * len(distinct) + values.ravel(), return_inverse=True)[1].ravel()
    return int(code.max(initial=-1)) + 1, code


def _number_iterations(name: str, points: Points, scope: Scope) -> NDArray[np.int64]:
    """Return the number of the iteration of an item's own loop, from zero."""
    axes = (scope.domains.local_axes, scope.domains.group_axes)
    around = set(scope.loops[: scope.loops.index(name)]).union(*axes)
    outside = [column for other, column in points.items() if other in around]
    count, code = _number_tuples(outside, len(points[name]))
    first = np.full(count, _INACTIVE, np.int64)
    np.minimum.at(first, code, points[name])
    return points[name] - first[code]
