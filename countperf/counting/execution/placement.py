"""Placement of instructions: which loops of an item a compiler unrolls, and what bounds cut."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from loopy.kernel.data import UnrolledIlpTag, UnrollTag

from countperf.counting.access_analysis import AccessAnalyzer
from countperf.counting.access_classes import reads_data
from countperf.counting.accesses import address_of
from countperf.counting.device_programs import DeviceProgram
from countperf.counting.domains import Domains
from countperf.counting.execution.reuse import (
    ReuseLimits,
    reuse_path,
    sort_by_size,
    sorted_by_step,
    step_of,
    within_line,
)
from countperf.counting.keys import Case, FirstIteration, Grid, MemoryAccess
from countperf.counting.preparation import Instruction, PreparedKernel
from countperf.counting.program_analysis import ChainAnalysis, ProgramAnalysis, RegionAnalysis
from countperf.counting.scopes import AxisStride, Known, Scope, strides_of
from countperf.counting.structure.site_keys import (
    BY_DATA,
    EventKey,
    Site,
    SiteKey,
    StepName,
    WorkItemStep,
)
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import Number, QuasiPolynomial

NARROW_ROW = 8
"""Items of a row up to which compilers may unroll it."""

SHORT_LOOP = 32
"""Iterations of all loops around, known beforehand, up to which compilers unroll them."""


def flat_site(program: DeviceProgram, grid: Grid) -> Site:
    """Return the site of a device program's instructions that are in no loop of the items."""
    row = grid.items.get(0, 1)
    rows = math.prod(grid.items.values()) // row
    return Site("sync" if program.barriers else "free", "flat", (row, rows))


class Placements:
    """Decides how compilers place the instructions of a kernel."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        self._kernel = domains.kernel
        self._found_trips: dict[str, int | None] = {}

    def site(self, flat: Site, loops: Collection[str]) -> Site:
        """Return the site of what is in some of the items' own loops."""
        if not loops:
            return flat
        return replace(flat, placement="short" if self._are_short(loops) else "loop")

    def cuts(self, within: frozenset[str], beside: Collection[str], grid: Grid) -> bool:
        """Tell whether bounds leave some items or copies without work where others have it.

        They do if that is so at any sizes.
        """
        if not beside:
            return False
        executed, once = (
            self._domains.executions(names, (), grid)
            for names in (within, within.difference(beside))
        )
        return executed != once.scale(self.count_copies(within.intersection(beside)))

    def count_copies(self, within: frozenset[str]) -> int:
        """Return how many copies of an instruction unrolled loops write."""
        trips = map(self._trips, self._write_out(within))
        return math.prod(1 if number is None else number for number in trips)

    def _write_out(self, within: frozenset[str]) -> list[str]:
        return [
            name
            for name in within
            for tags in (self._kernel.inames[name].tags,)
            if any(isinstance(tag, UnrollTag | UnrolledIlpTag) for tag in tags)
        ]

    def _trips(self, name: str) -> int | None:
        """Return how many values a loop variable takes, if a constant bounds it; None if not."""
        if name not in self._found_trips:
            low, high = self._domains.value_bounds(name)
            self._found_trips[name] = (
                None if low is None or high is None else max(high - low + 1, 0)
            )
        return self._found_trips[name]

    def _are_short(self, loops: Collection[str]) -> bool:
        counted, factor = self._domains.trip_statistics(frozenset(loops))
        if counted != frozenset(loops):
            return False  # data decides
        whole = factor.as_polynomial()
        if whole is None or not whole.is_constant:
            return False
        iterations: Number = whole.constant_term
        for trips in map(self._trips, sorted(counted)):
            if trips is None:
                return False
            iterations *= trips
        return iterations <= SHORT_LOOP


def find_left_loops(conditions: Iterable[Case | FirstIteration]) -> frozenset[str]:
    """Return the loops that something has left, since it is executed once per entry of them."""
    return frozenset[str]().union(
        *(case.loops for case in conditions if isinstance(case, FirstIteration))
    )


def tells_apart(conditions: Iterable[Case | FirstIteration], items: Collection[str]) -> bool:
    """Tell whether some conditions depend on work-item indices."""
    return any(not case.names.isdisjoint(items) for case in conditions if isinstance(case, Case))


def neighbors(scope: Scope) -> tuple[str, ...]:
    """Return the work-item indices along the axes that vectors may take."""
    axes = (0, 1) if scope.grid.items.get(0, 1) <= NARROW_ROW else (0,)
    return tuple(name for name, axis in scope.lanes.items() if axis in axes)


# --- Loops and regions: passes, iterations, carried chains, and values that live across barriers


_LATENCIES: Mapping[str, int] = {"div": 4, "mod": 6, "special": 8, "pow": 30}
"""Latencies of operations in additions, which decide the longest of several chains."""

SitePart = tuple[SiteKey, Known]


