"""What single instructions of NVIDIA's machine code do to the registers of a sub-group.

A value is an array of 32 integers: 32 bits each, unsigned; ``UNKNOWN`` in lanes where it comes from
data, and below it where it comes from an instruction that is not followed, though no data decides
it. Maxwell's and Volta's to Blackwell's instructions are followed as far as trip counts and guards
of Loopy's kernels need them.

Source of the names: NVIDIA, "CUDA Binary Utilities", section "Instruction Set Reference".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from countperf.machine_code.sass_instruction import (
    PREDICATES,
    SassInstruction,
    next_register,
)

Lanes: TypeAlias = npt.NDArray[np.int64]
Bits: TypeAlias = npt.NDArray[np.bool_]
LANES = 32
UNKNOWN = -1
Results: TypeAlias = "Lanes | Mapping[str, Lanes] | None"
"""Value of the first operand, values of registers by name, or None if it is not followed."""
Handler: TypeAlias = "Callable[[SassInstruction, WarpState], Results]"
MASK = 0xFFFF_FFFF
_OPERAND = re.compile(
    r"^(?P<sign>[-~!]?)\|?(?:(?P<constant>c\s*\[0x0\]\s*\[(?P<place>\w+)\])|(?P<name>U?[RP](?:\d+|Z|T)"
    r"|SR_\w+(?:\.\w)?|SRZ))\|?(?P<rest>(?:\.\w+)*)$"
)
_FIXED = {"RZ": 0, "URZ": 0, "SRZ": 0, "PT": 1, "UPT": 1}
"""Registers with a constant content, and that content."""

_LOWEST = np.iinfo(np.int64).min
_OTHER_BANK = re.compile(r"^-?\|?c\s*\[(?!0x0\])")
_NUMBER = re.compile(r"^-?(?:0x[0-9a-f]+|\d+)$")


_UNKNOWN: Lanes = np.full(LANES, UNKNOWN, dtype=np.int64)


def lanes_of(value: int) -> Lanes:
    """Return the same value in all lanes."""
    return np.full(LANES, value & MASK, dtype=np.int64)


@dataclass(slots=True)
class WarpState:
    """Registers of a sub-group, and what it is launched with."""

    # words of 32 bits of constant bank 0 by their places: sizes; None: data, such as addresses
    constants: Mapping[int, int | None]
    special: Mapping[str, Lanes]  # ``SR_TID.X`` and so on
    # registers and predicates that were written; no code depends on what others hold
    registers: dict[str, Lanes] = field(default_factory=dict[str, Lanes])
    # instructions and operands, by how far the values that they make are below ``UNKNOWN``
    unfollowed: list[str] = field(default_factory=list[str])

    def read(self, operand: str) -> Lanes:
        """Return the value of an operand; not followed if it is of no known form."""
        match = _OPERAND.match(operand)
        if match is None:
            if _NUMBER.match(operand):
                return lanes_of(int(operand, 0))
            is_data = _OTHER_BANK.match(operand) is not None
            return _UNKNOWN if is_data else self.make_opaque_lanes(operand)
        if match["constant"]:
            value = self._constant(int(match["place"], 16), operand)
        else:
            value = self._name_operand(match["name"])
        known = value >= 0
        taken = value
        if "|" in operand:
            taken = np.abs(read_signed(taken)) & MASK
        if match["sign"]:
            taken = {"-": -taken & MASK, "~": ~taken & MASK, "!": 1 - taken}[match["sign"]]
        if ".H1" in match["rest"]:
            taken = taken >> 16
        return np.where(known, taken, value)

    def make_opaque_lanes(self, name: str) -> Lanes:
        """Return a value that an instruction makes that is not followed."""
        if name not in self.unfollowed:
            self.unfollowed.append(name)
        return np.full(LANES, UNKNOWN - 1 - self.unfollowed.index(name), dtype=np.int64)

    def name_of(self, value: int) -> str:
        """Return what is not followed; empty for a value that is known or data."""
        return self.unfollowed[UNKNOWN - 1 - value] if value < UNKNOWN else ""

    def _constant(self, offset: int, operand: str) -> Lanes:
        word = offset & ~3
        if word not in self.constants:
            return self.make_opaque_lanes(operand)
        value = self.constants[word]
        return _UNKNOWN if value is None else lanes_of(value >> 8 * (offset - word))

    def _name_operand(self, name: str) -> Lanes:
        if name in _FIXED:
            return lanes_of(_FIXED[name])
        if name.startswith("SR"):
            lanes = self.special.get(name)
            return self.make_opaque_lanes(name) if lanes is None else lanes
        return self.registers.get(name, lanes_of(0))

    def write(self, name: str, value: Lanes, active: Bits) -> None:
        """Write a register in some lanes."""
        if name not in _FIXED:
            self.registers[name] = np.where(active, value, self._name_operand(name))


def read_signed(value: Lanes) -> Lanes:
    """Return 32 bits as signed numbers."""
    return np.where(value >= 1 << 31, value - (1 << 32), value)


def upper_of(operand: str) -> str:
    """Return the operand that holds the upper half of 64 bits."""
    if match := re.match(r"c\s*\[0x0\]\s*\[(\w+)\]", operand):
        return f"c[0x0][{int(match[1], 16) + 4:#x}]"
    return next_register(register_of(operand)) if operand[0] in "RU" else operand


def register_of(text: str) -> str:
    """Return the register that an operand names, without modifiers (``.H1``, ``.CC``)."""
    return text.split(".")[0]


def join_lanes(value: Lanes, *inputs: Lanes) -> Lanes:
    """Return a value of 32 bits, unknown where an input is."""
    # what data decides is data
    lost = np.max([np.where(lanes < 0, lanes, _LOWEST) for lanes in inputs], axis=0)
    return np.where(lost == _LOWEST, value & MASK, lost)


_COMPARISONS: Mapping[str, Callable[[Any, Any], Bits]] = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}
_BITWISE: Mapping[str, Callable[[Lanes, Lanes], Lanes]] = {
    "AND": np.bitwise_and,
    "OR": np.bitwise_or,
    "XOR": np.bitwise_xor,
}


def _compute(places: slice, compute: Callable[..., Lanes | None]) -> Handler:
    """Return the handler of an instruction that makes one value of modifiers and operands."""

    def handle(ins: SassInstruction, state: WarpState) -> Results:
        if PREDICATES.match(ins.operands[0]):
            return None
        inputs = [state.read(operand) for operand in ins.operands[places]]
        value = compute(ins.modifiers, *inputs)
        return None if value is None else join_lanes(value, *inputs)

    return handle


def _as_numbers(modifiers: frozenset[str], *values: Lanes) -> list[Lanes]:
    return [value if "U32" in modifiers else read_signed(value) for value in values]


def _shift_right(modifiers: frozenset[str], value: Lanes, by: Lanes) -> Lanes:
    return _as_numbers(modifiers, value)[0] >> np.clip(by, 0, 32)


def _funnel_shift(ins: SassInstruction, state: WarpState) -> Results:
    """Follow shifts of 64 bits, lower half first, of which one half is kept."""
    low, by, high = (state.read(operand) for operand in ins.operands[1:4])
    keeps_high = "HI" in ins.modifiers
    needed = [low, high] if ins.modifiers & {"U64", "S64"} else [high] if keeps_high else [low]
    whole, places = _pair(low, high), np.maximum(by, 0)
    if not ins.modifiers & {"S32", "S64"}:
        whole, places = whole.view(np.uint64), places.view(np.uint64)
    moved = np.left_shift(whole, places) if "L" in ins.modifiers else np.right_shift(whole, places)
    half = moved.view(np.int64) >> 32 if keeps_high else moved.view(np.int64)
    return join_lanes(half, by, *needed)


def _bitwise(modifiers: frozenset[str], *inputs: Lanes) -> Lanes | None:
    operation = next((by for name, by in _BITWISE.items() if name in modifiers), None)
    return None if operation is None or len(inputs) > 2 else operation(*inputs)


def _lookup(table: int, inputs: Sequence[Lanes], bits: int) -> Lanes:
    """Return the function of three bits that a table of eight says, bit by bit."""
    result = np.zeros(LANES, dtype=np.int64)
    for number in range(8):
        if table >> number & 1:
            first, second, third = (
                v if number & b else ~v for v, b in zip(inputs, (4, 2, 1), strict=True)
            )
            result |= first & second & third
    return join_lanes(result, *inputs) if bits > 1 else _decide_predicate(result & 1, *inputs)


def _decide_predicate(value: Lanes, *inputs: Lanes) -> Lanes:
    """Return a predicate, unknown where an input is; what is not followed might decide it."""
    lowest = np.min(inputs, axis=0)
    return np.where(lowest >= 0, value, lowest)


def _table_of_bits(ins: SassInstruction, state: WarpState) -> Results:
    has_predicate = PREDICATES.match(ins.operands[0]) is not None
    name, *texts = ins.operands[has_predicate:]
    value = _lookup(int(texts[3], 0), [*map(state.read, texts[:3])], 32)
    results = {register_of(name): value}
    if has_predicate:
        also = state.read(texts[4]) if len(texts) > 4 else lanes_of(0)
        results[ins.operands[0]] = np.where(value < 0, value, (value != 0) | (also == 1))
    return results


def _table_of_predicates(ins: SassInstruction, state: WarpState) -> Results:
    inputs, tables = [*map(state.read, ins.operands[2:5])], (ins.operands[5], ins.operands[6])
    values = [_lookup(int(table, 0), inputs, 1) for table in tables]
    return dict(zip(ins.operands[:2], values, strict=True))


def _combine(operation: str, one: Lanes, other: Lanes) -> Lanes:
    combined = _decide_predicate(_BITWISE[operation](one, other), one, other)
    if operation == "XOR":
        return combined
    decides = int(operation == "OR")
    return np.where((one == decides) | (other == decides), decides, combined)


def _compare(ins: SassInstruction, state: WarpState) -> Results:
    comparison = next((name for name in _COMPARISONS if name in ins.modifiers), None)
    if comparison is None:
        return None
    first, second, also = (state.read(operand) for operand in ins.operands[2:5])
    one, other = _as_numbers(ins.modifiers, first, second)
    inputs = [first, second]
    if ins.modifiers & {"S64", "U64"}:
        (one, *inputs), (other, *more) = (_whole(operand, state) for operand in ins.operands[2:4])
        inputs += more
        if "U64" in ins.modifiers:
            one, other = one.view(np.uint64), other.view(np.uint64)
    outcome = _COMPARISONS[comparison](one, other)
    if "EX" in ins.modifiers:  # upper halves; if they are equal, lower ones decide
        inputs.append(state.read(ins.operands[5]))
        outcome = np.where(one == other, inputs[2] == 1, outcome)
    compare = join_lanes(outcome.astype(np.int64), *inputs)
    operation = next((name for name in _BITWISE if name in ins.modifiers), "AND")
    inverse = np.where(compare < 0, compare, 1 - compare)
    return {
        ins.operands[0]: _combine(operation, compare, also),
        ins.operands[1]: _combine(operation, inverse, also),
    }


def _combine_predicates(ins: SassInstruction, state: WarpState) -> Results:
    """Follow Maxwell's ``PSETP.AND.AND``; others of them mix two operations, and are unknown."""
    first, second, third = map(state.read, ins.operands[2:5])
    if ins.modifiers != frozenset({"AND"}):
        return None
    return _combine("AND", _combine("AND", first, second), third)


