"""Integers in vector and mask registers, where compilers keep loop counters, too: AVX to AVX-512.

Floating-point results, and what has no rule, are unknown. Without mask registers, masks are vectors
themselves: comparisons set all bits of an element, and blends, masked loads and tests go by its
highest bit.

Source: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from countperf.machine_code.integer_unit import action_of
from countperf.machine_code.machine_state import (
    REGISTERS,
    UNKNOWN,
    VECTOR,
    VECTOR_BYTES,
    WIDTHS,
    Action,
    Flags,
    Lanes,
    Machine,
    Source,
    Value,
    address_of,
    immediate,
    join_bytes,
    lanes_of,
    operands_of,
    reader,
    source_of,
    widest,
    writer,
)
from countperf.machine_code.vector_rules import (
    ELEMENT_BYTES,
    MASK,
    MASKED,
    RULES,
    SIGNS,
    Elements,
    choose_lanes,
    elements_of,
    join_bits,
    read_elements,
    sign_of,
    sources_of,
)

_MASK_BITS = 64
_WRITTEN_UNDER = re.compile(r"\{%k([0-7])\}(\{z\})?")
_SCALARS = {"vmovd": 4, "movd": 4, "vmovss": 4, "movss": 4, "vmovq": 8, "movq": 8, "vmovsd": 8}
_MOVES = re.compile(r"^v?mov(?:dq[au]\d*|[au]p[sd]|ntdq|ntp[sd])$")
_TESTS = re.compile(r"^vp?test(?:(p[sd]))?$")
_EXTRACTED = re.compile(r"^v(?:pextr[bwdq]|extractps)$")
_ELEMENT = re.compile(
    r"(?:(?:dq[au](?=\d+$)|(?=\d+x))(8|16|32|64)(?:x\d)?|unpck[lh](bw|wd|q?dq)"
    r"|(p[sd]|ss|(?<=mov|ast)sd|[bwdq]))$"
)
_COMPARED = re.compile(r"^v?u?comis[sd]")
_HALVES = re.compile(r"^v?mov[lh]p[sd]$")
_INDEXED = re.compile(r"^vp?(?:gather|scatter)(?P<index>[dq])(?P<element>p[sd]|[dq])$")
_PLACE = re.compile(
    r"^(?P<offset>-?(?:0x)?[0-9a-f]+)?\((?P<base>%\w+)?,%[xyz]mm(?P<index>\d+),?(?P<scale>[1248])?\)"
)


_REGISTER = re.compile(r"%(?:[xyz]mm(\d+)|k([0-7]))")
_WHOLE = re.compile(r"^%(?:[xyz]mm\d+|k[0-7])(?:\{%k[0-7]\}\{z\})?$")
_NUMBERS = re.compile(
    r"^v?(?:add|sub|mul|div|sqrt|rsqrt|rcp|fn?m(?:add|sub)\w*|hadd|addsub|round|rndscale|scalef"
    r"|getexp|getmant|fixupimm|range|reduce|min|max)\w*[ps][hsd]$"
)
"""Arithmetic on floating-point numbers: results that are never known."""
_READS_TARGET = re.compile(r"^(?![vk])|^v(?:pternlog|perm[it]2|pdp|pmadd52|psh[lr]dv|\w*gather)")
"""Instructions that read their destination, or leave part of it: mostly those without VEX."""
_FLAGGING = ("vptest", "vtestp", "kortest", "ktest", "vucomi", "vcomi", "ucomi", "comi", "ptest")


class _Effect(NamedTuple):
    """Vector and mask registers that an instruction reads and writes."""

    reads: set[str]
    writes: set[str]
    decides: bool = False  # whether it writes anything else
    kills: bool = False  # whether nothing is left of what was in the register that it writes


def _name_block(text: str) -> set[str]:
    return {f"k{match[2]}" if match[2] else f"v{match[1]}" for match in _REGISTER.finditer(text)}


def _find_effect(mnemonic: str, operands: str) -> _Effect:
    parts, named = operands_of(operands), _name_block(operands)
    if not named:
        return _Effect(named, named)
    target = _REGISTER.match(parts[-1])
    is_test = mnemonic.startswith(("ktest", "kortest")) or (
        mnemonic.startswith(_FLAGGING) and not parts[-1].startswith("%k")
    )
    if target is None or is_test:
        return _Effect(named, set(), decides=True)
    own, others = _name_block(target[0]), _name_block(operands.removesuffix(parts[-1]))
    others |= _name_block(parts[-1].removeprefix(target[0]))
    keeps = _READS_TARGET.match(mnemonic) is not None or not _WHOLE.match(parts[-1])
    reads, writes = (others | own if keeps else others), own
    if "gather" in mnemonic:  # which clears its mask
        writes = own | {name for name in others if name.startswith("k")}
    if _NUMBERS.match(mnemonic):
        reads = own if keeps and mnemonic.startswith("v") else set[str]()
    return _Effect(reads, writes, kills=not keeps)


def find_needed_lines(
    lines: Sequence[tuple[str, str]], blocks: Iterable[Sequence[int]], always: Iterable[int] = ()
) -> frozenset[int]:
    """Return the numbers of instructions with vectors or masks that can decide anything."""
    effects = [_find_effect(*line) for line in lines]
    parts = [list(block) for block in blocks]
    at_end = {f"v{number}" for number in always}
    while True:
        before, needed = len(at_end), set[int]()
        for block in parts:
            live = set(at_end)
            for number in reversed(block):
                effect = effects[number]
                if effect.decides or effect.writes & live:
                    needed.add(number)
                    if effect.kills:
                        live -= effect.writes
                    live |= effect.reads
            at_end |= live
        if len(at_end) == before:
            return frozenset(needed)


def leads_to_integers(mnemonic: str, operands: str) -> bool:
    """Say whether an instruction takes a vector's integers to integer registers or flags."""
    if mnemonic.startswith(("kortest", "ktest")):
        return True
    if any(pattern.match(mnemonic) for pattern in (SIGNS, _TESTS, _EXTRACTED)):
        return True
    is_move = mnemonic.startswith("kmov") or mnemonic in _SCALARS
    return is_move and operands_of(operands)[-1] in REGISTERS


