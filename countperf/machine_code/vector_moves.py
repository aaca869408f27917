"""Instructions that move elements of vectors, or set and combine masks of AVX-512.

The rule of a move says where each element of the result comes from: elements of the operands are
numbered side by side, those of the operand that is written last first, and `ZERO` is zero. A mask
is 64 bits as an array, of which each may be unknown. Moves that no kernel needs for its control
flow have no rule: what they write is unknown.

Source: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from countperf.machine_code.machine_state import (
    REGISTERS,
    UNKNOWN,
    VECTOR,
    WIDTHS,
    Action,
    Flags,
    Lanes,
    Machine,
    Source,
    immediate,
    reader,
    source_of,
    writer,
)

ZERO = -1
ELEMENT_BYTES = {
    **{"b": 1, "w": 2, "d": 4, "q": 8, "ps": 4, "pd": 8, "ss": 4, "sd": 8},
    **{"32x2": 8, "128": 16, "32x4": 16, "64x2": 16, "32x8": 32, "64x4": 32},
    **{"bw": 1, "wd": 2, "dq": 4, "qdq": 8},
}
"""Bytes of an element by what a name ends with; of ``unpack``, of an element of the operands."""


def _interleave_elements(half: str, count: int, piece: int, _by: int) -> list[int]:
    """Take the lower or upper elements of 128 bits of two vectors in turns."""
    first = piece // 2 if half == "h" else 0
    places = [start + first + k for start in range(0, count, piece) for k in range(piece // 2)]
    return [vector + k for k in places for vector in (0, count)]


def _permute_elements(_half: str, count: int, _piece: int, by: int) -> list[int]:
    """Permute each four elements."""
    return [start + (by >> 2 * k & 3) for start in range(0, count, 4) for k in range(4)]


def _pick_elements(_half: str, count: int, piece: int, by: int) -> list[int]:
    """Choose two elements of each of two vectors for every 128 bits."""
    places = _permute_elements("", count, piece, by)
    return [place + count * (k % 4 // 2) for k, place in enumerate(places)]


def _blend_by_constant(_half: str, count: int, _piece: int, by: int) -> list[int]:
    """Choose elements of two vectors by the bits of a constant."""
    return [k + count * (by >> k % 8 & 1) for k in range(count)]


def _join_halves(_half: str, _count: int, _piece: int, by: int) -> list[int]:
    """Choose two halves out of those of two vectors."""
    return [ZERO if half & 8 else half & 3 for half in (by & 0xF, by >> 4)]


_ORDERS: Sequence[tuple[re.Pattern[str], int, Callable[[str, int, int, int], Sequence[int]]]] = (
    tuple(
        (re.compile(pattern), operands, order)
        for pattern, operands, order in (
            # name with the size of elements, operands, and the rule, from the numbers of elements
            # of a vector and of 128 bits, and the constant
            (r"^vp?unpck([lh])(bw|wd|q?dq|ps|pd)$", 3, _interleave_elements),
            (r"^vp(?:erm|shuf)()(q|pd|d)$", 3, _permute_elements),
            (r"^vshuf()(ps)$", 4, _pick_elements),
            (r"^vp?blend()(d|ps|pd)$", 4, _blend_by_constant),
            (r"^vperm2[if]()(128)$", 4, _join_halves),
        )
    )
)

_PIECES = re.compile(r"^v(?:(extract|insert)[if]|pinsr)(128|32x4|64x2|32x8|64x4|[bwdq])$")
_BROADCASTS = re.compile(r"^vp?broadcast(?:[if])?(?P<size>[bwdq]|s[sd]|128|32x[248]|64x[24])$")
_NARROWED = re.compile(r"^vpmov([qdw])([dwb])$")


def rearrange(sources: Sequence[Source], order: Sequence[int], size: int) -> Source:
    """Return what picks elements of vectors that lie side by side."""
    zero = np.zeros((1, size), dtype=np.int16)
    places = np.array(order)

    def pick(machine: Machine) -> Lanes:
        rows = [source(machine).reshape(-1, size) for source in sources]
        return np.concatenate([*rows, zero])[places].reshape(-1)

    return pick


def move_source(mnemonic: str, parts: Sequence[str], width: int) -> Source | None:
    """Return what computes the vector that a move writes, of so many bytes; None without a rule."""
    by = immediate(parts[0])
    if (match := _PIECES.match(mnemonic)) and by is not None:
        size = ELEMENT_BYTES[match[2]]
        if match[1] != "extract" and len(parts) == 4:
            own, new = source_of(parts[2], width), source_of(parts[1], size)
            count = width // size
            order = [count if k == by % count else k for k in range(count)]
            return rearrange([own, new], order, size)
        vector = VECTOR.match(parts[1])
        if vector is not None and len(parts) == 3:
            whole = WIDTHS[vector[1]]
            return rearrange([source_of(parts[1], whole)], [by % (whole // size)], size)
        return None
    if (match := _BROADCASTS.match(mnemonic)) and len(parts) == 2:
        size = ELEMENT_BYTES[match["size"]]
        return rearrange([source_of(parts[0], size)], [0] * (width // size), size)
    if (match := _NARROWED.match(mnemonic)) and (vector := VECTOR.match(parts[0])):
        wide, size = (ELEMENT_BYTES[group] for group in match.groups())
        whole = WIDTHS[vector[1]]
        return rearrange([source_of(parts[0], whole)], range(0, whole // size, wide // size), size)
    for pattern, operands, rule in _ORDERS:
        match = pattern.match(mnemonic) if len(parts) == operands else None
        is_constant = by is not None
        if match is not None and is_constant is not (rule is _interleave_elements):
            size = ELEMENT_BYTES[match[2]]
            inputs = [source_of(part, width) for part in reversed(parts[is_constant:-1])]
            order = rule(match[1], width // size, 16 // size, by or 0)
            return rearrange(inputs, order, size)
    return None


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


def elements_reader(
    sources: Sequence[Source], bits: int, *, is_signed: bool = False
) -> Callable[[Machine], tuple[list[Elements], npt.NDArray[np.bool_]]]:
    """Return what reads the elements of operands, and where all of them are known."""

    def read(machine: Machine) -> tuple[list[Elements], npt.NDArray[np.bool_]]:
        operands = [elements_of(source(machine), bits) for source in sources]
        values = [sign_elements(a) if is_signed else a for a, _ in operands]
        return values, np.logical_and.reduce([known for _, known in operands])

    return read


def sign_elements(values: Elements) -> Elements:
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
            bits_set = machine.masks[own, :bits]
            value = None if (bits_set < 0).any() else sum(1 << k for k in np.flatnonzero(bits_set))
            write(machine, None if value is None else int(value))

        return take
    if target is None:
        return None
    number, under = int(target[1]), WRITTEN_UNDER.search(parts[-1])
    compute = _source(mnemonic, parts, bits)

    def put(machine: Machine) -> None:
        mask = np.full(MASK_BITS, UNKNOWN, np.int16) if compute is None else compute(machine)
        machine.masks[number] = both(mask, machine.masks[int(under[1])]) if under else mask

    return put


def _source(mnemonic: str, parts: Sequence[str], bits: int) -> Source | None:
    """Return what computes the mask that an instruction writes; None if it has no rule."""
    if (match := _COMPARISON.match(mnemonic)) and len(parts) == 3:
        return _compare_elements(_ORDER[match[1]], parts, BITS[match[3]], is_signed=not match[2])
    if (match := _TEST.match(mnemonic)) and len(parts) == 3:
        is_zero = match[1] == "n"
        return _compare_elements(
            lambda a, b: ((a & b) == 0) == is_zero, parts, BITS[match[2]], is_signed=False
        )
    if match := _SIGNS.match(mnemonic):
        zero = [parts[0], parts[0], parts[1]]
        return _compare_elements(lambda a, _: a < 0, zero, BITS[match[1]], is_signed=True)
    numbers = [int(match[1]) for part in parts[:-1] if (match := MASK.match(part)) is not None]
    name = mnemonic[:-1]
    if mnemonic.startswith("kmov"):
        read = reader(parts[0], bits)
        return lambda machine: (
            _cut_mask(machine.masks[numbers[0]], bits) if numbers else _bits_of(read(machine), bits)
        )
    if name in ("kxor", "kxnor") and len(numbers) == 2 and numbers[0] == numbers[1]:
        value = (1 << bits) - 1 if name == "kxnor" else 0
        return lambda _: _bits_of(value, bits)
    if name == "knot" and numbers:
        return lambda machine: _cut_mask(invert(machine.masks[numbers[0]]), bits)
    by = immediate(parts[0])
    if name in ("kshiftl", "kshiftr") and numbers and by is not None:
        zeros, left = np.zeros(MASK_BITS, np.int16), name == "kshiftl"

        def shift(machine: Machine) -> Lanes:
            given = machine.masks[numbers[0], :bits]
            return _cut_mask(
                np.concatenate((zeros[:by], given) if left else (given[by:], zeros)), bits
            )

        return shift
    if mnemonic.startswith("kunpck") and len(numbers) == 2:
        half = BITS[mnemonic[-2]]
        return lambda machine: _cut_mask(
            np.concatenate([machine.masks[number, :half] for number in numbers]), 2 * half
        )
    if name in _COMBINED and len(numbers) == 2:
        combine = _COMBINED[name]
        return lambda machine: _cut_mask(
            combine(machine.masks[numbers[1]], machine.masks[numbers[0]]), bits
        )
    return None


def _cut_mask(mask: Lanes, bits: int) -> Lanes:
    """Return the low bits of a mask; the others are zero."""
    cut = np.zeros(MASK_BITS, dtype=np.int16)
    cut[:bits] = mask[:bits]
    return cut


def _bits_of(value: int | None, bits: int) -> Lanes:
    mask = np.zeros(MASK_BITS, dtype=np.int16)
    mask[:bits] = UNKNOWN if value is None else [value >> k & 1 for k in range(bits)]
    return mask


def _compare_elements(
    order: Callable[[Elements, Elements], Elements],
    parts: Sequence[str],
    bits: int,
    *,
    is_signed: bool,
) -> Source:
    register = VECTOR.match(parts[1])
    width = WIDTHS[register[1]] if register is not None else WIDTHS["z"]
    sources = [source_of(part, width) for part in (parts[1], parts[0])]
    read = elements_reader(sources, bits, is_signed=is_signed)

    def compare(machine: Machine) -> Lanes:
        (a, b), known = read(machine)
        mask = np.zeros(MASK_BITS, dtype=np.int16)
        mask[: len(a)] = np.where(known, order(a, b), UNKNOWN)
        return mask

    return compare


def _test(is_or: bool, parts: Sequence[str], bits: int) -> Action | None:
    """Set the zero flag if no bit is set; kortest sets the carry if all are."""
    numbers = [int(match[1]) for part in parts if (match := MASK.match(part)) is not None]
    if len(numbers) != 2:
        return None

    def test(machine: Machine) -> None:
        a, b = machine.masks[numbers[1], :bits], machine.masks[numbers[0], :bits]
        outcome = _either(a, b) if is_or else both(a, b)
        full = outcome if is_or else invert(both(invert(a), b))
        machine.flags = None
        if (outcome == 1).any() or (outcome == 0).all():
            carry = int((full == 1).all())
            machine.flags = Flags("exact", carry, 0, int((outcome == 1).any()), bits)

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
