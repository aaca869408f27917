"""State of an x86-64 processor, and operands of instructions, as ``objdump`` writes them.

Integers are unsigned, of 64 bits, or None where they are not known: they come from the data of a
kernel, or from an instruction that has no rule. Vectors are bytes, and masks bits, as NumPy arrays
in which `UNKNOWN` stands for what is not known.

Arrays are given places of their own, far apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Value = int | None
Lanes: TypeAlias = npt.NDArray[np.int16]  # bytes of a vector or bits of a mask

UNKNOWN = -1
VECTOR_BYTES = 64
_NAMES = ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp")
_PAGE = 4096
_KNOWN, _LOST = 1, 2
"""States of a byte of memory that was written to: its value is known, or it is not."""


class Register(NamedTuple):
    """Part of an integer register: its number, and which bits."""

    number: int
    bits: int
    shift: int = 0


def _registers() -> dict[str, Register]:
    registers: dict[str, Register] = {}
    for number, name in enumerate(_NAMES):
        for prefix, bits in (("r", 64), ("e", 32), ("", 16)):
            registers[f"%{prefix}{name}"] = Register(number, bits)
        registers[f"%{name.removesuffix('x')}l"] = Register(number, 8)
        if name.endswith("x"):
            registers[f"%{name[0]}h"] = Register(number, 8, 8)
    for number in range(8, 16):
        for suffix, bits in (("", 64), ("d", 32), ("w", 16), ("b", 8)):
            registers[f"%r{number}{suffix}"] = Register(number, bits)
    return registers


REGISTERS: Mapping[str, Register] = _registers()
STACK_POINTER = REGISTERS["%rsp"].number


class Flags(NamedTuple):
    """Flags: operands and result of the instruction that set them.

    ``kind`` is ``sub`` where the result is ``first - second``, ``add`` where it is their sum, and
    ``exact`` where ``first`` is the carry itself and ``second`` the overflow, each 0 or 1.
    """

    kind: str
    first: int
    second: int
    result: int
    bits: int


class ArrayData(NamedTuple):
    """Integers that an array holds: bytes of each, and function from its place to its value."""

    itemsize: int
    value: Callable[[int], int]


class EffectRecord:
    """Record of the effects of instructions, in order."""

    def __init__(self) -> None:
        # blocks, whether their branches were taken, and how often: several times where it is a loop
        self.passed: list[tuple[int, bool | None, int]] = []
        # conditions of these branches and of moves, and flags that decided them
        self.decided: list[tuple[str, Flags | None]] = []
        # address, bits and value of what was written to memory
        self.written: list[tuple[int, int, Value]] = []
        # the same of what was loaded and known
        self.loaded: list[tuple[int, int, int]] = []
        # operands of what does not grow evenly with them, and how many of their low bits decide
        self.stepped: list[tuple[int | None, tuple[Value, ...]]] = []


class Machine:
    """State of a processor."""

    def __init__(self) -> None:
        self.registers: list[Value] = [None] * 16  # of 64 bits
        # the lowest 8 bits of registers of which no more is known
        self.low: list[Value] = [None] * 16
        self.vectors: Lanes = np.full((32, VECTOR_BYTES), UNKNOWN, np.int16)  # bytes of each
        self.masks: Lanes = np.full((8, 64), UNKNOWN, np.int16)  # bits of each
        # bytes of memory that were written to, and what is known of them, by address over `_PAGE`
        self.pages: dict[int, tuple[bytearray, bytearray]] = {}
        self.constants: Mapping[int, bytes] = {}  # what memory has besides, by address
        # arrays whose contents are known: where they begin and end, and what they hold
        self.arrays: list[tuple[int, int, ArrayData]] = []
        self.flags: Flags | None = None  # none if they are not known
        self.journal = EffectRecord()  # what instructions did since it was begun
        # where instructions that were asked to note it accessed memory, by their number
        self.accessed: dict[int, int] = {}
        self.steps = 0  # integer instructions that were followed

    def load(self, address: Value, bits: int) -> Value:
        """Return what is in memory."""
        value = None if address is None else self.look(address, bits)
        if address is not None and value is not None:
            self.journal.loaded.append((address, bits, value))
        return value

    def look(self, address: int, bits: int) -> Value:
        """Return what is in memory without taking note of it."""
        size = bits // 8
        number, start = divmod(address, _PAGE)
        content, known = self.pages.get(number, (b"", b""))
        states = known[start : start + size]
        if start + size <= _PAGE:
            if states.count(_KNOWN) == size:
                return int.from_bytes(content[start : start + size], "little")
            if not any(states) and size <= 4:
                return self._read_array(address, bits)
        if _LOST in states:
            return None
        half = size // 2
        low, high = self.look(address, 8 * half), self.look(address + half, 8 * half)
        return None if low is None or high is None else low | high << 8 * half

    def _read_array(self, address: int, bits: int) -> Value:
        """Return what an array holds whose contents are known, or a constant."""
        for start, end, data in self.arrays:
            if start <= address < end:
                index, offset = divmod(address - start, data.itemsize)
                if offset + bits // 8 <= data.itemsize:
                    return data.value(index) >> 8 * offset & ((1 << bits) - 1)
        for start, content in self.constants.items():
            if 0 <= (offset := address - start) <= len(content) - bits // 8:
                return int.from_bytes(content[offset : offset + bits // 8], "little")
        return None

    def store(self, address: Value, bits: int, value: Value) -> None:
        """Write to memory; where the address is not known, to data that decides nothing."""
        if address is None:
            return
        self.journal.written.append((address, bits, value))
        size = bits // 8
        data = bytes(size) if value is None else value.to_bytes(size, "little")
        state = bytes([_LOST if value is None else _KNOWN])
        number, start = divmod(address, _PAGE)
        while data:
            content, known = self.pages.setdefault(number, (bytearray(_PAGE), bytearray(_PAGE)))
            part, data = data[: _PAGE - start], data[_PAGE - start :]
            content[start : start + len(part)] = part
            known[start : start + len(part)] = state * len(part)
            number, start = number + 1, 0

    def load_lanes(self, address: Value, size: int) -> Lanes:
        """Return bytes in memory, each four of them known or not."""
        if address is None:
            return lanes_of(None, size)
        step = min(4, size)
        places = range(address, address + size, step)
        return np.concatenate([lanes_of(self.load(place, 8 * step), step) for place in places])

    def store_lanes(
        self, address: Value, lanes: Lanes, chosen: Lanes | None = None, step: int = 4
    ) -> None:
        """Write elements of so many bytes; those that are chosen, of which it may be unknown."""
        if address is None:
            return
        if chosen is None and lanes.max() < 0:
            self.store(address, 8 * len(lanes), None)
            return
        for number, piece in enumerate(lanes.reshape(-1, step)):
            is_chosen = 1 if chosen is None else int(chosen[number])
            if is_chosen:
                value = join_bytes(piece) if is_chosen == 1 else None
                self.store(address + step * number, 8 * step, value)


_BITS = {"b": 8, "w": 16, "l": 32, "q": 64}
_COMMA = re.compile(r",\s*(?![^(]*\))")
_MEMORY = re.compile(
    r"^(?:%[c-gs]s:)?(?P<offset>-?(?:0x)?[0-9a-f]+)?"
    r"\((?P<base>%\w+)?(?:,(?P<index>%\w+),(?P<scale>[1248]))?\)$"
)
_IMMEDIATE = re.compile(r"^\$(-?(?:0x)?[0-9a-f]+)$")
_LETTER = re.compile(r"%([xyz])mm")
_BROADCAST = re.compile(r"\{1to(\d+)\}$")
_WIDE = (1 << 64) - 1
VECTOR = re.compile(r"^%([xyz])mm(\d+)(\{.*)?$")
"""A vector register: its width, its number, and what is written of it."""

WIDTHS = {"x": 16, "y": 32, "z": 64}  # bytes of a vector register by the letter of its width

Action = Callable[[Machine], None]
Condition = Callable[[Machine], "bool | None"]
Read = Callable[[Machine], Value]
Write = Callable[[Machine, Value], None]
Source = Callable[[Machine], Lanes]


def operands_of(text: str) -> list[str]:
    """Split the operands of an instruction."""
    return _COMMA.split(text) if text else []


def widest(operands: str) -> int:
    """Return the bytes of the widest vector register among operands; 0 if there is none."""
    return max((WIDTHS[letter] for letter in _LETTER.findall(operands)), default=0)


def immediate(text: str, bits: int = 8) -> Value:
    """Return a constant; None if the operand is none."""
    match = _IMMEDIATE.match(text)
    return None if match is None else int(match[1], 0) & ((1 << bits) - 1)


def address_of(text: str) -> Read | None:
    """Return what computes the address of an operand in memory; None if it is none."""
    match = _MEMORY.match(text)
    if match is None:
        return None
    offset = int(match["offset"] or "0", 0)
    named = [(match["base"], 1), (match["index"], int(match["scale"] or 1))]
    if any(name and name not in REGISTERS for name, _ in named):
        return lambda _: None
    terms = [(REGISTERS[name].number, scale) for name, scale in named if name]

    def address(machine: Machine) -> Value:
        total = offset
        for number, scale in terms:
            if (value := machine.registers[number]) is None:
                return None
            total += value * scale
        return total & _WIDE

    return address


def reader(text: str, bits: int) -> Read:
    """Return what reads an operand: a register, a constant, or memory."""
    register = REGISTERS.get(text)
    if register is not None:
        number, shift, mask = register.number, register.shift, (1 << bits) - 1

        def part(machine: Machine) -> Value:
            value = machine.registers[number]
            if value is None:
                return machine.low[number] if bits == 8 and not shift else None
            return (value >> shift) & mask

        return part
    constant = immediate(text, bits)
    if constant is not None:
        return lambda _: constant
    address = address_of(text)
    if address is not None:
        return lambda machine: machine.load(address(machine), bits)
    return lambda _: None


def writer(text: str, bits: int) -> Write:
    """Return what writes an operand: a register or memory."""
    register = REGISTERS.get(text)
    if register is not None:
        number, shift = register.number, register.shift
        mask = ((1 << bits) - 1) << shift

        def part(machine: Machine, value: Value) -> None:
            old = 0 if bits >= 32 else machine.registers[number]  # the upper half becomes zero
            machine.registers[number] = (
                None if old is None or value is None else (old & ~mask) | (value << shift)
            )
            machine.low[number] = value if bits == 8 and not shift else None

        return part
    address = address_of(text)
    if address is not None:
        return lambda machine, value: machine.store(address(machine), bits, value)
    return lambda _, __: None


def width_of(name: str, parts: list[str]) -> int:
    """Return the bits of operands, from registers or from what the name ends with."""
    for text in reversed(parts):
        if text in REGISTERS:
            return REGISTERS[text].bits
    return _BITS.get(name[-1:], 64)


def read_signed(value: int, bits: int) -> int:
    """Return a value as a number in two's complement."""
    return value - (1 << bits) if value >> (bits - 1) else value


