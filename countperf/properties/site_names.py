"""Names of executions: ``site.<context>.<placement>.<row>x<rows>.<what>`` and footprints.

What is counted follows the site: ``flop.fma.f32``, ``gmem.load.32.next.l1_reuse`` (space,
direction, bits, step between items, step in the innermost loop), ``chain.fma.f32``,
``pmem.load.4``, ``guarded.gmem.load.32.next``, ``live_across_barrier.2.32``, ``idle``, ``carried``,
``iterations``, ``entries``, ``passes``. Footprints are ``bytes.group.load.dense``,
``segments.group.load`` and ``bytes.kernel.load``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, assert_never, cast, get_args

from countperf.counting.keys import Operation
from countperf.errors import CountingError
from countperf.execution.keys import (
    AccessKey,
    Beside,
    ByData,
    ChainKey,
    Context,
    Direction,
    Event,
    EventKey,
    ExecutionKey,
    FootprintKey,
    Grade,
    GroupBytesKey,
    GroupSegmentsKey,
    GuardedAccessKey,
    KernelBytesKey,
    Level,
    LiveValuesKey,
    OperationKey,
    Placement,
    PrivateAccessKey,
    Site,
    SiteKey,
    Space,
    Step,
    ToOtherLines,
    WorkItemStep,
)

SITE_ROOT = "site"
"""First part of the names of executions."""

FOOTPRINT_ROOTS = ("bytes", "segments")
"""First parts of the names of footprints."""

_LINES: Mapping[Level, str] = {
    "l1": "l1_reuse",
    "l2": "l2_reuse",
    "beyond_l2": "beyond_l2",
}
_DATA: Mapping[Level, str] = {
    "l1": "data",
    "l2": "data_l2_reuse",
    "beyond_l2": "data_beyond_l2",
}
_NEXT_AXIS = "-"
SPACE_TEXTS: Mapping[Space, str] = {"global": "gmem", "local": "lmem"}
"""Parts of names that say an address space."""
SPACE_OF: Mapping[str, Space] = {text: space for space, text in SPACE_TEXTS.items()}
_STEPS: Mapping[str, Step] = {
    **{step: step for step in get_args(Beside)},
    **{text: ByData(level) for level, text in _DATA.items()},
    **{
        f"{text}_conflict{grade}" if grade else text: ToOtherLines(level, grade)
        for level, text in _LINES.items()
        for grade in get_args(Grade)
    },
}
_STEP_TEXTS: Mapping[Step, str] = {step: text for text, step in _STEPS.items()}
_NUMBER = re.compile(r"0|[1-9]\d*")
_POSITIVE = re.compile(r"[1-9]\d*")
_REAL = re.compile(r"f(?:16|32|64)")
_INTEGER = re.compile(r"[iu](?:8|16|32|64)")
_WORD = re.compile(r"\w+")


# --- printing


def execution_name(key: ExecutionKey) -> str:
    """Return the name of a count of executions."""
    match key:
        case GroupBytesKey() | GroupSegmentsKey() | KernelBytesKey():
            return footprint_name(key)
        case _:
            site = key.site
            shape = f"{site.shape[0]}x{site.shape[1]}"
            return f"{SITE_ROOT}.{site.context}.{site.placement}.{shape}.{_what(key)}"


def footprint_name(key: FootprintKey) -> str:
    """Return the name of a footprint."""
    match key:
        case GroupBytesKey(direction, density):
            return f"bytes.group.{direction}.{density}"
        case GroupSegmentsKey(direction):
            return f"segments.group.{direction}"
        case KernelBytesKey(direction):
            return f"bytes.kernel.{direction}"
        case _:
            assert_never(key)


def _what(key: SiteKey) -> str:
    match key:
        case OperationKey(_, operation):
            family = "flop" if operation.type_name.startswith("f") else "iop"
            function = f".{operation.function}" if operation.function else ""
            return f"{family}.{operation.kind}.{operation.type_name}{function}"
        case AccessKey(_, space, direction, bits, between, in_loop):
            last = "" if in_loop is None else f".{_STEP_TEXTS[in_loop]}"
            return f"{SPACE_TEXTS[space]}.{direction}.{bits}.{_between(between)}{last}"
        case GuardedAccessKey(_, space, direction, bits, between):
            return f"guarded.{SPACE_TEXTS[space]}.{direction}.{bits}.{_between(between)}"
        case PrivateAccessKey(_, direction, elements):
            return f"pmem.{direction}.{elements}"
        case ChainKey(_, kind, type_name):
            return f"chain.{kind}.{type_name}"
        case LiveValuesKey(_, values, bits):
            return f"live_across_barrier.{values}.{bits}"
        case EventKey(_, event):
            return event
        case _:
            assert_never(key)


def _between(step: WorkItemStep) -> str:
    first = _STEP_TEXTS[step.along_row]
    if step.across_rows is None:
        return first
    return f"{first}{_NEXT_AXIS}{_STEP_TEXTS[step.across_rows]}"


# --- parsing


def parse_execution(name: str) -> ExecutionKey | None:
    """Return the count of executions that a name stands for; None if it is none."""
    root, *parts = name.split(".")
    if root != SITE_ROOT:
        return parse_footprint(name)
    if len(parts) < 4:
        return None
    site = _site(*parts[:3])
    return None if site is None else _key(site, parts[3:])


def parse_footprint(name: str) -> FootprintKey | None:
    """Return the footprint that a name stands for; None if it is none."""
    match name.split("."):
        case ["bytes", "group", "load" | "store" as direction, "dense" | "sparse" as density]:
            return GroupBytesKey(direction, density)
        case ["segments", "group", "load" | "store" as direction]:
            return GroupSegmentsKey(direction)
        case ["bytes", "kernel", "load" | "store" as direction]:
            return KernelBytesKey(direction)
        case _:
            return None


def _site(context: str, placement: str, shape: str) -> Site | None:
    row, _, rows = shape.partition("x")
    if placement not in get_args(Placement) or context not in get_args(Context):
        return None
    if not (_POSITIVE.fullmatch(row) and _POSITIVE.fullmatch(rows)):
        return None
    return Site(cast("Context", context), cast("Placement", placement), (int(row), int(rows)))


def _key(site: Site, what: list[str]) -> SiteKey | None:
    match what:
        case ["flop" | "iop" as family, kind, type_name, *function] if len(function) <= 1:
            return _operation(site, family, kind, type_name, *function)
        case ["gmem" | "lmem", "load" | "store", bits, between, *walk] if len(walk) <= 1:
            return _access(site, what, walk)
        case ["guarded", "gmem" | "lmem" as space, "load" | "store" as direction, bits, between]:
            step = _work_item_step(between)
            if step is None or not _are_bits(bits):
                return None
            return GuardedAccessKey(site, SPACE_OF[space], direction, int(bits), step)
        case ["pmem", "load" | "store" as direction, elements] if _NUMBER.fullmatch(elements):
            return PrivateAccessKey(site, direction, int(elements))
        case ["chain", kind, type_name] if _WORD.fullmatch(kind) and _WORD.fullmatch(type_name):
            return ChainKey(site, kind, type_name)
        case ["live_across_barrier", values, bits] if _are_numbers(values, bits):
            return LiveValuesKey(site, int(values), int(bits))
        case [event] if event in get_args(Event):
            return EventKey(site, cast("Event", event))
        case _:
            return None


def _operation(
    site: Site, family: str, kind: str, type_name: str, function: str = ""
) -> OperationKey | None:
    types = _REAL if family == "flop" else _INTEGER
    words = [kind, function] if function else [kind]
    if not (types.fullmatch(type_name) and all(map(_WORD.fullmatch, words))):
        return None
    return OperationKey(site, Operation(kind=kind, type_name=type_name, function=function))


def _access(site: Site, what: list[str], walk: list[str]) -> AccessKey | None:
    between = _work_item_step(what[3])
    in_loop = _STEPS.get(walk[0]) if walk else None
    if between is None or (walk and in_loop is None) or not _are_bits(what[2]):
        return None
    direction = cast("Direction", what[1])
    return AccessKey(site, SPACE_OF[what[0]], direction, int(what[2]), between, in_loop)


def _work_item_step(text: str) -> WorkItemStep | None:
    first, separator, second = text.partition(_NEXT_AXIS)
    along, across = _STEPS.get(first), _STEPS.get(second)
    if along is None or (separator and across is None):
        return None
    return WorkItemStep(along, across)


def _are_numbers(*texts: str) -> bool:
    return all(map(_NUMBER.fullmatch, texts))


def _are_bits(text: str) -> bool:
    return _POSITIVE.fullmatch(text) is not None and int(text) % 8 == 0


# --- The shape of work groups as counts: work items, and rows of them, of all groups of a kernel
# Names of properties of the structure view carry it (``site.free.flat.16x4...``: rows of 16 items
# along local axis 0, four of them), so that stored counts say it, too. ``items`` are the work items
# of all groups, and ``rows`` their rows: ``items/groups`` are the items of a group, ``items/rows``
# the length of a row, ``rows/groups`` the rows of a group. They are no work of their own: only
# models that name them see them.


GROUP_SHAPE = ("items", "rows")
"""Names of properties that say how large work groups are."""


def says_group_shape(names: Iterable[str]) -> bool:
    """Return whether counts of these names say how large the work groups are, all alike."""
    known = set(names)
    return "groups" not in known or known.issuperset(GROUP_SHAPE) or len(_shapes_of(known)) == 1


def group_shape(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return work items and rows of all groups; nothing where no group is launched."""
    if "groups" not in counts:
        return {}
    shapes = _shapes_of(counts)
    if not shapes:
        raise CountingError(
            "these counts do not say how many items work groups have: count the kernel in the"
            " structure view, or give items and rows themselves"
        )
    if len(shapes) > 1:
        listed = ", ".join(f"{row}x{rows}" for row, rows in sorted(shapes))
        raise CountingError(
            f"work groups of several shapes are launched ({listed}), and the counts do not say how"
            " many of each: the kernel has no items and rows for a model"
        )
    ((row, rows),) = shapes
    return {"items": counts["groups"] * (row * rows), "rows": counts["groups"] * rows}


def _shapes_of(names: Iterable[str]) -> set[tuple[int, int]]:
    """Return row length and number of rows of the groups."""
    keys = (parse_execution(name) for name in names if name.startswith(f"{SITE_ROOT}."))
    return {
        key.site.shape
        for key in keys
        if key is not None
        and not isinstance(key, GroupBytesKey | GroupSegmentsKey | KernelBytesKey)
    }
