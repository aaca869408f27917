"""Subscripts that a kernel reads from arrays, at the values that the arrays have.

First the interval of each subscript is found from the smallest and largest elements. Where that may
leave the array, the loops around the access are gone through, all points at once as NumPy arrays,
with the conditions under which the access is executed: then what lies outside is accessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from loopy.symbolic import get_dependencies, pw_aff_to_expr, set_to_cond_expr
from numpy.typing import NDArray
from pymbolic.mapper.evaluator import EvaluationMapper
from pymbolic.primitives import Subscript, Variable

from countperf.counting.extents import ArrayAccess, accesses_of
from countperf.counting.index_arrays import followed_limits
from countperf.errors import CountingError
from countperf.symbolic import sets

__all__ = ["OutsideAccess", "find_outside"]

_MOST_AT_ONCE = 1_000_000
_MOST_POINTS = 50_000_000
"""Of one access; what has more is not gone through."""

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideAccess:
    """An access that leaves its array.

    Attributes
    ----------
    access : str
        The access, as it is written: ``load x[col[i]]``.
    axis, extent : int
        The axis on which it leaves the array, and its length.
    value : int
        The subscript.
    at : Mapping from str to int
        Loop variables there.
    sources : tuple of str
        Arrays that decide the subscript.
    """

    access: str
    axis: int
    extent: int
    value: int
    at: Mapping[str, int]
    sources: tuple[str, ...]


def find_outside(
    kernel: Any,
    sizes: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    given: Mapping[str, NDArray[Any]],
) -> OutsideAccess | None:
    """Find an access whose subscript is read from arrays and leaves its array.

    Parameters
    ----------
    kernel : loopy.LoopKernel
        Preprocessed.
    sizes : mapping from str to int
        Values of all integer arguments.
    shapes : mapping from str to sequence of int
        Shapes of its arrays; accesses to others are not looked at.
    given : mapping from str to ndarray
        Contents of arrays.

    Returns
    -------
    OutsideAccess or None
        The first that is found; None if there is none, or where it cannot be told: subscripts that
        depend on what the kernel itself writes to arrays, and loops of more than 50 million points.
    """
    limits = {
        name: (int(array.min()), int(array.max()))
        for name, array in given.items()
        if array.dtype.kind in "iu" and array.size
    }
    followed = followed_limits(kernel, sizes, shapes, limits)
    for access in accesses_of(kernel):
        extents = shapes.get(access.array)
        if extents is None or access.is_flat or len(access.index) != len(extents):
            continue
        for axis, (index, extent) in enumerate(zip(access.index, extents, strict=True)):
            try:
                sources = followed.sources(index)
                if not sources or not sources <= set(given) or _is_inside(followed, index, extent):
                    continue
                found = _Points(kernel, sizes, given).outside(access, index, extent)
            except (CountingError, NotImplementedError, KeyError, TypeError, ValueError):
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
    return None


def _is_inside(followed: Any, index: Any, extent: int) -> bool:
    try:
        low, high = followed.interval(index)
    except CountingError:
        return False
    return low > high or (low >= 0 and high < extent)


@dataclass(frozen=True, slots=True)
class _Points:
    """Goes through the points at which an access is executed."""

    kernel: Any
    sizes: Mapping[str, int]
    given: Mapping[str, NDArray[Any]]

    def outside(
        self, access: ArrayAccess, index: Any, extent: int
    ) -> tuple[int, dict[str, int]] | None:
        """Return the first subscript that leaves the array, and the loop variables there."""
        inames = self._needed(access, index)
        seen = 0
        for columns in self._blocks(inames, {"": np.zeros(1, np.int64)}):
            count = columns[""].size
            seen += count
            if seen > _MOST_POINTS:
                return None
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
            order += ready
        return order

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
        names = sets.names_of(sets.project_onto(domain, [iname]), parameters=True)
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
        bounds = self.kernel.get_iname_bounds(iname)
        rows = columns[""].size
        low, high = (
            np.broadcast_to(self._value(pw_aff_to_expr(bound), columns), (rows,)).astype(np.int64)
            for bound in (bounds.lower_bound_pw_aff, bounds.upper_bound_pw_aff)
        )
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
        domain = self.kernel.get_inames_domain(frozenset([iname]))
        known = [name for name in sets.names_of(domain, parameters=False) if name in found]
        condition = set_to_cond_expr(sets.as_set(sets.project_onto(domain, known)))
        inside = np.broadcast_to(self._value(condition, found), found[""].shape).astype(bool)
        return {name: column[inside] for name, column in found.items()}

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
