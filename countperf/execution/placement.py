"""Placement of instructions: which loops of an item a compiler unrolls, and what bounds cut."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from loopy.kernel.data import UnrolledIlpTag, UnrollTag

from countperf.counting.domains import Domains
from countperf.counting.grid import Grid
from countperf.counting.keys import Case, FirstIteration
from countperf.counting.places import Place
from countperf.counting.schedule import DeviceProgram
from countperf.execution.keys import Context, Placement, Site
from countperf.symbolic.quasipolynomial import Number

NARROW_ROW = 8
"""Items of a row up to which compilers may unroll it."""

SHORT_LOOP = 32
"""Iterations of all loops around, known beforehand, up to which compilers unroll them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSites:
    """Facts that decide the sites of a device program's instructions."""

    context: Context  # whether the program has local barriers
    shape: tuple[int, int]  # work items along local axis 0, and rows of them


def program_sites(program: DeviceProgram, grid: Grid) -> ProgramSites:
    """Return what decides the sites of a device program's instructions."""
    row = grid.items.get(0, 1)
    rows = math.prod(grid.items.values()) // row
    return ProgramSites(context="sync" if program.barriers else "free", shape=(row, rows))


class Placements:
    """Decides how compilers place the instructions of a kernel."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        self._kernel = domains.kernel
        self._found_trips: dict[str, int | None] = {}

    def site(self, sites: ProgramSites, loops: Collection[str]) -> Site:
        """Return the site of what is in some of the items' own loops."""
        placement: Placement = "flat"
        if loops:
            placement = "short" if self._are_short(loops) else "loop"
        return Site(sites.context, placement, sites.shape)

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
