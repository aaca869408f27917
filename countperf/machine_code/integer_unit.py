"""Integer registers, flags and memory of an x86-64 processor, as far as control flow needs them.

Values are unsigned integers of 64 bits, or None where they are not known: they come from the data
of a kernel, from vectors, or from an instruction that has no rule here. What an instruction makes
of unknown values is unknown.

Source of the instructions: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual",
volume 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

Value = int | None

Lanes = tuple[Value, ...]
UNKNOWN_LANES: Lanes = (None,) * 16
_PIECE = 32
_HALF = (1 << _PIECE) - 1
_NAMES = ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp")
_COMMA = re.compile(r",\s*(?![^(]*\))")
_MEMORY = re.compile(
    r"^(?:%[c-gs]s:)?(?P<offset>-?(?:0x)?[0-9a-f]+)?"
    r"\((?P<base>%\w+)?(?:,(?P<index>%\w+),(?P<scale>[1248]))?\)$"
)
_IMMEDIATE = re.compile(r"^\$(-?(?:0x)?[0-9a-f]+)$")
_BITS = {"b": 8, "w": 16, "l": 32, "q": 64}
_WIDE = (1 << 64) - 1


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
    """Constants of an object file, by address.

    Parameters
    ----------
    sections : Mapping from int to bytes
        Contents by the address at which they begin.
    """

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
    """Record of the effects of instructions, in order.

    Attributes
    ----------
    written : list of (int, int, int or None)
        Address, bits and value of what was written to memory.
    loaded : list of (int, int, int)
        The same of what was loaded and known.
    stepped : list of (int or None, tuple)
        Operands of instructions whose results grow by steps, and by how many bits these shift them
        to the right, if they do.
    decided : list of (str, Flags or None)
        Conditions of moves, and flags that decided them.
    """

    written: list[tuple[int, int, Value]] = field(default_factory=list[tuple[int, int, Value]])
    loaded: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    stepped: list[tuple[int | None, tuple[Value, ...]]] = field(
        default_factory=list[tuple[int | None, tuple[Value, ...]]]
    )
    decided: list[tuple[str, Flags | None]] = field(default_factory=list[tuple[str, Flags | None]])


@dataclass(slots=True)
class Machine:
    """State of a processor.

    Attributes
    ----------
    registers : list of int or None
        Of 64 bits, 16 of them.
    low : list of int or None
        The lowest 8 bits of registers of which no more is known.
    vectors : list of tuple of int or None
        Vector registers, each as 16 integers of 32 bits.
    masks : list of (int, int)
        Mask registers: their bits, and which of them are known; unknown ones are 0.
    memory : dict from int to (int or None, int)
        Integers in memory, by address, with their bits, at most 32.
    constants : Constants
        What memory has besides.
    arrays : list of (int, int, ArrayData)
        Arrays whose contents are known: where they begin and end, and what they hold.
    flags : Flags or None
        None if they are not known.
    has_bytes : bool
        Whether memory has integers of 8 bits.
    stored : int
        How often an integer that is known was written to memory.
    quotient : tuple of int or None
        What a function that divides is about to return.
    journal : Journal
        What instructions did since it was begun.
    accessed : dict from int to int
        Where instructions that were asked to note it accessed memory, by their number.
    """

    registers: list[Value] = field(default_factory=lambda: [None] * 16)
    low: list[Value] = field(default_factory=lambda: [None] * 16)
    vectors: list[Lanes] = field(default_factory=lambda: [UNKNOWN_LANES] * 32)
    masks: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)] * 8)
    memory: dict[int, tuple[Value, int]] = field(default_factory=dict[int, tuple[Value, int]])
    constants: Constants = field(default_factory=lambda: Constants({}))
    arrays: list[tuple[int, int, ArrayData]] = field(
        default_factory=list[tuple[int, int, ArrayData]]
    )
    flags: Flags | None = None
    has_bytes: bool = False
    stored: int = 0
    quotient: Lanes = UNKNOWN_LANES
    journal: Journal = field(default_factory=Journal)
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


Action = Callable[[Machine], None]
Condition = Callable[[Machine], "bool | None"]
Read = Callable[[Machine], Value]
Write = Callable[[Machine, Value], None]


# {{{ operands


def operands_of(text: str) -> list[str]:
    """Split the operands of an instruction."""
    return _COMMA.split(text) if text else []


def _immediate(text: str, bits: int) -> Value:
    found = _IMMEDIATE.match(text)
    return None if found is None else int(found[1], 0) & ((1 << bits) - 1)


def address_of(text: str) -> Read | None:
    """Return what computes the address of an operand in memory; None if it is none."""
    found = _MEMORY.match(text)
    if found is None:
        return None
    offset = int(found["offset"] or "0", 0)
    base, index = (REGISTERS.get(found[name] or "") for name in ("base", "index"))
    scale = int(found["scale"] or 1)
    if (found["base"] and base is None) or (found["index"] and index is None):
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

    def indexed(machine: Machine) -> Value:
        value = machine.registers[other]
        start = 0 if first is None else machine.registers[first]
        if value is None or start is None:
            return None
        return (start + value * scale + offset) & _WIDE

    return indexed


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
    constant = _immediate(text, bits)
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
    """Return the bits of operands, from registers or from what the name ends with.

    Parameters
    ----------
    name : str
        The mnemonic.
    parts : list of str
        The operands.
    """
    for text in reversed(parts):
        if text in REGISTERS:
            return REGISTERS[text].bits
    return _BITS.get(name[-1], 64)


def signed(value: int, bits: int) -> int:
    """Return a value as a number in two's complement."""
    return value - (1 << bits) if value >> (bits - 1) else value


