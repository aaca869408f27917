"""Sites: where each operation of a kernel is executed and how the addresses of accesses change.

Each operation and access that a compiler leaves (`compiled_view`) is sorted by where it stands and
by how its address changes:

- *context*: ``free`` in device programs without local barriers, ``sync`` in those with;
- *placement*: ``flat``, or inside a loop that each work item runs at its own pace: ``short`` if
  compilers unroll it, for it has at most 32 iterations (all such loops around together), known
  beforehand, else ``loop``; ``long`` instead of ``flat`` where rows are narrow (at most 8 items, of
  several), but the code for all items of one is more than compilers write out; else ``packed``
  where copies stand side by side, without local barriers, with minima or maxima in them and at
  least 4 of these and functions in all, and no guards of their own between them; ``loop8``,
  ``loop4`` and ``loop2`` where, without local barriers, a loop updates so many values alike
  (`countperf.execution.slp`);
- *shape*: work items of a group along local axis 0, times the others;
- *lane*, of an access: how its address changes from one item to the next along local axis 0;
- *walk*, of an access in a loop: how it changes in the innermost such loop.

Steps of an address are ``same`` (0 elements), ``next`` (1), ``offset`` (1, of a local array, from a
constant on that is no multiple of 16 elements), ``shifted`` (the same where it depends on other
loop variables, as with a pitch that is no multiple), ``masked`` (``shifted``, of an instruction
that not all items execute), ``near`` (less than a line of 64 bytes; of a step by symbols, where
they are so small, if it is known to be positive or negative), ``far`` (more, or any symbol else),
``wide``, ``vast`` or ``data`` (read from data, or uneven). Of steps to other lines, ``far`` are
those that lead back to the first one while a first-level cache still keeps it, ``wide`` those that
do while a second-level one does, ``vast`` the others; a number from 1 to 3 says that lines share
sets of a cache, and how many more there are than these keep (`countperf.execution.reuse`). Data
leads to arrays that a first-level cache keeps, or within a few lines (``data``), that a
second-level one keeps (``widedata``), or to larger ones (``vastdata``). Where a row has at most 8
items, so that compilers may unroll it, the step along local axis 1 follows: ``far_next``. Divisions
of integers by constant powers of two are shifts.

Special functions and powers under a condition that tells items apart are ``conditional``: compilers
that have no masked form of one call it for each item. Accesses under a condition that tells
neighbors apart are ``guarded`` besides: that of an instruction, or bounds of loops that groups do
not divide, whether or not they do at the sizes at hand, for the code is the same. Neighbors are
items along local axis 0, and along axis 1 too where rows are narrow.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import loopy as lp
import pymbolic.primitives as p
from loopy.kernel.data import LoopedIlpTag, UnrolledIlpTag, UnrollTag
from loopy.symbolic import DependencyMapper, get_dependencies

from countperf.counting.access_analysis import AccessAnalyzer
from countperf.counting.accesses import Address, address_of
from countperf.counting.cells import FOOTPRINT_OPERATIONS, accessed_cells
from countperf.counting.compiled_types import compiled_counter
from countperf.counting.divisions import divisions_that_shift
from countperf.counting.domains import Domains, Grid
from countperf.counting.keys import Case, FirstIteration, MemoryAccess, Operation
from countperf.counting.needs import check_statistics, stating_all_needs
from countperf.counting.operations import Number, Tally
from countperf.counting.places import Place
from countperf.counting.regions import RegionOutline, region_outlines
from countperf.counting.schedule import DeviceProgram, prepared, schedule_of
from countperf.counting.slots import slots_of
from countperf.counting.statistics import Statistics
from countperf.counting.strides import AxisStride, strides_of
from countperf.counting.structure import (
    ChainAnalysis,
    ProgramAnalysis,
    RegionAnalysis,
    analyzed_program,
)
from countperf.counting.supplied import require_rule
from countperf.errors import CountingError
from countperf.execution.reuse import (
    LINE_BYTES,
    Step,
    sorted_by_size,
    sorted_by_step,
    step_of,
    walk_of,
    within_line,
)
from countperf.execution.slp import SlpPacking, packs
from countperf.symbolic import sets
from countperf.symbolic.affine import ALWAYS
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial

__all__ = ["ExecutionCounts", "Site", "count_execution"]

Context = Literal["free", "sync"]
Placement = Literal["flat", "long", "packed", "short", "loop"]

_ZERO = QuasiPolynomial()
_ONE = QuasiPolynomial.constant(1)
NARROW_ROW = 8
UNROLLED_OPERATIONS = 200
"""Operations and accesses of all items of a narrow row up to which compilers write them out. LLVM's
limit for loops of constant length at -O3 is 300 instructions, those for addresses included; of
random kernels, PoCL writes out those of up to 144, and none of 168 or more."""
PACKED_OPERATIONS = 4
"""Minima, maxima and functions of all copies from which on LLVM packs them."""
SHORT_LOOP = 32
_FAR = 2**30
_BESIDE = frozenset({"stride1", "uniform"})
"""Patterns of accesses through data whose items stay in the same lines."""
_LATENCIES: Mapping[str, int] = {"div": 4, "mod": 6, "special": 8, "pow": 30}
"""Latencies of operations in additions, which decide the longest of several chains."""
_CALLS = ("special", "pow")
ALIGNMENT = 16
"""Elements; a step of one is ``shifted`` where it does not begin at a multiple of them."""


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """Place of an operation: context, loop nest and shape of the group.

    Attributes
    ----------
    context : {"free", "sync"}
        Whether the device program has local barriers.
    placement : {"flat", "long", "packed", "short", "loop"}
        Whether it is in a loop that each work item runs at its own pace: in none, in none but in
        too much code for narrow rows to be unrolled, in none but beside copies of minima or maxima
        that compilers pack, in one (or several) of at most 32 iterations in all, known beforehand,
        or in another one.
    shape : tuple of (int, int)
        Work items along local axis 0, and rows of them.
    packed : int
        How many values the loop updates alike that one vector may take; 1: no others.
    """

    context: Context
    placement: Placement
    shape: tuple[int, int]
    packed: int = 1


@dataclass(slots=True, kw_only=True)
class ExecutionCounts:
    """Counts by site; all symbolic in the parameters.

    Attributes
    ----------
    kernel : str
        Name of the kernel.
    parameters : tuple of str
        Size parameters, sorted.
    defaults : mapping from str to QuasiPolynomial
        Values of those that need not be given.
    counter : Counter
        Counted under its assumptions on the parameters.
    operations : dict from (Site, Operation) to PiecewiseQuasiPolynomial
        Executions by all work items.
    accesses : dict from (Site, space, direction, bits, lane, walk) to PiecewiseQuasiPolynomial
        The same of accesses; ``walk`` is empty for what is flat.
    chains : dict from (Site, kind) to PiecewiseQuasiPolynomial
        Operations that follow each other in a carried chain, by all work items, divided by the
        number of independent accumulators; of the chains that the same loops carry, which wait at
        the same time, the longest; ``kind`` such as ``fma.f32``, or ``fma.f32.8`` along loops of 8
        iterations in all, known beforehand or, on average, from statistics.
    guarded : dict from (Site, space, direction, bits, lane) to PiecewiseQuasiPolynomial
        Those of the accesses that stand under a condition that tells neighbors apart.
    idle : dict from Site to PiecewiseQuasiPolynomial
        Slots of instructions (passes of groups times their items) in which nothing is executed.
    private : dict from (Site, direction, elements) to PiecewiseQuasiPolynomial
        Accesses to private arrays at subscripts that depend on such loops, by all work items, and
        by how many elements of the array each item has.
    carried : dict from Site to PiecewiseQuasiPolynomial
        Private values that loops carry from one iteration to the next, times iterations and items.
    kept : dict from (Site, values, bits) to PiecewiseQuasiPolynomial
        Those that loops with barriers carry, times iterations of these loops and items: what waits
        at barriers is kept for all items of the group. With how many such values of its own, of so
        many bits, each item has in a region; copies in loops of their own are one array.
    addresses : dict from (Site, number) to PiecewiseQuasiPolynomial
        Loads by all work items, outside their own loops, in loops with barriers: a compiler may
        compute their addresses before, and keep them in memory for each item; with the number of
        loads an item has in such a loop.
    iterations : dict from Site to PiecewiseQuasiPolynomial
        Iterations of loops that items run at their own pace, by all work items.
    entries : dict from Site to PiecewiseQuasiPolynomial
        How often items come to such loops, by all work items.
    passes : dict from Site to PiecewiseQuasiPolynomial
        Passes of groups through barrier regions.
    group_bytes : dict from (direction, density) to PiecewiseQuasiPolynomial
        Distinct bytes of global memory that each group accesses, over all groups; ``dense`` where
        some access of the array has neighbors in the same line (steps of several elements bring
        what lies between along), else ``sparse``. Where data decides which they are, each access
        counts as ``dense`` if its steps are known, and not at all if data decides these, too: what
        such accesses bring is in their steps.
    segments : dict from direction to PiecewiseQuasiPolynomial
        Contiguous pieces in which each group accesses them, over all groups: distinct subscripts
        but for those along which elements lie less than a line from each other, or along which
        whole rows of a constant length do so one after the other; each element where sparse.
    kernel_bytes : dict from direction to PiecewiseQuasiPolynomial
        Distinct bytes of global memory that the kernel accesses, with what lies between them in the
        same lines; whole arrays where data decides.
    groups, launches, barriers : PiecewiseQuasiPolynomial
        Groups of all launches, launches, and barriers times the items that wait.
    reasons : frozenset of str
        Which of the caller's statistics enter.
    """

    kernel: str
    parameters: tuple[str, ...]
    defaults: Mapping[str, QuasiPolynomial]
    counter: Counter
    operations: dict[tuple[Site, Operation], PiecewiseQuasiPolynomial] = field(default_factory=dict)
    accesses: dict[tuple[Site, str, str, int, str, str], PiecewiseQuasiPolynomial] = field(
        default_factory=dict
    )
    chains: dict[tuple[Site, str], PiecewiseQuasiPolynomial] = field(default_factory=dict)
    guarded: dict[tuple[Site, str, str, int, str], PiecewiseQuasiPolynomial] = field(
        default_factory=dict
    )
    idle: dict[Site, PiecewiseQuasiPolynomial] = field(default_factory=dict)
    private: dict[tuple[Site, str, int], PiecewiseQuasiPolynomial] = field(default_factory=dict)
    carried: dict[Site, PiecewiseQuasiPolynomial] = field(default_factory=dict)
    kept: dict[tuple[Site, int, int], PiecewiseQuasiPolynomial] = field(default_factory=dict)
    addresses: dict[tuple[Site, int], PiecewiseQuasiPolynomial] = field(default_factory=dict)
    iterations: dict[Site, PiecewiseQuasiPolynomial] = field(default_factory=dict)
    entries: dict[Site, PiecewiseQuasiPolynomial] = field(default_factory=dict)
    passes: dict[Site, PiecewiseQuasiPolynomial] = field(default_factory=dict)
    group_bytes: dict[tuple[str, str], PiecewiseQuasiPolynomial] = field(default_factory=dict)
    segments: dict[str, PiecewiseQuasiPolynomial] = field(default_factory=dict)
    kernel_bytes: dict[str, PiecewiseQuasiPolynomial] = field(default_factory=dict)
    groups: PiecewiseQuasiPolynomial = ZERO_COUNT
    launches: PiecewiseQuasiPolynomial = ZERO_COUNT
    barriers: PiecewiseQuasiPolynomial = ZERO_COUNT
    reasons: frozenset[str] = frozenset()


def count_execution(
    t_unit: Any,
    *,
    statistics: Mapping[str, Any] | None = None,
    footprints: dict[Any, Any] | None = None,
) -> ExecutionCounts:
    """Count a kernel's operations and accesses by how they are executed.

    Parameters
    ----------
    t_unit : loopy.TranslationUnit
        With one entry point; preprocessed and scheduled here unless that is done already.
    statistics : mapping from str to number or str, optional
        What data decides, as for `countperf.count_kernel`.
    footprints : dict, optional
        What is known of what groups access; what is found here is added. For kernels that differ
        only in how loops are written (`countperf.counting.equivalence`).

    Raises
    ------
    CountingError
        Something cannot be counted exactly.
    """
    kernel, callables = prepared(t_unit)
    given = Statistics(kernel, statistics or {})
    domains = Domains(kernel, callables, Counter(kernel.assumptions), given)
    with stating_all_needs(domains):
        result = _Executions(domains, given, {} if footprints is None else footprints).counted()
    check_statistics(domains)
    return result


@dataclass(frozen=True, slots=True)
class _GlobalAccess:
    access: MemoryAccess
    index: Address | None
    place: Place
    cases: tuple[Case | FirstIteration, ...]
    least_step: int
    least_in_all: int
    is_even: bool
    thin: QuasiPolynomial | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """An instruction: what it tallies, where it stands, and which of its loops are its items'."""

    instruction: Any
    predicates: tuple[Case, ...]
    probability: Number
    tested: Tally
    tallied: Tally
    kinds: Mapping[str, Any]
    place: Place
    own: list[str]
    copies: list[str]


