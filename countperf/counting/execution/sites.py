"""Sites: where each operation of a kernel is executed and how the addresses of accesses change.

Each operation and access that a compiler leaves (`compiled_view`) is sorted by where it stands and
by how its address changes:

- *context*: ``free`` in device programs without local barriers, ``sync`` in those with;
- *placement*: ``flat``, or inside a loop that each work item runs at its own pace: ``short`` if
  compilers unroll it, for it has at most 32 iterations (all such loops around together), known
  beforehand, else ``loop``;
- *shape*: work items of a group along local axis 0, times the others;
- *step between items*, of an access: how its address changes from one item to the next along local
  axis 0; where a row has at most 8 items, so that compilers may unroll it, the step along local
  axis 1 follows: ``l1_reuse-next``;
- *step in the loop*, of an access in a loop: how its address changes in the innermost such loop.

========================  =========================================================================
step                      meaning
========================  =========================================================================
``same``, ``next``        0 elements, 1 element
``offset``                1 element of a local array, from a constant on that is no multiple of 16
                          elements
``shifted``               the same, where the first element depends on other loop variables, as with
                          a pitch that is no multiple of 16
``masked``                ``shifted``, of an instruction that not all items execute
``near``                  less than a line of 64 bytes; of a step by symbols, where they are so
                          small, if it is known to be positive or negative
``l1_reuse``              to another line (also any step by symbols that is not known to be
                          ``near``), and back to the first one while a first-level cache keeps it
``l2_reuse``              likewise, and back while a second-level cache keeps it
``beyond_l2``             likewise, and back later than that, or never
``..._conflict1`` to 3    lines share sets of a cache: how many more there are than these keep
``data``                  read from data, or uneven; within a few lines, or in an array that a
                          first-level cache keeps
``data_l2_reuse``         likewise, in an array that a second-level cache keeps
``data_beyond_l2``        likewise, in a larger array
========================  =========================================================================

`countperf.counting.execution.reuse` says how reuse is found, and which caches are assumed.

Divisions of integers by constant powers of two are counted as shifts. Special functions and powers
under a condition that tells items apart are ``conditional``: compilers that have no masked form of
one call it for each item. Accesses under a condition that tells neighbors apart are counted as
``guarded`` besides: a condition of the instruction, or bounds of loops that groups do not divide.
The guard counts at every size, because it is compiled in even where the size divides. Neighbors are
items along local axis 0, and along axis 1 too where rows have at most 8 items.
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
from loopy.kernel.data import LoopedIlpTag, UnrolledIlpTag, UnrollTag
from loopy.symbolic import DependencyMapper, get_dependencies

from countperf.counting.execution.footprints import FootprintCounter
from countperf.counting.execution.reuse import NARROW_ROW, StepSorter
from countperf.counting.instructions import Conditions, Instruction
from countperf.counting.keys import Case, FirstIteration, Grid, Operation
from countperf.counting.preparation import Launch, PreparedKernel
from countperf.counting.program_analysis import (
    ChainAnalysis,
    RegionAnalysis,
    analyze_program,
    divisions_that_shift,
)
from countperf.counting.scopes import Known, slots_of
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.counting.structure.site_keys import (
    AccessKey,
    ChainKey,
    Direction,
    EventKey,
    ExecutionKey,
    FootprintKey,
    LiveValuesKey,
    OperationKey,
    PrivateAccessKey,
    Site,
    SiteKey,
    Space,
    StepName,
    WorkItemStep,
)
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import Number

_CALLS = ("special", "pow")
"""Kinds of operations that are calls of functions."""

SHORT_LOOP = 32
"""Iterations of all loops around, known beforehand, up to which compilers unroll them."""

_LATENCIES: Mapping[str, int] = {"div": 4, "mod": 6, "special": 8, "pow": 30}
"""Latencies of operations in additions, which decide the longest of several chains."""

SitePart = tuple[SiteKey, Known]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionCounts:
    """Counts of executions; all symbolic in the parameters."""

    prepared: PreparedKernel
    # by what is executed, and where: of all work items, or over all groups
    counts: Mapping[ExecutionKey, PiecewiseQuasiPolynomial]
    reasons: frozenset[str]  # which of the caller's statistics enter


def count_execution(
    kernel: Any,
    *,
    caches: CountedCaches = DEFAULT_CACHES,
    **options: Any,
) -> ExecutionCounts:
    """Count operations and accesses of a unit, or a prepared kernel, by how they are executed.

    With `options` a unit is prepared, as by `countperf.count_kernel`.
    """
    prepared = PreparedKernel.of(kernel, **options)
    with prepared.counting():
        return _ExecutionCounter(prepared, caches).count()


class _ExecutionCounter:
    """Goes through a kernel, region by region."""

    def __init__(self, prepared: PreparedKernel, caches: CountedCaches) -> None:
        self.prepared = prepared
        self.domains = domains = prepared.domains
        self.kernel = prepared.kernel
        self.statistics = prepared.statistics
        self.tally = prepared.tally("compiled")
        self.steps = StepSorter(prepared, caches)
        self.looped_copies = frozenset(
            name
            for name, iname in self.kernel.inames.items()
            if any(isinstance(tag, LoopedIlpTag) for tag in iname.tags)
        )
        self.footprints = FootprintCounter(domains, self.steps)
        self.private_arrays = frozenset(
            name
            for name, variable in self.kernel.temporary_variables.items()
            if variable.address_space == lp.AddressSpace.PRIVATE and variable.shape
        )
        self.parts: defaultdict[ExecutionKey, list[PiecewiseQuasiPolynomial]] = defaultdict(list)
        self.reasons: set[str] = set()

    def count(self) -> ExecutionCounts:
        for launch in self.prepared.launches():
            self._note(launch.program.launch_loops)
            if launch.barriers:
                self._note(frozenset())
            self._count_program(launch)
        for key, part in self.footprints.count().items():
            self.parts[key].append(part)
        return ExecutionCounts(
            prepared=self.prepared,
            counts={key: PiecewiseQuasiPolynomial.sum(some) for key, some in self.parts.items()},
            reasons=frozenset(self.reasons | self.steps.assumed),
        )

    def _count_program(self, launch: Launch) -> None:
        grid, program = launch.grid, launch.program
        row = grid.items.get(0, 1)
        shape = (row, math.prod(grid.items.values()) // row)
        # of what is in no loop of the items
        flat = Site("sync" if program.barriers else "free", "flat", shape)
        for instruction in self.tally.instructions(launch):
            self._count_instruction(instruction, flat, grid)
        analysis = analyze_program(self.prepared, self.tally, launch)
        for region in analysis.regions:
            for key, quantity in self._count_region(region, flat, grid):
                self._add(key, quantity)

    def _add(self, key: ExecutionKey, quantity: Known) -> None:
        if quantity:
            self.parts[key].append(quantity)

    def _note(self, within: frozenset[str]) -> None:
        self.reasons |= self.statistics.reasons(within)
        self.statistics.used.clear()

    def _count_instruction(self, instruction: Instruction, flat: Site, grid: Grid) -> None:
        scope = instruction.scope
        idle = self._count_idle_slots(instruction, grid)
        axes = (0, 1) if grid.items.get(0, 1) <= NARROW_ROW else (0,)  # that vectors may take
        beside = [name for name, axis in scope.lanes.items() if axis in axes]
        is_cut = self._is_cut(scope.within.difference(instruction.own), beside, grid)
        copied = sorted(self.looped_copies & scope.within)
        for part in instruction.parts:
            key, conditions, times = part.key, part.conditions, part.times
            left = frozenset[str]().union(
                *(case.loops for case in conditions if isinstance(case, FirstIteration))
            )
            loops = [name for name in instruction.own if name not in left]
            copies = (name for name in copied if name not in left)
            site = self._place(flat, [*loops, *copies])
            executions = self.domains.executions(scope.within, conditions, grid).scale(times)
            is_guarded = is_cut or _tells_apart(conditions, beside)
            if isinstance(key, Operation):
                self._add_operation(key, instruction, conditions, site, executions)
            elif isinstance(key, str):
                self._add_supplied(key, instruction, site, executions, is_guarded=is_guarded)
            elif executions:
                once = partial(self._count_once, scope.within, conditions, grid, times)
                steps = self.steps.sort(key, instruction, loops, executions, once)
                for step, in_loop, quantity in steps:
                    between = step
                    if idle and step.along_row == "shifted":  # lanes may be idle
                        between = step._replace(along_row="masked")
                    space, direction = cast("Any", (key.address_space, key.direction))
                    at = (site, space, direction, key.bits, between)
                    self._add(AccessKey(*at, in_loop), quantity)
                    if is_guarded:
                        self._add(AccessKey(*at, is_guarded=True), quantity)
                if key.address_space == "global":
                    self.footprints.add(key, instruction, conditions, grid)
        whole = self._place(flat, [*instruction.own, *copied])
        for key, quantity in self._count_private_accesses(instruction, copied, whole, grid):
            self._add(key, quantity)
        self.reasons |= instruction.reasons
        self._note(scope.within)
        self._add(EventKey(whole, "idle"), idle)

    def _add_supplied(
        self,
        name: str,
        instruction: Instruction,
        site: Site,
        quantity: PiecewiseQuasiPolynomial,
        *,
        is_guarded: bool,
    ) -> None:
        """Add accesses of an instruction whose counts the caller supplies, by property name."""
        if name.startswith(("gmem.", "lmem.")):
            for key, part in _yield_supplied_access(name, instruction, site, quantity):
                if is_guarded or not (isinstance(key, AccessKey) and key.is_guarded):
                    self._add(key, part)

    def _count_idle_slots(self, instruction: Instruction, grid: Grid) -> PiecewiseQuasiPolynomial:
        """Count the slots of an instruction in which nothing is executed."""
        scope = instruction.scope
        is_cut = any(set(scope.loops) & scope.within) or any(
            name in self.domains.data_loops
            or self.domains.value_bounds(name) != (0, scope.grid.items[axis] - 1)
            for name, axis in scope.lanes.items()
        )
        if not (scope.cases or instruction.own or is_cut):
            return ZERO_COUNT
        slots = slots_of(scope)
        if slots is None:
            return ZERO_COUNT
        executed = self.domains.executions(scope.within, scope.cases, grid)
        return slots + executed.scale(-1)

    def _add_operation(
        self,
        operation: Operation,
        instruction: Instruction,
        conditions: Conditions,
        site: Site,
        executions: PiecewiseQuasiPolynomial,
    ) -> None:
        """Add operations: divisions that shift and calls that not all items make are apart."""
        if operation.kind in ("div", "mod") and operation.type_name[0] in "iu":
            if operation.kind in divisions_that_shift(instruction.loopy):
                operation = replace(operation, kind="shift")
        elif operation.kind in _CALLS and _tells_apart(conditions, instruction.scope.lanes):
            function = operation.function or operation.kind
            operation = replace(operation, kind="conditional", function=function)
        self._add(OperationKey(site, operation), executions)

    def _count_once(
        self,
        within: frozenset[str],
        conditions: Conditions,
        grid: Grid,
        times: Number,
        loop: str,
    ) -> PiecewiseQuasiPolynomial | None:
        """Count the executions of a copy that an unrolled loop makes; None if they differ."""
        for condition in conditions:
            if isinstance(condition, FirstIteration) and loop in condition.loops:
                return None
        return self.domains.executions(within - {loop}, conditions, grid).scale(times)

    def _count_private_accesses(
        self, instruction: Instruction, copied: Sequence[str], site: Site, grid: Grid
    ) -> Iterator[tuple[ExecutionKey, PiecewiseQuasiPolynomial]]:
        """Yield iterations of the loops over copies, and accesses to private arrays."""
        loops = frozenset([*instruction.own, *copied])
        if not loops or not isinstance(instruction.loopy, lp.MultiAssignmentBase):
            return
        read = self._find_private_references((instruction.loopy.expression,), loops)
        written = self._find_private_references(instruction.loopy.assignees, loops)
        if not (copied or read or written):
            return
        executions = self.domains.executions(
            instruction.scope.within, instruction.scope.cases, grid
        )
        if copied:
            yield EventKey(site, "iterations"), executions
        accessed: tuple[tuple[Direction, set[Any]], ...] = (("load", read), ("store", written))
        for direction, several in accessed:
            for reference in several:
                shape = self.kernel.temporary_variables[reference.aggregate.name].shape
                elements = math.prod(n if isinstance(n, int) else 0 for n in shape)
                yield PrivateAccessKey(site, direction, elements), executions

    def _find_private_references(
        self, expressions: Sequence[Any], loops: Collection[str]
    ) -> set[Any]:
        """Return references to private arrays whose subscripts depend on some loops."""
        return {
            reference
            for expression in expressions
            for reference in _find_subscripts(expression, self.private_arrays)
            if not get_dependencies(reference.index).isdisjoint(loops)
        }

    # --- placement of instructions: which loops compilers unroll, and what bounds cut

    def _place(self, flat: Site, loops: Collection[str]) -> Site:
        """Return the site of what is in some of the items' own loops."""
        if not loops:
            return flat
        return replace(flat, placement="short" if self._are_short(loops) else "loop")

    def _are_short(self, loops: Collection[str]) -> bool:
        counted, factor = self.domains.trip_statistics(frozenset(loops))
        whole = factor.as_polynomial()
        if counted != frozenset(loops) or whole is None or not whole.is_constant:
            return False  # data decides
        trips = [self._count_trips(name) for name in counted]
        known = [number for number in trips if number is not None]
        return len(known) == len(trips) and whole.constant_term * math.prod(known) <= SHORT_LOOP

    def _count_trips(self, name: str) -> int | None:
        """Return how many values a loop variable takes, if a constant bounds it; None if not."""
        low, high = self.domains.value_bounds(name)
        return None if low is None or high is None else max(high - low + 1, 0)

    def _is_cut(self, within: frozenset[str], beside: Collection[str], grid: Grid) -> bool:
        """Tell whether bounds leave some items or copies without work where others have it.

        They do if that is so at any sizes.
        """
        if not beside:
            return False
        executed, once = (
            self.domains.executions(names, (), grid)
            for names in (within, within.difference(beside))
        )
        copies = 1  # of the instruction that unrolled loops write
        for name in within.intersection(beside):
            tags = self.kernel.inames[name].tags
            if any(isinstance(tag, UnrollTag | UnrolledIlpTag) for tag in tags):
                trips = self._count_trips(name)
                copies *= 1 if trips is None else trips
        return executed != once.scale(copies)

    # --- loops and regions: passes, iterations, carried chains, values that live across barriers

    def _count_region(self, region: RegionAnalysis, flat: Site, grid: Grid) -> Iterator[SitePart]:
        own = {loop.iname for loop in region.loops}
        yield EventKey(self._place(flat, own), "passes"), region.passes
        for loop in region.loops:
            site = self._place(flat, [loop.iname])
            yield EventKey(site, "iterations"), loop.iterations
            yield EventKey(site, "entries"), loop.entries
        yield from self._count_live_values(region, flat, grid, own)
        yield from self._count_chains(region, flat, own)

    def _count_live_values(
        self, region: RegionAnalysis, flat: Site, grid: Grid, own: Collection[str]
    ) -> Iterator[SitePart]:
        """Yield the private values that are carried over a region's barriers."""
        around = set(region.barrier_loops)
        waiting = [chain for chain in region.chains if around & set(chain.loops)]
        values: defaultdict[int, int] = defaultdict(int)
        waiting_values: list[tuple[int, PiecewiseQuasiPolynomial]] = []
        for chain in waiting:
            within = self.kernel.id_to_insn[chain.instructions[-1]].within_inames
            bits = 8 * self.kernel.temporary_variables[chain.variables[-1]].dtype.itemsize
            values[bits] += 1 if self.looped_copies & within else chain.side_by_side
            waiting_values.append((bits, self.domains.executions(within.difference(own), (), grid)))
        site = self._place(flat, ())
        for bits, executions in waiting_values:
            yield LiveValuesKey(site, values[bits], bits), executions

    def _count_chains(
        self, region: RegionAnalysis, flat: Site, own: Collection[str]
    ) -> Iterator[SitePart]:
        """Yield what chains carry, and of those that the same loops carry the longest."""
        executed = {i.id: i.executions for i in region.instructions}
        longest: dict[tuple[str, ...], tuple[Fraction, ChainAnalysis]] = {}
        for chain in region.chains:
            site = self._place(flat, set(own) & set(chain.loops))
            yield EventKey(site, "carried"), executed[chain.instructions[-1]]
            waiting = _estimate_wait(chain)
            if chain.loops not in longest or waiting > longest[chain.loops][0]:
                longest[chain.loops] = waiting, chain
        for loops, (_, chain) in longest.items():
            site = self._place(flat, set(own) & set(loops))
            total = executed[chain.instructions[-1]].scale(Fraction(1, chain.side_by_side))
            for operation, times in chain.operations:
                kind, _, type_name = operation.partition(".")
                yield ChainKey(site, kind, type_name), total.scale(times)


