"""Instruction trace of one sub-group at given sizes, with dependencies.

Rules
-----
1. The sub-group is one of a typical group of the launch, the middle one if it is. Its loops run
   over all values for which one of its work items is active, and it executes a statement where one
   of them is.
2. A private variable carries what its value waited for to every later use, also in later
   iterations; an element of a private array does so by its index.
3. A load waits for the last store of the first work item of the sub-group to the same address.
   What other work items store is seen after a barrier.
4. A barrier waits for everything before it, and everything after it waits for the barrier.
5. A program with more instructions than are wanted is shortened: the outermost loops run
   a part of their iterations, all by the same factor; inner ones only if that is not enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from countperf.counting.keys import MemoryAccess
from countperf.counting.programs import (
    BarrierItem,
    Item,
    Iterations,
    KernelProgram,
    LoopItem,
    statements_of,
)
from countperf.counting.statements import Node, Read, Source, Statement
from countperf.symbolic.point_arrays import SUB_GROUP, Membership
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.symbolic.sets import at_values

Index: TypeAlias = tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """A sub-group's instructions in program order."""

    nodes: tuple[Node | None, ...]  # what each instruction is; None: a barrier
    edges: tuple[tuple[int, int], ...]  # which instruction waits for which
    is_shortened: bool  # whether loops were cut short


