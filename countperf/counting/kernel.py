"""Count a Loopy kernel: domains, operations, accesses and synchronization joined."""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import loopy as lp

from countperf.counting.accesses import (
    Address,
    Layout,
    UtilizationClass,
    address_of,
    class_without_neighbors,
    layout_of,
    step_along,
    utilization_classes,
    widened_cells,
)
from countperf.counting.cells import FOOTPRINT_OPERATIONS, accessed_cells
from countperf.counting.compiled_view import CompiledCounter
from countperf.counting.domains import Domains, Grid
from countperf.counting.keys import Case, FirstIteration, Granularity, MemoryAccess, Operation
from countperf.counting.needs import check_statistics, stating_all_needs
from countperf.counting.operations import InstructionCounter
from countperf.counting.schedule import DeviceProgram, prepared, schedule_of
from countperf.counting.selection import instruction_counter, matching_ids
from countperf.counting.statistics import Statistics
from countperf.counting.supplied import (
    SuppliedCounts,
    reason_of,
    require_rule,
    touched_arrays,
)
from countperf.errors import (
    CountingError,
    DataDependentControlFlowError,
    UnsupportedExpressionError,
)
from countperf.symbolic import sets
from countperf.symbolic.affine import ALWAYS
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial, one_count
from countperf.symbolic.quasipolynomial import QuasiPolynomial

