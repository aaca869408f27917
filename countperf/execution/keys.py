"""Keys of counts by how a device executes them: sites, steps of addresses, footprints.

A key says what is counted and where it stands. `countperf.execution.count` counts them,
`countperf.execution.issue` turns them into what a device issues, and
`countperf.properties.site_names` prints and parses them as names of properties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from countperf.counting.keys import Operation

Context = Literal["free", "sync"]
Placement = Literal["flat", "short", "loop"]
Space = Literal["global", "local"]
Direction = Literal["load", "store"]
Density = Literal["dense", "sparse"]
Beside = Literal["same", "next", "offset", "shifted", "masked", "near"]
Level = Literal["l1", "l2", "beyond_l2"]
Grade = Literal[0, 1, 2, 3]
Event = Literal["idle", "carried", "iterations", "entries", "passes"]


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
class ToOtherLines:
    """Step of an address to another cache line."""

    level: Level  # nearest cache that still keeps the line when the walk comes back to it
    # how many more lines share sets of a cache than these keep: 0 for none; 1, 2, 3 for about a
    # quarter, five eighths, and nearly all of the accesses that miss
    set_conflict: Grade = 0


@dataclass(frozen=True, slots=True)
class ByData:
    """Step of an address that data decides, or that is uneven."""

    level: Level  # nearest cache that keeps the array


Step = Beside | ToOtherLines | ByData
"""Change of an address between neighboring work items, or between iterations of a loop."""


@dataclass(frozen=True, slots=True)
class WorkItemStep:
    """Step of an address from one work item to the next."""

    along_row: Step  # along local axis 0
    # along local axis 1, where rows are so narrow that compilers may unroll them
    across_rows: Step | None = None


@dataclass(frozen=True, slots=True)
class OperationKey:
    """Operations at a site."""

    site: Site
    operation: Operation


@dataclass(frozen=True, slots=True)
class AccessKey:
    """Accesses at a site."""

    site: Site  # where they stand
    space: Space  # address space
    direction: Direction  # direction
    bits: int  # size of an element
    between_items: WorkItemStep  # how the address changes from one item to the next
    # how it changes in the innermost loop of the item; None outside such loops
    in_loop: Step | None = None


@dataclass(frozen=True, slots=True)
class GuardedAccessKey:
    """Accesses under a condition that tells neighboring items apart; fields as in `AccessKey`."""

    site: Site
    space: Space
    direction: Direction
    bits: int
    between_items: WorkItemStep


@dataclass(frozen=True, slots=True)
class PrivateAccessKey:
    """Accesses to private arrays, by how many elements each item has (0: no constant says it)."""

    site: Site
    direction: Direction
    elements: int


@dataclass(frozen=True, slots=True)
class ChainKey:
    """Operations of carried chains, by kind and type such as ``fma`` and ``f32``."""

    site: Site
    kind: str
    type_name: str


@dataclass(frozen=True, slots=True)
class LiveValuesKey:
    """Private values that live across barriers, by how many an item has, and their bits."""

    site: Site
    values: int
    bits: int


@dataclass(frozen=True, slots=True)
class EventKey:
    """Idle slots, carried values, iterations, entries of loops, or passes through regions."""

    site: Site
    event: Event


SiteKey = (
    OperationKey
    | AccessKey
    | GuardedAccessKey
    | PrivateAccessKey
    | ChainKey
    | LiveValuesKey
    | EventKey
)


@dataclass(frozen=True, slots=True)
class GroupBytesKey:
    """Distinct bytes of global memory that each group accesses, over all groups."""

    direction: Direction
    density: Density


@dataclass(frozen=True, slots=True)
class GroupSegmentsKey:
    """Contiguous pieces of global memory that each group accesses, over all groups."""

    direction: Direction


@dataclass(frozen=True, slots=True)
class KernelBytesKey:
    """Distinct bytes of global memory that the kernel accesses, and those between them."""

    direction: Direction


FootprintKey = GroupBytesKey | GroupSegmentsKey | KernelBytesKey
ExecutionKey = SiteKey | FootprintKey
