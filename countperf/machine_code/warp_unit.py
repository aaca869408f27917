"""Integer instructions of NVIDIA's machine code (SASS), for the 32 lanes of a sub-group at once.

Instructions of Maxwell and of Volta to Blackwell are followed as far as trip counts and guards of
Loopy's kernels need them. Rules were found from NVIDIA's names ("CUDA Binary Utilities", section
"Instruction Set Reference"), which are all that is published, and confirmed against enumeration
(``tests/machine_code/test_warp.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from countperf.machine_code.sass_instruction import (
    LANES,
    MASK,
    PREDICATES,
    Bits,
    Handler,
    Lanes,
    WarpState,
    classify_sass,
    joined,
    lanes_of,
    next_register,
    reads_of,
    register_of,
    results_of,
    signed,
    unknown,
    upper_of,
)

Modifiers: TypeAlias = frozenset[str]
Operands: TypeAlias = Sequence[str]
Results: TypeAlias = "Mapping[str, Lanes] | None"
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


def _simple(places: slice, compute: Callable[..., Lanes | None]) -> Handler:
    """Return the handler of an instruction that makes one value of some operands.

    It is computed from modifiers and values of operands, and unknown where one of these is.
    """

    def handle(modifiers: Modifiers, operands: Operands, state: WarpState) -> Results:
        if PREDICATES.match(operands[0]):
            return None
        inputs = [state.read(operand) for operand in operands[places]]
        value = compute(modifiers, *inputs)
        return None if value is None else {register_of(operands[0]): joined(value, *inputs)}

    return handle


def _as_numbers(modifiers: Modifiers, *values: Lanes) -> list[Lanes]:
    return [value if "U32" in modifiers else signed(value) for value in values]


def _shift_right(modifiers: Modifiers, value: Lanes, by: Lanes) -> Lanes:
    return _as_numbers(modifiers, value)[0] >> np.clip(by, 0, 32)


def _funnel_shift(modifiers: Modifiers, operands: Operands, state: WarpState) -> Results:
    """Follow shifts of 64 bits, lower half first, of which one half is kept."""
    low, by, high = (state.read(operand) for operand in operands[1:4])
    keeps_high = "HI" in modifiers
    needed = [low, high] if modifiers & {"U64", "S64"} else [high] if keeps_high else [low]
    whole, places = _pair(low, high), np.maximum(by, 0)
    if not modifiers & {"S32", "S64"}:
        whole, places = whole.view(np.uint64), places.view(np.uint64)
    moved = np.left_shift(whole, places) if "L" in modifiers else np.right_shift(whole, places)
    half = moved.view(np.int64) >> 32 if keeps_high else moved.view(np.int64)
    return {register_of(operands[0]): joined(half, by, *needed)}


def _bitwise(modifiers: Modifiers, first: Lanes, second: Lanes, *more: Lanes) -> Lanes | None:
    operation = next((name for name in _BITWISE if name in modifiers), None)
    return None if operation is None or more else _BITWISE[operation](first, second)


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


def _table_of_bits(_modifiers: Modifiers, operands: Operands, state: WarpState) -> Results:
    rest = list(operands)
    predicate = register_of(rest.pop(0)) if PREDICATES.match(rest[0]) else None
    name, *texts = rest
    value = _lookup(int(texts[3], 0), [state.read(text) for text in texts[:3]], 32)
    table = {register_of(name): value}
    if predicate is not None:
        also = state.read(texts[4]) if len(texts) > 4 else lanes_of(0)
        table[predicate] = np.where(value < 0, value, (value != 0) | (also == 1))
    return table


def _table_of_predicates(_modifiers: Modifiers, operands: Operands, state: WarpState) -> Results:
    inputs = [state.read(operand) for operand in operands[2:5]]
    return {operands[index]: _lookup(int(operands[5 + index], 0), inputs, 1) for index in (0, 1)}


def _combined(operation: str, one: Lanes, other: Lanes) -> Lanes:
    combined = _decide_predicate(_BITWISE[operation](one, other), one, other)
    if operation == "AND":
        return np.where((one == 0) | (other == 0), 0, combined)
    if operation == "OR":
        return np.where((one == 1) | (other == 1), 1, combined)
    return combined


def _compare(modifiers: Modifiers, operands: Operands, state: WarpState) -> Results:
    comparison = next((operand for operand in _COMPARISONS if operand in modifiers), None)
    if comparison is None:
        return None
    first, second, also = (state.read(operand) for operand in operands[2:5])
    one, other = _as_numbers(modifiers, first, second)
    inputs = [first, second]
    if modifiers & {"S64", "U64"}:
        (one, *inputs), (other, *more) = (_whole(operand, state) for operand in operands[2:4])
        inputs += more
        if "U64" in modifiers:
            one, other = one.view(np.uint64), other.view(np.uint64)
    outcome = _COMPARISONS[comparison](one, other)
    if "EX" in modifiers:  # upper halves; if they are equal, lower ones decide
        inputs.append(state.read(operands[5]))
        outcome = np.where(one == other, inputs[2] == 1, outcome)
    compare = joined(outcome.astype(np.int64), *inputs)
    operation = next((name for name in _BITWISE if name in modifiers), "AND")
    inverse = np.where(compare < 0, compare, 1 - compare)
    return {
        operands[0]: _combined(operation, compare, also),
        operands[1]: _combined(operation, inverse, also),
    }


def _combine_predicates(modifiers: Modifiers, operands: Operands, state: WarpState) -> Results:
    """Follow Maxwell's ``PSETP.AND.AND``; others of them mix two operations, and are unknown."""
    if modifiers != frozenset({"AND"}):
        return None
    inputs = [state.read(operand) for operand in operands[2:5]]
    value = _combined("AND", _combined("AND", inputs[0], inputs[1]), inputs[2])
    return {operands[0]: value}