class SubGroup:
    """One sub-group of a typical work group, at given sizes."""

    def __init__(
        self,
        program: KernelProgram,
        parameters: Mapping[str, int],
        *,
        sub_group_size: int,
        number: int = 0,
    ) -> None:
        self.program = program
        self.sub_group_size = sub_group_size
        self.number = number
        self.fixed: dict[str, int] = {**parameters, SUB_GROUP: number}
        domains = program.domains
        within = frozenset[str]().union(*(s.within for s in program.statements))
        for name in sorted(program.launch_loops - domains.group_axes.keys()):
            self.fixed[name] = self._value(name, parameters, None)
        group = program.typical_group(self.fixed)
        for name in sorted(within & domains.group_axes.keys()):
            self.fixed[name] = self._value(name, parameters, group[domains.group_axes[name]])
        self._first_lane = self.lane(number * sub_group_size)
        self._members: dict[Iterations, Membership] = {}

    def _value(self, name: str, parameters: Mapping[str, int], number: int | None) -> int:
        """Return the value of a loop variable by its number, by default that in the middle."""
        line = Membership(at_values(self.program.domains.domain(frozenset([name])), parameters))
        if line.is_empty:
            return 0
        ((low, high),) = line.bounds
        return min(low + ((high - low + 1) // 2 if number is None else number), high)

    def lane(self, item: int) -> dict[int, int]:
        """Return the index along each local axis of a work item of the group."""
        index: dict[int, int] = {}
        for axis in sorted(self.program.grid.items):
            item, index[axis] = divmod(item, self.program.grid.items[axis])
        return index

    def members(self, iterations: Iterations) -> Membership:
        """Return the values of the sequential loops at which something is executed."""
        if iterations not in self._members:
            executed = self.program.executed_set(iterations, self.sub_group_size)
            self._members[iterations] = Membership(at_values(executed, self.fixed))
        return self._members[iterations]

    def values_of(self, statement: Statement, item: int | None = None) -> dict[str, int]:
        """Return the values that do not change: sizes, groups, and the indices of a work item."""
        lane = self._first_lane if item is None else self.lane(item)
        axes = self.program.domains.local_axes
        lanes = {name: lane[axes[name]] for name in statement.within if name in axes}
        return {**self.fixed, **lanes}

    def loop_range(self, name: str, statements: Iterable[Statement]) -> range:
        """Return the values of a loop for which one of its statements is executed."""
        domains = self.program.domains
        if name in domains.data_loops:
            _, trips = domains.trip_statistics(frozenset([name]))
            return range(round(trips.evaluate(self.fixed)))
        lows: list[int] = []
        highs: list[int] = []
        for statement in statements:
            members = self.members((statement.within, statement.cases))
            if not members.is_empty:
                low, high = members.bounds[members.names.index(name)]
                lows.append(low)
                highs.append(high)
        return range(min(lows), max(highs) + 1) if lows else range(0)

    def expand_instructions(self, max_instructions: int) -> Expansion:
        """Write its instructions out, about as many as wanted at most."""
        return _Writer(self).written(max_instructions)


class _Writer:
    """Writes the instructions of one sub-group out."""

    def __init__(self, sub_group: SubGroup) -> None:
        self.sub_group = sub_group
        self.program = sub_group.program
        self.nodes: list[Node | None] = []
        self.recorder = Recorder()
        self.values: dict[str, int] = {}
        self.private: dict[str, dict[Index, frozenset[int]]] = {}
        self.stored: dict[tuple[Any, ...], int] = {}
        self._ranges: dict[int, range] = {}
        self._projected: dict[Any, Membership] = {}
        self._fixed: dict[tuple[int, str, Any], tuple[QuasiPolynomial, ...]] = {}
        accesses = [
            node.key
            for statement in self.program.statements
            for node in statement.nodes
            if isinstance(node.key, MemoryAccess)
        ]
        loaded = {access.array for access in accesses if access.direction == "load"}
        self._forwarding = loaded & {a.array for a in accesses if a.direction == "store"}

    def written(self, max_instructions: int) -> Expansion:
        size = self._size(self.program.body)
        fraction = min(1.0, max_instructions / size) if size else 1.0
        self._run_instruction(self.program.body, fraction)
        return Expansion(
            nodes=tuple(self.nodes), edges=tuple(self.recorder.edges), is_shortened=fraction < 1
        )

    def _range(self, loop: LoopItem) -> range:
        values = self._ranges.get(id(loop))
        if values is None:
            values = self.sub_group.loop_range(loop.name, statements_of(loop.body))
            self._ranges[id(loop)] = values
        return values

    def _size(self, items: tuple[Item, ...]) -> int:
        total = 0
        for item in items:
            if isinstance(item, LoopItem):
                total += len(self._range(item)) * self._size(item.body)
            else:
                total += len(item.nodes) if isinstance(item, Statement) else 1
        return total

    def _run_instruction(self, items: tuple[Item, ...], fraction: float) -> None:
        for item in items:
            if isinstance(item, Statement):
                if self._is_executed((item.within, item.cases)):
                    self._run_statement(item)
            elif isinstance(item, BarrierItem):
                self._run_barrier()
            else:
                values = self._range(item)
                kept = max(1, round(fraction * len(values)))
                inner = min(1.0, fraction * len(values) / kept)
                statements = tuple(statements_of(item.body))
                for value in values[:kept]:
                    self.values[item.name] = value
                    if self._is_entered(statements):
                        self._run_instruction(item.body, inner)
                self.values.pop(item.name, None)

    def _is_entered(self, statements: tuple[Statement, ...]) -> bool:
        """Return whether one of the statements is executed for the values of the loops so far."""
        return any(self._is_executed((s.within, s.cases)) for s in statements)

    def _is_executed(self, iterations: Iterations) -> bool:
        members = self.sub_group.members(iterations)
        if members.is_empty:
            return False
        known = tuple(name for name in members.names if name in self.values)
        if len(known) < len(members.names):
            members = self._onto(iterations, members, known)
        return members.contains([self.values[name] for name in known])

    def _onto(
        self, iterations: Iterations, members: Membership, names: tuple[str, ...]
    ) -> Membership:
        key = (*iterations, names)
        projected = self._projected.get(key)
        if projected is None:
            projected = self._projected[key] = members.onto(names)
        return projected

    def _run_statement(self, statement: Statement) -> None:
        written: dict[Node, int] = {}
        for node in statement.nodes:
            if node.cases != statement.cases and not self._is_executed(
                (statement.within, node.cases)
            ):
                continue
            waits = self._resolve_subscript(statement, node.operands, written)
            if isinstance(node.key, MemoryAccess) and node.key.array in self._forwarding:
                waits |= self._through_memory(statement, node.key, len(self.nodes))
            written[node] = self._add(node, waits)
        if statement.writes:
            value = frozenset(self._resolve_subscript(statement, statement.value, written))
            for write in statement.writes:
                index = self._index(statement, write)
                elements = self.private.setdefault(write.name, {})
                if index is None and None in elements:
                    value |= elements[None]
                elements[index] = value

    def _resolve_subscript(
        self, statement: Statement, sources: Iterable[Source], written: Mapping[Node, int]
    ) -> set[int]:
        waits: set[int] = set()
        for source in sources:
            if isinstance(source, Node):
                if source in written:
                    waits.add(written[source])
                continue
            elements = self.private.get(source.name, {})
            index = self._index(statement, source)
            if index is None:
                waits.update(*elements.values())
            else:
                waits |= elements.get(index, frozenset())
                waits |= elements.get(None, frozenset())
        return waits

    def _index(self, statement: Statement, read: Read) -> Index:
        if not read.index:
            return None if read.index is None else ()
        return self._at(statement, read.name, read.index)

    def _at(
        self, statement: Statement, name: str, expressions: tuple[QuasiPolynomial, ...]
    ) -> tuple[int, ...]:
        """Evaluate expressions in the loop variables of a statement."""
        key = (id(statement), name, expressions)
        if key not in self._fixed:
            fixed = self.sub_group.values_of(statement)
            known = {name: QuasiPolynomial.constant(value) for name, value in fixed.items()}
            self._fixed[key] = tuple(part.substitute(known) for part in expressions)
        return tuple(int(part.evaluate(self.values)) for part in self._fixed[key])

    def _through_memory(self, statement: Statement, access: MemoryAccess, number: int) -> set[int]:
        """Return the store that a load reads from, or note a store."""
        address = self.program.address(access)
        if address is None:
            return set()
        cell = (access.array, *self._at(statement, access.array, (address,)))
        if access.direction == "store":
            self.stored[cell] = number
            return set()
        return {self.stored[cell]} if cell in self.stored else set()

    def _add(self, node: Node, waits: set[int]) -> int:
        self.nodes.append(node)
        return self.recorder.add(waits)

    def _run_barrier(self) -> None:
        self.nodes.append(None)
        self.recorder.barrier()


# --- Records instructions in program order and what each waits for, barriers included


class Recorder:
    """Numbers instructions and keeps what they wait for.

    A barrier waits for everything before it, and what comes later waits for the barrier: of the
    edges to earlier instructions, those that a barrier stands between are left out.
    """

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
