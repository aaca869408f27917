"""The loops that a device program runs around each of its instructions."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from loopy import Assignment, BarrierInstruction, CallInstruction, NoOpInstruction
from loopy.kernel.data import UnrolledIlpTag, UnrollTag, VectorizeTag
from loopy.symbolic import WalkMapper

from countperf.counting.device_programs import Item, Loop, Wait, schedule_of
from countperf.counting.keys import Case

_UNROLLED = (UnrollTag, UnrolledIlpTag, VectorizeTag)

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
        self.subscripts: Subscripts = {}

    def map_subscript(self, expr: Any) -> None:
        self.subscripts.setdefault(expr.aggregate.name, set()).add(expr.index_tuple)
        self.rec(expr.index)

    def map_variable(self, expr: Any) -> None:
        self.subscripts.setdefault(expr.name, set()).add(())

    def map_linear_subscript(self, expr: Any) -> None:
        self.subscripts.setdefault(expr.aggregate.name, set()).add((expr,))
        self.rec(expr.index)


def positions_of(kernel: Any) -> dict[str, Position]:
    """Return where each instruction of a linearized kernel stands in its device program."""
    positions: dict[str, Position] = {}
    events: list[Event] = []

    def walk(items: list[Item], region: LoopRegion, around: tuple[LoopRegion, ...]) -> None:
        events.append(Entered(region))
        around = (*around, region)
        for item in items:
            if isinstance(item, Loop):
                unrolled = kernel.iname_tags_of_type(item.iname, _UNROLLED)
                inner = LoopRegion(item.iname, bool(unrolled), has_barrier=item.has_barrier)
                walk(item.body, inner, around)
                events.append(Left(inner))
            elif isinstance(item, Wait):
                events.append(Waited())
            else:
                instruction = kernel.id_to_insn[item]
                if not isinstance(instruction, BarrierInstruction | NoOpInstruction):
                    positions[item] = Position(tuple(events), around)
                    events.clear()
                    _record(kernel, instruction, around)

    for program in schedule_of(kernel).programs:
        events.clear()
        walk(program.body, LoopRegion("", has_barrier=bool(program.barriers)), ())
    return positions


def written_by(kernel: Any, instruction: Any) -> frozenset[str]:
    """Return the variables that an instruction changes: those assigned, and their aliases."""
    names = set(instruction.assignee_var_names())
    temporaries = kernel.temporary_variables
    storage = {temporaries[n].base_storage for n in names if n in temporaries} - {None}
    if storage:
        names |= {n for n, variable in temporaries.items() if variable.base_storage in storage}
    return frozenset(names)


def _record(kernel: Any, instruction: Any, regions: tuple[LoopRegion, ...]) -> None:
    mapper = _Subscripts()
    if isinstance(instruction, Assignment | CallInstruction):
        for part in (*instruction.assignees, instruction.expression, *instruction.predicates):
            mapper(part)
    else:  # accesses that are not to be seen: no two are the same
        for name in instruction.dependency_names():
            mapper.subscripts[name] = {(instruction.id,), ()}
    written = written_by(kernel, instruction)
    for region in regions:
        region.written |= written
        for name, subscripts in mapper.subscripts.items():
            region.subscripts.setdefault(name, set()).update(subscripts)
            region.accessing.setdefault(name, []).append(instruction)


# --- Values that a device program has computed or loaded, and where they can be used again
# Values are numbered: two expressions have one number only if they always have the same value. What
# a value depends on is kept by version, which changes with every assignment that may reach it.


Guard = Hashable
"""A condition: a case on the loop variables, or a test of data with the versions it reads."""


@dataclass(frozen=True, slots=True)
class Point:
    """Loops and conditions under which something is executed."""

    regions: tuple[LoopRegion, ...]  # the device program and the loops around, from the outside in
    within: frozenset[str]  # loop variables around it, hardware axes too
    cases: tuple[Case, ...]  # conditions on loop variables under which it is executed
    tests: frozenset[Guard]  # conditions on data

    @property
    def guards(self) -> frozenset[Guard]:
        """All conditions."""
        return frozenset[Guard](self.cases) | self.tests


@dataclass(frozen=True, slots=True)
class _Provider:
    region: LoopRegion
    within: frozenset[str]
    guards: frozenset[Guard]

    def reaches(self, point: Point) -> bool:
        """Return whether the value was computed in the same loops, before the given point."""
        return (
            self.region in point.regions
            and self.within <= point.within
            and self.guards <= point.guards
        )


@dataclass(slots=True)
class Values:
    """Value numbers of one device program."""

    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _names: list[frozenset[str]] = field(default_factory=list)
    _providers: dict[int, list[_Provider]] = field(default_factory=dict)
    _versions: dict[str, int] = field(default_factory=dict)
    _scalars: dict[tuple[str, int], tuple[int, _Provider]] = field(default_factory=dict)
    _types: dict[int, Any] = field(default_factory=dict)

    def number(self, key: Hashable, names: frozenset[str] = frozenset()) -> int:
        """Return the number of a value, given what it is and the names that it depends on."""
        number = self._numbers.get(key)
        if number is None:
            number = len(self._names)
            self._numbers[key] = number
            self._names.append(names)
        return number

    def names(self, *values: int) -> frozenset[str]:
        """Return the loop variables, sizes and other variables that values depend on."""
        return frozenset[str]().union(*(self._names[value] for value in values))

    def add_names(self, value: int, names: frozenset[str]) -> None:
        """Add names that a value depends on."""
        self._names[value] |= names

    def version(self, name: str) -> int:
        """Return the version of a variable."""
        return self._versions.get(name, 0)

    def assign(self, names: frozenset[str] | set[str]) -> None:
        """Forget the values of variables."""
        for name in names:
            self._versions[name] = self.version(name) + 1

    def provide(self, value: int, region: LoopRegion, point: Point) -> None:
        """Remember that a value is there from now on, until a loop is left."""
        provider = _Provider(region, point.within, point.guards)
        self._providers.setdefault(value, []).append(provider)

    def is_there(self, value: int, point: Point) -> bool:
        """Return whether a value was computed or loaded wherever the point is reached."""
        return any(p.reaches(point) for p in self._providers.get(value, ()))

    def name_scalar(self, name: str, value: int, region: LoopRegion, point: Point) -> None:
        """Remember what a private scalar was assigned."""
        provider = _Provider(region, point.within, point.guards)
        self._scalars[name, self.version(name)] = value, provider

    def scalar(self, name: str, point: Point) -> int:
        """Return the value of a variable that is no memory."""
        known = self._scalars.get((name, self.version(name)))
        if known is not None and known[1].reaches(point):
            return known[0]
        return self.number(("variable", name, self.version(name)), frozenset([name]))

    def set_type(self, value: int, dtype: Any) -> None:
        """Remember the type of a value."""
        self._types[value] = dtype

    def type_of(self, value: int) -> Any:
        """Return the type of a value that was given one."""
        return self._types[value]
