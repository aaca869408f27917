"""Device programs by barrier regions: loops, instructions, and chains that iterations carry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

import loopy as lp

from countperf.counting.chains import Operations, PlacedInstruction, Recurrence, recurrences
from countperf.counting.device_programs import LocalBarrier, RegionOutline
from countperf.counting.keys import Grid, type_name
from countperf.counting.operations.source_view import component_of, real_part
from countperf.counting.preparation import KernelTally, Launch, PreparedKernel, computing
from countperf.counting.scopes import Known, Scope, barrier_passes, trips_of
from countperf.errors import CountingError
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.text import ShortRepr


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopAnalysis(ShortRepr):
    """A sequential loop that each work item runs at its own pace."""

    iname: str  # the loop variable
    around: tuple[str, ...]  # sequential loops around it, outermost first
    iterations: Known  # by all work items together
    # how often all work items together come to it, whether or not it has iterations then
    entries: Known


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionAnalysis(ShortRepr):
    """An instruction in a region."""

    id: str
    executions: PiecewiseQuasiPolynomial  # by all work items, where its conditions hold
    scope: Scope = field(repr=False, compare=False)  # where it is executed


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainAnalysis(ShortRepr):
    """A carried chain of one work item."""

    # instructions in order, and the private variables through which they feed each other
    instructions: tuple[str, ...]
    variables: tuple[str, ...]
    loops: tuple[str, ...]  # loops that carry the chain, outermost first
    # operations on the chain in an iteration of the innermost of the loops, by kind and type
    # (``fma.f32`` where an addition and a multiplication can be contracted)
    operations: Operations
    # iterations of all the loops together: the chain is steps times its operations long
    steps: Known
    # independent chains of this kind that an item has: values of copies (``unr``, ``ilp``) and of
    # the loops inside the outermost carrying one that tell the variables apart; 1 if no constant
    # says it
    side_by_side: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionAnalysis(ShortRepr):
    """A barrier region."""

    index: int  # its place in the program
    barrier_loops: tuple[str, ...]  # loops with barriers around the region, outermost first
    loops: tuple[LoopAnalysis, ...]  # loops of each item in the region
    instructions: tuple[InstructionAnalysis, ...]  # in order
    chains: tuple[ChainAnalysis, ...]  # those whose last instruction is in the region
    passes: Known  # passes of all work groups through the region


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramAnalysis(ShortRepr):
    """A device program."""

    name: str  # name of the device function
    launches: PiecewiseQuasiPolynomial  # how often it is launched
    groups: tuple[PiecewiseQuasiPolynomial, ...]  # work groups along each group axis
    shape: tuple[int, ...]  # work items of a group along each local axis
    regions: tuple[RegionAnalysis, ...]  # in order

    @property
    def instructions(self) -> Iterator[InstructionAnalysis]:
        """The instructions of all regions, in order."""
        return chain.from_iterable(region.instructions for region in self.regions)


def analyze_program(
    prepared: PreparedKernel, tally: KernelTally, launch: Launch
) -> ProgramAnalysis:
    """Analyze the structure of a device program."""
    grid = launch.grid
    builder = _Builder(prepared, tally, launch)
    return ProgramAnalysis(
        name=launch.program.name,
        launches=launch.number,
        groups=tuple(grid.groups[axis] for axis in sorted(grid.groups)),
        shape=tuple(grid.items[axis] for axis in sorted(grid.items)),
        regions=tuple(builder.region(outline) for outline in launch.regions),
    )


class _Builder:
    """Analyzes the regions of one device program."""

    def __init__(self, prepared: PreparedKernel, tally: KernelTally, launch: Launch) -> None:
        self.tally = tally
        self.launch = launch
        self.kernel = prepared.kernel
        self.copied = prepared.copied
        self.domains = prepared.domains
        self.program = launch.program
        self.grid = launch.grid
        self.hardware = frozenset(self.domains.local_axes) | frozenset(self.domains.group_axes)
        self.chains: dict[str, list[Recurrence]] = {}
        self.nests: dict[str, tuple[str, ...]] = {}
        self._find_chains(launch.regions)

    def region(self, outline: RegionOutline) -> RegionAnalysis:
        """Analyze a region."""
        ids = computing(self.kernel, outline.instruction_ids)
        return RegionAnalysis(
            index=outline.index,
            barrier_loops=tuple(n for n in outline.around if n not in self.program.launch_loops),
            loops=self._loops(outline, ids),
            instructions=tuple(self._analyze_program(outline, i) for i in ids),
            chains=tuple(self._chain(c) for i in ids for c in self.chains.get(i, ())),
            passes=self._passes(outline),
        )

    def _passes(self, outline: RegionOutline) -> Known:
        barrier = LocalBarrier(
            within=frozenset(outline.around), neighbors=frozenset(outline.instruction_ids)
        )
        grid = Grid(groups=self.grid.groups, items={})
        with suppress(CountingError):
            return barrier_passes(self.domains, barrier, self.program.launch_loops, grid)
        return None

    def _loops(self, outline: RegionOutline, ids: list[str]) -> tuple[LoopAnalysis, ...]:
        inside: dict[tuple[str, ...], list[str]] = {}
        for i in ids:
            nest = outline.loops[i]
            for depth in range(len(nest)):
                inside.setdefault(nest[: depth + 1], []).append(i)
        result: list[LoopAnalysis] = []
        for (*outer, name), members in inside.items():
            if name in self.copied:
                continue
            around = (*outline.around, *outer)
            outside = self.hardware | {*around}
            result.append(
                LoopAnalysis(
                    iname=name,
                    around=around,
                    iterations=self._executed(members, outside | {name}),
                    entries=self._executed(members, outside - {name}),
                )
            )
        return tuple(result)

    def _executed(self, members: list[str], names: frozenset[str]) -> Known:
        """Count the points of some loops in which instructions are executed, if all agree."""
        counts = {
            self.domains.executions(
                self.kernel.id_to_insn[member].within_inames & names, (), self.grid
            )
            for member in members
        }
        return counts.pop() if len(counts) == 1 else None

    def _analyze_program(self, outline: RegionOutline, instruction_id: str) -> InstructionAnalysis:
        instruction = self.tally.instruction(self.launch, outline, instruction_id)
        scope = instruction.scope
        executions = self.domains.executions(scope.within, scope.cases, self.grid)
        return InstructionAnalysis(
            id=instruction_id,
            executions=executions.scale(instruction.probability),
            scope=scope,
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
        steps: list[PlacedInstruction] = []
        for outline in outlines:
            for i in outline.instruction_ids:
                self.nests[i] = (*outline.around, *outline.loops[i])
                instruction = self.kernel.id_to_insn[i]
                if isinstance(instruction, lp.MultiAssignmentBase):
                    entries = (*outline.around_entries, *outline.entries[i])
                    steps.append(
                        PlacedInstruction(
                            instruction=instruction, loops=self.nests[i], entries=entries
                        )
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
        apart |= chain.subscripts & self.copied & within
        count = trips_of(self.domains, apart, within - apart - carried) if apart else None
        number = None if count is None else count.as_polynomial()
        return ChainAnalysis(
            instructions=chain.instructions,
            variables=chain.variables,
            loops=chain.loops,
            operations=chain.operations,
            steps=trips_of(self.domains, carried, around),
            side_by_side=int(number.constant_term) if number and number.is_constant else 1,
        )
