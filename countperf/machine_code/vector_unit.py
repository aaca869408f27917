"""Integers in vector registers, where compilers keep loop counters, too: AVX, AVX2 and AVX-512.

Floating-point results, and what has no rule, are unknown. Without mask registers, masks are vectors
themselves: comparisons set all bits of an element, and blends, masked loads and tests go by its
highest bit.

Source: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

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
    Read,
    Source,
    Value,
    address_of,
    immediate,
    joined,
    lanes_of,
    operands_of,
    signed,
    source_of,
    widest,
    writer,
)
from countperf.machine_code.vector_moves import (
    BITS,
    ELEMENT_BYTES,
    MASK,
    WRITTEN_UNDER,
    Elements,
    elements_reader,
    mask_action,
    move_source,
    rearrange,
    sign_elements,
    spread_mask,
)

_Made = Callable[["re.Match[str]", Sequence[str], int], "Source | None"]
_SCALARS = {"vmovd": 4, "movd": 4, "vmovss": 4, "movss": 4, "vmovq": 8, "movq": 8, "vmovsd": 8}
_MOVES = re.compile(r"^v?mov(?:dq[au]\d*|[au]p[sd]|ntdq|ntp[sd])$")
_MASKED = re.compile(r"^v(?:p?maskmov)(p[sd]|[dq])$")
_SIGNS = re.compile(r"^v?(?:movmsk(p[sd])|pmovmsk(b))$")
_TESTS = re.compile(r"^vp?test(?:(p[sd]))?$")
_EXTRACTED = re.compile(r"^v(?:pextr([bwdq])|extract(ps))$")
_ELEMENT = re.compile(
    r"(?:dq[au](?P<bits>8|16|32|64)|unpck[lh](?P<of>bw|wd|q?dq)|(?P<wide>32|64)x\d"
    r"|(?P<last>p[sd]|ss|(?<=mov|ast)sd|[bwdq]))$"
)
_COMPARED = re.compile(r"^v?u?comis[sd]")
_HALVES = re.compile(r"^v?mov[lh]p[sd]$")
_INDEXED = re.compile(r"^vp?(?:gather|scatter)(?P<index>[dq])(?P<element>p[sd]|[dq])$")
_PLACE = re.compile(
    r"^(?P<offset>-?(?:0x)?[0-9a-f]+)?\((?P<base>%\w+)?,%[xyz]mm(?P<index>\d+),?(?P<scale>[1248])?\)"
)


# {{{ instructions that are needed

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


def _name_block(text: str) -> set[str]:
    return {f"k{match[2]}" if match[2] else f"v{match[1]}" for match in _REGISTER.finditer(text)}


class _Effect:
    """Vector and mask registers that an instruction reads and writes.

    ``decides`` is whether it writes anything else; ``kills``, whether nothing is left of what was
    in the register that it writes.
    """

    __slots__ = ("decides", "kills", "reads", "writes")

    def __init__(self, mnemonic: str, operands: str) -> None:
        parts, named = operands_of(operands), _name_block(operands)
        self.reads, self.writes = named, set[str]()
        self.kills = self.decides = False
        if not named:
            return
        target = _REGISTER.match(parts[-1])
        sets_mask = parts[-1].startswith("%k")
        is_test = mnemonic.startswith(("ktest", "kortest")) or (
            mnemonic.startswith(_FLAGGING) and not sets_mask
        )
        if target is None or is_test:
            self.decides = True
            return
        own = _name_block(target[0])
        others = set[str]().union(*(_name_block(part) for part in parts[:-1]))
        others |= _name_block(parts[-1].removeprefix(target[0]))
        keeps = _READS_TARGET.match(mnemonic) is not None or not _WHOLE.match(parts[-1])
        self.writes, self.kills = own, not keeps
        self.reads = others | own if keeps else others
        if "gather" in mnemonic:  # which clears its mask
            self.writes |= {name for name in others if name.startswith("k")}
        if _NUMBERS.match(mnemonic):
            self.reads = own if keeps and mnemonic.startswith("v") else set[str]()


def find_needed_lines(
    lines: Sequence[tuple[str, str]],
    blocks: Iterable[Sequence[int]],
    always: Iterable[int] = (),
) -> frozenset[int]:
    """Return the numbers of instructions with vectors or masks that can decide anything."""
    effects = [_Effect(*line) for line in lines]
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


# }}}


def leads_to_integers(mnemonic: str, operands: str) -> bool:
    """Say whether an instruction takes a vector's integers to integer registers or flags."""
    if mnemonic.startswith(("kortest", "ktest")) or _SIGNS.match(mnemonic):
        return True
    if _TESTS.match(mnemonic) or _EXTRACTED.match(mnemonic):
        return True
    is_move = mnemonic.startswith("kmov") or _SCALARS.get(mnemonic)
    return bool(is_move) and operands_of(operands)[-1] in REGISTERS


