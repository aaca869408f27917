"""Integers of 8 to 64 bits side by side in vectors, as AVX2 computes with them.

Without mask registers, masks are vectors themselves: comparisons set all bits of an element, and
blends, masked loads and tests go by its highest bit.

Source: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from countperf.machine_code.integer_operands import (
    Action,
    address_of,
    operands_of,
    reader,
    signed,
    writer,
)
from countperf.machine_code.machine_state import REGISTERS, Flags, Lanes, Machine, Value
from countperf.machine_code.vector_elements import elements_of, lanes_from, pairs_of
from countperf.machine_code.vector_registers import LANES, VECTOR, Source, joined, source_of

_BITS = {"b": 8, "w": 16, "d": 32, "q": 64}
_PIECE = 4
"""Lanes of 128 bits, beyond which few instructions move anything."""

_COMPARED = re.compile(r"^vpcmp(eq|gt)([bwdq])$")
_LEAST = re.compile(r"^vp(min|max)([su])([bwdq])$")
_SUMS = re.compile(r"^vp(add|sub|mull|mulhu|mulh)([bwdq])$")
_SHIFTED = re.compile(r"^vps(ll|rl|ra)(v?)([wdq])$")
_PRODUCTS = re.compile(r"^vpmul(u?)dq$")
_PACKED = re.compile(r"^vpack(s|u)s(wb|dw)$")
_INTERLEAVED = re.compile(r"^vpunpck([lh])(bw|wd)$")
_WIDENED = re.compile(r"^vpmov([sz])x(b|w|d)(w|d|q)$")
_ABSOLUTE = re.compile(r"^vpabs([bwd])$")
_BLENDED = re.compile(r"^v(?:blendvp([sd])|pblendv(b))$")
_SPREAD = re.compile(r"^vpbroadcast([bw])$")
_MASKED = re.compile(r"^v(?:p?maskmov)(?:p([sd])|([dq]))$")
_MOVED_BYTES = re.compile(r"^vps(l|r)ldq$")
_SIGNS = re.compile(r"^v?(?:movmskp([sd])|pmovmsk(b))$")
_TESTS = re.compile(r"^vp?test(?:p([sd]))?$")
_EXTRACTED = re.compile(r"^vpextr([bw])$")
_INSERTED = re.compile(r"^vpinsr([bw])$")
_SIZES = {"s": 32, "d": 64}
_Element = Callable[[int, int], int]


def _bits_of(text: Sequence[str | None]) -> int:
    single, integer = text
    return _SIZES[single] if single else _BITS[integer or "b"]


def element_source(mnemonic: str, parts: list[str], lanes: int) -> Source | None:
    """Return what computes the vector that an instruction writes; None if it has no rule here."""
    for pattern, operands, make in _RULES:
        found = pattern.match(mnemonic) if len(parts) == operands else None
        if found is not None and (made := make(found, parts, lanes)) is not None:
            return made
    return None


def is_element_test(mnemonic: str) -> bool:
    """Say whether an instruction takes highest bits, or small elements, to integers or flags."""
    return bool(_SIGNS.match(mnemonic) or _TESTS.match(mnemonic) or _EXTRACTED.match(mnemonic))


def element_test(mnemonic: str, operands: str) -> Action | None:
    """Return what sets flags or an integer register by highest bits, or takes a small element.

    It is None for other instructions.
    """
    parts = operands_of(operands)
    if (found := _EXTRACTED.match(mnemonic)) and len(parts) == 3:
        return _extracted(parts, _BITS[found[1]])
    if len(parts) != 2:
        return None
    if (found := _SIGNS.match(mnemonic)) and parts[1] in REGISTERS:
        return _signs(parts, _bits_of(found.groups()))
    if (found := _TESTS.match(mnemonic)) and (register := VECTOR.match(parts[1])):
        bits = _SIZES[found[1]] if found[1] else 0
        return _test(parts, LANES[register[1]], bits)
    return None


def masked_store(mnemonic: str, operands: str) -> Action | None:
    """Return what stores the elements whose mask's highest bits are set; None if another one."""
    found, parts = _MASKED.match(mnemonic), operands_of(operands)
    if found is None or len(parts) != 3 or "(" not in parts[2]:
        return None
    source, mask = VECTOR.match(parts[0]), VECTOR.match(parts[1])
    address = address_of(parts[2])
    if source is None or mask is None or address is None:
        return None
    size, lanes = _bits_of(found.groups()) // 32, LANES[source[1]]
    values, chosen = int(source[2]), int(mask[2])

    def store(machine: Machine) -> None:
        start = address(machine)
        if start is None:
            return
        for lane in range(lanes):
            sign = machine.vectors[chosen][lane - lane % size + size - 1]
            if sign is None:
                machine.store(start + 4 * lane, 32, None)
            elif sign >> 31:
                machine.store(start + 4 * lane, 32, machine.vectors[values][lane])

    return store


