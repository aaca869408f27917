"""Sites: where each operation of a kernel is executed and how the addresses of accesses change.

Each operation and access that a compiler leaves (`compiled_view`) is sorted by the context,
placement and shape of its site, and an access by the step of its address between items (along local
axis 0; where a row has at most 8 items, the step along local axis 1 follows: ``l1_reuse-next``) and
in the innermost loop of the items. The glossary in ``docs`` explains the names; where reuse of
lines is unknown, steps by symbols count as to other lines. Integer divisions by powers of two are
shifts. Calls under a condition that tells items apart are ``conditional``, accesses under one that
tells neighbors apart ``guarded`` besides, at every size: the guard is compiled in.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, cast

import loopy as lp
import pymbolic.primitives as p
from loopy.kernel.data import LoopedIlpTag
from loopy.symbolic import DependencyMapper, get_dependencies

from countperf.counting.access_classes import reads_data
from countperf.counting.execution.footprints import FootprintCounter
from countperf.counting.execution.reuse import NARROW_ROW, StepSorter
from countperf.counting.keys import Case, FirstIteration, MemoryAccess, Operation
from countperf.counting.operations.scalars import find_tagged_inames
from countperf.counting.preparation import (
    Conditions,
    Instruction,
    InstructionPart,
    Launch,
    PreparedKernel,
)
from countperf.counting.program_analysis import (
    ChainAnalysis,
    RegionAnalysis,
    analyze_program,
    divisions_that_shift,
)
from countperf.counting.scopes import Known, slots_of
from countperf.counting.structure import site_keys as keys
from countperf.counting.structure.memory_hierarchy import (
    DEFAULT_CACHES,
    LINE_BYTES,
    CountedCaches,
)
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial

_CALLS = ("special", "pow")  # kinds of operations that are calls of functions

SHORT_LOOP = 32
"""Iterations of all loops around, known beforehand, up to which compilers unroll them."""

_LATENCIES: Mapping[str, int] = {"div": 4, "mod": 6, "special": 8, "pow": 30}
"""Latencies of operations in additions, which decide the longest of several chains."""

CountPart = tuple[keys.ExecutionKey, Known]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionCounts:
    """Counts of executions; all symbolic in the parameters."""

    prepared: PreparedKernel
    # by what is executed, and where: of all work items, or over all groups
    counts: Mapping[keys.ExecutionKey, PiecewiseQuasiPolynomial]
    reasons: frozenset[str]  # which of the caller's statistics enter


def count_execution(
    kernel: Any, *, caches: CountedCaches = DEFAULT_CACHES, **options: Any
) -> ExecutionCounts:
    """Count operations and accesses of a unit, or a prepared kernel, by how they are executed.

    With `options` a unit is prepared, as by `countperf.count_kernel`.
    """
    prepared = PreparedKernel.of(kernel, **options)
    with prepared.count_with_advice():
        tally, steps = prepared.tally("compiled"), StepSorter(prepared, caches)
        footprints = FootprintCounter(prepared.domains, steps)
        reasons: set[str] = set()
        parts: defaultdict[keys.ExecutionKey, list[PiecewiseQuasiPolynomial]] = defaultdict(list)

        def note(within: frozenset[str]) -> None:
            reasons.update(prepared.statistics.reasons(within))
            prepared.statistics.used.clear()

        for launch in prepared.launches():
            note(launch.program.launch_loops)
            if launch.barriers:
                note(frozenset())
            counter = _LaunchCounter(prepared, launch, steps, footprints)
            for instruction in tally.instructions(launch):
                for key, quantity in counter.count_instruction(instruction):
                    if quantity:
                        parts[key].append(quantity)
                reasons |= instruction.reasons
                note(instruction.scope.within)
            for region in analyze_program(prepared, tally, launch).regions:
                for key, quantity in counter.count_region(region):
                    if quantity:
                        parts[key].append(quantity)
        for key, quantity in footprints.count():
            parts[key].append(quantity)
        return ExecutionCounts(
            prepared=prepared,
            counts={key: PiecewiseQuasiPolynomial.sum(some) for key, some in parts.items()},
            reasons=frozenset(reasons | steps.assumed),
        )


class _LaunchCounter:
    """Goes through a device program, by instructions and by regions."""

    def __init__(
        self,
        prepared: PreparedKernel,
        launch: Launch,
        steps: StepSorter,
        footprints: FootprintCounter,
    ) -> None:
        self.domains = prepared.domains
        self.kernel = prepared.kernel
        self.steps = steps
        self.footprints = footprints
        self.grid = launch.grid
        row = self.grid.items.get(0, 1)
        shape = (row, math.prod(self.grid.items.values()) // row)
        # of what is in no loop of the items
        self.flat = keys.Site("sync" if launch.program.barriers else "free", "flat", shape)
        self.first_in_lines: defaultdict[Any, list[int]] = defaultdict(list)
        self.looped_copies = find_tagged_inames(self.kernel, LoopedIlpTag)
        self.private_arrays = {
            name: math.prod(n if isinstance(n, int) else 0 for n in variable.shape)
            for name, variable in self.kernel.temporary_variables.items()
            if variable.address_space == lp.AddressSpace.PRIVATE and variable.shape
        }

    def _count_executions(
        self, within: frozenset[str], conditions: Conditions = ()
    ) -> PiecewiseQuasiPolynomial:
        return self.domains.executions(within, conditions, self.grid)

    def count_instruction(self, instruction: Instruction) -> Iterator[CountPart]:
        """Yield the counts of an instruction."""
        scope, own = instruction.scope, instruction.own
        idle = self._count_idle_slots(instruction)
        axes = (0, 1) if self.grid.items.get(0, 1) <= NARROW_ROW else (0,)  # that vectors may take
        beside = [name for name, axis in scope.lanes.items() if axis in axes]
        around = scope.within.difference(own)
        # whether bounds leave some items without work where others have it, at any sizes
        count, others = self._count_executions, around.difference(beside)
        is_cut = bool(beside) and count(around) != count(others)
        copied = sorted(self.looped_copies & scope.within)
        for part in sorted(instruction.parts, key=_is_store):
            key, conditions = part.key, part.conditions
            left = frozenset[str]().union(
                *(case.loops for case in conditions if isinstance(case, FirstIteration))
            )
            loops = [name for name in own if name not in left]
            site = self._place({*loops, *copied} - left)
            executions = self._count_executions(scope.within, conditions).scale(part.times)
            is_guarded = is_cut or _tells_apart(conditions, beside)
            if isinstance(key, Operation):
                sorted_key = _sort_operation(key, instruction, conditions)
                yield keys.OperationKey(site, sorted_key), executions
            elif isinstance(key, str):
                if key.startswith(("gmem.", "lmem.")):
                    parts = _yield_supplied_access(key, instruction, site, executions)
                    yield from (
                        p for p in parts if is_guarded or not getattr(p[0], "is_guarded", False)
                    )
            elif executions:
                once = partial(self._count_once, scope.within, part)
                space, direction = cast("Any", (key.address_space, key.direction))
                near = self._is_near_another(key, scope.within, conditions)
                for step, along, quantity in self.steps.sort(
                    key, instruction, loops, executions, once, is_near=near
                ):
                    if idle and step.along_row == "shifted":  # lanes may be idle
                        step = step._replace(along_row="masked")
                    at = (site, space, direction, key.bits, step)
                    yield keys.AccessKey(*at, along), quantity
                    if is_guarded:
                        yield keys.AccessKey(*at, is_guarded=True), quantity
                if key.address_space == "global":
                    self.footprints.add(key, instruction, conditions, self.grid)
        whole = self._place([*own, *copied])
        yield from self._count_private_accesses(instruction, copied, whole)
        yield keys.EventKey(whole, "idle"), idle

    def _is_near_another(
        self, access: MemoryAccess, within: frozenset[str], conditions: Conditions
    ) -> bool:
        """Tell whether it is less than a line from one that is executed with it, before it.

        Else it is noted as one that others may be near to.
        """
        address = self.domains.address(access)
        if address is None or reads_data(access, self.domains):
            return False
        at = int(address.flat.constant_term)
        others = (access.array, access.component_of, address.flat - at, within, conditions)
        first = self.first_in_lines[others]
        if any(abs(at - other) * access.bits < 8 * LINE_BYTES for other in first):
            return True
        first.append(at)
        return False

    def _count_idle_slots(self, instruction: Instruction) -> PiecewiseQuasiPolynomial:
        """Count the slots of an instruction in which nothing is executed."""
        scope = instruction.scope
        is_cut = not scope.within.isdisjoint(scope.loops) or any(
            name in self.domains.data_loops
            or self.domains.value_bounds(name) != (0, self.grid.items[axis] - 1)
            for name, axis in scope.lanes.items()
        )
        slots = slots_of(scope) if scope.cases or instruction.own or is_cut else None
        if slots is None:
            return ZERO_COUNT
        return slots + self._count_executions(scope.within, scope.cases).scale(-1)

    def _count_once(
        self, within: frozenset[str], part: InstructionPart, loop: str
    ) -> PiecewiseQuasiPolynomial | None:
        """Count the executions of a copy that an unrolled loop makes; None if they differ."""
        for condition in part.conditions:
            if isinstance(condition, FirstIteration) and loop in condition.loops:
                return None
        return self._count_executions(within - {loop}, part.conditions).scale(part.times)

    def _count_private_accesses(
        self, instruction: Instruction, copied: Sequence[str], site: keys.Site
    ) -> Iterator[CountPart]:
        """Yield iterations of the loops over copies, and accesses to private arrays in loops."""
        loops = {*instruction.own, *copied}
        if not loops or not isinstance(instruction.loopy, lp.MultiAssignmentBase):
            return
        executions = self._count_executions(instruction.scope.within, instruction.scope.cases)
        if copied:
            yield keys.EventKey(site, "iterations"), executions
        accessed = {"load": (instruction.loopy.expression,), "store": instruction.loopy.assignees}
        subscripts_in: Any = DependencyMapper(include_subscripts=True)
        for direction, expressions in accessed.items():
            for reference in set[Any]().union(*map(subscripts_in, expressions)):
                if not isinstance(reference, p.Subscript):
                    continue
                elements = self.private_arrays.get(getattr(reference.aggregate, "name", ""))
                if elements is not None and not loops.isdisjoint(get_dependencies(reference.index)):
                    yield keys.EventKey(site, f"pmem.{direction}.{elements}"), executions

    # --- placement of instructions: which loops compilers unroll, and what bounds cut

    def _place(self, loops: Collection[str]) -> keys.Site:
        """Return the site of what is in some of the items' own loops."""
        if not loops:
            return self.flat
        return replace(self.flat, placement="short" if self._are_short(loops) else "loop")

    def _are_short(self, loops: Collection[str]) -> bool:
        counted, factor = self.domains.trip_statistics(frozenset(loops))
        whole = factor.as_polynomial()
        if counted != frozenset(loops) or whole is None or not whole.is_constant:
            return False  # data decides
        trips = whole.constant_term
        for low, high in map(self.domains.value_bounds, counted):
            if low is None or high is None:
                return False
            trips *= max(high - low + 1, 0)
        return trips <= SHORT_LOOP

    # --- loops and regions: passes, iterations, carried chains, values that live across barriers

    def count_region(self, region: RegionAnalysis) -> Iterator[CountPart]:
        """Yield the counts of a barrier region."""
        own = {loop.iname for loop in region.loops}
        yield keys.EventKey(self._place(own), "passes"), region.passes
        for loop in region.loops:
            site = self._place([loop.iname])
            yield keys.EventKey(site, "iterations"), loop.iterations
            yield keys.EventKey(site, "entries"), loop.entries
        yield from self._count_live_values(region, own)
        yield from self._count_chains(region, own)

    def _count_live_values(self, region: RegionAnalysis, own: set[str]) -> Iterator[CountPart]:
        """Yield the private values that are carried over a region's barriers."""
        values: defaultdict[int, int] = defaultdict(int)
        waiting: list[tuple[int, PiecewiseQuasiPolynomial]] = []
        for chain in region.chains:
            if not set(region.barrier_loops).isdisjoint(chain.loops):
                within = self.kernel.id_to_insn[chain.instructions[-1]].within_inames
                bits = 8 * self.kernel.temporary_variables[chain.variables[-1]].dtype.itemsize
                values[bits] += 1 if self.looped_copies & within else chain.side_by_side
                waiting.append((bits, self._count_executions(within.difference(own))))
        for bits, executions in waiting:
            name = f"live_across_barrier.{values[bits]}.{bits}"
            yield keys.EventKey(self.flat, name), executions

    def _count_chains(self, region: RegionAnalysis, own: set[str]) -> Iterator[CountPart]:
        """Yield what chains carry, and of those that the same loops carry the longest."""
        executed = {i.id: i.executions for i in region.instructions}
        longest: dict[tuple[str, ...], tuple[Fraction, ChainAnalysis]] = {}
        for chain in region.chains:
            site = self._place(own.intersection(chain.loops))
            yield keys.EventKey(site, "carried"), executed[chain.instructions[-1]]
            latencies = (_LATENCIES.get(k.split(".")[0], 1) * n for k, n in chain.operations)
            wait = Fraction(sum(latencies), chain.side_by_side)  # of an iteration, about
            if chain.loops not in longest or wait > longest[chain.loops][0]:
                longest[chain.loops] = wait, chain
        for loops, (_, chain) in longest.items():
            site = self._place(own.intersection(loops))
            total = executed[chain.instructions[-1]].scale(Fraction(1, chain.side_by_side))
            for operation, times in chain.operations:
                kind, _, type_name = operation.partition(".")
                yield keys.EventKey(site, f"chain.{kind}.{type_name}"), total.scale(times)


