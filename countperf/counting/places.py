"""Places at which instructions are executed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from countperf.counting.domains import Domains
from countperf.counting.grid import NOWHERE, Grid
from countperf.counting.keys import Case
from countperf.symbolic import sets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Place:
    """Place at which an instruction, or a part of it, is executed."""

    domains: Domains  # of the kernel
    within: frozenset[str]  # loop variables around it
    cases: tuple[Case, ...]  # conditions on them
    grid: Grid  # geometry of the launch
    # sequential loops around it, outermost first; barrier loops and unrolled ones too
    loops: tuple[str, ...]
    own_loops: frozenset[str]  # those of them that each item runs at its own pace
    memo: dict[Any, Any] = field(default_factory=dict[Any, Any])  # shared by the places of a kernel

    @property
    def lanes(self) -> dict[str, int]:
        """Local axis of each loop variable that is a work-item index."""
        axes = self.domains.local_axes
        return {name: axes[name] for name in self.within if name in axes}


def always_full(place: Place) -> bool:
    """Return whether all items that the loop variables have execute each pass; False if in doubt.

    There are as many executions as passes times items exactly if no pass lacks an item.
    """
    items = 1
    for name in place.lanes:
        low, high = sets.constant_bounds(place.domains.domain(frozenset([name])))[name]
        if low is None or high is None:
            return False
        items *= high - low + 1
    executed = place.domains.executions(place.within, place.cases, NOWHERE)
    passes = place.domains.executions(place.within.difference(place.lanes), (), NOWHERE)
    return executed == passes.scale(items)