def vector_action(mnemonic: str, operands: str) -> Action | None:
    """Return what an instruction with vectors or masks does to integers; None if nothing."""
    parts = operands_of(operands)
    if not parts:
        return None
    if mnemonic[0] == "k" or MASK.match(parts[-1]):
        return _mask_action(mnemonic, parts)
    under = _WRITTEN_UNDER.search(operands)
    mask = int(under[1]) if under else None
    if _COMPARED.match(mnemonic):
        return action_of(mnemonic, operands)
    if _INDEXED.match(mnemonic) and mask is not None:
        return _gather_elements(mnemonic, parts, mask)
    if (match := _TESTS.match(mnemonic)) and len(parts) == 2:
        return _test(parts, match[1])
    target = VECTOR.match(parts[-1])
    if target is None:
        return _leave_vectors(mnemonic, parts, mask)
    number, width = int(target[2]), WIDTHS[target[1]]
    plain = [*parts[:-1], parts[-1].partition("{")[0]]
    source = _source(mnemonic, plain, width)
    if source is not None and under is not None:
        old = source_of(plain[1] if "blendm" in mnemonic else plain[-1], width)
        size = _element(mnemonic)
        is_low = mnemonic in ("vmovss", "vmovsd")  # of which the mask decides on one element only
        kept = old if under[2] is None else None
        source = _under(source, kept, int(under[1]), size, size if is_low else width)

    def write(machine: Machine) -> None:
        lanes = lanes_of(None, VECTOR_BYTES) if source is None else source(machine)
        machine.vectors[number, : len(lanes)] = lanes
        machine.vectors[number, len(lanes) :] = 0

    return write


def _element(mnemonic: str) -> int:
    """Return bytes of the elements that bits of a mask stand for."""
    match = _ELEMENT.search(mnemonic)
    if match is None:
        return 4
    return int(match[1]) // 8 if match[1] else ELEMENT_BYTES[match[2] or match[3]]