def _select(ins: SassInstruction, state: WarpState) -> Results:
    first, second, choice = map(state.read, ins.operands[1:4])
    return np.where(choice < 0, choice, np.where(choice == 1, first, second))


def _extreme(modifiers: frozenset[str], first: Lanes, second: Lanes, is_least: Lanes) -> Lanes:
    one, other = _as_numbers(modifiers, first, second)
    return np.where(is_least == 1, np.minimum(one, other), np.maximum(one, other))


def execute(ins: SassInstruction, state: WarpState, active: Bits) -> None:
    """Execute an instruction in the lanes that are active."""
    handler = _HANDLERS.get(ins.base) or _HANDLERS.get(ins.base.removeprefix("U"))
    results: Results = None
    if handler is not None and (handler in _FOLLOW_PAIRS or not ins.modifiers & _PAIRS):
        results = handler(ins, state)
    if results is None:
        results = dict.fromkeys(ins.results, _forget(ins, state))
    elif isinstance(results, np.ndarray):
        results = {register_of(ins.operands[0]): results}
    for name, value in results.items():
        state.write(name, value, active)


def _forget(ins: SassInstruction, state: WarpState) -> Lanes:
    if ins.name.startswith("flop.") or ins.is_data:
        return _UNKNOWN
    texts = (*ins.reads, *(operand for operand in ins.operands if "c[" in operand))
    lost = state.make_opaque_lanes(ins.opcode)
    return join_lanes(lost, lost, *map(state.read, texts))


