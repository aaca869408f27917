"""Elements of its arrays that a kernel addresses: how far each subscript goes.

isl finds the ends of a subscript over the loops and affine conditions around it; what else bounds
it is left out, and its range is marked as not exact. An element of an integer array stands for any
number from the smallest to the largest of its array, the same one wherever it is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import permutations
from typing import Any

import loopy as lp
import numpy as np
from loopy.diagnostic import LoopyError
from loopy.symbolic import get_dependencies, simplify_via_aff
from numpy.typing import NDArray
from pymbolic import evaluate
from pymbolic.primitives import Min, Variable

from countperf.counting.accesses import (
    ArrayAccess,
    Conditions,
    accesses_of,
    names_in_layouts,
    offset_of,
)
from countperf.counting.expression_types import name_of, type_of
from countperf.counting.frontend.loopy_patches import forbid_questions
from countperf.counting.frontend.schedule import inline_callees, preprocess_unit
from countperf.errors import CountingError, option
from countperf.sizes import Sizes
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.affine import NotAffineError, ToCondition, ToQuasiPolynomial
from countperf.symbolic.kernel_sets import domain_of
from countperf.symbolic.quasipolynomial import ZERO, QuasiPolynomial
from countperf.symbolic.sets import extremes, fix_parameters

_OPERATIONS = 2_000_000  # of isl for one subscript, a second or so; beyond, its ends are not known
_INT = np.dtype(np.int32)  # in which C computes at least
_ROUNDS = 200
_SOME_ROW = (3, 10)  # the elements around a row, by which it is told from other loops

_REFUSALS = (CountingError, NotAffineError, LoopyError)

Interval = tuple[int, int]
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class IndexRange:
    """Smallest and largest value of a combination of subscripts."""

    low: int
    high: int  # included
    is_exact: bool  # whether both are reached; else the values lie between them
    access: str  # the access with the largest value, for messages: ``store b[i]``


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """Range of the elements of an integer array."""

    low: int
    high: int  # included
    bounds_loops: bool  # whether elements bound loops: they should not fall, then
    rows: str = ""  # loop from an element to the one behind it, as over rows of CSR; else empty


@dataclass
class AddressedElements:
    """Ranges of the subscripts of a kernel's arrays."""

    t_unit: Any

    @cached_property
    def kernel(self) -> Any:
        """The kernel, preprocessed, with its callees in it; None if Loopy does not do that."""
        with suppress(CountingError), forbid_questions():
            unit = inline_callees(self.t_unit)
            kernel = unit.default_entrypoint
            if kernel.state < lp.KernelState.PREPROCESSED:
                kernel = preprocess_unit(unit).default_entrypoint
            return kernel
        return None

    @cached_property
    def copied_bounds(self) -> tuple[str, ...]:
        """Private variables that bound loops and that Loopy copies wrongly (its issue 77)."""
        if self.kernel is None:
            return ()
        variables = self.kernel.temporary_variables
        names = sorted(self.kernel.all_params() & variables.keys())
        return tuple(name for name in names if variables[name].shape)

    @cached_property
    def _collected(self) -> tuple[dict[str, list[ArrayAccess]], set[str]]:
        """All accesses by array, and arrays with accesses of which nothing can be read."""
        opaque: set[str] = set()
        by_array: dict[str, list[ArrayAccess]] = {}
        for access in accesses_of(self.kernel, opaque):
            by_array.setdefault(access.array, []).append(access)
        return by_array, opaque

    def ranges(
        self,
        array: str,
        weights: Sequence[Sequence[int]],
        values: Mapping[str, int],
        *,
        fixed: Mapping[int, int] | None = None,
        offset: int = 0,
    ) -> tuple[IndexRange, ...] | None:
        """Find the ranges of weighted sums of an array's subscripts; None if data decides them."""
        if self.kernel is None or array in self._collected[1]:
            return None
        subscripts = Subscripts(self.kernel, values, None)
        parts: list[list[IndexRange]] = []
        for access in self._collected[0].get(array, []):
            wanted = [[1]] * len(weights) if access.is_flat else weights
            try:
                ends, region = subscripts.follow(access, access.index, wanted, fixed)
            except _REFUSALS:
                return None
            parts.append(
                [IndexRange(a + offset, b + offset, region.is_exact, access.text) for a, b in ends]
            )
        return tuple(_join_ranges(some) for some in zip(*filter(None, parts), strict=True))

    def describe_outside(
        self, sizes: Sizes, shapes: Mapping[str, Sequence[int]], ranges: Mapping[str, Interval]
    ) -> str:
        """Say which access may leave its array by data, and what helps; nothing if none may."""
        shapes = {**self.shapes_of_temporaries(sizes), **shapes}
        for array, accesses in self._collected[0].items():
            if (shape := shapes.get(array)) is None:
                continue
            shaped = [access for access in accesses if access.has_axes_of(shape)]
            if len(shaped) == len(accesses):
                known = self.ranges(array, np.eye(len(shape), dtype=int).tolist(), sizes)
                if known is not None and all(one.is_exact for one in known):
                    continue
            subscripts = Subscripts(self.kernel, sizes, ranges, checks_types=True)
            for access in shaped:
                if outside := _describe_access(subscripts, access, shape):
                    return outside
        return ""

    def shapes_of_temporaries(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the arrays that the kernel allocates itself, at some sizes."""
        return {
            name: tuple(int(evaluate(extent, dict(sizes))) for extent in variable.shape)
            for name, variable in self.kernel.temporary_variables.items()
            if isinstance(variable.shape, tuple)
        }

    def size_arguments(self) -> frozenset[str]:
        """Return the scalar arguments that decide loops, shapes, conditions or subscripts."""
        kernel = self.kernel
        variables = [v for v in kernel.args if hasattr(v, "dim_tags")]
        variables += kernel.temporary_variables.values()
        deciding = [*map(Variable, kernel.all_params() | names_in_layouts(variables))]
        deciding += map(offset_of, variables)
        for access in accesses_of(kernel):
            deciding += [*access.index, *(condition for condition, _ in access.conditions)]
        return frozenset(_find_names_behind(kernel, deciding) & {*kernel.arg_dict})

    def index_limits(
        self, sizes: Sizes, shapes: Mapping[str, Sequence[int]], contents: Mapping[str, Array]
    ) -> dict[str, IndexLimits]:
        """Find limits of elements that are not given, with which no subscript leaves its array."""
        kernel = self.kernel
        shapes = {**self.shapes_of_temporaries(sizes), **shapes}
        missing = {arg.name for arg in kernel.args if hasattr(arg, "dim_tags")} - {*contents}
        integers = (name for name in missing if type_of(kernel, name).kind in "iu")
        ranges = {**dict.fromkeys(integers, (0, 0)), **ranges_of(contents)}
        data = Subscripts(kernel, sizes, ranges)
        waiting: list[_Waiting] = []
        loop_arrays: set[str] = set()
        for access in accesses_of(kernel):
            shape = shapes.get(access.array, ())
            if not access.has_axes_of(shape):
                continue
            for index, extent in zip(access.index, shape, strict=True):
                try:
                    _, region = data.follow(access, [index])
                except _REFUSALS as error:
                    if _find_names_behind(kernel, [index]) & missing:
                        message = f"{access.text} has a subscript that is computed"
                        raise CountingError(message) from error
                    continue  # nothing that is made up decides it
                loop_arrays |= region.loop_arrays
                if sources := region.deciding & missing:
                    waiting.append((access, index, extent, sources))
        for _, _, extent, sources in waiting:
            ranges |= {name: (0, max(extent, ranges[name][1])) for name in sources}
        for _ in range(_ROUNDS):
            if not [subscript for subscript in waiting if _adapt(data, ranges, subscript)]:
                break
        else:
            text = waiting[0][0].text
            raise CountingError(f"{text}: no elements keep its subscript in the array")
        rows = _find_rows(data)
        return {
            name: IndexLimits(*ranges[name], name in loop_arrays, rows.get(name, ""))
            for *_, sources in waiting
            for name in sorted(sources)
        }


def ranges_of(contents: Mapping[str, Array]) -> dict[str, Interval]:
    """Return the smallest and largest element of each integer array; of an empty one, 0 and -1."""
    return {
        name: (int(array.min()), int(array.max())) if array.size else (0, -1)
        for name, array in contents.items()
        if array.dtype.kind in "iu"
    }


def _join_ranges(parts: Sequence[IndexRange]) -> IndexRange:
    highest = max(parts, key=lambda part: part.high)
    lowest = min(parts, key=lambda part: part.low)
    access = lowest.access if lowest.low < 0 else highest.access
    return IndexRange(lowest.low, highest.high, lowest.is_exact and highest.is_exact, access)


def _describe_access(subscripts: Subscripts, access: ArrayAccess, shape: Sequence[int]) -> str:
    """Say that an access may leave its array, and what helps; nothing if it may not."""
    mend = f"or time it with {option('unchecked', 'True')}, if you know that it stays inside"
    without_data = replace(subscripts, ranges=None, checks_types=False)
    for axis, (index, extent) in enumerate(zip(access.index, shape, strict=True)):
        inside = f"axis {axis} of its array goes from 0 to {extent - 1}"
        with suppress(*_REFUSALS):
            if _is_inside(without_data.follow(access, [index])[0], extent):
                continue
        try:
            ends, region = subscripts.follow(access, [index])
        except _REFUSALS as error:
            reason = f"{error} is not followed" if isinstance(error, NotAffineError) else error
            return (
                f"{access.text} may leave its array, and {inside}: {reason}; nothing was launched:"
                " compute the subscript of loop variables, sizes and integer arguments that the"
                " kernel does not write, by sums, products, quotients and remainders by sizes,"
                f" minima and maxima, {mend}"
            )
        if _is_inside(ends, extent):
            continue
        sources = " and ".join(map(repr, sorted(region.deciding)))
        other = f"pass other elements of {sources}" if sources else "pass other sizes"
        ((low, high),) = ends
        return (
            f"{access.text} may leave its array: its subscripts go from {low} to {high}, as far as"
            f" the smallest and largest elements of {sources or 'no array'} tell, and {inside};"
            f" nothing was launched: {other}, {mend}"
        )
    return ""


def _is_inside(ends: Sequence[Interval], extent: int) -> bool:
    """Return whether a subscript stays in its axis; it does if it is never computed."""
    return all(low >= 0 and high < extent for low, high in ends)


@dataclass(frozen=True)
class Subscripts:
    """Subscripts of a kernel at given sizes, and at ranges of the elements of integer arrays."""

    kernel: Any
    sizes: Mapping[str, int]
    ranges: Mapping[str, Interval] | None  # if None, no private variables are followed either
    checks_types: bool = False  # whether numbers that may leave their types are refused

    @cached_property
    def least(self) -> int:
        """The least number with which C computes as mathematics does."""
        names = (*self.kernel.arg_dict, *self.kernel.temporary_variables)
        has_unsigned = any(type_of(self.kernel, name).kind == "u" for name in names)
        return 0 if has_unsigned else int(np.iinfo(_INT).min)

    def follow(
        self,
        access: ArrayAccess,
        index: Sequence[Any],
        weights: Sequence[Sequence[int]] = ((1,),),
        fixed: Mapping[int, int] | None = None,
    ) -> tuple[Sequence[Interval], Region]:
        """Return the ends of weighted sums of subscripts, if executed, and what decides them."""
        with isl_sets.limit_operations(_OPERATIONS, f"the subscript of {access.text}"):
            region = Region(self, access.within, access.instruction, access.conditions)
            parts = region.read(index)
            if access.is_flat and fixed:
                raise CountingError(f"{access.text} does not tell its axes apart")
            zero = [parts[axis] - position for axis, position in (fixed or {}).items()]
            points = sets.restrict(region.points, zero=zero) if zero else region.points
            sums = [
                sum((part * factor for part, factor in zip(parts, some, strict=True)), ZERO)
                for some in weights
            ]
            return extremes(points, sums) or (), region


class Region(ToQuasiPolynomial):
    """The points of some loops, with the elements that expressions there consist of."""

    def __init__(
        self,
        data: Subscripts,
        within: frozenset[str],
        reader: str,
        conditions: Conditions = (),
        around: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(within.__contains__)
        self.elements: dict[Any, QuasiPolynomial] = {}
        self.deciding: set[str] = set()  # the arrays that they are in
        self._data = data
        self._reader = ""  # Loopy writes what bounds a loop before it enters the loop
        self._within = within | around
        self._symbols = 0
        domain = sets.project_onto(domain_of(data.kernel, within), within)
        self.points = sets.at_values(domain, data.sizes)
        _, unknown = fix_parameters(domain, data.sizes)
        for name in unknown:
            with suppress(*_REFUSALS):  # without it, the loop has no bound that is known
                bound = QuasiPolynomial.name(name) - self._read_private(name)
                self.points = sets.restrict(self.points, zero=[bound])
        self.is_exact = not unknown  # whether all points are reached
        self._reader = reader
        self.loop_arrays = frozenset(self.deciding)
        for condition, holds in conditions:
            try:
                followed = ToCondition(self)(condition)  # which may add points
                holding = sets.where_holds(self.points, followed)
                self.points = holding if holds else self.points - holding
            except _REFUSALS:
                self.is_exact = False

    def read(self, expressions: Sequence[Any]) -> list[QuasiPolynomial]:
        """Return expressions as quasi-polynomials, and note which arrays decide them."""
        self.deciding.clear()
        values = list(map(self, expressions))
        if any(value.names() & self._within for value in values):
            self.deciding |= self.loop_arrays
        return values

    def rec(self, expr: Any, /, *_: Any, **__: Any) -> QuasiPolynomial:
        """Refuse what may leave the type in which C computes it."""
        return self._check_type(super().rec(expr), expr)

    def map_foreign(self, expr: Any, /, *_: Any, **__: Any) -> QuasiPolynomial:
        """Take numbers, but unsigned ones, with which C computes otherwise."""
        if self._data.checks_types and isinstance(expr, np.unsignedinteger):
            raise NotAffineError(expr)
        return super().map_foreign(expr)

    def map_variable(self, expr: Any) -> QuasiPolynomial:
        """Take a loop variable, a size, or what is written to a private variable."""
        if self.is_known(expr.name):
            return QuasiPolynomial.name(expr.name)
        if expr.name in self._data.sizes:
            return QuasiPolynomial.constant(self._data.sizes[expr.name])
        return self._read_private(expr.name)

    def map_subscript(self, expr: Any) -> QuasiPolynomial:
        """Take an element of an argument that the kernel does not write."""
        name = expr.aggregate.name
        self.deciding.add(name)
        if expr not in self.elements:
            if name in self._data.kernel.writer_map():
                raise CountingError(f"the kernel writes {name!r}")
            if self._data.ranges is None or name not in self._data.ranges:
                raise CountingError(f"{name!r} is no integer argument")
            self.elements[expr] = self._symbol(*self._data.ranges[name])
        return self.elements[expr]

    def map_sum(self, expr: Any) -> QuasiPolynomial:
        """Add one after the other, as C does."""
        parts = map(self.rec, expr.children)
        return reduce(lambda one, other: self._check_type(one + other, expr), parts)

    def map_product(self, expr: Any) -> QuasiPolynomial:
        """Multiply; a product of two that vary is any number between its ends."""

        def multiply(one: QuasiPolynomial, other: QuasiPolynomial) -> QuasiPolynomial:
            product = one * other
            if not product.is_affine:
                corners = [a * b for a in self._ends(one) for b in self._ends(other)]
                self.is_exact = False
                product = self._symbol(min(corners), max(corners))
            return self._check_type(product, expr)

        return reduce(multiply, map(self.rec, expr.children))

    def map_type_cast(self, expr: Any) -> QuasiPolynomial:
        """Keep numbers that the type holds."""
        return self._check_type(self.rec(expr.child), expr, np.dtype(expr.type.numpy_dtype))

    def map_min(self, expr: Any) -> QuasiPolynomial:
        """Choose the least, or the largest."""
        return self._choose(expr.children, 1 if isinstance(expr, Min) else -1)

    map_max = map_min

    def map_call(self, expr: Any) -> QuasiPolynomial:
        """Choose, if the function is a minimum or maximum."""
        sign = {"min": 1, "max": -1}.get(name_of(expr.function))
        if sign is None:
            raise NotAffineError(expr)
        return self._choose(expr.parameters, sign)

    def _choose(self, parts: Sequence[Any], sign: int) -> QuasiPolynomial:
        values = [self.rec(part) for part in parts]
        chosen = self._name()
        chosen_points: list[Any] = []
        for value in values:
            beyond = [(other - value) * sign for other in values]
            part = sets.restrict(self.points, zero=[chosen - value], nonnegative=beyond)
            chosen_points.append(part)
        self.points = sets.union(chosen_points)
        return chosen

    def _read_private(self, name: str) -> QuasiPolynomial:
        """Return the value of a private variable, if it is written once before it is read."""
        kernel = self._data.kernel
        variable = kernel.temporary_variables.get(name)
        writers = [kernel.id_to_insn[writer] for writer in kernel.writer_map().get(name, ())]
        if self._data.ranges is None or variable is None or variable.shape or len(writers) != 1:
            raise CountingError(f"the value of {name!r} is not a single one")
        if variable.address_space not in (lp.AddressSpace.PRIVATE, lp.auto):
            raise CountingError(f"other work items may write {name!r}")
        (writer,) = writers
        is_before = not self._reader or writer.id in kernel.recursive_insn_dep_map()[self._reader]
        is_always = isinstance(writer, lp.Assignment) and not writer.predicates
        if not (is_before and is_always and writer.within_inames <= self._within):
            raise CountingError(f"{name!r} may be read before it is written")
        outer, self._reader = self._reader, writer.id
        try:
            value = self.rec(writer.expression)
        finally:
            self._reader = outer
        return self._check_type(value, name, type_of(kernel, name))

    def _name(self) -> QuasiPolynomial:
        self._symbols += 1
        return QuasiPolynomial.name(f"_v{self._symbols}")

    def _symbol(self, low: int, high: int) -> QuasiPolynomial:
        symbol = self._name()
        self.points = sets.restrict(self.points, nonnegative=[symbol - low, high - symbol])
        return symbol

    def _ends(self, value: QuasiPolynomial) -> Interval:
        ends = extremes(self.points, [value])
        return (0, 0) if ends is None else ends[0]

    def _check_type(
        self, value: QuasiPolynomial, what: object, dtype: np.dtype[Any] = _INT
    ) -> QuasiPolynomial:
        if dtype.kind not in ("i" if self._data.checks_types else "iu"):
            raise CountingError(f"{what} is no signed integer")
        if self._data.checks_types:
            low, high = self._ends(value)
            held = np.iinfo(dtype)
            if low < max(int(held.min), self._data.least) or high > held.max:
                raise CountingError(f"{what} may leave the range of its type")
        return value


_Waiting = tuple[ArrayAccess, Any, int, set[str]]  # subscript, extent, deciding index arrays


def _adapt(data: Subscripts, ranges: dict[str, Interval], subscript: _Waiting) -> bool:
    """Change ranges of elements if a subscript may lie outside; return whether it may."""
    access, index, extent, sources = subscript
    ends, _ = data.follow(access, [index])
    if _is_inside(ends, extent):
        return False
    ((low, high),) = ends
    for name in sorted(sources):
        first, last = ranges[name]
        if low < 0:
            first += 1
        if high >= extent:
            last = min(last - 1, max(first, (last * extent) // (high + 1)))
        if first > last:
            raise CountingError(
                f"{access.text}: its subscript goes from {low} to {high}, and its axis up to"
                f" {extent - 1}, whatever the elements of {name!r} are"
            )
        ranges[name] = first, last
    return True


def _find_rows(subscripts: Subscripts) -> dict[str, str]:
    """Return the loops that go from an element of an array to the next one, by the array."""
    rows: dict[str, str] = {}
    kernel = subscripts.kernel
    data = Subscripts(kernel, subscripts.sizes, dict.fromkeys(subscripts.ranges or (), _SOME_ROW))
    inames = kernel.all_inames()
    for iname in sorted(inames, reverse=True):
        with suppress(*_REFUSALS):
            region = Region(data, frozenset([iname]), "", around=frozenset(inames))
            for first, last in permutations(region.elements, 2):
                row = zip((first, last), _SOME_ROW, strict=True)
                places = [region.elements[element] - place for element, place in row]
                points = sets.restrict(region.points, zero=places)
                ends = extremes(points, [QuasiPolynomial.name(iname)])
                length = 0 if ends is None else ends[0][1] - ends[0][0] + 1
                if (
                    length == _SOME_ROW[1] - _SOME_ROW[0]
                    and first.aggregate == last.aggregate
                    and len(first.index_tuple) == 1
                    and simplify_via_aff(last.index_tuple[0] - first.index_tuple[0]) == 1
                ):
                    rows[first.aggregate.name] = iname
    return rows


def _find_names_behind(kernel: Any, expressions: Iterable[Any]) -> set[str]:
    """Return the names in expressions, and in what is written to the kernel's own variables."""
    waiting = {name for expression in expressions for name in get_dependencies(expression)}
    names: set[str] = set()
    while waiting:
        names.add(name := waiting.pop())
        own = kernel.writer_map().get(name, ()) if name in kernel.temporary_variables else ()
        for writer in own:
            waiting |= get_dependencies(getattr(kernel.id_to_insn[writer], "expression", 0)) - names
    return names
