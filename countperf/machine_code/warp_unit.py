"""Integer instructions of NVIDIA's machine code (SASS), for the 32 lanes of a sub-group at once.

A value is an array of 32 integers: 32 bits each, unsigned; ``UNKNOWN`` in lanes where it comes from
data, and below it where it comes from an instruction that is not followed, though no data decides
it. Predicates are 0 and 1.

Instructions of Maxwell and of Volta to Blackwell are followed as far as trip counts and guards of
Loopy's kernels need them. Rules were found from NVIDIA's names ("CUDA Binary Utilities", section
"Instruction Set Reference"), which are all that is published, and confirmed against enumeration
(``tests/machine_code/test_warp.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from countperf.machine_code.sass_instruction import PREDICATES, SassInstruction, next_register

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
            return _UNKNOWN if is_data else self.not_followed(operand)
        if match["constant"]:
            value = self._constant(int(match["place"], 16), operand)
        else:
            value = self._name_operand(match["name"])
        known = value >= 0
        taken = value
        if "|" in operand:
            taken = np.abs(signed(taken)) & MASK
        if match["sign"]:
            taken = {"-": -taken & MASK, "~": ~taken & MASK, "!": 1 - taken}[match["sign"]]
        if ".H1" in match["rest"]:
            taken = taken >> 16
        return np.where(known, taken, value)

    def not_followed(self, name: str) -> Lanes:
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
            return self.not_followed(operand)
        value = self.constants[word]
        return _UNKNOWN if value is None else lanes_of(value >> 8 * (offset - word))

    def _name_operand(self, name: str) -> Lanes:
        if name in _FIXED:
            return lanes_of(_FIXED[name])
        if name.startswith("SR"):
            lanes = self.special.get(name)
            return self.not_followed(name) if lanes is None else lanes
        return self.registers.get(name, lanes_of(0))

    def write(self, name: str, value: Lanes, active: Bits) -> None:
        """Write a register in some lanes."""
        if name not in _FIXED:
            self.registers[name] = np.where(active, value, self._name_operand(name))


def signed(value: Lanes) -> Lanes:
    """Return 32 bits as signed numbers."""
    return np.where(value >= 1 << 31, value - (1 << 32), value)


def upper_of(operand: str) -> str:
    """Return the operand that holds the upper half of 64 bits."""
    if operand in ("RZ", "URZ"):
        return operand
    match = re.match(r"c\s*\[0x0\]\s*\[(\w+)\]", operand)
    if match:
        return f"c[0x0][{int(match[1], 16) + 4:#x}]"
    return next_register(register_of(operand)) if operand[0] in "RU" else operand


def register_of(text: str) -> str:
    """Return the register that an operand names, without modifiers (``.H1``, ``.CC``)."""
    return text.split(".")[0]


def joined(value: Lanes, *inputs: Lanes) -> Lanes:
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
    """Return the handler of an instruction that makes one value of some operands.

    It is computed from modifiers and values of operands, and unknown where one of these is.
    """

    def handle(ins: SassInstruction, state: WarpState) -> Results:
        if PREDICATES.match(ins.operands[0]):
            return None
        inputs = [state.read(operand) for operand in ins.operands[places]]
        value = compute(ins.modifiers, *inputs)
        return None if value is None else joined(value, *inputs)

    return handle


def _as_numbers(modifiers: frozenset[str], *values: Lanes) -> list[Lanes]:
    return [value if "U32" in modifiers else signed(value) for value in values]


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
    return joined(half, by, *needed)


def _bitwise(modifiers: frozenset[str], *inputs: Lanes) -> Lanes | None:
    operation = next((name for name in _BITWISE if name in modifiers), None)
    return None if operation is None or len(inputs) > 2 else _BITWISE[operation](*inputs)


def _lookup(table: int, inputs: Sequence[Lanes], bits: int) -> Lanes:
    """Return the function of three bits that a table of eight says, bit by bit."""
    whole = (1 << bits) - 1
    result = np.zeros(LANES, dtype=np.int64)
    for number in range(8):
        if table >> number & 1:
            term = np.full(LANES, whole, dtype=np.int64)
            for position, value in enumerate(inputs):
                term &= value if number >> (2 - position) & 1 else ~value & whole
            result |= term
    return joined(result, *inputs) if bits > 1 else _decide_predicate(result, *inputs)


def _decide_predicate(value: Lanes, *inputs: Lanes) -> Lanes:
    """Return a predicate, unknown where an input is; what is not followed might decide it."""
    lowest = np.min(inputs, axis=0)
    return np.where(lowest >= 0, value, lowest)


def _table_of_bits(ins: SassInstruction, state: WarpState) -> Results:
    has_predicate = PREDICATES.match(ins.operands[0]) is not None
    name, *texts = ins.operands[has_predicate:]
    value = _lookup(int(texts[3], 0), [state.read(text) for text in texts[:3]], 32)
    results = {register_of(name): value}
    if has_predicate:
        also = state.read(texts[4]) if len(texts) > 4 else lanes_of(0)
        results[ins.operands[0]] = np.where(value < 0, value, (value != 0) | (also == 1))
    return results


def _table_of_predicates(ins: SassInstruction, state: WarpState) -> Results:
    inputs = [state.read(operand) for operand in ins.operands[2:5]]
    tables = ins.operands[5], ins.operands[6]
    return {
        name: _lookup(int(table, 0), inputs, 1)
        for name, table in zip(ins.operands[:2], tables, strict=True)
    }


def _combine(operation: str, one: Lanes, other: Lanes) -> Lanes:
    combined = _decide_predicate(_BITWISE[operation](one, other), one, other)
    if operation == "AND":
        return np.where((one == 0) | (other == 0), 0, combined)
    if operation == "OR":
        return np.where((one == 1) | (other == 1), 1, combined)
    return combined


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
    compare = joined(outcome.astype(np.int64), *inputs)
    operation = next((name for name in _BITWISE if name in ins.modifiers), "AND")
    inverse = np.where(compare < 0, compare, 1 - compare)
    return {
        ins.operands[0]: _combine(operation, compare, also),
        ins.operands[1]: _combine(operation, inverse, also),
    }


def _combine_predicates(ins: SassInstruction, state: WarpState) -> Results:
    """Follow Maxwell's ``PSETP.AND.AND``; others of them mix two operations, and are unknown."""
    if ins.modifiers != frozenset({"AND"}):
        return None
    first, second, third = (state.read(operand) for operand in ins.operands[2:5])
    return _combine("AND", _combine("AND", first, second), third)


