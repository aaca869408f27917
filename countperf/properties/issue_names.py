"""Names of what a device issues: ``issue.<unit>.<what>``."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, assert_never, cast, get_args

import numpy as np

from countperf.execution.issue import (
    IssuedAccess,
    IssuedChain,
    IssuedEvent,
    IssuedEvents,
    IssuedGuard,
    IssuedOperation,
    IssuedPasses,
    IssuedPrivateAccess,
    IssuedRows,
    IssueKey,
    Serving,
    Unit,
    issue,
)
from countperf.execution.keys import (
    Context,
    GroupBytesKey,
    GroupSegmentsKey,
    KernelBytesKey,
)
from countperf.execution.policy import ExecutionPolicy
from countperf.properties.site_names import (
    SPACE_OF,
    SPACE_TEXTS,
    footprint_name,
    parse_execution,
    parse_footprint,
)

ISSUE_ROOT = "issue"
"""First part of the names of what a device issues."""

_SERVINGS: Mapping[str, Serving] = {text: text for text in get_args(Serving)}
_EVENTS: Mapping[str, IssuedEvents] = {text: text for text in get_args(IssuedEvents)}
_OPERATIONS = ("minor", "divide", "div", "pow", "special", "conditional")
_REAL = re.compile(r"f(?:16|32|64)")
_WORD = re.compile(r"\w+")


def issue_name(key: IssueKey) -> str:
    """Return the name of what is issued."""
    match key:
        case GroupBytesKey() | GroupSegmentsKey() | KernelBytesKey():
            return footprint_name(key)
        case _:
            return f"{ISSUE_ROOT}.{key.unit}.{_what(key)}"


def _what(
    key: IssuedOperation
    | IssuedChain
    | IssuedAccess
    | IssuedPrivateAccess
    | IssuedGuard
    | IssuedEvent
    | IssuedPasses
    | IssuedRows,
) -> str:
    match key:
        case IssuedOperation(_, kind, type_name, detail):
            return ".".join(filter(None, (kind, type_name, detail)))
        case IssuedChain(_, type_name, kind):
            return ".".join(filter(None, ("chain", type_name, kind)))
        case IssuedAccess(_, space, direction, serving):
            last = "" if serving is None else f".{serving}"
            return f"{SPACE_TEXTS[space]}.{direction}{last}"
        case IssuedPrivateAccess(_, kind):
            return f"pmem.{kind}"
        case IssuedGuard(_, space, direction):
            return f"guarded.{SPACE_TEXTS[space]}.{direction}"
        case IssuedEvent(_, event):
            return event
        case IssuedPasses(_, context):
            return f"passes.{context}"
        case IssuedRows(_, context):
            return f"rows.{context}"
        case _:
            assert_never(key)


def parse_issue(name: str) -> IssueKey | None:
    """Return what is issued that a name stands for; None if it is none."""
    root, *rest = name.split(".")
    if root != ISSUE_ROOT:
        return parse_footprint(name)
    if not rest or rest[0] not in get_args(Unit):
        return None
    return _key(cast("Unit", rest[0]), rest[1:])


def _key(unit: Unit, what: list[str]) -> IssueKey | None:
    match what:
        case [event] if event in _EVENTS:
            return IssuedEvent(unit, _EVENTS[event])
        case ["chain", *detail] if 1 <= len(detail) <= 2 and _are_words(detail):
            return IssuedChain(unit, *detail)
        case ["gmem" | "lmem" as space, "load" | "store" as direction]:
            return IssuedAccess(unit, SPACE_OF[space], direction)
        case ["gmem" | "lmem" as space, "load" | "store" as direction, serving]:
            served = _SERVINGS.get(serving)
            return served and IssuedAccess(unit, SPACE_OF[space], direction, served)
        case ["pmem", "load" | "store" | "gather" | "scatter" as kind]:
            return IssuedPrivateAccess(unit, kind)
        case ["guarded", "gmem" | "lmem" as space, "load" | "store" as direction]:
            return IssuedGuard(unit, SPACE_OF[space], direction)
        case ["passes", context] if context in get_args(Context):
            return IssuedPasses(unit, cast("Context", context))
        case ["rows", context] if context in get_args(Context):
            return IssuedRows(unit, cast("Context", context))
        case ["arithmetic", type_name, *detail] if len(detail) <= 1:
            if not (_REAL.fullmatch(type_name) and _are_words(detail)):
                return None
            return IssuedOperation(unit, "arithmetic", type_name, *detail)
        case [kind, *detail] if kind in _OPERATIONS and len(detail) <= 2:
            return IssuedOperation(unit, kind, *detail) if _are_words(detail) else None
        case _:
            return None


def _are_words(parts: list[str]) -> bool:
    return all(map(_WORD.fullmatch, parts))


# --- Features that a device issues for counts by name: names are parsed and printed here


_LAUNCHED = ("groups", "launches", "barrier.local")
"""Counts of which a policy changes nothing."""

_Issued = tuple[tuple[str, Fraction], ...]


def apply_policy(policy: ExecutionPolicy, counts: Mapping[str, Any]) -> dict[str, Any]:
    """Turn counts of the structure view into what the device issues."""
    found: dict[str, Any] = {}
    known = _issued_by(cast("Hashable", policy))  # frozen
    for name, count in counts.items():
        if name not in known:
            known[name] = _issued(name, policy)
        for issued, share in known[name]:
            part = (
                count
                if share == 1
                else count * (float(share) if isinstance(count, np.ndarray) else share)
            )
            found[issued] = found[issued] + part if issued in found else part
    return found


@lru_cache(maxsize=2**8)
def _issued_by(policy: Hashable) -> dict[str, _Issued]:  # noqa: ARG001
    """Remember what units of properties are issued as under a policy, once asked for."""
    return {}


def _issued(name: str, policy: ExecutionPolicy) -> _Issued:
    """Return what a unit of a property is issued as; nothing of what is only emitted."""
    if name in _LAUNCHED or name.startswith(f"{ISSUE_ROOT}."):
        return ((name, Fraction(1)),)
    key = parse_execution(name)
    if key is None:
        return ()
    return tuple((issue_name(each), share) for each, share in issue(key, policy))
