"""Barrier regions: the stretches of a device program between its barriers.

A region ends at a local barrier, at the end of the program, and where a loop that contains a
barrier begins or ends. So the loops around a region (barrier loops, and host loops around the
launch) are the same for all its instructions, and the loops inside it are each item's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopy.schedule import (
    Barrier,
    CallKernel,
    EnterLoop,
    LeaveLoop,
    ReturnFromKernel,
    RunInstruction,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionOutline:
    """A barrier region as it stands in the schedule."""

    program: int  # which device program it belongs to
    index: int  # its place among the regions of that program
    # host loops around the launch and barrier loops around the region, outermost first
    around: tuple[str, ...]
    instruction_ids: tuple[str, ...]  # its instructions in order
    # for each instruction, the sequential loops around it inside the region, outermost first
    loops: Mapping[str, tuple[str, ...]]
    # for each of `around`, its number among the loops of the schedule
    around_entries: tuple[int, ...]
    entries: Mapping[str, tuple[int, ...]]  # the same for each of `loops`
    ends_at_barrier: bool  # whether a barrier, and no border of a loop or of the program, ends it


def region_outlines(kernel: Any) -> tuple[RegionOutline, ...]:
    """Read the barrier regions of a linearized kernel, those without instructions left out."""
    items: Sequence[Any] = kernel.linearization
    with_barriers = _entries_of_barrier_loops(items)
    found: list[RegionOutline] = []
    around: list[tuple[str, int]] = []
    inside: list[tuple[str, int]] = []
    ids: dict[str, tuple[tuple[str, int], ...]] = {}
    entered: list[bool] = []  # for each open loop, whether it is around regions
    program, index = -1, 0

    def finish(*, at_barrier: bool) -> None:
        nonlocal ids, index
        if ids:
            found.append(
                RegionOutline(
                    program=program,
                    index=index,
                    around=tuple(name for name, _ in around),
                    instruction_ids=tuple(ids),
                    loops={i: tuple(name for name, _ in nest) for i, nest in ids.items()},
                    around_entries=tuple(entry for _, entry in around),
                    entries={i: tuple(entry for _, entry in nest) for i, nest in ids.items()},
                    ends_at_barrier=at_barrier,
                )
            )
            index += 1
        ids = {}

    in_program = False
    for position, item in enumerate(items):
        match item:
            case CallKernel():
                program, index, in_program = program + 1, 0, True
            case ReturnFromKernel():
                finish(at_barrier=False)
                in_program = False
            case EnterLoop():
                is_around = not in_program or position in with_barriers
                if is_around:
                    finish(at_barrier=False)
                (around if is_around else inside).append((item.iname, position))
                entered.append(is_around)
            case LeaveLoop():
                is_around = entered.pop()
                if is_around:
                    finish(at_barrier=False)
                (around if is_around else inside).pop()
            case RunInstruction():
                ids[item.insn_id] = tuple(inside)
            case Barrier(synchronization_kind="local"):
                finish(at_barrier=True)
            case _:
                pass
    return tuple(found)


def _entries_of_barrier_loops(items: Sequence[Any]) -> set[int]:
    """Return the positions at which loops that contain a local barrier are entered."""
    open_loops: list[int] = []
    found: set[int] = set()
    for position, item in enumerate(items):
        match item:
            case EnterLoop():
                open_loops.append(position)
            case LeaveLoop():
                open_loops.pop()
            case Barrier(synchronization_kind="local"):
                found.update(open_loops)
            case _:
                pass
    return found
