"""Addresses of the lanes of gathers and scatters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from countperf.machine_code.integer_operands import Read, operands_of
from countperf.machine_code.machine_state import REGISTERS, Machine, Value

_PLACE = re.compile(
    r"^(?P<offset>-?(?:0x)?[0-9a-f]+)?\((?P<base>%\w+)?,%[xyz]mm(?P<index>\d+),?(?P<scale>[1248])?\)"
)
_INDEXED = re.compile(r"^vp?(?:gather|scatter)(?P<index>[dq])(?P<element>p[sd]|[dq])$")
_WIDTHS = {"x": 128, "y": 256, "z": 512}
_VECTOR = re.compile(r"%([xyz])mm")
_WHOLE = (1 << 48) - 1


class Lanes(NamedTuple):
    """The lanes of a gather or scatter: what computes their addresses, and bytes of each."""

    addresses: tuple[Read, ...]
    size: int


def lanes_of(mnemonic: str, operands: str) -> Lanes | None:
    """Return where a gather or scatter accesses memory; None if it is neither."""
    kind = _INDEXED.match(mnemonic)
    if kind is None:
        return None
    size = 8 if kind["element"] in ("pd", "q") else 4
    index = kind["index"]
    widest = max(_WIDTHS[each] for each in _VECTOR.findall(operands))
    number = min(widest // (8 * size), widest // (32 if index == "d" else 64))
    text = next(part for part in operands_of(operands) if "(" in part)
    place = _PLACE.match(text)
    if place is None:
        return Lanes((_unknown,) * number, size)
    base = REGISTERS.get(place["base"] or "")
    offset, scale, vector = (int(place[each] or "0", 0) for each in ("offset", "scale", "index"))
    scale = scale or 1

    def lane_of(lane: int) -> Read:
        def address(machine: Machine) -> Value:
            start = 0 if base is None else machine.registers[base.number]
            value = _index(machine.vectors[vector], lane, index)
            if start is None or value is None:
                return None
            return (start + value * scale + offset) & _WHOLE

        return address

    return Lanes(tuple(map(lane_of, range(number))), size)


def _index(lanes: Sequence[Value], lane: int, kind: str) -> Value:
    if kind == "d":
        value = lanes[lane]
        return None if value is None else value - ((value >> 31) << 32)
    low, high = lanes[2 * lane], lanes[2 * lane + 1]
    return None if low is None or high is None else low | high << 32


def _unknown(machine: Machine) -> Value:
    del machine
    return None