def _select(_modifiers: Modifiers, operands: Operands, state: WarpState) -> Results:
    first, second, choice = (state.read(operand) for operand in operands[1:4])
    chosen = np.where(choice == 1, first, second)
    return {register_of(operands[0]): np.where(choice < 0, choice, chosen)}


def _extreme(modifiers: Modifiers, first: Lanes, second: Lanes, is_least: Lanes) -> Lanes:
    one, other = _as_numbers(modifiers, first, second)
    return np.where(is_least == 1, np.minimum(one, other), np.maximum(one, other))


def execute(opcode: str, operands: Sequence[str], state: WarpState, active: Bits) -> None:
    """Execute an instruction in the lanes that are active.

    Results of loads are data, and so are numbers of floating point, and what instructions that are
    not followed make of data.
    """
    handler = _handler_of(opcode)
    results: Mapping[str, Lanes] | None = None
    modifiers = frozenset(opcode.split(".")[1:])
    if handler is not None and (handler in _FOLLOW_PAIRS or not modifiers & _PAIRS):
        results = handler(modifiers, operands, state)
    if results is None:
        results = dict.fromkeys(
            results_of(opcode, tuple(operands)), _not_followed(opcode, tuple(operands), state)
        )
    for name, value in results.items():
        state.write(name, value, active)


def _not_followed(opcode: str, operands: tuple[str, ...], state: WarpState) -> Lanes:
    is_float = classify_sass(opcode, operands).startswith("flop.")
    if is_float or is_data(opcode, operands):
        return unknown()
    texts = (*reads_of(opcode, operands), *(operand for operand in operands if "c[" in operand))
    return joined(state.not_followed(opcode), state.not_followed(opcode), *map(state.read, texts))


@lru_cache(maxsize=2**12)
def is_data(opcode: str, operands: tuple[str, ...]) -> bool:
    """Say whether an instruction reads memory that kernels write."""
    name = classify_sass(opcode, operands)
    return name.startswith(("load.", "atomic.")) and name != "load.constant"


def _handler_of(opcode: str) -> Handler | None:
    base = opcode.split(".")[0]
    return _HANDLERS.get(base) or (_HANDLERS.get(base[1:]) if base.startswith("U") else None)


