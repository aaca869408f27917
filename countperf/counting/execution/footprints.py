"""Footprints: distinct bytes and contiguous pieces of global memory, by group and by kernel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import cast

from countperf.counting.access_classes import unite_accessed_cells
from countperf.counting.accesses import Address
from countperf.counting.domains import Domains
from countperf.counting.execution.reuse import StepSorter, within_line
from countperf.counting.keys import Grid, MemoryAccess
from countperf.counting.preparation import Conditions, Instruction
from countperf.counting.scopes import Scope
from countperf.counting.structure.memory_hierarchy import LINE_BYTES
from countperf.counting.structure.site_keys import Direction, FootprintKey
from countperf.errors import CountingError, UncountableSetError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import ZERO, QuasiPolynomial

_FAR = 2**30  # elements; instead of a step that is not known

_Touched = tuple[PiecewiseQuasiPolynomial, ...]
_Part = tuple[FootprintKey, PiecewiseQuasiPolynomial]


@dataclass(frozen=True, slots=True)
class _GlobalAccess:
    """An access to global memory."""

    # the launch, the access, its address if it is known, where and when it is executed
    grid: Grid
    access: MemoryAccess
    index: Address | None
    scope: Scope
    cases: Conditions
    # the least constant step along items and loops, and along groups too, elements
    least_step: int
    least_in_all: int
    is_even: bool  # whether steps are known, or stated to stay in a line
    thin: QuasiPolynomial | None  # a step by a symbol that may stay in a line


class FootprintCounter:
    """Collects a kernel's accesses to global memory, and counts what they touch."""

    def __init__(self, domains: Domains, steps: StepSorter) -> None:
        self._domains = domains
        self._steps = steps
        self._accesses: list[_GlobalAccess] = []

    def add(
        self, access: MemoryAccess, instruction: Instruction, cases: Conditions, grid: Grid
    ) -> None:
        """Add an access to global memory."""
        address = self._domains.address(access)
        strides = self._steps.strides(access, instruction)
        constant = [
            (s.kind, abs(int(s.stride.constant_term)))
            for s in strides
            if s.stride is not None and s.stride.is_constant and s.stride
        ]
        least = min((step for kind, step in constant if kind != "group"), default=_FAR)
        inside = partial(within_line, bits=access.bits, counter=self._domains.counter)
        thin = (s.stride for s in strides if s.kind != "group" and inside(s.stride) is not None)
        self._accesses.append(
            _GlobalAccess(
                grid=grid,
                access=access,
                index=address and address.simplify(),
                scope=instruction.scope,
                cases=cases,
                least_step=least,
                least_in_all=min((step for _, step in constant), default=1),
                is_even=least != _FAR or self._steps.stays_beside(access),
                thin=next(thin, None),
            )
        )

    def count(self) -> Iterator[_Part]:
        """Count what all accesses touch."""
        by_array: defaultdict[tuple[str, str, int], list[_GlobalAccess]] = defaultdict(list)
        for member in self._accesses:
            access = member.access
            by_array[access.array, access.direction, access.component_of].append(member)
        touched = {key: self._count_touched(members) for key, members in by_array.items()}
        for key, members in by_array.items():
            yield from self._count_array(members, touched[key])
            array, direction, component = key
            of_loads = array, "load", component
            loaded, stored = touched.get(of_loads), touched[key]
            if direction == "store" and loaded is not None and stored is not None:
                yield from self._count_updates(by_array[of_loads], members, loaded[-1], stored[-1])

    def _count_updates(
        self,
        loads: Sequence[_GlobalAccess],
        stores: Sequence[_GlobalAccess],
        loaded: PiecewiseQuasiPolynomial,
        stored: PiecewiseQuasiPolynomial,
    ) -> Iterator[_Part]:
        """Yield the bytes that are both loaded and stored, which one load brings."""
        both = stored
        places = [{(m.index, m.scope.within, m.cases) for m in some} for some in (loads, stores)]
        if places[0] != places[1]:
            whole = self._count_touched([*loads, *stores])
            if whole is None:
                return
            both = stored + loaded + whole[-1].scale(-1)
        yield FootprintKey("bytes.kernel", "update"), both.scale(_bytes_in_all(stores))

    def _count_array(
        self, members: Sequence[_GlobalAccess], touched: _Touched | None
    ) -> Iterator[_Part]:
        """Yield the bytes and pieces of accesses to one array."""
        direction = cast("Direction", members[0].access.direction)
        size = members[0].access.bits // 8
        if touched is None:
            even = PiecewiseQuasiPolynomial.sum(
                self._domains.executions(m.scope.within, m.cases, m.grid)
                for m in members
                if m.is_even
            )
            yield FootprintKey("bytes.group", direction, "dense"), even.scale(size)
            extent = self._steps.extent(members[0].access) or ZERO
            whole = PiecewiseQuasiPolynomial.from_value(extent)
            yield FootprintKey("bytes.kernel", direction), whole.scale(size)
            return
        by_group, pieces, thin_pieces, in_all = touched
        yield FootprintKey("bytes.kernel", direction), in_all.scale(_bytes_in_all(members))
        in_lines = _bytes_between([(m.least_step, m.index) for m in members], size)
        if in_lines >= LINE_BYTES:
            thin = _find_thin(members)
            inside = within_line(thin, 8 * size, self._domains.counter)
            if thin is not None and inside is not None:  # they are in lines where a symbol is small
                step = thin if self._domains.counter.is_nonnegative(thin) else -thin
                dense = by_group.restrict_to((inside,))
                dense *= PiecewiseQuasiPolynomial.from_value(step).scale(size)
                yield FootprintKey("bytes.group", direction, "dense"), dense
                yield FootprintKey("segments.group", direction), thin_pieces.restrict_to((inside,))
                by_group = by_group.restrict_to((-inside - 1,))
            yield FootprintKey("bytes.group", direction, "sparse"), by_group.scale(size)
            yield FootprintKey("segments.group", direction), by_group
            return
        yield FootprintKey("bytes.group", direction, "dense"), by_group.scale(in_lines)
        yield FootprintKey("segments.group", direction), pieces

    def _count_touched(self, members: Sequence[_GlobalAccess]) -> _Touched | None:
        """Count elements and pieces by group, those of thin steps, and all elements, if known."""
        by_axes: defaultdict[tuple[int, ...], list[_GlobalAccess]] = defaultdict(list)
        repeats: dict[tuple[int, ...], PiecewiseQuasiPolynomial] = {}
        for member in members:
            counted, _ = self._domains.trip_statistics(member.scope.within)
            if member.index is None or counted != member.scope.within:
                return None
            axes = tuple(sorted({self._domains.group_axes.get(n, -1) for n in counted} - {-1}))
            by_axes[axes].append(member)
            groups = member.grid.groups
            repeats[axes] = PiecewiseQuasiPolynomial.product(
                groups[axis] for axis in sorted(groups.keys() - set(axes))
            )
        if any(m.index and (m.index.has_quotients or m.index.has_products) for m in members):
            try:  # quotients may have few values, each of which is looked at
                self._count_cells(members, ())
            except CountingError:
                return None
        array = members[0].access.array
        by_group, pieces, thin_pieces = ZERO_COUNT, ZERO_COUNT, ZERO_COUNT
        thin = _find_thin(members)
        try:
            with self._domains.limit(f"the footprint of array '{array}'", 4):
                for axes, some in by_axes.items():
                    elements = self._count_cells(some, axes)
                    by_group += elements * repeats[axes]
                    pieces += self._count_pieces(some, axes, elements) * repeats[axes]
                    if thin is not None:
                        in_thin = self._count_pieces(some, axes, elements, thin)
                        thin_pieces += in_thin * repeats[axes]
                return by_group, pieces, thin_pieces, self._count_cells(members, ())
        except UncountableSetError as error:
            self._steps.assumed.add(str(error))
            return None

    def _count_pieces(
        self,
        members: Sequence[_GlobalAccess],
        axes: Sequence[int],
        elements: PiecewiseQuasiPolynomial,
        thin: QuasiPolynomial | None = None,
    ) -> PiecewiseQuasiPolynomial:
        """Count contiguous pieces by group; along axes of a thin stride they are one."""
        access = members[0].access
        strides = self._domains.layout_of(access).strides
        known = sorted((int(s.constant_term), a) for a, s in enumerate(strides) if s.is_constant)
        in_lines = [axis for stride, axis in known if stride * access.bits < 8 * LINE_BYTES]
        if thin is not None:
            along = [axis for axis, stride in enumerate(strides) if stride in (thin, -thin)]
            return self._count_cells(members, axes, without=[*in_lines, *along])
        pieces = self._count_cells(members, axes, without=in_lines)
        for stride, axis in known[len(in_lines) :]:
            if elements != pieces.scale(stride):
                break
            in_lines.append(axis)
            pieces = self._count_cells(members, axes, without=in_lines)
        return pieces

    def _count_cells(
        self, members: Sequence[_GlobalAccess], axes: Sequence[int], without: Collection[int] = ()
    ) -> PiecewiseQuasiPolynomial:
        """Count distinct subscripts, perhaps without some, told apart by groups along some axes."""
        pieces: list[isl_sets.IntegerSet] = []
        for member in members:
            if member.index is not None:
                within, of_axes = member.scope.within, self._domains.group_axes
                groups = [min(n for n in within if of_axes.get(n) == axis) for axis in axes]
                kept = [part for i, part in enumerate(member.index.index) if i not in without]
                functions = [*map(QuasiPolynomial.name, groups), *kept]
                place = (functions, within, member.cases)
                pieces.append(unite_accessed_cells([place], self._domains))
        counter = self._domains.counter
        whole = pieces[0] if len(pieces) == 1 else counter.as_one_piece(sets.union(pieces))
        return counter.count(whole)


def _find_thin(members: Sequence[_GlobalAccess]) -> QuasiPolynomial | None:
    return next((m.thin for m in members if m.thin is not None), None)


def _bytes_in_all(members: Sequence[_GlobalAccess]) -> Fraction:
    """Return the bytes from an element that a kernel accesses to the next, at most a line."""
    steps = [(member.least_in_all, member.index) for member in members]
    return min(_bytes_between(steps, members[0].access.bits // 8), Fraction(LINE_BYTES))


def _bytes_between(steps: Sequence[tuple[int, Address | None]], size: int) -> Fraction:
    """Return the bytes from an element to the next that some accesses take in their least steps."""
    least = min(step for step, _ in steps)
    together = len({index for step, index in steps if step == least})
    return max(Fraction(least * size, together), Fraction(size))
