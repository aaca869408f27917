"""Execution counts inside a kernel: loops, predicates, redundant hardware axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import loopy as lp
from loopy import ValueArg
from loopy.kernel.data import ConcurrentTag, GroupInameTag, LocalInameTag
from loopy.schedule import EnterLoop
from loopy.symbolic import get_dependencies
from pytools import memoize_method

from countperf.counting.accesses import Address, Layout, address_of, default_values, layout_of
from countperf.counting.keys import Case, FirstIteration, Grid, MemoryAccess
from countperf.counting.statistics import Statistics
from countperf.errors import (
    CountingError,
    DataDependentControlFlowError,
    UnsupportedExpressionError,
)
from countperf.symbolic import affine, isl_sets, sets
from countperf.symbolic.cardinality import Counter, FactoredDomain, count_within
from countperf.symbolic.isl_sets import from_isl_count
from countperf.symbolic.kernel_sets import assumptions_of, domain_of, domains_of, group_counts_of
from countperf.symbolic.piecewise import ONE_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import Atom, Number, QuasiPolynomial
from countperf.symbolic.sets import quotients

_OPERATIONS = 500_000  # of isl, about a second


@dataclass(frozen=True, slots=True)
class DataLoop:
    """A loop whose values data decides."""

    iname: str  # its loop variable
    reads: tuple[str, ...]  # variables in its bounds that are no size parameters
    # its trip count where the sizes alone decide it, as of a loop from ``s`` to ``s + 4``
    trips: PiecewiseQuasiPolynomial | None


class Domains:
    """Counts executions within one kernel."""

    def __init__(
        self, kernel: Any, callables: Any, counter: Counter, statistics: Statistics
    ) -> None:
        self.kernel = kernel
        self.callables = callables
        self.counter = counter
        self.statistics = statistics
        self._factored: dict[int, tuple[Any, FactoredDomain | None]] = {}
        self.to_polynomial = affine.ToQuasiPolynomial(self._is_known)
        self.to_condition = affine.ToCondition(
            self.to_polynomial, lambda n: n not in self.data_loops
        )
        self.to_opaque = affine.ToQuasiPolynomial(lambda n: self._is_known(n) or n in self.changing)
        self.to_address = affine.ToAddress(self._is_known, self.sizes, lambda: self.definitions)

    def variable(self, name: str) -> Any:
        """Return the argument or temporary of a name."""
        argument = self.kernel.arg_dict.get(name)
        return self.kernel.temporary_variables[name] if argument is None else argument

    def limit(self, what: str, factor: int = 1) -> AbstractContextManager[None]:
        """Refuse what takes isl longer than about a second, or that times a factor."""
        text = f"kernel '{self.kernel.name}': {what}"
        return isl_sets.limit_operations(factor * _OPERATIONS, text)

    @memoize_method
    def layout(self, array: str, component_of: int = 0) -> Layout:
        """Return the layout of an array, or of the components of its vectors."""
        return layout_of(self.kernel, self.variable(array), self.to_polynomial, component_of)

    def layout_of(self, access: MemoryAccess) -> Layout:
        """Return how the array of an access lies in memory."""
        return self.layout(access.array, access.component_of)

    @memoize_method
    def address(self, access: MemoryAccess) -> Address | None:
        """Return the address of an access; None if data decides, or if it has no formula."""
        return address_of(access, self.layout_of(access), self.to_address)

    @cached_property
    def changing(self) -> dict[str, frozenset[str]]:
        """The loops in which each private scalar is written."""
        writers = self.kernel.writer_map()
        return {
            name: frozenset().union(
                *(self.kernel.id_to_insn[i].within_inames for i in writers.get(name, ()))
            )
            for name, variable in self.kernel.temporary_variables.items()
            if variable.address_space == lp.AddressSpace.PRIVATE and not variable.shape
        }

    @cached_property
    def inames(self) -> frozenset[str]:
        """All loop variables."""
        return self.kernel.all_inames()

    @cached_property
    def sizes(self) -> frozenset[str]:
        """Arguments that are integer scalars."""
        arguments: list[Any] = [a for a in self.kernel.args if isinstance(a, ValueArg)]
        integers = {a.name for a in arguments if a.dtype.numpy_dtype.kind in "iu"}
        declared = set(self.kernel.arg_dict) | set(self.kernel.temporary_variables)
        return frozenset(integers | (set(self.kernel.all_params()) - declared))

    @cached_property
    def data_loops(self) -> dict[str, DataLoop]:
        """The loops around instructions whose values depend on more than sizes."""
        loops = self._find_data_loops()
        for name, given in self.statistics.numbers.items():
            low, high = self.value_bounds(name) if name in self.inames else (None, None)
            if low is not None and high is not None and given > high - low + 1:
                raise self.statistics.error(
                    f"the mean trip count of '{name}' is {float(given):g}, but its bounds let it"
                    f" run {high - low + 1} times at most"
                )
        for within in {i.within_inames for i in self.kernel.instructions} if loops else ():
            whole = self.joint_domain(within) if within else None
            names = () if whole is None else isl_sets.names_of(whole, parameters=False)
            for name in sorted(set(names).difference(within).intersection(loops)):
                raise DataDependentControlFlowError(
                    f"kernel '{self.kernel.name}': an instruction in the loops "
                    f"{', '.join(sorted(within))} shares a domain with '{name}', which is not "
                    "around it: it runs only where that loop does, which data decides; write a "
                    f"domain of its own for '{name}'"
                )
        return loops

    @cached_property
    def _loop_order(self) -> dict[str, int]:
        """Places of loops in the schedule, outer ones before those inside them."""
        entered = (item.iname for item in self.kernel.linearization if isinstance(item, EnterLoop))
        return {name: place for place, name in enumerate(entered)}

    def _find_data_loops(self) -> dict[str, DataLoop]:
        kernel = self.kernel
        domains = domains_of(kernel)
        parameters = {n for whole in domains for n in isl_sets.names_of(whole, parameters=True)}
        if parameters <= self.inames | self.sizes:
            return {}
        order = self._loop_order
        loops: dict[str, DataLoop] = {}
        for name in sorted(frozenset[str]().union(*(i.within_inames for i in kernel.instructions))):
            whole = self.joint_domain(frozenset([name]))
            line = sets.project_onto(whole, [name])
            read = isl_sets.names_of(line, parameters=True)
            unknown = tuple(parameter for parameter in read if parameter not in self.sizes)
            if unknown and sets.without_parameters(line, unknown) is None:
                alone = (one for one in unknown if sets.without_parameters(line, [one]) is None)
                names = isl_sets.names_of(whole, parameters=False)
                is_parallel = {n: bool(kernel.iname_tags_of_type(n, ConcurrentTag)) for n in names}
                place = order.get(name, -1)
                around = {n for n in names if is_parallel[n] or order.get(n, -1) < place} - {name}
                if is_parallel[name]:
                    around.clear()
                trips = self._count_trips(name, frozenset(around), whole)
                if trips is not None and not trips.names() <= self.sizes:
                    trips = None
                loops[name] = DataLoop(name, tuple(alone) or unknown, trips)
        return loops

    def _count_trips(
        self, name: str, around: frozenset[str], whole: isl_sets.IntegerSet
    ) -> PiecewiseQuasiPolynomial | None:
        """Count the iterations of a loop for given values of those around it; None if unknown."""
        joint = sets.project_onto(whole, around | {name})
        with suppress(CountingError), self.limit(f"the trip count of {name}"):
            return count_within(sets.under_assumptions(joint, assumptions_of(self.kernel)), around)
        return None

    @memoize_method
    def value_bounds(self, name: str) -> tuple[int | None, int | None]:
        """Return the smallest and largest value of a loop variable, whatever sizes and data."""
        line = sets.project_onto(self.joint_domain(frozenset([name])), [name])
        return sets.constant_bounds(line)[name]

    @memoize_method
    def find_bounds(self, within: frozenset[str]) -> isl_sets.Bounds:
        """Return the smallest and largest values of loop variables in their common domain."""
        counted, _ = self.trip_statistics(within)
        known = sets.constant_bounds(self.domain(counted)) if counted else {}
        return {**dict.fromkeys(sorted(within), (None, None)), **known}

    @memoize_method
    def find_length(self, loop: str) -> QuasiPolynomial | None:
        """Return how many iterations a loop has at most; None where data decides."""
        counted, _ = self.trip_statistics(frozenset([loop]))
        if not counted:
            return None
        terms = self.counter.count(self.domain(counted)).terms
        if len(terms) == 1:
            return terms[0].value  # where it is not empty
        low, high = sets.constant_bounds(self.domain(counted))[loop]
        return None if low is None or high is None else QuasiPolynomial.constant(high - low + 1)

    @cached_property
    def defaults(self) -> Mapping[str, QuasiPolynomial]:
        """Values of sizes that need not be given: offsets, and strides that Loopy added."""
        return default_values(self.kernel, self.to_polynomial)

    def _is_known(self, name: str) -> bool:
        return name in self.inames or name in self.sizes

    @cached_property
    def definitions(self) -> dict[str, Any]:
        """Private integers that are other names for expressions in loop variables and sizes."""
        kernel, known = self.kernel, self.inames | self.sizes
        waiting: dict[str, Any] = {}
        readers, writers = kernel.reader_map(), kernel.writer_map()
        for name, variable in kernel.temporary_variables.items():
            if variable.shape or variable.address_space != lp.AddressSpace.PRIVATE:
                continue
            if variable.dtype.numpy_dtype.kind not in "iu" or len(writers.get(name, ())) != 1:
                continue
            (writer,) = (kernel.id_to_insn[i] for i in writers[name])
            around = [kernel.id_to_insn[i].within_inames for i in readers.get(name, ())]
            is_plain = isinstance(writer, lp.Assignment) and not writer.atomicity
            is_always = not writer.predicates and all(writer.within_inames <= w for w in around)
            if is_plain and is_always:
                waiting[name] = writer.expression
        definitions: dict[str, Any] = {}
        while more := {
            name: waiting[name]
            for name in waiting.keys() - definitions.keys()
            if get_dependencies(waiting[name]) <= known | definitions.keys()
        }:
            definitions |= more
        return definitions

    @cached_property
    def local_axes(self) -> dict[str, int]:
        """Local axis of each iname that has one."""
        return _find_axes(self.kernel, LocalInameTag)

    @cached_property
    def group_axes(self) -> dict[str, int]:
        """Group axis of each iname that has one."""
        return _find_axes(self.kernel, GroupInameTag)

    def grid(self, instruction_ids: Iterable[str]) -> Grid:
        """Return the launch geometry that instructions of one device program need."""
        ids = tuple(instruction_ids)
        used = frozenset[str]().union(*(self.kernel.id_to_insn[i].within_inames for i in ids))
        shape: dict[int, int] = {}  # the largest extent of each local axis
        for name in sorted(used & self.local_axes.keys()):
            low, high = self.value_bounds(name)
            axis = self.local_axes[name]
            if low is None or high is None:
                raise UnsupportedExpressionError(
                    f"kernel '{self.kernel.name}': the work-group size along '{name}' (local axis "
                    f"{axis}) is not bounded by a number; split the iname by a constant"
                )
            shape[axis] = max(shape.get(axis, 0), high - low + 1)
        groups = self._find_group_extents(used)
        if groups is None:  # Loopy launches the largest of several extents, or more
            extents = group_counts_of(self.kernel, ids, self.callables)
            simplify = self.counter.simplify_count
            groups = {axis: simplify(from_isl_count(size)) for axis, size in extents.items()}
        return Grid(groups=groups, items=shape)

    def _find_group_extents(
        self, used: frozenset[str]
    ) -> dict[int, PiecewiseQuasiPolynomial] | None:
        """Return the extent of each group axis, if all inames along it agree on it."""
        extents: dict[int, PiecewiseQuasiPolynomial] = {}
        for name in sorted(used & self.group_axes.keys()):
            extent = self._count_factors(frozenset([name]))
            if extent is None or extent.as_polynomial() is None:
                return None
            if extents.setdefault(self.group_axes[name], extent) != extent:
                return None
        return extents

    @memoize_method
    def domain(self, within: frozenset[str]) -> Any:
        """Return the set of values of loop variables, none of which data decides."""
        line = sets.project_onto(self.joint_domain(within), within)
        data = [n for n in isl_sets.names_of(line, parameters=True) if n not in self.sizes]
        if not data:
            return line
        without = sets.without_parameters(line, data)
        if without is None or within & self.data_loops.keys():
            raise DataDependentControlFlowError(
                f"kernel '{self.kernel.name}': which values the loops {', '.join(sorted(within))} "
                f"take together depends on {', '.join(data)}, which is data"
            )
        return without

    @memoize_method
    def bind_loops(self, within: frozenset[str]) -> Mapping[str, QuasiPolynomial]:
        """Return the loop variables whose values others decide: inner loops by outer ones."""
        counted, _ = self.trip_statistics(within)
        loops = counted.difference(self.local_axes, self.group_axes)
        loops = sorted(loops, key=lambda name: (-self._loop_order.get(name, -1), name))
        hull = sets.project_onto(self.joint_domain(counted).affine_hull(), counted)
        values = sets.solve_dimensions(hull, loops)
        known = self.inames | self.sizes
        return {name: value for name, value in values.items() if value.names() <= known}

    def with_known_quotients(
        self, within: frozenset[str], expression: QuasiPolynomial
    ) -> QuasiPolynomial:
        """Replace floors of quotients by size parameters that have one value for all loops."""

        def replace(atom: Atom) -> QuasiPolynomial | None:
            values = None
            if isinstance(atom, affine.ParametricFloor):
                values = self._quotients(within, atom)
            if values is None or len(values) > 1:
                return None
            return QuasiPolynomial.constant(values[0][0] if values else 0)

        return expression.map_atoms(replace)

    @memoize_method
    def _quotients(
        self, within: frozenset[str], floor: affine.ParametricFloor
    ) -> list[tuple[int, isl_sets.IntegerSet]] | None:
        assumptions = self.counter.context.assumptions
        return quotients(self.domain(within), floor.numerator, floor.divisor, assumptions)

    @memoize_method
    def joint_domain(self, within: frozenset[str]) -> Any:
        """Return the set in which Loopy has the loops, with others that are together with them."""
        if len(self.kernel.domains) == 1 and within:
            return domains_of(self.kernel)[0]
        return domain_of(self.kernel, within)

    def trip_statistics(
        self, within: frozenset[str]
    ) -> tuple[frozenset[str], PiecewiseQuasiPolynomial]:
        """Split off the loops whose values data decides."""
        split = within & self.data_loops.keys() if self.data_loops else None
        if not split:
            return within, ONE_COUNT
        factor = ONE_COUNT
        for name in sorted(split):
            loop = self.data_loops[name]
            trips = loop.trips
            if trips is None:
                given = self.statistics.trip_count(name)
                if given is None:
                    raise DataDependentControlFlowError(
                        f"kernel '{self.kernel.name}': the trip count of the loop '{name}' depends "
                        f"on {', '.join(loop.reads)}, which is data"
                    )
                trips = ONE_COUNT.scale(given)
            factor = factor * trips
        return within - split, factor

    def predicate_conditions(self, instruction: Any) -> tuple[tuple[Case, ...], Number]:
        """Return the affine predicates of an instruction, and the probability of the others."""
        cases, others = self.predicates(instruction)
        factor: Number = 1
        for predicate in others:
            probability = self.statistics.probability(predicate, instruction.id)
            if probability is None:
                self.statistics.require(predicate, instruction.id)
            factor *= 1 if probability is None else probability
        return cases, factor

    def predicates(self, instruction: Any) -> tuple[tuple[Case, ...], list[Any]]:
        """Return the affine predicates of an instruction, and the others as they are written."""
        predicates = sorted(instruction.predicates, key=str)
        found = [affine.try_affine(self.to_condition, predicate) for predicate in predicates]
        cases = (Case(alternatives=part, holds=True) for part in found if part is not None)
        others = [test for test, part in zip(predicates, found, strict=True) if part is None]
        return tuple(cases), others

    def find_points(self, within: frozenset[str], cases: Sequence[Case | FirstIteration]) -> Any:
        """Return the points of the loops at which all cases hold, all iterations of them."""
        result = self.domain(within)
        for case in cases:
            if isinstance(case, Case):
                holding = sets.where_holds(result, case.alternatives)
                result = holding if case.holds else sets.union([result]) - holding
        return result

    def executions(
        self, within: frozenset[str], cases: tuple[Case | FirstIteration, ...], grid: Grid
    ) -> PiecewiseQuasiPolynomial:
        """Count how often all work items of a launch together execute something."""
        used = {self.local_axes.get(name) for name in within}
        redundant = prod(size for axis, size in grid.items.items() if axis not in used)
        return self.times_groups(self._count_points(within, cases).scale(redundant), within, grid)

    def times_groups(
        self, count: PiecewiseQuasiPolynomial, within: Iterable[str], grid: Grid
    ) -> PiecewiseQuasiPolynomial:
        """Multiply a count by the groups along the axes that loop variables do not use."""
        used = {self.group_axes.get(name) for name in within}
        others = (size for axis, size in grid.groups.items() if axis not in used)
        return PiecewiseQuasiPolynomial.product((count, *others))

    @memoize_method
    def _count_points(
        self, within: frozenset[str], cases: tuple[Case | FirstIteration, ...]
    ) -> PiecewiseQuasiPolynomial:
        within, factor = self.trip_statistics(within)
        first = next((c for c in cases if isinstance(c, FirstIteration)), None)
        conditions = tuple(c for c in cases if isinstance(c, Case))
        kept = within if first is None else within - first.loops
        if first is not None and first.is_speculated:
            within = kept | {first.outermost}
            conditions = tuple(c for c in conditions if not c.names & first.loops)
        count = None if conditions else self._count_factors(within, kept)
        if count is None:
            executed = sets.project_onto(self.find_points(within, conditions), kept)
            count = self.counter.count(executed)
        return count * factor

    def factor_domain(self, within: frozenset[str]) -> FactoredDomain | None:
        """Return the domain of which the values of some loop variables are a projection."""
        whole = self.joint_domain(within)
        key = id(whole)  # Loopy gives one object for all loops of the same domains
        if key not in self._factored:
            is_known = self.sizes.issuperset(isl_sets.names_of(whole, parameters=True))
            factored = FactoredDomain.of(whole, self.counter.context) if is_known else None
            self._factored[key] = whole, factored
        return self._factored[key][1]

    def _count_factors(
        self, within: frozenset[str], onto: frozenset[str] | None = None
    ) -> PiecewiseQuasiPolynomial | None:
        """Count the values of loop variables, or of some that occur with any of the others."""
        if not within:
            return ONE_COUNT
        factored = self.factor_domain(within)
        factors = None if factored is None else factored.onto(within if onto is None else onto)
        return None if factors is None else self.counter.count_product(factors)


def _find_axes(kernel: Any, tag_class: type) -> dict[str, int]:
    tags = ((name, tag) for name, iname in kernel.inames.items() for tag in iname.tags)
    return {name: tag.axis for name, tag in tags if isinstance(tag, tag_class)}
