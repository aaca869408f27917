"""Keys of what a device issues: `countperf.execution.issue` makes them of executions.

`countperf.properties.issue_names` prints and parses them as names of properties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from countperf.execution.keys import Context, Direction, FootprintKey, Space

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
