"""Instructions of a compiled kernel: counts by class and region."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from countperf.display import ShortRepr
from countperf.machine_code.flow import Instruction
from countperf.machine_code.instruction_mix import CodeShares, shares_of
from countperf.machine_code.static_path import DEFAULT_TRIPS, find_way

_LANE_BITS = 32
_WORTH_OF_OPERATION = 1e5
_WORTH_OF_ELEMENT = 1e3
_WORTH_IN_VECTORS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRegion(ShortRepr):
    """A loop of compiled code without the loops within, or what is in no loop."""

    name: str  # ``body`` for what is in no loop
    depth: int  # loops that it is in
    is_innermost: bool  # whether no loop is within it
    trips: float | None  # iterations each time that it is entered, where the code says so
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
    instructions: Sequence[Instruction],
    *,
    kernel: str,
    source: str,
    group_shape: tuple[int, ...],
    registers: int | None = None,
    spill_bytes: int | None = None,
) -> CompiledCode:
    """Count the instructions of a function by loop; arguments as attributes of `CompiledCode`.

    Of ways through the code, that on which most is done is taken to be taken, and of two on which
    the same is done, that on which it is done in vectors.
    """
    way = find_way(instructions, _worth)
    body = CompiledRegion(
        name="body",
        depth=0,
        is_innermost=not way.loops,
        trips=1.0,
        counts=_counts(instructions, way.body),
    )
    loops = (
        CompiledRegion(
            name=".".join(map(str, loop.path)),
            depth=len(loop.path),
            is_innermost=loop.is_innermost,
            trips=loop.trips,
            counts=_counts(instructions, loop.own),
        )
        for loop in way.loops
    )
    return CompiledCode(
        kernel=kernel,
        source=source,
        group_shape=group_shape,
        regions=(body, *loops),
        aside=_counts(instructions, way.aside),
        registers=registers,
        spill_bytes=spill_bytes,
    )


def _worth(instruction: Instruction) -> float:
    """Return worth by operations above all, then by elements moved, then for each instruction.

    Versions of the same work do as many operations, those in vectors are worth a little more; a way
    on which loops are left out does fewer.
    """
    worth = 1.0
    for name in instruction.classes:
        kind, _, rest = name.partition(".")
        last = name.rpartition(".")[2]
        if kind == "flop":
            worth += _WORTH_OF_OPERATION * int(last) * (1 if last == "1" else _WORTH_IN_VECTORS)
        elif kind in ("load", "store") and last.isdigit():
            factor = _WORTH_IN_VECTORS if rest.startswith("vector.") else 1
            worth += _WORTH_OF_ELEMENT * int(last) / _LANE_BITS * factor
    return worth


def _counts(instructions: Sequence[Instruction], places: Iterable[int]) -> dict[str, int]:
    found = Counter(name for place in places for name in instructions[place].classes)
    return dict(sorted(found.items()))
