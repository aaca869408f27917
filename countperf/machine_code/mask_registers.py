"""Mask registers of AVX-512: instructions on masks, and comparisons that set them.

A mask is 64 bits as an array, of which each may be unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from countperf.machine_code.machine_state import REGISTERS, UNKNOWN, Flags, Lanes, Machine
from countperf.machine_code.operands import (
    VECTOR,
    WIDTHS,
    Action,
    Source,
    immediate,
    reader,
    source_of,
    writer,
)

MASK = re.compile(r"^%k([0-7])(\{.*)?$")
WRITTEN_UNDER = re.compile(r"\{%k([0-7])\}(\{z\})?")
BITS = {"b": 8, "w": 16, "d": 32, "q": 64}
MASK_BITS = 64
_COMPARISON = re.compile(r"^vpcmp(eq|lt|le|gt|ge|neq|nlt|nle)(u?)([bwdq])$")
_TEST = re.compile(r"^vptest(n?)m([bwdq])$")
_SIGNS = re.compile(r"^vpmov([bwdq])2m$")
Elements = npt.NDArray[Any]
_ORDER: Mapping[str, Callable[[Elements, Elements], Elements]] = {
    **{"eq": np.equal, "neq": np.not_equal, "lt": np.less, "nlt": np.greater_equal},
    **{"ge": np.greater_equal, "le": np.less_equal, "nle": np.greater, "gt": np.greater},
}


def elements_of(lanes: Lanes, bits: int) -> tuple[Elements, npt.NDArray[np.bool_]]:
    """Return bytes as unsigned elements of some bits, and which of them are known."""
    size = bits // 8
    values = np.ascontiguousarray(lanes).astype(np.uint8).view(f"u{size}")
    return values, lanes.reshape(-1, size).min(axis=1) >= 0


def signed_elements(values: Elements) -> Elements:
    """Return unsigned elements as numbers in two's complement."""
    return values.view(f"i{values.itemsize}")


def invert(a: Lanes) -> Lanes:
    """Return the bits that are not set, known or not."""
    return np.where(a < 0, a, 1 - a)


def both(a: Lanes, b: Lanes) -> Lanes:
    """Return bits that are set in both of two masks; one that is not set decides alone."""
    return np.where((a == 0) | (b == 0), 0, np.where((a < 0) | (b < 0), UNKNOWN, 1)).astype(a.dtype)


def _either(a: Lanes, b: Lanes) -> Lanes:
    return invert(both(invert(a), invert(b)))


def _differing(a: Lanes, b: Lanes) -> Lanes:
    return np.where((a < 0) | (b < 0), UNKNOWN, a ^ b)


_COMBINED: Mapping[str, Callable[[Lanes, Lanes], Lanes]] = {
    "kand": both,
    "kandn": lambda a, b: both(invert(a), b),
    "kor": _either,
    "kxor": _differing,
    "kxnor": lambda a, b: invert(_differing(a, b)),
}


def mask_action(mnemonic: str, parts: Sequence[str]) -> Action | None:
    """Return what an instruction does that sets a mask, or tests or moves masks."""
    bits = BITS.get(mnemonic[4] if mnemonic.startswith("kmov") else mnemonic[-1], MASK_BITS)
    if mnemonic.startswith(("kortest", "ktest")):
        return _test(mnemonic.startswith("kor"), parts, bits)
    target, source = MASK.match(parts[-1]), MASK.match(parts[0])
    if target is None and source is not None and mnemonic.startswith("kmov"):
        own, write = int(source[1]), writer(parts[-1], max(bits, 32 * (parts[-1] in REGISTERS)))

        def take(machine: Machine) -> None:
            found = machine.masks[own, :bits]
            value = None if (found < 0).any() else sum(1 << k for k in np.flatnonzero(found))
            write(machine, None if value is None else int(value))

        return take
    if target is None:
        return None
    number, under = int(target[1]), WRITTEN_UNDER.search(parts[-1])
    compute = _source(mnemonic, parts, bits)

    def put(machine: Machine) -> None:
        found = np.full(MASK_BITS, UNKNOWN, np.int16) if compute is None else compute(machine)
        machine.masks[number] = both(found, machine.masks[int(under[1])]) if under else found

    return put


