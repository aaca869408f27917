"""Loop-invariant code motion in the compiled view (rules 4 to 7 of `compiled_view`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from loopy import AddressSpace
from loopy.symbolic import get_dependencies
from pytools import memoize_method

from countperf.counting.domains import Domains
from countperf.counting.keys import Case, FirstIteration, MemoryAccess
from countperf.counting.loops import LoopRegion, Point, Position
from countperf.symbolic import coverage, sets
from countperf.symbolic.kernel_sets import assumptions_of

Moved = tuple[FirstIteration] | tuple[()]
"""The loops that something is moved out of, if any."""


class Hoisting:
    """Decides what is executed once per entry of loops."""

    def __init__(self, domains: Domains, positions: Mapping[str, Position]) -> None:
        self._domains = domains
        self._positions = positions

    @memoize_method
    def clobbered(self, program: LoopRegion) -> frozenset[str]:
        """Return the arrays that others may have written after a barrier (rule 2)."""
        private = {
            name
            for name, variable in self._domains.kernel.temporary_variables.items()
            if variable.address_space == AddressSpace.PRIVATE
        }
        return frozenset(program.written - private)

    def moved_out(self, point: Point, names: frozenset[str], *, speculated: bool) -> Moved:
        """Return the loops that leave a value alone, from the inside out (rules 4, 5 and 7)."""
        loops: list[str] = []
        is_sequential = False
        outermost = ""
        for region in reversed(point.regions[1:]):
            iname = region.iname
            if iname in self._domains.data_loops or point.tests:
                break
            if iname in names or names & self._changed_in(region, point.regions[0]):
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

    def _changed_in(self, region: LoopRegion, program: LoopRegion) -> set[str]:
        changed = region.written | {region.pin}
        return changed | self.clobbered(program) if region.has_barrier else changed

    @memoize_method
    def _is_all_or_nothing(
        self,
        within: frozenset[str],
        cases: tuple[Case, ...],
        inner: frozenset[str],
        region: LoopRegion,
    ) -> bool:
        """Return whether all iterations of a loop execute something or none does (rule 4)."""
        counted, _ = self._domains.trip_statistics(within)
        outer = counted - inner
        if region.has_barrier:  # whose bounds are those of the group, guards inside
            return self._is_unguarded(counted, cases, outer)
        if not cases and not inner:
            return True
        executed = sets.project_onto(self._domains.executed_set(counted, cases), outer)
        return coverage.is_all_or_nothing(executed, self._domains.domain(outer), region.iname)

    def _is_unguarded(
        self, within: frozenset[str], cases: Sequence[Case], outer: frozenset[str]
    ) -> bool:
        """Return whether all items of a group execute a node in all iterations of outer loops."""
        executed = sets.project_onto(self._domains.executed_set(within, cases), outer)
        lanes = {name: self._lanes[name] for name in outer & set(self._lanes)}
        everything = coverage.widened_along(self._domains.domain(outer), lanes)
        return coverage.contains(executed, everything, assumptions_of(self._domains.kernel))

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

    def moved_accumulator(self, point: Point, access: MemoryAccess) -> Moved:
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

    def _is_always_accessed(self, array: str, region: LoopRegion) -> bool:
        for instruction in region.accessing[array]:
            regions = self._positions[instruction.id].regions
            inner = frozenset(r.iname for r in regions[regions.index(region) + 1 :])
            if instruction.predicates or inner & self._domains.data_loops.keys():
                return False
            if not self._is_all_or_nothing(instruction.within_inames, (), inner, region):
                return False
        return True
