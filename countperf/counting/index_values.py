"""Subscripts that a kernel reads from arrays, at the values that the arrays have.

First the interval of each subscript is found from the smallest and largest elements. Where that may
leave the array, the loops around the access are gone through, all points at once as NumPy arrays,
with the conditions under which the access is executed: then what lies outside is accessed. Of inner
loops in whose variable the subscript is affine, and on which no condition and no other loop
depends, only the first and the last iteration are looked at: the extremes are there. Where more
than `_MOST_POINTS` points are left, the access is reported as not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from loopy.symbolic import TypeCast, get_dependencies, pw_aff_to_expr, set_to_cond_expr
from numpy.typing import NDArray
from pymbolic.mapper.evaluator import EvaluationMapper
from pymbolic.primitives import Product, Subscript, Sum, Variable

from countperf.counting.extents import ArrayAccess, accesses_of
from countperf.counting.index_arrays import followed_limits, ranges_of
from countperf.errors import CountingError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.extremes import ends_along

_MOST_AT_ONCE = 1_000_000
_MOST_POINTS = 500_000_000
"""Of one access, which take about 20 s; what has more is not gone through."""
_OPERATIONS = 500_000
"""Of isl for the ends of a loop, a second or so; beyond, wider bounds are taken, and filtered."""

_FAILURES = (CountingError, NotImplementedError, KeyError, TypeError, ValueError)
"""Of following a subscript; whether it leaves its array is not known then."""

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideAccess:
    """An access that leaves its array."""

    access: str  # the access, as it is written: ``load x[col[i]]``
    # the axis on which it leaves the array, and its length
    axis: int
    extent: int
    value: int
    at: Mapping[str, int]  # loop variables there
    sources: tuple[str, ...]  # arrays that decide the subscript


@dataclass(frozen=True, slots=True, kw_only=True)
class UncheckedAccess:
    """An access that may leave its array, and has too many points to be looked at."""

    # as in `OutsideAccess`
    access: str
    axis: int
    extent: int
    # interval in which its subscripts lie; None if it is not known
    low: int | None
    high: int | None
    sources: tuple[str, ...]


class _TooManyPointsError(Exception):
    """An access has more points than are gone through."""


def find_outside(
    kernel: Any,
    sizes: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    given: Mapping[str, NDArray[Any]],
) -> OutsideAccess | UncheckedAccess | None:
    """Find an access whose subscript is read from arrays and leaves its array."""
    followed = followed_limits(kernel, sizes, shapes, ranges_of(given))
    unchecked: UncheckedAccess | None = None
    for access in accesses_of(kernel):
        extents = shapes.get(access.array)
        if extents is None or access.is_flat or len(access.index) != len(extents):
            continue
        for axis, (index, extent) in enumerate(zip(access.index, extents, strict=True)):
            sources = _sources(followed, index)
            if not sources or not sources <= set(given) or _is_inside(followed, index, extent):
                continue
            try:
                found = _Points(kernel, sizes, given).outside(access, index, extent)
            except _TooManyPointsError:
                low, high = _interval(followed, index)
                unchecked = unchecked or UncheckedAccess(
                    access=access.text,
                    axis=axis,
                    extent=int(extent),
                    low=low,
                    high=high,
                    sources=tuple(sorted(sources)),
                )
                continue
            except _FAILURES:
                continue  # cannot be followed
            if found is not None:
                value, at = found
                return OutsideAccess(
                    access=access.text,
                    axis=axis,
                    extent=int(extent),
                    value=value,
                    at=at,
                    sources=tuple(sorted(sources)),
                )
    return unchecked


def _sources(followed: Any, index: Any) -> frozenset[str]:
    try:
        return followed.sources(index)
    except _FAILURES:
        return frozenset()


def _is_inside(followed: Any, index: Any, extent: int) -> bool:
    low, high = _interval(followed, index)
    if low is None or high is None:
        return False
    return low > high or (low >= 0 and high < extent)


def _interval(followed: Any, index: Any) -> tuple[int, int] | tuple[None, None]:
    try:
        return followed.interval(index)
    except CountingError:
        return None, None


@dataclass(frozen=True, slots=True)
class _Points:
    """Goes through the points at which an access is executed."""

    kernel: Any
    sizes: Mapping[str, int]
    given: Mapping[str, NDArray[Any]]
    extremes: set[str] = field(default_factory=set[str])
    ends: dict[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])

    def outside(
        self, access: ArrayAccess, index: Any, extent: int
    ) -> tuple[int, dict[str, int]] | None:
        """Return the first subscript that leaves the array, and the loop variables there."""
        inames = self._needed(access, index)
        self.extremes.update(self._of_extremes(inames, access, index))
        seen = 0
        for columns in self._blocks(inames, {"": np.zeros(1, np.int64)}):
            count = columns[""].size
            seen += count
            if seen > _MOST_POINTS:
                raise _TooManyPointsError
            values = np.broadcast_to(self._value(index, columns), (count,))
            wrong = (values < 0) | (values >= extent)
            for condition, holds in access.conditions:
                if not wrong.any():
                    break
                wrong = wrong & (self._value(condition, columns).astype(bool) == holds)
            if wrong.any():
                place = int(np.argmax(wrong))
                return int(values[place]), {name: int(columns[name][place]) for name in inames}
        return None

    def _needed(self, access: ArrayAccess, index: Any) -> list[str]:
        """Return the loops that decide the subscript, or whether it is executed, outer ones first.

        Of the others it is taken for granted that they are not empty.
        """
        found: set[str] = set()
        waiting = [index, *(condition for condition, _ in access.conditions)]
        waiting += [Variable(name) for name in access.within if self._data_names(name)]
        known: set[str] = set()
        while waiting:
            for name in get_dependencies(waiting.pop()) - known:
                known.add(name)
                if name in access.within:
                    found.add(name)
                    waiting += [Variable(each) for each in self._data_names(name)]
                elif name in self.kernel.temporary_variables:
                    waiting.append(self.written(name))
        order: list[str] = []
        while len(order) < len(found):
            ready = [
                name
                for name in sorted(found - set(order))
                if self._behind(self._data_names(name)) & found <= set(order)
            ]
            if not ready:
                raise CountingError("the loops around the access depend on each other")
            # those of which the ends are enough come last
            order += [each for each in ready if not self._is_affine(index, each)] or ready
        return order

    def _of_extremes(self, inames: Sequence[str], access: ArrayAccess, index: Any) -> set[str]:
        """Return the innermost loops of which the first and the last iteration are enough."""
        deciding = [condition for condition, _ in access.conditions]
        found: set[str] = set()
        for place in reversed(range(len(inames))):
            name, inner = inames[place], inames[place + 1 :]
            if not self._is_affine(index, name):
                break
            if any(name in self._behind(get_dependencies(each)) for each in deciding):
                break
            if any(
                name in self._behind(self._data_names(each)) or self._is_bounded_by(each, name)
                for each in inner
            ):
                break
            found.add(name)
        return found

    def _is_bounded_by(self, iname: str, other: str) -> bool:
        """Return whether the bounds of a loop depend on another loop's variable."""
        domain = self.kernel.get_inames_domain(frozenset([iname]))
        domain = isl_sets.as_set(sets.project_onto(domain, [iname, other]))
        if other not in isl_sets.names_of(domain, parameters=False):
            return other in isl_sets.names_of(domain, parameters=True)
        return not sets.is_independent(domain, {iname}, other)

    def _is_affine(self, expr: Any, iname: str) -> bool:
        """Return whether an expression changes evenly from iteration to iteration of a loop."""

        def depends(part: Any) -> bool:
            return iname in self._behind(get_dependencies(part))

        if not depends(expr):
            return True
        match expr:
            case Variable(name=name):
                if name == iname:
                    return True
                temporary = name in self.kernel.temporary_variables
                return temporary and self._is_affine(self.written(name), iname)
            case Sum(children=children):
                return all(self._is_affine(child, iname) for child in children)
            case Product(children=children):
                dependent = [child for child in children if depends(child)]
                return len(dependent) == 1 and self._is_affine(dependent[0], iname)
            case TypeCast(child=child):
                return self._is_affine(child, iname)
            case _:
                return False

    def _behind(self, names: frozenset[str]) -> frozenset[str]:
        """Return the loop variables on which private variables depend."""
        found: set[str] = set()
        waiting = list(names)
        known: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in known:
                continue
            known.add(name)
            if name in self.kernel.all_inames():
                found.add(name)
                waiting += self._data_names(name)
            elif name in self.kernel.temporary_variables:
                waiting += get_dependencies(self.written(name))
        return frozenset(found)

    def _data_names(self, iname: str) -> frozenset[str]:
        """Return the private variables in the bounds of a loop."""
        domain = self.kernel.get_inames_domain(frozenset([iname]))
        names = isl_sets.names_of(sets.project_onto(domain, [iname]), parameters=True)
        return frozenset(name for name in names if name in self.kernel.temporary_variables)

    def written(self, name: str) -> Any:
        """Return the only expression that is written to a private variable."""
        writers = self.kernel.writer_map().get(name, ())
        instructions = [self.kernel.id_to_insn[each] for each in writers]
        if len(instructions) != 1 or instructions[0].predicates:
            raise CountingError(f"the value of {name!r} cannot be followed")
        expression = getattr(instructions[0], "expression", None)
        if expression is None or len(instructions[0].assignees) != 1:
            raise CountingError(f"the value of {name!r} cannot be followed")
        return expression

    def _blocks(self, inames: Sequence[str], columns: Columns) -> Iterator[Columns]:
        """Yield all points of some loops in blocks, each a column for each loop variable."""
        if not inames:
            yield columns
            return
        iname, rest = inames[0], inames[1:]
        rows = columns[""].size
        low, high = (
            np.broadcast_to(self._value(bound, columns), (rows,)).astype(np.int64)
            for bound in self._ends(iname, columns)
        )
        if iname in self.extremes:
            for end, is_new in ((low, np.True_), (high, high != low)):
                at_end = {**columns, iname: end}
                inside = self._inside(iname, at_end) & is_new
                yield from self._blocks(rest, {n: each[inside] for n, each in at_end.items()})
            return
        counts = np.maximum(high - low + 1, 0)
        begin = 0
        ends = np.cumsum(counts)
        while begin < rows:
            done = int(ends[begin - 1]) if begin else 0
            stop = max(int(np.searchsorted(ends, done + _MOST_AT_ONCE, side="right")), begin + 1)
            part = {name: column[begin:stop] for name, column in columns.items()}
            for first in range(0, int(counts[begin]) if stop == begin + 1 else 1, _MOST_AT_ONCE):
                yield from self._blocks(
                    rest,
                    self._expanded(
                        iname, part, low[begin:stop] + first, counts[begin:stop] - first
                    ),
                )
            begin = stop

    def _expanded(
        self, iname: str, columns: Columns, low: NDArray[Any], counts: NDArray[Any]
    ) -> Columns:
        """Add a loop variable: each row is repeated for each of its values."""
        counts = np.minimum(np.maximum(counts, 0), _MOST_AT_ONCE) if low.size == 1 else counts
        found = {name: np.repeat(column, counts) for name, column in columns.items()}
        places = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        found[iname] = np.repeat(low, counts) + places
        inside = self._inside(iname, found)
        return {name: column[inside] for name, column in found.items()}

    def _inside(self, iname: str, columns: Columns) -> NDArray[np.bool_]:
        """Return which rows are points of a loop."""
        domain = self.kernel.get_inames_domain(frozenset([iname]))
        known = [name for name in isl_sets.names_of(domain, parameters=False) if name in columns]
        condition = set_to_cond_expr(isl_sets.as_set(sets.project_onto(domain, known)))
        return np.broadcast_to(self._value(condition, columns), columns[""].shape).astype(bool)

    def _ends(self, iname: str, columns: Columns) -> tuple[Any, Any]:
        """Return the first and the last iteration of a loop, given what is around it.

        Where isl does not find them, those at any values of the loops around it.
        """
        if iname in self.ends:
            return self.ends[iname]
        domain = self.kernel.get_inames_domain(frozenset([iname]))
        known = [name for name in isl_sets.names_of(domain, parameters=False) if name in columns]
        try:
            with isl_sets.limited_operations(_OPERATIONS, f"the ends of '{iname}'"):
                low, high = ends_along(domain, iname, known)
                found = pw_aff_to_expr(low), pw_aff_to_expr(high)
        except (CountingError, NotImplementedError, ValueError):
            self.extremes.discard(iname)
            bounds = self.kernel.get_iname_bounds(iname)
            low, high = bounds.lower_bound_pw_aff, bounds.upper_bound_pw_aff
            found = pw_aff_to_expr(low), pw_aff_to_expr(high)
        self.ends[iname] = found
        return found

    def _value(self, expression: Any, columns: Columns) -> NDArray[Any]:
        return np.asarray(_Values(self, columns)(expression))


