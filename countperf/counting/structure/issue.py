r"""Issued instructions of counted executions, under an execution policy.

Of a count :math:`v` at a site of rows of :math:`r` items, and a policy of width :math:`W` under
which the site runs in vectors, each row takes :math:`\lceil r/W \rceil` vector instructions (or
:math:`\lfloor r/W \rfloor` and :math:`r \bmod W` scalar ones), so that there are :math:`v/r` times
as many in all. Vectors are of 32 bits per lane: one of wider elements takes as many more accesses.

- Lanes whose addresses are not next to each other, or all the same, access memory one by one:
  ``walk`` within lines. Accesses to other lines are charged for each cache that they pass:
  ``l1_reuse`` (``data`` where data decides addresses), besides ``l2_reuse`` if a first-level cache
  does not keep the line, ``beyond_l2`` if a second-level one does not, and ``set_conflict`` as far
  as lines share sets of one.
- Vectors of neighbors in global memory are ``strided`` where the next iteration of an item's loop
  is in other lines, and pass caches likewise.
- Items, or vectors of them, enter loops of their own.
- Calls that not all items make are ``conditional`` in vectors, and calls like others one by one.
- Accesses in vectors are guarded besides where a condition tells items apart.

A kernel's counts of the structure view say where each operation stands and how addresses change. A
policy turns them into what the device issues: vector or scalar instructions, gathers, partial
vectors. Which policy a device follows, its runtime says (`countperf.models.shipped.POLICIES`).

`docs/evidence/accuracy.md` says what each option is worth. `along` is for sub-groups of GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, assert_never, cast, get_args

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
    # what runs in vectors: everything, what is not in an item's own loop, or that and whatever is
    # in programs with local barriers
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
    # whether accesses in vectors cost as much as elsewhere under a condition that tells items
    # apart, or more: such vectors need a mask, and what accesses memory one by one a branch for
    # each item
    guards: Literal["free", "masked"] = "free"
    # private arrays of at most so many elements stay in the registers of vectors; larger ones are
    # kept in memory, where each item accesses its own
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


ISSUE_ROOT = "issue"
"""First part of the names of what a device issues."""

_LAUNCHED = ("groups", "launches", "barrier.local")
"""Counts of which a policy changes nothing."""

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
        is_regular = policy.rows == "any" or self.shape[0] % policy.width == 0
        may_loop = is_behind_barriers and policy.vectorized == "flat or sync"
        is_meant = self.is_flat or policy.vectorized == "always" or may_loop
        return policy.width > 1 and is_meant and (is_regular or not is_behind_barriers)

    @property
    def shares(self) -> tuple[Fraction, Fraction]:
        """Vector instructions, and scalar ones, by item."""
        row, _ = self.shape
        full, left = divmod(row, self.policy.width)
        if self.policy.remainder == "whole":
            full, left = full + bool(left), 0
        return Fraction(full, row), Fraction(left, row)

    def issued(
        self, what: str, alone: str | None = None, *, instructions: Fraction = _ONE
    ) -> Issued:
        """Return what is issued of something that a vector does in so many instructions each."""
        scalar = f"{ISSUE_ROOT}.scalar.{alone or what}"
        if not self.is_vector:
            return ((scalar, _ONE),)
        full, left = self.shares
        both = ((f"{ISSUE_ROOT}.vector.{what}", full * instructions), (scalar, left))
        return tuple((name, share) for name, share in both if share)


_ARITHMETIC = frozenset({"add", "mul", "fma"})
_LIKE_PRODUCTS = frozenset({"mul", "fma", "shift"})
"""Links of chains that take about as long; additions are shorter on some processors."""

_MINOR = frozenset({"neg", "select", "compare", "convert", "minmax"})
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
            return run.issued(_operation(operation), _operation(_as_called_alone(operation)))
        case keys.AccessKey(is_guarded=True):
            return _guard_access(key, run)
        case keys.AccessKey():
            return _access(key, run)
        case keys.EventKey():
            return _event(key, run)
        case _:
            assert_never(key)


def _as_called_alone(operation: Operation) -> Operation:
    """Return the operation; a call that not all items make is like others if each has its own."""
    match operation:
        case Operation(kind="conditional", function="pow"):
            return Operation(kind="pow", type_name=operation.type_name)
        case Operation(kind="conditional", function=name) if name not in _MINOR_FUNCTIONS:
            return Operation(kind="special", type_name=operation.type_name, function=name)
        case _:
            return operation


def _operation(operation: Operation) -> str:
    """Return the class, type, and kind or function that an operation is issued as."""
    kind, type_name, function = operation.kind, operation.type_name, operation.function
    is_long = kind == "special" and function.startswith(_LONG_INTEGER_FUNCTIONS)
    if not type_name.startswith("f") and not is_long:
        group, detail = "divide" if kind in ("div", "mod") else "minor", kind
    elif kind in ("special", "conditional") and function in _MINOR_FUNCTIONS:
        group, detail = "minor", function
    elif kind in _ARITHMETIC:
        group, detail = "arithmetic", kind
    elif kind in _MINOR:
        group, detail = "minor", kind
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
    nearest, level, grade = "walk", None, 0
    step = step or ""
    if step in keys.TO_OTHER_LINES:
        nearest, (level, grade) = "l1_reuse", keys.TO_OTHER_LINES[step]
    elif step in keys.BY_DATA:
        nearest, level = "data", keys.BY_DATA[step]
    served = ["strided" if unit == "vector" else nearest, *_PASSED.get(level or "", ())]
    beginning = f"{ISSUE_ROOT}.{unit}.{key.at}"
    issued = [(f"{beginning}.{serving}", times) for serving in served]
    if grade:
        issued.append((f"{beginning}.set_conflict", times * _CONFLICTS[grade]))
    return tuple(issued)


def _between_items(key: keys.AccessKey, run: SiteRun) -> keys.StepName:
    """Return the step along local axis 0 as compilers see it; ``near`` where they take it apart."""
    step, policy = key.between_items.along_row, run.policy
    row, rows = run.shape
    is_outside_loops = key.site.placement not in ("short", "loop")
    is_local_load = key.space == "local" and key.direction == "load"
    if is_local_load and policy.shifted == "apart" and is_outside_loops and rows > 1:
        return "near" if step in _SHIFTED else step
    is_odd = rows == 1 and row.bit_count() != 1
    if key.space == "global" and policy.odd_rows == "apart" and is_outside_loops and is_odd:
        return "near" if step in _NEIGHBORS else step
    return step


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
        return (
            () if run.site.placement == "short" else run.issued(f"pmem.{direction}")
        )  # in registers
    if kind == "chain":
        link, type_name = details
        link = "arithmetic" if link in _LIKE_PRODUCTS else link
        return () if run.is_flat else run.issued(f"chain.{type_name}.{link}")
    if kind == "live_across_barrier":
        return run.issued(kind, instructions=Fraction(int(details[1]), _LANE_BITS))
    if kind == "passes":
        beginning = f"{ISSUE_ROOT}.{'vector' if run.is_vector else 'scalar'}"
        return (
            (f"{beginning}.passes.{context}", _ONE),
            (f"{beginning}.rows.{context}", Fraction(run.shape[1])),
        )
    if kind in ("iterations", "entries") and run.site.placement == "short":
        return ()
    if kind == "carried" and (context == "free" or not run.is_flat):
        return ()
    return run.issued(kind)
