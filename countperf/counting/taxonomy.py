"""The names of kernel properties and their units.

After Stevens & Klöckner (2016), "A Unified, Hardware-Fitted, Cross-GPU Performance Model", section
2; properties that the paper lacks extend its grammar.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, PositiveInt

from countperf.counting.structure import site_keys as keys
from countperf.counting.structure.issue import ISSUE_ROOT, ISSUED
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.errors import PropertyNameError

COUNTING_RULES_VERSION = 11  # raised whenever the same kernel would get other counts


def _no_newer(rules: int) -> int:
    if rules > COUNTING_RULES_VERSION:
        raise ValueError(
            f"counted under rules {rules} by a newer countperf; this one has"
            f" {COUNTING_RULES_VERSION}: upgrade countperf"
        )
    return rules


CountingRules = Annotated[PositiveInt, AfterValidator(_no_newer)]  # a version that is known


UNKNOWN_GROUPS = "code.groups_unknown"  # of launches in which data decides what each executes

View = Literal["source", "compiled", "structure"]
# of what Loopy emits, of what a compiler leaves, or of what is emitted and how it is executed
VIEWS: tuple[View, ...] = get_args(View)


_REAL = r"f(?:16|32|64)"
_INTEGER = r"[iu](?:8|16|32|64)"
_BITS = r"(?P<bits>[1-9]\d*)"  # any number of bytes, since there are vectors and structures
_CLASS = r"uniform|stride1|[12]of2|[1-3]of3|[1-4]of4|[1-4]ofn|indirect"

_UNITS: tuple[tuple[str, str], ...] = (  # patterns of names, with the unit of each
    (rf"flop\.(?:add|mul|div|pow|fma|minmax|compare|select|convert|neg)\.{_REAL}", "operation"),
    (rf"flop\.special\.{_REAL}(?:\.\w+)?", "operation"),
    (rf"iop\.\w+\.{_INTEGER}(?:\.\w+)?", "operation"),
    # by element size in bits and amortized stride; ``min`` is the smaller of loads and stores
    (rf"gmem\.(?:load|store|min)\.{_BITS}\.(?:{_CLASS})", "access"),
    (rf"lmem\.(?:load|store)\.{_BITS}", "access"),
    (r"barrier\.(?:local|global)", "barrier x work item"),
    # of compiled code; misses by set conflicts; what each item has on the stack beyond a cache
    (r"code\.\w+", "instruction"),
    (r"miss\.conflict\.(?:load|store)", "access"),
    (r"spill\.beyond_l1\.(?:load|store)", "B"),
    # of sub-groups, where a model names them (`countperf.counting.analysis`)
    (r"transactions\.[1-9]\d*x[1-9]\d*(?:\.(?:load|store))?", "transaction"),
    (
        r"subgroups\.[1-9]\d*(?:\.(?:launched|arithmetic|load|store|local|passes|barrier))?",
        "instruction",
    ),
    (r"distinct\.(?:load|store)", "B"),
    # launched; work items of all groups, and rows of them, where a model names them
    (r"groups", "work group"),
    (r"items", "work item"),
    (r"rows", "row"),
    (r"launches", "launch"),
    # distinct bytes and contiguous pieces of global memory that each group, or the kernel, accesses
    (r"bytes\.group\.(?:load|store)\.(?:dense|sparse)", "B"),
    (r"segments\.group\.(?:load|store)", "segment"),
    (r"bytes\.kernel\.(?:load|store|update)", "B"),
    *((keys.SITE + what, unit) for what, unit, _ in keys.WHAT),
    *ISSUED,
)

_GRAMMAR_OF_ROOT: dict[str, list[tuple[re.Pattern[str], str]]] = {}
for _pattern, _unit in _UNITS:
    _GRAMMAR_OF_ROOT.setdefault(_pattern.split(r"\.")[0], []).append((re.compile(_pattern), _unit))

PROPERTY_ROOTS = frozenset(_GRAMMAR_OF_ROOT)  # first parts of property names

_OF_CODE = ("code", "miss", "spill", "transactions", "subgroups", "distinct")
_NOT_EMITTED = frozenset((keys.SITE_ROOT, ISSUE_ROOT, *keys.FOOTPRINT_ROOTS, *_OF_CODE))


def is_emitted(name: str) -> bool:
    """Return whether a property is of what Loopy emits, not of how that is executed."""
    return name.split(".", 1)[0] not in _NOT_EMITTED


def property_unit(name: str) -> str:
    """Return the unit of a property's count; refuse a name that does not follow the grammar."""
    for pattern, unit in _GRAMMAR_OF_ROOT.get(name.partition(".")[0], ()):
        match = pattern.fullmatch(name)
        if match is not None and int(match.groupdict().get("bits", 8)) % 8 == 0:
            return unit
    raise PropertyNameError(
        f"{name!r} is no property name; names look like flop.add.f32, flop.special.f32.rsqrt, "
        "gmem.load.32.stride1, lmem.load.32, barrier.local, groups, launches",
        name=name,
    )


@lru_cache(4096)
def validate_name(name: str) -> str:
    """Return a property name if it follows the grammar."""
    property_unit(name)
    return name


def assumption_of(name: str, caches: CountedCaches | None = None) -> str:
    """Return what a property takes for granted; empty for facts of the program."""
    caches = caches or DEFAULT_CACHES
    if name.startswith(("miss.", "spill.")):
        return f"assumes a first-level cache of {caches.code.text}"
    key = keys.site_key(name)
    if key is None:
        return ""
    said = ["assumes which loops a compiler unrolls"] if key.site.placement == "short" else []
    if isinstance(key, keys.EventKey) and key.event.startswith("live_across_barrier."):
        said.append("assumes what a compiler keeps over barriers")
    if isinstance(key, keys.AccessKey) and not keys.CERTAIN_STEPS.issuperset(key.steps):
        said.append(f"assumes caches of {caches.text}")
    return "; ".join(said)
