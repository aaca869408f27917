"""Each memory access of a kernel in its place: address, strides, executions, transactions."""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray

from countperf.counting.accesses import Address, offset_of
from countperf.counting.keys import Case, MemoryAccess
from countperf.counting.preparation import Instruction, InstructionPart, PreparedKernel
from countperf.counting.scopes import AxisStride, Scope, strides_of
from countperf.counting.size_parameters import SizeParameters
from countperf.errors import CountingError
from countperf.sizes import Sizes
from countperf.symbolic import sets
from countperf.symbolic.affine import NotAffineError
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.isl_sets import IntegerSet, names_of, to_isl
from countperf.symbolic.piecewise import ONE_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.point_arrays import Points, points_of_set, split_off_full, values_at
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.text import ShortRepr

PROBABILITY = "the probability of a condition"  # that the caller states, in messages


@dataclass(frozen=True, slots=True)
class AccessAnalysis(ShortRepr):
    """A memory access of one instruction."""

    program: int  # device program
    instruction: str  # id of the instruction
    access: MemoryAccess  # array, address space, direction, bits of an element, subscript
    repeats: int  # how often the access stands in the instruction
    executions: PiecewiseQuasiPolynomial  # executions by all work items, repeats included
    address: QuasiPolynomial | None  # offset from the start of the array's memory, elements
    index: Address | None  # the same by subscript, without an offset of the array
    # along local axes, group axes, loops from the outermost to the innermost, and copies
    strides: tuple[AxisStride, ...]
    is_estimate: str  # which of the caller's statistics enter; empty if everything is exact
    scope: Scope = field(repr=False, compare=False)  # where it is executed
    sizes: SizeParameters = field(repr=False, compare=False)  # of the kernel

    @property
    def label(self) -> str:
        """The access in words, for messages."""
        return f"kernel '{self.sizes.kernel}', instruction '{self.instruction}', {self.text}"

    @property
    def text(self) -> str:
        """The access as ``load a[i, k]``."""
        return f"{self.access.direction} {self.access.text}"


def analyze_accesses(prepared: PreparedKernel) -> tuple[AccessAnalysis, ...]:
    """Analyze the accesses of a prepared kernel alone."""
    accesses = (
        _analyze_access(prepared, launch.program.number, instruction, part)
        for launch in prepared.launches()
        for instruction in prepared.tally("source").instructions(launch)
        for part in instruction.parts
        if isinstance(part.key, MemoryAccess)
    )
    return tuple(access for access in accesses if access.executions)


def _analyze_access(
    prepared: PreparedKernel, program: int, read: Instruction, part: InstructionPart
) -> AccessAnalysis:
    domains, access = prepared.domains, part.key
    assert isinstance(access, MemoryAccess)
    # the source's view has no first iterations
    cases = tuple(case for case in part.conditions if isinstance(case, Case))
    scope = replace(read.scope, cases=cases)
    address = domains.address(access)
    counted, _ = domains.trip_statistics(scope.within)
    estimates = [f"the mean trip count of '{n}'" for n in sorted(scope.within - counted)]
    if part.share != 1 or isinstance(part.number, Fraction):
        estimates.append(PROBABILITY)
    flat: QuasiPolynomial | None = None
    if address is not None:
        with suppress(NotAffineError):  # else it is not known where the array begins
            flat = address.flat + domains.to_polynomial(offset_of(domains.variable(access.array)))
    executions = domains.executions(scope.within, scope.cases, scope.grid).scale(part.times)
    found = (program, read.loopy.id, access, int(part.number) or 1, executions, flat, address)
    strides, is_estimate = strides_of(scope, access, read.kinds), " and ".join(estimates)
    return AccessAnalysis(*found, strides, is_estimate, scope, prepared.sizes)


# --- Memory transactions of sub-groups, and bank conflicts in local memory
# Sub-groups are consecutive work items of a group, axis 0 fastest, as on GPUs (OpenCL 3.0, section
# 3.2.1, leaves it open); the last one may be partial. All its items execute an access together.

BANKS = 32
BANK_WIDTH_BYTES = 4  # of local memory: those of every NVIDIA GPU since Fermi but Kepler's

_NOTHING = np.iinfo(np.int64).max  # in the place of items that access nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class SubGroupCounts:
    """Sub-group instructions by a measure: lines that they touch, or passes over the banks."""

    distribution: tuple[tuple[int, int], ...]  # measure, and instructions that have it; sorted

    @property
    def instructions(self) -> int:
        """Sub-group instructions with at least one active item."""
        return sum(number for _, number in self.distribution)

    @property
    def total(self) -> int:
        """The measure summed over all sub-group instructions."""
        return sum(measure * number for measure, number in self.distribution)

    @property
    def mean(self) -> Fraction:
        """Mean measure of a sub-group instruction; zero if there are none."""
        return Fraction(self.total, self.instructions or 1)


def transactions(
    access: AccessAnalysis, parameters: Mapping[str, int], *, line_bytes: int, sub_group_size: int
) -> SubGroupCounts:
    """Count the lines that each sub-group touches whenever it executes an access.

    CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory".
    """
    return _measure_sub_groups(access, parameters, line_bytes, sub_group_size, _count_distinct)


