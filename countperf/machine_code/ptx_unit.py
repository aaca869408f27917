"""PTX executed for the 32 work items of a sub-group at once, as far as its branches need it.

Registers hold bits; an instruction says how to read them. Numbers that are loaded from memory, and
real arguments, are taken to be normal ones between 1/2 and 4, another one in each work item. Whole
numbers from memory, and addresses, are data that nobody knows.

Source: NVIDIA, "PTX ISA", chapter 9.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from countperf.machine_code.sass_instruction import LANES, UNKNOWN, Bits, Lanes, merged

_Values = npt.NDArray[Any]

SAMPLES = 0.5 * 8.0 ** (np.arange(LANES) * 11 % LANES / LANES)
"""Values that loads of real numbers return."""

_CONTROL = {"bra": "BRA", "ret": "EXIT", "exit": "EXIT", "call": "CALL", "brx": "BRX"}
_NUMBER = re.compile(r"-?(?:0x[0-9A-Fa-f]+|\d+)U?$")
_ONE = np.uint64(1)
_COMPARISONS: Mapping[str, Callable[[_Values, _Values], _Values]] = {
    **{"eq": np.equal, "ne": np.not_equal},
    **{"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal},
    **{"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal},
}
_FUNCTIONS: Mapping[str, Callable[[_Values], _Values]] = {
    **{"rcp": np.reciprocal, "sqrt": np.sqrt, "ex2": np.exp2, "lg2": np.log2, "sin": np.sin},
    **{"cos": np.cos, "tanh": np.tanh, "rsqrt": lambda a: 1 / np.sqrt(a)},
}
_LOGIC: Mapping[str, Callable[[_Values, _Values], _Values]] = {
    **{"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor},
    **{"min": np.minimum, "max": np.maximum, "add": np.add, "sub": np.subtract},
}
_ROUNDINGS = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxInstruction:
    """An instruction of PTX."""

    name: str  # its class; empty if it is free
    opcode: str
    operands: tuple[str, ...] = ()
    guard: str = ""  # the predicate that guards it, ``!%p1`` for its inverse
    target: int | None = None  # place of the instruction that a branch names
    results: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()  # registers, but for its guard

    @property
    def base(self) -> str:
        """Its name without modifiers; control has the names of machine code."""
        head = self.opcode.split(".")[0]
        return _CONTROL.get(head, head)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The predicate that has to be true, if there is one."""
        return (self.guard,) if self.guard else ()


def numpy_type(name: str) -> np.dtype[Any] | None:
    """Return NumPy's type of a PTX type; None for packed and unusual ones."""
    if name == "pred":
        return np.dtype(np.uint8)
    match = re.fullmatch(r"([fsub])(8|16|32|64)", name)
    if match is None or match[0] == "f8":
        return None
    letter = {"s": "i", "b": "u"}.get(match[1], match[1])
    return np.dtype(f"{letter}{int(match[2]) // 8}")