class _Values(EvaluationMapper[Any]):
    """Evaluates expressions at many points, with contents of arrays."""

    def __init__(self, points: _Points, columns: Columns) -> None:
        super().__init__()
        self._points = points
        self._columns = columns

    def map_variable(self, expr: Any) -> Any:
        """Take a loop variable or size; follow a private variable to what is written to it."""
        name = expr.name
        if name in self._columns:
            return self._columns[name]
        if name in self._points.sizes:
            return self._points.sizes[name]
        if name in self._points.kernel.temporary_variables:
            return self.rec(self._points.written(name))
        raise CountingError(f"the value of {name!r} cannot be followed")

    def map_subscript(self, expr: Subscript) -> Any:
        """Take elements; a subscript that leaves the array is found by itself."""
        assert isinstance(expr.aggregate, Variable)
        array = self._points.given.get(expr.aggregate.name)
        if array is None:
            raise CountingError(f"the elements of {expr.aggregate.name!r} cannot be followed")
        if array.ndim != len(expr.index_tuple):
            raise CountingError(f"{expr} has another number of axes than its array")
        return array[
            tuple(
                np.clip(self.rec(index), 0, extent - 1)
                for index, extent in zip(expr.index_tuple, array.shape, strict=True)
            )
        ]

    def map_if(self, expr: Any) -> Any:
        """Choose at each point."""
        return np.where(self.rec(expr.condition), self.rec(expr.then), self.rec(expr.else_))

    def map_logical_and(self, expr: Any) -> Any:
        """Combine at each point."""
        return np.logical_and.reduce(np.broadcast_arrays(*map(self.rec, expr.children)))

    def map_logical_or(self, expr: Any) -> Any:
        """Combine at each point."""
        return np.logical_or.reduce(np.broadcast_arrays(*map(self.rec, expr.children)))

    def map_logical_not(self, expr: Any) -> Any:
        """Negate at each point."""
        return np.logical_not(self.rec(expr.child))

    def map_min(self, expr: Any) -> Any:
        """Take the smallest at each point."""
        return np.minimum.reduce(np.broadcast_arrays(*map(self.rec, expr.children)))

    def map_max(self, expr: Any) -> Any:
        """Take the largest at each point."""
        return np.maximum.reduce(np.broadcast_arrays(*map(self.rec, expr.children)))

    def map_type_cast(self, expr: Any) -> Any:
        """Take what is cast; indices fit any integer type."""
        return self.rec(expr.child)