def _under(source: Source, old: Source | None, mask: int, size: int, most: int) -> Source:
    """Return what writes elements that a mask chooses, and keeps others or sets them to zero."""

    def choose(machine: Machine) -> Lanes:
        new = source(machine)
        kept = np.zeros_like(new) if old is None else old(machine)[: len(new)]
        chosen, count = np.ones(len(new), np.int16), min(most, len(new))
        chosen[:count] = np.repeat(machine.masks[mask, : count // size], size)
        return choose_lanes(chosen, new, kept)

    return choose


def _source(mnemonic: str, parts: Sequence[str], width: int) -> Source | None:
    """Return what computes the vector that an instruction writes; None if it is not known."""
    if mnemonic in _SCALARS and len(parts) == 2:
        return source_of(parts[0], _SCALARS[mnemonic])
    if _MOVES.match(mnemonic) and len(parts) == 2:
        return source_of(parts[0], width)
    for pattern, operands, make in RULES:
        match = re.fullmatch(pattern, mnemonic) if len(parts) == operands else None
        if match is not None and (made := make(match, parts, width)) is not None:
            return made
    return None


def _test(parts: Sequence[str], kind: str | None) -> Action | None:
    """Set flags as a test of all bits, or of the highest bit of each element, does."""
    register = VECTOR.match(parts[1])
    if register is None:
        return None
    width, size = WIDTHS[register[1]], ELEMENT_BYTES[kind or "b"]
    looked_at = 0x80 if kind else 0xFF
    second, first = (source_of(part, width) for part in parts)

    def test(machine: Machine) -> None:
        a, b = first(machine), second(machine)
        a, b = a[size - 1 :: size], b[size - 1 :: size]
        machine.flags = None
        if not ((a < 0) | (b < 0)).any():
            is_set, carry = (a & b & looked_at).any(), not (~a & b & looked_at).any()
            machine.flags = Flags("exact", int(carry), 0, int(is_set), 32)

    return test


def _gather_elements(mnemonic: str, parts: Sequence[str], mask: int) -> Action:
    """Gather or scatter elements; of floating-point numbers only the mask is known afterwards."""
    addresses_in, size = lane_addresses(mnemonic, ",".join(parts))
    operand = 0 if "scatter" in mnemonic else -1
    vector = VECTOR.match(parts[operand])
    assert vector is not None
    number, is_known = int(vector[2]), mnemonic.startswith("vp")

    def gather(machine: Machine) -> None:
        lanes, addresses = machine.vectors[number], addresses_in(machine)
        for lane, address in enumerate(addresses):
            chosen, part = int(machine.masks[mask, lane]), slice(size * lane, size * (lane + 1))
            is_sure = chosen == 1 and is_known
            if chosen and operand == 0:
                machine.store_lanes(address, lanes[part] if is_sure else lanes_of(None, size))
            elif chosen:
                lanes[part] = machine.load_lanes(address if is_sure else None, size)
        if operand:
            lanes[size * len(addresses) :] = 0
        machine.masks[mask] = 0

    return gather


def lane_addresses(mnemonic: str, operands: str) -> tuple[Callable[[Machine], list[Value]], int]:
    """Return what computes the addresses of a gather's or scatter's lanes, and bytes of each."""
    kind = _INDEXED.match(mnemonic)
    assert kind is not None
    size, index_size = ELEMENT_BYTES[kind["element"]], ELEMENT_BYTES[kind["index"]]
    match = _PLACE.match(next(part for part in operands_of(operands) if "(" in part))
    count = widest(operands) // max(size, index_size)
    if match is None:
        return lambda _: [None] * count, size
    base = REGISTERS.get(match["base"] or "")
    offset, scale, vector = (int(match[name] or "0", 0) for name in ("offset", "scale", "index"))

    def compute(machine: Machine) -> list[Value]:
        start = 0 if base is None else machine.registers[base.number]
        lanes = machine.vectors[vector, : index_size * count].reshape(count, index_size)
        if start is None:
            return [None] * count
        values, known = elements_of(lanes, f"i{index_size}")
        places = start + offset + values.ravel().astype(object) * (scale or 1)
        return [int(p) & ((1 << 48) - 1) if k else None for p, k in zip(places, known, strict=True)]

    return compute, size


def _leave_vectors(mnemonic: str, parts: Sequence[str], mask: int | None) -> Action | None:
    """Return what writes to an integer register or to memory."""
    last, vector = parts[-1].partition("{")[0], VECTOR.match(parts[-2] if len(parts) > 1 else "")
    address = address_of(last)
    if vector is None or (address is None and last not in REGISTERS):
        return action_of(mnemonic, ",".join(parts))
    width = 8 if _HALVES.match(mnemonic) else WIDTHS[vector[1]]
    source = _source(mnemonic, parts, WIDTHS[vector[1]]) or (lambda _: lanes_of(None, width))
    if address is None:
        write = writer(last, max(32, REGISTERS[last].bits))
        return lambda machine: write(machine, join_bytes(source(machine)))
    if (match := MASKED.match(mnemonic)) and len(parts) == 3:
        values, signs = (source_of(part, width) for part in parts[:2])
        element = ELEMENT_BYTES[match[1]]
        return lambda machine: machine.store_lanes(
            address(machine), values(machine), sign_of(signs(machine), element)[::4]
        )
    size = _element(mnemonic)

    def store(machine: Machine) -> None:
        lanes = source(machine)
        step = min(size if mask is not None else 4, len(lanes), 4)
        chosen = None if mask is None else np.repeat(machine.masks[mask], max(1, size // step))
        machine.store_lanes(address(machine), lanes, chosen, step)

    return store


_COMPARISON = re.compile(r"^vpcmp(eq|lt|le|gt|ge|neq|nlt|nle)(u?)([bwdq])$")
_MASK_TEST = re.compile(r"^vptest(n?)m([bwdq])$")
_MASK_OF_SIGNS = re.compile(r"^vpmov([bwdq])2m$")
_ORDER: Mapping[str, Callable[[Elements, Elements], Elements]] = {
    **{"eq": np.equal, "neq": np.not_equal, "lt": np.less, "nlt": np.greater_equal},
    **{"ge": np.greater_equal, "le": np.less_equal, "nle": np.greater, "gt": np.greater},
}


def _invert(a: Lanes) -> Lanes:
    """Return the bits that are not set, known or not."""
    return np.where(a < 0, a, 1 - a)


def _both(a: Lanes, b: Lanes) -> Lanes:
    """Return bits that are set in both of two masks; one that is not set decides alone."""
    return np.where((a == 0) | (b == 0), 0, np.where((a < 0) | (b < 0), UNKNOWN, 1)).astype(a.dtype)


def _either(a: Lanes, b: Lanes) -> Lanes:
    return _invert(_both(_invert(a), _invert(b)))


def _take_difference(a: Lanes, b: Lanes) -> Lanes:
    return np.where((a < 0) | (b < 0), UNKNOWN, a ^ b)


_COMBINED: Mapping[str, Callable[..., Lanes]] = {
    "kmov": lambda a: a,
    "knot": _invert,
    "kand": _both,
    "kandn": lambda a, b: _both(_invert(a), b),
    "kor": _either,
    "kxor": _take_difference,
    "kxnor": lambda a, b: _invert(_take_difference(a, b)),
}


def _numbers_of(parts: Sequence[str]) -> list[int]:
    """Return the numbers of the mask registers among operands."""
    return [int(match[1]) for part in parts if (match := MASK.match(part)) is not None]


def _mask_action(mnemonic: str, parts: Sequence[str]) -> Action | None:
    """Return what an instruction does that sets a mask, or tests or moves masks."""
    letter = mnemonic[4] if mnemonic.startswith("kmov") else mnemonic[-1]
    bits = 8 * ELEMENT_BYTES.get(letter, _MASK_BITS // 8)
    if mnemonic.startswith(("kortest", "ktest")):
        return _test_masks(_numbers_of(parts), bits, is_or=mnemonic.startswith("kor"))
    target, source = MASK.match(parts[-1]), MASK.match(parts[0])
    if target is None:
        if source is None or not mnemonic.startswith("kmov"):
            return None
        own, write = int(source[1]), writer(parts[-1], max(bits, 32 * (parts[-1] in REGISTERS)))
        return lambda machine: write(machine, join_bits(machine.masks[own, :bits]))
    number, under = int(target[1]), _WRITTEN_UNDER.search(parts[-1])
    compute = _mask_source(mnemonic, parts, bits)

    def put(machine: Machine) -> None:
        mask = np.full(_MASK_BITS, UNKNOWN, np.int16) if compute is None else compute(machine)
        machine.masks[number] = _both(mask, machine.masks[int(under[1])]) if under else mask

    return put


def _mask_source(mnemonic: str, parts: Sequence[str], bits: int) -> Source | None:
    """Return what computes the mask that an instruction writes; None if it has no rule."""
    if (match := _COMPARISON.match(mnemonic)) and len(parts) == 3:
        kind = f"{match[2] or 'i'}{ELEMENT_BYTES[match[3]]}"
        return _compare_elements(_ORDER[match[1]], parts, kind)
    if (match := _MASK_TEST.match(mnemonic)) and len(parts) == 3:
        is_zero, kind = match[1] == "n", f"u{ELEMENT_BYTES[match[2]]}"
        return _compare_elements(lambda a, b: ((a & b) == 0) == is_zero, parts, kind)
    if match := _MASK_OF_SIGNS.match(mnemonic):
        same, kind = [parts[0], parts[0]], f"i{ELEMENT_BYTES[match[1]]}"
        return _compare_elements(lambda a, _: a < 0, same, kind)
    numbers, name, by = _numbers_of(parts[:-1]), mnemonic[:-1], immediate(parts[0])
    if mnemonic.startswith("kmov"):
        name = "kmov"
        if not numbers:
            read = reader(parts[0], bits)
            return lambda machine: _bits_of(read(machine), bits)
    if name in ("kxor", "kxnor") and len(set(numbers)) == 1:
        return lambda _: _bits_of((1 << bits) - 1 if name == "kxnor" else 0, bits)
    combine, order = _COMBINED.get(name), range(_MASK_BITS)
    if name in ("kshiftl", "kshiftr") and by is not None:
        places = range(-by, bits - by) if name == "kshiftl" else range(by, bits + by)
        order = [place if 0 <= place < bits else -1 for place in places]
    elif mnemonic.startswith("kunpck"):
        order = [*range(bits // 2), *range(_MASK_BITS, _MASK_BITS + bits // 2)]
    elif combine is None:
        return None

    def compute(machine: Machine) -> Lanes:
        masks = [machine.masks[number] for number in numbers]
        mask = combine(*reversed(masks)) if combine else np.concatenate([*masks, [0]])[order]
        return _cut_mask(mask, bits)

    return compute


def _cut_mask(mask: Lanes, bits: int) -> Lanes:
    """Return the low bits of a mask; the others are zero."""
    cut = np.zeros(_MASK_BITS, dtype=np.int16)
    cut[:bits] = mask[:bits]
    return cut


def _bits_of(value: Value, bits: int) -> Lanes:
    whole = [UNKNOWN if value is None else value >> k & 1 for k in range(bits)]
    return _cut_mask(np.array(whole, np.int16), bits)


def _compare_elements(
    order: Callable[[Elements, Elements], Elements], parts: Sequence[str], kind: str
) -> Source:
    register = VECTOR.match(parts[1])
    width = WIDTHS[register[1]] if register is not None else WIDTHS["z"]
    sources = sources_of(parts[:2], width)

    def compare(machine: Machine) -> Lanes:
        values, known = read_elements(machine, sources, kind)
        return _cut_mask(np.where(known, order(*values), UNKNOWN), len(known))

    return compare


def _test_masks(numbers: Sequence[int], bits: int, *, is_or: bool) -> Action | None:
    """Set the zero flag if no bit is set; kortest sets the carry if all are."""
    if len(numbers) != 2:
        return None

    def test(machine: Machine) -> None:
        b, a = (machine.masks[number, :bits] for number in numbers)
        outcome = _either(a, b) if is_or else _both(a, b)
        full = outcome if is_or else _invert(_both(_invert(a), b))
        machine.flags = None
        if (outcome == 1).any() or (outcome == 0).all():
            carry = int((full == 1).all())
            machine.flags = Flags("exact", carry, 0, int((outcome == 1).any()), bits)

    return test
