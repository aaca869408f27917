"""Device programs by barrier regions: loops, instructions, and chains that iterations carry.

A read of a private variable in a loop is *carried* if no instruction before it in the body writes
the element. Instructions that feed each other in a cycle with one carried read form a chain, of
those that share instructions the longest: the recurrence that bounds the time of an iteration from
below (B. R. Rau, Iterative modulo scheduling, MICRO 1994, section 2.2).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import loopy as lp
import numpy as np
import pymbolic.primitives as p
from loopy.library.reduction import ArgExtOp
from loopy.symbolic import TypeCast, get_dependencies

from countperf.counting.device_programs import LocalBarrier, Loop, RegionOutline
from countperf.counting.expression_types import flatten_operands, list_nodes, name_of
from countperf.counting.keys import Grid, type_name
from countperf.counting.operations.scalars import FUNCTION_KINDS
from countperf.counting.operations.source_view import component_of, real_part
from countperf.counting.preparation import KernelTally, Launch, PreparedKernel, omit_barriers
from countperf.counting.scopes import Known, Scope, barrier_passes, trips_of
from countperf.errors import CountingError
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.text import ShortRepr

Operations = tuple[tuple[str, int], ...]  # kinds of operations and how many, sorted


@dataclass(frozen=True, slots=True)
class LoopAnalysis(ShortRepr):
    """A sequential loop that each work item runs at its own pace."""

    iname: str  # the loop variable
    iterations: Known  # by all work items together
    entries: Known  # how often they come to it, whether or not it has iterations then


@dataclass(frozen=True, slots=True)
class InstructionAnalysis(ShortRepr):
    """An instruction in a region."""

    id: str
    executions: PiecewiseQuasiPolynomial  # by all work items, where its conditions hold
    scope: Scope = field(repr=False, compare=False)  # where it is executed


@dataclass(frozen=True, slots=True)
class ChainAnalysis(ShortRepr):
    """A carried chain of one work item."""

    instructions: tuple[str, ...]  # in order
    variables: tuple[str, ...]  # through which they feed each other
    loops: tuple[str, ...]  # loops that carry the chain, outermost first
    # in an iteration of the innermost of the loops, by kind and type, contracted (``fma.f32``)
    operations: Operations
    steps: Known  # iterations of all the loops together
    # independent chains of this kind that an item has; 1 if no constant says it
    side_by_side: int


@dataclass(frozen=True, slots=True)
class RegionAnalysis(ShortRepr):
    """A barrier region."""

    index: int  # its place in the program
    barrier_loops: tuple[str, ...]  # loops with barriers around the region, outermost first
    loops: tuple[LoopAnalysis, ...]  # loops of each item in the region
    instructions: tuple[InstructionAnalysis, ...]  # in order
    chains: tuple[ChainAnalysis, ...]  # those whose last instruction is in the region
    passes: Known  # passes of all work groups through the region


@dataclass(frozen=True, slots=True)
class ProgramAnalysis(ShortRepr):
    """A device program."""

    name: str  # name of the device function
    launches: PiecewiseQuasiPolynomial  # how often it is launched
    groups: tuple[PiecewiseQuasiPolynomial, ...]  # work groups along each group axis
    shape: tuple[int, ...]  # work items of a group along each local axis
    regions: tuple[RegionAnalysis, ...]  # in order

    @property
    def instructions(self) -> Iterator[InstructionAnalysis]:
        """The instructions of all regions, in order."""
        return chain.from_iterable(region.instructions for region in self.regions)


def analyze_program(
    prepared: PreparedKernel, tally: KernelTally, launch: Launch
) -> ProgramAnalysis:
    """Analyze the structure of a device program."""
    groups = tuple(extent for _, extent in sorted(launch.grid.groups.items()))
    shape = tuple(extent for _, extent in sorted(launch.grid.items.items()))
    regions = tuple(map(_Builder(prepared, tally, launch).analyze_region, launch.regions))
    return ProgramAnalysis(launch.program.name, launch.number, groups, shape, regions)


class _Builder:
    """Analyzes the regions of one device program."""

    def __init__(self, prepared: PreparedKernel, tally: KernelTally, launch: Launch) -> None:
        self.tally, self.launch, self.grid = tally, launch, launch.grid
        self.kernel, self.copied = prepared.kernel, prepared.copied
        self.domains = prepared.domains
        self.hardware = frozenset(self.domains.local_axes) | frozenset(self.domains.group_axes)
        self.nests = {i: outline.nest(i) for outline in launch.regions for i in outline.loops}
        self.chains: dict[str, list[ChainAnalysis]] = {}
        for found in self._find_chains():
            self.chains.setdefault(found.instructions[-1], []).append(found)

    def analyze_region(self, outline: RegionOutline) -> RegionAnalysis:
        ids = omit_barriers(self.kernel, outline.loops)
        around = [loop.iname for loop in outline.around]
        barrier = LocalBarrier(within=frozenset(around), neighbors=frozenset(outline.loops))
        launch_loops = self.launch.program.launch_loops
        passes: Known = None
        with suppress(CountingError):
            grid = Grid(groups=self.grid.groups, items={})
            passes = barrier_passes(self.domains, barrier, launch_loops, grid)
        barrier_loops = tuple(name for name in around if name not in launch_loops)
        loops = tuple(self._analyze_loops(outline, ids))
        instructions: list[InstructionAnalysis] = []
        for i in ids:
            read = self.tally.instruction(self.launch, outline, i)
            executions = self.domains.executions(read.scope.within, read.scope.cases, self.grid)
            executions = executions.scale(read.probability)
            instructions.append(InstructionAnalysis(i, executions, read.scope))
        chains = tuple(found for i in ids for found in self.chains.get(i, ()))
        inside = (loops, tuple(instructions), chains)
        return RegionAnalysis(outline.index, barrier_loops, *inside, passes)

    def _analyze_loops(self, outline: RegionOutline, ids: list[str]) -> Iterator[LoopAnalysis]:
        inside: dict[tuple[str, ...], list[str]] = {}
        for i in ids:
            nest = tuple(loop.iname for loop in outline.loops[i])
            for depth in range(len(nest)):
                inside.setdefault(nest[: depth + 1], []).append(i)
        for (*outer, name), members in inside.items():
            if name in self.copied:
                continue
            outside = self.hardware.union((loop.iname for loop in outline.around), outer)
            iterations = self._count_points(members, outside | {name})
            yield LoopAnalysis(name, iterations, self._count_points(members, outside - {name}))

    def _count_points(self, members: list[str], names: frozenset[str]) -> Known:
        """Count the points of some loops in which instructions are executed, if all agree."""
        around = {self.kernel.id_to_insn[member].within_inames & names for member in members}
        counts = {self.domains.executions(within, (), self.grid) for within in around}
        return counts.pop() if len(counts) == 1 else None

    def _find_chains(self) -> Iterator[ChainAnalysis]:
        types = _name_private_types(self.kernel)
        bodies: defaultdict[Loop, list[Any]] = defaultdict(list)  # outer ones first
        for i, nest in self.nests.items():
            instruction = self.kernel.id_to_insn[i]
            for loop in nest if isinstance(instruction, lp.MultiAssignmentBase) else ():
                bodies[loop].append(instruction)
        cycles_by_key: dict[tuple[Any, Any], list[tuple[str, list[_Edge]]]] = {}
        for loop, body in bodies.items():
            for cycle in _find_cycles([*_find_edges(body, loop.iname, types)]):
                members = sorted({edge.target for edge in cycle})
                variables = tuple(sorted({_name_of(edge.reference) for edge in cycle}))
                key = (tuple(body[k].id for k in members), variables)
                cycles_by_key.setdefault(key, []).append((loop.iname, cycle))
        for (instructions, variables), cycles in cycles_by_key.items():
            loops, inner = tuple(loop for loop, _ in cycles), cycles[-1][1]
            operations = sum((edge.operations for edge in inner), Counter[str]())
            lengths = tuple(sorted(operations.items()))
            within = self.kernel.id_to_insn[instructions[-1]].within_inames
            steps = trips_of(self.domains, loops, within.difference(loops))
            number = self._count_side_by_side(instructions[-1], loops, inner)
            yield ChainAnalysis(instructions, variables, loops, lengths, steps, number)

    def _count_side_by_side(self, last: str, loops: Sequence[str], cycle: Sequence[_Edge]) -> int:
        """Count the chains that loop variables in the subscripts of variables tell apart."""
        within = self.kernel.id_to_insn[last].within_inames
        nest = [loop.iname for loop in self.nests[last]]
        outside = nest[: nest.index(loops[0])] if loops[0] in nest else []
        subscripts = within & get_dependencies(tuple(edge.reference for edge in cycle))
        apart = subscripts - self.hardware.union(outside) | (subscripts & self.copied)
        count = trips_of(self.domains, apart, within - apart.union(loops)) if apart else None
        number = None if count is None else count.as_polynomial()
        return int(number.constant_term) if number and number.is_constant else 1


@dataclass(frozen=True, slots=True)
class _Edge:
    source: int
    target: int
    is_carried: bool
    reference: Any
    operations: Counter[str]


def _name_private_types(kernel: Any) -> dict[str, str]:
    """Return the types of private variables, those of the parts of vectors and complex numbers."""
    types: dict[str, str] = {}
    for name, variable in kernel.temporary_variables.items():
        if variable.address_space == lp.AddressSpace.PRIVATE:
            dtype = variable.dtype.numpy_dtype
            parts = component_of(dtype)
            number = dtype if parts is None else parts[0]
            if number.kind == "c":
                number = real_part(number)
            types[name] = type_name(number) if number.kind in "fiub" else str(dtype)
    return types


def _name_of(reference: Any) -> str:
    named: Any = reference.aggregate if isinstance(reference, p.Subscript) else reference
    return named.name


def _find_edges(body: Sequence[Any], loop: str, types: Mapping[str, str]) -> Iterator[_Edge]:
    """Yield which write each read of a private variable sees, and what lies in between."""
    writes: list[tuple[int, Any]] = [
        (number, target)
        for number, instruction in enumerate(body)
        for target in instruction.assignees
        if isinstance(target, p.Variable | p.Subscript) and _name_of(target) in types
    ]
    for number, instruction in enumerate(body):
        for reference in _find_references(instruction.expression, types):
            if loop in get_dependencies(reference):
                continue
            same = [w for w, target in writes if _may_be_same(target, reference)]
            before = [w for w in same if w < number]
            source = max(before) if before else max(same, default=None)
            if source is None:
                continue
            written = (_name_of(t) for t in instruction.assignees if _name_of(t) in types)
            kind = types[next(written, next(iter(types)))]
            ways = _yield_ways(instruction.expression, reference)
            longest = max(ways, key=len, default=[])  # from the reference to the value
            operations = Counter(f"{operation}.{kind}" for operation in longest)
            yield _Edge(source, number, not before, reference, operations)


def _may_be_same(left: Any, right: Any) -> bool:
    """Return whether two references may be one element; constants in subscripts tell some apart."""
    subscripts = [one.index_tuple for one in (left, right) if isinstance(one, p.Subscript)]
    pairs = zip(*subscripts, strict=True) if len(subscripts) == 2 else ()
    return _name_of(left) == _name_of(right) and not any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs
    )


def _find_references(expression: Any, names: Mapping[str, str]) -> set[Any]:
    """Return the private variables, subscripted or not, that an expression reads."""
    if isinstance(expression, p.Variable | p.Subscript) and _name_of(expression) in names:
        return {expression}
    parts = (_find_references(child, names) for child, _ in _children(expression))
    return set[Any]().union(*parts)


def _yield_ways(expr: Any, reference: Any) -> Iterator[list[str]]:
    if expr == reference:
        yield []
    elif isinstance(expr, p.Sum):
        yield from _yield_ways_through_sum(expr, reference)
    else:
        for child, kinds in _children(expr):
            for way in _yield_ways(child, reference):
                yield [*way, *kinds]


def _yield_ways_through_sum(expr: Any, reference: Any) -> Iterator[list[str]]:
    """Add from left to right; an addition of a product contracts with it."""
    terms = flatten_operands(expr, p.Sum)
    if len(terms) == 1:
        yield from _yield_ways(terms[0], reference)
        return
    for position, term in enumerate(terms):
        # what is added to the term, or to the sum that it is in
        others = [terms[1 - position] if position < 2 else None, *terms[max(position, 1) + 1 :]]
        for way in _yield_ways(term, reference):
            if way[-1:] == ["mul"] and _is_product(term):
                first = [*way[:-1], "fma"]
            else:
                first = [*way, "fma" if _is_product(others[0]) else "add"]
            yield first + ["fma" if _is_product(other) else "add" for other in others[1:]]


def _is_product(expr: Any) -> bool:
    if not isinstance(expr, p.Product):
        return isinstance(expr, p.Power) and expr.exponent == 2
    factors = [f for f in flatten_operands(expr, p.Product) if f != -1]
    return len(factors) > 1 or any(_is_product(f) for f in factors)


def _children(expr: Any) -> list[tuple[Any, list[str]]]:
    """Return the parts of an expression, each with the operations from it to the whole."""
    match expr:
        case p.Sum():
            return [(child, ["add"]) for child in expr.children]
        case p.Product():
            factors = flatten_operands(expr, p.Product)
            real = [f for f in factors if f != -1]
            return [(f, ["mul"] * (len(real) - max(k, 1))) for k, f in enumerate(real)]
        case p.FloorDiv() | p.Remainder():
            kind = "div" if isinstance(expr, p.FloorDiv) else "mod"
            kind = "shift" if is_power_of_two(expr.denominator) else kind
            return [(expr.numerator, [kind]), (expr.denominator, [kind])]
        case p.Power():
            kind = "mul" if expr.exponent == 2 else "pow"
            return [(expr.base, [kind]), (expr.exponent, ["pow"])]
        case p.Min() | p.Max():
            last = len(expr.children) - 1
            return [(c, ["minmax"] * min(k + 1, last)) for k, c in enumerate(expr.children)]
        case p.Call():
            kind = FUNCTION_KINDS.get(name_of(expr.function), "special")
            if isinstance(getattr(expr.function, "name", None), ArgExtOp):
                kind = "minmax"  # a comparison and the selection by it
            return [(child, [kind]) for child in expr.parameters]
        case _:
            names, kinds = _ALIKE.get(type(expr), ((), []))
            parts = (getattr(expr, name) for name in names)
            each = (part if type(part) is tuple else (part,) for part in parts)
            return [(one, kinds) for some in each for one in some]


_ALIKE: Mapping[type, tuple[tuple[str, ...], list[str]]] = {
    p.Quotient: (("numerator", "denominator"), ["div"]),
    p.If: (("condition", "then", "else_"), ["select"]),
    p.Comparison: (("left", "right"), ["compare"]),
    **dict.fromkeys((p.LogicalAnd, p.LogicalOr), (("children",), [])),
    **dict.fromkeys((p.BitwiseAnd, p.BitwiseOr, p.BitwiseXor), (("children",), ["bitwise"])),
    **{p.LogicalNot: (("child",), []), p.BitwiseNot: (("child",), ["bitwise"])},
    **dict.fromkeys((p.LeftShift, p.RightShift), (("shiftee", "shift"), ["shift"])),
    **{TypeCast: (("child",), ["convert"]), p.Subscript: (("index_tuple",), ["load"])},
}
"""Parts of nodes of which all have the same operations to the whole, by class."""


def _find_cycles(edges: Sequence[_Edge]) -> list[list[_Edge]]:
    """Return the longest cycles that are carried once, no two through one instruction."""
    forward = [edge for edge in edges if not edge.is_carried]
    forward.sort(key=lambda edge: (edge.target, edge.source))
    cycles: list[list[_Edge]] = []
    for first in (edge for edge in edges if edge.is_carried):
        longest: dict[int, list[_Edge]] = {first.target: [first]}
        for edge in forward:
            way = [*longest.get(edge.source, ()), edge]
            if len(way) > 1 and _weight(way) > _weight(longest.get(edge.target, ())):
                longest[edge.target] = way
        if first.source in longest:
            cycles.append(longest[first.source])
    apart: list[list[_Edge]] = []
    for cycle in sorted(cycles, key=_weight, reverse=True):
        if {e.target for e in cycle}.isdisjoint(e.target for other in apart for e in other):
            apart.append(cycle)
    return apart


def _weight(edges: Sequence[_Edge]) -> int:
    """Return how many operations lie on edges; fewer than any if there are no edges."""
    return sum(e.operations.total() for e in edges) if edges else -1


def is_power_of_two(expr: Any) -> bool:
    """Return whether an expression is a constant by which integers are divided by shifting them."""
    return isinstance(expr, int | np.integer) and int(expr) > 0 and int(expr).bit_count() == 1


def divisions_that_shift(instruction: Any) -> frozenset[str]:
    """Return which of ``div`` and ``mod`` an instruction has only by constant powers of two."""
    if not isinstance(instruction, lp.MultiAssignmentBase):
        return frozenset()
    shifting, others = set[str](), set[str]()
    for expr in list_nodes(instruction.expression, p.FloorDiv, p.Remainder):
        kind = "div" if isinstance(expr, p.FloorDiv) else "mod"
        (shifting if is_power_of_two(expr.denominator) else others).add(kind)
    return frozenset(shifting - others)
