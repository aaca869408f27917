r"""Issued instructions of counted executions, under an execution policy.

Of a count :math:`v` at a site of rows of :math:`r` items that runs in vectors of width :math:`W`,
each row takes :math:`\lceil r/W \rceil` vector instructions (or :math:`\lfloor r/W \rfloor`, and
:math:`r \bmod W` scalar ones), so that there are :math:`v/r` times as many in all. Lanes have 32
bits: vectors of wider elements take as many more accesses. Lanes whose addresses are neither next
to each other nor all the same access memory one by one; accesses to other lines are charged for
each cache that they pass. The glossary in ``docs`` explains the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, cast, get_args

import numpy as np
from pydantic import Field

from countperf.counting.keys import Operation
from countperf.counting.structure import site_keys as keys
from countperf.documents import Part


class ExecutionPolicy(Part):
    """Rules by which a device runs the work items of a group."""

    width: int = Field(default=16, ge=1)  # work items that one vector instruction runs
    # whether vectors take neighbors along local axis 0, row by row (compilers for CPUs), or items
    # in order of their number in the group (sub-groups of GPUs)
    along: Literal["axis0", "group"] = "axis0"
    # whether what is left of a row takes a whole vector instruction, or scalar ones
    remainder: Literal["whole", "scalar"] = "whole"
    # what runs in vectors: everything, what is in no loop of an item, or that and whatever is in
    # programs with local barriers
    vectorized: Literal["always", "flat", "flat or sync"] = "always"
    # which rows run in vectors in programs with local barriers: any, or only those of a multiple of
    # `width` items
    rows: Literal["any", "multiples behind barriers"] = "any"
    # whether items of groups of one row that is no power of two access global memory in vectors
    # outside loops, short ones too, as others do, or one by one
    odd_rows: Literal["together", "apart"] = "together"
    # whether items of groups of several rows load neighbors in a local array from anywhere outside
    # loops, as others do, or one by one where a constant or another row shifts them
    shifted: Literal["together", "apart"] = "together"
    # whether accesses in vectors cost more under a condition that tells items apart: such vectors
    # need a mask, and what accesses memory one by one a branch for each item
    guards: Literal["free", "masked"] = "free"
    # private arrays of at most so many elements stay in the registers of vectors; of larger ones,
    # each item accesses its own in memory
    arrays: int = Field(default=0, ge=0)
    # groups that run at once: those of a launch run in rounds of so many, and the last round,
    # though not full, takes as long as the others
    units: int = Field(default=0, ge=0)

    @property
    def text(self) -> str:
        """The policy in a few words: its options but those that are as usual."""
        stated = self.model_dump(exclude_defaults=True)
        options = (f"{name.replace('_', ' ')} {value}" for name, value in stated.items())
        return ", ".join(options) or f"width {self.width}"


ISSUE_ROOT = "issue"  # first part of the names of what a device issues

_LAUNCHED = ("groups", "launches", "barrier.local")  # counts of which a policy changes nothing

_ONE = Fraction(1)
_REAL = r"f(?:16|32|64)"
Unit = Literal["vector", "scalar"]
IssuedEvents = Literal["idle", "iterations", "entries", "carried", "live_across_barrier"]
_Within = Literal["same", "next", "offset", "shifted", "masked", "walk"]
_Elsewhere = Literal["l1_reuse", "l2_reuse", "beyond_l2", "set_conflict", "data", "strided"]
Serving = Literal[_Within, _Elsewhere]
"""Ways in which an issued access goes: by its step within lines (``walk``: item by item), by the
cache that serves it, or as a vector of neighbors on other lines in each iteration (``strided``)."""

_ISSUED = {
    "instruction": (
        rf"arithmetic\.{_REAL}(?:\.\w+)?",
        r"(?:minor|divide|div|pow|special|conditional)(?:\.\w+){0,2}",
        r"chain(?:\.\w+){1,2}",
        rf"[gl]mem\.(?:load|store)(?:\.(?:{'|'.join(get_args(Serving))}))?",
        r"pmem\.(?:load|store|gather|scatter)",
        r"guarded\.[gl]mem\.(?:load|store)",
        "|".join(get_args(IssuedEvents)),
    ),
    "work group": (r"passes\.(?:free|sync)",),
    "row": (r"rows\.(?:free|sync)",),
}
ISSUED = tuple(
    (rf"issue\.(?:{'|'.join(get_args(Unit))})\.(?:{what})", unit)
    for unit, patterns in _ISSUED.items()
    for what in patterns
)
"""Patterns of the names of what a device issues, with their units."""

Issued = tuple[tuple[str, Fraction], ...]
"""Names of what a unit of a count is issued as, each with its number."""


@dataclass(frozen=True, slots=True)
class SiteRun:
    """Way in which a site runs under a policy."""

    site: keys.Site
    policy: ExecutionPolicy

    @property
    def shape(self) -> tuple[int, int]:
        """Items that vectors take from, and rows of them."""
        return (self.site.items, 1) if self.policy.along == "group" else self.site.shape

    @property
    def is_flat(self) -> bool:
        """True if it is in no loop of the items, or in unrolled ones only."""
        return self.site.placement != "loop"

    @property
    def is_vector(self) -> bool:
        """True if it runs in vectors."""
        policy, is_behind_barriers = self.policy, self.site.context == "sync"
        is_meant = self.is_flat or policy.vectorized == "always"
        if is_behind_barriers:
            is_meant = is_meant or policy.vectorized == "flat or sync"
            is_meant = is_meant and (policy.rows == "any" or self.shape[0] % policy.width == 0)
        return policy.width > 1 and is_meant

    @property
    def shares(self) -> tuple[Fraction, Fraction]:
        """Vector instructions, and scalar ones, by item."""
        row, _ = self.shape
        full, left = divmod(row, self.policy.width)
        if self.policy.remainder == "whole":
            full, left = full + bool(left), 0
        return Fraction(full, row), Fraction(left, row)

    def issue_as(
        self, what: str, alone: str | None = None, *, instructions: Fraction = _ONE
    ) -> Issued:
        """Return what is issued of something that a vector does in so many instructions each."""
        scalar = f"{ISSUE_ROOT}.scalar.{alone or what}"
        if not self.is_vector:
            return ((scalar, _ONE),)
        full, left = self.shares
        both = ((f"{ISSUE_ROOT}.vector.{what}", full * instructions), (scalar, left))
        return tuple((name, share) for name, share in both if share)


_GROUPS: Mapping[str, str] = {
    **dict.fromkeys(("add", "mul", "fma"), "arithmetic"),
    **dict.fromkeys(("neg", "select", "compare", "convert", "minmax"), "minor"),
}
_LIKE_PRODUCTS = frozenset({"mul", "fma", "shift"})
"""Links of chains that take about as long; additions are shorter on some processors."""

_MINOR_FUNCTIONS = frozenset(
    {"fabs", "abs", "floor", "ceil", "round", "trunc", "copysign", "clamp", "dot", "isnan"}
)
_LONG_INTEGER_FUNCTIONS = ("philox", "threefry", "pown")
"""Of integers, all others are a few instructions."""

_PASSED = {"l2_reuse": ("l2_reuse",), "beyond_l2": ("l2_reuse", "beyond_l2")}
"""Accesses that a farther cache serves pass the nearer ones as well, and are charged for that."""

_CONFLICTS = {1: Fraction(1, 4), 2: Fraction(5, 8), 3: _ONE}
"""Share of the accesses to lines of one cache set that miss, by grade."""

_LANE_BITS = 32
_SHIFTED = frozenset({"offset", "shifted", "masked"})
_NEIGHBORS = frozenset({"next", "offset"})
_ELSEWHERE = keys.TO_OTHER_LINES.keys() | keys.BY_DATA.keys()


def apply_policy(policy: ExecutionPolicy, counts: Mapping[str, Any]) -> dict[str, Any]:
    """Turn counts of the structure view into what the device issues."""
    total: dict[str, Any] = {}
    for name, count in counts.items():
        for issued, share in issue(name, cast("Any", policy)):  # frozen
            factor = float(share) if isinstance(count, np.ndarray) else share
            part = count if share == 1 else count * factor
            total[issued] = total[issued] + part if issued in total else part
    return total


@lru_cache(2**16)
def issue(name: str, policy: ExecutionPolicy) -> Issued:
    """Return what a unit of a property is issued as; nothing of what is only emitted."""
    if name in _LAUNCHED or name.startswith((f"{ISSUE_ROOT}.", *keys.FOOTPRINT_ROOTS)):
        return ((name, _ONE),)
    key = keys.site_key(name)
    if key is None:
        return ()
    run = SiteRun(key.site, policy)
    match key:
        case keys.OperationKey(_, operation):
            return run.issue_as(_operation(operation), _operation(_as_called_alone(operation)))
        case keys.AccessKey(is_guarded=True):
            return _guard_access(key, run)
        case keys.AccessKey():
            return _access(key, run)
        case _:
            return _event(key, run)


def _as_called_alone(operation: Operation) -> Operation:
    """Return the operation; a call that not all items make is like others if each has its own."""
    if operation.kind != "conditional" or operation.function in _MINOR_FUNCTIONS:
        return operation
    if operation.function == "pow":
        return replace(operation, kind="pow", function="")
    return replace(operation, kind="special")


def _operation(operation: Operation) -> str:
    """Return the class, type, and kind or function that an operation is issued as."""
    kind, type_name, function = operation.kind, operation.type_name, operation.function
    is_long = kind == "special" and function.startswith(_LONG_INTEGER_FUNCTIONS)
    if not type_name.startswith("f") and not is_long:
        group, detail = "divide" if kind in ("div", "mod") else "minor", kind
    elif kind in ("special", "conditional") and function in _MINOR_FUNCTIONS:
        group, detail = "minor", function
    elif kind in _GROUPS:
        group, detail = _GROUPS[kind], kind
    else:
        group, detail = kind, function
    return ".".join(filter(None, (group, type_name, detail)))


def _access(key: keys.AccessKey, run: SiteRun) -> Issued:
    step = _between_items(key, run)
    alone = step if key.in_loop is None else key.in_loop
    if not run.is_vector:
        return _one_by_one(key, "scalar", alone, _ONE)
    if key.direction == "store" and step == "same":
        step = "next"
    accesses = Fraction(key.bits, _LANE_BITS)
    full, left = run.shares
    if step == "near" or step in _ELSEWHERE:
        return _one_by_one(key, "scalar", step, _ONE)
    together: Issued = ()
    if full and step == "next" and key.space == "global" and key.in_loop in _ELSEWHERE:
        together = _one_by_one(key, "vector", key.in_loop, full * accesses)
    elif full:
        together = ((f"{ISSUE_ROOT}.vector.{key.at}.{step}", full * accesses),)
    return together + (_one_by_one(key, "scalar", alone, left) if left else ())


def _one_by_one(
    key: keys.AccessKey, unit: Unit, step: keys.StepName | None, times: Fraction
) -> Issued:
    """Return accesses by items, or by vectors of neighbors that go on to other lines."""
    nearest, level, grade, step = "walk", "", 0, step or ""
    if step in keys.TO_OTHER_LINES:
        nearest, (level, grade) = "l1_reuse", keys.TO_OTHER_LINES[step]
    elif step in keys.BY_DATA:
        nearest, level = "data", keys.BY_DATA[step]
    served = ["strided" if unit == "vector" else nearest, *_PASSED.get(level, ())]
    beginning = f"{ISSUE_ROOT}.{unit}.{key.at}"
    issued = [(f"{beginning}.{serving}", times) for serving in served]
    if grade:
        issued.append((f"{beginning}.set_conflict", times * _CONFLICTS[grade]))
    return tuple(issued)


def _between_items(key: keys.AccessKey, run: SiteRun) -> keys.StepName:
    """Return the step along local axis 0 as compilers see it; ``near`` where they take it apart."""
    step, policy = key.between_items.along_row, run.policy
    row, rows = run.shape
    apart = frozenset[str]()
    if key.space == "global" and policy.odd_rows == "apart" and rows == 1 and row.bit_count() != 1:
        apart = _NEIGHBORS
    elif key.at == "lmem.load" and policy.shifted == "apart" and rows > 1:
        apart = _SHIFTED
    return "near" if step in apart and key.site.placement == "flat" else step


def _guard_access(key: keys.AccessKey, run: SiteRun) -> Issued:
    if run.policy.guards == "free" or not run.is_vector:
        return ()  # one branch around all of an item's work
    step = _between_items(key, run)
    if step == "near" or step in _ELSEWHERE:
        return ((f"{ISSUE_ROOT}.scalar.guarded.{key.at}", _ONE),)
    full, _ = run.shares
    guard = f"{ISSUE_ROOT}.vector.guarded.{key.at}"
    return ((guard, full * Fraction(key.bits, _LANE_BITS)),) if full else ()


def _event(key: keys.EventKey, run: SiteRun) -> Issued:
    context = key.site.context
    kind, *details = key.event.split(".")
    if kind == "pmem":
        direction, elements = details
        if 0 < run.policy.arrays < int(elements) and run.is_vector:
            way = "gather" if direction == "load" else "scatter"
            return ((f"{ISSUE_ROOT}.vector.pmem.{way}", _ONE),)
        is_kept = run.site.placement == "short"  # in registers
        return () if is_kept else run.issue_as(f"pmem.{direction}")
    if kind == "chain":
        link, type_name = details
        link = "arithmetic" if link in _LIKE_PRODUCTS else link
        return () if run.is_flat else run.issue_as(f"chain.{type_name}.{link}")
    if kind == "live_across_barrier":
        return run.issue_as(kind, instructions=Fraction(int(details[1]), _LANE_BITS))
    if kind == "passes":
        beginning = f"{ISSUE_ROOT}.{'vector' if run.is_vector else 'scalar'}"
        rows = Fraction(run.shape[1])
        return (f"{beginning}.passes.{context}", _ONE), (f"{beginning}.rows.{context}", rows)
    is_nothing = kind in ("iterations", "entries") and run.site.placement == "short"
    is_nothing |= kind == "carried" and (context == "free" or not run.is_flat)
    return () if is_nothing else run.issue_as(kind)