def _move(ins: SassInstruction, state: WarpState) -> Results:
    name, source = register_of(ins.operands[0]), ins.operands[1]
    value = state.read(source)
    for kind in ins.modifiers & {"U8", "U16", "S8", "S16"}:
        bits = int(kind[1:])
        low = value & (1 << bits) - 1
        value = join_lanes(low - (low >> bits - 1 << bits) * kind.startswith("S"), value)
    results = {name: value}
    is_pair = "64" in ins.modifiers or (source == "SRZ" and "32" not in ins.modifiers)
    for _ in range(3 if "128" in ins.modifiers else is_pair):
        name, source = next_register(name), upper_of(source)
        results[name] = state.read(source)
    return results


def _permute(ins: SassInstruction, state: WarpState) -> Results:
    """Follow the choice of four bytes out of eight; 8 more in a digit takes the byte's sign."""
    if ins.modifiers:
        return None
    low, choice, high = (state.read(operand) for operand in ins.operands[1:4])
    whole = np.stack([half >> 8 * index & 0xFF for half in (low, high) for index in range(4)])
    result = np.zeros(LANES, dtype=np.int64)
    needed: list[Lanes] = [choice]
    for index in range(4):
        digit = (choice >> 4 * index) & 0xF
        byte = np.take_along_axis(whole, (digit & 7)[np.newaxis], axis=0)[0]
        byte = np.where(digit & 8, (byte >> 7) * 0xFF, byte)
        result |= byte << 8 * index
        needed.append(np.where(digit & 4, high, low))
    return join_lanes(result, *needed)


