"""Loops and regions: passes, iterations, carried chains, and values that live across barriers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction

from countperf.counting.domains import Domains
from countperf.counting.grid import Grid
from countperf.counting.structure import ChainAnalysis, ProgramAnalysis, RegionAnalysis
from countperf.execution.keys import ChainKey, EventKey, LiveValuesKey, SiteKey
from countperf.execution.placement import Placements, ProgramSites
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial

_LATENCIES: Mapping[str, int] = {"div": 4, "mod": 6, "special": 8, "pow": 30}
"""Latencies of operations in additions, which decide the longest of several chains."""

Part = tuple[SiteKey, PiecewiseQuasiPolynomial]


class LoopCounter:
    """Counts the loops and barrier regions of a kernel."""

    def __init__(
        self, domains: Domains, placements: Placements, looped_copies: Collection[str]
    ) -> None:
        self._domains = domains
        self._kernel = domains.kernel
        self._placements = placements
        self._looped_copies = frozenset(looped_copies)

    def counted(self, analysis: ProgramAnalysis, sites: ProgramSites, grid: Grid) -> Iterator[Part]:
        """Yield the counts of a device program."""
        for region in analysis.regions:
            own = {loop.iname for loop in region.loops if loop.kind == "loop"}
            if region.passes.count is not None:
                site = self._placements.site(sites, own)
                yield EventKey(site, "passes"), region.passes.count
            yield from self._iterations(region, sites)
            yield from self._live_values(region, sites, grid, own)
            yield from self._chains(region, sites, own)

    def _iterations(self, region: RegionAnalysis, sites: ProgramSites) -> Iterator[Part]:
        for loop in region.loops:
            if loop.kind != "loop":
                continue
            site = self._placements.site(sites, [loop.iname])
            if loop.iterations.count is not None:
                yield EventKey(site, "iterations"), loop.iterations.count
            if loop.entries.count is not None:
                yield EventKey(site, "entries"), loop.entries.count

    def _live_values(
        self, region: RegionAnalysis, sites: ProgramSites, grid: Grid, own: Collection[str]
    ) -> Iterator[Part]:
        """Yield the private values that are carried over a region's barriers."""
        barrier_loops = {loop.iname for loop in region.around if loop.kind == "barrier loop"}
        waiting = [chain for chain in region.chains if barrier_loops & set(chain.loops)]
        values: defaultdict[int, int] = defaultdict(int)
        found: list[tuple[int, PiecewiseQuasiPolynomial]] = []
        for chain in waiting:
            within = self._kernel.id_to_insn[chain.instructions[-1]].within_inames
            bits = 8 * self._kernel.temporary_variables[chain.variables[-1]].dtype.itemsize
            values[bits] += 1 if self._looped_copies & within else _side_by_side(chain)
            found.append((bits, self._domains.executions(within.difference(own), (), grid)))
        site = self._placements.site(sites, ())
        for bits, executions in found:
            yield LiveValuesKey(site, values[bits], bits), executions

    def _chains(
        self, region: RegionAnalysis, sites: ProgramSites, own: Collection[str]
    ) -> Iterator[Part]:
        """Yield what chains carry, and of those that the same loops carry the longest."""
        executed = {i.id: i.executions for i in region.instructions}
        longest: dict[tuple[str, ...], tuple[Fraction, ChainAnalysis]] = {}
        for chain in region.chains:
            site = self._placements.site(sites, set(own) & set(chain.loops))
            yield EventKey(site, "carried"), executed[chain.instructions[-1]]
            waiting = _waiting(chain)
            if chain.loops not in longest or waiting > longest[chain.loops][0]:
                longest[chain.loops] = waiting, chain
        for loops, (_, chain) in longest.items():
            site = self._placements.site(sites, set(own) & set(loops))
            total = executed[chain.instructions[-1]].scale(_share(chain))
            for operation, times in chain.operations or ():
                kind, _, type_name = operation.partition(".")
                yield ChainKey(site, kind, type_name), total.scale(times)


def _side_by_side(chain: ChainAnalysis) -> int:
    """Return how many accumulators of a chain are side by side; 1 if no constant says it."""
    count = chain.accumulators.count
    number = None if count is None else count.as_polynomial()
    return int(number.constant_term) if number and number.is_constant else 1


def _share(chain: ChainAnalysis) -> Fraction:
    """Return which share of a chain's updates wait: accumulators side by side, and its span."""
    return Fraction(1, _side_by_side(chain) * chain.span)


def _waiting(chain: ChainAnalysis) -> Fraction:
    """Return about how long an iteration waits for a chain; longer ones hide the others."""
    operations = sum(
        _LATENCIES.get(kind.split(".")[0], 1) * times for kind, times in chain.operations or ()
    )
    return operations * _share(chain)