__all__ = ["AccessCount", "Counts", "Granularity", "count_loopy_kernel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCount:
    """How often an access is executed, and the class that it belongs to.

    Attributes
    ----------
    access : MemoryAccess
        What is accessed.
    stride : QuasiPolynomial or None
        Signed stride along local axis 0 in elements; None if the address is read from data.
    classes : tuple of UtilizationClass
        Utilization classes and where in the parameters they apply; empty for local memory.
    executions : PiecewiseQuasiPolynomial
        Executions by all work items.
    reasons : frozenset of str
        Why they or the classes are not exact; empty if they are.
    """

    access: MemoryAccess
    stride: QuasiPolynomial | None
    classes: tuple[UtilizationClass, ...]
    executions: PiecewiseQuasiPolynomial
    reasons: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Everything that is counted in one kernel, symbolic in its parameters.

    Attributes
    ----------
    kernel : str
        Name of the kernel.
    parameters : tuple of str
        Size parameters, sorted.
    assumptions : IntegerSet
        Parameters for which the counts hold.
    operations : dict from Operation to PiecewiseQuasiPolynomial
        Operations of all work items.
    accesses : tuple of AccessCount
        Memory accesses of all work items.
    local_barriers, global_barriers : PiecewiseQuasiPolynomial
        Barriers times the work items that wait at them.
    work_groups, launches : PiecewiseQuasiPolynomial
        Work groups of all launches, and launches.
    counter : Counter
        What counted them; proves signs under the assumptions.
    supplied : dict from str to PiecewiseQuasiPolynomial
        By property name, what the caller's counts of instructions amount to.
    reasons : dict from Operation or str to frozenset of str
        Why counts of operations, of supplied properties, ``barrier.local``, ``barrier.global`` and
        ``launches`` are not exact; those that are missing are.
    defaults : mapping from str to QuasiPolynomial
        Values of parameters that need not be given.
    """

    kernel: str
    parameters: tuple[str, ...]
    assumptions: Any
    operations: dict[Operation, PiecewiseQuasiPolynomial]
    accesses: tuple[AccessCount, ...]
    local_barriers: PiecewiseQuasiPolynomial
    global_barriers: PiecewiseQuasiPolynomial
    work_groups: PiecewiseQuasiPolynomial
    launches: PiecewiseQuasiPolynomial
    counter: Counter
    supplied: dict[str, PiecewiseQuasiPolynomial] = field(default_factory=dict)
    reasons: dict[Operation | str, frozenset[str]] = field(default_factory=dict)
    defaults: Mapping[str, QuasiPolynomial] = field(default_factory=dict[str, QuasiPolynomial])


@dataclass(slots=True)
class _Totals:
    operations: dict[Operation, list[PiecewiseQuasiPolynomial]] = field(default_factory=dict)
    accesses: dict[tuple[MemoryAccess, frozenset[str]], list[PiecewiseQuasiPolynomial]] = field(
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
    """How instructions are counted: by their expressions, as the caller says, or not at all."""

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
    """Count a Loopy kernel exactly.

    Parameters
    ----------
    t_unit : loopy.TranslationUnit
        With one entry point; preprocessed and scheduled here unless the caller did it already.
    statistics : mapping from str to number or str, optional
        What data decides: the mean trip count of a loop by iname, the probability of a condition
        by instruction id or by the condition's text, the class of an access whose address is read
        from data by array or by the access's text.
    powers : {"emitted", "written"}
        ``emitted`` counts what Loopy generates for powers (``x**2`` is a multiplication);
        ``written`` counts each power as one ``pow``, as Stevens & Klöckner (2016) did.
    approximate : bool
        Whether sets that cannot be counted exactly get an upper bound, and footprints that cannot
        be found the class of each access alone; what rests on one carries `approximations`.
    view : {"source", "compiled"}
        What is emitted, or what an optimizing compiler leaves of it: see `compiled_view`.
    instruction_counts : mapping from str to mapping from str to number, optional
        By instruction id, what one execution of it does, by property name; instead of a rule.
    within : str, optional
        Match expression of Loopy: only instructions that match count. Launches, work groups and
        barriers belong to the whole kernel and are left out then.

    Returns
    -------
    Counts
        Totals over one execution of the kernel.

    Raises
    ------
    CountingError
        Something cannot be counted exactly; subclasses say what.
    """
    kernel, callables = prepared(t_unit)
    counter = Counter(kernel.assumptions, approximate=approximate)
    given = Statistics(kernel, statistics or {})
    domains = Domains(kernel, callables, counter, given)
    rules = _Rules(
        tallies=CompiledCounter(domains, statistics=given, powers=powers)
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
            passes = domains.barrier_passes(barrier, program.launch_loops, grid)
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
    accesses = tuple(_access_counts(kernel, domains, given, totals, rules.tallies.to_index))
    return Counts(
        kernel=kernel.name,
        parameters=tuple(sorted(domains.sizes)),
        assumptions=kernel.assumptions,
        operations={
            key: PiecewiseQuasiPolynomial.sum(parts) for key, parts in totals.operations.items()
        },
        accesses=accesses,
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
                totals.accesses.setdefault(place, []).append(executions.scale(number))
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


# {{{ accesses


def _access_counts(
    kernel: Any,
    domains: Domains,
    statistics: Statistics,
    totals: _Totals,
    to_polynomial: Callable[[Any], QuasiPolynomial],
) -> list[AccessCount]:
    layouts: dict[tuple[str, int], Layout] = {}
    footprints = _Footprints(kernel, domains, totals, to_polynomial)
    result: list[AccessCount] = []
    for (access, within), parts in totals.accesses.items():
        executions = PiecewiseQuasiPolynomial.sum(parts)
        if not executions:
            continue
        reasons = frozenset[str]()
        if totals.reasons:
            reasons = totals.reasons.get((access, within), reasons)
        element = (access.array, access.component_of)
        if element not in layouts:
            array = kernel.arg_dict.get(access.array)
            if array is None:
                array = kernel.temporary_variables[access.array]
            layouts[element] = layout_of(kernel, array, to_polynomial, access.component_of)
        layout = layouts[element]
        address = address_of(access, layout, to_polynomial)
        stated: tuple[str, str] | None = None
        if address is None:
            stated = statistics.pattern_of(access.array, access.text)
            classes = (UtilizationClass(name=stated[0] if stated else "indirect"),)
            stride = None
        else:
            stride, steps = _stride(kernel, access, within, address, domains)
            classes: tuple[UtilizationClass, ...] = ()
            if access.address_space == "global":
                if footprints.data_decides(access, layout, stride):
                    stated = statistics.pattern_of(access.array, access.text)
                classes = (
                    (UtilizationClass(name=stated[0]),)
                    if stated
                    else footprints.classes(access, layout, address, stride, steps)
                )
        if stated:
            reasons = reasons | {f"the caller's access pattern for '{stated[1]}'"}
        result.append(
            AccessCount(
                access=access,
                stride=stride,
                classes=classes,
                executions=executions,
                reasons=reasons,
            )
        )
    return result


def _stride(
    kernel: Any, access: MemoryAccess, within: frozenset[str], address: Address, domains: Domains
) -> tuple[QuasiPolynomial, tuple[QuasiPolynomial, ...]]:
    """Return the stride along local axis 0, flattened and for each index."""
    zero = QuasiPolynomial()
    lanes = [name for name in within if domains.local_axes.get(name) == 0]
    if lanes:
        address = address.with_values(domains.determined(within))
    if not lanes:
        return zero, (zero,) * len(address.index)
    bounds: sets.Bounds = dict.fromkeys(within, (None, None))
    if any(lanes[0] in part.names() for part in address.index if not part.is_linear):
        counted, _ = domains.trip_statistics(within)
        bounds = {**bounds, **sets.constant_bounds(domains.domain(counted))}
    found = [step_along(part, lanes[0], bounds) for part in address.index]
    steps = tuple(step for step in found if step is not None)
    if len(steps) < len(found):
        raise UnsupportedExpressionError(
            f"kernel '{kernel.name}': the address of {access.array}"
            f"[{', '.join(map(str, access.index))}] does not change evenly along local axis 0 "
            f"('{lanes[0]}'); there is no stride class for it",
            kernel=kernel.name,
            where=access.array,
        )
    return address.flattened(steps), steps


class _Footprints:
    """Footprints of arrays and the utilization classes that they decide, each found once."""

    def __init__(
        self,
        kernel: Any,
        domains: Domains,
        totals: _Totals,
        to_polynomial: Callable[[Any], QuasiPolynomial],
    ) -> None:
        self.kernel = kernel
        self.domains = domains
        self.totals = totals
        self.to_polynomial = to_polynomial
        self._cells: dict[tuple[str, str], Any] = {}
        self._data_decides: dict[tuple[str, str], bool] = {}
        self._classes: dict[Any, tuple[UtilizationClass, ...]] = {}

    def data_decides(self, access: MemoryAccess, layout: Layout, stride: QuasiPolynomial) -> bool:
        """Whether an access needs a footprint that data decides."""
        if stride.is_constant and abs(stride.constant_term) in (0, 1):
            return False
        key = (access.array, access.direction)
        if key not in self._data_decides:
            addresses = [
                address_of(other, layout, self.to_polynomial)
                for other, _ in self.totals.cases
                if (other.array, other.direction) == key
            ]
            self._data_decides[key] = any(a is None or self._is_ragged(a) for a in addresses)
        return self._data_decides[key]

    def _is_ragged(self, address: Address) -> bool:
        """Whether an address depends on a loop whose values data decides."""
        loops = self.domains.data_loops
        return bool(loops) and any(part.names() & loops.keys() for part in address.index)

    def classes(
        self,
        access: MemoryAccess,
        layout: Layout,
        address: Address,
        stride: QuasiPolynomial,
        steps: tuple[QuasiPolynomial, ...],
    ) -> tuple[UtilizationClass, ...]:
        """Return the classes of an access to global memory."""
        number = abs(int(stride.constant_term)) if stride.is_constant else None
        if number == 0:
            return (UtilizationClass(name="uniform"),)
        if number == 1:
            return (UtilizationClass(name="stride1"),)
        key = (access.array, access.direction, steps)
        found = self._classes.get(key)
        if found is None:
            what = f"kernel '{self.kernel.name}': the footprint of array '{access.array}'"
            try:
                with sets.limited_operations(FOOTPRINT_OPERATIONS, what):
                    found = self._found_classes(access, layout, address, stride, steps)
            except CountingError as error:
                if not self.domains.counter.approximate:
                    raise
                found = (class_without_neighbors(number, str(error)),)
            self._classes[key] = found
        return found

    def _found_classes(
        self,
        access: MemoryAccess,
        layout: Layout,
        address: Address,
        stride: QuasiPolynomial,
        steps: tuple[QuasiPolynomial, ...],
    ) -> tuple[UtilizationClass, ...]:
        cells = self._accessed_cells(access, layout)
        widened = widened_cells(cells, layout, address, steps)
        if widened is None:
            raise UnsupportedExpressionError(
                f"kernel '{self.kernel.name}', array '{access.array}': no exact utilization "
                f"for stride {stride} in a layout with strides "
                f"({', '.join(map(str, layout.strides))}); give the array a compact layout",
                kernel=self.kernel.name,
                where=access.array,
            )
        counter = self.domains.counter
        return utilization_classes(
            abs(int(stride.constant_term)) if stride.is_constant else None,
            counter.count(cells),
            counter.count(counter.as_one_piece(widened)),
            counter,
        )

    def _accessed_cells(self, access: MemoryAccess, layout: Layout) -> Any:
        """Return the index tuples of the array that are accessed in the access's direction."""
        key = (access.array, access.direction)
        found = self._cells.get(key)
        if found is None:
            if key in self.totals.opaque:
                raise UnsupportedExpressionError(
                    f"kernel '{self.kernel.name}', array '{access.array}': no footprint, since "
                    f"instruction '{self.totals.opaque[key]}', which has no counting rule, may "
                    "access it too; its strided accesses have no class",
                    kernel=self.kernel.name,
                    where=access.array,
                )
            places: list[tuple[Address, frozenset[str], tuple[Case | FirstIteration, ...]]] = []
            for (other, within), all_cases in self.totals.cases.items():
                if (other.array, other.direction) != key:
                    continue
                if other.component_of != access.component_of:
                    raise UnsupportedExpressionError(
                        f"kernel '{self.kernel.name}', array '{access.array}': no footprint, since "
                        "its vectors are accessed whole and by components; its strided accesses "
                        "have no class",
                        kernel=self.kernel.name,
                        where=access.array,
                    )
                address = address_of(other, layout, self.to_polynomial)
                if address is None or self._is_ragged(address):
                    raise DataDependentControlFlowError(
                        f"kernel '{self.kernel.name}', array '{access.array}': no footprint, since "
                        f"data decides which elements {other.text} is, so that its strided "
                        "accesses have no class; pass one, "
                        f"statistics={{{access.array!r}: '4ofn'}}",
                        kernel=self.kernel.name,
                        where=access.array,
                        statistics={access.array: "4ofn"},
                    )
                places += [(address, within, cases) for cases in all_cases]
            found = accessed_cells(places, self.domains, lambda address: address.index)
            self._cells[key] = found
        return found


# }}}
