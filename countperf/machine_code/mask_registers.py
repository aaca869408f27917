"""Mask registers of AVX-512: comparisons that set them, and instructions on masks.

A mask is its bits, and which of them are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from countperf.machine_code.integer_operands import (
    Action,
    reader,
    signed,
    writer,
)
from countperf.machine_code.machine_state import (
    REGISTERS,
    Flags,
    Lanes,
    Machine,
)
from countperf.machine_code.vector_elements import elements_of, lanes_from, pairs_of
from countperf.machine_code.vector_registers import LANES, VECTOR, Source

_BITS = {"b": 8, "w": 16, "d": 32, "q": 64}
MASK = re.compile(r"^%k([0-7])(\{.*)?$")
WRITTEN_UNDER = re.compile(r"\{%k([0-7])\}(\{z\})?")
_COMPARISON = re.compile(r"^vpcmp(eq|lt|le|gt|ge|neq|nlt|nle)(u?)([bwdq])$")
_TEST = re.compile(r"^vptest(n?)m([bwdq])$")
_SIGNS = re.compile(r"^vpmov([bwdq])2m$")
SPREAD_MASKS = re.compile(r"^vpmovm2([bwdq])$")
_ORDER: Mapping[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "neq": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "nlt": lambda a, b: a >= b,
    "ge": lambda a, b: a >= b,
    "le": lambda a, b: a <= b,
    "nle": lambda a, b: a > b,
    "gt": lambda a, b: a > b,
}
ALL_KNOWN = (1 << 64) - 1


def mask_action(mnemonic: str, parts: list[str]) -> Action | None:
    """Return what an instruction does that sets a mask, or tests or moves masks."""
    target = MASK.match(parts[-1])
    if mnemonic.startswith(("kortest", "ktest")):
        return _mask_test(mnemonic, parts)
    if target is None:
        source = MASK.match(parts[0])
        if source is not None and mnemonic.startswith("kmov"):
            number, bits = int(source[1]), _BITS[mnemonic[4]]
            low = (1 << bits) - 1
            write = writer(parts[-1], max(bits, 32) if parts[-1] in REGISTERS else bits)

            def take(machine: Machine) -> None:
                value, known = machine.masks[number]
                write(machine, value & low if known & low == low else None)

            return take
        return None
    number = int(target[1])
    under = WRITTEN_UNDER.search(parts[-1])
    compute = _mask_of(mnemonic, parts)

    def put(machine: Machine) -> None:
        value, known = (0, 0) if compute is None else compute(machine)
        if under is not None:
            other, other_known = machine.masks[int(under[1])]
            known = (known & other_known) | (known & ~value) | (other_known & ~other)
            value &= other
        machine.masks[number] = value & known, known

    return put


_MaskSource = Callable[[Machine], tuple[int, int]]


def _mask_of(mnemonic: str, parts: list[str]) -> _MaskSource | None:
    if found := _COMPARISON.match(mnemonic):
        return _compared(_ORDER[found[1]], parts, _BITS[found[3]], found[2] == "u")
    if (found := _TEST.match(mnemonic)) and len(parts) == 3:
        is_zero = found[1] == "n"
        order = (lambda a, b: a & b == 0) if is_zero else (lambda a, b: a & b != 0)
        return _compared(order, parts, _BITS[found[2]], is_unsigned=True)
    if found := _SIGNS.match(mnemonic):
        return _signs(parts, _BITS[found[1]])
    if not mnemonic.startswith("k"):
        return None
    bits = _BITS.get(mnemonic[-1], 64)
    low = (1 << bits) - 1
    if mnemonic.startswith("kmov"):
        return _moved_mask(parts[0], bits)
    numbers = [int(found[1]) for part in parts[:-1] if (found := MASK.match(part)) is not None]
    if mnemonic.startswith(("kxnor", "kxor")) and len(numbers) == 2 and numbers[0] == numbers[1]:
        return lambda _: (low if mnemonic.startswith("kxnor") else 0, ALL_KNOWN)
    if mnemonic.startswith("knot") and len(numbers) == 1:
        return lambda machine: (
            ~machine.masks[numbers[0]][0] & machine.masks[numbers[0]][1] & low,
            machine.masks[numbers[0]][1] | (ALL_KNOWN & ~low),
        )
    if mnemonic.startswith("kshift") and len(numbers) == 1 and parts[0].startswith("$"):
        by, is_left = int(parts[0].lstrip("$"), 0), mnemonic.startswith("kshiftl")
        return _shifted_mask(numbers[0], by, bits, is_left=is_left)
    return _combined_masks(mnemonic, numbers, bits) if len(numbers) == 2 else None


def _moved_mask(text: str, bits: int) -> _MaskSource:
    """Return what moves a mask, or the low bits of an integer, into a mask."""
    low = (1 << bits) - 1
    if (found := MASK.match(text)) is not None:
        number = int(found[1])
        return lambda machine: (machine.masks[number][0] & low, machine.masks[number][1])
    read = reader(text, bits)

    def moved(machine: Machine) -> tuple[int, int]:
        value = read(machine)
        return (0, ALL_KNOWN & ~low) if value is None else (value & low, ALL_KNOWN)

    return moved


def _shifted_mask(number: int, by: int, bits: int, *, is_left: bool) -> _MaskSource:
    """Return what shifts a mask by a constant."""
    low = (1 << bits) - 1

    def shifted(machine: Machine) -> tuple[int, int]:
        value, known = machine.masks[number]
        value, known = value & low, known | (ALL_KNOWN & ~low)
        if is_left:
            return (value << by) & low, ((known << by) | ((1 << by) - 1)) & ALL_KNOWN | (
                ALL_KNOWN & ~low
            )
        return value >> by, known >> by | (ALL_KNOWN & ~(low >> by))

    return shifted


def _combined_masks(mnemonic: str, numbers: Sequence[int], bits: int) -> _MaskSource:
    """Return what combines two masks bit by bit, or puts their halves together."""
    low = (1 << bits) - 1
    name = mnemonic[:-1]

    def combined(machine: Machine) -> tuple[int, int]:
        (b, b_known), (a, a_known) = machine.masks[numbers[0]], machine.masks[numbers[1]]
        if mnemonic.startswith("kunpck"):
            half = {"kunpckbw": 8, "kunpckwd": 16, "kunpckdq": 32}[mnemonic]
            part = (1 << half) - 1
            known = (b_known & part) | ((a_known & part) << half)
            return (b & part) | ((a & part) << half), known | (ALL_KNOWN & ~((1 << 2 * half) - 1))
        zeros_a, zeros_b = a_known & ~a, b_known & ~b
        if name == "kand":
            return a & b, (a & b) | zeros_a | zeros_b
        if name == "kandn":
            return zeros_a & b & low, (zeros_a & b) | a | zeros_b
        if name == "kor":
            return a | b, a | b | (zeros_a & zeros_b)
        both = a_known & b_known
        if name == "kxor":
            return (a ^ b) & both, both
        if name == "kxnor":
            return ~(a ^ b) & both & low, both
        return 0, 0

    return combined


def _compared(
    order: Callable[[int, int], bool], parts: list[str], bits: int, is_unsigned: bool
) -> _MaskSource | None:
    if len(parts) != 3:
        return None
    register = VECTOR.match(parts[1])
    lanes = LANES[register[1]] if register is not None else 16
    pairs_in = pairs_of(parts, lanes, bits)
    rest = ALL_KNOWN & ~((1 << (32 * lanes // bits)) - 1)

    def number(value: int) -> int:
        return value if is_unsigned else signed(value, bits)

    def compare(machine: Machine) -> tuple[int, int]:
        value, known = 0, rest
        for place, (a, b) in enumerate(pairs_in(machine)):
            if a is not None and b is not None:
                known |= 1 << place
                value |= order(number(a), number(b)) << place
        return value, known

    return compare


def _signs(parts: list[str], bits: int) -> _MaskSource | None:
    register = VECTOR.match(parts[0])
    if register is None:
        return None
    number, lanes = int(register[2]), LANES[register[1]]
    rest = ALL_KNOWN & ~((1 << (32 * lanes // bits)) - 1)

    def take(machine: Machine) -> tuple[int, int]:
        value, known = 0, rest
        for place, element in enumerate(elements_of(machine.vectors[number][:lanes], bits)):
            if element is not None:
                known |= 1 << place
                value |= (element >> (bits - 1)) << place
        return value, known

    return take


def _mask_test(mnemonic: str, parts: list[str]) -> Action | None:
    found = [MASK.match(part) for part in parts]
    bits = _BITS[mnemonic[-1]]
    low = (1 << bits) - 1
    numbers = [int(each[1]) for each in found if each is not None]
    if len(numbers) != 2:
        return None
    is_or = mnemonic.startswith("kor")

    def test(machine: Machine) -> None:
        (b, b_known), (a, a_known) = machine.masks[numbers[0]], machine.masks[numbers[1]]
        zeros_a, zeros_b = a_known & ~a & low, b_known & ~b & low
        machine.flags = None
        ones = (a | b if is_or else a & b) & low
        zeros = zeros_a & zeros_b if is_or else zeros_a | zeros_b
        if ones or zeros == low:  # the carry says whether all are one, which needs all of them
            is_full = ones == low
            machine.flags = (
                Flags("mask", 0, 1, 1, bits)
                if is_full
                else Flags("mask", 1, 0, int(bool(ones)), bits)
            )

    return test


def spread_mask(text: str, lanes: int, bits: int) -> Source | None:
    """Return what sets all bits of the elements for which a mask has a one."""
    found = MASK.match(text)
    if found is None:
        return None
    number, ones = int(found[1]), (1 << bits) - 1

    def spread(machine: Machine) -> Lanes:
        value, known = machine.masks[number]
        return lanes_from(
            [
                (ones if value >> place & 1 else 0) if known >> place & 1 else None
                for place in range(32 * lanes // bits)
            ],
            bits,
        )

    return spread