class PtxState:
    """Registers of a sub-group, and what it is launched with."""

    def __init__(
        self, arguments: Mapping[str, np.generic], special: Mapping[str, Lanes | int]
    ) -> None:
        self.arguments = arguments
        self.bits: dict[str, npt.NDArray[np.uint64]] = {}
        self.lost: dict[str, Lanes] = {}
        self.unfollowed: list[str] = []
        for name, value in special.items():
            self.write(name, np.full(LANES, value, dtype=np.int64), np.zeros(LANES, np.int64), True)

    def read(self, name: str) -> Lanes:
        """Return a predicate: 0, 1, or below 0 if it is not known."""
        plain = name.lstrip("!")
        value, lost = self.value(plain)
        held = (value & _ONE).astype(np.int64)
        return np.where(lost < 0, lost, 1 - held if name.startswith("!") else held)

    def value(self, operand: str) -> tuple[npt.NDArray[np.uint64], Lanes]:
        """Return the bits of an operand, and in which lanes they are not known."""
        known = np.zeros(LANES, np.int64)
        if operand.startswith("{"):
            return self._packed(operand)
        if operand.startswith(("0f", "0d")):
            return np.full(LANES, int(operand[2:], 16), np.uint64), known
        if _NUMBER.match(operand):
            return np.full(LANES, int(operand.rstrip("U"), 0) & 2**64 - 1, np.uint64), known
        if operand in self.bits:
            return self.bits[operand], self.lost[operand]
        return np.zeros(LANES, np.uint64), known + UNKNOWN

    def _packed(self, operand: str) -> tuple[npt.NDArray[np.uint64], Lanes]:
        names = parts_of(operand)
        packed, lost = np.zeros(LANES, np.uint64), np.zeros(LANES, np.int64)
        for position, name in enumerate(names):
            value, gone = self.value(name)
            packed = packed | value << np.uint64(64 // len(names) * position)
            lost = np.minimum(lost, gone)
        return packed, lost

    def write(self, name: str, value: _Values, lost: Lanes, active: Bits | bool) -> None:
        """Write a register in some lanes."""
        size = value.dtype.itemsize
        raw = np.ascontiguousarray(value).view(f"u{size}").astype(np.uint64)
        old, gone = self.value(name)
        self.bits[name] = np.where(active, raw, old)
        self.lost[name] = np.where(active, lost, gone)

    def not_followed(self, name: str) -> int:
        """Return the mark of values that an instruction makes that is not followed."""
        if name not in self.unfollowed:
            self.unfollowed.append(name)
        return UNKNOWN - 1 - self.unfollowed.index(name)

    def name_of(self, value: int) -> str:
        """Return what is not followed; empty for a value that is known or data."""
        return self.unfollowed[UNKNOWN - 1 - value] if value < UNKNOWN else ""


def parts_of(operand: str) -> list[str]:
    """Return the registers of a vector; ``_`` is none."""
    return [part.strip() for part in operand.strip("{}").split(",")]


def execute_ptx(opcode: str, operands: Sequence[str], state: PtxState, active: Bits) -> None:
    """Execute an instruction in the lanes that are active."""
    head, *modifiers = opcode.split(".")
    types = [operand for operand in (numpy_type(part) for part in modifiers) if operand is not None]
    targets = parts_of(operands[0]) if operands[0].startswith("{") else operands[0].split("|")
    if head in ("ld", "ldu"):
        _load(modifiers, types, operands[1], targets, state, active)
        return
    inputs = [state.value(operand) for operand in operands[1:]]
    lost = merged([gone for _, gone in inputs])
    if operands[0].startswith("{"):  # a value is taken apart
        size = 64 // len(targets) if modifiers[-1] == "b64" else 32 // len(targets)
        for position, name in enumerate(targets):
            part = inputs[0][0] >> np.uint64(size * position) & np.uint64(2**size - 1)
            state.write(name, part, lost, active)
        return
    with np.errstate(all="ignore"):
        result = _result(head, modifiers, types, [bits for bits, _ in inputs]) if types else None
    if result is None:
        result = np.zeros(LANES, np.uint64)
        lost = merged([lost, np.full(LANES, state.not_followed(opcode))])
    if head in ("and", "or") and types[-1:] == [np.dtype(np.uint8)]:  # one decides alone
        decisive = np.uint64(0 if head == "and" else 1)
        decided = np.any([(b & _ONE == decisive) & (gone == 0) for b, gone in inputs], axis=0)
        lost = np.where(decided, 0, lost)
        result = np.where(decided, decisive, result)
    state.write(targets[0], result, lost, active)
    if len(targets) > 1:
        state.write(targets[1], 1 - result, lost, active)


def _load(
    modifiers: Sequence[str],
    types: Sequence[np.dtype[Any]],
    address: str,
    targets: Sequence[str],
    state: PtxState,
    active: Bits,
) -> None:
    kind = types[-1] if types else np.dtype(np.uint64)
    lost = np.full(LANES, UNKNOWN)
    value: _Values = np.zeros(LANES, kind)
    argument = state.arguments.get(address.strip("[]")) if "param" in modifiers else None
    if argument is not None and argument.dtype.kind in "iub":
        value, lost = np.full(LANES, argument).astype(kind), np.zeros(LANES, np.int64)
    elif kind.kind == "f":
        value, lost = SAMPLES.astype(kind), np.zeros(LANES, np.int64)
    for name in targets:
        state.write(name, value, lost, active)


def _typed(bits: npt.NDArray[np.uint64], kind: np.dtype[Any]) -> _Values:
    return bits.astype(f"u{kind.itemsize}").view(kind)


def _result(
    head: str,
    modifiers: Sequence[str],
    types: Sequence[np.dtype[Any]],
    inputs: Sequence[npt.NDArray[np.uint64]],
) -> _Values | None:
    """Return what an instruction makes; None if it is not followed."""
    kind = types[-1]
    if head == "cvt":
        return _converted(modifiers, types[0], _typed(inputs[0], kind))
    if head == "selp":
        return np.where(inputs[2] & _ONE, inputs[0], inputs[1])
    a, *rest = [_typed(bits, kind) for bits in inputs]
    if head in ("mov", "cvta"):
        return a
    if head == "setp":
        return _compared(modifiers, a, rest[0], inputs[2:])
    if head in ("shl", "shr"):
        return _shifted(head, a, inputs[1])
    if head in _LOGIC:
        return _LOGIC[head](a, rest[0])
    if head in ("mul", "mad"):
        return _multiplied(modifiers, a, rest[0], inputs[2:])
    match head:
        case "fma":
            return a * rest[0] + rest[1]
        case "div":
            return a / rest[0] if kind.kind == "f" else _quotient(a, rest[0])
        case "rem":
            return a - rest[0] * _quotient(a, rest[0])
        case "neg":
            return -a
        case "abs":
            return np.abs(a)
        case "not":
            return 1 - a if "pred" in modifiers else ~a
        case _:
            pass
    function = _FUNCTIONS.get(head)
    return None if function is None or kind.kind != "f" else function(a).astype(kind)


def _shifted(head: str, value: _Values, by: npt.NDArray[np.uint64]) -> _Values:
    kind = value.dtype
    places = np.minimum(by & np.uint64(2**32 - 1), np.uint64(63))
    if head == "shr":
        places = np.minimum(places, np.uint64(8 * kind.itemsize - (kind.kind == "i")))
    wide = value.astype(np.int64 if kind.kind == "i" else np.uint64)
    moved = (
        wide << places.astype(wide.dtype) if head == "shl" else wide >> places.astype(wide.dtype)
    )
    return np.where(by >= np.uint64(64), moved if head == "shr" else 0, moved).astype(kind)


def _multiplied(
    modifiers: Sequence[str], a: _Values, b: _Values, added: Sequence[npt.NDArray[np.uint64]]
) -> _Values:
    if "hi" in modifiers:
        size = 8 * a.dtype.itemsize
        products = [int(x) * int(y) >> size & 2**64 - 1 for x, y in zip(a, b, strict=True)]
        multiplied = np.array(products, dtype=np.uint64).astype(a.dtype)
    else:
        size = (2 if "wide" in modifiers else 1) * a.dtype.itemsize
        wide = np.dtype(f"{a.dtype.kind}{size}")
        multiplied = a.astype(wide) * b.astype(wide)
    return multiplied + _typed(added[0], multiplied.dtype) if added else multiplied


def _quotient(a: _Values, b: _Values) -> _Values:
    divisor = np.where(b == 0, b.dtype.type(1), b)
    quotient = a // divisor
    return np.where((quotient < 0) & (quotient * divisor != a), quotient + 1, quotient).astype(
        a.dtype
    )


def _compared(
    modifiers: Sequence[str], a: _Values, b: _Values, more: Sequence[npt.NDArray[np.uint64]]
) -> _Values | None:
    name = modifiers[0]
    either = np.isnan(a) | np.isnan(b) if a.dtype.kind == "f" else np.zeros(LANES, bool)
    if name in ("num", "nan"):
        outcome = either if name == "nan" else ~either
    elif name in _COMPARISONS:
        outcome = _COMPARISONS[name](a, b) & ~either
    else:  # unordered: true where one is no number
        outcome = _COMPARISONS[name.removesuffix("u")](a, b) | either
    compared = outcome.astype(np.uint8)
    if more:
        operation = next((name for name in ("and", "or", "xor") if name in modifiers), None)
        if operation is None:
            return None
        compared = _LOGIC[operation](compared, (more[0] & _ONE).astype(np.uint8))
    return compared


def _converted(modifiers: Sequence[str], kind: np.dtype[Any], value: _Values) -> _Values | None:
    rounding = next(
        (_ROUNDINGS[modifier] for modifier in modifiers if modifier in _ROUNDINGS), None
    )
    converted = value if rounding is None or value.dtype.kind != "f" else rounding(value)
    if kind.kind in "iu" and value.dtype.kind == "f":
        limits = np.iinfo(kind)
        # the largest number of 64 bits is none of f64
        most = limits.max if kind.itemsize < 8 else np.nextafter(float(limits.max), 0)
        converted = np.clip(np.nan_to_num(converted.astype(np.float64)), limits.min, most)
    return converted.astype(kind)
