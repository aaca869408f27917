"""Placement of instructions: which loops of an item a compiler unrolls, and what bounds cut."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from loopy.kernel.data import UnrolledIlpTag, UnrollTag

from countperf.counting.analysis import ChainAnalysis, ProgramAnalysis, RegionAnalysis
from countperf.counting.device_programs import DeviceProgram
from countperf.counting.domains import Domains
from countperf.counting.keys import Case, FirstIteration, Grid
from countperf.counting.places import Known, Place
from countperf.execution.keys import (
    ChainKey,
    EventKey,
    LiveValuesKey,
    Site,
    SiteKey,
)
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import Number

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
        return executed != once.scale(self.written_copies(within.intersection(beside)))

    def written_copies(self, within: frozenset[str]) -> int:
        """Return how many copies of an instruction unrolled loops write."""
        trips = map(self._trips, self._written_out(within))
        return math.prod(1 if number is None else number for number in trips)

    def _written_out(self, within: frozenset[str]) -> list[str]:
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


def left_loops(conditions: Iterable[Case | FirstIteration]) -> frozenset[str]:
    """Return the loops that something has left, since it is executed once per entry of them."""
    return frozenset[str]().union(
        *(case.loops for case in conditions if isinstance(case, FirstIteration))
    )


def tells_apart(conditions: Iterable[Case | FirstIteration], items: Collection[str]) -> bool:
    """Tell whether some conditions depend on work-item indices."""
    return any(not case.names.isdisjoint(items) for case in conditions if isinstance(case, Case))


def neighbors(place: Place) -> tuple[str, ...]:
    """Return the work-item indices along the axes that vectors may take."""
    axes = (0, 1) if place.grid.items.get(0, 1) <= NARROW_ROW else (0,)
    return tuple(name for name, axis in place.lanes.items() if axis in axes)


# --- Loops and regions: passes, iterations, carried chains, and values that live across barriers


_LATENCIES: Mapping[str, int] = {"div": 4, "mod": 6, "special": 8, "pow": 30}
"""Latencies of operations in additions, which decide the longest of several chains."""

Part = tuple[SiteKey, Known]


class LoopCounter:
    """Counts the loops and barrier regions of a kernel."""

    def __init__(
        self, domains: Domains, placements: Placements, looped_copies: Collection[str]
    ) -> None:
        self._domains = domains
        self._kernel = domains.kernel
        self._placements = placements
        self._looped_copies = frozenset(looped_copies)

    def counted(self, analysis: ProgramAnalysis, flat: Site, grid: Grid) -> Iterator[Part]:
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
    ) -> Iterator[Part]:
        """Yield the private values that are carried over a region's barriers."""
        around = set(region.barrier_loops)
        waiting = [chain for chain in region.chains if around & set(chain.loops)]
        values: defaultdict[int, int] = defaultdict(int)
        found: list[tuple[int, PiecewiseQuasiPolynomial]] = []
        for chain in waiting:
            within = self._kernel.id_to_insn[chain.instructions[-1]].within_inames
            bits = 8 * self._kernel.temporary_variables[chain.variables[-1]].dtype.itemsize
            values[bits] += 1 if self._looped_copies & within else chain.side_by_side
            found.append((bits, self._domains.executions(within.difference(own), (), grid)))
        site = self._placements.site(flat, ())
        for bits, executions in found:
            yield LiveValuesKey(site, values[bits], bits), executions

    def _chains(self, region: RegionAnalysis, flat: Site, own: Collection[str]) -> Iterator[Part]:
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
            for operation, times in chain.operations or ():
                kind, _, type_name = operation.partition(".")
                yield ChainKey(site, kind, type_name), total.scale(times)


def _share(chain: ChainAnalysis) -> Fraction:
    """Return which share of a chain's updates wait: chains side by side, and its span."""
    return Fraction(1, chain.side_by_side * chain.span)


def _waiting(chain: ChainAnalysis) -> Fraction:
    """Return about how long an iteration waits for a chain; longer ones hide the others."""
    operations = sum(
        _LATENCIES.get(kind.split(".")[0], 1) * times for kind, times in chain.operations or ()
    )
    return operations * _share(chain)
