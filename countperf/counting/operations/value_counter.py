"""Tallies of the compiler's view but for sums of products; rules 1, 2 and 4 to 10 there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import pymbolic.primitives as p
from loopy import AddressSpace
from loopy.symbolic import LinearSubscript, get_dependencies
from pytools import memoize_method

from countperf.counting.device_programs import (
    Entered,
    Event,
    Guard,
    Left,
    Loop,
    Point,
    Position,
    Values,
    Waited,
    positions_of,
    written_by,
)
from countperf.counting.domains import Domains
from countperf.counting.expression_types import DType
from countperf.counting.keys import Case, FirstIteration, MemoryAccess, Operation
from countperf.counting.operations.access_counter import Key, Tally, is_linear
from countperf.counting.operations.functions import TupleCounter
from countperf.counting.operations.sinking import sunk_instructions
from countperf.errors import CountingError
from countperf.symbolic import sets
from countperf.symbolic.affine import ALWAYS, NotAffineError
from countperf.symbolic.kernel_sets import assumptions_of

_GUARDED_NODES = (p.Call, p.FloorDiv, p.Remainder, p.Power)
"""Nodes whose operations are not executed for nothing."""


Moved = tuple[FirstIteration] | tuple[()]
"""The loops that something is moved out of, if any."""


class Hoisting:
    """Decides what is executed once per entry of loops (rules 4 to 7)."""

    def __init__(self, domains: Domains, positions: Mapping[str, Position]) -> None:
        self._domains = domains
        self._positions = positions

    @memoize_method
    def find_clobbered_arrays(self, program: Loop) -> frozenset[str]:
        """Return the arrays that others may have written after a barrier (rule 2)."""
        private = {
            name
            for name, variable in self._domains.kernel.temporary_variables.items()
            if variable.address_space == AddressSpace.PRIVATE
        }
        return frozenset(program.written - private)

    def find_loops_left(self, point: Point, names: frozenset[str], *, speculated: bool) -> Moved:
        """Return the loops that leave a value alone, from the inside out (rules 4, 5 and 7)."""
        loops: list[str] = []
        is_sequential = False
        outermost = ""
        for region in reversed(point.regions[1:]):
            iname = region.iname
            if iname in self._domains.data_loops or point.tests:
                break
            if iname in names or names & self._find_changes_in(region, point.regions[0]):
                if region.is_unrolled:
                    continue
                break
            if region.is_unrolled and is_sequential:
                continue
            guarded = region.is_unrolled or region.has_barrier or not speculated
            if guarded and not self._is_all_or_nothing(
                point.within, point.cases, frozenset(loops), region
            ):
                if region.is_unrolled:
                    continue
                break
            loops.append(iname)
            outermost = iname
            is_sequential = is_sequential or not region.is_unrolled
        if not loops:
            return ()
        return (
            FirstIteration(
                loops=frozenset(loops),
                outermost=outermost,
                is_speculated=speculated and is_sequential,
            ),
        )

    def _find_changes_in(self, region: Loop, program: Loop) -> set[str]:
        changed = region.written | {region.pin}
        return changed | self.find_clobbered_arrays(program) if region.has_barrier else changed

    @memoize_method
    def _is_all_or_nothing(
        self,
        within: frozenset[str],
        cases: tuple[Case, ...],
        inner: frozenset[str],
        region: Loop,
    ) -> bool:
        """Return whether all iterations of a loop execute something or none does (rule 4)."""
        counted, _ = self._domains.trip_statistics(within)
        outer = counted - inner
        if region.has_barrier:  # whose bounds are those of the group, guards inside
            return self._is_unguarded(counted, cases, outer)
        if not cases and not inner:
            return True
        executed = sets.project_onto(self._domains.executed_set(counted, cases), outer)
        return sets.is_all_or_nothing(executed, self._domains.domain(outer), region.iname)

    def _is_unguarded(
        self, within: frozenset[str], cases: Sequence[Case], outer: frozenset[str]
    ) -> bool:
        """Return whether all items of a group execute a node in all iterations of outer loops."""
        executed = sets.project_onto(self._domains.executed_set(within, cases), outer)
        lanes = {name: self._lanes[name] for name in outer & set(self._lanes)}
        everything = sets.widened_along(self._domains.domain(outer), lanes)
        return sets.contains(executed, everything, assumptions_of(self._domains.kernel))

    @cached_property
    def _lanes(self) -> dict[str, tuple[int, int]]:
        """First and last value along its axis of each loop variable that is mapped to items."""
        axes = self._domains.local_axes
        bounds = {n: self._domains.value_bounds(n) for n in axes}
        result: dict[str, tuple[int, int]] = {}
        for name, axis in axes.items():
            lows, highs = zip(*(bounds[n] for n in axes if axes[n] == axis), strict=True)
            result[name] = (min(lows), max(highs))
        return result

    def find_accumulator_loops(self, point: Point, access: MemoryAccess) -> Moved:
        """Return the loops in which an array is one accumulator (rule 6)."""
        if point.cases or point.tests:
            return ()
        loops: list[str] = []
        names = frozenset[str]().union(*(get_dependencies(part) for part in access.index))
        for region in reversed(point.regions[1:]):
            if (
                region.is_unrolled
                or access.array not in region.written
                or region.has_barrier
                or region.iname in names
                or names & region.written
                or region.iname in self._domains.data_loops
                or region.subscripts[access.array] != {access.index}
                or not self._is_always_accessed(access.array, region)
            ):
                break
            loops.append(region.iname)
        if not loops:
            return ()
        first = FirstIteration(loops=frozenset(loops), outermost=loops[-1], is_speculated=False)
        return (first,)

    def _is_always_accessed(self, array: str, region: Loop) -> bool:
        for instruction in region.accessing[array]:
            regions = self._positions[instruction.id].regions
            inner = frozenset(r.iname for r in regions[regions.index(region) + 1 :])
            if instruction.predicates or inner & self._domains.data_loops.keys():
                return False
            if not self._is_all_or_nothing(instruction.within_inames, (), inner, region):
                return False
        return True


class ValueCounter(TupleCounter):
    """Tallies each value once; instructions come in schedule order."""

    def __init__(self, domains: Domains) -> None:
        super().__init__(domains)
        self._positions = positions_of(domains.kernel)
        self._hoisting = Hoisting(domains, self._positions)
        self._sunk = sunk_instructions(domains.kernel, self._positions)
        self._order = list(self._positions)
        self._reached = 0  # how many instructions were looked at
        self._position = Position((), ())
        self._current: Any = None
        self._predicates: tuple[Case, ...] = ()
        self._data_predicates: list[Any] = []
        self._tests: frozenset[Guard] = frozenset()
        self._sunk_cases: tuple[Case, ...] = ()
        self._sunk_share = Fraction(1)
        self._values = Values()
        self._value = 0  # of the part of an expression that was looked at last
        self._names: frozenset[str] | None = None  # that the node at work depends on
        self._is_speculated = False
        self._pins: frozenset[str] = frozenset()  # of the operands of the node at work

    # --- from instruction to instruction

    def tally(self, instruction: Any) -> Tally:
        """Return how often each key is left of one execution of an instruction."""
        self._begin(instruction)
        data = ((test, self._versions_in(test), True) for test in self._data_predicates)
        with self._set(_tests=self._tests.union(data), _sunk_cases=(), _sunk_share=Fraction(1)):
            try:
                self._sink(instruction)
                result = super().tally(instruction)
                self._assign(instruction)
            except CountingError:
                self._values.assign(written_by(self.kernel, instruction))
                raise
        return result

    def _start(self, instruction: Any) -> None:
        super()._start(instruction)
        self._cases, self._factor = self._sunk_cases, self._sunk_share

    def _sink(self, instruction: Any) -> None:
        """Have an instruction executed in the branch that it is moved into, if any (rule 9)."""
        sunk = self._sunk.get(instruction.id)
        if sunk is None:
            return
        for test, holds in sunk.branch:
            try:
                case = Case(alternatives=self.to_condition(test), holds=holds)
            except NotAffineError:
                self._tests |= {(test, self._versions_in(test), holds)}
                share = self._share_of(test, sunk.into, holds=holds)
                self._sunk_share *= 1 if share is None else share  # refused where it is branched
            else:
                self._sunk_cases += (case,)

    def tally_predicates(self, instruction: Any) -> Tally:
        """Return what is left of the evaluation of an instruction's predicates."""
        self._begin(instruction)
        return super().tally_predicates(instruction)

    def _begin(self, instruction: Any) -> None:
        if self._current is instruction:
            return
        self._current = instruction
        while self._position is not self._positions[instruction.id]:
            skipped = self._order[self._reached]
            self._reached += 1
            self._position = self._positions[skipped]
            self._pass(self._position.events)
            if skipped != instruction.id:
                instruction_before = self.kernel.id_to_insn[skipped]
                self._values.assign(written_by(self.kernel, instruction_before))
        self._predicates, self._data_predicates = self.domains.predicates(instruction)

    def _pass(self, events: Sequence[Event]) -> None:
        """Forget what loops and barriers on the way change."""
        for event in events:
            match event:
                case Entered(region=region):
                    if not region.iname:
                        self._values = Values()
                    self._values.assign(region.written)
                    if region.has_barrier:
                        self._values.assign(self._clobbered)
                case Left(region=region):
                    self._values.assign(region.written)
                case Waited():
                    self._values.assign(self._clobbered)

    @property
    def _clobbered(self) -> frozenset[str]:
        return self._hoisting.find_clobbered_arrays(self._position.regions[0])

    def _assign(self, instruction: Any) -> None:
        """Forget what an instruction overwrites, and remember what it stores."""
        names = instruction.assignee_var_names()
        point = self._point
        region = self._straight_region(self._position.regions)
        source = self._value
        self._values.assign(written_by(self.kernel, instruction))
        for assignee, name in zip(instruction.assignees, names, strict=True):
            if self._address_space(self._variable(name)) is not None:
                stored = self._load_value(name, _index_of(assignee))
                self._values.provide(stored, region, point)
            elif (
                isinstance(assignee, p.Variable)
                and len(names) == 1
                and (not point.guards or instruction.id in self._sunk)
            ):
                self._values.name_scalar(name, source, region, point)

    @property
    def _point(self) -> Point:
        within = self.loops_around(self._current)
        return Point(
            tuple(r for r in self._position.regions if not r.iname or r.iname in within),
            within,
            tuple(c for c in (*self._predicates, *self._cases) if c.alternatives != ALWAYS),
            self._tests,
        )

    def _versions_in(self, expr: Any) -> frozenset[tuple[str, int]]:
        return frozenset((name, self._values.version(name)) for name in get_dependencies(expr))

    # --- where things are executed

    def _add(self, key: Key, number: int | Any = 1) -> None:
        if not number or (isinstance(key, Operation) and self._in_index):
            return
        if isinstance(key, MemoryAccess) and key.array in self._position.regions[0].written:
            moved = self._hoisting.find_accumulator_loops(self._point, key)
            if not moved:
                moved = self._move_out(self._names or frozenset(), speculated=False)
        else:
            names = (self._names or frozenset()) | self._pins
            moved = self._move_out(names, speculated=self._is_speculated)
        cases = (*self._cases, *moved)
        entry = (key, cases)
        self._tally[entry] = self._tally.get(entry, 0) + number * self._factor

    def _move_out(self, names: frozenset[str], *, speculated: bool) -> Moved:
        return self._hoisting.find_loops_left(self._point, names, speculated=speculated)

    def _straight_region(self, regions: Sequence[Loop]) -> Loop:
        """Return the innermost loop that is one, not unrolled: straight-line code is its body."""
        return next(r for r in reversed(regions) if not r.is_unrolled)

    def _provide(self, value: int, *, speculated: bool) -> None:
        """Remember a value: it stays for as long as the outermost loop that it was moved out of."""
        regions = self._position.regions
        region = self._straight_region(regions)
        moved = self._move_out(self._values.names(value), speculated=speculated)
        for first in moved:
            region = next(r for r in regions if r.iname == first.outermost)
            if region.is_unrolled:
                region = self._straight_region(regions[: regions.index(region)])
        if not speculated:
            left = frozenset[str]().union(*(first.loops for first in moved))
            self._values.add_names(value, frozenset(r.pin for r in regions if r.iname not in left))
        self._values.provide(value, region, self._point)

    # --- expressions

    def rec(self, expr: Any, /, *_: Any, **__: Any) -> DType | None:
        """Tally what is left of a part of an expression and return its type."""
        if not isinstance(expr, p.ExpressionNode):
            dtype = super().rec(expr)
            self._value = self._values.number(("constant", repr(expr), str(dtype)))
            return dtype
        outer, self._pins = self._pins, frozenset()
        by_parts = self._is_counted_by_parts(expr)
        dtype = super().rec(expr) if by_parts else self._node(expr)
        self._pins = outer | self._pins_of(self._value)
        return dtype

    def _is_counted_by_parts(self, expr: Any) -> bool:
        """Return whether parts of an expression count where each is; else all count together."""
        return isinstance(expr, p.Variable | p.Subscript | p.Sum | p.Product) or is_linear(expr)

    def _pins_of(self, value: int) -> frozenset[str]:
        return self._values.names(value) & {region.pin for region in self._position.regions}

    def _node(self, expr: Any) -> DType | None:
        """Tally a node whose operations count together: all of them, or none."""
        value = self._values.number(
            ("node", expr, self._context, self._in_index, self._versions_in(expr)),
            self._names_in(expr),
        )
        if self._values.is_there(value, self._point):
            self._value = value
            return self._values.type_of(value)
        speculated = not isinstance(expr, _GUARDED_NODES)
        with self._depending_on(self._values.names(value), speculated=speculated):
            dtype = super().rec(expr)
            self._values.add_names(value, self._pins)
            self._provide(value, speculated=speculated)
        self._values.set_type(value, dtype)
        self._value = value
        return dtype

    def _depending_on(
        self, names: frozenset[str], *, speculated: bool
    ) -> AbstractContextManager[None]:
        """Tally what depends on names, and may or may not be executed for nothing."""
        return self._set(_names=names, _is_speculated=speculated, _pins=frozenset[str]())

    def _unless_there(self, value: int, tally: Callable[[], None], *, speculated: bool) -> None:
        """Tally what makes a value, unless it is there."""
        if not self._values.is_there(value, self._point):
            with self._depending_on(self._values.names(value), speculated=speculated):
                tally()
                self._provide(value, speculated=speculated)

    def _names_in(self, expr: Any) -> frozenset[str]:
        point = self._point
        return frozenset[str]().union(
            *(
                self._values.names(self._values.scalar(name, point))
                for name in get_dependencies(expr)
            )
        )

    def map_variable(self, expr: Any) -> DType | None:
        """As in the source's view; private scalars are the values that they were assigned."""
        self._value = -1
        dtype = super().map_variable(expr)
        if self._value < 0:
            self._value = self._values.scalar(expr.name, self._point)
        return dtype

    map_tagged_variable = map_variable

    def _find_subscripted(self, direction: str, name: str, index: tuple[Any, ...]) -> DType | None:
        dtype = super()._find_subscripted(direction, name, index)
        self._value = self._load_value(name, index)
        return dtype

    def _access(
        self, direction: str, name: str, variable: Any, space: str, index: tuple[Any, ...]
    ) -> None:
        value = self._load_value(name, index)
        self._value = value
        if direction == "store":
            with self._depending_on(self.inames, speculated=False):
                super()._access(direction, name, variable, space, index)
            return
        access = partial(super()._access, direction, name, variable, space, index)
        self._unless_there(value, access, speculated=False)

    def _load_value(self, name: str, index: tuple[Any, ...]) -> int:
        parts: list[Any] = []
        names = frozenset([name])
        for part in index:
            inner = part.index if is_linear(part) else part
            try:
                polynomial = self.domains.to_polynomial(inner)
            except NotAffineError:
                parts.append((inner, self._versions_in(inner)))
                names |= self._names_in(inner)
            else:
                parts.append(polynomial)
                names |= polynomial.names()
        version = self._values.version(name)
        return self._values.number(("load", name, version, tuple(parts)), names)

    def _convert(self, source: DType | None, target: DType | None) -> None:
        if self._names is None:
            with self._depending_on(self._values.names(self._value), speculated=True):
                super()._convert(source, target)
        else:
            super()._convert(source, target)
        if source != target:
            self._value = self._values.number(
                ("convert", str(target), self._value), self._values.names(self._value)
            )

    def _data_dependent_branch(
        self, test: Any, branch: Any, *, holds: bool, target: DType | None
    ) -> None:
        with self._set(_tests=self._tests | {(test, self._versions_in(test), holds)}):
            super()._data_dependent_branch(test, branch, holds=holds, target=target)


def _index_of(assignee: Any) -> tuple[Any, ...]:
    if isinstance(assignee, p.Variable):
        return ()
    if isinstance(assignee, LinearSubscript):
        return (LinearSubscript(0, assignee.index),)
    return assignee.index_tuple
