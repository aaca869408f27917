"""Shifts, functions of bits, comparisons and choices of NVIDIA's machine code, for 32 lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from countperf.machine_code.sass_instruction import PREDICATES
from countperf.machine_code.warp_state import (
    LANES,
    MASK,
    Bits,
    Handler,
    Lanes,
    WarpState,
    joined,
    lanes_of,
    register_of,
    signed,
)

_COMPARISONS: Mapping[str, Callable[[Lanes, Lanes], Bits]] = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}


def _shift(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState, *, left: bool
) -> dict[str, Lanes]:
    value, by = state.read(operands[1]), state.read(operands[2])
    shift = np.clip(by, 0, 32)
    right = value if "U32" in modifiers else signed(value)
    moved = value << shift if left else right >> shift
    return {register_of(operands[0]): joined(moved, value, by)}


def _funnel_shift(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    """Follow shifts of 64 bits, lower half first, of which one half is kept."""
    low, by, high = (state.read(operand) for operand in operands[1:4])
    is_signed = bool(modifiers & {"S32", "S64"})
    keeps_high = "HI" in modifiers
    needed = [low, high] if modifiers & {"U64", "S64"} else [high] if keeps_high else [low]
    funnel_shift: list[int] = []
    for a, shift, b in zip(low, by, high, strict=True):
        upper = int(b) - (1 << 32) if is_signed and b >= 1 << 31 else int(max(0, b))
        whole = upper << 32 | int(max(0, a))
        places = int(max(0, shift))
        moved = whole << places if "L" in modifiers else whole >> places
        funnel_shift.append(moved >> 32 & MASK if keeps_high else moved & MASK)
    return {register_of(operands[0]): joined(np.array(funnel_shift, dtype=np.int64), by, *needed)}


def _bitwise(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    name, first, second = operands[0], state.read(operands[1]), state.read(operands[2])
    operation = next((each for each in ("AND", "OR", "XOR") if each in modifiers), None)
    if operation is None or len(operands) != 3:
        return None
    value = {"AND": first & second, "OR": first | second, "XOR": first ^ second}[operation]
    return {register_of(name): joined(value, first, second)}


def _lookup(table: int, inputs: Sequence[Lanes], bits: int) -> Lanes:
    """Return the function of three bits that a table of eight says, bit by bit."""
    whole = (1 << bits) - 1
    found = np.zeros(LANES, dtype=np.int64)
    for number in range(8):
        if table >> number & 1:
            term = np.full(LANES, whole, dtype=np.int64)
            for position, value in enumerate(inputs):
                term &= value if number >> (2 - position) & 1 else ~value & whole
            found |= term
    return joined(found, *inputs) if bits > 1 else _decided(found, *inputs)


def _decided(value: Lanes, *inputs: Lanes) -> Lanes:
    """Return a predicate, unknown where an input is; what is not followed might decide it."""
    lowest = np.min(inputs, axis=0)
    return np.where(lowest >= 0, value, lowest)


def _table_of_bits(
    _modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes]:
    rest = list(operands)
    predicate = register_of(rest.pop(0)) if PREDICATES.match(rest[0]) else None
    name, *texts = rest
    value = _lookup(int(texts[3], 0), [state.read(text) for text in texts[:3]], 32)
    table = {register_of(name): value}
    if predicate is not None:
        also = state.read(texts[4]) if len(texts) > 4 else lanes_of(0)
        table[predicate] = np.where(value < 0, value, (value != 0) | (also == 1))
    return table


def _table_of_predicates(
    _modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes]:
    inputs = [state.read(operand) for operand in operands[2:5]]
    return {operands[place]: _lookup(int(operands[5 + place], 0), inputs, 1) for place in (0, 1)}


def _combined(operation: str, one: Lanes, other: Lanes) -> Lanes:
    value = {"AND": one & other, "OR": one | other, "XOR": one ^ other}[operation]
    combined = _decided(value, one, other)
    if operation == "AND":
        return np.where((one == 0) | (other == 0), 0, combined)
    if operation == "OR":
        return np.where((one == 1) | (other == 1), 1, combined)
    return combined


def _compare(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    comparison = next((operand for operand in _COMPARISONS if operand in modifiers), None)
    if comparison is None:
        return None
    first, second, also = (state.read(operand) for operand in operands[2:5])
    one, other = (first, second) if "U32" in modifiers else (signed(first), signed(second))
    outcome = _COMPARISONS[comparison](one, other)
    inputs = [first, second]
    if "EX" in modifiers:  # upper halves; if they are equal, lower ones decide
        inputs.append(state.read(operands[5]))
        outcome = np.where(one == other, inputs[2] == 1, outcome)
    compare = joined(outcome.astype(np.int64), *inputs)
    operation = next((operand for operand in ("AND", "OR", "XOR") if operand in modifiers), "AND")
    inverse = np.where(compare < 0, compare, 1 - compare)
    return {
        operands[0]: _combined(operation, compare, also),
        operands[1]: _combined(operation, inverse, also),
    }


def _combine_predicates(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    """Follow Maxwell's ``PSETP.AND.AND``; others of them mix two operations, and are unknown."""
    if modifiers != frozenset({"AND"}):
        return None
    inputs = [state.read(operand) for operand in operands[2:5]]
    value = _combined("AND", _combined("AND", inputs[0], inputs[1]), inputs[2])
    return {operands[0]: value}


def _select(
    _modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes]:
    first, second, choice = (state.read(operand) for operand in operands[1:4])
    chosen = np.where(choice == 1, first, second)
    return {register_of(operands[0]): np.where(choice < 0, choice, chosen)}


def _extreme(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes]:
    first, second, is_least = (state.read(operand) for operand in operands[-3:])
    one, other = (first, second) if "U32" in modifiers else (signed(first), signed(second))
    value = np.where(is_least == 1, np.minimum(one, other), np.maximum(one, other))
    return {register_of(operands[0]): joined(value, first, second, is_least)}


LOGIC: Mapping[str, Handler] = {
    **dict.fromkeys(("LOP", "LOP32I"), _bitwise),
    **dict.fromkeys(("IMNMX", "VIMNMX"), _extreme),
    "SHL": partial(_shift, left=True),
    "SHR": partial(_shift, left=False),
    "SHF": _funnel_shift,
    "LOP3": _table_of_bits,
    "PLOP3": _table_of_predicates,
    "PSETP": _combine_predicates,
    "ISETP": _compare,
    "SEL": _select,
}
"""Handlers of these instructions by name without modifiers."""
