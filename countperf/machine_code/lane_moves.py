"""Moves of 32- and 64-bit elements between vectors: shifted, permuted, inserted and blended.

Source: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from countperf.machine_code.machine_state import UNKNOWN_LANES, Lanes, Machine, Value
from countperf.machine_code.vector_registers import VECTOR, Source, rearranged, source_of

_MASKED = re.compile(r"\{%k([0-7])\}(\{z\})?")
_PIECE = 4
"""Lanes of 128 bits."""

PIECES = re.compile(r"^v(extract|insert)[if](128|32x4|64x2|32x8|64x4)$")
PIECE_LANES = {"128": 4, "32x4": 4, "64x2": 4, "32x8": 8, "64x4": 8}

_Rule = Callable[[re.Match[str], Sequence[str], int], Source | None]


def move_source(mnemonic: str, parts: Sequence[str], lanes: int) -> Source | None:
    """Return what computes the vector that a move writes; None if it has no rule here."""
    for pattern, operands, rule in _RULES:
        found = pattern.match(mnemonic) if len(parts) == operands else None
        if found is not None and (source := rule(found, parts, lanes)) is not None:
            return source
    return None


def masked_move(mnemonic: str, parts: Sequence[str], lanes: int) -> Source | None:
    """Return what a move writes whose mask does not say what is written; None if another one."""
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


def _size(suffix: str | None) -> int:
    return 1 if suffix in (None, "d", "dq", "ps", "ss") else 2


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
    if by is None:
        return None
    size = _size(found[1])
    start = size * (by % (lanes // size))
    return rearranged([(parts[1], lanes), (parts[2], lanes)], range(start, start + lanes))


def _permuted(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Permute elements within 128 bits, by a constant or by the elements of a vector."""
    size, order = _size(found[1]), _number(parts[0])
    if order is None:
        return _permuted_by(parts, lanes, size)
    if size == 1:
        places = [start + (order >> 2 * k & 3) for start in range(0, lanes, 4) for k in range(4)]
    else:
        chosen = [order >> k & 1 for k in range(lanes // 2)]
        places = [4 * (k // 2) + 2 * bit + half for k, bit in enumerate(chosen) for half in (0, 1)]
    return rearranged([(parts[1], lanes)], places)


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


def _permuted_whole(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Permute elements of a whole vector, by a constant for 256 bits or by those of a vector."""
    order = _number(parts[0])
    if order is None:
        table, index = source_of(parts[0], lanes), source_of(parts[1], lanes)
        return lambda machine: _by_index(
            index(machine), table(machine)[:lanes], lanes, _size(found[1])
        )
    places = [
        start + 2 * (order >> 2 * place & 3) + half
        for start in range(0, lanes, 8)
        for place in range(4)
        for half in (0, 1)
    ]
    return rearranged([(parts[1], lanes)], places)


def _permuted_pair(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Permute two vectors; of ``t`` the target is the first of them, of ``i`` the index."""
    second, middle, target = (source_of(part, lanes) for part in parts)
    first, index = (target, middle) if found[1] == "t" else (middle, target)

    def permute(machine: Machine) -> Lanes:
        table = (*first(machine)[:lanes], *second(machine)[:lanes])
        return _by_index(index(machine), table, lanes, _size(found[2]))

    return permute


def _by_index(index: Lanes, table: Lanes, lanes: int, size: int) -> Lanes:
    """Return elements of a table by the indices of the lanes."""
    found: list[Value] = []
    number = len(table) // size
    for lane in range(0, lanes, size):
        place = index[lane]
        start = None if place is None else size * (place % number)
        found += UNKNOWN_LANES[:size] if start is None else table[start : start + size]
    return tuple(found)


def _repeated(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Repeat every other lane (``vmovshdup``), or every other pair of lanes (``vmovddup``)."""
    odd = int(found[1] == "sh")
    places = [lane // 4 * 4 + lane % 2 for lane in range(lanes)]
    if found[1] != "d":
        places = [lane - lane % 2 + odd for lane in range(lanes)]
    return rearranged([(parts[0], lanes)], places)


def _inserted(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Put one lane into a vector, and set some to zero (``vinsertps``)."""
    del found, lanes
    order = _number(parts[0])
    if order is None:
        return None
    new, old = source_of(parts[1], 1), source_of(parts[2], _PIECE)
    taken = order >> 6 if VECTOR.match(parts[1]) else 0
    put = order >> 4 & 3

    def insert(machine: Machine) -> Lanes:
        given = list(old(machine)[:_PIECE])
        given[put] = new(machine)[taken]
        return tuple(0 if order >> lane & 1 else value for lane, value in enumerate(given))

    return insert


def _pieces_moved(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Take 128 or 256 bits out of a vector, or put them into one."""
    place, size = _number(parts[0]), PIECE_LANES[found[2]]
    if place is None:
        return None
    begin = size * place
    if found[1] == "extract":
        return rearranged([(parts[1], 16)], range(begin, min(begin + size, 16)))
    new = range(begin, begin + size)
    order = [lanes + lane - begin if lane in new else lane for lane in range(lanes)]
    return rearranged([(parts[2], lanes), (parts[1], size)], order)


def _interleaved(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Take the lower or upper elements of 128 bits of two vectors in turns."""
    size, upper = _size(found[2]), 2 if found[1] == "h" else 0
    order = [
        vector + start + upper + element + half
        for start in range(0, lanes, _PIECE)
        for element in range(0, 2, size)
        for vector in (0, lanes)
        for half in range(size)
    ]
    return rearranged([(parts[1], lanes), (parts[0], lanes)], order)


def _put_together(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Put together pieces of 128 bits of two vectors."""
    order, number = _number(parts[0]), lanes // _PIECE
    if order is None:
        return None
    if found[1] == "perm2":
        halves = [order >> shift & 0xF for shift in (0, 4)]
        pieces = [None if half & 8 else half & 3 for half in halves]
    else:
        bits = number.bit_length() - 1
        places = [order >> bits * piece & (number - 1) for piece in range(number)]
        pieces = [place + (0 if k < number // 2 else number) for k, place in enumerate(places)]
    lanes_of = [
        -1 if piece is None else _PIECE * piece + lane for piece in pieces for lane in range(_PIECE)
    ]
    return rearranged([(parts[2], lanes), (parts[1], lanes)], lanes_of)


def _halves_moved(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Put the lowest element of one vector below another one, or two halves side by side."""
    del lanes
    order = {
        "ss": (0, 5, 6, 7),
        "sd": (0, 1, 6, 7),
        "hlps": (2, 3, 6, 7),
        "lhps": (4, 5, 0, 1),
    }[found[1]]
    return rearranged([(parts[0], _PIECE), (parts[1], _PIECE)], order)


def _blended(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Choose elements of two vectors by the bits of a constant."""
    chosen, size = _number(parts[0]), _size(found[1])
    if chosen is None:
        return None
    order = [lane + lanes * (chosen >> lane // size % 8 & 1) for lane in range(lanes)]
    return rearranged([(parts[2], lanes), (parts[1], lanes)], order)


def _picked(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Choose elements of each of two vectors for every 128 bits (``vshufps``, ``vshufpd``)."""
    order = _number(parts[0])
    if order is None:
        return None
    if found[1] == "ps":
        places = [
            lanes * (k // 2) + start + (order >> 2 * k & 3)
            for start in range(0, lanes, _PIECE)
            for k in range(_PIECE)
        ]
    else:
        places = [
            lanes * (k % 2) + k // 2 * _PIECE + 2 * (order >> k & 1) + half
            for k in range(lanes // 2)
            for half in (0, 1)
        ]
    return rearranged([(parts[2], lanes), (parts[1], lanes)], places)


def _narrowed(found: re.Match[str], parts: Sequence[str], lanes: int) -> Source | None:
    """Keep the low bits of elements (``vpmovqd``, ``vpmovdw`` and the like)."""
    register = VECTOR.match(parts[0])
    if register is None:
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


_RULES: Sequence[tuple[re.Pattern[str], int, _Rule]] = (
    (re.compile(r"^valign(d|q)$"), 4, _shifted),
    (re.compile(r"^vp(?:ermil(ps|pd)|shufd)$"), 3, _permuted),
    (re.compile(r"^vperm(d|q|ps|pd)$"), 3, _permuted_whole),
    (re.compile(r"^vperm([ti])2(d|q|ps|pd)$"), 3, _permuted_pair),
    (re.compile(r"^vmov(sh|sl|d)dup$"), 2, _repeated),
    (re.compile(r"^vinsertps$"), 4, _inserted),
    (PIECES, 3, _pieces_moved),
    (PIECES, 4, _pieces_moved),
    (re.compile(r"^v(?:p?unpck)([lh])(q?dq|ps|pd)$"), 3, _interleaved),
    (re.compile(r"^v(perm2|shuf)[if](?:128|64x2|32x4)$"), 4, _put_together),
    (re.compile(r"^vmov(ss|sd|hlps|lhps)$"), 3, _halves_moved),
    (re.compile(r"^vp?blend(d|ps|pd)$"), 4, _blended),
    (re.compile(r"^vshuf(ps|pd)$"), 4, _picked),
    (re.compile(r"^vpmov(q)(d|w|b)$"), 2, _narrowed),
    (re.compile(r"^vpmov(d)(w|b)$"), 2, _narrowed),
    (re.compile(r"^vpmov(w)(b)$"), 2, _narrowed),
)
"""Moves by name and number of operands."""
