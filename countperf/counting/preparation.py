"""A kernel made ready once for everything that is counted in it."""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from loopy.kernel.data import IlpBaseTag, UnrollTag

from countperf.counting.device_programs import (
    DeviceProgram,
    ProgramSchedule,
    RegionOutline,
    schedule_of,
)
from countperf.counting.domains import Domains
from countperf.counting.frontend.schedule import prepared
from countperf.counting.instructions import (
    Instruction,
    InstructionPart,
    computing,
    conditional,
    reason_of,
    require_rule,
    supplied_counts,
    supplied_parts,
)
from countperf.counting.keys import NOWHERE, Grid
from countperf.counting.needs import check_statistics, stating_all_needs
from countperf.counting.operations.compiled_view import compiled_counter, instruction_counter
from countperf.counting.operations.scalars import InstructionCounter
from countperf.counting.scopes import AxisKind, Scope, barrier_passes
from countperf.counting.size_parameters import SizeParameters
from countperf.counting.statistics import Statistics
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.kernel_sets import assumptions_of
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial

TallyView = Literal["source", "compiled"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Launch:
    """A device program with its geometry and its barrier regions."""

    program: DeviceProgram
    domains: Domains
    grid: Grid
    regions: tuple[RegionOutline, ...]

    @cached_property
    def number(self) -> PiecewiseQuasiPolynomial:
        """Number of its launches."""
        return self.domains.executions(self.program.launch_loops, (), NOWHERE)

    @cached_property
    def groups(self) -> PiecewiseQuasiPolynomial:
        """Work groups of all launches."""
        return self.grid.work_groups * self.number

    @cached_property
    def barriers(self) -> PiecewiseQuasiPolynomial:
        """Local barriers times the work items that wait at them."""
        total = ZERO_COUNT
        for barrier, times in Multiset(self.program.barriers).items():
            passes = barrier_passes(self.domains, barrier, self.program.launch_loops, self.grid)
            total += passes.scale(times)
        return total


class KernelTally:
    """The one tally: the work of a kernel's instructions by the rules of a view, each read once.

    Instructions are asked for in order of the schedule.
    """

    def __init__(self, prepared: PreparedKernel, rules: InstructionCounter) -> None:
        self._prepared = prepared
        self._rules = rules
        self._read: dict[str, Instruction] = {}

    def instructions(self, launch: Launch) -> list[Instruction]:
        """Return the instructions of a launch that compute something, in order."""
        return [
            self.instruction(launch, outline, instruction_id)
            for outline in launch.regions
            for instruction_id in computing(self._prepared.kernel, outline.loops)
        ]

    def instruction(
        self, launch: Launch, outline: RegionOutline, instruction_id: str
    ) -> Instruction:
        """Return an instruction in its place, tallied when it is asked for first."""
        if instruction_id not in self._read:
            read = self._tally_counts(launch, outline, instruction_id)
            self._read[instruction_id] = read
        return self._read[instruction_id]

    def _tally_counts(
        self, launch: Launch, outline: RegionOutline, instruction_id: str
    ) -> Instruction:
        domains, given = self._prepared.domains, self._prepared.statistics
        instruction = self._prepared.kernel.id_to_insn[instruction_id]
        given.used.clear()
        supplied = self._prepared.supplied.get(instruction_id)
        if supplied is None:
            require_rule(domains.kernel, instruction, can_supply=self._prepared.can_supply)
        predicates, probability = domains.predicate_conditions(instruction)
        if supplied is not None:
            within, reasons = instruction.within_inames, frozenset({reason_of(instruction_id)})
            parts = supplied_parts(supplied, predicates, probability)
        else:
            within, reasons = self._rules.loops_around(instruction), frozenset[str]()
            tested = self._rules.tally_predicates(instruction) if instruction.predicates else {}
            parts = tuple(
                InstructionPart(key, conditional(predicates, cases), number, share)
                for some, share in ((tested, 1), (self._rules.tally(instruction), probability))
                for (key, cases), number in some.items()
            )
        kinds = self._kinds(launch.program, outline, instruction_id)
        scope = Scope(
            domains=domains,
            within=within,
            cases=predicates,
            grid=launch.grid,
            loops=tuple(loop.iname for loop in outline.nest(instruction_id)),
            own_loops=frozenset(name for name, kind in kinds.items() if kind == "loop"),
        )
        return Instruction(
            loopy=instruction,
            parts=parts,
            probability=probability,
            kinds=kinds,
            scope=scope,
            reasons=reasons | given.reasons(within),
            is_supplied=supplied is not None,
        )

    def _kinds(
        self, program: DeviceProgram, outline: RegionOutline, instruction_id: str
    ) -> dict[str, AxisKind]:
        """Return the kind of each loop variable around an instruction that is no hardware axis."""
        copied = self._prepared.copied
        kinds: dict[str, AxisKind] = {}
        for name in (loop.iname for loop in outline.around):
            kinds[name] = "launch loop" if name in program.launch_loops else "barrier loop"
        for name in (loop.iname for loop in outline.loops[instruction_id]):
            kinds[name] = "unrolled" if name in copied else "loop"
        for name in copied:
            kinds.setdefault(name, "unrolled")
        return kinds


class PreparedKernel:
    """A scheduled kernel, its domains, and what the caller says of it; all views count in it.

    Whatever is counted in it at one place is known at the others.
    """

    def __init__(
        self,
        t_unit: Any,
        *,
        statistics: Mapping[str, Any] | None = None,
        instruction_counts: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.kernel, self.callables = prepared(t_unit)
        self.statistics = Statistics(self.kernel, statistics or {})
        counter = Counter(assumptions_of(self.kernel))
        self.domains = Domains(self.kernel, self.callables, counter, self.statistics)
        self.supplied = supplied_counts(self.kernel, instruction_counts or {})
        self.can_supply = instruction_counts is not None
        self._launches: list[Launch] = []
        self._tallies: dict[TallyView, KernelTally] = {}

    @classmethod
    def of(cls, kernel: Any, **options: Any) -> PreparedKernel:
        """Return a kernel that is prepared already as it is; prepare a translation unit."""
        return kernel if isinstance(kernel, PreparedKernel) else cls(kernel, **options)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Size parameters, sorted."""
        return tuple(sorted(self.domains.sizes))

    @cached_property
    def sizes(self) -> SizeParameters:
        """Size parameters, and what the kernel assumes of them."""
        return SizeParameters.of(self.kernel, self.domains.sizes, self.domains.defaults)

    @cached_property
    def copied(self) -> frozenset[str]:
        """Loop variables whose instructions are copied for each of their values."""
        return frozenset(
            name
            for name, iname in self.kernel.inames.items()
            if any(isinstance(tag, IlpBaseTag | UnrollTag) for tag in iname.tags)
        )

    def tally(self, view: TallyView) -> KernelTally:
        """Return the tally of what Loopy emits, or of what a compiler leaves of it."""
        if view not in self._tallies:
            rules = compiled_counter if view == "compiled" else instruction_counter
            self._tallies[view] = KernelTally(self, rules(self.domains))
        return self._tallies[view]

    @cached_property
    def schedule(self) -> ProgramSchedule:
        """Device programs in order of launch, and global barriers."""
        return schedule_of(self.kernel)

    def launches(self) -> Iterator[Launch]:
        """Yield the device programs in order, each looked at when it is asked for."""
        for program in self.schedule.programs:
            if program.number == len(self._launches):
                launch = Launch(
                    program=program,
                    domains=self.domains,
                    grid=self.domains.grid(program.instruction_ids),
                    regions=program.regions(),
                )
                self._launches.append(launch)
            yield self._launches[program.number]

    @contextmanager
    def counting(self) -> Generator[None]:
        """Have refusals name all statistics that lack, and refuse those that nothing uses."""
        with stating_all_needs(self.domains, supplied=self.supplied):
            yield
        check_statistics(self.domains, supplied=self.supplied)
