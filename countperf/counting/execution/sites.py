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
from loopy.kernel.data import LoopedIlpTag
from loopy.symbolic import DependencyMapper, get_dependencies

from countperf.counting.chains import divisions_that_shift
from countperf.counting.execution.footprints import FootprintCounter
from countperf.counting.execution.placement import (
    LoopCounter,
    Placements,
    StepSorter,
    find_left_loops,
    flat_site,
    neighbors,
    tells_apart,
)
from countperf.counting.execution.reuse import ReuseLimits
from countperf.counting.keys import FirstIteration, Grid, Operation
from countperf.counting.preparation import Conditions, Instruction, Launch, PreparedKernel
from countperf.counting.program_analysis import analyze_program
from countperf.counting.scopes import Known, Scope, slots_of
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.counting.structure.site_keys import (
    AccessKey,
    Direction,
    EventKey,
    ExecutionKey,
    FootprintKey,
    OperationKey,
    Site,
    Space,
    StepName,
    WorkItemStep,
)
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import Number

_CALLS = ("special", "pow")
"""Kinds of operations that are calls of functions."""


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
        return _Executions(prepared, caches).counted()


class _Executions:
    """Goes through a kernel, region by region."""

    def __init__(self, prepared: PreparedKernel, caches: CountedCaches) -> None:
        self.prepared = prepared
        self.domains = domains = prepared.domains
        self.kernel = prepared.kernel
        self.statistics = prepared.statistics
        self.tally = prepared.tally("compiled")
        self.placements = Placements(domains)
        self.steps = StepSorter(prepared, ReuseLimits.of(caches))
        self.looped_copies = frozenset(
            name
            for name, iname in self.kernel.inames.items()
            if any(isinstance(tag, LoopedIlpTag) for tag in iname.tags)
        )
        self.loops = LoopCounter(domains, self.placements, self.looped_copies)
        self.footprints = FootprintCounter(domains, self.steps)
        self.private_arrays = frozenset(
            name
            for name, variable in self.kernel.temporary_variables.items()
            if variable.address_space == lp.AddressSpace.PRIVATE and variable.shape
        )
        self.parts: defaultdict[ExecutionKey, list[PiecewiseQuasiPolynomial]] = defaultdict(list)
        self.reasons: set[str] = set()

    def counted(self) -> ExecutionCounts:
        """Count all device programs."""
        for launch in self.prepared.launches():
            self._note(launch.program.launch_loops)
            if launch.barriers:
                self._note(frozenset())
            self._program(launch)
        for key, part in self.footprints.counted().items():
            self.parts[key].append(part)
        return ExecutionCounts(
            prepared=self.prepared,
            counts={key: PiecewiseQuasiPolynomial.sum(some) for key, some in self.parts.items()},
            reasons=frozenset(self.reasons | self.steps.assumed),
        )

    def _program(self, launch: Launch) -> None:
        grid = launch.grid
        flat = flat_site(launch.program, grid)
        for instruction in self.tally.instructions(launch):
            self._instruction(instruction, flat, grid)
        analysis = analyze_program(self.prepared, self.tally, launch)
        for key, quantity in self.loops.counted(analysis, flat, grid):
            self._add(key, quantity)

    def _add(self, key: ExecutionKey, quantity: Known) -> None:
        if quantity:
            self.parts[key].append(quantity)

    def _note(self, within: frozenset[str]) -> None:
        self.reasons |= self.statistics.reasons(within)
        self.statistics.used.clear()

    def _instruction(self, instruction: Instruction, flat: Site, grid: Grid) -> None:
        scope = instruction.scope
        idle = self._idle(instruction, grid)
        beside = neighbors(scope)
        is_cut = self.placements.cuts(scope.within.difference(instruction.own), beside, grid)
        copied = sorted(self.looped_copies & scope.within)
        for part in instruction.parts:
            key, conditions, times = part.key, part.conditions, part.times
            left = find_left_loops(conditions)
            loops = [name for name in instruction.own if name not in left]
            copies = (name for name in copied if name not in left)
            site = self.placements.site(flat, [*loops, *copies])
            executions = self.domains.executions(scope.within, conditions, grid).scale(times)
            if isinstance(key, Operation):
                self._operation(key, instruction, conditions, site, executions)
            elif isinstance(key, str):
                is_guarded = is_cut or tells_apart(conditions, beside)
                self._add_supplied(key, instruction, site, executions, is_guarded=is_guarded)
            elif executions:
                once = partial(self._once, scope.within, conditions, grid, times)
                steps = self.steps.sorted(key, instruction, loops, executions, once)
                is_guarded = is_cut or tells_apart(conditions, beside)
                for step, in_loop, quantity in steps:
                    between = _mask_step(step) if idle else step
                    space, direction = cast("Any", (key.address_space, key.direction))
                    at = (site, space, direction, key.bits, between)
                    self._add(AccessKey(*at, in_loop), quantity)
                    if is_guarded:
                        self._add(AccessKey(*at, is_guarded=True), quantity)
                if key.address_space == "global":
                    self.footprints.add(key, instruction, conditions, grid)
        whole = self.placements.site(flat, [*instruction.own, *copied])
        for key, quantity in self._private(instruction, copied, whole, grid):
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

    def _idle(self, instruction: Instruction, grid: Grid) -> PiecewiseQuasiPolynomial:
        """Count the slots of an instruction in which nothing is executed."""
        scope = instruction.scope
        if not (scope.cases or instruction.own or self._is_guarded(scope)):
            return ZERO_COUNT
        slots = slots_of(scope)
        if slots is None:
            return ZERO_COUNT
        executed = self.domains.executions(scope.within, scope.cases, grid)
        return slots + executed.scale(-1)

    def _operation(
        self,
        operation: Operation,
        instruction: Instruction,
        conditions: Conditions,
        site: Site,
        executions: PiecewiseQuasiPolynomial,
    ) -> None:
        """Add operations: divisions that shift and calls that not all items make are apart."""
        if operation.kind in ("div", "mod") and operation.type_name[0] in "iu":
            shifts = operation.kind in divisions_that_shift(instruction.loopy)
            named = replace(operation, kind="shift") if shifts else operation
        else:
            named = _conditional(operation, conditions, instruction.scope)
        self._add(OperationKey(site, named), executions)

    def _once(
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

    def _private(
        self, instruction: Instruction, copied: Sequence[str], site: Site, grid: Grid
    ) -> Iterator[tuple[ExecutionKey, PiecewiseQuasiPolynomial]]:
        """Yield iterations of the loops over copies, and accesses to private arrays."""
        loops = frozenset([*instruction.own, *copied])
        if not loops or not isinstance(instruction.loopy, lp.MultiAssignmentBase):
            return
        read = self._private_references((instruction.loopy.expression,), loops)
        written = self._private_references(instruction.loopy.assignees, loops)
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
                elements = self._private_elements(reference.aggregate.name)
                yield EventKey(site, f"pmem.{direction}.{elements}"), executions

    def _private_references(self, expressions: Sequence[Any], loops: Collection[str]) -> set[Any]:
        """Return references to private arrays whose subscripts depend on some loops."""
        return {
            reference
            for expression in expressions
            for reference in _subscripts_in(expression, self.private_arrays)
            if not get_dependencies(reference.index).isdisjoint(loops)
        }

    def _private_elements(self, array: str) -> int:
        """Return how many elements each item has of a private array; 0 if no constant says it."""
        shape = self.kernel.temporary_variables[array].shape
        return math.prod(extent if isinstance(extent, int) else 0 for extent in shape)

    def _is_guarded(self, scope: Scope) -> bool:
        return bool(set(scope.loops) & scope.within) or any(
            name in self.domains.data_loops
            or self.domains.value_bounds(name) != (0, scope.grid.items[axis] - 1)
            for name, axis in scope.lanes.items()
        )


def _conditional(operation: Operation, conditions: Conditions, scope: Scope) -> Operation:
    """Return the operation, or a conditional one if it is a call that not all items make."""
    if operation.kind not in _CALLS or not tells_apart(conditions, scope.lanes):
        return operation
    function = operation.function or operation.kind
    return replace(operation, kind="conditional", function=function)


def _mask_step(step: WorkItemStep) -> WorkItemStep:
    """Return the step of accesses in which lanes may be idle; the one along axis 1 stays."""
    return step._replace(along_row="masked") if step.along_row == "shifted" else step


def _subscripts_in(expression: Any, arrays: Collection[str]) -> set[Any]:
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
