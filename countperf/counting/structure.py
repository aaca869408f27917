"""Regions, loops, slots, chains and group shapes of a device program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import loopy as lp

from countperf.counting.access_analysis import AccessAnalyzer
from countperf.counting.chains import Operations, Recurrence, Step, recurrences
from countperf.counting.complex_arithmetic import real_part
from countperf.counting.device_programs import DeviceProgram, LocalBarrier, RegionOutline
from countperf.counting.instructions import computing
from countperf.counting.keys import Grid, type_name
from countperf.counting.lanes import lane_patterns
from countperf.counting.places import Place, Refusable, barrier_passes, slots_of, trips_of
from countperf.counting.preparation import Launch
from countperf.counting.strides import AxisKind
from countperf.counting.vectors import component_of
from countperf.display import ShortRepr
from countperf.errors import CountingError
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShape(ShortRepr):
    """The shape of a work group."""

    extents: tuple[int, ...]  # work items along each local axis

    @property
    def items(self) -> int:
        """Work items of a group."""
        result = 1
        for extent in self.extents:
            result *= extent
        return result

    def sub_groups(self, size: int) -> tuple[int, int]:
        """Return the full sub-groups of a group, and the items of the partial one.

        Items are numbered over all local axes, axis 0 fastest, as GPUs do.
        """
        return divmod(self.items, size)

    def vectors(self, width: int) -> tuple[int, int, int]:
        """Return the full vectors along local axis 0, the items left over, and the rows.

        A row is what lies along axis 0; compilers for CPUs vectorize it and repeat that for each
        row.
        """
        row = self.extents[0] if self.extents else 1
        return (*divmod(row, width), self.items // row)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopAnalysis(ShortRepr):
    """A sequential loop, or copies of instructions."""

    iname: str  # the loop variable
    # an item's own loop; a loop that contains barriers; a loop of the host around the launch; or
    # copies that the code generator writes out (``unr``, ``ilp``)
    kind: AxisKind
    around: tuple[str, ...]  # sequential loops around it, outermost first
    # iterations each time that it is entered, in the parameters and, where it depends on them, in
    # loop variables around it
    trips: Refusable
    # iterations by all work items together; for copies, executions of all copies
    iterations: Refusable
    # how often all work items together come to it, whether or not it has iterations then
    entries: Refusable


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionAnalysis(ShortRepr):
    """An instruction in a region."""

    id: str
    loops: tuple[str, ...]  # sequential loops around it inside the region, outermost first
    executions: PiecewiseQuasiPolynomial  # by all work items, where its conditions hold
    # passes of groups through it, times the items of a group: what is issued when items that have
    # nothing to do wait for the others
    slots: Refusable
    # which of the caller's statistics enter the executions; empty if they are exact
    is_estimate: str
    place: Place = field(repr=False, compare=False)  # where it is executed

    def slots_at(self, parameters: Mapping[str, int]) -> int:
        """Return the slots at parameters; where no formula is known, by enumeration."""
        if self.slots.count is not None:
            return int(self.slots.count.evaluate(parameters))
        counted, _ = self.place.domains.trip_statistics(self.place.within)
        if counted != self.place.within:
            raise CountingError(f"instruction '{self.id}': {self.slots.reason}", where=self.id)
        anywhere = replace(self.place, cases=())
        passes = sum(
            sum(pattern.shifts.values())
            for pattern in lane_patterns(anywhere, QuasiPolynomial(), parameters, 1)
        )
        return passes * self.place.grid.group_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainAnalysis(ShortRepr):
    """A carried chain of one work item."""

    # instructions in order, and the private variables through which they feed each other
    instructions: tuple[str, ...]
    variables: tuple[str, ...]
    loops: tuple[str, ...]  # loops that carry the chain, outermost first
    # operations on the chain in `span` iterations of the innermost of the loops, by kind and type
    # (``fma.f32`` where an addition and a multiplication can be contracted)
    operations: Operations | None
    span: int  # iterations that the chain takes to come back to where it began, mostly 1
    # iterations of all the loops together: the chain is steps / span times its operations long
    steps: Refusable
    # independent chains of this kind that an item has side by side: values of copies (``unr``,
    # ``ilp``) and of the loops inside the outermost carrying one that tell the variables apart
    accumulators: Refusable


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionAnalysis(ShortRepr):
    """A barrier region."""

    index: int  # its place in the program
    # host loops around the launch and barrier loops around the region, outermost first
    around: tuple[LoopAnalysis, ...]
    loops: tuple[LoopAnalysis, ...]  # loops of each item in the region, and copies
    instructions: tuple[InstructionAnalysis, ...]  # in order
    chains: tuple[ChainAnalysis, ...]  # those whose last instruction is in the region
    passes: Refusable  # passes of all work groups through the region
    ends_at_barrier: bool  # whether a barrier ends it, and not a border of a loop or of the program


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramAnalysis(ShortRepr):
    """A device program."""

    name: str  # name of the device function
    launches: PiecewiseQuasiPolynomial  # how often it is launched
    groups: tuple[PiecewiseQuasiPolynomial, ...]  # work groups along each group axis
    shape: GroupShape  # work items of a group
    regions: tuple[RegionAnalysis, ...]  # in order


def analyzed_program(analyzer: AccessAnalyzer, launch: Launch) -> ProgramAnalysis:
    """Analyze the structure of a device program."""
    grid, outlines = launch.grid, launch.regions
    builder = _Builder(analyzer, launch.program, outlines, grid)
    return ProgramAnalysis(
        name=launch.program.name,
        launches=launch.number,
        groups=tuple(grid.groups[axis] for axis in sorted(grid.groups)),
        shape=GroupShape(extents=tuple(grid.items[axis] for axis in sorted(grid.items))),
        regions=tuple(builder.region(outline) for outline in outlines),
    )


class _Builder:
    """Analyzes the regions of one device program."""

    def __init__(
        self,
        analyzer: AccessAnalyzer,
        program: DeviceProgram,
        outlines: tuple[RegionOutline, ...],
        grid: Grid,
    ) -> None:
        self.analyzer = analyzer
        self.kernel = analyzer.kernel
        self.domains = analyzer.domains
        self.program = program
        self.grid = grid
        self.hardware = frozenset(self.domains.local_axes) | frozenset(self.domains.group_axes)
        self.chains: dict[str, list[Recurrence]] = {}
        self.nests: dict[str, tuple[str, ...]] = {}
        self._find_chains(outlines)

    def region(self, outline: RegionOutline) -> RegionAnalysis:
        """Analyze a region."""
        ids = computing(self.kernel, outline.instruction_ids)
        return RegionAnalysis(
            index=outline.index,
            around=self._around(outline),
            loops=self._loops(outline, ids),
            instructions=tuple(self._analyzed(outline, i) for i in ids),
            chains=tuple(self._chain(c) for i in ids for c in self.chains.get(i, ())),
            passes=self._passes(outline),
            ends_at_barrier=outline.ends_at_barrier,
        )

    def _passes(self, outline: RegionOutline) -> Refusable:
        barrier = LocalBarrier(
            within=frozenset(outline.around), neighbors=frozenset(outline.instruction_ids)
        )
        return self._passed(barrier, Grid(groups=self.grid.groups, items={}))

    def _passed(self, barrier: LocalBarrier, grid: Grid) -> Refusable:
        """Count how often items come to a place in loops that have the same values for all."""
        try:
            count = barrier_passes(self.domains, barrier, self.program.launch_loops, grid)
        except CountingError as error:
            return Refusable(count=None, reason=str(error))
        return Refusable(count=count)

    # --- loops

    def _around(self, outline: RegionOutline) -> tuple[LoopAnalysis, ...]:
        groups = self._within(outline.instruction_ids) & frozenset(self.domains.group_axes)
        result: list[LoopAnalysis] = []
        for depth, name in enumerate(outline.around):
            is_launch = name in self.program.launch_loops
            around = outline.around[:depth]
            barrier = LocalBarrier(
                within=frozenset(outline.around[: depth + 1]),
                neighbors=frozenset(outline.instruction_ids),
            )
            depends_on = frozenset(around) | (frozenset[str]() if is_launch else groups)
            outside = LocalBarrier(within=frozenset(around), neighbors=barrier.neighbors)
            result.append(
                LoopAnalysis(
                    iname=name,
                    kind="launch loop" if is_launch else "barrier loop",
                    around=around,
                    trips=trips_of(self.domains, [name], depends_on),
                    iterations=self._passed(barrier, self.grid),
                    entries=self._passed(outside, self.grid),
                )
            )
        return tuple(result)

    def _loops(self, outline: RegionOutline, ids: list[str]) -> tuple[LoopAnalysis, ...]:
        inside: dict[tuple[str, ...], list[str]] = {}
        copies: dict[str, list[str]] = {}
        for i in ids:
            nest = outline.loops[i]
            for depth in range(len(nest)):
                inside.setdefault(nest[: depth + 1], []).append(i)
            loops = {*outline.around, *nest}
            for name in sorted(self.kernel.id_to_insn[i].within_inames - self.hardware - loops):
                copies.setdefault(name, []).append(i)
        result: list[LoopAnalysis] = []
        for nest, members in inside.items():
            kind: AxisKind = "unrolled" if nest[-1] in self.analyzer.copied else "loop"
            around = (*outline.around, *nest[:-1])
            names = frozenset(around) | (self._within(members) & self.hardware)
            result.append(self._loop(nest[-1], kind, around, names, members))
        for name, members in copies.items():
            result.append(
                self._loop(
                    name, "unrolled", outline.around, self._within(members) - {name}, members
                )
            )
        return tuple(result)

    def _within(self, instruction_ids: Any) -> frozenset[str]:
        return frozenset[str]().union(
            *(self.kernel.id_to_insn[i].within_inames for i in instruction_ids)
        )

    def _loop(
        self,
        name: str,
        kind: AxisKind,
        around: tuple[str, ...],
        depends_on: frozenset[str],
        members: Any,
    ) -> LoopAnalysis:
        outside = self.hardware | {*around}
        return LoopAnalysis(
            iname=name,
            kind=kind,
            around=around,
            trips=trips_of(self.domains, [name], depends_on - {name}),
            iterations=self._executed(members, outside | {name}),
            entries=self._executed(members, outside - {name}),
        )

    def _executed(self, members: Any, names: frozenset[str]) -> Refusable:
        """Count the points of some loops in which instructions are executed, if all agree."""
        counts = {
            self.domains.executions(self._within([member]) & names, (), self.grid)
            for member in members
        }
        if len(counts) == 1:
            return Refusable(count=counts.pop())
        return Refusable(count=None, reason="its instructions run in different work items")

    def _analyzed(self, outline: RegionOutline, instruction_id: str) -> InstructionAnalysis:
        instruction = self.analyzer.read(self.program, outline, instruction_id, self.grid)
        place, probability = instruction.place, instruction.tallied.probability
        counted, _ = self.domains.trip_statistics(place.within)
        estimates = [f"the mean trip count of '{n}'" for n in sorted(place.within - counted)]
        if probability != 1:
            estimates.append("the probability of its condition")
        executions = self.domains.executions(place.within, place.cases, self.grid)
        return InstructionAnalysis(
            id=instruction_id,
            loops=outline.loops[instruction_id],
            executions=executions.scale(probability),
            slots=slots_of(place),
            is_estimate=" and ".join(estimates),
            place=place,
        )

    # --- chains

    def _find_chains(self, outlines: tuple[RegionOutline, ...]) -> None:
        types: dict[str, str] = {}
        for name, variable in self.kernel.temporary_variables.items():
            if variable.address_space == lp.AddressSpace.PRIVATE:
                dtype = variable.dtype.numpy_dtype
                parts = component_of(dtype)
                number = dtype if parts is None else parts[0]
                if number.kind == "c":
                    number = real_part(number)
                types[name] = type_name(number) if number.kind in "fiub" else str(dtype)
        steps: list[Step] = []
        for outline in outlines:
            for i in outline.instruction_ids:
                self.nests[i] = (*outline.around, *outline.loops[i])
                instruction = self.kernel.id_to_insn[i]
                if isinstance(instruction, lp.MultiAssignmentBase):
                    entries = (*outline.around_entries, *outline.entries[i])
                    steps.append(
                        Step(instruction=instruction, loops=self.nests[i], entries=entries)
                    )
        for recurrence in recurrences(self.kernel, steps, types):
            self.chains.setdefault(recurrence.instructions[-1], []).append(recurrence)

    def _chain(self, chain: Recurrence) -> ChainAnalysis:
        last = chain.instructions[-1]
        within = self.kernel.id_to_insn[last].within_inames
        carried = frozenset(chain.loops)
        around = within - carried
        nest = self.nests[last]
        outside = nest[: nest.index(chain.loops[0])] if chain.loops[0] in nest else ()
        apart = chain.subscripts & (within - self.hardware - frozenset(outside))
        apart |= chain.subscripts & self.analyzer.copied & within
        accumulators = (
            trips_of(self.domains, apart, within - apart - carried)
            if apart
            else Refusable(count=PiecewiseQuasiPolynomial.from_value(1))
        )
        return ChainAnalysis(
            instructions=chain.instructions,
            variables=chain.variables,
            loops=chain.loops,
            operations=chain.operations,
            span=chain.span,
            steps=trips_of(self.domains, carried, around),
            accumulators=accumulators,
        )