def count_lines(
    accesses: Iterable[AccessAnalysis], parameters: Sizes, *, line_bytes: int, sub_group_size: int
) -> dict[str, int]:
    """Return the transactions of all loads from global memory, and those of all stores to it."""
    result = {"load": 0, "store": 0}
    sizes = {"line_bytes": line_bytes, "sub_group_size": sub_group_size}
    for access in accesses:
        if access.access.address_space == "global":
            result[access.access.direction] += transactions(access, parameters, **sizes).total
    return result


def bank_conflicts(
    access: AccessAnalysis,
    parameters: Mapping[str, int],
    *,
    banks: int = BANKS,
    bank_width_bytes: int = BANK_WIDTH_BYTES,
    sub_group_size: int,
) -> SubGroupCounts:
    """Find how many words of one bank the items of a sub-group need at a time: passes over them.

    CUDA C++ Programming Guide, sections "Shared Memory"; wide elements take all words at once.
    """
    if access.access.address_space != "local":
        raise CountingError(
            f"{access.label} is no access to local memory: it has no bank conflicts; see "
            "transactions()"
        )

    def measure(words: NDArray[np.int64]) -> NDArray[np.int64]:
        in_banks = (np.where(words % banks == bank, words, _NOTHING) for bank in range(banks))
        return np.max(np.stack([_count_distinct(some) for some in in_banks]), axis=0)

    return _measure_sub_groups(access, parameters, bank_width_bytes, sub_group_size, measure)


