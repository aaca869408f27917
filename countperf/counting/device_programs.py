"""The schedule of a kernel: device programs, their loops and barriers, and barrier regions.

A region ends at a local barrier, at the end of the program, and where a loop that contains a
barrier begins or ends. So the loops around it are the same for all its instructions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from loopy import Assignment, BarrierInstruction, CallInstruction, NoOpInstruction, schedule
from loopy.kernel.data import UnrolledIlpTag, UnrollTag, VectorizeTag
from loopy.symbolic import WalkMapper

from countperf.counting.keys import Case
from countperf.errors import UnsupportedExpressionError

Subscripts = dict[str, set[tuple[Any, ...]]]  # of variables; scalars have the empty one


@dataclass(slots=True, eq=False)
class Loop:
    """A loop of the schedule; without a variable it is a whole device program."""

    iname: str  # its loop variable
    body: list[Item] = field(default_factory=list["Item"])  # what it repeats, in order
    has_barrier: bool = False  # whether the items of a group wait for each other in it
    # found by `positions_of`: whether its iterations are emitted one after the other; what is
    # assigned in it; how variables are subscripted in it; which instructions have one in them
    is_unrolled: bool = False
    written: set[str] = field(default_factory=set[str])
    subscripts: Subscripts = field(default_factory=dict)
    accessing: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])

    @property
    def pin(self) -> str:
        """A name that no variable has."""
        return f"loop {self.iname} {id(self)}"


@dataclass(frozen=True, slots=True)
class Wait:
    """A barrier that the items of a group wait at."""


Item: TypeAlias = Loop | Wait | str  # a loop, a local barrier, or the id of an instruction


def leaves_in(
    items: Sequence[Item], around: tuple[Loop, ...] = ()
) -> Iterator[tuple[Wait | str, tuple[Loop, ...]]]:
    """Yield the barriers and ids of instructions in a schedule, each with the loops around it."""
    for item in items:
        if isinstance(item, Loop):
            yield from leaves_in(item.body, (*around, item))
        else:
            yield item, around


def ids_in(items: Sequence[Item]) -> list[str]:
    """Return the ids of the instructions in items of a schedule."""
    return [leaf for leaf, _ in leaves_in(items) if isinstance(leaf, str)]


@dataclass(frozen=True, slots=True)
class LocalBarrier:
    """A place that the items of a group come to together."""

    within: frozenset[str]  # loops around it inside the device program, and those around the launch
    # instructions in the outermost of those inside; groups that execute none of them skip it
    neighbors: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RegionOutline:
    """A barrier region as it stands in the schedule."""

    index: int  # its place among the regions of its device program
    # host loops around the launch and barrier loops around the region, outermost first
    around: tuple[Loop, ...]
    # its instructions in order, each with the sequential loops around it inside the region
    loops: Mapping[str, tuple[Loop, ...]]

    def nest(self, instruction_id: str) -> tuple[Loop, ...]:
        """Return all sequential loops around an instruction, outermost first."""
        return (*self.around, *self.loops[instruction_id])


@dataclass(frozen=True, slots=True)
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
        nests = [around for leaf, around in leaves_in(self.body) if isinstance(leaf, Wait)]
        loops = [self.launch_loops.union(loop.iname for loop in around) for around in nests]
        inside = [frozenset(ids_in(around[0].body) if around else ()) for around in nests]
        return tuple(map(LocalBarrier, loops, inside))

    def regions(self) -> tuple[RegionOutline, ...]:
        """Return its barrier regions, those without instructions left out."""
        outlines: list[RegionOutline] = []
        around, loops = self.host_loops, dict[str, tuple[Loop, ...]]()
        for leaf, nest in (*leaves_in(self.body), (Wait(), ())):
            outer = (*self.host_loops, *(loop for loop in nest if loop.has_barrier))
            if isinstance(leaf, Wait) or outer != around:
                if loops:
                    outlines.append(RegionOutline(len(outlines), around, loops))
                around, loops = outer, {}
            if isinstance(leaf, str):
                loops[leaf] = tuple(loop for loop in nest if not loop.has_barrier)
        return tuple(outlines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSchedule:
    """The device programs of a kernel and the global barriers between them."""

    programs: tuple[DeviceProgram, ...]  # in order of launch
    global_barriers: tuple[frozenset[str], ...]  # for each global barrier, the host loops around it


def schedule_of(kernel: Any) -> ProgramSchedule:
    """Read the schedule of a linearized kernel."""
    programs: list[DeviceProgram] = []
    global_barriers: list[frozenset[str]] = []
    host: list[Loop] = []
    loops: list[Loop] = []  # those that are open, of the host or of the device program
    body: list[Item] = []
    for item in kernel.linearization:
        inside = loops[-1].body if loops else body
        match item:
            case schedule.EnterLoop():
                loop = Loop(item.iname)
                inside.append(loop)
                loops.append(loop)
            case schedule.LeaveLoop():
                loops.pop()
            case schedule.CallKernel():
                host, loops, body = loops, [], []
                program = DeviceProgram(len(programs), item.kernel_name, tuple(host), body)
                programs.append(program)
            case schedule.ReturnFromKernel():
                host, loops, body = [], host, []
            case schedule.RunInstruction():
                inside.append(item.insn_id)
            case schedule.Barrier(synchronization_kind="local"):
                inside.append(Wait())
                for loop in loops:
                    loop.has_barrier = True
            case schedule.Barrier(synchronization_kind="global"):
                global_barriers.append(frozenset(loop.iname for loop in loops))
            case _:
                said = f"no counting rule for the schedule item {item!r}"
                raise UnsupportedExpressionError(f"kernel '{kernel.name}': {said}")
    return ProgramSchedule(programs=tuple(programs), global_barriers=tuple(global_barriers))


_UNROLLED = (UnrollTag, UnrolledIlpTag, VectorizeTag)


class ProgramEvent(NamedTuple):
    """A step of a program: it enters a loop (or begins), leaves one, or has waited in one."""

    kind: Literal["enter", "leave", "wait"]
    region: Loop


@dataclass(frozen=True, slots=True)
class Position:
    """Position of an instruction among the loops."""

    # what happened between the previous instruction that does something and this one
    events: tuple[ProgramEvent, ...]
    # the device program and the loops around the instruction, from the outside in
    regions: tuple[Loop, ...]


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
    events: list[ProgramEvent] = []

    def walk(region: Loop, around: tuple[Loop, ...]) -> None:
        events.append(ProgramEvent("enter", region))
        around = (*around, region)
        for item in region.body:
            if isinstance(item, Loop):
                item.is_unrolled = bool(kernel.iname_tags_of_type(item.iname, _UNROLLED))
                walk(item, around)
                events.append(ProgramEvent("leave", item))
            elif isinstance(item, Wait):
                events.append(ProgramEvent("wait", region))
            else:
                instruction = kernel.id_to_insn[item]
                if not isinstance(instruction, BarrierInstruction | NoOpInstruction):
                    positions[item] = Position(tuple(events), around)
                    events.clear()
                    _record(kernel, instruction, around)

    for program in schedule_of(kernel).programs:
        events.clear()
        walk(Loop("", program.body, has_barrier=bool(program.barriers)), ())
    return positions


def list_assigned_names(kernel: Any, instruction: Any) -> frozenset[str]:
    """Return the variables that an instruction changes: those assigned, and their aliases."""
    names = set(instruction.assignee_var_names())
    temporaries = kernel.temporary_variables
    storage = {temporaries[n].base_storage for n in names if n in temporaries} - {None}
    if storage:
        names |= {n for n, variable in temporaries.items() if variable.base_storage in storage}
    return frozenset(names)


def _record(kernel: Any, instruction: Any, regions: tuple[Loop, ...]) -> None:
    mapper = _Subscripts()
    if isinstance(instruction, Assignment | CallInstruction):
        mapper((*instruction.assignees, instruction.expression, *instruction.predicates))
    else:  # accesses that are not to be seen: no two are the same
        for name in instruction.dependency_names():
            mapper.subscripts[name] = {(instruction.id,), ()}
    for region in regions:
        region.written |= list_assigned_names(kernel, instruction)
        for name, subscripts in mapper.subscripts.items():
            region.subscripts.setdefault(name, set()).update(subscripts)
            region.accessing.setdefault(name, []).append(instruction)


# --- Values that a device program has computed or loaded, and where they can be used again
# Two expressions have one number only if they always have the same value. What a value depends on
# is kept by version, which changes with every assignment that may reach it.

Guard = Hashable  # a case on the loop variables, or a test of data with the versions it reads


@dataclass(frozen=True, slots=True)
class Point:
    """Loops and conditions under which something is executed."""

    regions: tuple[Loop, ...]  # the device program and the loops around, from the outside in
    within: frozenset[str]  # loop variables around it, hardware axes too
    cases: tuple[Case, ...]  # conditions on loop variables under which it is executed
    tests: frozenset[Guard]  # conditions on data

    @property
    def guards(self) -> frozenset[Guard]:
        """All conditions."""
        return frozenset[Guard](self.cases) | self.tests

    def is_behind(self, provider: _Provider) -> bool:
        """Return whether a value was computed before, in the same loops, where this is reached."""
        region, within, guards = provider
        return region in self.regions and within <= self.within and guards <= self.guards


_Provider = tuple[Loop, frozenset[str], frozenset[Guard]]  # where a value is known, and under what


@dataclass(slots=True)
class Values:
    """Value numbers of one device program."""

    types: dict[int, Any] = field(default_factory=dict)  # of values
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _names: list[frozenset[str]] = field(default_factory=list)
    _providers: dict[int, list[_Provider]] = field(default_factory=dict)
    _versions: dict[str, int] = field(default_factory=dict)
    _scalars: dict[tuple[str, int], tuple[int, _Provider]] = field(default_factory=dict)

    def number(self, key: Hashable, names: frozenset[str] = frozenset()) -> int:
        """Return the number of a value, given what it is and the names that it depends on."""
        if key not in self._numbers:
            self._numbers[key] = len(self._names)
            self._names.append(names)
        return self._numbers[key]

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

    def provide(self, value: int, region: Loop, point: Point) -> None:
        """Remember that a value is there from now on, until a loop is left."""
        self._providers.setdefault(value, []).append((region, point.within, point.guards))

    def is_there(self, value: int, point: Point) -> bool:
        """Return whether a value was computed or loaded wherever the point is reached."""
        return any(map(point.is_behind, self._providers.get(value, ())))

    def name_scalar(self, name: str, value: int, region: Loop, point: Point) -> None:
        """Remember what a private scalar was assigned."""
        self._scalars[name, self.version(name)] = value, (region, point.within, point.guards)

    def scalar(self, name: str, point: Point) -> int:
        """Return the value of a variable that is no memory."""
        known = self._scalars.get((name, self.version(name)))
        if known is not None and point.is_behind(known[1]):
            return known[0]
        return self.number(("variable", name, self.version(name)), frozenset([name]))
