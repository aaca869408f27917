"""Addresses that a group's instructions access, in order."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from countperf.harness.compiled.machine import (
    REGISTERS,
    Action,
    Machine,
    Read,
    Value,
    address_of,
    operand_bits,
    operands_of,
)
from countperf.harness.compiled.x86 import classify

MOST_ACCESSES = 400_000
"""Accesses of a group that are noted; those behind are taken to be like these."""

UNKNOWN = -1
"""Instead of an address that depends on data."""

_SHIFT = 8
_VECTOR_INDEX = re.compile(
    r"^(?P<offset>-?(?:0x)?[0-9a-f]+)?\((?P<base>%\w+)?,%[xyz]mm(?P<index>\d+),?(?P<scale>[1248])?\)"
)
_INDEXED = re.compile(r"^vp?(?P<what>gather|scatter)(?P<index>[dq])(?P<element>p[sd]|[dq])$")
_WIDTHS = {"x": 128, "y": 256, "z": 512}
_VECTOR = re.compile(r"%([xyz])mm")
_DECORATION = re.compile(r"\{.*?\}")
_NO_ACCESS = re.compile(r"^(?:lea|nop|prefetch|call|j)")
_CONSTANT_BYTES = 4
_WHOLE = (1 << 48) - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accesses:
    """Accesses to memory, in order.

    Attributes
    ----------
    address, size : ndarray of int64, shape (n,)
        Where, and bytes.
    is_store : ndarray of bool, shape (n,)
        Whether it writes.
    unknown : int
        Others, whose addresses depend on data.
    """

    address: NDArray[np.int64]
    size: NDArray[np.int64]
    is_store: NDArray[np.bool_]
    unknown: int

    @classmethod
    def of(cls, trace: array[int]) -> Self:
        """Read what `notes_of` noted."""
        noted = np.array(trace, dtype=np.int64)
        known = noted[noted >= 0]
        return cls(
            address=known >> _SHIFT,
            size=(known & ((1 << _SHIFT) - 1)) >> 1,
            is_store=(known & 1).astype(bool),
            unknown=len(noted) - len(known),
        )

    def __len__(self) -> int:
        return len(self.address) + self.unknown


def accesses_of(mnemonic: str, operands: str) -> int:
    """Return how often an instruction accesses memory, as `notes_of` notes it."""
    return sum(number for _, number, _ in _noted(mnemonic, operands))


def notes_of(mnemonic: str, operands: str) -> list[Action]:
    """Return actions that note where an instruction accesses memory, before it is executed.

    Each lane of a gather or scatter is an access, masked or not; the stack operations of calls and
    ``push`` are left out.

    Parameters
    ----------
    mnemonic, operands : str
        In AT&T's syntax, without prefixes and comments.
    """
    return [_note(addresses, low) for addresses, _, low in _noted(mnemonic, operands)]


_Addresses = Read | tuple[Read, ...]


def _noted(mnemonic: str, operands: str) -> list[tuple[_Addresses, int, int]]:
    """Return where an access goes, how many these are, and its size and direction in one number."""
    if "(" not in operands or _NO_ACCESS.match(mnemonic):
        return []
    lanes = lanes_of(mnemonic, operands)
    if lanes is not None:
        return [(lanes.addresses, len(lanes.addresses), 2 * lanes.size + lanes.is_store)]
    parts = operands_of(operands)
    address = address_of(_place(parts))
    if address is None:
        return []
    noted: list[tuple[_Addresses, int, int]] = []
    for kind in classify(mnemonic, operands):
        names = kind.removeprefix("spill.").split(".")
        if names[0] in ("load", "store"):
            size = _bytes_of(names[-1], mnemonic, parts)
            noted.append((address, 1, 2 * size + (names[0] == "store")))
    return noted


def _bytes_of(unit: str, mnemonic: str, parts: list[str]) -> int:
    if unit.isdigit():
        return int(unit) // 8
    if unit == "constant":
        return _CONSTANT_BYTES
    return operand_bits(mnemonic, parts) // 8


def _note(addresses: _Addresses, low: int) -> Action:
    if isinstance(addresses, tuple):

        def note_all(machine: Machine) -> None:
            if machine.trace is not None:
                found = (each(machine) for each in addresses)
                machine.trace.extend(UNKNOWN if a is None else a << _SHIFT | low for a in found)

        return note_all

    def note(machine: Machine) -> None:
        if machine.trace is not None:
            value = addresses(machine)
            machine.trace.append(UNKNOWN if value is None else value << _SHIFT | low)

    return note


class Lanes(NamedTuple):
    """The lanes of a gather or scatter: their addresses, bytes of each, and direction."""

    addresses: tuple[Read, ...]
    size: int
    is_store: bool


def lanes_of(mnemonic: str, operands: str) -> Lanes | None:
    """Return what computes where a gather or scatter accesses memory; None if it is neither."""
    kind = _INDEXED.match(mnemonic)
    if kind is None:
        return None
    size = 8 if kind["element"] in ("pd", "q") else 4
    index = kind["index"]
    widest = max(_WIDTHS[each] for each in _VECTOR.findall(operands))
    number = min(widest // (8 * size), widest // (32 if index == "d" else 64))
    is_store = kind["what"] == "scatter"
    found = _VECTOR_INDEX.match(_place(operands_of(operands)))
    if found is None:
        return Lanes((_unknown,) * number, size, is_store)
    base = REGISTERS.get(found["base"] or "")
    offset, scale, vector = (int(found[each] or "0", 0) for each in ("offset", "scale", "index"))
    scale = scale or 1

    def lane_of(lane: int) -> Read:
        def address(machine: Machine) -> Value:
            start = 0 if base is None else machine.registers[base.number]
            value = _index(machine.vectors[vector], lane, index)
            if start is None or value is None:
                return None
            return (start + value * scale + offset) & _WHOLE

        return address

    return Lanes(tuple(map(lane_of, range(number))), size, is_store)


def _place(parts: Sequence[str]) -> str:
    return _DECORATION.sub("", next(part for part in parts if "(" in part))


def _index(lanes: Sequence[Value], lane: int, kind: str) -> Value:
    if kind == "d":
        value = lanes[lane]
        return None if value is None else value - ((value >> 31) << 32)
    low, high = lanes[2 * lane], lanes[2 * lane + 1]
    return None if low is None or high is None else low | high << 32


def _unknown(machine: Machine) -> Value:
    del machine
    return None


def repeat(trace: array[int], first: int, second: int, iterations: int) -> None:
    """Go on as the last two iterations of a loop did, each access at its own stride.

    Parameters
    ----------
    trace : array of int
        What was noted; the last iteration begins at `second`, the one before at `first`.
    first, second : int
        Places in it.
    iterations : int
        How many follow; at most `MOST_ACCESSES` are noted.
    """
    period = len(trace) - second
    if not period or second - first != period:
        return
    room = max(0, MOST_ACCESSES - len(trace)) // period + 1
    last = np.array(trace[second:], dtype=np.int64)
    before = np.array(trace[first:second], dtype=np.int64)
    steps = np.where((last < 0) | (before < 0), 0, last - before)
    more = last + np.arange(1, min(iterations, room) + 1)[:, np.newaxis] * steps
    trace.frombytes(more.astype(np.int64).tobytes())
