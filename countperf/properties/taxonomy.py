"""The names of kernel properties, their units and what they mean.

Names are dot-separated and lower case, the same in Python, on the command line, in documents and
in messages. After Stevens & Klöckner (2016), "A Unified, Hardware-Fitted, Cross-GPU Performance
Model", section 2; properties that the paper lacks extend its grammar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from countperf.errors import PropertyNameError

COUNTING_RULES_VERSION = 2
"""Raised whenever the same kernel would get other counts; weights fitted under another version
do not apply."""


View = Literal["source", "compiled"]
"""Whether a kernel's counts are those of what Loopy emits, or of what a compiler leaves of it."""

VIEWS: tuple[View, ...] = get_args(View)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProperty:
    """One property of the taxonomy.

    Attributes
    ----------
    name : str
        Such as ``gmem.load.32.stride1``.
    unit : str
        What one unit of the count is.
    description : str
        One line for tables.
    """

    name: str
    unit: str
    description: str


_REAL = r"f(?:16|32|64)"
_INTEGER = r"[iu](?:8|16|32|64)"
_CLASS = r"uniform|stride1|[12]of2|[1-3]of3|[1-4]of4|[1-4]ofn|indirect"

_GRAMMAR: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern), unit, description)
    for pattern, unit, description in (
        (rf"flop\.add\.{_REAL}", "operation", "additions and subtractions"),
        (rf"flop\.mul\.{_REAL}", "operation", "multiplications"),
        (rf"flop\.div\.{_REAL}", "operation", "divisions"),
        (rf"flop\.pow\.{_REAL}", "operation", "powers with real exponents"),
        (rf"flop\.special\.{_REAL}(?:\.\w+)?", "operation", "special functions"),
        (rf"flop\.fma\.{_REAL}", "operation", "fused multiply-adds"),
        (rf"flop\.minmax\.{_REAL}", "operation", "minima and maxima"),
        (rf"flop\.compare\.{_REAL}", "operation", "comparisons of data"),
        (rf"flop\.select\.{_REAL}", "operation", "selections between values"),
        (rf"flop\.convert\.{_REAL}", "operation", "conversions to or from the type"),
        (rf"flop\.neg\.{_REAL}", "operation", "multiplications by -1 (free on most devices)"),
        (rf"iop\.\w+\.{_INTEGER}(?:\.\w+)?", "operation", "integer operations on data"),
        (
            rf"gmem\.(?:load|store)\.\d+\.(?:{_CLASS})",
            "access",
            "accesses to global memory by element size in bits and amortized stride",
        ),
        (
            rf"gmem\.min\.\d+\.(?:{_CLASS})",
            "access",
            "the smaller of loads and stores of a class",
        ),
        (r"lmem\.(?:load|store)\.\d+", "access", "accesses to local memory by size in bits"),
        (r"barrier\.(?:local|global)", "barrier x work item", "barriers that work items wait at"),
        (r"groups", "work group", "work groups launched"),
        (r"launches", "launch", "kernel launches"),
    )
)

PROPERTY_ROOTS = frozenset(pattern.pattern.split(r"\.")[0] for pattern, _, _ in _GRAMMAR)
"""What property names begin with."""


def describe(name: str) -> KernelProperty:
    """Return the property of a name.

    Raises
    ------
    PropertyNameError
        The name does not follow the grammar.
    """
    for pattern, unit, description in _GRAMMAR:
        if pattern.fullmatch(name):
            return KernelProperty(name=name, unit=unit, description=description)
    raise PropertyNameError(
        f"{name!r} is no property name; names look like flop.add.f32, flop.special.f32.rsqrt, "
        "gmem.load.32.stride1, lmem.load.32, barrier.local, groups, launches",
        name=name,
    )


@lru_cache(maxsize=4096)
def validate_name(name: str) -> str:
    """Return a property name if it follows the grammar.

    Raises
    ------
    PropertyNameError
        It does not.
    """
    return describe(name).name
