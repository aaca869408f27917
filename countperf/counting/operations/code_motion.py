"""Code that a compiler moves: out of loops (rules 4 to 7 of `compiled_view`), or into branches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import loopy as lp
import pymbolic.primitives as p
from loopy import AddressSpace
from loopy.symbolic import WalkMapper, get_dependencies
from pytools import memoize_method

from countperf.counting.device_programs import Loop, Point, Position
from countperf.counting.domains import Domains
from countperf.counting.expression_types import list_nodes, name_of
from countperf.counting.keys import Case, FirstIteration, MemoryAccess
from countperf.symbolic import sets
from countperf.symbolic.kernel_sets import assumptions_of

Moved = tuple[FirstIteration] | tuple[()]  # the loops that something is moved out of, if any


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

    def find_hoisting_loops(
        self, point: Point, names: frozenset[str], *, speculated: bool
    ) -> Moved:
        """Return the loops that leave a value alone, from the inside out (rules 4, 5 and 7)."""
        loops: list[str] = []
        is_sequential = False
        for region in reversed(point.regions[1:]):
            iname = region.iname
            if iname in self._domains.data_loops or point.tests:
                break
            changed = region.written | {iname, region.pin}
            if region.has_barrier:
                changed |= self.find_clobbered_arrays(point.regions[0])
            is_kept = bool(names & changed) or (region.is_unrolled and is_sequential)
            if not is_kept and (region.is_unrolled or region.has_barrier or not speculated):
                inside = frozenset(loops)
                is_kept = not self._is_all_or_nothing(point.within, point.cases, inside, region)
            if not is_kept:
                loops.append(iname)
                is_sequential = is_sequential or not region.is_unrolled
            elif not region.is_unrolled:
                break
        return _leave_loops(loops, speculated=speculated and is_sequential)

    @memoize_method
    def _is_all_or_nothing(
        self, within: frozenset[str], cases: tuple[Case, ...], inner: frozenset[str], region: Loop
    ) -> bool:
        """Return whether all iterations of a loop execute something or none does (rule 4)."""
        counted, _ = self._domains.trip_statistics(within)
        outer = counted - inner
        if not (region.has_barrier or cases or inner):
            return True
        executed = sets.project_onto(self._domains.find_points(counted, cases), outer)
        if region.has_barrier:  # whose bounds are those of the group, guards inside
            lanes = {name: self._lanes[name] for name in outer & set(self._lanes)}
            everything = sets.widen_along(self._domains.domain(outer), lanes)
            return sets.contains(executed, everything, assumptions_of(self._domains.kernel))
        return sets.is_all_or_nothing(executed, self._domains.domain(outer), region.iname)

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
        return _leave_loops(loops, speculated=False)

    def _is_always_accessed(self, array: str, region: Loop) -> bool:
        for instruction in region.accessing[array]:
            regions = self._positions[instruction.id].regions
            inner = frozenset(r.iname for r in regions[regions.index(region) + 1 :])
            if instruction.predicates or inner & self._domains.data_loops.keys():
                return False
            if not self._is_all_or_nothing(instruction.within_inames, (), inner, region):
                return False
        return True


def _leave_loops(loops: Sequence[str], *, speculated: bool) -> Moved:
    """Return what is moved out of loops, given from the inside out, as executed once."""
    if not loops:
        return ()
    left = frozenset(loops)
    return (FirstIteration(loops=left, outermost=loops[-1], is_speculated=speculated),)


# --- Into branches

Branch = tuple[tuple[Any, bool], ...]
"""Conditions of a branch, from the outside in, and whether each must hold."""

_SELECTED = frozenset({"fmin", "fmax", "min", "max", "fabs", "abs", "floor", "ceil", "copysign"})
"""Functions that are evaluated in any case, to select afterwards."""


class Sunk(NamedTuple):
    """Branch into which a compiler sinks an instruction."""

    into: str  # id of the instruction whose branch it is
    branch: Branch


def find_sunk_instructions(kernel: Any, positions: Mapping[str, Position]) -> dict[str, Sunk]:
    """Return the branches in which instructions are executed that nothing else needs."""
    uses = _Uses(kernel)
    result: dict[str, Sunk] = {}
    for block in _straight_blocks(positions):
        for position, last in enumerate(block):
            for branch in sorted(uses.branches[last], key=str):
                candidates = [i for i in block[:position] if i not in result]
                fed = uses.find_feeding(candidates, last, branch)
                result |= dict.fromkeys(fed, Sunk(last, branch))
    return result


class _Uses:
    """Readers and writers of each variable."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.branches: dict[str, set[Branch]] = {}  # in which an instruction reads something
        # instructions that read a variable, with the branch of each use, and those that assign it
        self.readers: defaultdict[str, set[tuple[str, Branch]]] = defaultdict(set)
        self.writers: defaultdict[str, set[str]] = defaultdict(set)
        for instruction in kernel.instructions:
            uses = list(self._list_uses(instruction))
            self.branches[instruction.id] = {branch for _, branch in uses if branch}
            for name, branch in uses:
                self.readers[name].add((instruction.id, branch))
            for name in instruction.assignee_var_names():
                self.writers[name].add(instruction.id)

    def find_feeding(self, candidates: Sequence[str], last: str, branch: Branch) -> set[str]:
        """Return those instructions of some in a row that feed one branch and nothing else."""
        instructions = self.kernel.id_to_insn
        feeding = {i for i in candidates if self._is_movable(instructions[i])}
        is_behind_store = False
        for i in reversed(candidates):  # loads stay before stores, whatever these store to
            if is_behind_store and self._touches(instructions[i].read_dependency_names()):
                feeding.discard(i)
            is_behind_store |= self._touches(instructions[i].assignee_var_names())
        while removed := {
            i
            for i in feeding
            for name in instructions[i].assignee_var_names()[:1]
            if not (
                self.writers[name] <= feeding
                and self.readers[name]
                and all(r in feeding or (r, at) == (last, branch) for r, at in self.readers[name])
            )
        }:
            feeding -= removed
        return feeding

    def _is_movable(self, instruction: Any) -> bool:
        if not isinstance(instruction, lp.Assignment) or instruction.predicates:
            return False
        temporaries = self.kernel.temporary_variables
        target: Any = instruction.assignee
        is_scalar = isinstance(target, p.Variable) and target.name in temporaries
        return is_scalar and not self._touches([target.name])

    def _touches(self, names: Iterable[str]) -> bool:
        """Return whether some of the variables lie in memory."""
        temporaries, arguments = self.kernel.temporary_variables, self.kernel.arg_dict
        return any(
            temporaries[name].address_space != AddressSpace.PRIVATE
            if name in temporaries
            else isinstance(arguments.get(name), lp.ArrayArg)
            for name in names
        )

    def _list_uses(self, instruction: Any) -> Iterator[tuple[str, Branch]]:
        """Yield the variables that an instruction reads; guarded stores are branches as a whole."""
        around: Branch = ()
        if self._touches(instruction.assignee_var_names()):
            around = tuple((test, True) for test in sorted(instruction.predicates, key=str))
        for predicate in instruction.predicates:
            yield from ((name, ()) for name in get_dependencies(predicate))
        if not isinstance(instruction, lp.Assignment | lp.CallInstruction):
            yield from ((name, ()) for name in instruction.read_dependency_names())
            return
        walker = _Branches(self.kernel)
        for assignee in instruction.assignees:
            if isinstance(assignee, p.Subscript):
                walker.rec(assignee.index, around)
        walker.rec(instruction.expression, around)
        yield from walker.names