class LoopCounter:
    """Counts the loops and barrier regions of a kernel."""

    def __init__(
        self, domains: Domains, placements: Placements, looped_copies: Collection[str]
    ) -> None:
        self._domains = domains
        self._kernel = domains.kernel
        self._placements = placements
        self._looped_copies = frozenset(looped_copies)

    def counted(self, analysis: ProgramAnalysis, flat: Site, grid: Grid) -> Iterator[SitePart]:
        """Yield the counts of a device program."""
        for region in analysis.regions:
            own = {loop.iname for loop in region.loops}
            yield EventKey(self._placements.site(flat, own), "passes"), region.passes
            for loop in region.loops:
                site = self._placements.site(flat, [loop.iname])
                yield EventKey(site, "iterations"), loop.iterations
                yield EventKey(site, "entries"), loop.entries
            yield from self._live_values(region, flat, grid, own)
            yield from self._chains(region, flat, own)

    def _live_values(
        self, region: RegionAnalysis, flat: Site, grid: Grid, own: Collection[str]
    ) -> Iterator[SitePart]:
        """Yield the private values that are carried over a region's barriers."""
        around = set(region.barrier_loops)
        waiting = [chain for chain in region.chains if around & set(chain.loops)]
        values: defaultdict[int, int] = defaultdict(int)
        waiting_values: list[tuple[int, PiecewiseQuasiPolynomial]] = []
        for chain in waiting:
            within = self._kernel.id_to_insn[chain.instructions[-1]].within_inames
            bits = 8 * self._kernel.temporary_variables[chain.variables[-1]].dtype.itemsize
            values[bits] += 1 if self._looped_copies & within else chain.side_by_side
            waiting_values.append(
                (bits, self._domains.executions(within.difference(own), (), grid))
            )
        site = self._placements.site(flat, ())
        for bits, executions in waiting_values:
            yield EventKey(site, f"live_across_barrier.{values[bits]}.{bits}"), executions

    def _chains(
        self, region: RegionAnalysis, flat: Site, own: Collection[str]
    ) -> Iterator[SitePart]:
        """Yield what chains carry, and of those that the same loops carry the longest."""
        executed = {i.id: i.executions for i in region.instructions}
        longest: dict[tuple[str, ...], tuple[Fraction, ChainAnalysis]] = {}
        for chain in region.chains:
            site = self._placements.site(flat, set(own) & set(chain.loops))
            yield EventKey(site, "carried"), executed[chain.instructions[-1]]
            waiting = _waiting(chain)
            if chain.loops not in longest or waiting > longest[chain.loops][0]:
                longest[chain.loops] = waiting, chain
        for loops, (_, chain) in longest.items():
            site = self._placements.site(flat, set(own) & set(loops))
            total = executed[chain.instructions[-1]].scale(_share(chain))
            for operation, times in chain.operations:
                kind, _, type_name = operation.partition(".")
                yield EventKey(site, f"chain.{kind}.{type_name}"), total.scale(times)


def _share(chain: ChainAnalysis) -> Fraction:
    """Return which share of a chain's updates wait: one of the chains side by side."""
    return Fraction(1, chain.side_by_side)


def _waiting(chain: ChainAnalysis) -> Fraction:
    """Return about how long an iteration waits for a chain; longer ones hide the others."""
    operations = sum(
        _LATENCIES.get(kind.split(".")[0], 1) * times for kind, times in chain.operations
    )
    return operations * _share(chain)


# --- Executions of accesses by how their addresses change between items, and in loops


ALIGNMENT = 16
"""Elements; a step of one is ``shifted`` where it does not begin at a multiple of them."""
_BESIDE = frozenset({"stride1", "uniform"})
"""Patterns of accesses through data whose items stay in the same lines."""
_ZERO = QuasiPolynomial()
_ONE = QuasiPolynomial.constant(1)

Sorted = tuple[WorkItemStep, StepName | None, PiecewiseQuasiPolynomial]
"""Step between items, step in the innermost loop, and executions."""


