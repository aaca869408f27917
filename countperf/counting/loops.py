"""The loops that a device program runs around each of its instructions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from loopy import Assignment, BarrierInstruction, CallInstruction, NoOpInstruction
from loopy.kernel.data import UnrolledIlpTag, UnrollTag, VectorizeTag
from loopy.schedule import Barrier, CallKernel, EnterLoop, LeaveLoop, RunInstruction
from loopy.symbolic import WalkMapper

Subscripts = dict[str, set[tuple[Any, ...]]]
"""From a variable to the subscripts with which it occurs; scalars have the empty one."""


@dataclass(eq=False, slots=True)
class LoopRegion:
    """One loop of a device program, with what it does to variables."""

    iname: str  # its loop variable; empty for the whole device program
    # whether its iterations are emitted one after the other, without a loop
    is_unrolled: bool = False
    written: set[str] = field(default_factory=set)  # variables that instructions in it assign
    subscripts: Subscripts = field(default_factory=dict)  # how variables are subscripted in it
    # which instructions have a variable in them
    accessing: dict[str, list[Any]] = field(default_factory=dict)
    has_barrier: bool = False  # whether the items of a group wait for each other in it

    @property
    def pin(self) -> str:
        """A name that no variable has."""
        return f"loop {self.iname} {id(self)}"


@dataclass(frozen=True, slots=True)
class Entered:
    """The program enters a loop, or begins."""

    region: LoopRegion


@dataclass(frozen=True, slots=True)
class Left:
    """The program leaves a loop."""

    region: LoopRegion


@dataclass(frozen=True, slots=True)
class Waited:
    """The items of a group have waited for each other."""


Event = Entered | Left | Waited


@dataclass(frozen=True, slots=True)
class Position:
    """Position of an instruction among the loops."""

    # what happened between the previous instruction that does something and this one
    events: tuple[Event, ...]
    # the device program and the loops around the instruction, from the outside in
    regions: tuple[LoopRegion, ...]


class _Subscripts(WalkMapper[[]]):
    """Collects how variables are subscripted."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Subscripts = {}

    def map_subscript(self, expr: Any) -> None:
        """Record a subscript, and those inside it."""
        self.found.setdefault(expr.aggregate.name, set()).add(expr.index_tuple)
        self.rec(expr.index)

    def map_variable(self, expr: Any) -> None:
        """Record a scalar."""
        self.found.setdefault(expr.name, set()).add(())

    def map_linear_subscript(self, expr: Any) -> None:
        """Record a subscript of the flattened array."""
        self.found.setdefault(expr.aggregate.name, set()).add((expr,))
        self.rec(expr.index)


def positions_of(kernel: Any) -> dict[str, Position]:
    """Return where each instruction of a linearized kernel stands in its device program."""
    positions: dict[str, Position] = {}
    stack: list[LoopRegion] = []
    events: list[Event] = []
    inside = False
    for item in kernel.linearization:
        match item:
            case CallKernel():
                inside = True
                stack = [LoopRegion(iname="")]
                events = [Entered(stack[0])]
            case EnterLoop() if inside:
                stack.append(
                    LoopRegion(iname=item.iname, is_unrolled=_is_unrolled(kernel, item.iname))
                )
                events.append(Entered(stack[-1]))
            case LeaveLoop() if inside:
                events.append(Left(stack.pop()))
            case Barrier() if inside and item.synchronization_kind == "local":
                events.append(Waited())
                for region in stack:
                    region.has_barrier = True
            case RunInstruction():
                instruction = kernel.id_to_insn[item.insn_id]
                if isinstance(instruction, BarrierInstruction | NoOpInstruction):
                    continue
                positions[item.insn_id] = Position(tuple(events), tuple(stack))
                events = []
                _record(kernel, instruction, stack)
            case _:
                inside = inside and type(item).__name__ != "ReturnFromKernel"
    return positions


def written_by(kernel: Any, instruction: Any) -> frozenset[str]:
    """Return the variables that an instruction changes: those assigned, and their aliases."""
    names = set(instruction.assignee_var_names())
    temporaries = kernel.temporary_variables
    storage = {temporaries[n].base_storage for n in names if n in temporaries} - {None}
    if storage:
        names |= {n for n, variable in temporaries.items() if variable.base_storage in storage}
    return frozenset(names)


def _is_unrolled(kernel: Any, iname: str) -> bool:
    return bool(kernel.iname_tags_of_type(iname, (UnrollTag, UnrolledIlpTag, VectorizeTag)))


def _record(kernel: Any, instruction: Any, stack: list[LoopRegion]) -> None:
    mapper = _Subscripts()
    if isinstance(instruction, Assignment | CallInstruction):
        for part in (*instruction.assignees, instruction.expression, *instruction.predicates):
            mapper(part)
    else:  # accesses that are not to be seen: no two are the same
        for name in instruction.dependency_names():
            mapper.found[name] = {(instruction.id,), ()}
    written = written_by(kernel, instruction)
    for region in stack:
        region.written |= written
        for name, found in mapper.found.items():
            region.subscripts.setdefault(name, set()).update(found)
            region.accessing.setdefault(name, []).append(instruction)