def _estimate_wait(chain: ChainAnalysis) -> Fraction:
    """Return about how long an iteration waits for a chain; longer ones hide the others."""
    operations = sum(
        _LATENCIES.get(kind.split(".")[0], 1) * times for kind, times in chain.operations
    )
    return Fraction(operations, chain.side_by_side)


def _tells_apart(conditions: Conditions, items: Collection[str]) -> bool:
    """Tell whether some conditions depend on work-item indices."""
    return any(not case.names.isdisjoint(items) for case in conditions if isinstance(case, Case))


def _find_subscripts(expression: Any, arrays: Collection[str]) -> set[Any]:
    """Return the references to elements of some arrays in an expression."""
    dependencies: Any = DependencyMapper(include_subscripts=True)
    return {
        dependency
        for dependency in dependencies(expression)
        if isinstance(dependency, p.Subscript)
        and isinstance(dependency.aggregate, p.Variable)
        and dependency.aggregate.name in arrays
    }


# --- Executions of instructions whose counts the caller supplies, by property name
# What is supplied says nothing of addresses but their class, so that these rules stand in for what
# is read from a kernel's own accesses:
#
# - *step* from item to item, and in the innermost loop of an item: ``same`` for ``uniform``,
#   ``next`` for ``stride1``, ``near`` for classes of which a line of up to four parts is used, to
#   other lines in a first-level cache for ``1ofn`` to ``4ofn``, and ``data`` there for
#   ``indirect``;
# - *distinct bytes*: those of each access, those of ``uniform`` ones once for each group; they lie
#   side by side (``dense``) but for ``1ofn`` to ``4ofn`` and ``indirect`` ones.


