"""Iterations of a single block that change registers by equal steps, skipped in one go."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from countperf.machine_code.conditions import EQUALITY, canonical
from countperf.machine_code.even_growth import grown_flags, growth_of, to_change, to_equality
from countperf.machine_code.machine_state import Flags, Machine

State = tuple[tuple[int | None, ...], Flags | None]


class Steps(NamedTuple):
    """Growth per iteration of registers, vector lanes and compared values."""

    grown: tuple[int | None, ...]
    first: int
    second: int
    kind: str


def state_of(machine: Machine, vectors: Sequence[int]) -> State:
    """Return integer registers and lanes of some vectors, and the flags."""
    lanes = (lane for number in vectors for lane in machine.vectors[number])
    return (*machine.registers, *lanes), machine.flags


def steps_between(states: Sequence[State]) -> Steps | None:
    """Return by how much registers and flags grow from each state to the next; None if unevenly."""
    found = [_difference(one, other) for one, other in itertools.pairwise(states)]
    return found[0] if all(each == found[0] for each in found) else None


def _difference(before: State, after: State) -> Steps | None:
    """Return by how much registers and flags grew; None if that has no meaning."""
    (old, old_flags), (new, new_flags) = before, after
    if old_flags is None or new_flags is None:
        return None
    growth = growth_of(old_flags, new_flags)
    if growth is None:
        return None
    grown = tuple(None if a is None or b is None else b - a for a, b in zip(old, new, strict=True))
    return Steps(grown, *growth, new_flags.kind)


def skip_iterations(machine: Machine, suffix: str, steps: Steps, vectors: Sequence[int]) -> int:
    """Go on by iterations that are all alike, to the last that branches back; return how many."""
    grown, first, second, kind = steps
    flags = machine.flags
    assert flags is not None
    if kind not in ("sub", "add") or not (first or second):
        return 0
    if canonical(suffix) in EQUALITY:
        low = 0 if canonical(suffix) == "e" else to_equality(flags, first, second) or 0
    else:
        low = to_change(flags, first, second, suffix)
    machine.flags = grown_flags(flags, first, second, low)

    def grow(values: Sequence[int | None], by: Sequence[int | None], bits: int) -> list[int | None]:
        return [
            None if value is None or step is None else (value + step * low) & ((1 << bits) - 1)
            for value, step in zip(values, by, strict=True)
        ]

    number = len(machine.registers)
    machine.registers = grow(machine.registers, grown[:number], 64)
    for place, vector in enumerate(vectors):
        start = number + 16 * place
        machine.vectors[vector] = tuple(
            grow(machine.vectors[vector], grown[start : start + 16], 32)
        )
    return low