def _half_constant(ins: SassInstruction, _state: WarpState) -> Results:
    """Follow ``HFMA2 Rd, -RZ, RZ, high, low``, which writes a constant as two halves."""
    if [operand.strip("-") for operand in ins.operands[1:3]] != ["RZ", "RZ"]:
        return None
    numbers = [text.replace("INF", "inf").replace("QNAN", "nan") for text in ins.operands[-2:]]
    high, low = (int(np.float16(float(number)).view(np.uint16)) for number in numbers)
    return lanes_of(high << 16 | low)


def _pair(low: Lanes, high: Lanes) -> Lanes:
    """Return 64 bits of two halves; what is not known counts as zero."""
    return np.maximum(high, 0) << 32 | np.maximum(low, 0)


def _whole(operand: str, state: WarpState) -> tuple[Lanes, Lanes, Lanes]:
    """Return 64 bits, and their lower and upper halves: negative if not known."""
    text = operand.removeprefix("-")
    if text[0].isdigit():
        low, high = lanes_of(int(text, 0)), lanes_of(int(text, 0) >> 32)
    elif text[0] in "RUc":
        low, high = state.read(text), state.read(upper_of(text))
    else:
        low = high = state.make_opaque_lanes(operand)
    value = _pair(low, high)
    return -value if operand[0] == "-" else value, low, high