def _yield_supplied_access(
    name: str, instruction: Instruction, site: Site, quantity: PiecewiseQuasiPolynomial
) -> Iterator[tuple[AccessKey | FootprintKey, PiecewiseQuasiPolynomial]]:
    """Yield what supplied accesses, by property name, add to the counts of executions."""
    root, direction, bits, *more = cast("Any", name.split("."))
    space: Space = "global" if root == "gmem" else "local"
    class_name = "".join(more) or "stride1"
    step = _step_of_class(class_name)
    between = WorkItemStep(step if 0 in instruction.scope.lanes.values() else "same")
    at = (site, space, direction, int(bits), between)
    yield AccessKey(*at, step if instruction.own else None), quantity
    yield AccessKey(*at, is_guarded=True), quantity
    if space == "local":
        return
    per_group = Fraction(1, site.items)
    is_sparse = class_name.endswith("ofn") or class_name == "indirect"
    distinct = quantity.scale(per_group) if class_name == "uniform" else quantity
    size = Fraction(int(bits), 8)
    density = "sparse" if is_sparse else "dense"
    yield FootprintKey("bytes.group", direction, density), distinct.scale(size)
    pieces = quantity if is_sparse else quantity.scale(per_group)
    yield FootprintKey("segments.group", direction), pieces
    yield FootprintKey("bytes.kernel", direction), distinct.scale(size)


def _step_of_class(class_name: str) -> StepName:
    """Return the step of addresses of a class between neighboring items, and in a loop."""
    known = {"uniform": "same", "stride1": "next", "indirect": "data"}
    return known.get(class_name, "l1_reuse" if class_name.endswith("ofn") else "near")
