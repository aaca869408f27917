"""The names of kernel properties, their units and what they mean.

Names are dot-separated and lower case, the same in Python, on the command line, in documents and
in messages. After Stevens & Klöckner (2016), "A Unified, Hardware-Fitted, Cross-GPU Performance
Model", section 2; properties that the paper lacks extend its grammar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, PositiveInt

from countperf.errors import PropertyNameError
from countperf.execution.issue import ISSUE_ROOT, ISSUED
from countperf.execution.keys import (
    CERTAIN_STEPS,
    FOOTPRINT_ROOTS,
    SITE,
    SITE_ROOT,
    WHAT,
    AccessKey,
    LiveValuesKey,
    site_key,
)
from countperf.execution.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.symbolic.memory import kept_in_process

COUNTING_RULES_VERSION = 10
"""Raised whenever the same kernel would get other counts; weights fitted under another version
do not apply."""


def _no_newer(rules: int) -> int:
    if rules > COUNTING_RULES_VERSION:
        raise ValueError(
            f"counted under rules {rules} by a newer countperf; this one has"
            f" {COUNTING_RULES_VERSION}: upgrade countperf"
        )
    return rules


CountingRules = Annotated[PositiveInt, AfterValidator(_no_newer)]
"""Version of counting rules that this countperf knows."""


View = Literal["source", "compiled", "structure"]
"""Whether a kernel's counts are those of what Loopy emits, of what a compiler leaves of it, or what
Loopy emits and beside it, as ``site...`` and ``bytes...``, what a compiler leaves by how it is
executed."""

VIEWS: tuple[View, ...] = get_args(View)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProperty:
    """One property of the taxonomy."""

    name: str  # such as ``gmem.load.32.stride1``
    unit: str  # what one unit of the count is
    description: str  # one line for tables


_REAL = r"f(?:16|32|64)"
_INTEGER = r"[iu](?:8|16|32|64)"
_BITS = r"(?P<bits>[1-9]\d*)"
"""Bits of an element: any number of bytes, since there are vectors and structures."""
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
            rf"gmem\.(?:load|store)\.{_BITS}\.(?:{_CLASS})",
            "access",
            "accesses to global memory by element size in bits and amortized stride",
        ),
        (
            rf"gmem\.min\.{_BITS}\.(?:{_CLASS})",
            "access",
            "the smaller of loads and stores of a class",
        ),
        (rf"lmem\.(?:load|store)\.{_BITS}", "access", "accesses to local memory by size in bits"),
        (r"barrier\.(?:local|global)", "barrier x work item", "barriers that work items wait at"),
        (
            r"code\.\w+",
            "instruction",
            "instructions of compiled code that all groups execute, by class",
        ),
        (
            r"miss\.conflict\.(?:load|store)",
            "access",
            "accesses of compiled code that miss a first-level cache by set conflicts",
        ),
        (
            r"spill\.beyond_l1\.(?:load|store)",
            "B",
            "bytes that compiled code keeps on the stack for each item, beyond a first-level cache",
        ),
        (
            r"transactions\.[1-9]\d*x[1-9]\d*(?:\.(?:load|store))?",
            "transaction",
            "lines that sub-groups touch in global memory, by work items and bytes of a line, where"
            " a model names them",
        ),
        (
            r"subgroups\.[1-9]\d*(?:\.(?:launched|arithmetic|load|store|local|passes|barrier))?",
            "instruction",
            "what sub-groups execute, by work items of a sub-group, where a model names it",
        ),
        (
            r"distinct\.(?:load|store)",
            "B",
            "distinct bytes of global memory that a kernel accesses, where a model names them",
        ),
        (r"groups", "work group", "work groups launched"),
        (r"items", "work item", "work items of all groups, where a model names them"),
        (r"rows", "row", "rows of work items along local axis 0, of all groups, likewise"),
        (r"launches", "launch", "kernel launches"),
        (
            r"bytes\.group\.(?:load|store)\.(?:dense|sparse)",
            "B",
            "distinct bytes of global memory that each group accesses, over all groups",
        ),
        (
            r"segments\.group\.(?:load|store)",
            "segment",
            "contiguous pieces of global memory that each group accesses, over all groups",
        ),
        (
            r"bytes\.kernel\.(?:load|store)",
            "B",
            "distinct bytes of global memory that the kernel accesses, and those between",
        ),
        *((SITE + what, unit, description) for what, unit, description, _ in WHAT),
        *ISSUED,
    )
)

_GRAMMAR_OF_ROOT: dict[str, list[tuple[re.Pattern[str], str, str]]] = {}
for _rule in _GRAMMAR:
    _GRAMMAR_OF_ROOT.setdefault(_rule[0].pattern.split(r"\.")[0], []).append(_rule)

PROPERTY_ROOTS = frozenset(_GRAMMAR_OF_ROOT)
"""First parts of property names."""

_NOT_EMITTED = frozenset(
    (
        *(SITE_ROOT, ISSUE_ROOT, *FOOTPRINT_ROOTS),
        *("code", "miss", "spill", "transactions", "subgroups", "distinct"),
    )
)


def is_emitted(name: str) -> bool:
    """Return whether a property is of what Loopy emits, not of how that is executed."""
    return name.split(".", 1)[0] not in _NOT_EMITTED


def describe(name: str) -> KernelProperty:
    """Return the property of a name."""
    unit, description = _unit_and_description(name)
    return KernelProperty(name=name, unit=unit, description=description)


def _unit_and_description(name: str) -> tuple[str, str]:
    for pattern, unit, description in _GRAMMAR_OF_ROOT.get(name.partition(".")[0], ()):
        match = pattern.fullmatch(name)
        if match is not None and int(match.groupdict().get("bits", 8)) % 8 == 0:
            return unit, description
    raise PropertyNameError(
        f"{name!r} is no property name; names look like flop.add.f32, flop.special.f32.rsqrt, "
        "gmem.load.32.stride1, lmem.load.32, barrier.local, groups, launches",
        name=name,
    )


@kept_in_process(4096)
def validate_name(name: str) -> str:
    """Return a property name if it follows the grammar."""
    _unit_and_description(name)
    return name


# --- Counts that rest on assumptions about compilers and caches, and are no facts of the program
# The structure view sorts executions by where a compiler is assumed to put them and by which cache
# is assumed to serve them. How many there are in all is exact; how they are sorted is not.


def assumption_of(name: str, caches: CountedCaches | None = None) -> str:
    """Return what a property takes for granted; empty for facts of the program."""
    caches = caches or DEFAULT_CACHES
    if name.startswith(("miss.", "spill.")):
        return f"assumes a first-level cache of {caches.code.text}"
    key = site_key(name)
    if key is None:
        return ""
    said = ["assumes which loops a compiler unrolls"] if key.site.placement == "short" else []
    if isinstance(key, LiveValuesKey):
        said.append("assumes what a compiler keeps over barriers")
    if isinstance(key, AccessKey) and not CERTAIN_STEPS.issuperset(key.steps):
        said.append(f"assumes caches of {caches.text}")
    return "; ".join(said)
