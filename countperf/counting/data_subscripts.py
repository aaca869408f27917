"""Subscripts that elements of integer arrays decide, bounded by the ranges of these elements.

Each element that is read stands for any number from the smallest to the largest of its array, the
same one wherever it is read again; private variables stand for what is written to them. Then isl
finds the ends of a subscript, also of rows from one element to the next (CSR), and under conditions
on elements. Numbers that might leave their types in C are refused, and all but sums, products,
quotients and remainders by numbers, minima and maxima of loop variables, sizes and elements.
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
from pymbolic.primitives import Subscript, Variable

from countperf.counting.automatic import offset_of
from countperf.counting.expression_types import name_of, type_of
from countperf.counting.extents import ArrayAccess, accesses_of
from countperf.errors import CountingError, option
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.affine import Condition, NotAffineError, ToCondition, ToQuasiPolynomial
from countperf.symbolic.kernel_sets import domain_of
from countperf.symbolic.quasipolynomial import QuasiPolynomial

_OPERATIONS = 2_000_000
"""Of isl for one subscript, a second or so; beyond, its ends are not known."""
_ROUNDS = 200
_SOME_ROW = (3, 10)  # the elements around a row, by which it is told from other loops
_INT = np.iinfo(np.int32)  # in which C computes at least

_REFUSALS = (CountingError, NotAffineError, LoopyError)

_Interval = tuple[int, int]


@dataclass(frozen=True)
class DataSubscripts:
    """Subscripts of a kernel at given sizes, and at ranges of the elements of integer arrays."""

    kernel: Any
    sizes: Mapping[str, int]
    ranges: Mapping[str, _Interval]  # smallest and largest element
    checks_types: bool = True  # whether numbers that may leave their types are refused

    @cached_property
    def least(self) -> int:
        """The least number with which C computes as mathematics does."""
        kernel = self.kernel
        names = (*kernel.arg_dict, *kernel.temporary_variables)
        return 0 if any(type_of(kernel, name).kind == "u" for name in names) else int(_INT.min)

    def follow(self, access: ArrayAccess, index: Any) -> tuple[_Interval | None, _Region]:
        """Return the ends of a subscript, None where it is never executed, and what decides it."""
        with isl_sets.limit_operations(_OPERATIONS, f"the subscript of {access.text}"):
            region = _Region(self, access.within, access.instruction)
            return region.find_ends(index, access.conditions), region

    def find_rows(self) -> dict[str, str]:
        """Return the loops that go from an element of an array to the next one, by the array."""
        rows: dict[str, str] = {}
        data = replace(self, ranges=dict.fromkeys(self.ranges, _SOME_ROW))
        inames = self.kernel.all_inames()
        for iname in sorted(inames, reverse=True):
            with suppress(*_REFUSALS):
                region = _Region(data, frozenset([iname]), "", frozenset(inames))
                for first, last in permutations(region.elements, 2):
                    row = zip((first, last), _SOME_ROW, strict=True)
                    places = [region.elements[element] - place for element, place in row]
                    points = sets.restrict(region.points, zero=places)
                    ends = sets.extremes(points, [QuasiPolynomial.name(iname)])
                    length = 0 if ends is None else ends[0][1] - ends[0][0] + 1
                    if _follows(first, last) and length == _SOME_ROW[1] - _SOME_ROW[0]:
                        rows[first.aggregate.name] = iname
        return rows


class _Region(ToQuasiPolynomial):
    """The points of some loops, with the elements that expressions there consist of."""

    def __init__(
        self,
        data: DataSubscripts,
        within: frozenset[str],
        reader: str,
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
        for name in isl_sets.names_of(self.points, parameters=True):
            with suppress(*_REFUSALS):  # without it, the loop has no bound that is known
                bound = QuasiPolynomial.name(name) - self._written(name)
                self.points = sets.restrict(self.points, zero=[bound])
        self._reader = reader
        self.loop_arrays = frozenset(self.deciding)

    def find_ends(self, index: Any, conditions: Sequence[tuple[Any, bool]]) -> _Interval | None:
        """Return the ends of a subscript where conditions hold; those that are affine count."""
        self.deciding.clear()
        value = self(index)
        if value.names() & self._within:
            self.deciding |= self.loop_arrays
        arrays = {*self.deciding}
        followed: list[tuple[Condition, bool]] = []
        for condition, holds in conditions:
            with suppress(*_REFUSALS):
                followed.append((ToCondition(self)(condition), holds))
        points = self.points
        for condition, holds in followed:
            holding = sets.where_holds(points, condition)
            points = holding if holds else points - holding
        self.deciding = arrays
        ends = sets.extremes(points, [value])
        return None if ends is None else ends[0]

    def rec(self, expr: Any, /, *_: Any, **__: Any) -> QuasiPolynomial:
        """Refuse what may leave the type in which C computes it."""
        return self._checked(super().rec(expr), expr)

    def map_foreign(self, expr: Any, /, *_: Any, **__: Any) -> QuasiPolynomial:
        """Take numbers, but unsigned ones, with which C computes otherwise."""
        if isinstance(expr, np.unsignedinteger):
            raise NotAffineError(expr)
        return super().map_foreign(expr)

    def map_variable(self, expr: Any) -> QuasiPolynomial:
        """Take a loop variable, a size, or what is written to a private variable."""
        if self.is_known(expr.name):
            return QuasiPolynomial.name(expr.name)
        if expr.name in self._data.sizes:
            return QuasiPolynomial.constant(self._data.sizes[expr.name])
        return self._written(expr.name)

    def map_subscript(self, expr: Any) -> QuasiPolynomial:
        """Take an element of an argument that the kernel does not write."""
        name = expr.aggregate.name
        self.deciding.add(name)
        if expr not in self.elements:
            if name in self._data.kernel.writer_map():
                raise CountingError(f"the kernel writes {name!r}")
            if name not in self._data.ranges:
                raise CountingError(f"{name!r} is no integer argument")
            self.elements[expr] = self._symbol(*self._data.ranges[name])
        return self.elements[expr]

    def map_sum(self, expr: Any) -> QuasiPolynomial:
        """Add one after the other, as C does."""
        parts = map(self.rec, expr.children)
        return reduce(lambda one, other: self._checked(one + other, expr), parts)

    def map_product(self, expr: Any) -> QuasiPolynomial:
        """Multiply; a product of two that vary is any number between its ends."""

        def multiply(one: QuasiPolynomial, other: QuasiPolynomial) -> QuasiPolynomial:
            product = one * other
            if not product.is_affine:
                corners = [a * b for a in self._ends(one) for b in self._ends(other)]
                product = self._symbol(min(corners), max(corners))
            return self._checked(product, expr)

        return reduce(multiply, map(self.rec, expr.children))

    def map_type_cast(self, expr: Any) -> QuasiPolynomial:
        """Keep numbers that the type holds."""
        return self._held(self.rec(expr.child), np.dtype(expr.type.numpy_dtype), expr)

    def map_min(self, expr: Any) -> QuasiPolynomial:
        """Choose the least."""
        return self._chosen(expr.children, 1)

    def map_max(self, expr: Any) -> QuasiPolynomial:
        """Choose the largest."""
        return self._chosen(expr.children, -1)

    def map_call(self, expr: Any) -> QuasiPolynomial:
        """Choose, if the function is a minimum or maximum."""
        sign = {"min": 1, "max": -1}.get(name_of(expr.function))
        if sign is None:
            raise NotAffineError(expr)
        return self._chosen(expr.parameters, sign)

    def _chosen(self, parts: Sequence[Any], sign: int) -> QuasiPolynomial:
        values = [self.rec(part) for part in parts]
        chosen = self._name()
        self.points = sets.union(
            [
                sets.restrict(
                    self.points,
                    zero=[chosen - value],
                    nonnegative=[(other - value) * sign for other in values],
                )
                for value in values
            ]
        )
        return chosen

    def _written(self, name: str) -> QuasiPolynomial:
        """Return the value of a private variable, if it is written once before it is read."""
        kernel = self._data.kernel
        variable = kernel.temporary_variables.get(name)
        writers = [kernel.id_to_insn[writer] for writer in kernel.writer_map().get(name, ())]
        if variable is None or variable.shape != () or len(writers) != 1:
            raise CountingError(f"the value of {name!r} is not a single one")
        if variable.address_space not in (lp.AddressSpace.PRIVATE, lp.auto):
            raise CountingError(f"other work items may write {name!r}")
        (writer,) = writers
        before = kernel.recursive_insn_dep_map()
        if (
            not isinstance(writer, lp.Assignment)
            or writer.predicates
            or not writer.within_inames <= self._within
            or (self._reader and writer.id not in before[self._reader])
        ):
            raise CountingError(f"{name!r} may be read before it is written")
        outer, self._reader = self._reader, writer.id
        try:
            value = self.rec(writer.expression)
        finally:
            self._reader = outer
        return self._held(value, type_of(kernel, name), name)

    def _name(self) -> QuasiPolynomial:
        self._symbols += 1
        return QuasiPolynomial.name(f"_v{self._symbols}")

    def _symbol(self, low: int, high: int) -> QuasiPolynomial:
        symbol = self._name()
        self.points = sets.restrict(self.points, nonnegative=[symbol - low, high - symbol])
        return symbol

    def _ends(self, value: QuasiPolynomial) -> _Interval:
        ends = sets.extremes(self.points, [value])
        return (0, 0) if ends is None else ends[0]

    def _held(self, value: QuasiPolynomial, dtype: np.dtype[Any], what: object) -> QuasiPolynomial:
        if dtype.kind != "i":
            raise CountingError(f"{what} is no signed integer")
        return self._checked(value, what, int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))

    def _checked(
        self,
        value: QuasiPolynomial,
        what: object,
        least: int = int(_INT.min),
        most: int = int(_INT.max),
    ) -> QuasiPolynomial:
        if self._data.checks_types:
            low, high = self._ends(value)
            if low < max(least, self._data.least) or high > most:
                raise CountingError(f"{what} may leave the range of its type")
        return value


def _follows(element: Subscript, other: Subscript) -> bool:
    """Return whether another element is the next one of the same array of one axis."""
    if element.aggregate != other.aggregate or len(element.index_tuple) != 1:
        return False
    subscript: Any = element.index_tuple[0]
    following: Any = other.index_tuple[0]
    return simplify_via_aff(following - subscript) == 1


def describe_outside(
    kernel: Any,
    sizes: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    ranges: Mapping[str, _Interval],
    accesses: Iterable[ArrayAccess],
) -> str:
    """Say which access may leave its array, and what helps; nothing if none may."""
    data = DataSubscripts(kernel, sizes, ranges)
    mend = f"or time it with {option('unchecked', 'True')}, if you know that it stays inside"
    for access, index, axis, extent in _subscripts(accesses, shapes):
        inside = f"axis {axis} of its array goes from 0 to {extent - 1}"
        try:
            ends, region = data.follow(access, index)
        except _REFUSALS as error:
            reason = f"{error} is not followed" if isinstance(error, NotAffineError) else error
            return (
                f"{access.text} may leave its array, and {inside}: {reason}; nothing was launched:"
                " compute the subscript of loop variables, sizes and integer arguments that the"
                " kernel does not write, by sums, products, quotients and remainders by sizes,"
                f" minima and maxima, {mend}"
            )
        if ends is None or (ends[0] >= 0 and ends[1] < extent):
            continue
        sources = " and ".join(map(repr, sorted(region.deciding)))
        other = f"pass other elements of {sources}" if sources else "pass other sizes"
        return (
            f"{access.text} may leave its array: its subscripts go from {ends[0]} to {ends[1]}, as"
            f" far as the smallest and largest elements of {sources or 'no array'} tell, and"
            f" {inside}; nothing was launched: {other}, {mend}"
        )
    return ""


def _subscripts(
    accesses: Iterable[ArrayAccess], shapes: Mapping[str, Sequence[int]]
) -> list[tuple[ArrayAccess, Any, int, int]]:
    """Return accesses with each of their subscripts, its axis, and the extent of the axis."""
    return [
        (access, index, axis, int(extent))
        for access in accesses
        if not access.is_flat and len(access.index) == len(shapes.get(access.array, ()))
        for axis, (index, extent) in enumerate(
            zip(access.index, shapes.get(access.array, ()), strict=True)
        )
    ]


def ranges_of(contents: Mapping[str, NDArray[Any]]) -> dict[str, _Interval]:
    """Return the smallest and largest element of each integer array; of an empty one, 0 and -1."""
    return {
        name: (int(array.min()), int(array.max())) if array.size else (0, -1)
        for name, array in contents.items()
        if array.dtype.kind in "iu"
    }


# --- Elements of arrays that are not given


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLimits:
    """Range of the elements of an integer array."""

    # smallest and largest value
    low: int
    high: int
    bounds_loops: bool  # whether elements bound loops: they should not fall, then
    rows: str = ""  # loop from an element to the one behind it, as over rows of CSR; else empty


def index_limits(
    kernel: Any,
    sizes: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    contents: Mapping[str, NDArray[Any]],
) -> dict[str, IndexLimits]:
    """Find limits of the elements of arrays that are not given, with which no subscript leaves.

    They are lowered until the ends of each subscript fit.
    """
    all_shapes = {**shapes_of_temporaries(kernel, sizes), **shapes}
    missing = {arg.name for arg in kernel.args if hasattr(arg, "dim_tags")} - {*contents}
    integers = (name for name in missing if type_of(kernel, name).kind in "iu")
    ranges = {**dict.fromkeys(integers, (0, 0)), **ranges_of(contents)}
    data = DataSubscripts(kernel, sizes, ranges, checks_types=False)
    waiting: list[tuple[ArrayAccess, Any, int, set[str]]] = []
    loop_arrays: set[str] = set()
    for access, index, _, extent in _subscripts(accesses_of(kernel), all_shapes):
        try:
            _, region = data.follow(access, index)
        except _REFUSALS as error:
            if names_behind(kernel, [index]) & missing:
                raise CountingError(f"{access.text} has a subscript that is computed") from error
            continue  # nothing that is made up decides it
        loop_arrays |= region.loop_arrays
        if sources := region.deciding & missing:
            waiting.append((access, index, extent, sources))
    for _, _, extent, sources in waiting:
        ranges |= {name: (0, max(extent, ranges[name][1])) for name in sources}
    for _ in range(_ROUNDS):
        if not [subscript for subscript in waiting if _adapt(data, ranges, *subscript)]:
            break
    else:
        raise CountingError(f"{waiting[0][0].text}: no elements keep its subscript in the array")
    rows = data.find_rows()
    return {
        name: IndexLimits(
            low=ranges[name][0],
            high=ranges[name][1],
            bounds_loops=name in loop_arrays,
            rows=rows.get(name, ""),
        )
        for name in {name: None for *_, sources in waiting for name in sorted(sources)}
    }


def _adapt(
    data: DataSubscripts,
    ranges: dict[str, _Interval],
    access: ArrayAccess,
    index: Any,
    extent: int,
    sources: set[str],
) -> bool:
    """Change ranges of elements if a subscript may lie outside; return whether it may."""
    ends, _ = data.follow(access, index)
    if ends is None or (ends[0] >= 0 and ends[1] < extent):
        return False
    low, high = ends
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


def shapes_of_temporaries(kernel: Any, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays that a kernel allocates itself, at some sizes."""
    return {
        name: tuple(int(evaluate(extent, dict(sizes))) for extent in variable.shape)
        for name, variable in kernel.temporary_variables.items()
        if isinstance(variable.shape, tuple)
    }


def size_arguments(kernel: Any) -> frozenset[str]:
    """Return the scalar arguments that decide loops, shapes, conditions or subscripts."""
    deciding: list[Any] = [Variable(name) for name in kernel.all_params()]
    for variable in [*kernel.args, *kernel.temporary_variables.values()]:
        deciding += [extent or 0 for extent in getattr(variable, "shape", None) or ()]
        deciding += [getattr(tag, "stride", 0) for tag in getattr(variable, "dim_tags", None) or ()]
        deciding.append(offset_of(variable))
    for access in accesses_of(kernel):
        deciding += [*access.index, *(condition for condition, _ in access.conditions)]
    return frozenset(names_behind(kernel, deciding) & {*kernel.arg_dict})


def names_behind(kernel: Any, expressions: Iterable[Any]) -> set[str]:
    """Return the names in expressions, and in what is written to the kernel's own variables."""
    waiting = {name for expression in expressions for name in get_dependencies(expression)}
    names: set[str] = set()
    while waiting:
        name = waiting.pop()
        names.add(name)
        if name in kernel.temporary_variables:
            for writer in kernel.writer_map().get(name, ()):
                written = getattr(kernel.id_to_insn[writer], "expression", 0)
                waiting |= get_dependencies(written) - names
    return names
