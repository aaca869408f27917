"""The schedule of a kernel: device programs, their loops and barriers, and barrier regions.

A region ends at a local barrier, at the end of the program, and where a loop that contains a
barrier begins or ends. So the loops around a region (barrier loops, and host loops around the
launch) are the same for all its instructions, and the loops inside it are each item's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from loopy.schedule import (
    Barrier,
    CallKernel,
    EnterLoop,
    LeaveLoop,
    ReturnFromKernel,
    RunInstruction,
)

from countperf.errors import UnsupportedExpressionError

# --- the schedule as a tree


@dataclass(slots=True)
class Loop:
    """A loop of the schedule."""

    iname: str  # its loop variable
    entry: int  # its number among the items of the schedule
    body: list[Item] = field(default_factory=list["Item"])  # what it repeats, in order
    has_barrier: bool = False  # whether the items of a group wait for each other in it


@dataclass(frozen=True, slots=True)
class Wait:
    """A barrier that the items of a group wait at."""

    loops: tuple[Loop, ...]  # around it inside the device program


Item: TypeAlias = Loop | Wait | str
"""A loop, a local barrier, or the id of an instruction."""


def ids_in(items: list[Item]) -> Iterator[str]:
    """Yield the ids of the instructions in items of a schedule."""
    for item in items:
        if isinstance(item, str):
            yield item
        elif isinstance(item, Loop):
            yield from ids_in(item.body)


def waits_in(items: list[Item]) -> Iterator[Wait]:
    """Yield the local barriers in items of a schedule."""
    for item in items:
        if isinstance(item, Wait):
            yield item
        elif isinstance(item, Loop):
            yield from waits_in(item.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBarrier:
    """A place that the items of a group come to together."""

    within: frozenset[str]  # loops around it inside the device program, and those around the launch
    # instructions in the outermost of those loops inside the device program: groups that execute
    # none of them skip the loop
    neighbors: frozenset[str] = frozenset()


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
    # for each of `around`, its number among the items of the schedule
    around_entries: tuple[int, ...]
    entries: Mapping[str, tuple[int, ...]]  # the same for each of `loops`


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProgram:
    """Device program of one launch."""

    number: int  # in order of launch
    name: str  # name of the device function
    host_loops: tuple[Loop, ...]  # loops of the host around the launch, outermost first
    body: list[Item]  # what a work item executes, in order

    @property
    def launch_loops(self) -> frozenset[str]:
        """Loop variables of the host around the launch."""
        return frozenset(loop.iname for loop in self.host_loops)

    @property
    def instruction_ids(self) -> tuple[str, ...]:
        """Its instructions, in order."""
        return tuple(ids_in(self.body))

    @property
    def barriers(self) -> tuple[LocalBarrier, ...]:
        """Its local barriers, in order."""
        return tuple(
            LocalBarrier(
                within=self.launch_loops.union(loop.iname for loop in wait.loops),
                neighbors=frozenset(ids_in(wait.loops[0].body)) if wait.loops else frozenset(),
            )
            for wait in waits_in(self.body)
        )

    def regions(self) -> tuple[RegionOutline, ...]:
        """Return its barrier regions, those without instructions left out."""
        outlines: list[RegionOutline] = []
        nests: dict[str, tuple[Loop, ...]] = {}

        def finish(around: tuple[Loop, ...]) -> None:
            if nests:
                outlines.append(
                    RegionOutline(
                        program=self.number,
                        index=len(outlines),
                        around=tuple(loop.iname for loop in around),
                        instruction_ids=tuple(nests),
                        loops={i: tuple(loop.iname for loop in nest) for i, nest in nests.items()},
                        around_entries=tuple(loop.entry for loop in around),
                        entries={i: tuple(loop.entry for loop in n) for i, n in nests.items()},
                    )
                )
            nests.clear()

        def walk(items: list[Item], around: tuple[Loop, ...], inside: tuple[Loop, ...]) -> None:
            for item in items:
                if isinstance(item, str):
                    nests[item] = inside
                elif isinstance(item, Wait):
                    finish(around)
                elif item.has_barrier:
                    finish(around)
                    walk(item.body, (*around, item), inside)
                    finish((*around, item))
                else:
                    walk(item.body, around, (*inside, item))

        walk(self.body, self.host_loops, ())
        finish(self.host_loops)
        return tuple(outlines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The device programs of a kernel and the global barriers between them."""

    programs: tuple[DeviceProgram, ...]  # in order of launch
    global_barriers: tuple[frozenset[str], ...]  # for each global barrier, the host loops around it


def schedule_of(kernel: Any) -> Schedule:
    """Read the schedule of a linearized kernel."""
    programs: list[DeviceProgram] = []
    global_barriers: list[frozenset[str]] = []
    host: list[Loop] = []
    loops: list[Loop] = []  # those that are open, of the host or of the device program
    body: list[Item] = []
    for position, item in enumerate(kernel.linearization):
        inside = loops[-1].body if loops else body
        match item:
            case EnterLoop():
                loop = Loop(item.iname, position)
                inside.append(loop)
                loops.append(loop)
            case LeaveLoop():
                loops.pop()
            case CallKernel():
                host, loops, body = loops, [], []
                programs.append(
                    DeviceProgram(
                        number=len(programs),
                        name=item.kernel_name,
                        host_loops=tuple(host),
                        body=body,
                    )
                )
            case ReturnFromKernel():
                host, loops, body = [], host, []
            case RunInstruction():
                inside.append(item.insn_id)
            case Barrier(synchronization_kind="local"):
                inside.append(Wait(tuple(loops)))
                for loop in loops:
                    loop.has_barrier = True
            case Barrier(synchronization_kind="global"):
                global_barriers.append(frozenset(loop.iname for loop in loops))
            case _:
                raise UnsupportedExpressionError(
                    f"kernel '{kernel.name}': no counting rule for the schedule item {item!r}"
                )
    return Schedule(programs=tuple(programs), global_barriers=tuple(global_barriers))