def _source(mnemonic: str, parts: Sequence[str], bits: int) -> Source | None:
    """Return what computes the mask that an instruction writes; None if it has no rule."""
    if (match := _COMPARISON.match(mnemonic)) and len(parts) == 3:
        return _compared(_ORDER[match[1]], parts, BITS[match[3]], is_signed=not match[2])
    if (match := _TEST.match(mnemonic)) and len(parts) == 3:
        is_zero = match[1] == "n"
        return _compared(
            lambda a, b: ((a & b) == 0) == is_zero, parts, BITS[match[2]], is_signed=False
        )
    if match := _SIGNS.match(mnemonic):
        zero = [parts[0], parts[0], parts[1]]
        return _compared(lambda a, _: a < 0, zero, BITS[match[1]], is_signed=True)
    numbers = [int(match[1]) for part in parts[:-1] if (match := MASK.match(part)) is not None]
    name = mnemonic[:-1]
    if mnemonic.startswith("kmov"):
        read = reader(parts[0], bits)
        return lambda machine: (
            _cut(machine.masks[numbers[0]], bits) if numbers else _bits_of(read(machine), bits)
        )
    if name in ("kxor", "kxnor") and len(numbers) == 2 and numbers[0] == numbers[1]:
        value = (1 << bits) - 1 if name == "kxnor" else 0
        return lambda _: _bits_of(value, bits)
    if name == "knot" and numbers:
        return lambda machine: _cut(invert(machine.masks[numbers[0]]), bits)
    by = immediate(parts[0])
    if name in ("kshiftl", "kshiftr") and numbers and by is not None:
        zeros, left = np.zeros(MASK_BITS, np.int16), name == "kshiftl"

        def shift(machine: Machine) -> Lanes:
            given = machine.masks[numbers[0], :bits]
            return _cut(np.concatenate((zeros[:by], given) if left else (given[by:], zeros)), bits)

        return shift
    if mnemonic.startswith("kunpck") and len(numbers) == 2:
        half = BITS[mnemonic[-2]]
        return lambda machine: _cut(
            np.concatenate([machine.masks[number, :half] for number in numbers]), 2 * half
        )
    if name in _COMBINED and len(numbers) == 2:
        combine = _COMBINED[name]
        return lambda machine: _cut(
            combine(machine.masks[numbers[1]], machine.masks[numbers[0]]), bits
        )
    return None


def _cut(mask: Lanes, bits: int) -> Lanes:
    """Return the low bits of a mask; the others are zero."""
    cut = np.zeros(MASK_BITS, dtype=np.int16)
    cut[:bits] = mask[:bits]
    return cut


def _bits_of(value: int | None, bits: int) -> Lanes:
    found = np.zeros(MASK_BITS, dtype=np.int16)
    found[:bits] = UNKNOWN if value is None else [value >> k & 1 for k in range(bits)]
    return found


def _compared(
    order: Callable[[Elements, Elements], Elements],
    parts: Sequence[str],
    bits: int,
    *,
    is_signed: bool,
) -> Source:
    register = VECTOR.match(parts[1])
    width = WIDTHS[register[1]] if register is not None else WIDTHS["z"]
    second, first = source_of(parts[0], width), source_of(parts[1], width)

    def compare(machine: Machine) -> Lanes:
        (a, known), (b, also) = (
            elements_of(first(machine), bits),
            elements_of(second(machine), bits),
        )
        if is_signed:
            a, b = signed_elements(a), signed_elements(b)
        found = np.zeros(MASK_BITS, dtype=np.int16)
        found[: len(a)] = np.where(known & also, order(a, b), UNKNOWN)
        return found

    return compare


def _test(is_or: bool, parts: Sequence[str], bits: int) -> Action | None:
    """Set the zero flag if no bit is set; kortest sets the carry if all are."""
    numbers = [int(found[1]) for part in parts if (found := MASK.match(part)) is not None]
    if len(numbers) != 2:
        return None

    def test(machine: Machine) -> None:
        a, b = machine.masks[numbers[1], :bits], machine.masks[numbers[0], :bits]
        found = _either(a, b) if is_or else both(a, b)
        full = found if is_or else invert(both(invert(a), b))
        machine.flags = None
        if (found == 1).any() or (found == 0).all():
            carry = int((full == 1).all())
            machine.flags = Flags("exact", carry, 0, int((found == 1).any()), bits)

    return test


def spread_mask(text: str, size: int, width: int) -> Source | None:
    """Return what sets all bytes of the elements for which a mask has a one."""
    match = MASK.match(text)
    if match is None:
        return None
    number = int(match[1])

    def spread(machine: Machine) -> Lanes:
        bits = machine.masks[number, : width // size]
        return np.repeat(np.where(bits < 0, bits, bits * 0xFF), size)

    return spread