def vector_action(mnemonic: str, operands: str) -> Action | None:
    """Return what an instruction with vectors or masks does to integers; None if nothing."""
    parts = operands_of(operands)
    if not parts:
        return None
    if mnemonic[0] == "k" or MASK.match(parts[-1]):
        return mask_action(mnemonic, parts)
    under = WRITTEN_UNDER.search(operands)
    mask = int(under[1]) if under else None
    if _COMPARED.match(mnemonic):
        return action_of(mnemonic, operands)
    if _INDEXED.match(mnemonic) and mask is not None:
        return _gather_elements(mnemonic, parts, mask)
    if (match := _TESTS.match(mnemonic)) and len(parts) == 2:
        return _test(parts, match[1])
    target = VECTOR.match(parts[-1])
    if target is None:
        return _leaving(mnemonic, parts, mask)
    number, width = int(target[2]), WIDTHS[target[1]]
    plain = [*parts[:-1], parts[-1].partition("{")[0]]
    source = _source(mnemonic, plain, width)
    keeps = under is not None and under[2] is None
    if source is not None and mask is not None:
        old = source_of(plain[1] if "blendm" in mnemonic else plain[-1], width)
        size = _element(mnemonic)
        is_low = mnemonic in ("vmovss", "vmovsd")  # of which the mask decides on one element only
        source = _under(source, old if keeps else None, mask, size, size if is_low else width)

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
    bits = match["bits"] or match["wide"]
    return int(bits) // 8 if bits else ELEMENT_BYTES[match["of"] or match["last"]]


