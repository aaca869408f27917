"""Operands of instructions, as ``objdump`` writes them, and conditions of jumps and moves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from countperf.machine_code.machine_state import REGISTERS, UNKNOWN, Flags, Lanes, Machine, Value

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

WIDTHS = {"x": 16, "y": 32, "z": 64}
"""Bytes of a vector register by the letter of its width."""

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
    base, index = (REGISTERS.get(match[name] or "") for name in ("base", "index"))
    scale = int(match["scale"] or 1)
    if (match["base"] and base is None) or (match["index"] and index is None):
        return lambda _: None
    if index is None:
        if base is None:
            return lambda _: offset & _WIDE
        number = base.number

        def near(machine: Machine) -> Value:
            value = machine.registers[number]
            return None if value is None else (value + offset) & _WIDE

        return near
    other = index.number
    first = None if base is None else base.number

    def index_operand(machine: Machine) -> Value:
        value = machine.registers[other]
        start = 0 if first is None else machine.registers[first]
        if value is None or start is None:
            return None
        return (start + value * scale + offset) & _WIDE

    return index_operand


def reader(text: str, bits: int) -> Read:
    """Return what reads an operand: a register, a constant, or memory."""
    register = REGISTERS.get(text)
    if register is not None:
        number, shift, mask = register.number, register.shift, (1 << bits) - 1
        if bits == 64:
            return lambda machine: machine.registers[number]

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
        number = register.number
        if bits >= 32:  # the upper half becomes zero

            def whole(machine: Machine, value: Value) -> None:
                machine.registers[number] = value
                machine.low[number] = None

            return whole
        shift, mask = register.shift, ((1 << bits) - 1) << register.shift

        def part(machine: Machine, value: Value) -> None:
            old = machine.registers[number]
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


def signed(value: int, bits: int) -> int:
    """Return a value as a number in two's complement."""
    return value - (1 << bits) if value >> (bits - 1) else value


def lanes_of(value: Value, size: int) -> Lanes:
    """Return an integer as so many bytes."""
    if value is None:
        return np.full(size, UNKNOWN, dtype=np.int16)
    data = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return np.frombuffer(data, np.uint8).astype(np.int16)


def joined(lanes: Lanes) -> Value:
    """Return the integer that some bytes make together, the first of them lowest."""
    known = bool((lanes >= 0).all())
    return int.from_bytes(lanes.astype(np.uint8).tobytes(), "little") if known else None


def source_of(text: str, size: int) -> Source:
    """Return what reads bytes of a vector: from a vector or integer register, or from memory."""
    register = VECTOR.match(text)
    if register is not None:
        number = int(register[2])
        return lambda machine: machine.vectors[number, :size]
    if text in REGISTERS:
        read = reader(text, 8 * size)
        return lambda machine: lanes_of(read(machine), size)
    address = address_of(_BROADCAST.sub("", text))
    if address is None:
        return lambda _: lanes_of(None, size)
    match = _BROADCAST.search(text)
    if match is None:
        return lambda machine: machine.load_lanes(address(machine), size)
    times = int(match[1])
    return lambda machine: np.tile(machine.load_lanes(address(machine), size // times), times)


def _below(f: Flags) -> bool:
    if f.kind == "sub":
        return f.first < f.second
    return bool(f.first) if f.kind == "exact" else f.result < f.first


def _less(f: Flags) -> bool:
    if f.kind == "sub":
        return signed(f.first, f.bits) < signed(f.second, f.bits)
    if f.kind == "add":
        return signed(f.first, f.bits) + signed(f.second, f.bits) < 0
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
        flags = machine.flags
        return None if flags is None else test(flags) != is_opposite

    return decide