def _move(modifiers: Modifiers, operands: Operands, state: WarpState) -> Results:
    name, source = register_of(operands[0]), operands[1]
    value = state.read(source)
    for kind, bits in (("U8", 8), ("U16", 16), ("S8", 8), ("S16", 16)):
        if kind in modifiers:
            low = value & (1 << bits) - 1
            high = low >> bits - 1 << bits if kind.startswith("S") else 0
            value = joined(low - high, value)
    results = {name: value}
    is_pair = "64" in modifiers or (operands[1] == "SRZ" and "32" not in modifiers)
    for _ in range(3 if "128" in modifiers else is_pair):
        name, source = next_register(name), upper_of(source)
        results[name] = state.read(source)
    return results


def _permute(modifiers: Modifiers, operands: Operands, state: WarpState) -> Results:
    """Follow the choice of four bytes out of eight; 8 more in a digit takes the byte's sign."""
    if modifiers:
        return None
    low, choice, high = (state.read(operand) for operand in operands[1:4])
    whole = np.stack(
        [(operand >> 8 * index) & 0xFF for operand in (low, high) for index in range(4)]
    )
    result = np.zeros(LANES, dtype=np.int64)
    needed: list[Lanes] = [choice]
    for index in range(4):
        digit = (choice >> 4 * index) & 0xF
        byte = np.take_along_axis(whole, (digit & 7)[np.newaxis], axis=0)[0]
        byte = np.where(digit & 8, (byte >> 7) * 0xFF, byte)
        result |= byte << 8 * index
        needed.append(np.where(digit & 4, high, low))
    return {register_of(operands[0]): joined(result, *needed)}


def _half_constant(
    _modifiers: frozenset[str], operands: Sequence[str], _state: WarpState
) -> Results:
    """Follow ``HFMA2 Rd, -RZ, RZ, high, low``, which writes a constant as two halves."""
    if [operand.strip("-") for operand in operands[1:3]] != ["RZ", "RZ"]:
        return None
    numbers = [
        float(operand.replace("INF", "inf").replace("QNAN", "nan")) for operand in operands[-2:]
    ]
    high, low = (int(np.float16(operand).view(np.uint16)) for operand in numbers)
    return {operands[0]: lanes_of(high << 16 | low)}


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


def _add_pairs(operands: Operands, state: WarpState) -> Results:
    """Follow sums of 64 bits without carries in or out."""
    name, *rest = (operand for operand in operands if operand not in ("PT", "UPT"))
    if any(PREDICATES.match(operand) for operand in rest):
        return None
    total, inputs = np.zeros(LANES, dtype=np.int64), list[Lanes]()
    for operand in rest:
        value, *halves = _whole(operand, state)
        total += value
        inputs += halves
    return {name: joined(total, *inputs), next_register(name): joined(total >> 32, *inputs)}


def _add(modifiers: Modifiers, operands: Operands, state: WarpState) -> Results:
    if "64" in modifiers:
        return None if "X" in modifiers else _add_pairs(operands, state)
    name, *rest = operands
    carries: list[str] = []
    while rest and (match := PREDICATES.match(rest[0])):
        carries.append(match[1])
        rest.pop(0)
    terms = [state.read(operand) for operand in rest if not PREDICATES.match(operand)]
    if "X" in modifiers:
        terms += [state.read(operand) for operand in rest if PREDICATES.match(operand)] or [
            state.read("CC")
        ]
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


def _multiply(modifiers: Modifiers, operands: Operands, state: WarpState) -> Results:
    if modifiers & {"MOV"}:
        return {register_of(operands[0]): state.read(operands[-1])}
    name, *rest = operands
    carry = lanes_of(0)
    if "X" in modifiers and not modifiers & {"WIDE", "HI"} and PREDICATES.match(rest[-1]):
        carry = state.read(rest.pop())
    elif "X" in modifiers:
        return None
    if any(PREDICATES.match(operand) for operand in rest):
        return None
    first, second, third = (state.read(operand) for operand in (*rest, "RZ")[:3])
    one, other = _as_numbers(modifiers, first, second)
    if "WIDE" in modifiers or "HI" in modifiers:
        upper = state.read(upper_of((*rest, "RZ")[2]))
        total = one * other + _pair(third, upper)  # what is added has 64 bits, too
        high = joined(total >> 32, first, second, third, upper)
        if "HI" in modifiers:
            return {register_of(name): high}
        low = joined(total, first, second, third)
        return {register_of(name): low, next_register(register_of(name)): high}
    # the lower half of a product does not depend on signs
    raw = (first & 0xFFFF) * second + (((first >> 16) * (second & 0xFFFF)) << 16)
    return {register_of(name): joined(raw + third + carry, first, second, third, carry)}


