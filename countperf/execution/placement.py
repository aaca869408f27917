"""Placement of instructions: which loops a compiler unrolls, which copies and updates it packs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import loopy as lp
from loopy.kernel.data import UnrolledIlpTag, UnrollTag

from countperf.counting.domains import Domains, Grid
from countperf.counting.keys import Operation
from countperf.counting.operations import Number
from countperf.counting.schedule import DeviceProgram
from countperf.execution.instructions import (
    NARROW_ROW,
    Instruction,
    is_load,
    left_loops,
    updated_along,
)
from countperf.execution.keys import Context, Placement, Site
from countperf.execution.slp import SlpPacking, packs

__all__ = ["CALLS", "Placements", "ProgramSites"]

UNROLLED_OPERATIONS = 200
"""Operations and accesses of all items of a narrow row up to which compilers write them out. LLVM's
limit for loops of constant length at -O3 is 300 instructions, those for addresses included; of
random kernels, PoCL writes out those of up to 144, and none of 168 or more."""
PACKED_OPERATIONS = 4
"""Minima, maxima and functions of all copies from which on LLVM packs them."""
SHORT_LOOP = 32
"""Iterations of all loops around, known beforehand, up to which compilers unroll them."""
CALLS = ("special", "pow")
"""Kinds of operations that are calls of functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSites:
    """Facts that decide the sites of a device program's instructions.

    Attributes
    ----------
    context : {"free", "sync"}
        Whether the program has local barriers.
    outside_loops : {"flat", "long", "slp"}
        Placement of what is in no loop of the items.
    shape : tuple of (int, int)
        Work items along local axis 0, and rows of them.
    slp : mapping from str to SlpPacking
        How updates may be packed, by id of the instruction.
    address_loads : int
        Loads of an item outside its own loops, in loops with barriers.
    """

    context: Context
    outside_loops: Placement
    shape: tuple[int, int]
    slp: Mapping[str, SlpPacking]
    address_loads: int


class Placements:
    """Decides how compilers place the instructions of a kernel."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        self._kernel = domains.kernel
        self._found_trips: dict[str, int | None] = {}

    def sites(
        self, program: DeviceProgram, found: Collection[Instruction], grid: Grid
    ) -> ProgramSites:
        """Return what decides the sites of a device program's instructions."""
        row = grid.items.get(0, 1)
        items = math.prod(grid.items.values())
        outside_loops: Placement = "flat"
        if self._is_written_out_at_length(found, grid):
            outside_loops = "long"
        elif not program.barriers and self._has_packed_copies(found, grid):
            outside_loops = "slp"
        return ProgramSites(
            context="sync" if program.barriers else "free",
            outside_loops=outside_loops,
            shape=(row, items // row),
            slp={} if program.barriers else self._packed_updates(found),
            address_loads=sum(map(self.address_loads, found)),
        )

    def site(self, sites: ProgramSites, loops: Collection[str]) -> Site:
        """Return the site of what is in some of the items' own loops."""
        placement = sites.outside_loops
        if loops:
            placement = "short" if self._are_short(loops) else "loop"
        return Site(sites.context, placement, sites.shape)

    def packed_sites(
        self, site: Site, sites: ProgramSites, instruction: Instruction
    ) -> Iterable[tuple[Site, Number]]:
        """Return the sites of what of an instruction may be packed with others, and the rest."""
        packed = sites.slp.get(instruction.loopy.id) if site.placement == "loop" else None
        shares: Mapping[int, Number] = packed or {1: 1}
        return [(replace(site, slp_values=values), share) for values, share in shares.items()]

    def address_loads(self, found: Instruction) -> int:
        """Return how many loads outside of items' loops, but in one with barriers, are written."""
        if found.own or found.copies or "barrier loop" not in found.kinds.values():
            return 0
        number: Number = 0
        for (key, cases), times in found.tallied.items():
            if is_load(key):
                within = found.place.within.difference(left_loops(cases))
                number += self.written_copies(within) * times
        return int(number)

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

    def known_iterations(self, loops: Collection[str]) -> Number | None:
        """Return the iterations of some loops together, if constants or statistics say them."""
        counted, factor = self._domains.trip_statistics(frozenset(loops))
        whole = factor.as_polynomial()
        if whole is None or not whole.is_constant:
            return None
        iterations: Number = whole.constant_term
        for trips in map(self._trips, counted):
            if trips is None:
                return None
            iterations *= trips
        return iterations

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
        if self._domains.trip_statistics(frozenset(loops))[0] != frozenset(loops):
            return False  # data decides
        iterations = self.known_iterations(loops)
        return iterations is not None and iterations <= SHORT_LOOP

    def _is_written_out_at_length(self, found: Iterable[Instruction], grid: Grid) -> bool:
        """Tell whether what narrow rows execute outside loops is too much to be unrolled."""
        row = grid.items.get(0, 1)
        if row > NARROW_ROW or math.prod(grid.items.values()) == row:
            return False
        number = sum(
            self.written_copies(each.place.within) * sum(each.tallied.values())
            for each in found
            if not (each.own or each.copies)
        )
        return row * number > UNROLLED_OPERATIONS

    def _has_packed_copies(self, found: Iterable[Instruction], grid: Grid) -> bool:
        """Tell whether copies outside loops that do not wait for each other compare enough.

        Copies that each have a guard of their own are no straight-line code.
        """
        numbers: defaultdict[str, Number] = defaultdict(int)
        for each in found:
            within = each.place.within
            beside = self.written_copies(within - updated_along(each.loopy))
            if beside == 1 or each.own or each.copies:
                continue
            if self.cuts(within, self._written_out(within), grid):
                continue
            for (key, _), number in each.tallied.items():
                if isinstance(key, Operation):
                    numbers[key.kind] += beside * number
        return numbers["minmax"] > 0 and numbers["minmax"] + numbers["special"] >= PACKED_OPERATIONS

    def _packed_updates(self, found: Iterable[Instruction]) -> Mapping[str, SlpPacking]:
        """Return how what items' loops update alike may be packed."""
        private = [
            name
            for name, variable in self._kernel.temporary_variables.items()
            if variable.address_space == lp.AddressSpace.PRIVATE and not variable.shape
        ]
        slow = [
            each.loopy.id
            for each in found
            if any(isinstance(key, Operation) and key.kind in CALLS for key, _ in each.tallied)
        ]
        updates = ((each.loopy, tuple(each.own)) for each in found if not each.copies)
        return packs(updates, private, slow)
