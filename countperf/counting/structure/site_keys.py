"""Keys of counts by how a device executes them, and their names as properties.

Executions are ``site.<context>.<placement>.<row>x<rows>.<what>``, such as ``flop.fma.f32`` and
``gmem.load.32.next.l1_reuse`` (space, direction, bits, step between items, step in the innermost
loop); footprints ``bytes.group.load.dense``, ``segments.group.load`` and ``bytes.kernel.load``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from countperf.counting.keys import Operation

Context = Literal["free", "sync"]
Placement = Literal["flat", "short", "loop"]
Space = Literal["global", "local"]
Direction = Literal["load", "store"]
CacheLevel = Literal["l1_reuse", "l2_reuse", "beyond_l2"]
Grade = Literal[0, 1, 2, 3]

# --- steps of addresses between neighboring work items, or between iterations of a loop

StepName = str  # one of `BESIDE`, `to_other_lines` or `by_data`

BESIDE = ("same", "next", "offset", "shifted", "masked", "near")  # steps within a line


def to_other_lines(level: CacheLevel, set_conflict: Grade = 0) -> StepName:
    """Return the step to another line, which some cache keeps until the walk comes back to it.

    A conflict of 1, 2, 3: about a quarter, five eighths, nearly all of the accesses miss.
    """
    return f"{level}_conflict{set_conflict}" if set_conflict else level


def by_data(level: CacheLevel) -> StepName:
    """Return the step that data decides, or that is uneven, in an array that some cache keeps."""
    return "data" if level == "l1_reuse" else f"data_{level}"


BY_DATA: Mapping[StepName, CacheLevel] = {by_data(level): level for level in get_args(CacheLevel)}
TO_OTHER_LINES: Mapping[StepName, tuple[CacheLevel, Grade]] = {
    to_other_lines(level, grade): (level, grade)
    for level in get_args(CacheLevel)
    for grade in get_args(Grade)
}
CERTAIN_STEPS = frozenset({*BESIDE, "l1_reuse", "data"})
"""Steps that follow from addresses and the size of a line alone; the others assume caches."""


class WorkItemStep(NamedTuple):
    """Step of an address from one work item to the next."""

    along_row: StepName  # along local axis 0
    # along local axis 1, where rows are so narrow that compilers may unroll them
    across_rows: StepName | None = None

    @property
    def name(self) -> str:
        """Its name in names of properties."""
        return "-".join(filter(None, self))


# --- keys


@dataclass(frozen=True, slots=True)
class Site:
    """Place of an operation: context, loop nest and shape of the group."""

    context: Context  # whether the device program has local barriers
    # whether it is in a loop that each work item runs at its own pace: in none, in one (or several)
    # of at most 32 iterations in all, known beforehand, or in another one
    placement: Placement
    shape: tuple[int, int]  # work items along local axis 0, and rows of them

    @property
    def items(self) -> int:
        """Work items of a group."""
        return self.shape[0] * self.shape[1]


@dataclass(frozen=True, slots=True)
class OperationKey:
    """Operations at a site."""

    site: Site
    operation: Operation


@dataclass(frozen=True, slots=True)
class AccessKey:
    """Accesses at a site, or those of them whose condition tells neighboring items apart."""

    site: Site
    space: Space
    direction: Direction
    bits: int  # size of an element
    between_items: WorkItemStep  # how the address changes from one item to the next
    # how it changes in the innermost loop of the item; None outside such loops, or if guarded
    in_loop: StepName | None = None
    is_guarded: bool = False

    @property
    def steps(self) -> list[StepName]:
        """All steps."""
        return [step for step in (*self.between_items, self.in_loop) if step is not None]

    @property
    def at(self) -> str:
        """Space and direction."""
        return f"{self.space[0]}mem.{self.direction}"


@dataclass(frozen=True, slots=True)
class EventKey:
    """Something else at a site, by name.

    Such as ``idle`` slots; ``pmem.load.4``: accesses to private arrays, by how many elements each
    item has (0: no constant says it); ``live_across_barrier.2.32``: private values that live across
    barriers, by how many an item has, and their bits.
    """

    site: Site
    event: str


SiteKey = OperationKey | AccessKey | EventKey


@dataclass(frozen=True, slots=True)
class FootprintKey:
    """Bytes or contiguous pieces of global memory that each group, or the kernel, accesses."""

    of: Literal["bytes.group", "segments.group", "bytes.kernel"]
    direction: Direction | Literal["update"]  # of ``bytes.kernel``: both loaded and stored
    density: Literal["", "dense", "sparse"] = ""  # of ``bytes.group``


ExecutionKey = SiteKey | FootprintKey


def name_of(key: ExecutionKey) -> str:
    """Return the name of a property."""
    match key:
        case FootprintKey():
            return ".".join(filter(None, (key.of, key.direction, key.density)))
        case OperationKey(_, operation):
            what = operation.name
        case AccessKey():
            guarded = "guarded." if key.is_guarded else ""
            last = "" if key.in_loop is None else f".{key.in_loop}"
            what = f"{guarded}{key.at}.{key.bits}.{key.between_items.name}{last}"
        case EventKey(_, what):
            pass
    row, rows = key.site.shape
    return f"{SITE_ROOT}.{key.site.context}.{key.site.placement}.{row}x{rows}.{what}"


# --- names of sites


SITE_ROOT = "site"  # first part of the names of executions at sites

FOOTPRINT_ROOTS = ("bytes", "segments")  # first parts of the names of footprints

_STEP = "|".join(sorted((*BESIDE, *BY_DATA, *TO_OTHER_LINES), key=len, reverse=True))
_NUMBER = r"0|[1-9]\d*"
_ACCESS = rf"([gl]mem)\.(load|store)\.(?P<bits>[1-9]\d*)\.({_STEP})(?:-({_STEP}))?"
_OPERATION = r"(?=flop\.\w+\.f(?:16|32|64)\b|iop\.\w+\.[iu](?:8|16|32|64)\b)"
SITE = r"site\.(free|sync)\.(flat|short|loop)\.([1-9]\d*)x([1-9]\d*)\."


def _access(site: Site, *parts: Any, is_guarded: bool = False) -> AccessKey:
    memory, direction, bits, along, across, *in_loop = parts
    space: Space = "global" if memory == "gmem" else "local"
    between = WorkItemStep(along, across)
    return AccessKey(site, space, direction, int(bits), between, *in_loop, is_guarded=is_guarded)


def _operation(site: Site, kind: str, type_name: str, function: str | None) -> OperationKey:
    return OperationKey(site, Operation(kind=kind, type_name=type_name, function=function or ""))


WHAT: tuple[tuple[str, str, Callable[..., SiteKey]], ...] = (
    (rf"{_OPERATION}\w+\.(\w+)\.(\w+)(?:\.(\w+))?", "operation", _operation),
    (rf"{_ACCESS}(?:\.({_STEP}))?", "access", _access),
    (rf"guarded\.{_ACCESS}", "access", partial(_access, is_guarded=True)),
    (rf"(pmem\.(?:load|store)\.(?:{_NUMBER}))", "access", EventKey),
    (r"(chain\.\w+\.\w+)", "operation", EventKey),
    (rf"(live_across_barrier\.(?:{_NUMBER})\.(?:{_NUMBER})|carried)", "value", EventKey),
    ("(idle)", "slot", EventKey),
    ("(iterations)", "iteration", EventKey),
    ("(entries)", "entry", EventKey),
    ("(passes)", "work group", EventKey),
)
"""For each kind of what is counted at sites: pattern, unit, and what makes its key."""

_PARSING = tuple((re.compile(SITE + pattern), make) for pattern, _, make in WHAT)


def site_key(name: str) -> SiteKey | None:
    """Return the count at a site that a name stands for; None if it is none."""
    for pattern, make in _PARSING:
        if (match := pattern.fullmatch(name)) is not None:
            parts: Any = match.groups()
            context, placement, row, rows, *what = parts
            return make(Site(context, placement, (int(row), int(rows))), *what)
    return None