def _add_pairs(ins: SassInstruction, state: WarpState) -> Results:
    """Follow sums of 64 bits without carries in or out."""
    name, *rest = (operand for operand in ins.operands if operand not in ("PT", "UPT"))
    if any(PREDICATES.match(operand) for operand in rest):
        return None
    total, inputs = np.zeros(LANES, dtype=np.int64), list[Lanes]()
    for operand in rest:
        value, *halves = _whole(operand, state)
        total += value
        inputs += halves
    return {name: join_lanes(total, *inputs), next_register(name): join_lanes(total >> 32, *inputs)}


def _add(ins: SassInstruction, state: WarpState) -> Results:
    if "64" in ins.modifiers:
        return None if "X" in ins.modifiers else _add_pairs(ins, state)
    name, *rest = ins.operands
    carries: list[str] = []
    while rest and (match := PREDICATES.match(rest[0])):
        carries.append(match[1])
        rest.pop(0)
    given = [operand for operand in rest if PREDICATES.match(operand)] or ["CC"]
    added = [operand for operand in rest if not PREDICATES.match(operand)]
    terms = [state.read(text) for text in (*added, *(given if "X" in ins.modifiers else ()))]
    raw = sum(terms, np.zeros(LANES, dtype=np.int64))
    # carries are known of sums of two, not of differences
    is_simple = len([text for text in added if text not in ("RZ", "URZ")]) <= 2
    is_simple = is_simple and not any("-" in text for text in added)
    is_simple = is_simple and all(name in ("PT", "UPT") for name in carries[1:])
    carried = join_lanes(raw >> 32, *terms) if is_simple else state.make_opaque_lanes("a carry")
    results = {register_of(name): join_lanes(raw, *terms)} | dict.fromkeys(carries, carried)
    if ".CC" in name:
        results["CC"] = carried
    return results


def _multiply(ins: SassInstruction, state: WarpState) -> Results:
    modifiers, (name, *rest) = ins.modifiers, ins.operands
    if "MOV" in modifiers:
        return state.read(rest[-1])
    carry = lanes_of(0)
    if "X" in modifiers:
        if modifiers & {"WIDE", "HI"} or not PREDICATES.match(rest[-1]):
            return None
        carry = state.read(rest.pop())
    if any(PREDICATES.match(operand) for operand in rest):
        return None
    first, second, third = (state.read(operand) for operand in (*rest, "RZ")[:3])
    if not modifiers & {"WIDE", "HI"}:
        # the lower half of a product does not depend on signs
        raw = (first & 0xFFFF) * second + (((first >> 16) * (second & 0xFFFF)) << 16)
        return join_lanes(raw + third + carry, first, second, third, carry)
    one, other = _as_numbers(modifiers, first, second)
    upper = state.read(upper_of((*rest, "RZ")[2]))
    total = one * other + _pair(third, upper)  # what is added has 64 bits, too
    high = join_lanes(total >> 32, first, second, third, upper)
    if "HI" in modifiers:
        return high
    name = register_of(name)
    return {name: join_lanes(total, first, second, third), next_register(name): high}


def _short_multiply(ins: SassInstruction, state: WarpState) -> Results:
    """Follow Maxwell's product of 16 by 16 bits, of which three make one of 32."""
    if ins.modifiers & {"S16", "X", "CHI", "CLO"} or ".CC" in ins.operands[0]:
        return None
    first, second, third = (state.read(operand) for operand in ins.operands[1:])
    whole = state.read(ins.operands[2].removesuffix(".H1"))
    value = (first & 0xFFFF) * (second & 0xFFFF)
    if "PSL" in ins.modifiers:
        value = value << 16
    value = (value + third + (whole << 16 if "CBCC" in ins.modifiers else 0)) & MASK
    if "MRG" in ins.modifiers:
        value = (value & 0xFFFF) | (whole << 16)
    return join_lanes(value, first, second, third, whole)


