"""Instruction trace of one sub-group of a typical work group at given sizes, with dependencies.

Its loops run over all values for which one of its work items is active. A private variable, or an
element of a private array, carries what its value waited for to every later use. A load waits for
the last store of the first work item to the same address; what others store is seen after
a barrier. A program with more instructions than are wanted is shortened: the outermost loops run
a part of their iterations, all by the same factor; inner ones only if that is not enough.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pytools import memoize_method

from countperf.counting.device_programs import Item, Loop, Wait, ids_in
from countperf.counting.keys import MemoryAccess
from countperf.counting.programs import Iterations, KernelProgram, Node, Read, Source, Statement
from countperf.sizes import Sizes
from countperf.symbolic.point_arrays import SUB_GROUP, Membership
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.symbolic.sets import at_values

Index: TypeAlias = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Expansion:
    """A sub-group's instructions in program order."""

    nodes: tuple[Node | None, ...]  # what each instruction is; None: a barrier
    edges: tuple[tuple[int, int], ...]  # which instruction waits for which
    is_shortened: bool  # whether loops were cut short


def expand_program(
    program: KernelProgram,
    parameters: Mapping[str, int],
    *,
    sub_group_size: int,
    number: int = 0,
    max_instructions: int,
) -> Expansion:
    """Write the instructions of one sub-group out, about as many as wanted at most.

    Accesses are those that a compiler leaves: the others are in registers.
    """
    return _Writer(program, parameters, sub_group_size, number).expand(max_instructions)


