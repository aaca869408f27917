"""Classes of memory accesses: strides along local axis 0, and the use of what lies between.

The stride is that of the flattened address. Where lanes do not step evenly, steps where a floor of
a quotient by a size parameter changes (the end of a row in ``a[i, (j + 2) % m]``) are left out.
Lanes that access the element of the lane before them, or one beside that (``a[j // 2]``), are
counted apart, as ``uniform`` and as ``stride1``; else the step of more than half of the lanes
decides for all; else each step counts apart. What has no class by these rules counts as the
coarsest one, marked as not exact, unless the caller states a class; where what data reads leaves
a strided access without a class, it is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

from loopy.symbolic import LinearSubscript, get_dependencies

from countperf.counting import accesses
from countperf.counting.domains import Domains
from countperf.counting.keys import Case, FirstIteration, Grid, MemoryAccess
from countperf.counting.scopes import AddressStep, are_neighbors, steps_along
from countperf.counting.statistics import ACCESS_CLASSES
from countperf.errors import (
    CountingError,
    DataDependentControlFlowError,
    UncountableSetError,
    UnsupportedExpressionError,
)
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.affine import ALWAYS, Condition, ParametricFloor
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.isl_sets import IntegerSet
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import ZERO, Atom, Monomial, Number, QuasiPolynomial
from countperf.symbolic.sets import quotients

Digits = tuple[QuasiPolynomial, ...]
Pair = tuple[PiecewiseQuasiPolynomial, PiecewiseQuasiPolynomial, Counter]
Cases = tuple[Case | FirstIteration, ...]


@dataclass(frozen=True, slots=True)
class AccessCount:
    """Executions of an access, and the class that it belongs to."""

    access: MemoryAccess  # what is accessed
    # utilization classes and where in the parameters they apply; empty for local memory
    classes: tuple[accesses.UtilizationClass, ...]
    executions: PiecewiseQuasiPolynomial  # executions by all work items
    # why they or the classes are not exact; empty if they are
    reasons: frozenset[str] = frozenset()


class Occurrence(NamedTuple):
    """Executions of an access under the same conditions, in one device program."""

    executions: PiecewiseQuasiPolynomial
    cases: Cases
    grid: Grid
    number: Number


AddressIterations = tuple[accesses.Address, frozenset[str], Cases]  # with the loops around it
Occurrences = Mapping[tuple[MemoryAccess, frozenset[str]], Sequence[Occurrence]]


class _NoStrideError(UnsupportedExpressionError):
    """An address that reads no data changes by no rule."""


class _Stride(NamedTuple):
    """A stride, by subscript where it is known, and the lanes that make it."""

    flat: QuasiPolynomial
    digits: Digits | None
    where: Condition


def reads_data(access: MemoryAccess, domains: Domains) -> bool:
    """Return whether data decides the address of an access."""
    known = domains.inames | domains.sizes | domains.definitions.keys()
    parts = (part.index if isinstance(part, LinearSubscript) else part for part in access.index)
    return any(not get_dependencies(part) <= known for part in parts)


class Footprints:
    """Footprints of arrays and the utilization classes that they decide, each found once."""

    def __init__(
        self, domains: Domains, occurrences: Occurrences, opaque: Mapping[tuple[str, str], str]
    ) -> None:
        self.domains = domains
        self.occurrences = occurrences
        self.opaque = opaque  # instructions without a counting rule, by what they may access
        self._cells: dict[tuple[str, str], tuple[Any, accesses.Layout, bool]] = {}
        self._classes: dict[Any, tuple[accesses.UtilizationClass, ...]] = {}

    def count_accesses(self, reasons: Mapping[Any, frozenset[str]]) -> Iterator[AccessCount]:
        """Yield the accesses of a kernel by class."""
        domains, statistics = self.domains, self.domains.statistics
        for (access, within), parts in self.occurrences.items():
            executions = PiecewiseQuasiPolynomial.sum([part.executions for part in parts])
            if not executions:
                continue
            why = reasons.get((access, within), frozenset[str]())
            address = domains.address(access)
            if access.address_space != "global":
                yield AccessCount(access, (), executions, why)
                continue
            if address is None and reads_data(access, domains):
                yield self._count_through_data(access, executions, why)
                continue
            layout = domains.layout_of(access)
            try:
                if address is None:
                    raise self._refuse_address(access, "is no quasi-polynomial of loops and sizes")
                strides = self._find_strides(access, within, address)
                classes = [self.classes(access, along) for along in strides]
            except (UnsupportedExpressionError, DataDependentControlFlowError) as error:
                if statistics.pattern_of(access.array, access.text) is not None:
                    yield self._count_through_data(access, executions, why)
                elif isinstance(error, _NoStrideError):
                    coarse = accesses.class_without_neighbors(None, str(error))
                    yield AccessCount(access, (coarse,), executions, why)
                else:
                    raise
                continue
            if layout.assumed and any(along.flat for along in strides):
                why |= {layout.assumed}
            for stride, utilizations in zip(strides, classes, strict=True):
                number = executions
                if stride.where != ALWAYS:
                    case = Case(alternatives=stride.where, holds=True)
                    number = PiecewiseQuasiPolynomial.sum(
                        domains.executions(within, (*p.cases, case), p.grid).scale(p.number)
                        for p in parts
                    )
                if number:
                    yield AccessCount(access, utilizations, number, why)

    def _count_through_data(
        self, access: MemoryAccess, executions: PiecewiseQuasiPolynomial, reasons: frozenset[str]
    ) -> AccessCount:
        """Return the count of an access whose class the caller knows, or which is ``indirect``."""
        stated = self.domains.statistics.pattern_of(access.array, access.text)
        if stated:
            reasons = reasons | {f"the caller's access pattern for '{stated[1]}'"}
        name = stated[0] if stated else "indirect"
        return AccessCount(access, (accesses.UtilizationClass(name),), executions, reasons)

    def _refuse_address(self, access: MemoryAccess, what: str) -> UnsupportedExpressionError:
        """Return why an access has no class of its own, with the way out."""
        return _NoStrideError(
            f"the address of {access.text} {what}, and counts as an element of each stretch of "
            f"memory; state its class, statistics={{{access.array!r}: 'stride1'}} (or "
            f"{', '.join(ACCESS_CLASSES[:4])} ...)"
        )

    def _find_strides(
        self, access: MemoryAccess, within: frozenset[str], address: accesses.Address
    ) -> list[_Stride]:
        """Return the strides of an access along local axis 0, with the lanes that have them."""
        domains = self.domains
        lanes = [name for name in sorted(within) if domains.local_axes.get(name) == 0]
        if not lanes:
            return [_Stride(ZERO, (ZERO,) * len(address.index), ALWAYS)]
        lane = lanes[0]
        address = address.with_values(domains.bind_loops(within))
        bounds: isl_sets.Bounds = dict.fromkeys(within, (None, None))
        counted, _ = domains.trip_statistics(within)
        if any(lane in part.names() for part in address.index if not part.is_linear):
            bounds = domains.find_bounds(within)
        steps_of_axes = [accesses.step_along(part, lane, bounds) for part in address.index]
        digits = tuple(step for step in steps_of_axes if step is not None)
        if len(digits) == len(steps_of_axes):
            return [_Stride(address.flatten_subscript(digits), digits, ALWAYS)]
        flat = domains.with_known_quotients(counted, address.flat)
        steps = steps_along(flat, lane, bounds, domains.domain(counted))
        strides = _select_countable_steps(steps, counted | domains.sizes)
        if not strides:
            what = f"does not change evenly along local axis 0 ('{lane}')"
            raise self._refuse_address(access, what)
        layout = domains.layout_of(access)
        return [_Stride(flat, digits_of(flat, layout), where) for flat, where in strides]

    def classes(
        self, access: MemoryAccess, stride: _Stride
    ) -> tuple[accesses.UtilizationClass, ...]:
        """Return the classes of an access to global memory."""
        flat = stride.flat
        number = abs(int(flat.constant_term)) if flat.is_constant else None
        if number in (0, 1):
            return (accesses.UtilizationClass("stride1" if number else "uniform"),)
        key = (access.array, access.direction, flat, stride.digits)
        if key not in self._classes:
            self._classes[key] = self._classify_by_footprint(access, stride, number)
        return self._classes[key]

    def _classify_by_footprint(
        self, access: MemoryAccess, stride: _Stride, number: int | None
    ) -> tuple[accesses.UtilizationClass, ...]:
        """Return classes by the footprint; by the access alone, marked, if it is not countable."""
        try:
            with self.domains.limit(f"the footprint of array '{access.array}'"):
                cells, cell_layout, is_flattened = self._find_accessed_cells(access)
                digits = stride.digits
                if cell_layout is not self.domains.layout_of(access):
                    digits = digits_of(stride.flat, cell_layout)
                array = f"kernel '{self.domains.kernel.name}', array '{access.array}'"
                widener = _Widener(array, cell_layout, stride.flat, digits, is_flattened)
                counts = widener.count(cells, self.domains.counter)
                return accesses.utilization_classes(number, *counts)
        except CountingError as error:
            refusals = (UnsupportedExpressionError, DataDependentControlFlowError)
            if isinstance(error, refusals) and not isinstance(error, _NoStrideError):
                raise
            return (accesses.class_without_neighbors(number, str(error)),)

    def _find_accessed_cells(self, access: MemoryAccess) -> tuple[Any, accesses.Layout, bool]:
        """Return the cells accessed in a direction, in which layout, and whether by offset."""
        key = (access.array, access.direction)
        if key not in self._cells:
            addressed = self._find_addresses(access, key)
            if any(address.has_products for address, _, _ in addressed):
                self._cells[key] = self._find_cells_by_strides(access, addressed)
            else:
                accessed = ((address.index, within, cases) for address, within, cases in addressed)
                cells = unite_accessed_cells(accessed, self.domains)
                is_flattened = any(address.is_flattened for address, _, _ in addressed)
                self._cells[key] = cells, self.domains.layout_of(access), is_flattened
        return self._cells[key]

    def _find_cells_by_strides(
        self, access: MemoryAccess, addressed: Sequence[AddressIterations]
    ) -> tuple[Any, accesses.Layout, bool]:
        """Return cells whose subscripts multiply sizes, as ``a[i*n + j]`` does, by the strides."""
        flats = [address.flat for address, _, _ in addressed]
        name = self.domains.kernel.name
        for constants_in_rows in (False, True):
            written = by_strides(flats, self.domains.sizes, constants_in_rows=constants_in_rows)
            if written is None:
                break
            layout, indices = written
            places = ((within, cases) for _, within, cases in addressed)
            accessed = ((i, *place) for i, place in zip(indices, places, strict=True))
            cells = unite_accessed_cells(accessed, self.domains)
            if is_within_rows(cells, layout, self.domains.counter):
                return cells, layout, False
        raise UncountableSetError(
            f"kernel '{name}', array '{access.array}': no exact footprint, since {flats[0]} is not "
            "affine; give the array the axes that its subscripts are made of"
        )

    def _find_addresses(
        self, access: MemoryAccess, key: tuple[str, str]
    ) -> list[AddressIterations]:
        if key in self.opaque:
            why = f"instruction '{self.opaque[key]}', which has no counting rule, may access it too"
            raise self._refuse_footprint(access, why)
        addressed: list[AddressIterations] = []
        data_loops = self.domains.data_loops.keys()
        for (other, within), parts in self.occurrences.items():
            if (other.array, other.direction) != key:
                continue
            if other.component_of != access.component_of:
                why = "its vectors are accessed whole and by components"
                raise self._refuse_footprint(access, why)
            address = self.domains.address(other)
            address = address and address.simplify()
            if (
                reads_data(other, self.domains)
                if address is None
                else any(part.names() & data_loops for part in address.index)
            ):
                raise DataDependentControlFlowError(
                    f"kernel '{self.domains.kernel.name}', array '{access.array}': no footprint, "
                    f"since data decides which elements {other.text} is, so that its strided "
                    f"accesses have no class; pass one, statistics={{{access.array!r}: '4ofn'}}",
                    statistics={access.array: "4ofn"},
                )
            if address is None:
                raise self._refuse_address(other, "is no quasi-polynomial of loops and sizes")
            addressed += [(address, within, cases) for cases in {part.cases for part in parts}]
        if len({address.is_flattened for address, _, _ in addressed}) > 1:
            addressed = [(address.as_flat(), within, cases) for address, within, cases in addressed]
        return addressed

    def _refuse_footprint(self, access: MemoryAccess, why: str) -> UnsupportedExpressionError:
        return UnsupportedExpressionError(
            f"kernel '{self.domains.kernel.name}', array '{access.array}': no footprint, since "
            f"{why}; its strided accesses have no class; state one, "
            f"statistics={{{access.array!r}: '4ofn'}}"
        )


def _select_countable_steps(
    steps: tuple[AddressStep, ...], countable: AbstractSet[str]
) -> list[tuple[QuasiPolynomial, Condition]]:
    """Return the steps that count by the rules of this module, and where; none if none do."""
    if not steps:
        return []
    guards = [guard for step in steps for conditions in step.where for guard in conditions]
    can_split = all(guard.is_affine and guard.names() <= countable for guard in guards)
    are_apart = can_split and are_neighbors(steps)
    if len(steps) == 1 or (are_apart and all(step.change for step in steps)):
        return [(steps[0].change, ALWAYS)]
    if not are_apart and steps[0].share > Fraction(1, 2):
        return [(steps[0].change, ALWAYS)]
    return [(step.change, step.where) for step in steps] if can_split else []


def unite_accessed_cells(
    accessed: Iterable[tuple[Sequence[QuasiPolynomial], frozenset[str], Cases]], domains: Domains
) -> IntegerSet:
    """Return the union of the cells that accesses reach, by functions that tell cells apart."""
    parts = [
        sets.image(part, values)
        for functions, within, cases in accessed
        for executed in [domains.find_points(domains.trip_statistics(within)[0], cases)]
        for part, values in _without_quotients(executed, tuple(functions), domains)
    ]
    return domains.counter.as_one_piece(sets.union(parts))


def _without_quotients(
    executed: IntegerSet, functions: tuple[QuasiPolynomial, ...], domains: Domains
) -> Iterator[tuple[IntegerSet, tuple[QuasiPolynomial, ...]]]:
    """Split a set so that floors of quotients by size parameters have one value on each part."""
    found = (q for f in functions for q in f.floors() if isinstance(q, ParametricFloor))
    quotient = next(found, None)
    if quotient is None:
        yield executed, functions
        return
    assumptions = domains.counter.context.assumptions
    pieces = quotients(executed, quotient.numerator, quotient.divisor, assumptions)
    if pieces is None:
        raise UncountableSetError(
            f"kernel '{domains.kernel.name}': no exact footprint, since {quotient} has more than a "
            "few values"
        )
    for value, part in pieces:
        known: dict[Atom, QuasiPolynomial] = {quotient: QuasiPolynomial.constant(value)}
        replaced = tuple(f.map_atoms(lambda atom, k=known: k.get(atom)) for f in functions)
        yield from _without_quotients(part, replaced, domains)


def digits_of(stride: QuasiPolynomial, layout: accesses.Layout) -> Digits | None:
    """Return how far a stride leads along each axis of an array; None if it cannot be told."""
    result = [QuasiPolynomial()] * len(layout.strides)
    nested = layout.nest_axes()
    if nested is None:
        return None
    for axis in nested[0]:
        step = layout.strides[axis]
        leading = max(step.terms, key=lambda m: sum(e for _, e in m))
        digit = Fraction(stride.terms.get(leading, 0)) / step.terms[leading]
        if digit.denominator != 1:
            return None
        whole = QuasiPolynomial.constant(int(digit))
        result[axis] = whole
        stride = stride - step * whole
    return None if stride else tuple(result)


def by_strides(
    flats: Sequence[QuasiPolynomial], sizes: Container[str], *, constants_in_rows: bool
) -> tuple[accesses.Layout, list[Digits]] | None:
    """Write flattened addresses as subscripts of a layout whose strides are products of sizes."""
    written: list[dict[Monomial, QuasiPolynomial]] = []
    for flat in flats:
        parts: defaultdict[Monomial, QuasiPolynomial] = defaultdict(lambda: ZERO, {(): ZERO})
        constants: list[tuple[Monomial, Number]] = []
        for monomial, value in flat.terms.items():
            of_loops = [factor for factor in monomial if not _is_of(factor[0], sizes)]
            stride = tuple(factor for factor in monomial if _is_of(factor[0], sizes))
            if len(of_loops) > 1 or any(exponent > 1 for _, exponent in of_loops):
                return None
            if not of_loops:
                constants.append((stride, value))
                continue
            parts[stride] += QuasiPolynomial.name(of_loops[0][0]) * value
        for stride, value in constants:
            if constants_in_rows and stride in parts:
                parts[stride] += value
            else:
                parts[()] += QuasiPolynomial({stride: value})
        written.append(parts)
    strides = sorted({stride for parts in written for stride in parts}, key=str)
    distances = tuple(QuasiPolynomial({stride: 1}) for stride in strides)
    layout = accesses.Layout(distances, (None,) * len(strides))
    indices = [tuple(parts.get(stride, ZERO) for stride in strides) for parts in written]
    if not all(digit.is_affine for index in indices for digit in index):
        return None
    return layout, indices


def _is_of(atom: Atom, sizes: Container[str]) -> bool:
    names = [atom] if isinstance(atom, str) else atom.names()
    return all(name in sizes for name in names)


def is_within_rows(cells: IntegerSet, layout: accesses.Layout, counter: Counter) -> bool:
    """Return whether subscripts stay within the rows of a layout, so that cells are distinct."""
    nested = layout.nest_axes()
    if nested is None:
        return False
    names = isl_sets.names_of(cells, parameters=False)
    for axis, extent in zip(nested[0][1:], nested[1][1:], strict=True):
        index = QuasiPolynomial.name(names[axis])
        if extent is None or not extent.is_affine:
            return False
        for outside in (-index - 1, index - extent):
            beyond = sets.restrict(cells, nonnegative=[outside])
            if not sets.under_assumptions(beyond, counter.context.assumptions).is_empty():
                return False
    return True


@dataclass(frozen=True, slots=True)
class _Widener:
    """Counts the cells of a footprint, and those of it with the gaps along the lanes filled in."""

    array: str  # for messages
    layout: accesses.Layout
    stride: QuasiPolynomial
    digits: Digits | None
    is_flattened: bool  # whether cells are offsets

    def count(self, cells: IntegerSet, counter: Counter) -> Pair:
        """Count both, under assumptions that the counter that is returned has."""
        accessed = widened = ZERO_COUNT
        for part in [cells] if self.is_flattened else self._split_arrays(cells):
            more, more_widened, counter = self._count_array(part, counter)
            accessed, widened = accessed + more, widened + more_widened
        return accessed, widened, counter

    def _refuse_stride(self) -> UncountableSetError:
        return UncountableSetError(
            f"{self.array}: no exact utilization for stride {self.stride} in a layout with strides "
            f"({', '.join(map(str, self.layout.strides))}); give the array a compact layout"
        )

    def _split_arrays(self, cells: IntegerSet) -> list[IntegerSet]:
        layout = self.layout
        if not layout.separate:
            return [cells]
        names = isl_sets.names_of(cells, parameters=False)
        extents = [layout.shape[axis] for axis in layout.separate]
        numbers = [range(int(extent.constant_term)) for extent in extents if extent is not None]
        places = [QuasiPolynomial.name(names[axis]) for axis in layout.separate]
        parts = (
            sets.restrict(cells, zero=[x - v for x, v in zip(places, values, strict=True)])
            for values in product(*numbers)
        )
        return [part for part in parts if not part.is_empty()]

    def _count_array(self, cells: IntegerSet, counter: Counter) -> Pair:
        layout = self.layout
        if self.is_flattened or layout.is_numeric:
            if not self.stride.is_affine:
                raise self._refuse_stride()
            counted = cells
            if not self.is_flattened:
                axes = [QuasiPolynomial.name(n) for n in isl_sets.names_of(cells, parameters=False)]
                flat = sum((axis * s for axis, s in zip(axes, layout.strides, strict=True)), ZERO)
                cells = sets.image(cells, [flat])
            widened = counter.as_one_piece(sets.widen_on_line(cells, self.stride))
            return counter.count(counted), counter.count(widened), counter
        nested = layout.nest_axes()
        order, extents = nested or ((), ())
        is_affine = all(extent is not None and extent.is_affine for extent in extents[1:])
        if nested is None or self.digits is None or not is_affine:
            raise self._refuse_stride()
        counter, padding = self._assume_no_overlaps(order, extents, counter)
        steps = [self.digits[axis] for axis in order]
        filled = sets.widen_lexicographically(cells, order, extents, steps)
        if filled is None:
            raise self._refuse_stride()
        widened = counter.count(counter.as_one_piece(filled))
        return counter.count(cells).mark_as_bound(padding), widened, counter

    def _assume_no_overlaps(
        self, order: Sequence[int], extents: Sequence[QuasiPolynomial | None], counter: Counter
    ) -> tuple[Counter, frozenset[str]]:
        """Return a counter that assumes that rows do not overlap, and what it assumes."""
        rows = [(self.layout.shape[a], e) for a, e in zip(order[1:], extents[1:], strict=True)]
        gaps = [extent - shape for shape, extent in rows if shape and extent and shape != extent]
        gaps = [gap for gap in gaps if gap.is_affine and not counter.is_nonnegative(gap)]
        if not gaps:
            return counter, frozenset()
        reasons = frozenset(f"rows do not overlap: {gap} >= 0 is assumed" for gap in gaps)
        return counter.add_assumptions(gaps), reasons
