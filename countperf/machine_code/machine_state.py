"""State of an x86-64 processor: integer registers, vectors, masks, flags and memory.

Values are unsigned integers of 64 bits, or None where they are not known: they come from the data
of a kernel, or from an instruction that has no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Value = int | None
Lanes = tuple[Value, ...]
UNKNOWN_LANES: Lanes = (None,) * 16
_PIECE = 32
_HALF = (1 << _PIECE) - 1
_NAMES = ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp")


class Register(NamedTuple):
    """Part of an integer register: its number, and which bits."""

    number: int
    bits: int
    shift: int = 0


def _registers() -> dict[str, Register]:
    found: dict[str, Register] = {}
    for number, name in enumerate(_NAMES):
        found[f"%r{name}"] = Register(number, 64)
        found[f"%e{name}"] = Register(number, 32)
        found[f"%{name}"] = Register(number, 16)
        low = f"{name[0]}l" if name.endswith("x") else f"{name}l"
        found[f"%{low}"] = Register(number, 8)
        if name.endswith("x"):
            found[f"%{name[0]}h"] = Register(number, 8, 8)
    for number in range(8, 16):
        for suffix, bits in (("", 64), ("d", 32), ("w", 16), ("b", 8)):
            found[f"%r{number}{suffix}"] = Register(number, bits)
    return found


REGISTERS: Mapping[str, Register] = _registers()
STACK_POINTER = REGISTERS["%rsp"].number


class Flags(NamedTuple):
    """Flags: operands and result of the instruction that set them.

    ``kind`` is ``sub`` where the result is ``first - second``, ``add`` where it is their sum,
    ``logic`` where there is no carry, ``mask`` where there is one if the first is smaller, and
    ``exact`` where ``first`` is the carry itself and ``second`` the overflow, each 0 or 1.
    """

    kind: str
    first: int
    second: int
    result: int
    bits: int


class Constants:
    """Constants of an object file, by address."""

    def __init__(self, sections: Mapping[int, bytes]) -> None:
        self._sections = sorted(sections.items())

    def load(self, address: int, bits: int) -> Value:
        """Return an integer; None where there is none."""
        for start, content in self._sections:
            offset = address - start
            if 0 <= offset <= len(content) - bits // 8:
                return int.from_bytes(content[offset : offset + bits // 8], "little")
        return None


class ArrayData(NamedTuple):
    """Integers that an array holds: bytes of each, and function from its place to its value."""

    itemsize: int
    value: Callable[[int], int]


@dataclass(slots=True)
class Journal:
    """Record of the effects of instructions, in order."""

    # address, bits and value of what was written to memory
    written: list[tuple[int, int, Value]] = field(default_factory=list[tuple[int, int, Value]])
    # the same of what was loaded and known
    loaded: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    stepped: list[tuple[int | None, tuple[Value, ...]]] = field(
        default_factory=list[tuple[int | None, tuple[Value, ...]]]
    )
    # conditions of moves, and flags that decided them
    decided: list[tuple[str, Flags | None]] = field(default_factory=list[tuple[str, Flags | None]])


@dataclass(slots=True)
class Machine:
    """State of a processor."""

    registers: list[Value] = field(default_factory=lambda: [None] * 16)  # of 64 bits, 16 of them
    # the lowest 8 bits of registers of which no more is known
    low: list[Value] = field(default_factory=lambda: [None] * 16)
    # vector registers, each as 16 integers of 32 bits
    vectors: list[Lanes] = field(default_factory=lambda: [UNKNOWN_LANES] * 32)
    # mask registers: their bits, and which of them are known
    masks: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)] * 8)
    # integers in memory, by address, with their bits, at most 32
    memory: dict[int, tuple[Value, int]] = field(default_factory=dict[int, tuple[Value, int]])
    constants: Constants = field(default_factory=lambda: Constants({}))  # what memory has besides
    # arrays whose contents are known: where they begin and end, and what they hold
    arrays: list[tuple[int, int, ArrayData]] = field(
        default_factory=list[tuple[int, int, ArrayData]]
    )
    flags: Flags | None = None  # none if they are not known
    has_bytes: bool = False  # whether memory has integers of 8 bits
    stored: int = 0  # how often an integer that is known was written to memory
    quotient: Lanes = UNKNOWN_LANES  # what a function that divides is about to return
    journal: Journal = field(default_factory=Journal)  # what instructions did since it was begun
    # where instructions that were asked to note it accessed memory, by their number
    accessed: dict[int, int] = field(default_factory=dict[int, int])

    def load(self, address: Value, bits: int) -> Value:
        """Return what is in memory."""
        if address is None:
            return None
        if bits == 2 * _PIECE:
            low, high = self.load(address, _PIECE), self.load(address + 4, _PIECE)
            return None if low is None or high is None else low | high << _PIECE
        value = self.look(address, bits)
        if value is not None:
            self.journal.loaded.append((address, bits, value))
        return value

    def look(self, address: int, bits: int) -> Value:
        """Return what is in memory, of at most 32 bits, without taking note of it."""
        found = self.memory.get(address)
        if found is None:
            if bits < _PIECE and self._whole(address) is not None:
                self._break_up(address)
                return self.look(address, bits)
            if bits == _PIECE and (address % 4 or self.has_bytes) and self._whole(address):
                self._break_up(address)
                return self.look(address, bits)
            if self.arrays and (value := self._element(address, bits)) is not None:
                return value
            return self.constants.load(address, bits)
        value, width = found
        if width < bits:
            parts = [self.look(address + offset, 8) for offset in range(bits // 8)]
            if None in parts:
                return None
            return sum(part << (8 * k) for k, part in enumerate(parts) if part is not None)
        return None if value is None else value & ((1 << bits) - 1)

    def _element(self, address: int, bits: int) -> Value:
        """Return what an array holds whose contents are known."""
        for start, end, data in self.arrays:
            if start <= address < end:
                place, offset = divmod(address - start, data.itemsize)
                if offset + bits // 8 <= data.itemsize:
                    return data.value(place) >> 8 * offset & ((1 << bits) - 1)
        return None

    def store(self, address: Value, bits: int, value: Value) -> None:
        """Write to memory; where the address is not known, to data that decides nothing."""
        if address is None:
            return
        self.stored += value is not None
        self.journal.written.append((address, bits, value))
        if bits >= _PIECE:
            if self.has_bytes or address % 4:
                self._make_room(address, bits // 8)
            self.memory[address] = (None if value is None else value & _HALF), _PIECE
            if bits > _PIECE:
                self.memory[address + 4] = (None if value is None else value >> _PIECE), _PIECE
            return
        self.has_bytes = True
        if self._whole(address) is not None:
            self._break_up(address)
        for offset in range(bits // 8):
            part = None if value is None else (value >> (8 * offset)) & 0xFF
            self.memory[address + offset] = part, 8

    def _make_room(self, address: int, size: int) -> None:
        """Take away what is in some bytes, of integers that reach beyond them, too."""
        self.has_bytes = True
        end = address + size
        for start in (*range(address - 3, address), *range(end - 3, end)):
            if self.memory.get(start, (None, 0))[1] == _PIECE:
                self._break_up(start)
        for start in range(address, end):
            self.memory.pop(start, None)

    def _whole(self, address: int) -> int | None:
        """Return where the 32 bits begin that a byte is one of."""
        for start in range(address, address - 4, -1):
            if self.memory.get(start, (None, 0))[1] == _PIECE:
                return start
        return None

    def _break_up(self, address: int) -> None:
        start = self._whole(address)
        if start is not None:
            self.has_bytes = True
            value, _ = self.memory[start]
            for offset in range(4):
                part = None if value is None else (value >> (8 * offset)) & 0xFF
                self.memory[start + offset] = part, 8