def _is_store(part: InstructionPart) -> bool:
    return isinstance(part.key, MemoryAccess) and part.key.direction == "store"


def _sort_operation(
    operation: Operation, instruction: Instruction, conditions: Conditions
) -> Operation:
    """Tell divisions that shift, and calls that not all items make, from others."""
    if operation.kind in ("div", "mod") and operation.type_name[0] in "iu":
        shifts = operation.kind in divisions_that_shift(instruction.loopy)
        return replace(operation, kind="shift") if shifts else operation
    if operation.kind in _CALLS and _tells_apart(conditions, instruction.scope.lanes):
        function = operation.function or operation.kind
        return replace(operation, kind="conditional", function=function)
    return operation


def _tells_apart(conditions: Conditions, items: Collection[str]) -> bool:
    """Tell whether some conditions depend on work-item indices."""
    return any(not case.names.isdisjoint(items) for case in conditions if isinstance(case, Case))


# --- Executions of instructions whose counts the caller supplies, by property name
# Of their addresses, only the class is known.


def _yield_supplied_access(
    name: str, instruction: Instruction, site: keys.Site, quantity: PiecewiseQuasiPolynomial
) -> Iterator[tuple[keys.AccessKey | keys.FootprintKey, PiecewiseQuasiPolynomial]]:
    """Yield what supplied accesses, by property name, add to the counts of executions."""
    root, direction, bits, *more = cast("Any", name.split("."))
    space: keys.Space = "global" if root == "gmem" else "local"
    class_name = "".join(more) or "stride1"
    steps = {"uniform": "same", "stride1": "next", "indirect": "data"}
    is_coarse = class_name.endswith("ofn")
    step = steps.get(class_name, "l1_reuse" if is_coarse else "near")
    between = keys.WorkItemStep(step if 0 in instruction.scope.lanes.values() else "same")
    at = (site, space, direction, int(bits), between)
    yield keys.AccessKey(*at, step if instruction.own else None), quantity
    yield keys.AccessKey(*at, is_guarded=True), quantity
    if space == "global":
        per_group = quantity.scale(Fraction(1, site.items))
        is_sparse = is_coarse or class_name == "indirect"
        size = Fraction(int(bits), 8)
        touched = (per_group if class_name == "uniform" else quantity).scale(size)
        density = "sparse" if is_sparse else "dense"
        yield keys.FootprintKey("bytes.group", direction, density), touched
        yield keys.FootprintKey("segments.group", direction), quantity if is_sparse else per_group
        yield keys.FootprintKey("bytes.kernel", direction), touched