def _straight_blocks(positions: Mapping[str, Position]) -> Iterator[list[str]]:
    """Yield instructions between which no loop begins or ends and nobody waits."""
    block: list[str] = []
    for instruction, position in positions.items():
        for event in position.events:
            if event.kind == "wait" or not event.region.is_unrolled:
                yield block
                block = []
        block.append(instruction)
    yield block


class _Branches(WalkMapper[[Branch]]):
    """Collects variables and the branches that they stand in."""

    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self.names: set[tuple[str, Branch]] = set()
        self._kernel = kernel

    def map_variable(self, expr: Any, around: Branch) -> None:
        self.names.add((expr.name, around))

    def map_if(self, expr: Any, around: Branch) -> None:
        """Look into both parts; where both only compute, they are no branches."""
        self.rec(expr.condition, around)
        are_branches = self._is_guarded(expr.then) or self._is_guarded(expr.else_)
        for part, holds in ((expr.then, True), (expr.else_, False)):
            self.rec(part, (*around, (expr.condition, holds)) if are_branches else around)

    def _is_guarded(self, expr: Any) -> bool:
        """Return whether functions, powers or loads from global memory stand in an expression."""
        for node in list_nodes(expr, p.Variable, p.Call, p.Power):
            match node:
                case p.Variable(name=name):
                    found = isinstance(self._kernel.arg_dict.get(name), lp.ArrayArg)
                case p.Call(function=function):
                    found = name_of(function) not in _SELECTED
                case _:
                    found = node.exponent not in (0, 1, 2)  # small ones are products
            if found:
                return True
        return False