def _select(ins: SassInstruction, state: WarpState) -> Results:
    first, second, choice = (state.read(operand) for operand in ins.operands[1:4])
    return np.where(choice < 0, choice, np.where(choice == 1, first, second))


def _extreme(modifiers: frozenset[str], first: Lanes, second: Lanes, is_least: Lanes) -> Lanes:
    one, other = _as_numbers(modifiers, first, second)
    return np.where(is_least == 1, np.minimum(one, other), np.maximum(one, other))


def execute(ins: SassInstruction, state: WarpState, active: Bits) -> None:
    """Execute an instruction in the lanes that are active.

    Results of loads are data, and so are numbers of floating point, and what instructions that are
    not followed make of data.
    """
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
    lost = state.not_followed(ins.opcode)
    return joined(lost, lost, *map(state.read, texts))


def _move(ins: SassInstruction, state: WarpState) -> Results:
    name, source = register_of(ins.operands[0]), ins.operands[1]
    value = state.read(source)
    for kind, bits in (("U8", 8), ("U16", 16), ("S8", 8), ("S16", 16)):
        if kind in ins.modifiers:
            low = value & (1 << bits) - 1
            high = low >> bits - 1 << bits if kind.startswith("S") else 0
            value = joined(low - high, value)
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
    return joined(result, *needed)


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
        low = high = state.not_followed(operand)
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
    return {name: joined(total, *inputs), next_register(name): joined(total >> 32, *inputs)}


