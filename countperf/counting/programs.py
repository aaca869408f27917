"""Programs of sub-groups, symbolic in the sizes.

A sub-group executes something where one of its work items does; these meet in equal values of the
loop variables. A statement is what an instruction is executed as, and what each part waits for, by
the counting rules of `countperf.counting.operations`: sums, products and minima associate from left
to right, other operations wait for all operands; a load waits for what its subscript reads from
data, a store for its value and subscript; negations, private variables and constants are free. With
contraction, an addition and a multiplication of one real type, whose product nothing else in the
statement uses, are one ``fma`` (what OpenCL and CUDA compilers do by default).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain
from math import prod
from typing import Any, TypeAlias

import pymbolic.primitives as p
from pytools import memoize_method

from countperf.counting.access_analysis import (
    PROBABILITY,
    AccessAnalysis,
    analyze_accesses,
    bank_conflicts,
    transactions,
)
from countperf.counting.device_programs import Item
from countperf.counting.domains import Domains
from countperf.counting.expression_types import DType, is_constant
from countperf.counting.keys import (
    NOWHERE,
    Case,
    FirstIteration,
    Grid,
    MemoryAccess,
    Operation,
    type_name,
)
from countperf.counting.operations.scalars import InstructionCounter, Key
from countperf.counting.preparation import PreparedKernel, omit_barriers
from countperf.counting.work_groups import typical_group
from countperf.errors import (
    CountingError,
    DataDependentControlFlowError,
    UnsupportedExpressionError,
)
from countperf.symbolic import sets
from countperf.symbolic.affine import ALWAYS, NotAffineError, try_affine
from countperf.symbolic.piecewise import ONE_COUNT, ZERO_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.point_arrays import Point, find_sub_groups_executing
from countperf.symbolic.quasipolynomial import Number, QuasiPolynomial
from countperf.text import ShortRepr

Index: TypeAlias = tuple[QuasiPolynomial, ...] | None  # of a private array; None: from data

_CHAINS = (p.Sum, p.Product, p.Min, p.Max, p.BitwiseAnd, p.BitwiseOr, p.BitwiseXor)


@dataclass(frozen=True, slots=True)
class Read(ShortRepr):
    """A private variable, or an element of a private array, whose value is used."""

    name: str
    index: Index


@dataclass(eq=False, slots=True)
class Node(ShortRepr):
    """One instruction of a statement."""

    key: Operation | MemoryAccess  # what it does; a fused operation has the kind ``fma``
    cases: tuple[Case, ...]  # conditions on the loop variables under which it is executed
    share: Number  # probability of what data decides, else 1
    operands: list[Source]  # what it waits for


Source: TypeAlias = Node | Read  # source of a value that an instruction waits for


@dataclass(frozen=True, slots=True)
class Statement(ShortRepr):
    """An instruction of the kernel as what it is executed as."""

    name: str  # its id in the kernel
    within: frozenset[str]  # loop variables around it
    cases: tuple[Case, ...]  # conditions on them under which it is executed
    nodes: tuple[Node, ...]  # its instructions in order
    writes: tuple[Read, ...]  # private variables that it writes
    value: tuple[Source, ...]  # what the written values wait for


@dataclass(slots=True)
class _Frame:
    """An expression that is being read, and what its parts wait for."""

    expr: Any
    parts: list[list[Source]] = field(default_factory=list[list["Source"]])
    types: list[DType | None] = field(default_factory=list["DType | None"])
    constants: int = 0  # leading ones
    used: int = 0  # parts that operations have taken in
    running: list[Source] = field(default_factory=list["Source"])
    own: list[Source] = field(default_factory=list["Source"])

    def take(self) -> list[Source]:
        """Return what the next operation waits for: the result so far and the next part or all."""
        end = len(self.parts)
        if isinstance(self.expr, _CHAINS):
            end = min((self.used or min(max(self.constants, 1), end)) + 1, end)
        start, self.used = self.used, end
        return _unique([*self.running, *chain(*self.parts[start:end])])

    def result(self) -> list[Source]:
        """Return what the value of the expression waits for."""
        return _unique([*self.running, *chain(*self.parts[self.used :]), *self.own])


class StatementReader(InstructionCounter):
    """Reads the instructions of a kernel as nodes and what they wait for."""

    def __init__(self, domains: Domains, *, contract: bool = True) -> None:
        super().__init__(domains)
        self.unrolled = frozenset[str]()
        self.contract = contract
        self._frames: list[_Frame] = []
        self._nodes: list[Node] = []
        self._stores: list[Node] = []
        self._writes: list[Read] = []
        self._guards: tuple[Case, ...] = ()
        self._share: Number = 1
        self._source: DType | None = None

    def read(self, instruction: Any) -> Statement:
        """Return an instruction of the kernel as what it is executed as."""
        self._guards, probability = self.domains.predicate_conditions(instruction)
        self._nodes, self._stores, self._writes = [], [], []
        top = _Frame(None)
        self._frames, self._share = [top], 1
        if instruction.predicates:
            self.tally_predicates(instruction)
        self._share = probability
        self.tally(instruction)
        value = top.result()
        for node in self._stores:
            node.operands = _unique([*node.operands, *value])
        nodes = [*self._nodes, *self._stores]
        if self.contract:
            nodes = _contract_products(nodes, value)
        place = (instruction.id, instruction.within_inames, self._guards)
        return Statement(*place, tuple(nodes), tuple(self._writes), tuple(value))

    def rec(self, expr: Any, /, *_: Any, **__: Any) -> DType | None:
        """Read a part of an expression and return its type."""
        frame = _Frame(expr)
        self._frames.append(frame)
        dtype = super().rec(expr)
        self._frames.pop()
        outer = self._frames[-1]
        if is_constant(expr) and outer.constants == len(outer.parts):
            outer.constants += 1
        outer.parts.append(frame.result())
        outer.types.append(dtype)
        return dtype

    def _node(self, key: Key, operands: list[Source]) -> Node:
        cases = tuple(case for case in self._cases if case.alternatives != ALWAYS)
        node = Node(key, (*self._guards, *cases), self._factor * self._share, operands)
        is_store = isinstance(key, MemoryAccess) and key.direction == "store"
        (self._stores if is_store else self._nodes).append(node)
        return node

    def _add(self, key: Key, number: Number = 1) -> None:
        super()._add(key, number)
        if isinstance(key, MemoryAccess):
            frame = self._frames[-1]
            frame.running = [self._node(key, frame.take())]

    def _operation(self, kind: str, dtype: DType | None, number: int = 1, name: str = "") -> None:
        super()._operation(kind, dtype, number, name)
        if dtype is None or self._in_index:
            return
        frame = self._frames[-1]
        is_free = kind == "neg" or dtype.kind == "b"
        for _ in range(number):
            if kind == "convert":
                self._place_conversion(frame, dtype)
            elif is_free:
                frame.running = frame.take()
            else:
                key = Operation(kind=kind, type_name=type_name(dtype), function=name)
                frame.running = [self._node(key, frame.take())]

    def _convert(self, source: DType | None, target: DType | None) -> None:
        self._source = source
        super()._convert(source, target)

    def _place_conversion(self, frame: _Frame, dtype: DType) -> None:
        """Convert the last part, or what those before it have come to."""
        key = Operation(kind="convert", type_name=type_name(dtype))
        if frame.running or not frame.parts:
            frame.running = [self._node(key, frame.take())]
        elif frame.types[-1] == self._source or len(frame.parts) == 1:
            frame.parts[-1] = [self._node(key, frame.parts[-1])]
        else:
            before = _unique([*chain(*frame.parts[:-1])])
            frame.parts[:-1] = [[self._node(key, before)], *([] for _ in frame.parts[:-2])]

    def map_variable(self, expr: Any) -> DType | None:
        """As the base; a private variable is what its value waits for."""
        dtype = super().map_variable(expr)
        self._frames[-1].own += self._private(expr.name, ())
        return dtype

    def _private(self, name: str, index: tuple[Any, ...]) -> list[Read]:
        variable = self.kernel.temporary_variables.get(name)
        if variable is None or self._address_space(variable) is not None:
            return []
        try:
            return [Read(name, tuple(self.domains.to_polynomial(part) for part in index))]
        except NotAffineError:
            return [Read(name, None)]

    def _find_subscripted(self, direction: str, name: str, index: tuple[Any, ...]) -> DType | None:
        dtype = super()._find_subscripted(direction, name, index)
        if direction == "load":
            self._frames[-1].own += self._private(name, index)
        return dtype

    def _store(self, assignee: Any) -> DType | None:
        self._frames.append(_Frame(assignee))
        dtype = super()._store(assignee)
        self._frames.pop()
        if isinstance(assignee, p.Variable):
            self._writes += self._private(assignee.name, ())
        else:
            index = assignee.index_tuple if isinstance(assignee, p.Subscript) else (assignee.index,)
            aggregate: Any = assignee.aggregate
            self._writes += self._private(aggregate.name, index)
        return dtype


def _unique(sources: Sequence[Source]) -> list[Source]:
    return list(dict.fromkeys(sources))


def _contract_products(nodes: list[Node], value: Sequence[Source]) -> list[Node]:
    """Fuse multiplications into the additions that alone use their products."""
    uses = Counter(source for node in nodes for source in node.operands if isinstance(source, Node))
    uses.update(source for source in value if isinstance(source, Node))
    fused: set[Node] = set()
    for node in nodes:
        key = node.key
        if not isinstance(key, Operation) or key.kind != "add" or not key.type_name.startswith("f"):
            continue
        product = replace(key, kind="mul")
        for source in reversed(node.operands):
            if isinstance(source, Node) and uses[source] == 1:
                alike = (source.key, source.cases, source.share)
                if alike == (product, node.cases, node.share):
                    node.key = replace(key, kind="fma")
                    others = [other for other in node.operands if other is not source]
                    node.operands = _unique([*others, *source.operands])
                    fused.add(source)
                    break
    return [node for node in nodes if node not in fused]


Iterations: TypeAlias = tuple[frozenset[str], tuple[Case, ...]]  # loops, and conditions on them
AccessPlace: TypeAlias = tuple[str, MemoryAccess]  # id of the instruction, and the access


@dataclass(frozen=True, slots=True)
class LeftAccess(ShortRepr):
    """Executions of an access that a compiler leaves in an instruction."""

    number: int  # how often one execution has it
    loops: frozenset[str]  # loops that it is executed once for, no more in every iteration
    executions: PiecewiseQuasiPolynomial  # by all work items


@dataclass(frozen=True, eq=False)
class KernelProgram(ShortRepr):
    """One device program of a kernel, symbolic in the sizes."""

    name: str  # name of its device function
    domains: Domains  # loops, sizes and axes of the kernel
    grid: Grid  # geometry of a launch
    launches: PiecewiseQuasiPolynomial  # how often it is launched
    launch_loops: frozenset[str]  # host loops around the launch
    body: list[Item]  # what a work item executes, in order
    by_id: Mapping[str, Statement]  # its instructions that compute something, in order
    barriers: PiecewiseQuasiPolynomial  # local barriers times the work items that wait at them
    accesses: tuple[AccessAnalysis, ...]  # its accesses to memory, for what they cost
    prepared: PreparedKernel  # the kernel that it belongs to, for what compilers leave of it

    @property
    def kernel(self) -> Any:
        """The kernel that it belongs to."""
        return self.domains.kernel

    @property
    def statements(self) -> tuple[Statement, ...]:
        """All statements, in order."""
        return tuple(self.by_id.values())

    @cached_property
    def left_accesses(self) -> dict[AccessPlace, tuple[LeftAccess, ...]]:
        """Accesses that a compiler leaves, by place; others find their values in registers."""
        left: dict[AccessPlace, list[LeftAccess]] = {}
        tally, domains = self.prepared.tally("compiled"), self.domains
        for launch in self.prepared.launches():
            for instruction in tally.instructions(launch):
                statement = self.by_id.get(instruction.loopy.id)
                for part in instruction.parts if statement is not None else ():
                    if statement is None or not isinstance(part.key, MemoryAccess):
                        continue
                    # a sub-group also executes what some of its items are spared
                    nodes = [node for node in statement.nodes if node.key == part.key]
                    own = {case for node in nodes for case in node.cases}
                    firsts = [c for c in part.conditions if isinstance(c, FirstIteration)]
                    kept = (*(c for c in part.conditions if c in own), *firsts)
                    count = domains.executions(instruction.scope.within, kept, self.grid)
                    loops = frozenset[str]().union(*(first.loops for first in firsts))
                    one = LeftAccess(round(part.number), loops, count.scale(part.times))
                    left.setdefault((statement.name, part.key), []).append(one)
        return {place: tuple(parts) for place, parts in left.items()}

    def typical_group(self, values: Mapping[str, int]) -> Point:
        """Return the number of a work group of the kind that executes the most, at given sizes."""
        extents = {axis: int(n.evaluate(values)) for axis, n in self.grid.groups.items()}
        groups = [extents.get(axis, 1) for axis in range(max(extents, default=-1) + 1)]
        executed = {(s.within, n.cases) for s in self.statements for n in s.nodes}
        executed |= {(s.within, s.cases) for s in self.statements}
        return typical_group(self.domains, executed, groups, values)

    def lanes(self, within: frozenset[str]) -> dict[int, str]:
        """Return the loop variable along each local axis that is among some."""
        axes = self.domains.local_axes
        return {axes[name]: name for name in within if name in axes}

    def depends_on_lane(self, iterations: Iterations) -> bool:
        """Return whether some work items of a group execute something and others don't."""
        within, cases = iterations
        lanes = set(self.lanes(within).values())
        if not lanes:
            return False
        guards = [guard for case in cases for part in case.alternatives for guard in part]
        if any(lanes & guard.names() for guard in guards):
            return True
        items = prod(self.grid.items[self.domains.local_axes[name]] for name in lanes)
        without = self.domains.executions(within - lanes, cases, NOWHERE)
        return self.domains.executions(within, cases, NOWHERE) != without.scale(items)

    @memoize_method
    def find_points(self, iterations: Iterations, sub_group_size: int) -> Any:
        """Return where sub-groups execute something."""
        within, cases = iterations
        counted, _ = self.domains.trip_statistics(within)
        executed = self.domains.find_points(counted, cases)
        lanes = self.lanes(within)
        if self.depends_on_lane(iterations):
            return find_sub_groups_executing(executed, lanes, self.grid.items, sub_group_size)
        return sets.project_onto(executed, counted - set(lanes.values()))

    @memoize_method
    def executions(self, iterations: Iterations, sub_group_size: int) -> PiecewiseQuasiPolynomial:
        """Count how often all sub-groups of all launches together execute something."""
        within, cases = iterations
        number = self.sub_groups_per_group(sub_group_size)
        if not self.depends_on_lane(iterations):
            items = self.domains.executions(within, cases, self.grid)
            return items.scale(Fraction(number, self.grid.group_size))
        _, factor = self.domains.trip_statistics(within)
        count = self.domains.counter.count(self.find_points(iterations, sub_group_size)) * factor
        return self.domains.times_groups(count, within, self.grid)

    def instruction_totals(
        self, sub_group_size: int
    ) -> dict[Operation | MemoryAccess, PiecewiseQuasiPolynomial]:
        """Count the instructions of all sub-groups of all launches, symbolic in the sizes."""
        totals: dict[Operation | MemoryAccess, PiecewiseQuasiPolynomial] = {}
        for statement in self.statements:
            for node in statement.nodes:
                executions = self.executions((statement.within, node.cases), sub_group_size)
                totals[node.key] = totals.get(node.key, ZERO_COUNT) + executions.scale(node.share)
        return totals

    def sub_groups_per_group(self, sub_group_size: int) -> int:
        """Return the sub-groups of a work group; a part of one counts as one."""
        return -(-self.grid.group_size // sub_group_size)

    def local_bytes(self, parameters: Mapping[str, int]) -> int:
        """Return the bytes of local memory that a work group holds."""
        largest: dict[str, int] = {}
        keys = {node.key for statement in self.statements for node in statement.nodes}
        for key in keys:
            if not isinstance(key, MemoryAccess) or key.address_space != "local":
                continue
            variable = self.kernel.temporary_variables[key.array]
            number = try_affine(self.domains.to_polynomial, variable.nbytes)
            if number is None:
                raise UnsupportedExpressionError(
                    f"kernel '{self.kernel.name}', array '{key.array}': its size {variable.nbytes}"
                    " is no polynomial of the sizes; declare its shape"
                )
            storage = variable.base_storage or key.array
            largest[storage] = max(largest.get(storage, 0), int(number.evaluate(parameters)))
        return sum(largest.values())


def kernel_programs(
    t_unit: Any, *, statistics: Mapping[str, Any] | None = None, contract: bool = True
) -> tuple[KernelProgram, ...]:
    """Return the device programs of a kernel, in the order of their launches."""
    prepared = PreparedKernel.of(t_unit, statistics=statistics)
    domains = prepared.domains
    reader = StatementReader(domains, contract=contract)
    with prepared.count_with_advice():
        accesses = analyze_accesses(prepared)  # refuses what has no counting rule
        instructions, programs = domains.kernel.id_to_insn, prepared.schedule.programs
        ids = [omit_barriers(domains.kernel, program.instruction_ids) for program in programs]
        statements = [{i: reader.read(instructions[i]) for i in some} for some in ids]
        if not isinstance(t_unit, PreparedKernel):  # for models: `access_cost` takes these classes
            for access in accesses:
                if access.is_estimate not in ("", PROBABILITY):
                    domains.statistics.pattern_of(access.access.array, access.access.text)
    found: list[KernelProgram] = []
    for launch, by_id in zip(prepared.launches(), statements, strict=True):
        program, number = launch.program, launch.number or ONE_COUNT
        own = tuple(access for access in accesses if access.program == program.number)
        around = (program.launch_loops, program.body, by_id, launch.barriers, own, prepared)
        found.append(KernelProgram(program.name, domains, launch.grid, number, *around))
    return tuple(found)


def sub_group_work(
    programs: tuple[KernelProgram, ...], parameters: Mapping[str, int], *, sub_group_size: int
) -> dict[str, int]:
    """Count what all sub-groups of a kernel execute."""
    names = ("launched", "arithmetic", "load", "store", "local", "passes", "barrier")
    totals: dict[str, int] = dict.fromkeys(names, 0)
    for program in programs:
        groups = int((program.launches * program.grid.work_groups).evaluate(parameters))
        per_group = program.sub_groups_per_group(sub_group_size)
        totals["launched"] += groups * per_group
        waits = int(program.barriers.evaluate(parameters))
        totals["barrier"] += waits // program.grid.group_size * per_group
        for key, number in program.instruction_totals(sub_group_size).items():
            if isinstance(key, MemoryAccess):
                name = key.direction if key.address_space == "global" else "local"
            elif key.type_name.startswith("f"):
                name = "arithmetic"
            else:
                continue
            totals[name] += round(number.evaluate(parameters))
        for access in program.accesses:
            if access.access.address_space == "local":
                conflicts = bank_conflicts(access, parameters, sub_group_size=sub_group_size)
                totals["passes"] += conflicts.total
    return totals


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryShape:
    """Lines, sectors and banks of a device's memory."""

    # a line of global memory, and what of it moves together
    line_bytes: int
    sector_bytes: int
    # banks of local memory and the width of one; 0 banks: none
    banks: int = 0
    bank_bytes: int = 4


@dataclass(frozen=True, slots=True)
class AccessCost:
    """Mean cost of one memory instruction of a sub-group over all its executions."""

    lines: Fraction  # lines of global memory that it touches; 0 for local memory
    bytes_moved: Fraction  # bytes of the sectors that it touches; 0 for local memory
    # bytes moved over those that a full sub-group asks for, or the passes over the banks
    excess: Fraction


def access_cost(
    program: KernelProgram,
    statement: Statement,
    node: Node,
    parameters: Mapping[str, int],
    *,
    sub_group_size: int,
    shape: MemoryShape,
    declared: float | None = None,
) -> AccessCost:
    """Find what one access of a statement costs."""
    key = node.key
    assert isinstance(key, MemoryAccess)
    access = _find_analysis(program, statement, node)
    if access.is_estimate == PROBABILITY:  # those sub-groups that execute it do with all items
        access = replace(access, is_estimate="")
    is_known = access.address is not None and not access.is_estimate
    if key.address_space == "local":
        passes = Fraction(1)
        if shape.banks and is_known:
            banks = {"banks": shape.banks, "bank_width_bytes": shape.bank_bytes}
            conflicts = bank_conflicts(access, parameters, **banks, sub_group_size=sub_group_size)
            fewest = -(-key.bits // (8 * shape.bank_bytes))  # wide elements take several words
            passes = max(passes, conflicts.mean / fewest)
        return AccessCost(Fraction(0), Fraction(0), passes)
    asked = sub_group_size * key.bits // 8
    if is_known:
        lines, sectors = (
            transactions(access, parameters, line_bytes=size, sub_group_size=sub_group_size).mean
            for size in (shape.line_bytes, shape.sector_bytes)
        )
        moved = sectors * shape.sector_bytes
    else:
        stated = program.domains.statistics.pattern_of(key.array, key.text)
        if declared is not None:
            lines = Fraction(declared).limit_denominator(10**6)
            moved = lines * shape.sector_bytes
        elif stated is not None:
            lines, moved = _find_stated_lines(stated[0], asked, sub_group_size, shape)
        else:
            why = access.is_estimate or "its address"
            raise DataDependentControlFlowError(
                f"{access.label}: {why} is data, so that the lines of {shape.line_bytes} bytes that"
                " a sub-group touches are not known; pass its class,"
                f" statistics={{{key.array!r}: 'indirect'}} if each work item touches a line of its"
                " own",
                statistics={key.array: "indirect"},
            )
    return AccessCost(lines, moved, moved / asked)


def _find_stated_lines(
    name: str, asked: int, sub_group_size: int, shape: MemoryShape
) -> tuple[Fraction, Fraction]:
    """Return lines and bytes of an access of a class; ``2of4`` uses half of what it touches."""
    if name == "uniform":
        return Fraction(1), Fraction(shape.sector_bytes)
    if name == "indirect" or name.endswith("ofn"):
        sharing = 1 if name == "indirect" else int(name[0])  # accesses that use a line of an item
        lines = Fraction(sub_group_size, sharing)
        return lines, lines * shape.sector_bytes
    used, parts = (1, 1) if name == "stride1" else map(int, name.split("of"))
    moved = Fraction(asked * parts, used)
    return Fraction(-(-moved // shape.line_bytes)), moved


def _find_analysis(program: KernelProgram, statement: Statement, node: Node) -> AccessAnalysis:
    """Return the analysis of an access, of several equal ones that of the same conditions."""
    place = (statement.name, node.key)
    analyses = [a for a in program.accesses if (a.instruction, a.access) == place]
    if not analyses:
        raise CountingError(
            f"kernel '{program.kernel.name}', instruction '{statement.name}': accesses in vectors"
            " have no lines; leave the tag 'vec' out of the kernel's axes and arrays"
        )
    return next((a for a in analyses if a.scope.cases == node.cases), analyses[0])
