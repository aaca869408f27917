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
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, assert_never

from countperf.counting.keys import Operation
from countperf.execution.keys import (
    AccessKey,
    ByData,
    ChainKey,
    Context,
    Direction,
    EventKey,
    ExecutionKey,
    FootprintKey,
    GroupBytesKey,
    GroupSegmentsKey,
    GuardedAccessKey,
    KernelBytesKey,
    Level,
    LiveValuesKey,
    OperationKey,
    PrivateAccessKey,
    Site,
    Space,
    Step,
    ToOtherLines,
)
from countperf.execution.policy import ExecutionPolicy, Rows, Vectorized

_ONE = Fraction(1)


# --- keys of what a device issues


Unit = Literal["vector", "scalar"]
IssuedEvents = Literal["idle", "iterations", "entries", "carried", "live_across_barrier"]
Serving = Literal[
    "same",
    "next",
    "offset",
    "shifted",
    "masked",
    "walk",
    "l1_reuse",
    "l2_reuse",
    "beyond_l2",
    "set_conflict",
    "data",
    "strided",
]
"""Ways in which an issued access goes: by its step within lines (``walk``: item by item), by the
cache that serves it, or as a vector of neighbors on other lines in each iteration (``strided``)."""


@dataclass(frozen=True, slots=True)
class IssuedOperation:
    """Operations."""

    unit: Unit  # unit that executes them
    # ``arithmetic`` (additions, multiplications, fused ones), ``divide`` (of integers), ``div``,
    # ``pow``, ``special``, ``conditional``, or ``minor``
    kind: str
    # type, and kind or function of the operation; empty where they are not told apart
    type_name: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class IssuedChain:
    """Operations that wait for each other; of all kinds if `kind` is empty."""

    unit: Unit
    type_name: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class IssuedAccess:
    """Accesses to global or local memory; however they go if `serving` is None."""

    unit: Unit
    space: Space
    direction: Direction
    serving: Serving | None = None


@dataclass(frozen=True, slots=True)
class IssuedPrivateAccess:
    """Accesses to private arrays, or those of each item of a vector."""

    unit: Unit
    kind: Literal["load", "store", "gather", "scatter"]


@dataclass(frozen=True, slots=True)
class IssuedGuard:
    """Accesses in vectors that need a mask, or a branch for each item."""

    unit: Unit
    space: Space
    direction: Direction


@dataclass(frozen=True, slots=True)
class IssuedEvent:
    """Idle slots, iterations, entries of loops, and values kept in memory."""

    unit: Unit
    event: IssuedEvents


@dataclass(frozen=True, slots=True)
class IssuedPasses:
    """Passes of groups through regions."""

    unit: Unit
    context: Context


@dataclass(frozen=True, slots=True)
class IssuedRows:
    """Passes of rows through regions, or through bodies of loops."""

    unit: Unit
    context: Context


IssueKey = (
    IssuedOperation
    | IssuedChain
    | IssuedAccess
    | IssuedPrivateAccess
    | IssuedGuard
    | IssuedEvent
    | IssuedPasses
    | IssuedRows
    | FootprintKey
)


# --- which sites run in vectors


Issued = tuple[tuple[IssueKey, Fraction], ...]
"""Keys that a unit of a count is issued as, each with its number."""

