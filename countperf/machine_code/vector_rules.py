"""Rules of vectors' elements: what the integers of an instruction's result are.

Source: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from countperf.machine_code.machine_state import (
    UNKNOWN,
    VECTOR,
    WIDTHS,
    Lanes,
    Machine,
    Source,
    Value,
    immediate,
    join_bytes,
    lanes_of,
    source_of,
)

Elements = npt.NDArray[Any]
_Made = Callable[["re.Match[str]", Sequence[str], int], "Source | None"]
ELEMENT_BYTES = {
    **{"b": 1, "w": 2, "d": 4, "q": 8, "ps": 4, "pd": 8, "ss": 4, "sd": 8},
    **{"32x2": 8, "128": 16, "32x4": 16, "64x2": 16, "32x8": 32, "64x4": 32},
    **{"bw": 1, "wd": 2, "dq": 4, "qdq": 8},
}
"""Bytes of an element by what a name ends with; of ``unpack``, of an element of the operands."""
MASKED = re.compile(r"vp?maskmov(p[sd]|[dq])$")
SIGNS = re.compile(r"v?p?movmsk(p[sd]|b)$")
MASK = re.compile(r"^%k([0-7])(\{.*)?$")


def choose_lanes(chosen: Lanes, a: Lanes, b: Lanes) -> Lanes:
    """Return the lanes of one vector that are chosen, and others of the second one."""
    return np.where(chosen < 0, np.where(a == b, a, UNKNOWN), np.where(chosen == 1, a, b))


def join_bits(bits: Lanes) -> Value:
    """Return the integer that bits make together."""
    return None if (bits < 0).any() else sum(1 << int(k) for k in np.flatnonzero(bits))


def elements_of(lanes: Lanes, kind: str) -> tuple[Elements, npt.NDArray[np.bool_]]:
    """Return bytes as elements of a type of NumPy, and which of them are known."""
    values = np.ascontiguousarray(lanes).astype(np.uint8).view(kind)
    return values, lanes.reshape(len(values), -1).min(axis=1) >= 0


def read_elements(
    machine: Machine, sources: Sequence[Source], kind: str
) -> tuple[Sequence[Elements], npt.NDArray[np.bool_]]:
    """Read the elements of operands, and where all of them are known."""
    values, known = zip(*(elements_of(source(machine), kind) for source in sources), strict=True)
    return values, np.logical_and.reduce(known)


def _compute(
    function: Callable[..., Elements], sources: Sequence[Source], kind: str, size: int = 0
) -> Source:
    """Return what computes elements of the operands' elements, where all of these are known."""
    size = size or int(kind[1:])

    def compute(machine: Machine) -> Lanes:
        values, known = read_elements(machine, sources, kind)
        raw = function(*values).astype(f"u{size}").view(np.uint8).astype(np.int16)
        return np.where(np.repeat(known, size), raw, UNKNOWN)

    return compute


def _shift(kind: str, a: Elements, by: Elements) -> Elements:
    bits = 8 * a.itemsize
    if kind == "ra":
        signs = f"i{a.itemsize}"
        return a.view(signs) >> np.minimum(by, bits - 1).astype(signs)
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


def sources_of(parts: Sequence[str], width: int) -> list[Source]:
    """Return what reads operands, the one written last first."""
    return [source_of(part, width) for part in reversed(parts)]


