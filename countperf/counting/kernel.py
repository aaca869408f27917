"""Count a Loopy kernel: domains, operations, accesses and synchronization joined."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from countperf.counting.access_classes import AccessCount, Footprints, Occurrence
from countperf.counting.instructions import Conditions, find_touched_arrays
from countperf.counting.keys import NOWHERE, MemoryAccess, Operation
from countperf.counting.preparation import KernelTally, Launch, PreparedKernel, TallyView
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial, one_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Everything that is counted in one kernel, symbolic in its parameters."""

    kernel: str  # name of the kernel
    parameters: tuple[str, ...]  # size parameters, sorted
    # operations of all work items, and by property name what the caller says of instructions
    operations: dict[Operation | str, PiecewiseQuasiPolynomial]
    accesses: tuple[AccessCount, ...]  # memory accesses of all work items
    # barriers times the work items that wait at them
    local_barriers: PiecewiseQuasiPolynomial
    global_barriers: PiecewiseQuasiPolynomial
    # work groups of all launches, and launches
    work_groups: PiecewiseQuasiPolynomial
    launches: PiecewiseQuasiPolynomial
    counter: Counter  # what counted them; proves signs under the assumptions
    # why counts of operations, of supplied properties, ``barrier.local``, ``barrier.global`` and
    # ``launches`` are not exact; those that are missing are
    reasons: dict[Operation | str, frozenset[str]] = field(default_factory=dict)


@dataclass(slots=True)
class _Totals:
    operations: dict[Operation | str, list[PiecewiseQuasiPolynomial]] = field(default_factory=dict)
    accesses: dict[tuple[MemoryAccess, frozenset[str]], list[Occurrence]] = field(
        default_factory=dict
    )
    local_barriers: PiecewiseQuasiPolynomial = ZERO_COUNT
    global_barriers: PiecewiseQuasiPolynomial = ZERO_COUNT
    work_groups: PiecewiseQuasiPolynomial = ZERO_COUNT
    launches: PiecewiseQuasiPolynomial = ZERO_COUNT
    reasons: dict[Any, frozenset[str]] = field(default_factory=dict)
    opaque: dict[tuple[str, str], str] = field(default_factory=dict)

    def note(self, key: Any, reasons: frozenset[str]) -> None:
        """Add reasons why a count is not exact."""
        if reasons:
            self.reasons[key] = self.reasons.get(key, frozenset()) | reasons


def count_loopy_kernel(
    kernel: Any,
    *,
    view: TallyView = "source",
    **options: Any,
) -> Counts:
    """Count a translation unit, or a kernel that is prepared already, exactly.

    With `options` a unit is prepared; all are those of `countperf.count_kernel`.
    """
    prepared = PreparedKernel.of(kernel, **options)
    with prepared.counting():
        return _counted(prepared, prepared.tally(view))


def _counted(prepared: PreparedKernel, tally: KernelTally) -> Counts:
    kernel, domains = prepared.kernel, prepared.domains
    totals = _Totals()
    for launch in prepared.launches():
        _count_program(launch, tally, totals)
        _count_launches(launch, prepared, totals)
    footprints = Footprints(domains, totals.accesses, totals.opaque)
    return Counts(
        kernel=kernel.name,
        parameters=prepared.parameters,
        operations={
            key: PiecewiseQuasiPolynomial.sum(parts) for key, parts in totals.operations.items()
        },
        accesses=tuple(footprints.count_accesses(totals.reasons)),
        local_barriers=totals.local_barriers,
        global_barriers=totals.global_barriers,
        work_groups=totals.work_groups,
        launches=totals.launches,
        counter=domains.counter,
        reasons={k: r for k, r in totals.reasons.items() if isinstance(k, Operation | str)},
    )


def _count_launches(launch: Launch, prepared: PreparedKernel, totals: _Totals) -> None:
    """Count launches, work groups and barriers of a device program."""
    program, given, domains = launch.program, prepared.statistics, prepared.domains
    given.used.clear()
    reasons = given.reasons(program.launch_loops)
    totals.note("launches", reasons)
    totals.note("groups", reasons)
    totals.local_barriers += launch.barriers
    for barrier in program.barriers:
        totals.note("barrier.local", given.reasons(barrier.within | program.launch_loops))
    totals.launches += launch.number
    totals.work_groups += launch.groups
    if program is prepared.schedule.programs[-1]:
        items = launch.grid.work_groups * one_count().scale(launch.grid.group_size)
        for within_loops in prepared.schedule.global_barriers:
            passes = domains.executions(within_loops, (), NOWHERE)
            totals.global_barriers += passes * items
            totals.note("barrier.global", given.reasons(within_loops | program.launch_loops))


def _count_program(launch: Launch, tally: KernelTally, totals: _Totals) -> None:
    # what instructions have in common is multiplied with its executions once
    numbers: dict[tuple[frozenset[str], Conditions], dict[Any, Any]] = {}
    for instruction in tally.instructions(launch):
        within = instruction.scope.within
        if instruction.is_supplied:
            for array in find_touched_arrays(instruction.loopy):
                totals.opaque[array] = instruction.loopy.id
        for part in instruction.parts:
            key = part.key
            here = numbers.setdefault((within, part.conditions), {})
            here[key] = here.get(key, 0) + part.times
            totals.note(
                (key, within) if isinstance(key, MemoryAccess) else key, instruction.reasons
            )
    for (within, cases), occurring in numbers.items():
        executions = launch.domains.executions(within, cases, launch.grid)
        for key, number in occurring.items():
            if isinstance(key, MemoryAccess):
                where = (key, within)
                occurrence = Occurrence(executions.scale(number), cases, launch.grid, number)
                totals.accesses.setdefault(where, []).append(occurrence)
            else:
                totals.operations.setdefault(key, []).append(executions.scale(number))
