"""Instruction mix of a compiled kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_VECTOR_SPILL = re.compile(r"spill\.\w+\.\d")
_LANE_MOVES = ("gather", "scatter", "insert", "extract", "shuffle", "broadcast")


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
