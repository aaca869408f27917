"""Instructions that move elements of vectors to places that constants of the code decide.

A rule says where each element of the result comes from: elements of the operands are numbered side
by side, those of the operand that is written last first, and `ZERO` is zero.

Source: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from countperf.machine_code.machine_state import Lanes, Machine
from countperf.machine_code.operands import VECTOR, WIDTHS, Source, immediate, source_of

ZERO = -1
ELEMENT_BYTES = {
    **{"b": 1, "w": 2, "d": 4, "q": 8, "ps": 4, "pd": 8, "ss": 4, "sd": 8},
    **{"32x2": 8, "128": 16, "32x4": 16, "64x2": 16, "32x8": 32, "64x4": 32},
    **{"bw": 1, "wd": 2, "dq": 4, "qdq": 8},
}
"""Bytes of an element by what a name ends with; of ``unpack``, of an element of the operands."""


class _Shape(NamedTuple):
    """Elements of a vector, elements of 128 bits of it, and the constant of the instruction."""

    elements: int
    per_piece: int
    by: int

    @property
    def starts(self) -> range:
        """First elements of pieces of 128 bits."""
        return range(0, self.elements, self.per_piece)


_Order = Callable[[str, _Shape], Sequence[int]]


def _aligned(_kind: str, s: _Shape) -> list[int]:
    """Take elements of two vectors side by side, from some place on (``valignd``)."""
    return [(s.by % s.elements + k + s.elements) % (2 * s.elements) for k in range(s.elements)]


def _aligned_bytes(_kind: str, s: _Shape) -> list[int]:
    """Do so with the bytes of each 128 bits; behind them are zeros."""
    sides = [
        [s.elements + start + k for k in range(16)] + [*range(start, start + 16)]
        for start in s.starts
    ]
    return [place for both in sides for place in (both + [ZERO] * 256)[s.by : s.by + 16]]


def _shifted_bytes(kind: str, s: _Shape) -> list[int]:
    by = -min(s.by, 16) if kind == "l" else min(s.by, 16)
    return [start + k + by if 0 <= k + by < 16 else ZERO for start in s.starts for k in range(16)]


def _interleaved(kind: str, s: _Shape) -> list[int]:
    """Take the lower or upper elements of 128 bits of two vectors in turns."""
    half = s.per_piece // 2
    upper = half if kind == "h" else 0
    return [
        vector + start + upper + k
        for start in s.starts
        for k in range(half)
        for vector in (0, s.elements)
    ]


def _permuted(_kind: str, s: _Shape) -> list[int]:
    """Permute elements within 128 bits."""
    if s.per_piece == 2:
        return [k - k % 2 + (s.by >> k & 1) for k in range(s.elements)]
    return [start + (s.by >> 2 * k & 3) for start in s.starts for k in range(4)]


def _permuted_whole(_kind: str, s: _Shape) -> list[int]:
    """Permute elements of 64 bits within 256 bits."""
    return [start + (s.by >> 2 * k & 3) for start in range(0, s.elements, 4) for k in range(4)]


def _repeated(kind: str, s: _Shape) -> list[int]:
    """Repeat every other element (``vmovshdup``, ``vmovddup``)."""
    return [k - k % 2 + (kind == "sh") for k in range(s.elements)]


def _picked(_kind: str, s: _Shape) -> list[int]:
    """Choose elements of each of two vectors for every 128 bits (``vshufps``, ``vshufpd``)."""
    if s.per_piece == 2:
        return [s.elements * (k % 2) + k - k % 2 + (s.by >> k & 1) for k in range(s.elements)]
    return [
        s.elements * (k // 2) + start + (s.by >> 2 * k & 3) for start in s.starts for k in range(4)
    ]


def _blended(_kind: str, s: _Shape) -> list[int]:
    """Choose elements of two vectors by the bits of a constant."""
    return [k + s.elements * (s.by >> k % 8 & 1) for k in range(s.elements)]


def _put_together(kind: str, s: _Shape) -> list[int]:
    """Put together pieces of 128 bits of two vectors."""
    if kind == "perm2":
        return [ZERO if half & 8 else half & 3 for half in (s.by & 0xF, s.by >> 4)]
    bits = s.elements.bit_length() - 1
    places = [s.by >> bits * k & (s.elements - 1) for k in range(s.elements)]
    return [
        position + (0 if k < s.elements // 2 else s.elements) for k, position in enumerate(places)
    ]


def _halves(kind: str, _s: _Shape) -> Sequence[int]:
    """Put the lowest element of one vector below another one, or two halves side by side."""
    return {
        "ss": (4, 1, 2, 3),
        "sd": (4, 5, 2, 3),
        "hlps": (6, 7, 2, 3),
        "lhps": (0, 1, 4, 5),
    }[kind]


_ORDERS: Sequence[tuple[re.Pattern[str], int, int, _Order]] = tuple(
    (re.compile(pattern), operands, size, order)
    for pattern, operands, size, order in (
        # name with the kind and the size of elements, operands, bytes of elements if no name says
        # them, and the rule
        (r"^v(align)(d|q)$", 4, 0, _aligned),
        (r"^vpalignr()()$", 4, 1, _aligned_bytes),
        (r"^vps(l|r)ldq()$", 3, 1, _shifted_bytes),
        (r"^vp?unpck([lh])(bw|wd|q?dq|ps|pd)$", 3, 0, _interleaved),
        (r"^vp(?:ermil|shuf)()(ps|pd|d)$", 3, 0, _permuted),
        (r"^vperm()(q|pd)$", 3, 0, _permuted_whole),
        (r"^vmov(sh|sl)dup()$", 2, 4, _repeated),
        (r"^vmov(d)dup()$", 2, 8, _repeated),
        (r"^vshuf()(ps|pd)$", 4, 0, _picked),
        (r"^vp?blend()(d|w|ps|pd)$", 4, 0, _blended),
        (r"^v(perm2|shuf)[if](?:128|64x2|32x4)()$", 4, 16, _put_together),
        (r"^vmov(ss|sd|hlps|lhps)()$", 3, 4, _halves),
    )
)
"""Moves by name and number of operands."""

_PIECES = re.compile(r"^v(extract|insert)[if](128|32x4|64x2|32x8|64x4)$")
_BROADCASTS = re.compile(r"^vp?broadcast(?:[if])?(?P<size>[bwdq]|s[sd]|128|32x[248]|64x[24])$")
_NARROWED = re.compile(r"^vpmov([qdw])([dwb])$")


def rearranged(sources: Sequence[Source], order: Sequence[int], size: int) -> Source:
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
    if (found := _PIECES.match(mnemonic)) and by is not None:
        size = ELEMENT_BYTES[found[2]]
        if found[1] == "insert" and len(parts) == 4:
            own, new = source_of(parts[2], width), source_of(parts[1], size)
            count = width // size
            order = [count if k == by % count else k for k in range(count)]
            return rearranged([own, new], order, size)
        vector = VECTOR.match(parts[1])
        if vector is not None and len(parts) == 3:
            whole = WIDTHS[vector[1]]
            return rearranged([source_of(parts[1], whole)], [by % (whole // size)], size)
        return None
    if mnemonic == "vinsertps" and by is not None:
        taken, put = (by >> 6 if VECTOR.match(parts[1]) else 0), by >> 4 & 3
        places = [ZERO if by >> k & 1 else 4 + taken if k == put else k for k in range(4)]
        return rearranged([source_of(part, 16) for part in (parts[2], parts[1])], places, 4)
    if (found := _BROADCASTS.match(mnemonic)) and len(parts) == 2:
        size = ELEMENT_BYTES[found["size"]]
        return rearranged([source_of(parts[0], size)], [0] * (width // size), size)
    if (found := _NARROWED.match(mnemonic)) and (vector := VECTOR.match(parts[0])):
        wide, size = (ELEMENT_BYTES[group] for group in found.groups())
        whole = WIDTHS[vector[1]]
        return rearranged([source_of(parts[0], whole)], range(0, whole // size, wide // size), size)
    for pattern, operands, size, rule in _ORDERS:
        found = pattern.match(mnemonic) if len(parts) == operands else None
        if found is None:
            continue
        is_constant = parts[0].startswith("$")
        if is_constant is (rule in (_interleaved, _repeated, _halves)):
            return None
        size = size or ELEMENT_BYTES[found[2]]
        inputs = [source_of(part, width) for part in reversed(parts[is_constant:-1])]
        order = rule(found[1], _Shape(width // size, max(1, 16 // size), by or 0))
        return rearranged(inputs, order, size)
    return None