# }}}

# {{{ conditions


def _below(f: Flags) -> bool:
    if f.kind in ("sub", "mask"):
        return f.first < f.second
    if f.kind == "exact":
        return bool(f.first)
    return f.kind == "add" and f.result < f.first


def _less(f: Flags) -> bool:
    if f.kind == "sub":
        return signed(f.first, f.bits) < signed(f.second, f.bits)
    if f.kind == "add":
        return signed(f.first, f.bits) + signed(f.second, f.bits) < 0
    is_negative = bool(f.result >> (f.bits - 1))
    return is_negative != bool(f.second) if f.kind == "exact" else is_negative


def _overflow(f: Flags) -> bool:
    return _less(f) != bool(f.result >> (f.bits - 1))


_CONDITIONS: Mapping[str, Callable[[Flags], bool]] = {
    "e": lambda f: f.result == 0,
    "b": _below,
    "be": lambda f: _below(f) or f.result == 0,
    "l": _less,
    "le": lambda f: _less(f) or f.result == 0,
    "s": lambda f: bool(f.result >> (f.bits - 1)),
    "o": _overflow,
    "p": lambda f: (f.result & 0xFF).bit_count() % 2 == 0,
}
_ALIASES = {
    "z": "e",
    "c": "b",
    "nae": "b",
    "na": "be",
    "nge": "l",
    "ng": "le",
    "pe": "p",
    "nz": "ne",
    "nb": "ae",
    "nc": "ae",
    "nbe": "a",
    "nl": "ge",
    "nle": "g",
    "po": "np",
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
    suffix = _ALIASES.get(suffix, suffix)
    is_opposite = suffix in _OPPOSITE
    test = _CONDITIONS.get(_OPPOSITE.get(suffix, suffix))
    if test is None:
        return None

    def decide(machine: Machine) -> bool | None:
        flags = machine.flags
        return None if flags is None else test(flags) != is_opposite

    return decide


# }}}

# {{{ instructions

_BINARY: Mapping[str, tuple[str, Callable[[int, int, int], int]]] = {
    "add": ("add", lambda a, b, _bits: a + b),
    "sub": ("sub", lambda a, b, _bits: a - b),
    "and": ("logic", lambda a, b, _bits: a & b),
    "or": ("logic", lambda a, b, _bits: a | b),
    "xor": ("logic", lambda a, b, _bits: a ^ b),
    "shl": ("logic", lambda a, b, bits: a << (b & (63 if bits == 64 else 31))),
    "sal": ("logic", lambda a, b, bits: a << (b & (63 if bits == 64 else 31))),
    "shr": ("logic", lambda a, b, bits: a >> (b & (63 if bits == 64 else 31))),
    "sar": ("logic", lambda a, b, bits: signed(a, bits) >> (b & (63 if bits == 64 else 31))),
    "rol": ("logic", lambda a, b, bits: a << (b % bits) | a >> (-b % bits)),
    "ror": ("logic", lambda a, b, bits: a >> (b % bits) | a << (-b % bits)),
}
_SHIFTS = ("shl", "sal", "shr", "sar", "rol", "ror")
_UNARY: Mapping[str, Callable[[int], tuple[str, int, int]]] = {
    "inc": lambda a: ("add", a, 1),
    "dec": lambda a: ("sub", a, 1),
    "neg": lambda a: ("sub", 0, a),
}
_THREE: Mapping[str, Callable[[int, int, int], int]] = {
    # operands as written: the first, the second, bits
    "shlx": lambda count, a, bits: a << (count & (bits - 1)),
    "shrx": lambda count, a, bits: a >> (count & (bits - 1)),
    "sarx": lambda count, a, bits: signed(a, bits) >> (count & (bits - 1)),
    "rorx": lambda count, a, bits: a >> (count % bits) | a << (-count % bits),
    "andn": lambda a, b, _bits: a & ~b,
    "bzhi": lambda index, a, bits: a & ((1 << min(index & 0xFF, bits)) - 1),
    "imul": lambda a, b, _bits: a * b,
}
_BIT_COUNTS: Mapping[str, Callable[[int, int], int]] = {
    "tzcnt": lambda a, bits: (a & -a).bit_length() - 1 if a else bits,
    "lzcnt": lambda a, bits: bits - a.bit_length(),
    "popcnt": lambda a, _bits: a.bit_count(),
    "blsr": lambda a, _bits: a & (a - 1) if a else 0,
    "blsi": lambda a, _bits: a & -a,
}
_PAIRS = ("mul", "imul", "div", "idiv")
_WIDENING = re.compile(r"^mov([sz])([bwl])([wlq])$")
_MOVE = re.compile(r"^mov(?:abs)?[bwlq]?$")
_NOTHING = re.compile(r"^(?:nop|endbr|prefetch|[lms]fence|vzero|data16)")
_KEEPS_FLAGS = re.compile(
    r"^(?:mov|lea|push|pop|call|ret|leave|nop|endbr|set|cmov|j|prefetch|v|k|shlx|shrx|sarx|rorx|mulx"
    r"|bswap|xchg|cqt|clt|cwt|cqo|cdq|not|vzero|data16|lfence|mfence|sfence|cbw|cwde)"
)
SETS_UNKNOWN_FLAGS = re.compile(r"^v?u?comis[sd]")
_TESTS_VECTORS = re.compile(r"^(?:k(?:or)?test|v?ptest$|vtestp)")


def action_of(mnemonic: str, operands: str) -> Action | None:
    """Return what an instruction does to the state; None if nothing.

    Branches and calls are left to whoever follows the control flow.

    Parameters
    ----------
    mnemonic, operands : str
        As ``objdump`` writes them, in AT&T's syntax.
    """
    parts = operands_of(operands)
    if SETS_UNKNOWN_FLAGS.match(mnemonic) or _TESTS_VECTORS.match(mnemonic):
        return _forget_flags
    if mnemonic[0] in "vk" or "mm" in operands:
        return _from_vector(parts)
    if _NOTHING.match(mnemonic) or (mnemonic.startswith("xchg") and len(set(parts)) == 1):
        return None
    special = _special(mnemonic, parts)
    if special is not None:
        return special
    name = mnemonic
    plain = (_BINARY, _UNARY, _THREE, _BIT_COUNTS, _PAIRS)
    if not any(name in each for each in plain) and name != "bt" and name[-1] in _BITS:
        name = mnemonic[:-1]
    bits = width_of(mnemonic, parts[-1:] if name in _SHIFTS else parts)
    if len(parts) == 3 and name in _THREE:
        return _three(name, parts, bits)
    if name == "imul" and len(parts) == 2:
        return _three(name, [*parts, parts[1]], bits)
    if name in _BINARY and parts:
        return _binary(name, parts if len(parts) == 2 else ["$1", *parts], bits)
    if name in ("cmp", "test") and len(parts) == 2:
        return _comparison(name, parts, bits)
    if name in _BIT_COUNTS and len(parts) == 2:
        return _bit_count(name, parts, bits)
    if name == "bt" and len(parts) == 2 and "(" not in parts[1]:
        return _bit_test(parts, bits)
    if name in _UNARY and len(parts) == 1:
        return _unary(name, parts[0], bits)
    if name == "not" and len(parts) == 1:
        return _not(parts[0], bits)
    if name in _PAIRS and len(parts) == 1:
        return _pair(name, parts[0], bits)
    return _forget(parts, keeps_flags=_KEEPS_FLAGS.match(mnemonic) is not None)


def _special(mnemonic: str, parts: list[str]) -> Action | None:
    """Return what moves, widens, computes addresses, pushes or depends on conditions."""
    widening = _WIDENING.match(mnemonic)
    if widening:
        low, high = _BITS[widening[2]], _BITS[widening[3]]
        return _move(parts, low, high, is_signed=widening[1] == "s")
    if _MOVE.match(mnemonic) and len(parts) == 2:
        bits = width_of(mnemonic, parts)
        return _move(parts, bits, bits)
    if mnemonic in ("cltq", "cdqe"):
        return _move(["%eax", "%rax"], 32, 64, is_signed=True)
    if mnemonic in ("cltd", "cqto"):
        bits = 32 if mnemonic == "cltd" else 64
        return _sign(bits)
    if mnemonic.startswith("lea") and mnemonic != "leave" and len(parts) == 2:
        return _lea(parts)
    if mnemonic.startswith("push") and parts:
        return _push(parts[0])
    if mnemonic.startswith("pop") and mnemonic[3:] in ("", "q") and parts:
        return _pop(parts[0])
    if mnemonic.startswith("cmov") and len(parts) == 2:
        return _conditional(mnemonic.removeprefix("cmov"), parts)
    if mnemonic.startswith("set") and parts:
        return _set(mnemonic.removeprefix("set"), parts[0])
    return None


def _forget_flags(machine: Machine) -> None:
    machine.flags = None


def _from_vector(parts: list[str]) -> Action | None:
    if not parts:
        return None
    target = parts[-1]
    if target in REGISTERS:
        write = writer(target, max(32, REGISTERS[target].bits))
        return lambda machine: write(machine, None)
    return None


def _move(parts: list[str], low: int, high: int, *, is_signed: bool = False) -> Action:
    read, write = reader(parts[0], low), writer(parts[1], high)
    if not is_signed or low == high:
        source, target = REGISTERS.get(parts[0]), REGISTERS.get(parts[1])
        if source is None or target is None or low < 32:
            return lambda machine: write(machine, read(machine))

        def copy(machine: Machine) -> None:
            value, part = read(machine), machine.low[source.number]
            write(machine, value)
            machine.low[target.number] = part if value is None else None

        return copy
    mask = (1 << high) - 1

    def widen(machine: Machine) -> None:
        value = read(machine)
        write(machine, None if value is None else signed(value, low) & mask)

    return widen


def _sign(bits: int) -> Action:
    read = reader("%rax", bits)
    write = writer("%rdx", bits)

    def extend(machine: Machine) -> None:
        value = read(machine)
        write(machine, None if value is None else (-(value >> (bits - 1))) & ((1 << bits) - 1))

    return extend


def _lea(parts: list[str]) -> Action:
    address = address_of(parts[0])
    bits = REGISTERS[parts[1]].bits if parts[1] in REGISTERS else 64
    write, mask = writer(parts[1], bits), (1 << bits) - 1
    if address is None:
        return lambda machine: write(machine, None)

    def compute(machine: Machine) -> None:
        value = address(machine)
        write(machine, None if value is None else value & mask)

    return compute


def _push(text: str) -> Action:
    read = reader(text, 64)

    def push(machine: Machine) -> None:
        value, top = read(machine), machine.registers[STACK_POINTER]
        if top is not None:
            machine.registers[STACK_POINTER] = top - 8
            machine.store(top - 8, 64, value)

    return push


def _pop(text: str) -> Action:
    write = writer(text, 64)

    def pop(machine: Machine) -> None:
        top = machine.registers[STACK_POINTER]
        if top is not None:
            write(machine, machine.load(top, 64))
            machine.registers[STACK_POINTER] = top + 8

    return pop


def _conditional(suffix: str, parts: list[str]) -> Action:
    decide = condition_of(suffix)
    if decide is None and suffix[-1:] in _BITS:
        decide = condition_of(suffix[:-1])
    bits = width_of("", parts)
    read, keep, write = reader(parts[0], bits), reader(parts[1], bits), writer(parts[1], bits)

    def move(machine: Machine) -> None:
        is_so = None if decide is None else decide(machine)
        new, old = read(machine), keep(machine)
        if is_so is None:
            write(machine, new if new == old else None)
        else:
            write(machine, new if is_so else old)

    return move


def _set(suffix: str, text: str) -> Action:
    decide = condition_of(suffix)
    write = writer(text, 8)

    def put(machine: Machine) -> None:
        is_so = None if decide is None else decide(machine)
        write(machine, None if is_so is None else int(is_so))

    return put


def _binary(name: str, parts: list[str], bits: int) -> Action:
    kind, compute = _BINARY[name]
    read = reader(parts[0], 8 if name in _SHIFTS else bits)
    keep, write = reader(parts[1], bits), writer(parts[1], bits)
    mask, shifts = (1 << bits) - 1, name in _SHIFTS
    is_zero = name in ("xor", "sub") and parts[0] == parts[1]

    def operate(machine: Machine) -> None:
        if is_zero:
            write(machine, 0)
            machine.flags = Flags(kind, 0, 0, 0, bits)
            return
        second, first = read(machine), keep(machine)
        if first is None and name == "and":
            first = _low_part(machine, parts[1], second)
        if first is None or second is None:
            write(machine, None)
            machine.flags = None
            return
        result = compute(first, second, bits) & mask
        write(machine, result)
        if shifts:
            machine.flags = _flags_of_shift(name, machine.flags, first, second, result, bits)
        else:
            machine.flags = Flags(kind, first, second, result, bits)

    return operate


def _flags_of_shift(
    name: str, before: Flags | None, value: int, count: int, result: int, bits: int
) -> Flags | None:
    """Return the flags that a shift leaves: those of before if it shifts by nothing.

    Rotations leave all flags but carry and overflow as they were: what they leave is not known.
    """
    count &= 63 if bits == 64 else 31
    if not count:
        return before
    if name in ("rol", "ror"):
        return None
    top = bits - 1
    if name in ("shl", "sal"):
        carry = value >> (bits - count) & 1 if count <= bits else 0
        overflow = result >> top ^ carry
    elif name == "shr":
        carry, overflow = value >> (count - 1) & 1, value >> top
    else:
        carry, overflow = signed(value, bits) >> (count - 1) & 1, 0
    return Flags("exact", carry, overflow, result, bits)


def _low_part(machine: Machine, text: str, mask: Value) -> Value:
    """Return the low bits of a register of which no more is known, if a mask leaves no others."""
    register = REGISTERS.get(text)
    if register is None or mask is None or mask > 0xFF or register.shift:
        return None
    return machine.low[register.number]


def _three(name: str, parts: list[str], bits: int) -> Action:
    compute, mask = _THREE[name], (1 << bits) - 1
    first, second, write = (
        reader(parts[0], bits),
        reader(parts[1], bits),
        writer(parts[2], bits),
    )
    sets_flags, is_product, top = name in ("andn", "bzhi", "imul"), name == "imul", 1 << bits - 1

    def operate(machine: Machine) -> None:
        one, other = first(machine), second(machine)
        result = None if one is None or other is None else compute(one, other, bits) & mask
        write(machine, result)
        if sets_flags:
            overflows = 0
            if is_product and one is not None and other is not None:
                exact = signed(one, bits) * signed(other, bits)
                overflows = int(not -top <= exact < top)
            machine.flags = (
                None if result is None else Flags("exact", overflows, overflows, result, bits)
            )

    return operate


def _comparison(name: str, parts: list[str], bits: int) -> Action:
    second, first = reader(parts[0], bits), reader(parts[1], bits)
    mask = (1 << bits) - 1

    def compare(machine: Machine) -> None:
        one, other = first(machine), second(machine)
        if one is None and name == "test":
            one = _low_part(machine, parts[1], other)
        if one is None or other is None:
            machine.flags = None
        elif name == "cmp":
            machine.flags = Flags("sub", one, other, (one - other) & mask, bits)
        else:
            machine.flags = Flags("logic", one, other, one & other, bits)

    return compare


def _bit_count(name: str, parts: list[str], bits: int) -> Action:
    compute, read, write = _BIT_COUNTS[name], reader(parts[0], bits), writer(parts[1], bits)

    def operate(machine: Machine) -> None:
        value = read(machine)
        machine.flags = None
        if value is None:
            write(machine, None)
            return
        result = compute(value, bits)
        write(machine, result)
        carries = name != "popcnt" and (value == 0) != (name == "blsi")
        machine.flags = Flags("mask", int(not carries), int(carries), result, bits)

    return operate


def _bit_test(parts: list[str], bits: int) -> Action:
    """Set the carry; other flags, which stay as they were, are taken for those of a result of 1."""
    read_place = reader(parts[0], bits if parts[0] in REGISTERS else 8)
    read = reader(parts[1], bits)

    def test(machine: Machine) -> None:
        place, value = read_place(machine), read(machine)
        machine.flags = None
        if place is not None and value is not None:
            carry = value >> (place % bits) & 1
            machine.flags = Flags("mask", 1 - carry, carry, 1, bits)

    return test


def _unary(name: str, text: str, bits: int) -> Action:
    compute, mask = _UNARY[name], (1 << bits) - 1
    read, write = reader(text, bits), writer(text, bits)

    def operate(machine: Machine) -> None:
        value = read(machine)
        if value is None:
            write(machine, None)
            machine.flags = None
            return
        kind, first, second = compute(value)
        result = (first + second if kind == "add" else first - second) & mask
        write(machine, result)
        machine.flags = Flags(kind, first, second, result, bits)

    return operate


def _not(text: str, bits: int) -> Action:
    read, write, mask = reader(text, bits), writer(text, bits), (1 << bits) - 1

    def operate(machine: Machine) -> None:
        value = read(machine)
        write(machine, None if value is None else ~value & mask)

    return operate


def _pair(name: str, text: str, bits: int) -> Action:
    """Products and quotients of which one operand is in two registers."""
    read, low, high = reader(text, bits), reader("%rax", bits), reader("%rdx", bits)
    write_low, write_high = writer("%rax", bits), writer("%rdx", bits)
    mask = (1 << bits) - 1
    is_signed = name.startswith("i")
    lowest, highest = (-(1 << bits - 1), mask >> 1) if is_signed else (0, mask)

    def operate(machine: Machine) -> None:
        operand, first, second = read(machine), low(machine), high(machine)
        machine.flags = None
        results: tuple[Value, Value] = (None, None)
        if operand is not None and first is not None:
            if name.endswith("mul"):
                one, other = (signed(v, bits) if is_signed else v for v in (operand, first))
                product = one * other
                results = (product, product >> bits)
                overflows = int(not lowest <= product <= highest)
                machine.flags = Flags("exact", overflows, overflows, product & mask, bits)
            elif second is not None and operand:
                whole = second << bits | first
                whole = signed(whole, 2 * bits) if is_signed else whole
                by = signed(operand, bits) if is_signed else operand
                quotient = abs(whole) // abs(by) * (1 if (whole < 0) == (by < 0) else -1)
                results = (quotient, whole - quotient * by)
        write_low(machine, None if results[0] is None else results[0] & mask)
        write_high(machine, None if results[1] is None else results[1] & mask)

    return operate


def _forget(parts: list[str], *, keeps_flags: bool) -> Action | None:
    """Return what makes the results unknown of an instruction that has no rule."""
    known = [REGISTERS[part] for part in parts[-1:] if part in REGISTERS]
    writes = [writer(parts[-1], register.bits) for register in known]
    if not writes and keeps_flags:
        return None

    def forget(machine: Machine) -> None:
        for write in writes:
            write(machine, None)
        if not keeps_flags:
            machine.flags = None

    return forget


# }}}
