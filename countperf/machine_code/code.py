"""Instructions of a compiled kernel: counts by class and loop, and what part does what.

A loop is the code from the target of a branch backward to the last of these branches. Where it is
known what a group executes, code that it does not execute is left aside, and so are branches back
after which nothing is repeated.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from countperf.display import ShortRepr

DEFAULT_TRIPS = 10.0
"""Iterations that a loop is taken to have where nobody says, each time that it is entered."""

_VECTOR_SPILL = re.compile(r"spill\.\w+\.\d")
_LANE_MOVES = ("gather", "scatter", "insert", "extract", "shuffle", "broadcast")
Listed = tuple[tuple[str, ...], int | None]
"""Classes of an instruction, and the place of the instruction that it branches to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeShares:
    """Shares of instruction classes, weighted by the trip counts of their loops."""

    # share of the arithmetic operations (lanes times instructions) that vector instructions do
    packed: float | None
    mean_lanes: float | None  # operations per arithmetic instruction
    fused: float | None  # share of the arithmetic instructions that multiply and add at once
    # share of the bits moved to and from memory, without spills, that vector accesses move
    vector_accesses: float | None
    lane_moves: float | None
    spills: float | None
    divisions: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRegion(ShortRepr):
    """A loop of compiled code without the loops within, or what is in no loop."""

    name: str  # ``body`` for what is in no loop
    depth: int  # loops that it is in
    is_innermost: bool  # whether no loop is within it
    trips: float | None  # iterations each time that it is entered, where they are known
    counts: Mapping[str, int]  # instructions by class


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledCode(ShortRepr):
    """A kernel as a compiler left it."""

    kernel: str  # its name
    source: str  # what was read, such as ``x86-64 machine code from PoCL``
    group_shape: tuple[int, ...]  # work items that run through the code together
    regions: tuple[CompiledRegion, ...]  # the body, then the loops in the order of the code
    aside: Mapping[str, int] = field(default_factory=dict[str, int])
    # registers of a work item, and bytes of those that found none, where the compiler says so
    registers: int | None = None
    spill_bytes: int | None = None

    def totals(self) -> dict[str, int]:
        """Return the instructions of all regions by class, each counted once."""
        found: Counter[str] = Counter()
        for region in self.regions:
            found.update(region.counts)
        return dict(sorted(found.items()))

    def shares(self, *, innermost: bool = False) -> CodeShares:
        """Return what part of the instructions does what."""
        return shares_of(self._weighted(self._runs(), innermost=innermost))

    def _runs(self) -> dict[str, float]:
        """Return how often a group enters each region; for loops, with each iteration."""
        found: dict[str, float] = {}
        for region in self.regions:
            trips = region.trips or DEFAULT_TRIPS
            around = region.name.rpartition(".")[0] or "body"
            found[region.name] = trips * found[around] if region.depth else 1.0
        return found

    def _weighted(self, runs: Mapping[str, float], *, innermost: bool = False) -> dict[str, float]:
        summed: defaultdict[str, float] = defaultdict(float)
        for region in self.regions:
            if region.is_innermost or not innermost:
                for name, count in region.counts.items():
                    summed[name] += count * runs[region.name]
        return summed


def code_of(
    listed: Sequence[Listed],
    executed: Mapping[int, int] | None = None,
    *,
    kernel: str,
    source: str,
    group_shape: tuple[int, ...],
    registers: int | None = None,
    spill_bytes: int | None = None,
) -> CompiledCode:
    """Count the instructions of a kernel by loop; arguments as attributes of `CompiledCode`.

    `executed` says how often a group executes each of them; without it, all are counted.
    """
    places = range(len(listed)) if executed is None else sorted(executed)
    branches = [
        (target, place)
        for place in places
        if (target := listed[place][1]) is not None and target <= place and target in places
    ]
    own = dict.fromkeys(places, "body")
    regions: list[tuple[str, float | None]] = [("body", 1.0)]
    heads, inside = {"body": 1}, Counter[str]()
    for first, last in _nested(branches):
        around = own[first]
        times = 0 if executed is None else executed[first]
        trips = None if executed is None else times / heads[around]
        if trips is not None and trips <= 1:
            continue
        inside[around] += 1
        name = str(inside[around]) if around == "body" else f"{around}.{inside[around]}"
        heads[name] = times
        regions.append((name, trips))
        own.update((place, name) for place in places if first <= place <= last)
    within = {name.rpartition(".")[0] or "body" for name, _ in regions[1:]}
    aside = set(range(places[0], places[-1]) if places else ()) - set(places)
    return CompiledCode(
        kernel=kernel,
        source=source,
        group_shape=group_shape,
        regions=tuple(
            CompiledRegion(
                name=name,
                depth=0 if name == "body" else 1 + name.count("."),
                is_innermost=name not in within,
                trips=trips,
                counts=_counts(listed, (place for place, region in own.items() if region == name)),
            )
            for name, trips in regions
        ),
        aside=_counts(listed, aside),
        registers=registers,
        spill_bytes=spill_bytes,
    )


def _nested(branches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the first and the last place of loops, those around others before them.

    Branches back to one place are one loop, and a loop ends no earlier than those that begin in it.
    """
    found: dict[int, int] = {}
    for first, last in sorted(branches, reverse=True):
        within = [end for start, end in found.items() if first < start <= last]
        found[first] = max(last, found.get(first, 0), *within)
    return sorted(found.items())


def _counts(listed: Sequence[Listed], places: Iterable[int]) -> dict[str, int]:
    found = Counter(name for place in places for name in listed[place][0])
    return dict(sorted(found.items()))


def shares_of(counts: Mapping[str, float]) -> CodeShares:
    """Derive shares from counts by class, as `CompiledRegion.counts` names them."""
    arithmetic = [
        (name.split(".")[1], int(name.rpartition(".")[2]), count)
        for name, count in counts.items()
        if name.startswith("flop.")
    ]
    issued = sum(count for _, _, count in arithmetic)
    done = sum(lanes * count for _, lanes, count in arithmetic)
    packed = sum(lanes * count for _, lanes, count in arithmetic if lanes > 1)
    vector = _bits(counts, "load.vector", "store.vector")
    moved = vector + _bits(counts, "load.scalar", "store.scalar")

    def each(amount: float) -> float | None:
        return amount / issued if issued else None

    def of_kinds(*kinds: str) -> float:
        return sum(count for kind, _, count in arithmetic if kind in kinds)

    return CodeShares(
        packed=packed / done if done else None,
        mean_lanes=each(done),
        fused=each(of_kinds("fma")),
        vector_accesses=vector / moved if moved else None,
        lane_moves=each(sum(counts.get(name, 0) for name in _LANE_MOVES)),
        spills=each(sum(n for name, n in counts.items() if _VECTOR_SPILL.match(name))),
        divisions=each(of_kinds("div", "sqrt")),
    )


def _bits(counts: Mapping[str, float], *kinds: str) -> float:
    parts = ((name.rpartition("."), count) for name, count in counts.items())
    return sum(int(bits) * count for (kind, _, bits), count in parts if kind in kinds)
