"""Integer instructions of NVIDIA's machine code (SASS), for the 32 lanes of a sub-group at once.

A value is an array of 32 integers: 32 bits each, unsigned, and ``UNKNOWN`` in lanes where it is
data or comes from an instruction that is not followed. Predicates are 0 and 1. Operands are text as
``nvdisasm`` prints it: registers with a sign, halves (``.H1``), constants of bank 0, immediates.

Instructions of Maxwell and of Volta to Blackwell are followed as far as trip counts and guards of
Loopy's kernels need them. Rules were found from NVIDIA's names ("CUDA Binary Utilities", section
"Instruction Set Reference"), which are all that is published, and confirmed against enumeration
(``tests/machine_code/test_warp.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Lanes: TypeAlias = npt.NDArray[np.int64]
Bits: TypeAlias = npt.NDArray[np.bool_]

LANES = 32
UNKNOWN = -1

_Handler: TypeAlias = (
    "Callable[[frozenset[str], Sequence[str], WarpState], Mapping[str, Lanes] | None]"
)

_MASK = 0xFFFF_FFFF
_OPERAND = re.compile(
    r"^(?P<sign>[-~!]?)\|?(?:(?P<constant>c\s*\[0x0\]\s*\[(?P<place>\w+)\])|(?P<name>U?[RP](?:\d+|Z|T)"
    r"|SR_\w+(?:\.\w)?|SRZ))\|?(?P<rest>(?:\.\w+)*)$"
)
_NUMBER = re.compile(r"^-?(?:0x[0-9a-f]+|\d+)$")
_COMPARISONS: Mapping[str, Callable[[Lanes, Lanes], Bits]] = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}


def lanes_of(value: int) -> Lanes:
    """Return the same value in all lanes."""
    return np.full(LANES, value & _MASK, dtype=np.int64)


def unknown() -> Lanes:
    """Return a value that no lane knows."""
    return np.full(LANES, UNKNOWN, dtype=np.int64)


@dataclass(slots=True)
class WarpState:
    """Registers of a sub-group, and what it is launched with.

    Attributes
    ----------
    constants : Mapping from int to int
        Words of 32 bits of constant bank 0 by their places: sizes and other arguments.
    special : Mapping from str to Lanes
        ``SR_TID.X`` and so on.
    registers : dict from str to Lanes
        Registers and predicates that were written, by name.
    """

    constants: Mapping[int, int]
    special: Mapping[str, Lanes]
    registers: dict[str, Lanes] = field(default_factory=dict[str, Lanes])

    def read(self, operand: str) -> Lanes:
        """Return the value of an operand; unknown if it is none that is followed."""
        match = _OPERAND.match(operand)
        if match is None:
            if _NUMBER.match(operand):
                return lanes_of(int(operand, 0))
            return unknown()
        if match["constant"]:
            value = self._constant(int(match["place"], 16))
        else:
            value = self._named(match["name"])
        known = value != UNKNOWN
        if "|" in operand:
            value = np.abs(signed(value)) & _MASK
        match match["sign"]:
            case "-":
                value = -value & _MASK
            case "~":
                value = ~value & _MASK
            case "!":
                value = 1 - value
            case _:
                pass
        if ".H1" in match["rest"]:
            value = value >> 16
        return np.where(known, value, UNKNOWN)

    def _constant(self, place: int) -> Lanes:
        value = self.constants.get(place)
        return unknown() if value is None else lanes_of(value)

    def _named(self, name: str) -> Lanes:
        if name in ("RZ", "URZ", "SRZ"):
            return lanes_of(0)
        if name in ("PT", "UPT"):
            return lanes_of(1)
        found = self.special.get(name) if name.startswith("SR") else self.registers.get(name)
        return unknown() if found is None else found

    def write(self, name: str, value: Lanes, active: Bits) -> None:
        """Write a register in some lanes."""
        if name in ("RZ", "URZ", "PT", "UPT"):
            return
        old = self.registers.get(name)
        self.registers[name] = np.where(active, value, unknown() if old is None else old)


def signed(value: Lanes) -> Lanes:
    """Return 32 bits as signed numbers."""
    return np.where(value >= 1 << 31, value - (1 << 32), value)


def next_register(name: str) -> str:
    """Return the register that holds the upper half of 64 bits."""
    match = re.match(r"(U?R)(\d+)$", name)
    return name if match is None else f"{match[1]}{int(match[2]) + 1}"


def execute(opcode: str, operands: Sequence[str], state: WarpState, active: Bits) -> None:
    """Execute an instruction in the lanes that are active.

    Parameters
    ----------
    opcode : str
        Its name with modifiers.
    operands : sequence of str
        As they are printed, in order.
    state : WarpState
        Is changed.
    active : array of bool
        Lanes that execute it.

    What is not followed makes its results unknown.
    """
    handler = _handler_of(opcode)
    results: Mapping[str, Lanes] | None = None
    if handler is not None:
        results = handler(frozenset(opcode.split(".")[1:]), operands, state)
    if results is None:
        results = {name: unknown() for name in results_of(opcode, operands)}
    for name, value in results.items():
        state.write(name, value, active)


def is_followed(opcode: str) -> bool:
    """Say whether results of an instruction may be known."""
    return _handler_of(opcode) is not None


def _handler_of(opcode: str) -> _Handler | None:
    base = opcode.split(".")[0]
    return _HANDLERS.get(base) or (_HANDLERS.get(base[1:]) if base.startswith("U") else None)


_NO_RESULT = (
    *("ST", "STG", "STS", "STL", "RED", "BRA", "EXIT", "BAR", "NOP", "SYNC", "BSYNC", "SSY"),
    *("BSSY", "PBK", "PCNT", "BRK", "CONT", "DEPBAR", "MEMBAR", "RET", "CALL", "CAL", "JCAL"),
    *("WARPSYNC", "ERRBAR", "CCTL", "YIELD", "BREAK"),
)
_PREDICATES = re.compile(r"^!?(U?P(?:\d|T))$")
_REGISTERS = re.compile(r"^(U?R(?:\d+|Z))(?:\.\w+)*$")


def results_of(opcode: str, operands: Sequence[str]) -> tuple[str, ...]:
    """Return the registers and predicates that an instruction writes.

    Predicates before the first register are results; behind it, those before the first operand that
    is none of them are carries out.

    Examples
    --------
    >>> results_of("IADD3", ["R18", "P1", "R18", "0x40", "RZ"])
    ('R18', 'P1')
    >>> results_of("ISETP.GE.AND", ["P0", "PT", "R8", "0x1", "PT"])
    ('P0',)
    """
    base = opcode.split(".")[0]
    if base in _NO_RESULT or not operands:
        return ()
    found: list[str] = []
    if base.endswith(("SETP", "CHK")) or base in ("PLOP3", "UPLOP3", "VOTE", "VOTEU", "R2P"):
        leading = operands[:2] if base not in ("FCHK",) else operands[:1]
        found += [match[1] for each in leading if (match := _PREDICATES.match(each))]
        return tuple(each for each in found if each not in ("PT", "UPT"))
    rest = list(operands)
    while rest and (match := _PREDICATES.match(rest[0])):
        found.append(match[1])
        rest.pop(0)
    if rest and (match := _REGISTERS.match(rest[0])):
        found.append(match[1])
        if ".CC" in rest[0]:
            found.append("CC")
        if re.search(r"\.(?:64|WIDE|128|96)\b", opcode) and match[1] not in ("RZ", "URZ"):
            number = 4 if ".128" in opcode else 2
            for _ in range(number - 1):
                found.append(next_register(found[-1]))
        rest.pop(0)
        while rest and (match := _PREDICATES.match(rest[0])) and not rest[0].startswith("!"):
            if base not in ("IADD3", "UIADD3", "LEA", "ULEA", "IADD", "IMAD", "UIMAD"):
                break
            found.append(match[1])
            rest.pop(0)
    return tuple(each for each in found if each not in ("RZ", "URZ", "PT", "UPT"))


_NAMES = re.compile(r"\bU?R\d+\b|\bU?P\d\b")


def reads_of(opcode: str, operands: Sequence[str]) -> frozenset[str]:
    """Return the registers and predicates that an instruction reads, but for its guard.

    A wide value stands in two registers.
    """
    own = list(results_of(opcode, operands))
    found: set[str] = set()
    for each in operands:
        name = _register(each)
        if name in own:
            own.remove(name)
            continue
        found |= set(_NAMES.findall(each))
    if re.search(r"\.(?:WIDE|64|U64|S64)\b|^U?IMAD\.HI\b", opcode):
        found |= {next_register(name) for name in found}
    if ".X" in opcode and not any(name.startswith(("P", "UP")) for name in found):
        found.add("CC")
    return frozenset(found)


def _joined(value: Lanes, *inputs: Lanes) -> Lanes:
    """Return a value of 32 bits, unknown where an input is."""
    known = np.all([each != UNKNOWN for each in inputs], axis=0)
    return np.where(known, value & _MASK, UNKNOWN)


def _register(text: str) -> str:
    return text.split(".")[0]


def _move(modifiers: frozenset[str], operands: Sequence[str], state: WarpState) -> dict[str, Lanes]:
    name, source = _register(operands[0]), operands[1]
    found = {name: state.read(source)}
    if "64" in modifiers or (operands[1] == "SRZ" and "32" not in modifiers):
        match = re.match(r"c\s*\[0x0\]\s*\[(\w+)\]", source)
        upper = f"c[0x0][{int(match[1], 16) + 4:#x}]" if match else source
        found[next_register(name)] = state.read(upper)
    return found


def _half_constant(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    """Follow ``HFMA2 Rd, -RZ, RZ, high, low``, which writes a constant as two halves."""
    del modifiers, state
    if [each.strip("-") for each in operands[1:3]] != ["RZ", "RZ"]:
        return None
    numbers = [float(each.replace("INF", "inf").replace("QNAN", "nan")) for each in operands[-2:]]
    high, low = (int(np.float16(each).view(np.uint16)) for each in numbers)
    return {operands[0]: lanes_of(high << 16 | low)}


def _add(modifiers: frozenset[str], operands: Sequence[str], state: WarpState) -> dict[str, Lanes]:
    name, *rest = operands
    carries: list[str] = []
    while rest and (match := _PREDICATES.match(rest[0])):
        carries.append(match[1])
        rest.pop(0)
    terms = [state.read(each) for each in rest if not _PREDICATES.match(each)]
    if "X" in modifiers:
        terms += [state.read(each) for each in rest if _PREDICATES.match(each)] or [_flag(state)]
    raw = sum(terms, np.zeros(LANES, dtype=np.int64))
    # carries are known of sums of two, not of differences
    is_simple = len(carries) < 2 and "RZ" in rest and not any(each.startswith("-") for each in rest)
    carried = _joined(raw >> 32, *terms) if is_simple else unknown()
    found = {_register(name): _joined(raw, *terms)} | dict.fromkeys(carries, carried)
    if ".CC" in name:
        found["CC"] = carried
    return found


def _flag(state: WarpState) -> Lanes:
    found = state.registers.get("CC")
    return unknown() if found is None else found


def _multiply(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    if modifiers & {"MOV"}:
        return {_register(operands[0]): state.read(operands[-1])}
    if "X" in modifiers or any(_PREDICATES.match(each) for each in operands[1:]):
        return None
    name, *rest = operands
    first, second, third = (state.read(each) for each in (*rest, "RZ")[:3])
    is_signed = "U32" not in modifiers
    one, other = (signed(first), signed(second)) if is_signed else (first, second)
    if "WIDE" in modifiers or "HI" in modifiers:
        products = [
            UNKNOWN if UNKNOWN in (a, b) else int(x) * int(y)
            for a, b, x, y in zip(first, second, one, other, strict=True)
        ]
        upper = state.read(_upper((*rest, "RZ")[2]))
        return _wide(modifiers, name, products, (first, second, third, upper))
    # the lower half of a product does not depend on signs
    raw = (first & 0xFFFF) * second + (((first >> 16) * (second & 0xFFFF)) << 16)
    return {_register(name): _joined(raw + third, first, second, third)}


def _upper(operand: str) -> str:
    """Return the operand that holds the upper half of 64 bits."""
    if operand in ("RZ", "URZ"):
        return operand
    match = re.match(r"c\s*\[0x0\]\s*\[(\w+)\]", operand)
    if match:
        return f"c[0x0][{int(match[1], 16) + 4:#x}]"
    return next_register(_register(operand)) if operand[0] in "RU" else operand


def _wide(
    modifiers: frozenset[str], name: str, products: Sequence[int], inputs: tuple[Lanes, ...]
) -> dict[str, Lanes]:
    first, second, third, upper = inputs
    low: list[int] = []
    high: list[int] = []
    for a, b, c, d, product in zip(first, second, third, upper, products, strict=True):
        if UNKNOWN in (a, b, c):
            low.append(UNKNOWN)
            high.append(UNKNOWN)
            continue
        total = product + int(c) + (int(d) << 32 if d != UNKNOWN else 0)
        if "HI" in modifiers:  # what is added has 64 bits, too
            low.append((total >> 32) & _MASK if d != UNKNOWN else UNKNOWN)
            continue
        low.append(total & _MASK)
        high.append((total >> 32) & _MASK if d != UNKNOWN else UNKNOWN)
    found = {_register(name): np.array(low, dtype=np.int64)}
    if "HI" not in modifiers:
        found[next_register(_register(name))] = np.array(high, dtype=np.int64)
    return found


def _short_multiply(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    """Follow Maxwell's product of 16 by 16 bits, of which three make one of 32."""
    if modifiers & {"S16", "X", "CHI", "CLO"} or ".CC" in operands[0]:
        return None
    name, *texts = operands
    first, second, third = (state.read(each) for each in texts)
    whole = state.read(texts[1].removesuffix(".H1"))
    value = (first & 0xFFFF) * (second & 0xFFFF)
    if "PSL" in modifiers:
        value = value << 16
    added = third + (whole << 16 if "CBCC" in modifiers else 0)
    value = (value + added) & _MASK
    if "MRG" in modifiers:
        value = (value & 0xFFFF) | (whole << 16)
    return {name: _joined(value, first, second, third, whole)}