class _Executions:
    """Goes through a kernel, region by region."""

    def __init__(
        self, domains: Domains, statistics: Statistics, footprints: dict[Any, Any]
    ) -> None:
        self.domains = domains
        self.footprints = footprints
        self.kernel = domains.kernel
        self.statistics = statistics
        self.tallies = compiled_counter(domains, statistics=statistics)
        self.analyzer = AccessAnalyzer(self.kernel, domains, self.tallies)
        self.looped_copies = frozenset(
            name
            for name, iname in self.kernel.inames.items()
            if any(isinstance(tag, LoopedIlpTag) for tag in iname.tags)
        )
        self.private_arrays = frozenset(
            name
            for name, variable in self.kernel.temporary_variables.items()
            if variable.address_space == lp.AddressSpace.PRIVATE and variable.shape
        )
        self.parts: defaultdict[str, defaultdict[Any, list[PiecewiseQuasiPolynomial]]] = (
            defaultdict(lambda: defaultdict(list))
        )
        self.global_accesses: list[tuple[Grid, _GlobalAccess]] = []
        self.reasons: set[str] = set()
        self._found_strides: dict[Any, tuple[Place, tuple[AxisStride, ...]]] = {}
        self._found_trips: dict[str, int | None] = {}
        self._is_long = False
        self._is_packed = False
        self._packs: Mapping[str, SlpPacking] = {}
        self._kept_addresses = 0

    def counted(self) -> ExecutionCounts:
        """Count all device programs."""
        outlines = region_outlines(self.kernel)
        groups, launches, barriers = ZERO_COUNT, ZERO_COUNT, ZERO_COUNT
        nowhere = Grid(groups={}, items={})
        for number, program in enumerate(schedule_of(self.kernel).programs):
            grid = self.domains.grid(program.instruction_ids)
            regions = tuple(outline for outline in outlines if outline.program == number)
            launched = self.domains.executions(program.launch_loops, (), nowhere)
            self._note(program.launch_loops)
            launches += launched
            groups += grid.work_groups * launched
            for barrier in program.barriers:
                barriers += self.domains.barrier_passes(barrier, program.launch_loops, grid)
            found = [
                self._read(program, outline, instruction, grid)
                for outline in regions
                for instruction in map(self.kernel.id_to_insn.get, outline.instruction_ids)
                if not isinstance(instruction, lp.BarrierInstruction | lp.NoOpInstruction)
            ]
            self._is_long = self._is_written_out_at_length(found, grid)
            self._is_packed = not program.barriers and self._has_packed_copies(found, grid)
            self._packs = {} if program.barriers else self._alike(found)
            self._kept_addresses = sum(map(self._addresses_kept, found))
            for each in found:
                self._instruction(program, each, grid)
            self._structure(analyzed_program(self.analyzer, program, regions, grid), program, grid)
        totals = {
            kind: {key: PiecewiseQuasiPolynomial.sum(some) for key, some in found.items()}
            for kind, found in self.parts.items()
        }
        return ExecutionCounts(
            kernel=self.kernel.name,
            parameters=tuple(sorted(self.domains.sizes)),
            defaults=self.domains.defaults,
            counter=self.domains.counter,
            **totals,
            **self._footprints(),
            groups=groups,
            launches=launches,
            barriers=barriers,
            reasons=frozenset(self.reasons),
        )

    def _add(self, kind: str, key: Any, quantity: PiecewiseQuasiPolynomial) -> None:
        if quantity:
            self.parts[kind][key].append(quantity)

    def _note(self, within: frozenset[str]) -> None:
        self.reasons |= self.statistics.reasons(within)
        self.statistics.used.clear()

    def _site(self, program: DeviceProgram, grid: Grid, loops: Collection[str]) -> Site:
        """Return the site of what is in some of the items' own loops."""
        extents = [grid.items[axis] for axis in sorted(grid.items)]
        row = grid.items.get(0, 1)
        items = 1
        for extent in extents:
            items *= extent
        placement: Placement = "long" if self._is_long else "packed" if self._is_packed else "flat"
        if loops:
            placement = "short" if self._are_short(loops) else "loop"
        return Site(
            context="sync" if program.barriers else "free",
            placement=placement,
            shape=(row, items // row),
        )

    def _is_written_out_at_length(self, found: Iterable[_Read], grid: Grid) -> bool:
        """Tell whether what narrow rows execute outside loops is too much to be unrolled."""
        row = grid.items.get(0, 1)
        if row > NARROW_ROW or math.prod(grid.items.values()) == row:
            return False
        number = sum(
            self._written_copies(each.place.within) * sum(each.tallied.values())
            for each in found
            if not (each.own or each.copies)
        )
        return row * number > UNROLLED_OPERATIONS

    def _addresses_kept(self, found: _Read) -> int:
        """Return how many loads outside of items' loops, but in one with barriers, are written."""
        if found.own or found.copies or "barrier loop" not in found.kinds.values():
            return 0
        number: Number = 0
        for (key, cases), times in found.tallied.items():
            if _is_load(key):
                left = (case.loops for case in cases if isinstance(case, FirstIteration))
                within = found.place.within.difference(*left)
                number += self._written_copies(within) * times
        return int(number)

    def _has_packed_copies(self, found: Iterable[_Read], grid: Grid) -> bool:
        """Tell whether copies outside loops that do not wait for each other compare enough.

        Copies that each have a guard of their own are no straight-line code.
        """
        numbers: defaultdict[str, Number] = defaultdict(int)
        for each in found:
            beside = self._written_copies(each.place.within - _updated_along(each.instruction))
            within = each.place.within
            if beside == 1 or each.own or each.copies:
                continue
            if self._cuts(within, self._written_out(within), grid):
                continue
            for (key, _), number in each.tallied.items():
                if isinstance(key, Operation):
                    numbers[key.kind] += beside * number
        return numbers["minmax"] > 0 and numbers["minmax"] + numbers["special"] >= PACKED_OPERATIONS

    def _written_out(self, within: frozenset[str]) -> list[str]:
        return [
            name
            for name in within
            for tags in (self.kernel.inames[name].tags,)
            if any(isinstance(tag, UnrollTag | UnrolledIlpTag) for tag in tags)
        ]

    def _written_copies(self, within: frozenset[str]) -> int:
        trips = map(self._trips, self._written_out(within))
        return math.prod(1 if number is None else number for number in trips)

    def _trips(self, name: str) -> int | None:
        """Return how many values a loop variable takes, if a constant bounds it; None if not."""
        if name not in self._found_trips:
            low, high = self.domains.value_bounds(name)
            self._found_trips[name] = (
                None if low is None or high is None else max(high - low + 1, 0)
            )
        return self._found_trips[name]

    def _are_short(self, loops: Collection[str]) -> bool:
        if self.domains.trip_statistics(frozenset(loops))[0] != frozenset(loops):
            return False  # data decides
        iterations = self._known_iterations(loops)
        return iterations is not None and iterations <= SHORT_LOOP

    def _known_iterations(self, loops: Collection[str]) -> Number | None:
        """Return the iterations of some loops together, if constants or statistics say them."""
        counted, factor = self.domains.trip_statistics(frozenset(loops))
        whole = factor.as_polynomial()
        if whole is None or not whole.is_constant:
            return None
        iterations: Number = whole.constant_term
        for trips in map(self._trips, counted):
            if trips is None:
                return None
            iterations *= trips
        return iterations

    # {{{ operations and accesses

    def _read(
        self, program: DeviceProgram, outline: RegionOutline, instruction: Any, grid: Grid
    ) -> _Read:
        """Tally an instruction; they come in the order of the schedule."""
        require_rule(self.kernel, instruction)
        predicates, probability = self.domains.predicate_conditions(instruction)
        tested = self.tallies.tally_predicates(instruction) if instruction.predicates else {}
        kinds = self.analyzer.kinds(program, outline, instruction.id)
        place = self.analyzer.place(outline, instruction, predicates, grid, kinds)
        return _Read(
            instruction=instruction,
            predicates=predicates,
            probability=probability,
            tested=tested,
            tallied=self.tallies.tally(instruction),
            kinds=kinds,
            place=place,
            own=[n for n in place.loops if kinds.get(n) == "loop" and n in place.within],
            copies=sorted(self.looped_copies & place.within),
        )

    def _instruction(self, program: DeviceProgram, found: _Read, grid: Grid) -> None:
        predicates, kinds, place = found.predicates, found.kinds, found.place
        own, copies = found.own, found.copies
        keeps_addresses = self._addresses_kept(found) > 0
        neighbors = _neighbors(place)
        is_cut = self._cuts(place.within.difference(own), neighbors, grid)
        idle = ZERO_COUNT
        if predicates or own or self._is_guarded(place):
            slots = slots_of(place)
            if slots.count is not None:
                executed = self.domains.executions(place.within, predicates, grid)
                idle = slots.count + executed.scale(-1)
        for tally, share in ((found.tested, Fraction(1)), (found.tallied, found.probability)):
            for (key, cases), number in tally.items():
                conditions = predicates + tuple(
                    case
                    for case in cases
                    if isinstance(case, FirstIteration) or case.alternatives != ALWAYS
                )
                left = frozenset[str]().union(
                    *(case.loops for case in conditions if isinstance(case, FirstIteration))
                )
                loops = [name for name in own if name not in left]
                site = self._site(program, grid, [*loops, *(n for n in copies if n not in left)])
                executions = self.domains.executions(place.within, conditions, grid)
                executions = executions.scale(number * share)
                if isinstance(key, Operation):
                    named = _conditional(key, conditions, place)
                    if key.kind in ("div", "mod") and key.type_name[0] in "iu":
                        shifts = key.kind in divisions_that_shift(found.instruction)
                        named = replace(key, kind="shift") if shifts else key
                    for at, part in self._parts(site, found, executions):
                        self._add("operations", (at, named), part)
                elif executions:
                    is_guarded = is_cut or _tells_apart(conditions, neighbors)
                    what = (site, key.address_space, key.direction, key.bits)
                    once = partial(self._once, place.within, conditions, grid, number * share)
                    for lane, walk, part in self._sorted(
                        key, place, kinds, loops, executions, once
                    ):
                        lane = _masked(lane) if idle else lane
                        self._add("accesses", (*what, lane, walk), part)
                        if is_guarded:
                            self._add("guarded", (*what, lane), part)
                    if keeps_addresses and _is_load(key):
                        self._add("addresses", (site, self._kept_addresses), executions)
                    if key.address_space == "global":
                        self._remember(key, place, kinds, conditions, grid)
        self._private(program, found.instruction, place, predicates, grid, own, copies)
        self._note(place.within)
        self._add("idle", self._site(program, grid, [*own, *copies]), idle)

    def _alike(self, found: Iterable[_Read]) -> Mapping[str, SlpPacking]:
        """Return how what items' loops update alike may be packed."""
        private = [
            name
            for name, variable in self.kernel.temporary_variables.items()
            if variable.address_space == lp.AddressSpace.PRIVATE and not variable.shape
        ]
        slow = [
            each.instruction.id
            for each in found
            if any(isinstance(key, Operation) and key.kind in _CALLS for key, _ in each.tallied)
        ]
        updates = ((each.instruction, tuple(each.own)) for each in found if not each.copies)
        return packs(updates, private, slow)

    def _parts(
        self, site: Site, found: _Read, executions: PiecewiseQuasiPolynomial
    ) -> Iterator[tuple[Site, PiecewiseQuasiPolynomial]]:
        """Yield what of an instruction's operations may be packed with others, and the rest."""
        packed = self._packs.get(found.instruction.id) if site.placement == "loop" else None
        for values, share in (packed or {1: 1}).items():
            yield replace(site, packed=values), executions.scale(share)

    def _private(
        self,
        program: DeviceProgram,
        instruction: Any,
        place: Place,
        predicates: tuple[Case, ...],
        grid: Grid,
        own: Sequence[str],
        copies: Sequence[str],
    ) -> None:
        """Count iterations of the loops over copies, and accesses to private arrays."""
        loops = frozenset([*own, *copies])
        if not loops or not isinstance(instruction, lp.MultiAssignmentBase):
            return
        read, written = (
            {
                each
                for part in parts
                for each in _subscripts_in(part, self.private_arrays)
                if loops & get_dependencies(each.index)
            }
            for parts in ((instruction.expression,), instruction.assignees)
        )
        if not (copies or read or written):
            return
        site = self._site(program, grid, [*own, *copies])
        executions = self.domains.executions(place.within, predicates, grid)
        if copies:
            self._add("iterations", site, executions)
        for direction, several in (("load", read), ("store", written)):
            for each in several:
                elements = self._private_elements(each.aggregate.name)
                self._add("private", (site, direction, elements), executions)

    def _private_elements(self, array: str) -> int:
        """Return how many elements each item has of a private array; 0 if no constant says it."""
        shape = self.kernel.temporary_variables[array].shape
        return math.prod(extent if isinstance(extent, int) else 0 for extent in shape)

    def _cuts(self, within: frozenset[str], beside: Collection[str], grid: Grid) -> bool:
        """Whether bounds leave some items or copies without work where others beside them have it.

        They do if that is so at any sizes.
        """
        if not beside:
            return False
        executed, once = (
            self.domains.executions(names, (), grid)
            for names in (within, within.difference(beside))
        )
        return executed != once.scale(self._written_copies(within.intersection(beside)))

    def _is_guarded(self, place: Place) -> bool:
        return bool(set(place.loops) & place.within) or any(
            name in self.domains.data_loops
            or self.domains.value_bounds(name) != (0, place.grid.items[axis] - 1)
            for name, axis in place.lanes.items()
        )

    def _strides(
        self, access: MemoryAccess, place: Place, kinds: Mapping[str, Any]
    ) -> tuple[AxisStride, ...]:
        key = (access, id(place))
        found = self._found_strides.get(key)
        if found is None:
            layout = self.analyzer.layout(access.array, access.component_of)
            self.reasons |= {layout.assumed} - {""}
            address = address_of(access, layout, self.domains.to_address)
            opaque = address or address_of(access, layout, self.analyzer.to_opaque)
            strides = strides_of(place, opaque, kinds, self.analyzer.changing, of_most=True)
            self._found_strides[key] = found = (place, strides)  # kept, and with it its identity
        return found[1]

    def _sorted(
        self,
        access: MemoryAccess,
        place: Place,
        kinds: Mapping[str, Any],
        loops: Sequence[str],
        executions: PiecewiseQuasiPolynomial,
        once: Callable[[str], PiecewiseQuasiPolynomial | None],
    ) -> list[tuple[str, str, PiecewiseQuasiPolynomial]]:
        """Sort the executions of an access by its steps, which may depend on the parameters."""
        strides = self._strides(access, place, kinds)
        lanes = [s.stride for s in strides if s.kind == "local" and s.axis == 0]
        result: list[tuple[str, str, PiecewiseQuasiPolynomial]] = []
        second = self._second_step(access, place, strides)
        bits = access.bits
        walk = partial(walk_of, place, bits, strides, loops)
        among_items, along_loops = (partial(walk, items_first=first) for first in (True, False))
        lane_stride = lanes[0] if lanes else _ZERO
        counter = self.domains.counter
        inside = within_line(lane_stride, bits, counter)
        for step, part in sorted_by_step(
            lane_stride, bits, executions, among_items, once, inside=inside
        ):
            if step == "data":
                result += self._through_data(access, strides, loops, second, part)
                continue
            lane = self._alignment(access, place, 0) if step == "next" else step
            lane += second
            if not loops:
                result.append((lane, "", part))
                continue
            inner = next(s.stride for s in strides if s.iname == loops[-1])
            by_step = sorted_by_step(
                inner, bits, part, along_loops, once, inside=within_line(inner, bits, counter)
            )
            for along, rest in self._graded(access, by_step):
                result.append((lane, along, rest))
        return result

    def _once(
        self,
        within: frozenset[str],
        conditions: tuple[Case | FirstIteration, ...],
        grid: Grid,
        times: Number,
        loop: str,
    ) -> PiecewiseQuasiPolynomial | None:
        """Count the executions of a copy that an unrolled loop makes; None if they differ."""
        for each in conditions:
            if isinstance(each, FirstIteration) and loop in each.loops:
                return None
        return self.domains.executions(within - {loop}, conditions, grid).scale(times)

    def _through_data(
        self,
        access: MemoryAccess,
        strides: Sequence[AxisStride],
        loops: Sequence[str],
        second: str,
        executions: PiecewiseQuasiPolynomial,
    ) -> list[tuple[str, str, PiecewiseQuasiPolynomial]]:
        """Sort the executions of an access of which data decides how the items' addresses differ.

        Where it is even in a loop, the items come back to their lines.
        """
        inner = next((s.stride for s in strides if loops and s.iname == loops[-1]), None)
        if inner is not None:
            return [(f"data{second}", step_of(inner, access.bits), executions)]
        return [
            (f"{step}{second}", step if loops else "", part)
            for step, part in self._graded(access, [("data", executions)])
        ]

    def _graded(
        self, access: MemoryAccess, parts: Iterable[tuple[Step, PiecewiseQuasiPolynomial]]
    ) -> Iterator[tuple[Step, PiecewiseQuasiPolynomial]]:
        """Grade what data decides by the size of the array, unless neighbors are said to be near.

        No compiler knows the latter: each item then has an access of its own all the same.
        """
        for step, part in parts:
            if step == "data" and not self._stays_beside(access):
                yield from sorted_by_size(self._extent(access.array), access.bits, part)
            else:
                yield step, part

    def _stays_beside(self, access: MemoryAccess) -> bool:
        """Tell whether items that data leads are said to stay in the same lines."""
        stated = self.statistics.pattern_of(access.array, access.text)
        return stated is not None and stated[0] in _BESIDE

    def _extent(self, array: str, component_of: int = 0) -> QuasiPolynomial | None:
        """Return the elements of an array; None if they are not known."""
        elements = _ONE
        for extent in self.analyzer.layout(array, component_of).shape:
            if extent is None:
                return None
            elements *= extent
        return elements

    def _second_step(
        self, access: MemoryAccess, place: Place, strides: Sequence[AxisStride]
    ) -> str:
        items = place.grid.items
        if items.get(0, 1) > NARROW_ROW or items.get(1, 1) == 1:
            return ""
        along = [s.stride for s in strides if s.kind == "local" and s.axis == 1]
        step = step_of(along[0] if along else _ZERO, access.bits)
        return f"_{self._alignment(access, place, 1) if step == 'next' else step}"

    def _alignment(self, access: MemoryAccess, place: Place, axis: int) -> Step:
        """Return how neighboring accesses along an axis begin: at multiples of a vector or not."""
        if access.address_space != "local":
            return "next"
        layout = self.analyzer.layout(access.array, access.component_of)
        address = address_of(access, layout, self.domains.to_address)
        if address is None:
            return "next"
        lanes = {name for name, of in place.lanes.items() if of == axis}
        odd = [m for m, c in address.flat.terms.items() if c % ALIGNMENT and not _is_of(m, lanes)]
        if not odd:
            return "next"
        return "shifted" if any(odd) else "offset"

    def _remember(
        self,
        access: MemoryAccess,
        place: Place,
        kinds: Mapping[str, Any],
        cases: tuple[Case | FirstIteration, ...],
        grid: Grid,
    ) -> None:
        address = address_of(
            access, self.analyzer.layout(access.array, access.component_of), self.domains.to_address
        )
        address = address and address.simplified()
        steps = [
            (s.kind, abs(int(s.stride.constant_term)))
            for s in self._strides(access, place, kinds)
            if s.stride is not None and s.stride.is_constant and s.stride
        ]
        least = min((step for kind, step in steps if kind != "group"), default=_FAR)
        in_all = min((step for _, step in steps), default=1)
        is_even = least != _FAR or self._stays_beside(access)
        thin = next(
            (
                s.stride
                for s in self._strides(access, place, kinds)
                if s.kind != "group"
                and within_line(s.stride, access.bits, self.domains.counter) is not None
            ),
            None,
        )
        self.global_accesses.append(
            (grid, _GlobalAccess(access, address, place, cases, least, in_all, is_even, thin))
        )

    # }}}

    # {{{ structure

    def _structure(self, analysis: ProgramAnalysis, program: DeviceProgram, grid: Grid) -> None:
        for region in analysis.regions:
            own_names = {loop.iname for loop in region.loops if loop.kind == "loop"}
            if region.passes.count is not None:
                site = self._site(program, grid, own_names)
                self._add("passes", site, region.passes.count)
            for loop in region.loops:
                if loop.kind != "loop":
                    continue
                site = self._site(program, grid, [loop.iname])
                for kind, number in (("iterations", loop.iterations), ("entries", loop.entries)):
                    if number.count is not None:
                        self._add(kind, site, number.count)
            executed = {i.id: i.executions for i in region.instructions}
            self._kept(region, program, grid, own_names)
            longest: dict[tuple[str, ...], tuple[Fraction, ChainAnalysis]] = {}
            for chain in region.chains:
                site = self._site(program, grid, own_names & set(chain.loops))
                self._add("carried", site, executed[chain.instructions[-1]])
                waiting = _waiting(chain)
                if chain.loops not in longest or waiting > longest[chain.loops][0]:
                    longest[chain.loops] = waiting, chain
            for loops, (_, chain) in longest.items():
                site = self._site(program, grid, own_names & set(loops))
                total = executed[chain.instructions[-1]].scale(_share(chain))
                known = self._known_iterations(loops)
                along = "" if known is None else f".{round(known)}"
                for kind, times in chain.operations or ():
                    self._add("chains", (site, kind + along), total.scale(times))

    def _kept(
        self, region: RegionAnalysis, program: DeviceProgram, grid: Grid, own: Collection[str]
    ) -> None:
        """Count the private values that are carried over a region's barriers."""
        barrier_loops = {loop.iname for loop in region.around if loop.kind == "barrier loop"}
        waiting = [chain for chain in region.chains if barrier_loops & set(chain.loops)]
        values: defaultdict[int, int] = defaultdict(int)
        found: list[tuple[int, PiecewiseQuasiPolynomial]] = []
        for chain in waiting:
            within = self.kernel.id_to_insn[chain.instructions[-1]].within_inames
            bits = 8 * self.kernel.temporary_variables[chain.variables[-1]].dtype.itemsize
            values[bits] += 1 if self.looped_copies & within else _side_by_side(chain)
            found.append((bits, self.domains.executions(within.difference(own), (), grid)))
        for bits, executions in found:
            self._add("kept", (self._site(program, grid, ()), values[bits], bits), executions)

    # }}}

    # {{{ footprints

    def _footprints(self) -> dict[str, Any]:
        group_bytes: defaultdict[tuple[str, str], list[PiecewiseQuasiPolynomial]] = defaultdict(
            list
        )
        kernel_bytes: defaultdict[str, list[PiecewiseQuasiPolynomial]] = defaultdict(list)
        segments: defaultdict[str, list[PiecewiseQuasiPolynomial]] = defaultdict(list)
        by_array: defaultdict[tuple[str, str, int], list[tuple[Grid, _GlobalAccess]]] = defaultdict(
            list
        )
        for grid, found in self.global_accesses:
            access = found.access
            by_array[access.array, access.direction, access.component_of].append((grid, found))
        for (array, direction, component_of), members in by_array.items():
            size = members[0][1].access.bits // 8
            key = (
                array,
                direction,
                component_of,
                tuple((m.index, m.place.within, m.cases) for _, m in members),
            )
            if key not in self.footprints:
                self.footprints[key] = self._touched(array, members)
            touched = self.footprints[key]
            if touched is None:
                even = PiecewiseQuasiPolynomial.sum(
                    self.domains.executions(m.place.within, m.cases, grid)
                    for grid, m in members
                    if m.is_even
                )
                group_bytes[direction, "dense"].append(even.scale(size))
                whole = PiecewiseQuasiPolynomial.from_value(
                    self._extent(array, component_of) or _ZERO
                )
                kernel_bytes[direction].append(whole.scale(size))
                continue
            by_group, pieces, thin_pieces, in_all = touched
            in_lines = _bytes_between([(m.least_in_all, m.index) for _, m in members], size)
            kernel_bytes[direction].append(in_all.scale(min(in_lines, Fraction(LINE_BYTES))))
            if min(m.least_step for _, m in members) * size >= LINE_BYTES:
                thin = next((m.thin for _, m in members if m.thin is not None), None)
                inside = within_line(thin, 8 * size, self.domains.counter)
                if thin is not None and inside is not None:
                    step = thin if self.domains.counter.is_nonnegative(thin) else -thin
                    between = PiecewiseQuasiPolynomial.from_value(step).scale(size)
                    group_bytes[direction, "dense"].append(by_group.restricted((inside,)) * between)
                    segments[direction].append(thin_pieces.restricted((inside,)))
                    by_group = by_group.restricted((-inside - 1,))
                group_bytes[direction, "sparse"].append(by_group.scale(size))
                segments[direction].append(by_group)
                continue
            in_lines = _bytes_between([(m.least_step, m.index) for _, m in members], size)
            group_bytes[direction, "dense"].append(by_group.scale(in_lines))
            segments[direction].append(pieces)
        return {
            "segments": {d: PiecewiseQuasiPolynomial.sum(some) for d, some in segments.items()},
            "group_bytes": {
                key: PiecewiseQuasiPolynomial.sum(some) for key, some in group_bytes.items()
            },
            "kernel_bytes": {
                key: PiecewiseQuasiPolynomial.sum(some) for key, some in kernel_bytes.items()
            },
        }

    def _touched(
        self, array: str, members: Sequence[tuple[Grid, _GlobalAccess]]
    ) -> tuple[PiecewiseQuasiPolynomial, ...] | None:
        """Count distinct elements by group, contiguous pieces by group, and elements in all.

        Pieces are counted twice: also for where steps by a symbol stay in a line. None where data
        decides them, or where subscripts divide by sizes in many ways or multiply them.
        """
        by_axes: defaultdict[tuple[int, ...], list[_GlobalAccess]] = defaultdict(list)
        repeats: dict[tuple[int, ...], PiecewiseQuasiPolynomial] = {}
        for grid, member in members:
            counted, _ = self.domains.trip_statistics(member.place.within)
            if member.index is None or counted != member.place.within:
                return None
            axes = tuple(sorted({self.domains.group_axes.get(n, -1) for n in counted} - {-1}))
            by_axes[axes].append(member)
            repeats[axes] = PiecewiseQuasiPolynomial.from_value(1)
            for axis in sorted(grid.groups.keys() - set(axes)):
                repeats[axes] *= grid.groups[axis]
        what = f"kernel '{self.kernel.name}': the footprint of array '{array}'"
        if any(m.index and (m.index.has_quotients or m.index.has_products) for _, m in members):
            try:  # quotients may have few values, each of which is looked at
                self._count_cells([member for _, member in members], ())
            except CountingError:
                return None
        with sets.limited_operations(4 * FOOTPRINT_OPERATIONS, what):
            by_group, pieces, thin_pieces = ZERO_COUNT, ZERO_COUNT, ZERO_COUNT
            thin = next((m.thin for _, m in members if m.thin is not None), None)
            for axes, some in by_axes.items():
                elements = self._count_cells(some, axes)
                by_group += elements * repeats[axes]
                pieces += self._count_pieces(array, some, axes, elements) * repeats[axes]
                if thin is not None:
                    thin_pieces += (
                        self._count_pieces(array, some, axes, elements, thin) * repeats[axes]
                    )
            in_all = self._count_cells([member for _, member in members], ())
            return by_group, pieces, thin_pieces, in_all

    def _count_pieces(
        self,
        array: str,
        members: Sequence[_GlobalAccess],
        axes: Sequence[int],
        elements: PiecewiseQuasiPolynomial,
        thin: QuasiPolynomial | None = None,
    ) -> PiecewiseQuasiPolynomial:
        """Count the contiguous pieces of an array in which groups access some elements.

        Along an axis with a thin stride, or its negative, they are next to each other.
        """
        bits = members[0].access.bits
        strides = self.analyzer.layout(array, members[0].access.component_of).strides
        known = sorted((int(s.constant_term), a) for a, s in enumerate(strides) if s.is_constant)
        in_lines = [axis for stride, axis in known if stride * bits < 8 * LINE_BYTES]
        if thin is not None:
            along = [axis for axis, stride in enumerate(strides) if stride in (thin, -thin)]
            return self._count_cells(members, axes, without=[*in_lines, *along])
        pieces = self._count_cells(members, axes, without=in_lines)
        for stride, axis in known[len(in_lines) :]:
            if elements != pieces.scale(stride):
                break
            in_lines.append(axis)
            pieces = self._count_cells(members, axes, without=in_lines)
        return pieces

    def _count_cells(
        self,
        members: Sequence[_GlobalAccess],
        axes: Sequence[int],
        without: Collection[int] = (),
    ) -> PiecewiseQuasiPolynomial:
        """Count distinct subscripts, perhaps without some, told apart by groups along some axes."""

        def told_apart(
            address: Address, groups: Sequence[QuasiPolynomial]
        ) -> tuple[QuasiPolynomial, ...]:
            kept = (part for i, part in enumerate(address.index) if i not in without)
            return (*groups, *kept)

        pieces: list[sets.IntegerSet] = []
        for member in members:
            if member.index is None:
                continue
            groups = [QuasiPolynomial.name(self._group_name(member.place, axis)) for axis in axes]
            pieces.append(
                accessed_cells(
                    [(member.index, member.place.within, member.cases)],
                    self.domains,
                    partial(told_apart, groups=groups),
                )
            )
        counter = self.domains.counter
        whole = pieces[0] if len(pieces) == 1 else counter.as_one_piece(sets.union(pieces))
        return counter.count(whole)

    def _group_name(self, place: Place, axis: int) -> str:
        return min(n for n in place.within if self.domains.group_axes.get(n) == axis)

    # }}}


def _bytes_between(steps: Sequence[tuple[int, Address | None]], size: int) -> Fraction:
    """Return the bytes from an element to the next that some accesses take in their least steps."""
    least = min(step for step, _ in steps)
    together = len({index for step, index in steps if step == least})
    return max(Fraction(least * size, together), Fraction(size))


def _conditional(
    operation: Operation, conditions: Iterable[Case | FirstIteration], place: Place
) -> Operation:
    """Return the operation, or a conditional one if it is a call that not all items make."""
    if operation.kind not in _CALLS:
        return operation
    if not _tells_apart(conditions, place.lanes):
        return operation
    function = operation.function or operation.kind
    return replace(operation, kind="conditional", function=function)


def _tells_apart(conditions: Iterable[Case | FirstIteration], items: Collection[str]) -> bool:
    """Tell whether some conditions depend on work-item indices."""
    return any(not case.names.isdisjoint(items) for case in conditions if isinstance(case, Case))


def _neighbors(place: Place) -> tuple[str, ...]:
    """Return the work-item indices along the axes that vectors may take."""
    axes = (0, 1) if place.grid.items.get(0, 1) <= NARROW_ROW else (0,)
    return tuple(name for name, axis in place.lanes.items() if axis in axes)


def _masked(lane: str) -> str:
    """Return the step of accesses in which lanes may be idle; the one along axis 1 stays."""
    return f"masked{rest}" if (rest := lane.removeprefix("shifted")) != lane else lane


def _side_by_side(chain: ChainAnalysis) -> int:
    """Return how many accumulators of a chain are side by side; 1 if no constant says it."""
    count = chain.accumulators.count
    number = None if count is None else count.as_polynomial()
    return int(number.constant_term) if number and number.is_constant else 1


def _share(chain: ChainAnalysis) -> Fraction:
    """Return which share of a chain's updates wait: accumulators side by side, and its span."""
    return Fraction(1, _side_by_side(chain) * chain.span)


def _waiting(chain: ChainAnalysis) -> Fraction:
    """Return about how long an iteration waits for a chain; longer ones hide the others."""
    operations = sum(
        _LATENCIES.get(kind.split(".")[0], 1) * times for kind, times in chain.operations or ()
    )
    return operations * _share(chain)


def _is_load(key: Any) -> bool:
    return isinstance(key, MemoryAccess) and key.direction == "load"


def _updated_along(instruction: Any) -> frozenset[str]:
    """Return the loops along which an instruction updates what it reads."""
    if not instruction.read_dependency_names() & set(instruction.assignee_var_names()):
        return frozenset()
    return instruction.within_inames - frozenset(get_dependencies(tuple(instruction.assignees)))


def _subscripts_in(expression: Any, arrays: Collection[str]) -> set[Any]:
    """Return the references to elements of some arrays in an expression."""
    dependencies: Any = DependencyMapper(include_subscripts=True)
    return {
        each
        for each in dependencies(expression)
        if isinstance(each, p.Subscript)
        and isinstance(each.aggregate, p.Variable)
        and each.aggregate.name in arrays
    }


def _is_of(monomial: Any, names: set[str]) -> bool:
    return bool(QuasiPolynomial({monomial: 1}).names() & names)
