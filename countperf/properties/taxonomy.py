"""The names of kernel properties, their units and what they mean.

Names are dot-separated and lower case, the same in Python, on the command line, in documents and
in messages. After Stevens & Klöckner (2016), "A Unified, Hardware-Fitted, Cross-GPU Performance
Model", section 2; properties that the paper lacks extend its grammar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from countperf.errors import PropertyNameError
from countperf.symbolic.memory import kept_in_process

COUNTING_RULES_VERSION = 10
"""Raised whenever the same kernel would get other counts; weights fitted under another version
do not apply."""


View = Literal["source", "compiled", "structure"]
"""Whether a kernel's counts are those of what Loopy emits, of what a compiler leaves of it, or what
Loopy emits and beside it, as ``exec...`` and ``bytes...``, what a compiler leaves by how it is
executed."""

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
_BITS = r"(?P<bits>[1-9]\d*)"
"""Bits of an element: any number of bytes, since there are vectors and structures."""
_CLASS = r"uniform|stride1|[12]of2|[1-3]of3|[1-4]of4|[1-4]ofn|indirect"
_SITE = r"(?:free|sync)\.(?:flat|long|packed|short|loop[248]?)\.\d+x\d+"
_STEP = r"(?:same|next|offset|shifted|masked|near|(?:far|wide|vast)[1-3]?|(?:wide|vast)?data)"

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
            rf"exec\.{_SITE}\.(?:flop\.\w+\.{_REAL}|iop\.\w+\.{_INTEGER})(?:\.\w+)?",
            "operation",
            "operations by site",
        ),
        (
            rf"exec\.{_SITE}\.[gl]mem\.(?:load|store)\.{_BITS}\.{_STEP}(?:_{_STEP})?(?:\.{_STEP})?",
            "access",
            "accesses by site, by the step of the address from item to item and in a loop",
        ),
        (
            rf"exec\.{_SITE}\.chain\.\w+\.\w+(?:\.\d+)?",
            "operation",
            "operations of carried chains, by their iterations if known",
        ),
        (
            rf"exec\.{_SITE}\.addresses\.\d+",
            "access",
            "loads in loops with barriers, by how many an item has there",
        ),
        (
            rf"exec\.{_SITE}\.guarded\.[gl]mem\.(?:load|store)\.{_BITS}\.\w+",
            "access",
            "accesses under a condition that tells neighboring items apart",
        ),
        (rf"exec\.{_SITE}\.idle", "slot", "slots of instructions in which nothing is executed"),
        (
            rf"exec\.{_SITE}\.pmem\.(?:load|store)\.\d+",
            "access",
            "accesses to private arrays at subscripts that depend on the items' own loops, by the"
            " elements that an item has",
        ),
        (rf"exec\.{_SITE}\.carried", "value", "private values that loops carry, times iterations"),
        (
            rf"exec\.{_SITE}\.kept\.\d+\.\d+",
            "value",
            "private values carried over barriers, by how many an item has, and their bits",
        ),
        (rf"exec\.{_SITE}\.iterations", "iteration", "iterations of the items' own loops"),
        (rf"exec\.{_SITE}\.entries", "entry", "how often items come to their own loops"),
        (rf"exec\.{_SITE}\.passes", "work group", "passes of work groups through regions"),
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
        (
            r"code\.\w+",
            "instruction",
            "instructions of compiled code that all groups execute, by class",
        ),
        (
            r"late\.crowded\.(?:load|store)",
            "access",
            "accesses of compiled code that come back too late, since their lines crowd a set",
        ),
        (
            r"late\.stack\.(?:load|store)",
            "B",
            "bytes that compiled code keeps on the stack for each item, beyond a first-level cache",
        ),
        (
            rf"run\.(?:vector|scalar)\.arithmetic\.{_REAL}(?:\.\w+)?",
            "instruction",
            "additions, multiplications and fused ones as a device issues them",
        ),
        (
            r"run\.(?:vector|scalar)\.chain\.\w+(?:\.\w+)?",
            "instruction",
            "instructions of carried chains, which wait for each other",
        ),
        (
            r"run\.(?:vector|scalar)\.[gl]mem\.(?:load|store)(?:\.\w+)?",
            "instruction",
            "accesses as a device issues them, by how addresses change",
        ),
        (
            r"run\.(?:vector|scalar)\.pmem\.(?:load|store|gather|scatter)",
            "instruction",
            "accesses to private arrays as a device issues them, or as each item of vectors does",
        ),
        (
            r"run\.(?:vector|scalar)\.guarded\.[gl]mem\.(?:load|store)",
            "instruction",
            "those of the accesses in vectors that need a mask, or a branch for each item",
        ),
        (
            r"run\.(?:vector|scalar)\.(?:idle|iterations|entries|carried|kept|addresses)",
            "instruction",
            "slots without work, iterations, and private values kept in memory, as a device issues"
            " them",
        ),
        (
            r"run\.scalar\.crowded",
            "value",
            "private values kept over barriers, as far as those of an item share sets of a cache",
        ),
        (
            r"run\.(?:vector|scalar)\.passes\.(?:free|sync)",
            "work group",
            "passes of work groups through regions",
        ),
        (
            r"run\.(?:vector|scalar)\.rows\.(?:free|sync|loop)",
            "row",
            "passes of rows of work groups through regions, and through bodies of loops",
        ),
        (
            r"run\.(?:vector|scalar)\.(?:minor|divide|div|pow|special|conditional)(?:\.\w+){0,2}",
            "instruction",
            "other operations as a device issues them",
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
    )
)

_GRAMMAR_OF_ROOT: dict[str, list[tuple[re.Pattern[str], str, str]]] = {}
for _rule in _GRAMMAR:
    _GRAMMAR_OF_ROOT.setdefault(_rule[0].pattern.split(r"\.")[0], []).append(_rule)

PROPERTY_ROOTS = frozenset(_GRAMMAR_OF_ROOT)
"""First parts of property names."""


_NOT_EMITTED = frozenset({"exec", "run", "bytes", "segments", "code", "late", "transactions"}) | {
    "subgroups",
    "distinct",
}


def is_emitted(name: str) -> bool:
    """Return whether a property is of what Loopy emits, not of how that is executed."""
    return name.split(".", 1)[0] not in _NOT_EMITTED


def describe(name: str) -> KernelProperty:
    """Return the property of a name.

    Raises
    ------
    PropertyNameError
        The name does not follow the grammar.
    """
    _, unit, description = _rule_of(name)
    return KernelProperty(name=name, unit=unit, description=description)


def _rule_of(name: str) -> tuple[re.Pattern[str], str, str]:
    for rule in _GRAMMAR_OF_ROOT.get(name.partition(".")[0], ()):
        found = rule[0].fullmatch(name)
        if found is not None and int(found.groupdict().get("bits", 8)) % 8 == 0:
            return rule
    raise PropertyNameError(
        f"{name!r} is no property name; names look like flop.add.f32, flop.special.f32.rsqrt, "
        "gmem.load.32.stride1, lmem.load.32, barrier.local, groups, launches",
        name=name,
    )


@kept_in_process(4096)
def validate_name(name: str) -> str:
    """Return a property name if it follows the grammar.

    Raises
    ------
    PropertyNameError
        It does not.
    """
    _rule_of(name)
    return name