def _under(source: Source, old: Source | None, mask: int, size: int, most: int) -> Source:
    """Return what writes elements that a mask chooses, and keeps others or sets them to zero."""

    def choose(machine: Machine) -> Lanes:
        new = source(machine)
        kept = np.zeros_like(new) if old is None else old(machine)[: len(new)]
        chosen, count = np.ones(len(new), np.int16), min(most, len(new))
        chosen[:count] = np.repeat(machine.masks[mask, : count // size], size)
        unsure = np.where(new == kept, new, UNKNOWN)
        return np.where(chosen < 0, unsure, np.where(chosen == 1, new, kept))

    return choose


def _source(mnemonic: str, parts: Sequence[str], width: int) -> Source | None:
    """Return what computes the vector that an instruction writes; None if it is not known."""
    if mnemonic in _SCALARS and len(parts) == 2:
        return source_of(parts[0], _SCALARS[mnemonic])
    if _MOVES.match(mnemonic) and len(parts) == 2:
        return source_of(parts[0], width)
    for pattern, operands, make in _RULES:
        match = pattern.match(mnemonic) if len(parts) == operands else None
        if match is not None and (made := make(match, parts, width)) is not None:
            return made
    return move_source(mnemonic, parts, width)


def _pack_elements(values: Elements, known: npt.NDArray[np.bool_], bits: int) -> Lanes:
    """Return elements of some bits as bytes."""
    raw = values.astype(f"u{bits // 8}").view(np.uint8).astype(np.int16)
    return np.where(np.repeat(known, bits // 8), raw, UNKNOWN)


def _shift(kind: str, a: Elements, by: Elements) -> Elements:
    bits = 8 * a.itemsize
    if kind == "ra":
        return sign_elements(a) >> np.minimum(by, bits - 1).astype(f"i{a.itemsize}")
    places = np.minimum(by, bits - 1).astype(a.dtype)
    return np.where(by < bits, a << places if kind == "ll" else a >> places, 0)


_PAIRWISE: Mapping[str, Callable[[Elements, Elements], Elements]] = {
    **{"add": np.add, "sub": np.subtract, "mull": np.multiply},
    **{"minu": np.minimum, "maxu": np.maximum, "mins": np.minimum, "maxs": np.maximum},
    **{"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor},
    **{f"s{kind}v": partial(_shift, kind) for kind in ("ll", "rl", "ra")},
    "cmpeq": lambda a, b: -(a == b).astype(np.int64),
    "cmpgt": lambda a, b: -(a > b).astype(np.int64),
    "andn": lambda a, b: ~a & b,
}
_SIGNED = ("mins", "maxs", "cmpgt")


def _compute(
    function: Callable[..., Elements],
    sources: Sequence[Source],
    bits: int,
    result_bits: int = 0,
    *,
    is_signed: bool = False,
) -> Source:
    """Return what computes elements of the operands' elements, where all of these are known."""
    read = elements_reader(sources, bits, is_signed=is_signed)

    def compute(machine: Machine) -> Lanes:
        values, known = read(machine)
        return _pack_elements(function(*values), known, result_bits or bits)

    return compute


def _sources_of(parts: Sequence[str], width: int) -> list[Source]:
    """Return what reads operands, the one written last first."""
    return [source_of(part, width) for part in reversed(parts)]


def _pairwise(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    """Compute element by element; of operands that are one register, some results are known."""
    name, bits = match[1], BITS.get(match[2], 8)
    if parts[0] == parts[1] and name in ("xor", "sub", "cmpeq"):
        return lambda _: np.full(width, 0xFF if name == "cmpeq" else 0, np.int16)
    sources = _sources_of(parts[:2], width)
    return _compute(_PAIRWISE[name], sources, bits, is_signed=name in _SIGNED)


def _widen_elements(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    narrow, wide = BITS[match[2]], BITS[match[3]]
    source = source_of(parts[0], width * narrow // wide)
    is_signed = match[1] == "s"
    return _compute(lambda a: a.astype(np.int64), [source], narrow, wide, is_signed=is_signed)


def _shift_elements(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    """Shift by a constant, or by the lowest 64 bits of a vector."""
    bits, constant, by = BITS[match[2]], immediate(parts[0]), source_of(parts[0], 8)

    def counts(machine: Machine) -> Lanes:
        count = joined(by(machine)) if constant is None else constant
        count = None if count is None else min(count, 0xFF)
        return np.tile(lanes_of(count, bits // 8), 8 * width // bits)

    return _compute(partial(_shift, match[1]), [source_of(parts[1], width), counts], bits)


def _products(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    """Multiply every other element of 32 bits, of which the others may be unknown."""
    kind = np.uint64 if match[1] else np.int64
    places = range(0, width // 4, 2)
    halves = [rearrange([source], places, 4) for source in _sources_of(parts[:2], width)]
    return _compute(
        lambda a, b: a.astype(kind) * b.astype(kind), halves, 32, 64, is_signed=not match[1]
    )


def _saturate_elements(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    """Narrow elements of two vectors, of each 128 bits of one and the other in turns."""
    wide, narrow = (BITS[letter] for letter in match[2])
    limits = np.iinfo(f"{'u' if match[1] == 'u' else 'i'}{narrow // 8}")
    pieces = width // 16
    order = [vector + piece for piece in range(pieces) for vector in (0, pieces)]
    both = rearrange(_sources_of(parts[:2], width), order, 16)
    return _compute(
        lambda a: np.clip(a, limits.min, limits.max), [both], wide, narrow, is_signed=True
    )


def _blend_by_mask(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    """Choose elements by the highest bits of those of a vector."""
    size = ELEMENT_BYTES[match[1]]
    signs, ones, zeros = (source_of(part, width) for part in parts[:3])

    def blend(machine: Machine) -> Lanes:
        a, b, chosen = ones(machine), zeros(machine), _sign_of(signs(machine), size)
        return np.where(chosen < 0, np.where(a == b, a, UNKNOWN), np.where(chosen == 1, a, b))

    return blend


def _sign_of(lanes: Lanes, size: int) -> Lanes:
    """Return the highest bit of its element for each byte."""
    top = lanes[size - 1 :: size]
    return np.repeat(np.where(top < 0, UNKNOWN, top >> 7), size)


def _load_masked(match: re.Match[str], parts: Sequence[str], width: int) -> Source | None:
    if "(" not in parts[0]:
        return None
    size, (values, mask) = ELEMENT_BYTES[match[1]], (source_of(part, width) for part in parts[:2])

    def load(machine: Machine) -> Lanes:
        chosen = _sign_of(mask(machine), size)
        return np.where(chosen == 1, values(machine), chosen)

    return load


def _permute_by_indices(match: re.Match[str], parts: Sequence[str], width: int) -> Source | None:
    """Take elements by indices, of one vector or of two."""
    if parts[0].startswith("$"):
        return None
    size = ELEMENT_BYTES[match[2]]
    sources = [source_of(part, width) for part in parts]
    index, *tables = (sources[k] for k in ((1, 2, 0) if match[1] else (1, 0)))

    def permute(machine: Machine) -> Lanes:
        table = np.concatenate([read(machine) for read in tables]).reshape(-1, size)
        places = index(machine)[::size]
        taken = table[places % len(table)]
        return np.where(places[:, np.newaxis] < 0, UNKNOWN, taken).reshape(-1)

    return permute


def _ternary(_match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    """Combine three vectors bit by bit, by a table of eight bits."""
    table = immediate(parts[0]) or 0
    if table == 0xFF:
        return lambda _: np.full(width, 0xFF, np.int16)

    def combine(a: Elements, b: Elements, c: Elements) -> Elements:
        value = np.zeros_like(a)
        for row in range(8):
            if table >> row & 1:
                value |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        return value

    return _compute(combine, _sources_of(parts[1:], width), 32)


_RULES: Sequence[tuple[re.Pattern[str], int, _Made]] = tuple(
    (re.compile(pattern), operands, make)
    for pattern, operands, make in (
        (
            r"^vp(add|sub|mull|(?:min|max)[su]|cmp(?:eq|gt)|s(?:[lr]l|ra)v)([bwdq])$",
            3,
            _pairwise,
        ),
        (r"^vp?(andn?|or|xor)()(?:[dq]|p[sd])?$", 3, _pairwise),
        (r"^vps(ll|rl|ra)([wdq])$", 3, _shift_elements),
        (r"^vpmul(u?)dq$", 3, _products),
        (r"^vpack(s|u)s(wb|dw)$", 3, _saturate_elements),
        (r"^vpmov([sz])x(b|w|d)(w|d|q)$", 2, _widen_elements),
        (r"^vp?blendv(p[sd]|b)$", 4, _blend_by_mask),
        (_MASKED.pattern, 3, _load_masked),
        (r"^vperm(t2)?(d|q|ps|pd)$", 3, _permute_by_indices),
        (r"^vpternlog[dq]$", 4, _ternary),
        (
            r"^vpmovm2([bwdq])$",
            2,
            lambda match, parts, width: spread_mask(parts[0], ELEMENT_BYTES[match[1]], width),
        ),
        # what is written where the mask of a blend is set
        (r"^vp?blendm(?:b|w|d|ps|q|pd)$", 3, lambda _, parts, width: source_of(parts[0], width)),
    )
)
"""Rules by name and number of operands."""


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
    addresses, size = lane_addresses(mnemonic, ",".join(parts))
    operand = 0 if "scatter" in mnemonic else -1
    vector = VECTOR.match(parts[operand])
    assert vector is not None
    number, is_known = int(vector[2]), mnemonic.startswith("vp")

    def gather(machine: Machine) -> None:
        lanes = machine.vectors[number]
        for lane, address in enumerate(addresses):
            chosen, part = int(machine.masks[mask, lane]), slice(size * lane, size * (lane + 1))
            if chosen and operand == 0:
                lost = chosen < 0 or not is_known
                stored = lanes_of(None, size) if lost else lanes[part]
                machine.store_lanes(address(machine), stored)
            elif chosen:
                at = address(machine) if chosen == 1 and is_known else None
                lanes[part] = machine.load_lanes(at, size)
        if operand:
            lanes[size * len(addresses) :] = 0
        machine.masks[mask] = 0

    return gather


def lane_addresses(mnemonic: str, operands: str) -> tuple[list[Read], int]:
    """Return what computes the addresses of a gather's or scatter's lanes, and bytes of each."""
    kind = _INDEXED.match(mnemonic)
    assert kind is not None
    size, index_size = ELEMENT_BYTES[kind["element"]], ELEMENT_BYTES[kind["index"]]
    match = _PLACE.match(next(part for part in operands_of(operands) if "(" in part))
    count = widest(operands) // max(size, index_size)
    if match is None:
        return [lambda _: None] * count, size
    base = REGISTERS.get(match["base"] or "")
    offset, scale, vector = (int(match[name] or "0", 0) for name in ("offset", "scale", "index"))

    def address(lane: int, machine: Machine) -> Value:
        start = 0 if base is None else machine.registers[base.number]
        value = joined(machine.vectors[vector, index_size * lane : index_size * (lane + 1)])
        if start is None or value is None:
            return None
        value = signed(value, 8 * index_size)
        return (start + value * (scale or 1) + offset) & ((1 << 48) - 1)

    return [partial(address, lane) for lane in range(count)], size


def _leaving(mnemonic: str, parts: Sequence[str], mask: int | None) -> Action | None:
    """Return what writes to an integer register or to memory."""
    last, vector = parts[-1].partition("{")[0], VECTOR.match(parts[-2] if len(parts) > 1 else "")
    address = address_of(last)
    if vector is None or (address is None and last not in REGISTERS):
        return action_of(mnemonic, ",".join(parts))
    width = WIDTHS[vector[1]]
    source: Source | None = None
    if (match := _EXTRACTED.match(mnemonic)) and len(parts) == 3:
        width = ELEMENT_BYTES[match[1] or match[2]]
        place = (immediate(parts[0]) or 0) % (16 // width)
        source = rearrange([source_of(parts[1], 16)], [place], width)
    elif mnemonic in _SCALARS and len(parts) == 2:
        width = _SCALARS[mnemonic]
        source = source_of(parts[0], width)
    elif match := _SIGNS.match(mnemonic):
        source = _take_signs(source_of(parts[-2], width), ELEMENT_BYTES[match[1] or match[2]])
    if last in REGISTERS:
        write = writer(last, max(32, REGISTERS[last].bits))
        return lambda machine: write(machine, None if source is None else joined(source(machine)))
    assert address is not None
    if (match := _MASKED.match(mnemonic)) and len(parts) == 3:
        (values, signs), size = (
            (source_of(part, width) for part in parts[:2]),
            ELEMENT_BYTES[match[1]],
        )
        return lambda machine: machine.store_lanes(
            address(machine), values(machine), _sign_of(signs(machine), size)[::4]
        )
    if source is None and _MOVES.match(mnemonic):
        source = source_of(parts[0], width)
    source = source or move_source(mnemonic, parts, width)
    size, width = _element(mnemonic), 8 if _HALVES.match(mnemonic) else width

    def store(machine: Machine) -> None:
        lanes = lanes_of(None, width) if source is None else source(machine)
        step = min(size if mask is not None else 4, len(lanes), 4)
        chosen = None if mask is None else np.repeat(machine.masks[mask], max(1, size // step))
        machine.store_lanes(address(machine), lanes, chosen, step)

    return store


def _take_signs(source: Source, size: int) -> Source:
    """Return what reads the highest bits of elements, side by side."""

    def take(machine: Machine) -> Lanes:
        bits = _sign_of(source(machine), size)[::size]
        whole = sum(1 << int(k) for k in np.flatnonzero(bits))
        return lanes_of(None if (bits < 0).any() else whole, 8)

    return take