class StepSorter:
    """Sorts the executions of a kernel's accesses by steps of their addresses."""

    def __init__(self, prepared: PreparedKernel, limits: ReuseLimits) -> None:
        self._limits = limits
        self._domains = prepared.domains
        self._analyzer = AccessAnalyzer(prepared)
        self._statistics = prepared.statistics
        self._found: dict[Any, tuple[Scope, tuple[AxisStride, ...]]] = {}
        self.assumed: set[str] = set()

    def strides(self, access: MemoryAccess, instruction: Instruction) -> tuple[AxisStride, ...]:
        """Return the strides of an access along the axes and loops around it."""
        scope = instruction.scope
        key = (access, id(scope))
        known = self._found.get(key)
        if known is None:
            layout = self._domains.layout_of(access)
            self.assumed |= {layout.assumed} - {""}
            address = self._domains.address(access)
            if address is None and not reads_data(access, self._domains):
                self.assumed.add(f"uneven steps of {access.text}, as if data led there")
            opaque = address or address_of(access, layout, self._analyzer.to_opaque)
            changing = self._analyzer.changing
            strides = strides_of(scope, opaque, instruction.kinds, changing, of_most=True)
            self._found[key] = known = (scope, strides)  # kept, and with it its identity
        return known[1]

    def sorted(
        self,
        access: MemoryAccess,
        instruction: Instruction,
        loops: Sequence[str],
        executions: PiecewiseQuasiPolynomial,
        once: Callable[[str], PiecewiseQuasiPolynomial | None],
    ) -> list[Sorted]:
        """Sort the executions of an access by its steps, which may depend on the parameters."""
        strides, bits, scope = self.strides(access, instruction), access.bits, instruction.scope
        lanes = [s.stride for s in strides if s.kind == "local" and s.axis == 0]
        across = self._across_rows(access, scope, strides)
        path = partial(reuse_path, scope, bits, strides, loops)
        among_items, along_loops = (partial(path, items_first=first) for first in (True, False))
        lane_stride = lanes[0] if lanes else _ZERO
        counter = self._domains.counter
        inside = within_line(lane_stride, bits, counter)
        result: list[Sorted] = []
        for step, part in sorted_by_step(
            lane_stride, bits, executions, among_items, once, self._limits, inside=inside
        ):
            if step in BY_DATA:
                result += self._through_data(access, strides, loops, across, part)
                continue
            between = WorkItemStep(
                self._alignment(access, scope, 0) if step == "next" else step, across
            )
            if not loops:
                result.append((between, None, part))
                continue
            inner = next(s.stride for s in strides if s.iname == loops[-1])
            by_step = sorted_by_step(
                inner,
                bits,
                part,
                along_loops,
                once,
                self._limits,
                inside=within_line(inner, bits, counter),
            )
            for along, rest in self._by_size(access, by_step):
                result.append((between, along, rest))
        return result

    def _through_data(
        self,
        access: MemoryAccess,
        strides: Sequence[AxisStride],
        loops: Sequence[str],
        across: StepName | None,
        executions: PiecewiseQuasiPolynomial,
    ) -> list[Sorted]:
        """Sort the executions of an access of which data decides how the items' addresses differ.

        Where it is even in a loop, the items come back to their lines.
        """
        inner = next((s.stride for s in strides if loops and s.iname == loops[-1]), None)
        if inner is not None:
            between = WorkItemStep("data", across)
            return [(between, step_of(inner, access.bits), executions)]
        return [
            (WorkItemStep(step, across), step if loops else None, part)
            for step, part in self._by_size(access, [("data", executions)])
        ]

    def _by_size(
        self, access: MemoryAccess, parts: Iterable[tuple[StepName, PiecewiseQuasiPolynomial]]
    ) -> Iterator[tuple[StepName, PiecewiseQuasiPolynomial]]:
        """Sort what data decides by the size of the array, unless neighbors are said to be near.

        No compiler knows the latter: each item then has an access of its own all the same.
        """
        for step, part in parts:
            if step in BY_DATA and not self.stays_beside(access):
                yield from sort_by_size(self.extent(access), access.bits, part, self._limits)
            else:
                yield step, part

    def stays_beside(self, access: MemoryAccess) -> bool:
        """Tell whether items that data leads are said to stay in the same lines."""
        stated = self._statistics.pattern_of(access.array, access.text)
        return stated is not None and stated[0] in _BESIDE

    def extent(self, access: MemoryAccess) -> QuasiPolynomial | None:
        """Return the elements of the array of an access; None if they are not known."""
        elements = _ONE
        for extent in self._domains.layout_of(access).shape:
            if extent is None:
                return None
            elements *= extent
        return elements

    def _across_rows(
        self, access: MemoryAccess, scope: Scope, strides: Sequence[AxisStride]
    ) -> StepName | None:
        items = scope.grid.items
        if items.get(0, 1) > NARROW_ROW or items.get(1, 1) == 1:
            return None
        along = [s.stride for s in strides if s.kind == "local" and s.axis == 1]
        step = step_of(along[0] if along else _ZERO, access.bits)
        return self._alignment(access, scope, 1) if step == "next" else step

    def _alignment(self, access: MemoryAccess, scope: Scope, axis: int) -> StepName:
        """Return how neighboring accesses along an axis begin: at multiples of a vector or not."""
        if access.address_space != "local":
            return "next"
        address = self._domains.address(access)
        if address is None:
            return "next"
        lanes = {name for name, of in scope.lanes.items() if of == axis}
        odd = [m for m, c in address.flat.terms.items() if c % ALIGNMENT and not _is_of(m, lanes)]
        if not odd:
            return "next"
        return "shifted" if any(odd) else "offset"


def _is_of(monomial: Any, names: set[str]) -> bool:
    return bool(QuasiPolynomial({monomial: 1}).names() & names)