def _measure_sub_groups(
    access: AccessAnalysis,
    parameters: Mapping[str, int],
    unit_bytes: int,
    sub_group_size: int,
    measure: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> SubGroupCounts:
    """Sort sub-group instructions by a measure of the units of memory that their items touch."""
    if unit_bytes < 1 or sub_group_size < 1:
        raise CountingError(
            f"lines of {unit_bytes} bytes and sub-groups of {sub_group_size} items; both must be "
            "at least 1"
        )
    if access.address is None or access.is_estimate:
        why = access.is_estimate or "data, from which its address is read,"
        raise CountingError(
            f"{access.label}: {why} decides which items access what together, so that no pattern "
            "is known; enumerate it with the data at hand, or leave it out"
        )
    size = access.access.bits // 8
    modulus = unit_bytes // gcd(unit_bytes, size)
    values = access.sizes.check_values(parameters)
    counted: Multiset[int] = Multiset()
    for pattern in lane_patterns(access.scope, access.address, values, modulus):
        rows = -(-len(pattern.offsets) // sub_group_size)  # the last one is padded
        padding = (0, rows * sub_group_size - len(pattern.offsets))
        offsets = np.pad(pattern.offsets, padding).reshape(rows, sub_group_size)
        active = np.pad(pattern.active, padding).reshape(rows, sub_group_size)
        for shift, number in pattern.shifts.items():
            first = (offsets + shift) * size // unit_bytes
            last = ((offsets + shift) * size + size - 1) // unit_bytes
            width = int((last - first).max(initial=0)) + 1
            following = (first + k for k in range(width))
            units = [np.where(active & (unit <= last), unit, _NOTHING) for unit in following]
            measured = measure(np.concatenate(units, axis=1))[active.any(axis=1)]
            for value in measured.tolist():
                counted[value] += number * access.repeats
    return SubGroupCounts(distribution=tuple(sorted(counted.items())))


def _count_distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of distinct values of each row, nothings aside."""
    ordered = np.sort(values, axis=1)
    is_new = np.ones(ordered.shape, bool)
    is_new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return (is_new & (ordered != _NOTHING)).sum(axis=1)


# --- Addresses that all work items of a group access at the same time
# In loops without a barrier, items meet in their first, second ... iteration; loops with one, and
# unrolled ones, have one value for all. A *pattern* is all passes with the same active items and
# distances between addresses. Components of the domain without work items only shift addresses.

Histogram = dict[int, int]  # occurrences of each remainder of an address

_MAXIMUM_PATTERNS = 2**16
_PATTERNS = "different patterns in which the work items of a group access memory"
_SPLIT_FROM = 2**18  # points; full work groups are split off, so as not to list them one by one
_MAXIMUM_POINTS = 2**24
_MAXIMUM_ENTRIES = 2**25  # points of one part, and addresses, that are listed at most


def _check_number(number: int, most: int, what: str) -> None:
    if number > most:
        message = f"more than {most} {what} would have to be listed; choose smaller parameters"
        raise CountingError(message)


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
    cases: list[Case] = []
    for case in scope.cases:
        some = frozenset(frozenset(g.substitute(bound) for g in gs) for gs in case.alternatives)
        cases.append(Case(alternatives=some, holds=case.holds))
    split = _split_full_groups(scope, cases, parameters)
    parts = [_join_factors(factors, summands, remaining) for factors, remaining in split]
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
        parts = [[factor]]
        if outer and outer < names and _count_points(factor) > _SPLIT_FROM:
            absorbed = [case for case in remaining if _is_convex(case, names)]
            guards = [g for case in absorbed for guards in case.alternatives for g in guards]
            halves = split_off_full(sets.restrict(factor, nonnegative=guards), outer)
            if halves is not None:
                remaining = [case for case in remaining if case not in absorbed]
                parts = [[*halves[:2]], [halves[2]]]
        alternatives.append(parts)
    for choice in product(*alternatives):
        yield [factor for part in choice for factor in part], remaining


def _is_convex(case: Case, names: frozenset[str]) -> bool:
    guards = [guard for guards in case.alternatives for guard in guards]
    is_linear = all(g.is_linear and g.names() <= names for g in guards)
    return is_linear and case.holds and len(case.alternatives) == 1


def _list_factors(scope: Scope, parameters: Mapping[str, int]) -> list[IntegerSet]:
    if not scope.within:
        return []
    factored = scope.domains.factor_domain(scope.within)
    polyhedra = None if factored is None else factored.onto(scope.within)
    if polyhedra is None:
        return [sets.at_values(scope.domains.domain(scope.within), parameters)]
    return [sets.at_values(to_isl(polyhedron), parameters) for polyhedron in polyhedra]


def list_touched_addresses(
    scope: Scope, address: QuasiPolynomial, parameters: Mapping[str, int]
) -> NDArray[np.int64]:
    """List the distinct addresses of an access, elements; as for `lane_patterns`."""
    base, pieces = _split_domain(scope, address, parameters)
    parts: list[NDArray[np.int64]] = []
    for components in pieces:
        touched = np.array([base], np.int64)
        for component in components:
            _, addresses, kept = component.list_addresses()
            steps = np.unique(addresses[kept])
            _check_number(len(touched) * len(steps), _MAXIMUM_ENTRIES, "addresses")
            touched = np.unique(touched[:, np.newaxis] + steps)
        parts.append(touched)
    return np.unique(np.concatenate(parts))


@dataclass(frozen=True, slots=True, eq=False)
class LanePattern:
    """Passes of one kind."""

    # addresses in elements; items in order of local axes, axis 0 fastest
    offsets: NDArray[np.int64]
    active: NDArray[np.bool_]  # which items execute it
    shifts: Histogram  # passes (of one group each) by the shift of all addresses, modulo a number


def lane_patterns(
    scope: Scope, address: QuasiPolynomial, parameters: Mapping[str, int], modulus: int
) -> list[LanePattern]:
    """Sort the executions of an instruction into patterns."""
    base, pieces = _split_domain(scope, address, parameters)
    # that differ only along axes that the instruction does not use
    groups = scope.domains.times_groups(ONE_COUNT, scope.within, scope.grid).evaluate(parameters)
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
            parts.append([*_sort_component(component, scope, modulus)])
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
    result: Multiset[int] = Multiset()
    for (a, number), (b, more) in product(left.items(), right.items()):
        result[(a + b) % modulus] += number * more
    return result


def _count_shifts(component: _Component, modulus: int) -> Histogram:
    """Return how often a component without work items shifts addresses by how much."""
    factors = [c for summand in component.summands for c in summand.terms.values()]
    is_aligned = all(c.denominator == 1 and int(c) % modulus == 0 for c in factors)
    if is_aligned and not component.cases:
        number = prod(map(_count_points, component.factors))
        return {0: number} if number else {}
    _, addresses, kept = component.list_addresses()
    return _count_remainders(addresses[kept], modulus)


def _sort_component(
    component: _Component, scope: Scope, modulus: int
) -> Iterator[tuple[frozenset[int], LanePattern]]:
    """Sort the executions of a component with work items; yield patterns and their local axes."""
    points, address, kept = component.list_addresses()
    lanes = {name: axis for name, axis in scope.lanes.items() if name in component.names}
    items = scope.grid.items
    lane = np.zeros(len(address), np.int64)
    for name, axis in sorted(lanes.items(), key=lambda item: -item[1]):
        first, _ = scope.domains.value_bounds(name)
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
    table = np.full((passes, width), _NOTHING, np.int64)
    table[pass_of[kept], lane[kept]] = address[kept]
    table = table[(table != _NOTHING).any(axis=1)]
    lowest = table.min(axis=1, initial=_NOTHING)
    table = np.where(table == _NOTHING, _NOTHING, table - lowest[:, np.newaxis])
    for row, equal in _find_distinct_rows(table):
        active, shifts = row != _NOTHING, _count_remainders(lowest[equal], modulus)
        yield frozenset(lanes.values()), LanePattern(np.where(active, row, 0), active, shifts)


def _count_remainders(values: NDArray[np.int64], modulus: int) -> Histogram:
    counts = np.bincount(values % modulus, minlength=modulus)
    return {shift: int(counts[shift]) for shift in range(modulus) if counts[shift]}


def _find_distinct_rows(
    table: NDArray[np.int64],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.intp]]]:
    """Yield each distinct row and the positions at which it stands; few rows are expected."""
    remaining = np.arange(len(table))
    for _ in range(16):
        if len(remaining):
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
    first = np.full(count, _NOTHING, np.int64)
    np.minimum.at(first, code, points[name])
    return points[name] - first[code]