def _short_multiply(modifiers: Modifiers, operands: Operands, state: WarpState) -> Results:
    """Follow Maxwell's product of 16 by 16 bits, of which three make one of 32."""
    if modifiers & {"S16", "X", "CHI", "CLO"} or ".CC" in operands[0]:
        return None
    name, *texts = operands
    first, second, third = (state.read(text) for text in texts)
    whole = state.read(texts[1].removesuffix(".H1"))
    value = (first & 0xFFFF) * (second & 0xFFFF)
    if "PSL" in modifiers:
        value = value << 16
    added = third + (whole << 16 if "CBCC" in modifiers else 0)
    value = (value + added) & MASK
    if "MRG" in modifiers:
        value = (value & 0xFFFF) | (whole << 16)
    return {name: joined(value, first, second, third, whole)}


def _add_scaled(modifiers: Modifiers, operands: Operands, state: WarpState) -> Results:
    name, *texts = operands
    is_plain = not any(PREDICATES.match(text) for text in texts) and ".CC" not in name
    if "X" in modifiers or not is_plain:
        return None
    first, second = state.read(texts[0]), state.read(texts[1])
    shift = int(texts[-1], 0)
    if "HI" not in modifiers:
        return {register_of(name): joined((first << shift) + second, first, second)}
    if "SX32" in modifiers:
        return {register_of(name): joined((signed(first) >> (32 - shift)) + second, first, second)}
    upper = state.read(texts[2])
    shifted = (first >> (32 - shift)) + (upper << shift)
    return {register_of(name): joined(shifted + second, first, second, upper)}


def _to_float(modifiers: Modifiers, value: Lanes) -> Lanes | None:
    """Follow conversions to f32 as divisions of integers need them."""
    if modifiers & {"F64", "F16", "U16", "S16", "U8", "S8"}:
        return None
    number = _as_numbers(modifiers, value)[0].astype(np.float32)
    return number.view(np.uint32).astype(np.int64)


def _reciprocal(modifiers: Modifiers, value: Lanes) -> Lanes | None:
    if modifiers != frozenset({"RCP"}):
        return None
    number = (value & MASK).astype(np.uint32).view(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        result = (np.float32(1) / number).astype(np.float32)
    return result.view(np.uint32).astype(np.int64)


def _to_integer(modifiers: Modifiers, value: Lanes) -> Lanes | None:
    if "U32" not in modifiers or "TRUNC" not in modifiers or modifiers & {"F64", "F16"}:
        return None
    number = (value & MASK).astype(np.uint32).view(np.float32)
    return np.clip(np.nan_to_num(number.astype(np.float64)), 0, MASK).astype(np.int64)


_HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(("LOP", "LOP32I"), _simple(slice(1, None), _bitwise)),
    **dict.fromkeys(("IMNMX", "VIMNMX"), _simple(slice(-3, None), _extreme)),
    "SHL": _simple(slice(1, 3), lambda _, value, by: value << np.clip(by, 0, 32)),
    "SHR": _simple(slice(1, 3), _shift_right),
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
    "IABS": _simple(slice(1, 2), lambda _, value: np.abs(signed(value))),
    **dict.fromkeys(("I2F", "I2FP"), _simple(slice(1, 2), _to_float)),
    "MUFU": _simple(slice(1, 2), _reciprocal),
    "F2I": _simple(slice(1, 2), _to_integer),
    # operands of divisions are taken to be normal numbers, which need no slow way
    "FCHK": lambda _modifiers, operands, _state: {operands[0]: lanes_of(0)},
}
_PAIRS = frozenset({"64", "S64", "U64", "128"})
_FOLLOW_PAIRS = (_move, _add, _compare, _funnel_shift)