def _signs(parts: Sequence[str], bits: int) -> Action | None:
    register = VECTOR.match(parts[0])
    if register is None:
        return None
    number, lanes = int(register[2]), LANES[register[1]]
    write = writer(parts[1], max(32, REGISTERS[parts[1]].bits))

    def take(machine: Machine) -> None:
        taken: Value = 0
        for place, value in enumerate(elements_of(machine.vectors[number][:lanes], bits)):
            if value is None:
                taken = None
                break
            taken |= (value >> (bits - 1)) << place
        write(machine, taken)

    return take


def _extracted(parts: Sequence[str], bits: int) -> Action | None:
    register = VECTOR.match(parts[1])
    if register is None:
        return None
    place, number = int(parts[0][1:], 0) % (128 // bits), int(register[2])
    write = writer(parts[2], 32 if parts[2] in REGISTERS else bits)
    return lambda machine: write(
        machine, elements_of(machine.vectors[number][:_PIECE], bits)[place]
    )


def _test(parts: Sequence[str], lanes: int, bits: int) -> Action:
    """Set flags as a test of all bits, or of the highest bit of each element, does."""
    second, first = (source_of(part, lanes) for part in parts)
    looked_at = 0xFFFF_FFFF if bits == 0 else 0x8000_0000
    step = 2 if bits == 64 else 1

    def test(machine: Machine) -> None:
        both = rest = 0
        machine.flags = None
        pairs = zip(first(machine)[:lanes], second(machine)[:lanes], strict=True)
        for one, other in list(pairs)[step - 1 :: step]:
            if one is None or other is None:
                return
            both |= one & other & looked_at
            rest |= ~one & other & looked_at
        machine.flags = Flags("mask", int(rest != 0), int(rest == 0), int(both != 0), 32)

    return test


def _compared(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    bits = _BITS[found[2]]
    ones = (1 << bits) - 1
    is_equal = found[1] == "eq"

    def compare(a: int, b: int) -> int:
        is_true = a == b if is_equal else signed(a, bits) > signed(b, bits)
        return ones if is_true else 0

    return _pairwise(compare, parts, lanes, bits)


def _least(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    bits, choose = _BITS[found[3]], min if found[1] == "min" else max
    if found[2] == "u":
        return _pairwise(choose, parts, lanes, bits)
    return _pairwise(
        lambda a, b: choose(signed(a, bits), signed(b, bits)) % (1 << bits), parts, lanes, bits
    )


def _sums(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    bits = _BITS[found[2]]
    operations: Mapping[str, _Element] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mull": lambda a, b: a * b,
        "mulhu": lambda a, b: a * b >> bits,
        "mulh": lambda a, b: signed(a, bits) * signed(b, bits) >> bits,
    }
    operation = operations[found[1]]
    if found[1] == "sub" and parts[0] == parts[1]:
        return lambda _: (0,) * lanes
    return _pairwise(lambda a, b: operation(a, b) % (1 << bits), parts, lanes, bits)


def _shifted(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    kind, bits = found[1], _BITS[found[3]]

    def shift(value: int, by: int) -> int:
        if kind == "ra":
            return (signed(value, bits) >> min(by, bits - 1)) % (1 << bits)
        if by >= bits:
            return 0
        return (value << by) % (1 << bits) if kind == "ll" else value >> by

    if found[2]:
        return _pairwise(shift, parts, lanes, bits)
    source = source_of(parts[1], lanes)
    if not parts[0].startswith("$"):  # by the lowest 64 bits of a vector
        by = source_of(parts[0], _PIECE)

        def shift_by_vector(machine: Machine) -> Lanes:
            count = joined(by(machine)[:2])
            return _mapped(source(machine)[:lanes], bits, count, shift)

        return shift_by_vector
    count = int(parts[0][1:], 0)
    return lambda machine: _mapped(source(machine)[:lanes], bits, count, shift)


def _mapped(lanes: Lanes, bits: int, count: Value, operation: _Element) -> Lanes:
    return lanes_from(
        [
            None if value is None or count is None else operation(value, count)
            for value in elements_of(lanes, bits)
        ],
        bits,
    )


def _products(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    def multiply(a: int, b: int) -> int:
        if found[1]:
            return (a & 0xFFFF_FFFF) * (b & 0xFFFF_FFFF)
        return signed(a & 0xFFFF_FFFF, 32) * signed(b & 0xFFFF_FFFF, 32) % (1 << 64)

    second, first = source_of(parts[0], lanes), source_of(parts[1], lanes)

    def compute(machine: Machine) -> Lanes:  # of which every other lane may be unknown
        pairs = zip(first(machine)[:lanes:2], second(machine)[:lanes:2], strict=True)
        return lanes_from(
            [None if a is None or b is None else multiply(a, b) for a, b in pairs], 64
        )

    return compute


def _pairwise(operation: _Element, parts: list[str], lanes: int, bits: int) -> Source | None:
    pairs_in = pairs_of(parts, lanes, bits)

    def compute(machine: Machine) -> Lanes:
        pairs = pairs_in(machine)
        return lanes_from(
            [None if a is None or b is None else operation(a, b) for a, b in pairs], bits
        )

    return compute


def _packed(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    wide, narrow = _BITS[found[2][0]], _BITS[found[2][1]]
    low, high = (-(1 << (narrow - 1)), (1 << (narrow - 1)) - 1)
    if found[1] == "u":
        low, high = 0, (1 << narrow) - 1
    second, first = source_of(parts[0], lanes), source_of(parts[1], lanes)

    def pack(machine: Machine) -> Lanes:
        one, other, packed = first(machine), second(machine), list[Value]()
        for start in range(0, lanes, _PIECE):
            for given in (one, other):
                packed += (
                    None
                    if value is None
                    else min(max(signed(value, wide), low), high) % (1 << narrow)
                    for value in elements_of(given[start : start + _PIECE], wide)
                )
        return lanes_from(packed, narrow)

    return pack


def _interleaved(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    bits = _BITS[found[2][0]]
    half = 64 // bits
    places = range(half, 2 * half) if found[1] == "h" else range(half)
    second, first = source_of(parts[0], lanes), source_of(parts[1], lanes)

    def interleave(machine: Machine) -> Lanes:
        one, other, mixed = first(machine), second(machine), list[Value]()
        for start in range(0, lanes, _PIECE):
            a = elements_of(one[start : start + _PIECE], bits)
            b = elements_of(other[start : start + _PIECE], bits)
            for place in places:
                mixed += (a[place], b[place])
        return lanes_from(mixed, bits)

    return interleave


def _widened(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    narrow, wide = _BITS[found[2]], _BITS[found[3]]
    number = 32 * lanes // wide
    if "(" in parts[0] and number * narrow < 32:
        return None
    source = source_of(parts[0], max(1, number * narrow // 32))
    is_signed = found[1] == "s"

    def widen(machine: Machine) -> Lanes:
        given = elements_of(source(machine), narrow)[:number]
        return lanes_from(
            [
                signed(value, narrow) % (1 << wide) if value is not None and is_signed else value
                for value in given
            ],
            wide,
        )

    return widen


def _absolute(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    bits, source = _BITS[found[1]], source_of(parts[0], lanes)
    return lambda machine: _mapped(
        source(machine)[:lanes], bits, 0, lambda value, _: abs(signed(value, bits))
    )


def _blended(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    bits = _bits_of(found.groups())
    mask, second, first = (source_of(part, lanes) for part in parts[:3])

    def blend(machine: Machine) -> Lanes:
        chosen = elements_of(mask(machine)[:lanes], bits)
        one = elements_of(first(machine)[:lanes], bits)
        other = elements_of(second(machine)[:lanes], bits)
        return lanes_from(
            [
                (a if a == b else None) if sign is None else b if sign >> (bits - 1) else a
                for sign, a, b in zip(chosen, one, other, strict=True)
            ],
            bits,
        )

    return blend


def _spread(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    bits = _BITS[found[1]]
    register, read = VECTOR.match(parts[0]), reader(parts[0], bits)

    def spread(machine: Machine) -> Lanes:
        if register is None:
            first = read(machine)
            first = None if first is None else first % (1 << bits)
        else:
            first = elements_of(machine.vectors[int(register[2])][:1], bits)[0]
        return lanes_from([first] * (32 * lanes // bits), bits)

    return spread


def _inserted(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    del lanes
    bits = _BITS[found[1]]
    place = int(parts[0][1:], 0) % (128 // bits)
    read, vector = reader(parts[1], 32 if parts[1] in REGISTERS else bits), source_of(parts[2], 4)

    def insert(machine: Machine) -> Lanes:
        own, value = elements_of(vector(machine)[:_PIECE], bits), read(machine)
        own[place] = None if value is None else value % (1 << bits)
        return lanes_from(own, bits)

    return insert


def _masked(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    if "(" not in parts[0]:
        return None
    bits = _bits_of(found.groups())
    values, mask = source_of(parts[0], lanes), source_of(parts[1], lanes)

    def load(machine: Machine) -> Lanes:
        loaded = elements_of(values(machine)[:lanes], bits)
        return lanes_from(
            [
                None if sign is None else value if sign >> (bits - 1) else 0
                for value, sign in zip(
                    loaded, elements_of(mask(machine)[:lanes], bits), strict=True
                )
            ],
            bits,
        )

    return load


def _moved_bytes(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    by, source = min(16, int(parts[0][1:], 0)), source_of(parts[1], lanes)
    zeros: list[Value] = [0] * by

    def move(machine: Machine) -> Lanes:
        given, moved = source(machine), list[Value]()
        for start in range(0, lanes, _PIECE):
            own = elements_of(given[start : start + _PIECE], 8)
            moved += [*zeros, *own[: 16 - by]] if found[1] == "l" else [*own[by:], *zeros]
        return lanes_from(moved, 8)

    return move


def _aligned(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    del found
    by = int(parts[0][1:], 0)
    second, first = source_of(parts[1], lanes), source_of(parts[2], lanes)

    def align(machine: Machine) -> Lanes:
        one, other, moved = first(machine), second(machine), list[Value]()
        for start in range(0, lanes, _PIECE):
            both = [
                *elements_of(other[start : start + _PIECE], 8),
                *elements_of(one[start : start + _PIECE], 8),
                *[0] * 16,
            ]
            moved += both[by : by + 16]
        return lanes_from(moved, 8)

    return align


def _shuffled(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    del found
    order, source = source_of(parts[0], lanes), source_of(parts[1], lanes)

    def shuffle(machine: Machine) -> Lanes:
        places, given, moved = order(machine), source(machine), list[Value]()
        for start in range(0, lanes, _PIECE):
            own = elements_of(given[start : start + _PIECE], 8)
            moved += (
                None if place is None else 0 if place >> 7 else own[place & 15]
                for place in elements_of(places[start : start + _PIECE], 8)
            )
        return lanes_from(moved, 8)

    return shuffle


def _blended_words(found: re.Match[str], parts: list[str], lanes: int) -> Source | None:
    del found
    chosen = int(parts[0][1:], 0)
    pairs_in = pairs_of(parts[1:], lanes, 16)

    def blend(machine: Machine) -> Lanes:
        pairs = enumerate(pairs_in(machine))
        return lanes_from([b if chosen >> (k % 8) & 1 else a for k, (a, b) in pairs], 16)

    return blend


_RULES: Sequence[
    tuple[re.Pattern[str], int, Callable[[re.Match[str], list[str], int], Source | None]]
] = (
    (_COMPARED, 3, _compared),
    (_LEAST, 3, _least),
    (_SUMS, 3, _sums),
    (_SHIFTED, 3, _shifted),
    (_PRODUCTS, 3, _products),
    (_PACKED, 3, _packed),
    (_INTERLEAVED, 3, _interleaved),
    (_WIDENED, 2, _widened),
    (_ABSOLUTE, 2, _absolute),
    (_BLENDED, 4, _blended),
    (_SPREAD, 2, _spread),
    (_INSERTED, 4, _inserted),
    (_MASKED, 3, _masked),
    (_MOVED_BYTES, 3, _moved_bytes),
    (re.compile(r"^vpalignr$"), 4, _aligned),
    (re.compile(r"^vpshufb$"), 3, _shuffled),
    (re.compile(r"^vpblendw$"), 4, _blended_words),
)
"""Rules by name and number of operands."""
