"""Count a Loopy kernel: domains, operations, accesses and synchronization joined."""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import loopy as lp

from countperf.counting.access_classes import AccessCount, Footprints, Occurrence, access_counts
from countperf.counting.barrier_passes import barrier_passes
from countperf.counting.compiled_types import compiled_counter
from countperf.counting.domains import Domains
from countperf.counting.grid import Grid
from countperf.counting.keys import Case, FirstIteration, Granularity, MemoryAccess, Operation
from countperf.counting.needs import check_statistics, stating_all_needs
from countperf.counting.operations import InstructionCounter
from countperf.counting.schedule import DeviceProgram, prepared, schedule_of
from countperf.counting.selection import instruction_counter, matching_ids
from countperf.counting.statistics import Statistics
from countperf.counting.supplied import SuppliedCounts, reason_of, require_rule, touched_arrays
from countperf.errors import CountingError
from countperf.symbolic.affine import ALWAYS
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial, one_count
from countperf.symbolic.quasipolynomial import QuasiPolynomial

__all__ = ["AccessCount", "Counts", "Granularity", "count_loopy_kernel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Everything that is counted in one kernel, symbolic in its parameters."""

    kernel: str  # name of the kernel
    parameters: tuple[str, ...]  # size parameters, sorted
    assumptions: Any  # parameters for which the counts hold
    operations: dict[Operation, PiecewiseQuasiPolynomial]  # operations of all work items
    accesses: tuple[AccessCount, ...]  # memory accesses of all work items
    # barriers times the work items that wait at them
    local_barriers: PiecewiseQuasiPolynomial
    global_barriers: PiecewiseQuasiPolynomial
    # work groups of all launches, and launches
    work_groups: PiecewiseQuasiPolynomial
    launches: PiecewiseQuasiPolynomial
    counter: Counter  # what counted them; proves signs under the assumptions
    # by property name, what the caller's counts of instructions amount to
    supplied: dict[str, PiecewiseQuasiPolynomial] = field(default_factory=dict)
    # why counts of operations, of supplied properties, ``barrier.local``, ``barrier.global`` and
    # ``launches`` are not exact; those that are missing are
    reasons: dict[Operation | str, frozenset[str]] = field(default_factory=dict)
    # values of parameters that need not be given
    defaults: Mapping[str, QuasiPolynomial] = field(default_factory=dict[str, QuasiPolynomial])


@dataclass(slots=True)
class _Totals:
    operations: dict[Operation, list[PiecewiseQuasiPolynomial]] = field(default_factory=dict)
    accesses: dict[tuple[MemoryAccess, frozenset[str]], list[Occurrence]] = field(
        default_factory=dict
    )
    cases: dict[tuple[MemoryAccess, frozenset[str]], set[tuple[Case | FirstIteration, ...]]] = (
        field(default_factory=dict)
    )
    local_barriers: PiecewiseQuasiPolynomial = ZERO_COUNT
    global_barriers: PiecewiseQuasiPolynomial = ZERO_COUNT
    work_groups: PiecewiseQuasiPolynomial = ZERO_COUNT
    launches: PiecewiseQuasiPolynomial = ZERO_COUNT
    supplied: dict[str, PiecewiseQuasiPolynomial] = field(default_factory=dict)
    reasons: dict[Any, frozenset[str]] = field(default_factory=dict)
    opaque: dict[tuple[str, str], str] = field(default_factory=dict)

    def note(self, key: Any, reasons: frozenset[str]) -> None:
        """Add reasons why a count is not exact."""
        if reasons:
            self.reasons[key] = self.reasons.get(key, frozenset()) | reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """Counting rule of each instruction: by its expressions, by supplied counts, or left out."""

    tallies: InstructionCounter
    statistics: Statistics
    supplied: SuppliedCounts
    counted: frozenset[str]


def count_loopy_kernel(
    t_unit: Any,
    *,
    statistics: Mapping[str, Any] | None = None,
    powers: Literal["emitted", "written"] = "emitted",
    approximate: bool = False,
    view: Literal["source", "compiled"] = "source",
    instruction_counts: Mapping[str, Mapping[str, Any]] | None = None,
    within: str | None = None,
) -> Counts:
    """Count a Loopy kernel exactly."""
    kernel, callables = prepared(t_unit)
    counter = Counter(kernel.assumptions, approximate=approximate)
    given = Statistics(kernel, statistics or {})
    domains = Domains(kernel, callables, counter, given)
    rules = _Rules(
        tallies=compiled_counter(domains, statistics=given, powers=powers)
        if view == "compiled"
        else instruction_counter(domains, statistics=given, powers=powers),
        statistics=given,
        supplied=SuppliedCounts(kernel, instruction_counts or {}),
        counted=matching_ids(kernel, within),
    )
    supplied = frozenset(instruction_counts or ())
    with stating_all_needs(domains, counted=rules.counted, supplied=supplied):
        counts = _counted(domains, rules, is_whole=within is None)
    check_statistics(domains, supplied=supplied)
    return counts


def _counted(domains: Domains, rules: _Rules, *, is_whole: bool) -> Counts:
    """Count all device programs; of a part of the kernel, operations and accesses alone."""
    kernel, given = domains.kernel, rules.statistics
    totals = _Totals()
    schedule = schedule_of(kernel)
    for program in schedule.programs:
        grid = domains.grid(program.instruction_ids)
        _count_program(program, grid, domains, rules, totals)
        if not is_whole:
            continue
        given.used.clear()
        totals.note("launches", given.reasons(program.launch_loops))
        spread = program.launch_loops | domains.data_group_loops(program.instruction_ids)
        totals.note("groups", given.reasons(spread))
        for barrier, times in Multiset(program.barriers).items():
            passes = barrier_passes(domains, barrier, program.launch_loops, grid)
            totals.local_barriers += passes.scale(times)
            totals.note("barrier.local", given.reasons(barrier.within | spread))
        launches = domains.executions(program.launch_loops, (), Grid(groups={}, items={}))
        totals.launches += launches
        totals.work_groups += grid.work_groups * launches
        if schedule.global_barriers and program is schedule.programs[-1]:
            items = grid.work_groups * one_count().scale(grid.group_size)
            for within_loops in schedule.global_barriers:
                passes = domains.executions(within_loops, (), Grid(groups={}, items={}))
                totals.global_barriers += passes * items
                totals.note("barrier.global", given.reasons(within_loops | spread))
    footprints = Footprints(kernel, domains, totals.cases, totals.opaque, rules.tallies.to_index)
    accesses = access_counts(domains, given, totals.accesses, totals.reasons, footprints)
    return Counts(
        kernel=kernel.name,
        parameters=tuple(sorted(domains.sizes)),
        assumptions=kernel.assumptions,
        operations={
            key: PiecewiseQuasiPolynomial.sum(parts) for key, parts in totals.operations.items()
        },
        accesses=tuple(accesses),
        local_barriers=totals.local_barriers,
        global_barriers=totals.global_barriers,
        work_groups=totals.work_groups,
        launches=totals.launches,
        counter=domains.counter,
        supplied=totals.supplied,
        reasons={k: r for k, r in totals.reasons.items() if isinstance(k, Operation | str)},
        defaults=domains.defaults,
    )


def _count_program(
    program: DeviceProgram, grid: Grid, domains: Domains, rules: _Rules, totals: _Totals
) -> None:
    # what instructions have in common is multiplied with its executions once
    numbers: dict[tuple[frozenset[str], tuple[Case | FirstIteration, ...]], dict[Any, Any]] = {}
    for instruction_id in program.instruction_ids:
        instruction = domains.kernel.id_to_insn[instruction_id]
        if isinstance(instruction, lp.BarrierInstruction | lp.NoOpInstruction):
            continue
        is_counted = instruction_id in rules.counted
        rules.statistics.used.clear()
        if instruction_id in rules.supplied:
            totals.opaque.update(dict.fromkeys(touched_arrays(instruction), instruction_id))
            if is_counted:
                _count_supplied(instruction, grid, domains, rules, totals)
            continue
        try:
            within, parts = _tallied(instruction, domains, rules)
        except CountingError:
            if is_counted:
                raise
            totals.opaque.update(dict.fromkeys(touched_arrays(instruction), instruction_id))
            continue
        reasons = rules.statistics.reasons(within)
        for key, cases, number in parts:
            if is_counted:
                here = numbers.setdefault((within, cases), {})
                here[key] = here.get(key, 0) + number
                totals.note(key if isinstance(key, Operation) else (key, within), reasons)
            elif isinstance(key, MemoryAccess):
                totals.cases.setdefault((key, within), set()).add(cases)
    for (within, cases), occurring in numbers.items():
        executions = domains.executions(within, cases, grid)
        for key, number in occurring.items():
            if isinstance(key, Operation):
                totals.operations.setdefault(key, []).append(executions.scale(number))
            else:
                place = (key, within)
                found = Occurrence(executions.scale(number), cases, grid, number)
                totals.accesses.setdefault(place, []).append(found)
                totals.cases.setdefault(place, set()).add(cases)


def _is_always(case: Case | FirstIteration) -> bool:
    return isinstance(case, Case) and case.alternatives == ALWAYS and case.holds


def _tallied(
    instruction: Any, domains: Domains, rules: _Rules
) -> tuple[
    frozenset[str], list[tuple[Operation | MemoryAccess, tuple[Case | FirstIteration, ...], Any]]
]:
    """Return the loops of an instruction, and what one execution of it takes under which cases."""
    require_rule(domains.kernel, instruction)
    tallies = rules.tallies
    predicates, probability = domains.predicate_conditions(instruction)
    tested = tallies.tally_predicates(instruction) if instruction.predicates else {}
    parts: list[tuple[Operation | MemoryAccess, tuple[Case | FirstIteration, ...], Any]] = []
    for tally, share in ((tested, 1), (tallies.tally(instruction), probability)):
        for (key, cases), number in tally.items():
            all_cases = predicates + tuple(c for c in cases if not _is_always(c))
            parts.append((key, all_cases, number * share))
    return tallies.loops_around(instruction), parts


def _count_supplied(
    instruction: Any, grid: Grid, domains: Domains, rules: _Rules, totals: _Totals
) -> None:
    """Multiply the caller's counts of an instruction with its executions."""
    within = instruction.within_inames
    predicates, probability = domains.predicate_conditions(instruction)
    executions = domains.executions(within, predicates, grid).scale(probability)
    reasons = rules.statistics.reasons(within) | {reason_of(instruction.id)}
    for name, number in rules.supplied.of(instruction.id).items():
        totals.supplied[name] = totals.supplied.get(name, ZERO_COUNT) + executions.scale(number)
        totals.note(name, reasons)