def _scaled_add(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    name, *texts = operands
    is_plain = not any(_PREDICATES.match(each) for each in texts) and ".CC" not in name
    if "X" in modifiers or not is_plain:
        return None
    first, second = state.read(texts[0]), state.read(texts[1])
    shift = int(texts[-1], 0)
    if "HI" not in modifiers:
        return {_register(name): _joined((first << shift) + second, first, second)}
    if "SX32" in modifiers:
        return {_register(name): _joined((signed(first) >> (32 - shift)) + second, first, second)}
    upper = state.read(texts[2])
    shifted = (first >> (32 - shift)) + (upper << shift)
    return {_register(name): _joined(shifted + second, first, second, upper)}


def _shift(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState, *, left: bool
) -> dict[str, Lanes]:
    value, by = state.read(operands[1]), state.read(operands[2])
    shift = np.minimum(np.where(by == UNKNOWN, 0, by), 32)
    right = value if "U32" in modifiers else signed(value)
    moved = value << shift if left else right >> shift
    return {_register(operands[0]): _joined(moved, value, by)}


def _shift_left(m: frozenset[str], operands: Sequence[str], state: WarpState) -> dict[str, Lanes]:
    return _shift(m, operands, state, left=True)


def _shift_right(m: frozenset[str], operands: Sequence[str], state: WarpState) -> dict[str, Lanes]:
    return _shift(m, operands, state, left=False)


def _funnel_shift(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    """Follow shifts of 64 bits, lower half first, of which one half is kept."""
    low, by, high = (state.read(each) for each in operands[1:4])
    is_signed = bool(modifiers & {"S32", "S64"})
    keeps_high = "HI" in modifiers
    found: list[int] = []
    for a, shift, b in zip(low, by, high, strict=True):
        needs = (a, b) if modifiers & {"U64", "S64"} else ((b,) if keeps_high else (a,))
        if shift == UNKNOWN or UNKNOWN in needs:
            found.append(UNKNOWN)
            continue
        upper = int(b) - (1 << 32) if is_signed and b >= 1 << 31 else int(b)
        whole = (max(0, upper) if b == UNKNOWN else upper) << 32 | (0 if a == UNKNOWN else int(a))
        moved = whole << int(shift) if "L" in modifiers else whole >> int(shift)
        found.append(moved >> 32 & _MASK if keeps_high else moved & _MASK)
    return {_register(operands[0]): np.array(found, dtype=np.int64)}


def _bitwise(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    name, first, second = operands[0], state.read(operands[1]), state.read(operands[2])
    operation = next((each for each in ("AND", "OR", "XOR") if each in modifiers), None)
    if operation is None or len(operands) != 3:
        return None
    value = {"AND": first & second, "OR": first | second, "XOR": first ^ second}[operation]
    return {_register(name): _joined(value, first, second)}


def _lookup(table: int, inputs: Sequence[Lanes], bits: int) -> Lanes:
    """Return the function of three bits that a table of eight says, bit by bit."""
    whole = (1 << bits) - 1
    found = np.zeros(LANES, dtype=np.int64)
    for number in range(8):
        if table >> number & 1:
            term = np.full(LANES, whole, dtype=np.int64)
            for place, value in enumerate(inputs):
                term &= value if number >> (2 - place) & 1 else ~value & whole
            found |= term
    known = np.all([each != UNKNOWN for each in inputs], axis=0)
    return np.where(known, found, UNKNOWN)


def _table_of_bits(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes]:
    del modifiers
    rest = list(operands)
    predicate = _register(rest.pop(0)) if _PREDICATES.match(rest[0]) else None
    name, *texts = rest
    value = _lookup(int(texts[3], 0), [state.read(each) for each in texts[:3]], 32)
    found = {_register(name): value}
    if predicate is not None:
        also = state.read(texts[4]) if len(texts) > 4 else lanes_of(0)
        found[predicate] = np.where(value == UNKNOWN, UNKNOWN, (value != 0) | (also == 1))
    return found


def _table_of_predicates(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes]:
    del modifiers
    inputs = [state.read(each) for each in operands[2:5]]
    return {operands[place]: _lookup(int(operands[5 + place], 0), inputs, 1) for place in (0, 1)}


def _combined(operation: str, one: Lanes, other: Lanes) -> Lanes:
    value = {"AND": one & other, "OR": one | other, "XOR": one ^ other}[operation]
    known = (one != UNKNOWN) & (other != UNKNOWN)
    if operation == "AND":
        return np.where(known, value, np.where((one == 0) | (other == 0), 0, UNKNOWN))
    if operation == "OR":
        return np.where(known, value, np.where((one == 1) | (other == 1), 1, UNKNOWN))
    return np.where(known, value, UNKNOWN)


def _compare(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    comparison = next((each for each in _COMPARISONS if each in modifiers), None)
    if comparison is None:
        return None
    first, second, also = (state.read(each) for each in operands[2:5])
    one, other = (first, second) if "U32" in modifiers else (signed(first), signed(second))
    outcome = _COMPARISONS[comparison](one, other)
    known = (first != UNKNOWN) & (second != UNKNOWN)
    if "EX" in modifiers:  # upper halves; if they are equal, lower ones decide
        lower = state.read(operands[5])
        outcome = np.where(one == other, lower == 1, outcome)
        known &= lower != UNKNOWN
    found = np.where(known, outcome.astype(np.int64), UNKNOWN)
    operation = next((each for each in ("AND", "OR", "XOR") if each in modifiers), "AND")
    inverse = np.where(found == UNKNOWN, UNKNOWN, 1 - found)
    return {
        operands[0]: _combined(operation, found, also),
        operands[1]: _combined(operation, inverse, also),
    }


def _combine_predicates(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    """Follow Maxwell's ``PSETP.AND.AND``; others of them mix two operations, and are unknown."""
    if modifiers != frozenset({"AND"}):
        return None
    inputs = [state.read(each) for each in operands[2:5]]
    value = _combined("AND", _combined("AND", inputs[0], inputs[1]), inputs[2])
    return {operands[0]: value}


def _select(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes]:
    del modifiers
    first, second, choice = (state.read(each) for each in operands[1:4])
    chosen = np.where(choice == 1, first, second)
    return {_register(operands[0]): np.where(choice == UNKNOWN, UNKNOWN, chosen)}


def _extreme(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes]:
    first, second, is_least = (state.read(each) for each in operands[1:4])
    one, other = (first, second) if "U32" in modifiers else (signed(first), signed(second))
    value = np.where(is_least == 1, np.minimum(one, other), np.maximum(one, other))
    return {_register(operands[0]): _joined(value, first, second, is_least)}


def _absolute(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes]:
    del modifiers
    value = state.read(operands[1])
    return {_register(operands[0]): _joined(np.abs(signed(value)), value)}


def _to_float(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    """Follow conversions to f32 as divisions of integers need them."""
    if modifiers & {"F64", "F16", "U16", "S16", "U8", "S8"}:
        return None
    value = state.read(operands[1])
    number = (value if "U32" in modifiers else signed(value)).astype(np.float32)
    return {operands[0]: _joined(number.view(np.uint32).astype(np.int64), value)}


def _reciprocal(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    if modifiers != frozenset({"RCP"}):
        return None
    value = state.read(operands[1])
    number = (value & _MASK).astype(np.uint32).view(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        result = (np.float32(1) / number).astype(np.float32)
    return {operands[0]: _joined(result.view(np.uint32).astype(np.int64), value)}


def _to_integer(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes] | None:
    if "U32" not in modifiers or "TRUNC" not in modifiers or modifiers & {"F64", "F16"}:
        return None
    value = state.read(operands[1])
    number = (value & _MASK).astype(np.uint32).view(np.float32)
    whole = np.clip(np.nan_to_num(number.astype(np.float64)), 0, _MASK).astype(np.int64)
    return {operands[0]: _joined(whole, value)}


def _normal(
    modifiers: frozenset[str], operands: Sequence[str], state: WarpState
) -> dict[str, Lanes]:
    """Take operands of divisions to be normal numbers, which need no slow way."""
    del modifiers, state
    return {operands[0]: lanes_of(0)}


_HANDLERS: Mapping[str, _Handler] = {
    **dict.fromkeys(("MOV", "MOV32I", "LDC", "LDCU", "S2R", "S2UR", "R2UR", "CS2R"), _move),
    **dict.fromkeys(("HFMA2",), _half_constant),
    **dict.fromkeys(("IADD", "IADD32I", "IADD3", "VIADD"), _add),
    **dict.fromkeys(("IMAD", "IMUL"), _multiply),
    **dict.fromkeys(("ISCADD", "LEA"), _scaled_add),
    **dict.fromkeys(("LOP", "LOP32I"), _bitwise),
    **dict.fromkeys(("IMNMX", "VIMNMX"), _extreme),
    "XMAD": _short_multiply,
    "SHL": _shift_left,
    "SHR": _shift_right,
    "SHF": _funnel_shift,
    "LOP3": _table_of_bits,
    "PLOP3": _table_of_predicates,
    "PSETP": _combine_predicates,
    "ISETP": _compare,
    "SEL": _select,
    "IABS": _absolute,
    "I2F": _to_float,
    "I2FP": _to_float,
    "MUFU": _reciprocal,
    "F2I": _to_integer,
    "FCHK": _normal,
}