def _add(ins: SassInstruction, state: WarpState) -> Results:
    if "64" in ins.modifiers:
        return None if "X" in ins.modifiers else _add_pairs(ins, state)
    name, *rest = ins.operands
    carries: list[str] = []
    while rest and (match := PREDICATES.match(rest[0])):
        carries.append(match[1])
        rest.pop(0)
    terms = [state.read(operand) for operand in rest if not PREDICATES.match(operand)]
    if "X" in ins.modifiers:
        given = [operand for operand in rest if PREDICATES.match(operand)]
        terms += [state.read(operand) for operand in given or ["CC"]]
    raw = sum(terms, np.zeros(LANES, dtype=np.int64))
    # carries are known of sums of two, not of differences
    added = [text for text in rest if text not in ("RZ", "URZ") and not PREDICATES.match(text)]
    is_simple = len(added) <= 2 and not any("-" in text for text in added)
    is_simple = is_simple and all(name in ("PT", "UPT") for name in carries[1:])
    carried = joined(raw >> 32, *terms) if is_simple else state.not_followed("a carry")
    results = {register_of(name): joined(raw, *terms)} | dict.fromkeys(carries, carried)
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
        return joined(raw + third + carry, first, second, third, carry)
    one, other = _as_numbers(modifiers, first, second)
    upper = state.read(upper_of((*rest, "RZ")[2]))
    total = one * other + _pair(third, upper)  # what is added has 64 bits, too
    high = joined(total >> 32, first, second, third, upper)
    if "HI" in modifiers:
        return high
    name = register_of(name)
    return {name: joined(total, first, second, third), next_register(name): high}


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
    return joined(value, first, second, third, whole)


def _add_scaled(ins: SassInstruction, state: WarpState) -> Results:
    name, *texts = ins.operands
    is_plain = not any(PREDICATES.match(text) for text in texts) and ".CC" not in name
    if "X" in ins.modifiers or not is_plain:
        return None
    first, second = state.read(texts[0]), state.read(texts[1])
    shift = int(texts[-1], 0)
    if "HI" not in ins.modifiers:
        return joined((first << shift) + second, first, second)
    if "SX32" in ins.modifiers:
        return joined((signed(first) >> (32 - shift)) + second, first, second)
    upper = state.read(texts[2])
    return joined((first >> (32 - shift)) + (upper << shift) + second, first, second, upper)


def _to_float(modifiers: frozenset[str], value: Lanes) -> Lanes | None:
    """Follow conversions to f32 as divisions of integers need them."""
    if modifiers & {"F64", "F16", "U16", "S16", "U8", "S8"}:
        return None
    number = _as_numbers(modifiers, value)[0].astype(np.float32)
    return number.view(np.uint32).astype(np.int64)


def _reciprocal(modifiers: frozenset[str], value: Lanes) -> Lanes | None:
    if modifiers != frozenset({"RCP"}):
        return None
    number = (value & MASK).astype(np.uint32).view(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        result = (np.float32(1) / number).astype(np.float32)
    return result.view(np.uint32).astype(np.int64)


def _to_integer(modifiers: frozenset[str], value: Lanes) -> Lanes | None:
    if not modifiers >= {"U32", "TRUNC"} or modifiers & {"F64", "F16"}:
        return None
    number = (value & MASK).astype(np.uint32).view(np.float32)
    return np.clip(np.nan_to_num(number.astype(np.float64)), 0, MASK).astype(np.int64)


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
    "IABS": _compute(slice(1, 2), lambda _, value: np.abs(signed(value))),
    **dict.fromkeys(("I2F", "I2FP"), _compute(slice(1, 2), _to_float)),
    "MUFU": _compute(slice(1, 2), _reciprocal),
    "F2I": _compute(slice(1, 2), _to_integer),
    # operands of divisions are taken to be normal numbers, which need no slow way
    "FCHK": lambda ins, _state: {ins.operands[0]: lanes_of(0)},
}
_PAIRS = frozenset({"64", "S64", "U64", "128"})
_FOLLOW_PAIRS = (_move, _add, _compare, _funnel_shift)