def _pairwise(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    """Compute element by element; of operands that are one register, some results are known."""
    name = match[1]
    if parts[0] == parts[1] and name in ("xor", "sub", "cmpeq"):
        return lambda _: np.full(width, 0xFF if name == "cmpeq" else 0, np.int16)
    kind = f"{'i' if name in _SIGNED else 'u'}{ELEMENT_BYTES.get(match[2], 1)}"
    return _compute(_PAIRWISE[name], sources_of(parts[:2], width), kind)


def _widen_elements(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    narrow, wide = (ELEMENT_BYTES[letter] for letter in match.groups()[1:])
    source = source_of(parts[0], width * narrow // wide)
    kind = f"{'i' if match[1] == 's' else 'u'}{narrow}"
    return _compute(lambda a: a.astype(np.int64), [source], kind, wide)


def _shift_elements(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    """Shift by a constant, or by the lowest 64 bits of a vector."""
    size, constant, by = ELEMENT_BYTES[match[2]], immediate(parts[0]), source_of(parts[0], 8)

    def counts(machine: Machine) -> Lanes:
        count = join_bytes(by(machine)) if constant is None else constant
        return np.tile(lanes_of(None if count is None else min(count, 0xFF), size), width // size)

    return _compute(partial(_shift, match[1]), [source_of(parts[1], width), counts], f"u{size}")


def _products(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    """Multiply every other element of 32 bits, of which the others may be unknown."""
    kind, places = match[1] or "i", range(0, width // 4, 2)
    halves = [_rearrange([source], places, 4) for source in sources_of(parts[:2], width)]
    return _compute(lambda a, b: a.astype(f"{kind}8") * b, halves, f"{kind}4", 8)


def _saturate_elements(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    """Narrow elements of two vectors, of each 128 bits of one and the other in turns."""
    wide, narrow = (ELEMENT_BYTES[letter] for letter in match[2])
    limits = np.iinfo(f"{'u' if match[1] == 'u' else 'i'}{narrow}")
    pieces = width // 16
    order = [vector + piece for piece in range(pieces) for vector in (0, pieces)]
    both = _rearrange(sources_of(parts[:2], width), order, 16)
    return _compute(lambda a: np.clip(a, limits.min, limits.max), [both], f"i{wide}", narrow)


def _ternary(_match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    """Combine three vectors bit by bit, by a table of eight bits."""
    table = immediate(parts[0]) or 0
    if table == 0xFF:
        return lambda _: np.full(width, 0xFF, np.int16)

    def combine(a: Elements, b: Elements, c: Elements) -> Elements:
        value = a & 0
        for row in [row for row in range(8) if table >> row & 1]:
            value |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        return value

    return _compute(combine, sources_of(parts[1:], width), "u4")


def sign_of(lanes: Lanes, size: int) -> Lanes:
    """Return the highest bit of its element for each byte."""
    top = lanes[size - 1 :: size]
    return np.repeat(np.where(top < 0, UNKNOWN, top >> 7), size)


def _take_signs(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    """Return what reads the highest bits of elements, side by side."""
    source, size = source_of(parts[0], width), ELEMENT_BYTES[match[1]]
    return lambda machine: lanes_of(join_bits(sign_of(source(machine), size)[::size]), 8)


def _blend_by_mask(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    """Choose elements by the highest bits of those of a vector."""
    size = ELEMENT_BYTES[match[1]]
    signs, ones, zeros = (source_of(part, width) for part in parts[:3])
    return lambda machine: choose_lanes(
        sign_of(signs(machine), size), ones(machine), zeros(machine)
    )


def _load_masked(match: re.Match[str], parts: Sequence[str], width: int) -> Source | None:
    if "(" not in parts[0]:
        return None
    size, (values, mask) = ELEMENT_BYTES[match[1]], (source_of(part, width) for part in parts[:2])

    def load(machine: Machine) -> Lanes:
        chosen = sign_of(mask(machine), size)
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


def _spread_mask(match: re.Match[str], parts: Sequence[str], width: int) -> Source | None:
    """Set all bytes of the elements for which a mask has a one."""
    size, mask = ELEMENT_BYTES[match[1]], MASK.match(parts[0])
    if mask is None:
        return None
    number = int(mask[1])

    def spread(machine: Machine) -> Lanes:
        bits = machine.masks[number, : width // size]
        return np.repeat(np.where(bits < 0, bits, bits * 0xFF), size)

    return spread


def _rearrange(sources: Sequence[Source], order: Sequence[int], size: int) -> Source:
    """Return what picks elements of vectors that lie side by side; -1 is zero."""
    zero, places = np.zeros((1, size), dtype=np.int16), np.array(order)

    def pick(machine: Machine) -> Lanes:
        rows = [source(machine).reshape(-1, size) for source in sources]
        return np.concatenate([*rows, zero])[places].reshape(-1)

    return pick


def _take_piece(match: re.Match[str], parts: Sequence[str], _width: int) -> Source | None:
    size, vector = ELEMENT_BYTES[match[1]], VECTOR.match(parts[1])
    if vector is None:
        return None
    whole = WIDTHS[vector[1]]
    place = (immediate(parts[0]) or 0) % (whole // size)
    return _rearrange([source_of(parts[1], whole)], [place], size)


def _put_piece(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    size = ELEMENT_BYTES[match[1]]
    count, by = width // size, immediate(parts[0]) or 0
    order = [count if k == by % count else k for k in range(count)]
    return _rearrange([source_of(parts[2], width), source_of(parts[1], size)], order, size)


def _broadcast(match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    size = ELEMENT_BYTES[match[1]]
    return _rearrange([source_of(parts[0], size)], [0] * (width // size), size)


def _narrow_elements(match: re.Match[str], parts: Sequence[str], _width: int) -> Source | None:
    vector = VECTOR.match(parts[0])
    if vector is None:
        return None
    wide, size = (ELEMENT_BYTES[group] for group in match.groups())
    whole = WIDTHS[vector[1]]
    return _rearrange([source_of(parts[0], whole)], range(0, whole // size, wide // size), size)


_Order = Callable[[str, int, int, int], Sequence[int]]
"""Where elements of a result come from: those of the operands are numbered side by side. Given are
what the name says, the numbers of elements of a vector and of 128 bits, and the constant."""


def _reorder(order: _Order, match: re.Match[str], parts: Sequence[str], width: int) -> Source:
    by, size = immediate(parts[0]), ELEMENT_BYTES[match[2]]
    inputs = sources_of(parts[by is not None : -1], width)
    return _rearrange(inputs, order(match[1], width // size, 16 // size, by or 0), size)


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


def _choose_elements(name: str, count: int, _piece: int, by: int) -> list[int]:
    """Choose elements of two vectors by the bits of a constant, or two of their halves."""
    if name == "perm2":
        return [-1 if half & 8 else half & 3 for half in (by & 0xF, by >> 4)]
    return [k + count * (by >> k % 8 & 1) for k in range(count)]


_PIECES = r"(128|32x4|64x2|32x8|64x4|[bwdq])"
RULES: Sequence[tuple[str, int, _Made]] = (
    (r"vp(add|sub|mull|(?:min|max)[su]|cmp(?:eq|gt)|s(?:[lr]l|ra)v)([bwdq])", 3, _pairwise),
    (r"vp?(andn?|or|xor)()(?:[dq]|p[sd])?", 3, _pairwise),
    (r"vps(ll|rl|ra)([wdq])", 3, _shift_elements),
    (r"vpmul(u?)dq", 3, _products),
    (r"vpack(s|u)s(wb|dw)", 3, _saturate_elements),
    (r"vpmov([sz])x(b|w|d)(w|d|q)", 2, _widen_elements),
    (r"vpternlog[dq]", 4, _ternary),
    (SIGNS.pattern, 2, _take_signs),
    (r"vp?blendv(p[sd]|b)", 4, _blend_by_mask),
    (MASKED.pattern, 3, _load_masked),
    (r"vperm(t2)?(d|q|ps|pd)", 3, _permute_by_indices),
    (r"vpmovm2([bwdq])", 2, _spread_mask),
    # what is written where the mask of a blend is set
    (r"vp?blendm(?:b|w|d|ps|q|pd)", 3, lambda _, parts, width: source_of(parts[0], width)),
    (rf"v(?:extract[if]|pextr){_PIECES}", 3, _take_piece),
    (r"vextract(ps)", 3, _take_piece),
    (rf"v(?:insert[if]|pinsr){_PIECES}", 4, _put_piece),
    (r"vp?broadcast(?:[if])?([bwdq]|s[sd]|128|32x[248]|64x[24])", 2, _broadcast),
    (r"vpmov([qdw])([dwb])", 2, _narrow_elements),
    (r"vp?unpck([lh])(bw|wd|q?dq|ps|pd)", 3, partial(_reorder, _interleave_elements)),
    (r"vp(?:erm|shuf)()(q|pd|d)", 3, partial(_reorder, _permute_elements)),
    (r"vshuf()(ps)", 4, partial(_reorder, _pick_elements)),
    (r"vp?(blend)(d|ps|pd)", 4, partial(_reorder, _choose_elements)),
    (r"v(perm2)[if](128)", 4, partial(_reorder, _choose_elements)),
)
"""Rules by name and number of operands."""
