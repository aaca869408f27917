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
from fractions import Fraction
from typing import assert_never

from countperf.counting.keys import Operation
from countperf.execution.issue_keys import (
    IssuedAccess,
    IssuedChain,
    IssuedEvent,
    IssuedGuard,
    IssuedOperation,
    IssuedPasses,
    IssuedPrivateAccess,
    IssuedRows,
    Serving,
    Unit,
)
from countperf.execution.keys import (
    AccessKey,
    ByData,
    ChainKey,
    EventKey,
    ExecutionKey,
    GroupBytesKey,
    GroupSegmentsKey,
    GuardedAccessKey,
    KernelBytesKey,
    Level,
    LiveValuesKey,
    OperationKey,
    PrivateAccessKey,
    Step,
    ToOtherLines,
)
from countperf.execution.policy import ExecutionPolicy
from countperf.execution.site_run import Issued, SiteRun

__all__ = ["Issued", "issue"]

_ONE = Fraction(1)
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
