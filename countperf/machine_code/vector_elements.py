"""Lanes of 32 bits of a vector as elements of 8 to 64 bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from countperf.machine_code.machine_state import Lanes, Machine, Value
from countperf.machine_code.vector_registers import joined, source_of


def elements_of(lanes: Lanes, bits: int) -> list[Value]:
    """Return what lanes of 32 bits are as elements of other bits; None for unknown ones."""
    if bits == 32:
        return list(lanes)
    if bits == 64:
        return [joined(lanes[place : place + 2]) for place in range(0, len(lanes), 2)]
    mask = (1 << bits) - 1
    return [
        None if lane is None else (lane >> shift) & mask
        for lane in lanes
        for shift in range(0, 32, bits)
    ]


def lanes_from(elements: Sequence[Value], bits: int) -> Lanes:
    """Return lanes of 32 bits from elements; a lane of which a part is unknown is unknown."""
    if bits == 32:
        return tuple(elements)
    if bits == 64:
        return tuple(
            None if value is None else (value >> shift) & 0xFFFF_FFFF
            for value in elements
            for shift in (0, 32)
        )
    found: list[Value] = []
    for place in range(0, len(elements), 32 // bits):
        lane = 0
        for number, value in enumerate(elements[place : place + 32 // bits]):
            if value is None:
                found.append(None)
                break
            lane |= value << (bits * number)
        else:
            found.append(lane)
    return tuple(found)


def pairs_of(
    parts: Sequence[str], lanes: int, bits: int
) -> Callable[[Machine], list[tuple[Value, Value]]]:
    """Return what reads the elements of two operands, those of the second one first."""
    second, first = source_of(parts[0], lanes), source_of(parts[1], lanes)

    def read(machine: Machine) -> list[tuple[Value, Value]]:
        one, other = first(machine)[:lanes], second(machine)[:lanes]
        return list(zip(elements_of(one, bits), elements_of(other, bits), strict=True))

    return read