_EVERYWHERE = frozenset({("free", "flat"), ("free", "loop"), ("sync", "flat"), ("sync", "loop")})
_IN_VECTORS: Mapping[Vectorized, frozenset[tuple[str, str]]] = {
    "always": _EVERYWHERE,
    "never": frozenset(),
    "flat": frozenset({("free", "flat"), ("sync", "flat")}),
    "flat or sync": _EVERYWHERE - {("free", "loop")},
    "sync": frozenset({("sync", "flat"), ("sync", "loop")}),
}
"""Contexts and placements that run in vectors."""
_FEW = 16
"""Items below which LLVM vectorizes a row only if nothing is left over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRun:
    """Way in which a site runs under a policy."""

    policy: ExecutionPolicy
    site: Site
    # items that vectors take from, and rows of them
    row: int
    rows: int
    is_written_out: bool  # whether the loops around the site are unrolled
    is_flat: bool  # whether it is in no loop of the items, or in unrolled ones only
    is_vector: bool  # whether it runs in vectors

    @classmethod
    def of(cls, site: Site, policy: ExecutionPolicy) -> SiteRun:
        """Return how a site runs."""
        row, rows = (site.items, 1) if policy.along == "group" else site.shape
        is_flat = site.placement != "loop"
        is_vector = (
            policy.width > 1
            and _is_regular(policy.rows, site.context, row, rows, policy.width)
            and (site.context, "flat" if is_flat else "loop") in _IN_VECTORS[policy.vectorized]
        )
        return cls(
            policy=policy,
            site=site,
            row=row,
            rows=rows,
            is_written_out=site.placement == "short",
            is_flat=is_flat,
            is_vector=is_vector,
        )

    @property
    def unit(self) -> Unit:
        """Unit that runs it."""
        return "vector" if self.is_vector else "scalar"

    @property
    def shares(self) -> tuple[Fraction, Fraction]:
        """Vector instructions, and scalar ones, by item."""
        full, left = divmod(self.row, self.policy.width)
        if self.policy.remainder == "whole":
            full, left = full + bool(left), 0
        return Fraction(full, self.row), Fraction(left, self.row)

    def issued(
        self,
        vector: IssueKey,
        scalar: IssueKey,
        *,
        each: Fraction = _ONE,
        times: Fraction = _ONE,
    ) -> Issued:
        """Return what is issued of something that a vector does in so many instructions each."""
        if not self.is_vector:
            return ((scalar, times),)
        full, left = self.shares
        found: list[tuple[IssueKey, Fraction]] = []
        if full:
            found.append((vector, full * each * times))
        if left:
            found.append((scalar, left * times))
        return tuple(found)


def _is_regular(which: Rows, context: Context, row: int, rows: int, width: int) -> bool:
    """Return whether a row of items runs in vectors."""
    is_multiple = row % width == 0
    match which:
        case "any":
            return True
        case "multiples":
            return is_multiple
        case "multiples if alone":
            return is_multiple or rows > 1
        case "multiples if several":
            return is_multiple or rows == 1
        case "multiples behind barriers":
            return is_multiple or context == "free"
        case "multiples if few":
            return is_multiple or context == "sync" or row >= _FEW
        case "powers of two":
            return row.bit_count() == 1
        case _:
            assert_never(which)


# --- what is issued of counts

_ARITHMETIC = frozenset({"add", "mul", "fma"})
_LIKE_PRODUCTS = frozenset({"mul", "fma", "shift"})
"""Links of chains that take about as long; additions are shorter on some processors."""
_MINOR = frozenset({"neg", "select", "compare", "convert", "minmax"})
_MINOR_FUNCTIONS = frozenset(
    {"fabs", "abs", "floor", "ceil", "round", "trunc", "copysign", "clamp", "dot", "isnan"}
)
_LONG_INTEGER_FUNCTIONS = ("philox", "threefry", "pown")
"""Of integers, all others are a few instructions."""
_PASSED: Mapping[Level, tuple[Serving, ...]] = {
    "l1": (),
    "l2": ("l2_reuse",),
    "beyond_l2": ("l2_reuse", "beyond_l2"),
}
"""Accesses that a farther cache serves pass the nearer ones as well, and are charged for that."""
_CONFLICTS = {1: Fraction(1, 4), 2: Fraction(5, 8), 3: _ONE}
"""Share of the accesses to lines of one cache set that miss, by grade."""
_LANE_BITS = 32
_SHIFTED = frozenset[Step]({"offset", "shifted", "masked"})
_NEIGHBORS = frozenset[Step]({"next", "offset"})


def issue(key: ExecutionKey, policy: ExecutionPolicy) -> Issued:
    """Return what a unit of a count is issued as."""
    match key:
        case GroupBytesKey() | GroupSegmentsKey() | KernelBytesKey():
            return ((key, _ONE),)
        case OperationKey(site, operation):
            return _operation(operation, SiteRun.of(site, policy))
        case AccessKey():
            return _access(key, SiteRun.of(key.site, policy))
        case GuardedAccessKey():
            return _guarded_access(key, SiteRun.of(key.site, policy))
        case PrivateAccessKey():
            return _private_access(key, SiteRun.of(key.site, policy))
        case ChainKey():
            return _chain(key, SiteRun.of(key.site, policy))
        case LiveValuesKey():
            return _live_values(key, SiteRun.of(key.site, policy))
        case EventKey(site, _):
            return _event(key, SiteRun.of(site, policy))
        case _:
            assert_never(key)


# --- operations and chains


def _operation(operation: Operation, run: SiteRun) -> Issued:
    in_vectors = _issued_operation("vector", operation)
    alone = _issued_operation("scalar", _as_called_alone(operation))
    return run.issued(in_vectors, alone)


def _as_called_alone(operation: Operation) -> Operation:
    """Return the operation; a call that not all items make is like others if each has its own."""
    match operation:
        case Operation(kind="conditional", function="pow"):
            return Operation(kind="pow", type_name=operation.type_name)
        case Operation(kind="conditional", function=name) if name not in _MINOR_FUNCTIONS:
            return Operation(kind="special", type_name=operation.type_name, function=name)
        case _:
            return operation


def _issued_operation(unit: Unit, operation: Operation) -> IssuedOperation:
    kind, type_name, function = operation.kind, operation.type_name, operation.function
    is_long = kind == "special" and function.startswith(_LONG_INTEGER_FUNCTIONS)
    if not type_name.startswith("f") and not is_long:
        group = "divide" if kind in ("div", "mod") else "minor"
        return IssuedOperation(unit, group, type_name, kind)
    if kind in ("special", "conditional") and function in _MINOR_FUNCTIONS:
        return IssuedOperation(unit, "minor", type_name, function)
    if kind in _ARITHMETIC:
        return IssuedOperation(unit, "arithmetic", type_name, kind)
    if kind in _MINOR:
        return IssuedOperation(unit, "minor", type_name, kind)
    return IssuedOperation(unit, kind, type_name, function)


def _chain(key: ChainKey, run: SiteRun) -> Issued:
    if run.is_flat:
        return ()
    kind = "arithmetic" if key.kind in _LIKE_PRODUCTS else key.kind
    vector, scalar = (IssuedChain(unit, key.type_name, kind) for unit in ("vector", "scalar"))
    return run.issued(vector, scalar)


# --- accesses


def _access(key: AccessKey, run: SiteRun) -> Issued:
    step = _between_items(key, run)
    alone = step if key.in_loop is None else key.in_loop
    if not run.is_vector:
        return _one_by_one(key, "scalar", alone, _ONE)
    if key.direction == "store" and step == "same":
        step = "next"
    each = Fraction(key.bits, _LANE_BITS)
    full, left = run.shares
    match step:
        case "near" | ToOtherLines() | ByData():
            return _one_by_one(key, "scalar", step, _ONE)
        case "next" if key.space == "global" and _is_elsewhere(key.in_loop):
            together = _one_by_one(key, "vector", key.in_loop, full * each) if full else ()
        case "same" | "next" | "offset" | "shifted" | "masked":
            issued = IssuedAccess("vector", key.space, key.direction, step)
            together = ((issued, full * each),) if full else ()
        case _:
            assert_never(step)
    return together + (_one_by_one(key, "scalar", alone, left) if left else ())


def _is_elsewhere(step: Step | None) -> bool:
    return isinstance(step, ToOtherLines | ByData)


def _one_by_one(key: AccessKey, unit: Unit, step: Step | None, times: Fraction) -> Issued:
    """Return accesses by items, or by vectors of neighbors that go on to other lines."""
    passed: tuple[Serving, ...] = ()
    nearest: Serving = "walk"
    conflicts = Fraction(0)
    match step:
        case ToOtherLines(level, grade):
            nearest, passed = "l1_reuse", _PASSED[level]
            conflicts = _CONFLICTS[grade] if grade else conflicts
        case ByData(level):
            nearest, passed = "data", _PASSED[level]
        case _:
            pass
    nearest = "strided" if unit == "vector" else nearest
    served: list[tuple[Serving, Fraction]] = [(each, times) for each in (nearest, *passed)]
    if conflicts:
        served.append(("set_conflict", times * conflicts))
    return tuple(
        (IssuedAccess(unit, key.space, key.direction, serving), share) for serving, share in served
    )


def _between_items(key: AccessKey | GuardedAccessKey, run: SiteRun) -> Step:
    """Return the step along local axis 0 as compilers see it; ``near`` where they take it apart."""
    step, policy = key.between_items.along_row, run.policy
    is_outside_loops = key.site.placement not in ("short", "loop")
    is_local_load = key.space == "local" and key.direction == "load"
    if is_local_load and policy.shifted == "apart" and is_outside_loops and run.rows > 1:
        return "near" if step in _SHIFTED else step
    is_odd = run.rows == 1 and run.row.bit_count() != 1
    if key.space == "global" and policy.odd_rows == "apart" and is_outside_loops and is_odd:
        return "near" if step in _NEIGHBORS else step
    return step


def _guarded_access(key: GuardedAccessKey, run: SiteRun) -> Issued:
    if run.policy.guards == "free" or not run.is_vector:
        return ()  # one branch around all of an item's work
    step = _between_items(key, run)
    if step == "near" or _is_elsewhere(step):
        return ((IssuedGuard("scalar", key.space, key.direction), _ONE),)
    full, _ = run.shares
    guard = IssuedGuard("vector", key.space, key.direction)
    return ((guard, full * Fraction(key.bits, _LANE_BITS)),) if full else ()


def _private_access(key: PrivateAccessKey, run: SiteRun) -> Issued:
    is_large = 0 < run.policy.arrays < key.elements and run.is_vector
    if is_large:
        kind = "gather" if key.direction == "load" else "scatter"
        return ((IssuedPrivateAccess("vector", kind), _ONE),)
    if run.is_written_out:
        return ()  # in registers
    vector, scalar = (IssuedPrivateAccess(unit, key.direction) for unit in ("vector", "scalar"))
    return run.issued(vector, scalar)


# --- loops, and what is kept over barriers


def _event(key: EventKey, run: SiteRun) -> Issued:
    match key.event:
        case "passes":
            context = key.site.context
            rows = Fraction(run.rows)
            return ((IssuedPasses(run.unit, context), _ONE), (IssuedRows(run.unit, context), rows))
        case "iterations" | "entries" as event:
            if run.is_written_out:
                return ()
            return run.issued(IssuedEvent("vector", event), IssuedEvent("scalar", event))
        case "carried":
            if key.site.context == "free" or not run.is_flat:
                return ()
            return run.issued(IssuedEvent("vector", "carried"), IssuedEvent("scalar", "carried"))
        case "idle":
            return run.issued(IssuedEvent("vector", "idle"), IssuedEvent("scalar", "idle"))
        case _:
            assert_never(key.event)


def _live_values(key: LiveValuesKey, run: SiteRun) -> Issued:
    each = Fraction(key.bits, _LANE_BITS)
    vector, scalar = (IssuedEvent(unit, "live_across_barrier") for unit in ("vector", "scalar"))
    return run.issued(vector, scalar, each=each)