class _Writer:
    """Writes the instructions of one sub-group of a typical work group out, at given sizes."""

    def __init__(
        self, program: KernelProgram, parameters: Sizes, sub_group_size: int, number: int
    ) -> None:
        self.program = program
        self.sub_group_size = sub_group_size
        # what does not change: sizes, host loops, groups, and the indices of the first work item
        self.fixed: dict[str, int] = {**parameters, SUB_GROUP: number}
        domains = program.domains
        within = frozenset[str]().union(*(s.within for s in program.statements))
        for name in sorted(program.launch_loops - domains.group_axes.keys()):
            self.fixed[name] = self._choose_value(name, parameters, None)
        group = program.typical_group(self.fixed)
        for name in sorted(within & domains.group_axes.keys()):
            self.fixed[name] = self._choose_value(name, parameters, group[domains.group_axes[name]])
        item, lane = number * sub_group_size, dict[int, int]()
        for axis in sorted(program.grid.items):
            item, lane[axis] = divmod(item, program.grid.items[axis])
        self.lanes = {n: lane[axis] for n, axis in domains.local_axes.items() if axis in lane}
        self.nodes: list[Node | None] = []
        self.recorder = Recorder()
        self.values: dict[str, int] = {}  # of the loops that are open
        self.private: dict[str, dict[Index, frozenset[int]]] = {}
        self.stored: dict[tuple[Any, ...], int] = {}
        self.loaded: dict[tuple[Any, ...], int] = {}  # by addresses, what a register may hold
        self.entered: set[tuple[Any, ...]] = set()  # accesses that loops do once, by other loops
        keys = [node.key for statement in program.statements for node in statement.nodes]
        accesses = {(k.array, k.direction) for k in keys if isinstance(k, MemoryAccess)}
        stored = {array for array, direction in accesses if direction == "store"}
        self._forwarding = {array for array in stored if (array, "load") in accesses}

    def _choose_value(self, name: str, parameters: Mapping[str, int], number: int | None) -> int:
        """Return the value of a loop variable by its number, by default that in the middle."""
        line = Membership(at_values(self.program.domains.domain(frozenset([name])), parameters))
        if line.is_empty:
            return 0
        ((low, high),) = line.bounds
        return min(low + ((high - low + 1) // 2 if number is None else number), high)

    @memoize_method
    def _find_members(
        self, iterations: Iterations, names: tuple[str, ...] | None = None
    ) -> Membership:
        """Return the values of some sequential loops at which something is executed."""
        if names is not None:
            return self._find_members(iterations).onto(names)
        executed = self.program.find_points(iterations, self.sub_group_size)
        return Membership(at_values(executed, self.fixed))

    def _find_statements(self, items: Sequence[Item]) -> list[Statement]:
        by_id = self.program.by_id
        return [by_id[i] for i in ids_in(items) if i in by_id]

    @memoize_method
    def _find_range(self, loop: Loop) -> range:
        """Return the values of a loop for which one of its statements is executed."""
        domains = self.program.domains
        if loop.iname in domains.data_loops:
            _, trips = domains.trip_statistics(frozenset([loop.iname]))
            return range(round(trips.evaluate(self.fixed)))
        statements = self._find_statements(loop.body)
        members = [self._find_members((s.within, s.cases)) for s in statements]
        bounds = [m.bounds[m.names.index(loop.iname)] for m in members if not m.is_empty]
        lows, highs = zip(*bounds, strict=True) if bounds else ((0,), (-1,))
        return range(min(lows), max(highs) + 1)

    def expand(self, max_instructions: int) -> Expansion:
        size = self._count_instructions(self.program.body)
        fraction = min(1.0, max_instructions / size) if size else 1.0
        self._run_items(self.program.body, fraction)
        return Expansion(tuple(self.nodes), tuple(self.recorder.edges), fraction < 1)

    def _count_instructions(self, items: Sequence[Item]) -> int:
        total = 0
        for item in items:
            if isinstance(item, Loop):
                total += len(self._find_range(item)) * self._count_instructions(item.body)
            elif isinstance(item, Wait):
                total += 1
            elif item in self.program.by_id:
                total += len(self.program.by_id[item].nodes)
        return total

    def _run_items(self, items: Sequence[Item], fraction: float) -> None:
        for item in items:
            if isinstance(item, Loop):
                values = self._find_range(item)
                kept = max(1, round(fraction * len(values)))
                inner = min(1.0, fraction * len(values) / kept)
                statements = self._find_statements(item.body)
                for value in values[:kept]:
                    self.values[item.iname] = value
                    if any(self._is_executed((s.within, s.cases)) for s in statements):
                        self._run_items(item.body, inner)
                self.values.pop(item.iname, None)
            elif isinstance(item, Wait):
                self.nodes.append(None)
                self.recorder.barrier()
            elif item in self.program.by_id:
                statement = self.program.by_id[item]
                if self._is_executed((statement.within, statement.cases)):
                    self._run_statement(statement)

    def _is_executed(self, iterations: Iterations) -> bool:
        members = self._find_members(iterations)
        if members.is_empty:
            return False
        known = tuple(name for name in members.names if name in self.values)
        if len(known) < len(members.names):
            members = self._find_members(iterations, known)
        return members.contains([self.values[name] for name in known])

    def _run_statement(self, statement: Statement) -> None:
        written: dict[Node, int] = {}
        seen = Multiset[MemoryAccess]()
        for node in statement.nodes:
            guarded = (statement.within, node.cases)
            if node.cases != statement.cases and not self._is_executed(guarded):
                continue
            if isinstance(node.key, MemoryAccess):
                seen[node.key] += 1
                if not self._is_left(statement, node.key, seen[node.key]):
                    if (cell := self._find_cell(statement, node.key)) in self.loaded:
                        written[node] = self.loaded[cell]
                    continue
            waits = self._find_waits(statement, node.operands, written)
            if isinstance(node.key, MemoryAccess):
                cell = self._find_cell(statement, node.key)
                if cell and node.key.array in self._forwarding:
                    if node.key.direction == "store":
                        self.stored[cell] = len(self.nodes)
                    elif cell in self.stored:
                        waits.add(self.stored[cell])
                self.loaded[cell] = len(self.nodes)
            self.nodes.append(node)
            written[node] = self.recorder.add(waits)
        if statement.writes:
            value = frozenset(self._find_waits(statement, statement.value, written))
            for write in statement.writes:
                index = self._index(statement, write)
                elements = self.private.setdefault(write.name, {})
                if index is None and None in elements:
                    value |= elements[None]
                elements[index] = value

    def _is_left(self, statement: Statement, access: MemoryAccess, number: int) -> bool:
        """Return whether a compiler leaves the access that an execution has for a time."""
        for left in self.program.left_accesses.get((statement.name, access), ()):
            if number <= left.number:
                others = {n: v for n, v in self.values.items() if n not in left.loops}
                entry = (statement.name, access, number, *others.items())
                is_first = not left.loops or entry not in self.entered
                self.entered.add(entry)
                return is_first
            number -= left.number
        return False

    def _find_cell(self, statement: Statement, access: MemoryAccess) -> tuple[Any, ...]:
        """Return the array and the address of the first work item; empty where data decides."""
        address = self.program.domains.address(access)
        if address is None:
            return ()
        return (access.array, *self._evaluate(statement.within, (address.flat,)))

    def _find_waits(
        self, statement: Statement, sources: Iterable[Source], written: Mapping[Node, int]
    ) -> set[int]:
        waits: set[int] = set()
        for source in sources:
            if isinstance(source, Node):
                waits.update([written[source]] if source in written else ())
                continue
            elements = self.private.get(source.name, {})
            index = self._index(statement, source)
            if index is None:
                waits.update(*elements.values())
            else:
                waits.update(elements.get(index, ()), elements.get(None, ()))
        return waits

    def _index(self, statement: Statement, read: Read) -> Index:
        return None if read.index is None else self._evaluate(statement.within, read.index)

    def _evaluate(
        self, within: frozenset[str], expressions: tuple[QuasiPolynomial, ...]
    ) -> tuple[int, ...]:
        fixed = self._fix_values(within, expressions)
        return tuple(int(part.evaluate(self.values)) for part in fixed)

    @memoize_method
    def _fix_values(
        self, within: frozenset[str], expressions: tuple[QuasiPolynomial, ...]
    ) -> list[QuasiPolynomial]:
        values = self.fixed | {n: lane for n, lane in self.lanes.items() if n in within}
        known = {name: QuasiPolynomial.constant(value) for name, value in values.items()}
        return [part.substitute(known) for part in expressions]


class Recorder:
    """Numbers instructions and keeps what they wait for, but for edges across a barrier."""

    def __init__(self) -> None:
        self.number = 0
        self.edges: list[tuple[int, int]] = []
        self._fence = -1
        self._unused: set[int] = set()  # since the last barrier

    def add(self, waits: Iterable[int]) -> int:
        """Add an instruction that waits for some earlier ones; return its number."""
        number = self.number
        after = {source for source in waits if source > self._fence}
        if not after and self._fence >= 0:
            after = {self._fence}
        self.edges += [(source, number) for source in sorted(after)]
        self._unused -= after
        self._unused.add(number)
        self.number += 1
        return number

    def barrier(self) -> int:
        """Add a barrier; return its number."""
        number = self.add(self._unused)
        self._fence, self._unused = number, {number}
        return number
