"""Vector registers, and memory that vector instructions read, as lanes of 32 bits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from countperf.machine_code.integer_operands import address_of
from countperf.machine_code.machine_state import UNKNOWN_LANES, Lanes, Machine, Value

VECTOR = re.compile(r"^%([xyz])mm(\d+)(\{.*)?$")
"""A vector register: its width, its number, and what is written of it."""

LANES = {"x": 4, "y": 8, "z": 16}
"""Lanes of 32 bits by width."""

Source = Callable[[Machine], Lanes]

_HALF = (1 << 32) - 1
_BROADCAST = re.compile(r"\{1to(\d+)\}$")


def joined(lanes: Sequence[Value]) -> Value:
    """Return the integer that some lanes make together, the first of them lowest."""
    whole = 0
    for place, value in enumerate(lanes):
        if value is None:
            return None
        whole |= value << (32 * place)
    return whole


def split(value: Value, size: int) -> Lanes:
    """Return the lanes that make an integer."""
    if value is None:
        return (None,) * size
    return tuple((value >> (32 * place)) & _HALF for place in range(size))


def source_of(text: str, lanes: int) -> Source:
    """Return what reads a vector from a register, all of it, or so many lanes from memory."""
    register = VECTOR.match(text)
    if register is not None:
        number = int(register[2])
        return lambda machine: machine.vectors[number]
    address = address_of(_BROADCAST.sub("", text))
    if address is None:
        return lambda _: UNKNOWN_LANES
    if found := _BROADCAST.search(text):
        number = int(found[1])
        return lambda machine: _loaded(machine, address(machine), lanes // number) * number

    def load(machine: Machine) -> Lanes:
        start = address(machine)
        return UNKNOWN_LANES if start is None else _loaded(machine, start, lanes)

    return load


def _loaded(machine: Machine, start: Value, lanes: int) -> Lanes:
    if start is None:
        return (None,) * lanes
    return tuple(machine.load(start + 4 * lane, 32) for lane in range(lanes))


def rearranged(operands: Sequence[tuple[str, int]], order: Sequence[int]) -> Source:
    """Return what picks lanes of operands that lie side by side."""
    sources = [(source_of(text, lanes), lanes) for text, lanes in operands]

    def pick(machine: Machine) -> Lanes:
        given = [lane for source, lanes in sources for lane in source(machine)[:lanes]]
        return tuple(0 if place < 0 else given[place] for place in order)

    return pick