def _add_scaled(ins: SassInstruction, state: WarpState) -> Results:
    name, *texts = ins.operands
    if "X" in ins.modifiers or ".CC" in name or any(map(PREDICATES.match, texts)):
        return None
    first, second, shift = state.read(texts[0]), state.read(texts[1]), int(texts[-1], 0)
    if "HI" not in ins.modifiers:
        return join_lanes((first << shift) + second, first, second)
    if "SX32" in ins.modifiers:
        return join_lanes((read_signed(first) >> (32 - shift)) + second, first, second)
    upper = state.read(texts[2])
    return join_lanes((first >> (32 - shift)) + (upper << shift) + second, first, second, upper)


def _to_float(modifiers: frozenset[str], value: Lanes) -> Lanes | None:
    """Follow conversions to f32 as divisions of integers need them."""
    if modifiers & {"F64", "F16", "U16", "S16", "U8", "S8"}:
        return None
    return _as_numbers(modifiers, value)[0].astype(np.float32).view(np.uint32).astype(np.int64)


def _read_float(value: Lanes) -> npt.NDArray[np.float32]:
    return (value & MASK).astype(np.uint32).view(np.float32)


def _reciprocal(modifiers: frozenset[str], value: Lanes) -> Lanes | None:
    with np.errstate(divide="ignore", invalid="ignore"):
        number = np.float32(1) / _read_float(value)
    return number.view(np.uint32).astype(np.int64) if modifiers == frozenset({"RCP"}) else None


def _to_integer(modifiers: frozenset[str], value: Lanes) -> Lanes | None:
    if not modifiers >= {"U32", "TRUNC"} or modifiers & {"F64", "F16"}:
        return None
    number = np.nan_to_num(_read_float(value).astype(np.float64))
    return np.clip(number, 0, MASK).astype(np.int64)


_HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(("LOP", "LOP32I"), _compute(slice(1, None), _bitwise)),
    **dict.fromkeys(("IMNMX", "VIMNMX"), _compute(slice(-3, None), _extreme)),
    "SHL": _compute(slice(1, 3), lambda _, value, by: value << np.clip(by, 0, 32)),
    "SHR": _compute(slice(1, 3), _shift_right),
    "SHF": _funnel_shift,
    "LOP3": _table_of_bits,
    "PLOP3": _table_of_predicates,
    "PSETP": _combine_predicates,
    "ISETP": _compare,
    "SEL": _select,
    **dict.fromkeys(("MOV", "MOV32I", "LDC", "LDCU", "S2R", "S2UR", "R2UR", "CS2R"), _move),
    "HFMA2": _half_constant,
    **dict.fromkeys(("IADD", "IADD32I", "IADD3", "VIADD"), _add),
    **dict.fromkeys(("IMAD", "IMUL"), _multiply),
    **dict.fromkeys(("ISCADD", "LEA"), _add_scaled),
    "PRMT": _permute,
    "XMAD": _short_multiply,
    "IABS": _compute(slice(1, 2), lambda _, value: np.abs(read_signed(value))),
    **dict.fromkeys(("I2F", "I2FP"), _compute(slice(1, 2), _to_float)),
    "MUFU": _compute(slice(1, 2), _reciprocal),
    "F2I": _compute(slice(1, 2), _to_integer),
    # operands of divisions are taken to be normal numbers, which need no slow way
    "FCHK": lambda ins, _state: {ins.operands[0]: lanes_of(0)},
}
_PAIRS = frozenset({"64", "S64", "U64", "128"})
_FOLLOW_PAIRS = (_move, _add, _compare, _funnel_shift)