def lanes_of(value: Value, size: int) -> Lanes:
    """Return an integer as so many bytes."""
    if value is None:
        return np.full(size, UNKNOWN, dtype=np.int16)
    data = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return np.frombuffer(data, np.uint8).astype(np.int16)


def join_bytes(lanes: Lanes) -> Value:
    """Return the integer that some bytes make together, the first of them lowest."""
    whole = int.from_bytes(lanes.astype(np.uint8).tobytes(), "little")
    return whole if (lanes >= 0).all() else None


def source_of(text: str, size: int) -> Source:
    """Return what reads bytes of a vector: from a vector or integer register, or from memory."""
    register = VECTOR.match(text)
    if register is not None:
        number = int(register[2])
        return lambda machine: machine.vectors[number, :size]
    if text in REGISTERS:
        read, lowest = reader(text, 8 * size), reader(text, 8)  # which may be known alone
        return lambda machine: np.append(
            lanes_of(lowest(machine), 1), lanes_of(read(machine), size)[1:]
        )
    address, match = address_of(_BROADCAST.sub("", text)), _BROADCAST.search(text)
    if address is None:
        return lambda _: lanes_of(None, size)
    times = int(match[1]) if match else 1
    return lambda machine: np.tile(machine.load_lanes(address(machine), size // times), times)


def _below(f: Flags) -> bool:
    if f.kind == "sub":
        return f.first < f.second
    return bool(f.first) if f.kind == "exact" else f.result < f.first


def _less(f: Flags) -> bool:
    if f.kind == "sub":
        return read_signed(f.first, f.bits) < read_signed(f.second, f.bits)
    if f.kind == "add":
        return read_signed(f.first, f.bits) + read_signed(f.second, f.bits) < 0
    return bool(f.result >> (f.bits - 1)) != bool(f.second)


_CONDITIONS: Mapping[str, Callable[[Flags], bool]] = {
    "e": lambda f: f.result == 0,
    "b": _below,
    "be": lambda f: _below(f) or f.result == 0,
    "l": _less,
    "le": lambda f: _less(f) or f.result == 0,
    "s": lambda f: bool(f.result >> (f.bits - 1)),
    "o": lambda f: _less(f) != bool(f.result >> (f.bits - 1)),
    "p": lambda f: (f.result & 0xFF).bit_count() % 2 == 0,
}
_ALIASES = {
    **{"z": "e", "c": "b", "nae": "b", "na": "be", "nge": "l", "ng": "le", "pe": "p"},
    **{"nz": "ne", "nb": "ae", "nc": "ae", "nbe": "a", "nl": "ge", "nle": "g", "po": "np"},
}
_OPPOSITE = {"ne": "e", "ae": "b", "a": "be", "ge": "l", "g": "le", "ns": "s", "no": "o", "np": "p"}
UNSIGNED = frozenset({"b", "be", "a", "ae"})
ORDERS = UNSIGNED | {"l", "le", "g", "ge", "s", "ns"}
EQUALITY = frozenset({"e", "ne"})


def canonical(suffix: str) -> str:
    """Return the usual name of a condition."""
    return _ALIASES.get(suffix, suffix)


@lru_cache(maxsize=64)
def condition_of(suffix: str) -> Condition | None:
    """Return what decides a condition, by the end of the name of an instruction, such as ``ne``.

    It returns None where the flags are not known.
    """
    suffix = canonical(suffix)
    is_opposite = suffix in _OPPOSITE
    test = _CONDITIONS.get(_OPPOSITE.get(suffix, suffix))
    if test is None:
        return None

    def decide(machine: Machine) -> bool | None:
        return None if machine.flags is None else test(machine.flags) != is_opposite

    return decide


_ARGUMENTS = 0x1000_0000_0000
_CONTEXT = 0x1100_0000_0000
_RUNTIME = 0x1200_0000_0000
_ARRAYS = 0x2000_0000_0000
_APART = 1 << 36
_CELL = 256
_LOCAL_ARRAYS = 8
_WORD = 8
_SIZES_FROM = ((0x20, 0x90), (0x38, 0x50, 0xA8, 0xC0), (0x68, 0xD8))
"""Offsets in the block of sizes of Intel's runtime: of all items, of a group's, and of groups."""

_AXES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLaunch:
    """A kernel and what it is launched with."""

    kernel: str  # name of the device's kernel
    arguments: tuple[bytes | None, ...]  # in order
    groups: tuple[int, int, int]  # along three axes
    group_shape: tuple[int, int, int]
    # names of arrays by their places among the arguments, where they are known
    arrays: Mapping[int, str] = field(default_factory=dict[int, str])

    @property
    def number_of_groups(self) -> int:
        """All groups."""
        return prod(self.groups)

    @property
    def integers(self) -> tuple[int | None, ...]:
        """The arguments, read as integers."""
        return tuple(
            None if a is None else int.from_bytes(a, "little", signed=True) for a in self.arguments
        )


def fill_arrays(machine: Machine, launch: KernelLaunch, contents: Mapping[str, ArrayData]) -> None:
    """Let arrays hold what is given by their names."""
    for index, name in launch.arrays.items():
        if name in contents:
            start = _ARRAYS + index * _APART
            machine.arrays.append((start, start + _APART // 2, contents[name]))


def pocl_group(launch: KernelLaunch, number: Sequence[int]) -> Machine:
    """Return the state in which PoCL calls the function of a group."""
    machine = Machine()
    for position, value in enumerate([*launch.arguments, *[None] * _LOCAL_ARRAYS]):
        cell = _ARGUMENTS + (1 << 20) + _CELL * position
        machine.store(_ARGUMENTS + _WORD * position, 64, cell)
        _put_value(machine, cell, value, position)
    _words(machine, _CONTEXT, (*launch.groups, 0, 0, 0, *launch.group_shape))
    _call(machine, _ARGUMENTS, _CONTEXT, *number)
    return machine


def intel_group(launch: KernelLaunch, number: Sequence[int]) -> Machine:
    """Return the state in which Intel's runtime calls the function of a group."""
    machine = Machine()
    end = _ARGUMENTS
    for position, value in enumerate(launch.arguments):
        size = _WORD if value is None else len(value)
        end += -end % size
        _put_value(machine, end, value, position)
        end += size
    end += -end % _WORD
    whole = [a * b for a, b in zip(launch.groups, launch.group_shape, strict=True)]
    _words(machine, end, (_AXES, 0, 0, 0))
    for offsets, sizes in zip(_SIZES_FROM, (whole, launch.group_shape, launch.groups), strict=True):
        for offset in offsets:
            _words(machine, end + offset, sizes)
    _words(machine, _CONTEXT, (*number, 0))
    _call(machine, _ARGUMENTS, _CONTEXT, _RUNTIME)
    return machine


def _put_value(machine: Machine, address: int, value: bytes | None, index: int) -> None:
    if value is None:
        machine.store(address, 64, _ARRAYS + index * _APART)
    else:
        machine.store(address, 8 * len(value), int.from_bytes(value, "little"))


def _words(machine: Machine, address: int, values: Sequence[int]) -> None:
    for position, value in enumerate(values):
        machine.store(address + _WORD * position, 64, value)


def _call(machine: Machine, *values: int) -> None:
    for name, value in zip(("%rdi", "%rsi", "%rdx", "%rcx", "%r8"), values, strict=False):
        machine.registers[REGISTERS[name].number] = value
