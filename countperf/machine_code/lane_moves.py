"""Moves of 32- and 64-bit elements between vectors: shifted, permuted, inserted and blended.

Source: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from countperf.machine_code.integer_unit import Lanes, Machine, Value
from countperf.machine_code.vector_registers import VECTOR, Source, source_of

_MASKED = re.compile(r"\{%k([0-7])\}(\{z\})?")
_PIECE = 4
"""Lanes of 128 bits."""

_Rule = Callable[[re.Match[str], Sequence[str], int], Source | None]


def move_source(mnemonic: str, parts: Sequence[str], lanes: int) -> Source | None:
    """Return what computes the vector that a move writes; None if it has no rule here.

    Parameters
    ----------
    mnemonic : str
        In AT&T's syntax.
    parts : sequence of str
        Its operands, the one that is written last, without masks.
    lanes : int
        Of 32 bits, that are written.
    """
    for pattern, rule in _RULES.items():
        found = pattern.match(mnemonic)
        if found is not None and (source := rule(found, parts, lanes)) is not None:
            return source
    return None


def masked_move(mnemonic: str, parts: Sequence[str], lanes: int) -> Source | None:
    """Return what a move writes whose mask does not say what is written; None if another one.

    Parameters
    ----------
    mnemonic : str
        In AT&T's syntax.
    parts : sequence of str
        Its operands, the one that is written last, with its mask.
    lanes : int
        Of 32 bits, that are written.
    """
    mask = _MASKED.search(parts[-1])
    if mask is None or len(parts) != 3:
        return None
    number, keeps = int(mask[1]), mask[2] is None
    if found := re.match(r"^v(?:p?blendm)(d|ps|q|pd)$", mnemonic):
        size = _size(found[1])
        first = source_of(parts[1], lanes) if keeps else _zeros
        return _chosen(source_of(parts[0], lanes), first, number, size, lanes)
    if mnemonic in ("vmovss", "vmovsd") and (target := VECTOR.match(parts[-1])):
        size = 1 if mnemonic == "vmovss" else 2
        old = source_of(f"%xmm{target[2]}", _PIECE) if keeps else _zeros
        low = _chosen(source_of(parts[0], size), old, number, size, size)
        high = source_of(parts[1], _PIECE)
        return lambda machine: (*low(machine), *high(machine)[size:_PIECE])
    return None


def _zeros(machine: Machine) -> Lanes:
    del machine
    return (0,) * 16


def _size(suffix: str) -> int:
    return 1 if suffix in ("d", "ps", "ss") else 2


def _number(text: str) -> int | None:
    return int(text[1:], 0) & 0xFF if text.startswith("$") else None


def _chosen(ones: Source, zeros: Source, mask: int, size: int, lanes: int) -> Source:
    """Return elements of one vector where a mask is set, and of another one elsewhere."""

    def choose(machine: Machine) -> Lanes:
        value, known = machine.masks[mask]
        found: list[Value] = []
        for lane, (a, b) in enumerate(
            zip(ones(machine)[:lanes], zeros(machine)[:lanes], strict=True)
        ):
            bit = 1 << lane // size
            found.append((a if a == b else None) if not known & bit else a if value & bit else b)
        return tuple(found)

    return choose


def _shifted(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Take elements of two vectors side by side, from some place on (``valignd``)."""
    by = _number(parts[0])
    if by is None or len(parts) != 4:
        return None
    size = _size(found[1])
    start = size * (by % (lanes // size))
    low, high = source_of(parts[1], lanes), source_of(parts[2], lanes)
    return lambda machine: (*low(machine)[:lanes], *high(machine)[:lanes])[start : start + lanes]


def _permuted(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Permute elements within 128 bits, by a constant or by the elements of a vector."""
    if len(parts) != 3:
        return None
    size, order, source = _size(found[1]), _number(parts[0]), source_of(parts[1], lanes)
    if order is None:
        return _permuted_by(parts, lanes, size)
    if size == 1:
        places = [start + (order >> 2 * k & 3) for start in range(0, lanes, 4) for k in range(4)]
    else:
        chosen = [order >> k & 1 for k in range(lanes // 2)]
        places = [4 * (k // 2) + 2 * bit + half for k, bit in enumerate(chosen) for half in (0, 1)]
    return _at(source, places)


def _at(source: Source, places: Sequence[int]) -> Source:
    def take(machine: Machine) -> Lanes:
        given = source(machine)
        return tuple(given[place] for place in places)

    return take


def _permuted_by(parts: Sequence[str], lanes: int, size: int) -> Source:
    control, source = source_of(parts[0], lanes), source_of(parts[1], lanes)

    def permute(machine: Machine) -> Lanes:
        given, orders, found = source(machine), control(machine), list[Value]()
        for lane in range(0, lanes, size):
            order, start = orders[lane], lane - lane % _PIECE
            if order is None:
                found += (None,) * size
            else:
                start += order & 3 if size == 1 else order & 2
                found += given[start : start + size]
        return tuple(found)

    return permute


def _repeated(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Repeat every other lane (``vmovshdup``, ``vmovsldup``)."""
    if len(parts) != 2:
        return None
    odd, source = int(found[1] == "h"), source_of(parts[0], lanes)
    return _at(source, [lane - lane % 2 + odd for lane in range(lanes)])


def _inserted(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Put one lane into a vector, and set some to zero (``vinsertps``)."""
    del found, lanes
    order = _number(parts[0])
    if order is None or len(parts) != 4:
        return None
    new, old = source_of(parts[1], 1), source_of(parts[2], _PIECE)
    taken = order >> 6 if VECTOR.match(parts[1]) else 0
    put = order >> 4 & 3

    def insert(machine: Machine) -> Lanes:
        given = list(old(machine)[:_PIECE])
        given[put] = new(machine)[taken]
        return tuple(0 if order >> lane & 1 else value for lane, value in enumerate(given))

    return insert


def _low_moved(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Put the lowest element of one vector below the others of a second one."""
    del lanes
    if len(parts) != 3:
        return None
    size, low, high = _size(found[1]), source_of(parts[0], 1), source_of(parts[1], _PIECE)
    return lambda machine: (*low(machine)[:size], *high(machine)[size:_PIECE])


def _high_moved(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Put the upper halves of two vectors of 128 bits side by side (``vmovhlps``)."""
    del found, lanes
    if len(parts) != 3:
        return None
    first, second = source_of(parts[0], _PIECE), source_of(parts[1], _PIECE)
    return lambda machine: (*first(machine)[2:_PIECE], *second(machine)[2:_PIECE])


def _blended(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Choose elements of two vectors by the bits of a constant."""
    del found
    order = _number(parts[0])
    if order is None or len(parts) != 4:
        return None
    second, first = source_of(parts[1], lanes), source_of(parts[2], lanes)

    def blend(machine: Machine) -> Lanes:
        one, other = first(machine), second(machine)
        return tuple((other if order >> lane // 2 & 1 else one)[lane] for lane in range(lanes))

    return blend


def _picked(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Choose an element of each of two vectors for every 128 bits (``vshufpd``)."""
    del found
    order = _number(parts[0])
    if order is None or len(parts) != 4:
        return None
    second, first = source_of(parts[1], lanes), source_of(parts[2], lanes)

    def pick(machine: Machine) -> Lanes:
        one, other, found = first(machine), second(machine), list[Value]()
        for place in range(lanes // 2):
            start = place // 2 * _PIECE + 2 * (order >> place & 1)
            found += (other if place % 2 else one)[start : start + 2]
        return tuple(found)

    return pick


def _narrowed(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Keep the low bits of elements (``vpmovqd``, ``vpmovdw`` and the like)."""
    register = VECTOR.match(parts[0])
    if register is None or len(parts) != 2:
        return None
    del lanes
    number = int(register[2])
    width = {"x": 4, "y": 8, "z": 16}[register[1]]
    wide, narrow = ({"b": 8, "w": 16, "d": 32, "q": 64}[each] for each in found.groups())

    def narrow_all(machine: Machine) -> Lanes:
        step = max(1, wide // 32)
        given = machine.vectors[number][:width:step]
        if wide == 16:
            given = tuple(
                None if value is None else value >> shift & 0xFFFF
                for value in given
                for shift in (0, 16)
            )
        if narrow == 32:
            return tuple(given)
        together = 32 // narrow
        given += (0,) * (-len(given) % together)
        found: list[Value] = []
        for start in range(0, len(given), together):
            lane: Value = 0
            for k, value in enumerate(given[start : start + together]):
                if value is None or lane is None:
                    lane = None
                else:
                    lane |= (value & ((1 << narrow) - 1)) << narrow * k
            found.append(lane)
        return tuple(found)

    return narrow_all


_RULES: Mapping[re.Pattern[str], _Rule] = {
    re.compile(r"^valign(d|q)$"): _shifted,
    re.compile(r"^vpermil(ps|pd)$"): _permuted,
    re.compile(r"^vmovs([hl])dup$"): _repeated,
    re.compile(r"^vinsertps$"): _inserted,
    re.compile(r"^vmov(ss|sd)$"): _low_moved,
    re.compile(r"^vmovhlps$"): _high_moved,
    re.compile(r"^vblendpd$"): _blended,
    re.compile(r"^vshufpd$"): _picked,
    re.compile(r"^vpmov(q)(d|w|b)$"): _narrowed,
    re.compile(r"^vpmov(d)(w|b)$"): _narrowed,
    re.compile(r"^vpmov(w)(b)$"): _narrowed,
}
