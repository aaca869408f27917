"""Subscripts that data decide, at the values that the data have.

First the interval of each subscript is found from the smallest and largest elements. Where that may
leave the array, all points at which the access is executed are gone through in blocks, as NumPy
arrays, with the conditions under which it is, and as C computes: then what lies outside is
accessed. Arrays that the kernel itself writes before, such as prefetched ones, are made on the
host. What has too many points, or cannot be followed, is reported as not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from loopy.symbolic import get_dependencies
from numpy.typing import NDArray
from pymbolic.primitives import Variable

from countperf.counting.extents import ArrayAccess
from countperf.counting.frontend.c_arithmetic import Columns, CValues
from countperf.counting.index_arrays import followed_limits, ranges_of, shapes_of_temporaries
from countperf.errors import CountingError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.coverage import ends_along
from countperf.symbolic.kernel_sets import as_condition, as_expression, bounds_of, domain_of

_MOST_AT_ONCE = 1_000_000
_MOST_POINTS = 500_000_000
"""Of one access, which take about 20 s; what has more is not gone through."""
_MOST_ELEMENTS = 50_000_000
"""Of an array that the kernel writes, in all iterations of the loops around."""
_OPERATIONS = 500_000
"""Of isl for the ends of a loop, a second or so; beyond, wider bounds are taken, and filtered."""


class TooManyPointsError(Exception):
    """An access has more points than are gone through."""


@dataclass(frozen=True, slots=True)
class _Made:
    """An array that the kernel writes, in all iterations of the loops that it is made in anew."""

    context: tuple[str, ...]
    first: tuple[int, ...]
    values: NDArray[Any]
    is_known: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Points:
    """Goes through the points at which an access is executed."""

    kernel: Any
    scalars: Mapping[str, Any]
    shapes: Mapping[str, Sequence[int]]
    given: Mapping[str, NDArray[Any]]
    ends: dict[Any, tuple[Any, Any]] = field(default_factory=dict[Any, tuple[Any, Any]])
    made: dict[str, _Made] = field(default_factory=dict[str, _Made])
    making: list[str] = field(default_factory=list[str])

    def arrays_behind(self, access: ArrayAccess, index: Any) -> tuple[str, ...]:
        """Return the arrays that decide a subscript, or whether it is executed."""
        waiting = set(get_dependencies(index)) | access.within
        for condition, _ in access.conditions:
            waiting |= get_dependencies(condition)
        variables = {*self.kernel.arg_dict, *self.kernel.temporary_variables}
        names: set[str] = set()
        while waiting:
            name = waiting.pop()
            names.add(name)
            if name in self.kernel.all_inames():
                waiting |= self._data_names(name) - names
            for writer in self.kernel.writer_map().get(name, ()):
                instruction = self.kernel.id_to_insn[writer]
                waiting |= (instruction.read_dependency_names() & variables) - names
        arguments = self.kernel.arg_dict
        return tuple(sorted(n for n in names if hasattr(arguments.get(n), "dim_tags")))

    @property
    def behind(self) -> Mapping[str, frozenset[str]]:
        """Instructions that are done before each one."""
        return self.kernel.recursive_insn_dep_map()

    def outside(
        self, access: ArrayAccess, index: Any, extent: int
    ) -> tuple[int, dict[str, int]] | None:
        """Return the first subscript that leaves the array, and the loop variables there."""
        inames = self._needed(access, index)
        for nudge in (0, -1, 1):
            leaving, rounded = self._outside(access, index, extent, inames, nudge)
            if leaving is not None or not rounded:
                return leaving
        return None

    def _outside(
        self, access: ArrayAccess, index: Any, extent: int, inames: Sequence[str], nudge: int
    ) -> tuple[tuple[int, dict[str, int]] | None, bool]:
        seen = 0
        is_rounded = False
        for columns in self._blocks(inames, {"": np.zeros(1, np.int64)}):
            seen += columns[""].size
            if seen > _MOST_POINTS:
                raise TooManyPointsError
            rows = self._executed(access.conditions, columns, access.instruction)
            if not rows[""].size:
                continue
            evaluate = CValues(self, rows, access.instruction, nudge=nudge)
            values = np.broadcast_to(evaluate(index), rows[""].shape)
            is_rounded |= evaluate.is_rounded
            wrong = (values < 0) | (values >= extent)
            if wrong.any():
                row = int(np.argmax(wrong))
                at = {name: int(rows[name][row]) for name in inames}
                return (int(values[row]), at), is_rounded
        return None, is_rounded

    def _executed(
        self, conditions: Sequence[tuple[Any, bool]], columns: Columns, reader: str
    ) -> Columns:
        """Return the rows at which conditions hold; each is looked at where those before it do."""
        for condition, holds in conditions:
            if not columns[""].size:
                break
            value = CValues(self, columns, reader)(condition)
            there = np.broadcast_to(value, columns[""].shape).astype(bool) == holds
            columns = {name: column[there] for name, column in columns.items()}
        return columns

    def _needed(self, access: ArrayAccess, index: Any) -> list[str]:
        """Return the loops that decide the subscript, or whether it is executed, outer ones first.

        Of the others it is taken for granted that they are not empty.
        """
        inames: set[str] = set()
        waiting = [index, *(condition for condition, _ in access.conditions)]
        waiting += [Variable(name) for name in access.within if self._data_names(name)]
        known: set[str] = set()
        while waiting:
            for name in get_dependencies(waiting.pop()) - known:
                known.add(name)
                if name in access.within:
                    inames.add(name)
                    waiting += [Variable(bound) for bound in self._data_names(name)]
                else:
                    waiting += self._parts(name)
        return self._in_order(inames)

    def _in_order(self, inames: Set[str]) -> list[str]:
        """Return loop variables, outer ones first."""
        order: list[str] = []
        while len(order) < len(inames):
            ready = [
                name
                for name in sorted(inames - set(order))
                if self._behind(self._data_names(name)) & inames <= set(order)
            ]
            if not ready:
                raise CountingError("the loops around the access depend on each other")
            order += ready
        return order

    def _behind(self, names: frozenset[str]) -> frozenset[str]:
        """Return the loop variables on which private variables depend."""
        inames: set[str] = set()
        waiting = list(names)
        known: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in known:
                continue
            known.add(name)
            if name in self.kernel.all_inames():
                inames.add(name)
                waiting += self._data_names(name)
            else:
                for part in self._parts(name):
                    waiting += get_dependencies(part)
        return frozenset(inames)

    def _data_names(self, iname: str) -> frozenset[str]:
        """Return the private variables in the bounds of a loop."""
        domain = domain_of(self.kernel, [iname])
        names = isl_sets.names_of(sets.project_onto(domain, [iname]), parameters=True)
        return frozenset(name for name in names if name in self.kernel.temporary_variables)

    def _parts(self, name: str) -> list[Any]:
        """Return expressions of the names on which a variable that the kernel writes depends."""
        written = self.written(name)
        if written is not None:
            return [written]
        if name not in self.kernel.writer_map() or name in self.kernel.all_inames():
            return []
        return [Variable(iname) for iname in self._context(name)]

    def written(self, name: str) -> Any:
        """Return the only expression that is written to a private variable; None otherwise."""
        variable = self.kernel.temporary_variables.get(name)
        writers = self.kernel.writer_map().get(name, ())
        if variable is None or variable.shape != () or len(writers) != 1:
            return None
        (instruction,) = (self.kernel.id_to_insn[writer] for writer in writers)
        expression = getattr(instruction, "expression", None)
        if instruction.predicates or expression is None or len(instruction.assignees) != 1:
            return None
        return None if name in get_dependencies(expression) else expression

    # --- arrays that the kernel writes

    def _writers(self, name: str) -> list[Any]:
        """Return what writes a variable, in the order in which that happens."""
        ids = sorted(self.kernel.writer_map()[name], key=lambda writer: len(self.behind[writer]))
        for one, other in pairwise(ids):
            if one not in self.behind[other]:
                raise CountingError(f"{name!r} is written in an order that is not known")
        return [self.kernel.id_to_insn[writer] for writer in ids]

    def _context(self, name: str) -> tuple[str, ...]:
        """Return the loops in which a variable is written anew in each iteration."""
        contexts: set[frozenset[str]] = set()
        for instruction in self._writers(name):
            if len(instruction.assignees) != 1 or not hasattr(instruction, "expression"):
                raise CountingError(f"the value of {name!r} cannot be followed")
            assigned = get_dependencies(instruction.assignees[0]) & instruction.within_inames
            contexts.add(frozenset(instruction.within_inames - assigned))
        if len(contexts) != 1:
            raise CountingError(f"{name!r} is written in different loops")
        return tuple(sorted(*contexts))

    def written_elements(self, name: str, reader: str) -> _Made:
        """Make an array that the kernel writes before an instruction reads it."""
        if not self.kernel.writer_map()[name] <= self.behind.get(reader, frozenset()):
            raise CountingError(f"{name!r} may be read before it is written")
        if name in self.making:
            raise CountingError(f"{name!r} is computed from what it was before")
        if name not in self.made:
            self.making.append(name)
            try:
                self.made[name] = self._make(name)
            finally:
                self.making.pop()
        return self.made[name]

    def _make(self, name: str) -> _Made:
        context, writers = self._context(name), self._writers(name)
        ends = [self._range(iname) for iname in context]
        first = tuple(low for low, _ in ends)
        shape = (*(high - low + 1 for low, high in ends), *self.shapes.get(name, ()))
        if np.prod(shape, dtype=float) > _MOST_ELEMENTS:
            raise TooManyPointsError
        variable = self.kernel.arg_dict.get(name) or self.kernel.temporary_variables[name]
        dtype = np.dtype(variable.dtype.numpy_dtype)
        values, is_known = np.zeros(shape, dtype), np.zeros(shape, bool)
        before = self.given.get(name)
        if before is not None:
            values[...], is_known[...] = before, True
        for instruction in writers:
            self._write(instruction, context, first, values, is_known)
        return _Made(context, first, values, is_known)

    def _write(
        self,
        instruction: Any,
        context: Sequence[str],
        first: Sequence[int],
        values: NDArray[Any],
        is_known: NDArray[np.bool_],
    ) -> None:
        """Do what an instruction does, in all its iterations."""
        assignee = instruction.assignees[0]
        index = getattr(assignee, "index_tuple", ())
        conditions = tuple((part, True) for part in sorted(instruction.predicates, key=str))
        inames = self._in_order(instruction.within_inames)
        seen = 0
        for columns in self._blocks(inames, {"": np.zeros(1, np.int64)}):
            seen += columns[""].size
            if seen > _MOST_ELEMENTS:
                raise TooManyPointsError
            rows = self._executed(conditions, columns, instruction.id)
            if not rows[""].size:
                continue
            evaluate = CValues(self, rows, instruction.id)
            new = evaluate.rounded(
                evaluate(instruction.expression), instruction.expression, values.dtype
            ).astype(values.dtype)
            if evaluate.is_rounded:
                raise CountingError(f"{assignee} is a rounded floating-point number")
            position = (
                *(rows[name] - low for name, low in zip(context, first, strict=True)),
                *(np.broadcast_to(evaluate(part), rows[""].shape) for part in index),
            )
            if any(np.any((p < 0) | (p >= n)) for p, n in zip(position, values.shape, strict=True)):
                raise CountingError(f"{assignee} leaves its array")
            values[position] = new
            is_known[position] = True
            if not np.array_equal(values[position], np.broadcast_to(new, rows[""].shape)):
                raise CountingError(f"{assignee} is written more than once")

    def _range(self, iname: str) -> tuple[int, int]:
        """Return the first and the last value of a loop variable, whatever is around it."""
        columns: Columns = {"": np.zeros(1, np.int64)}
        low, high = (
            int(self._value(as_expression(end), columns).flat[0])
            for end in bounds_of(self.kernel, iname)[:2]
        )
        return low, high

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
        expanded = {name: np.repeat(column, counts) for name, column in columns.items()}
        positions = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        expanded[iname] = np.repeat(low, counts) + positions
        inside = self._inside(iname, expanded)
        return {name: column[inside] for name, column in expanded.items()}

    def _inside(self, iname: str, columns: Columns) -> NDArray[np.bool_]:
        """Return which rows are points of a loop."""
        domain = domain_of(self.kernel, [iname])
        known = [name for name in isl_sets.names_of(domain, parameters=False) if name in columns]
        condition = as_condition(sets.project_onto(domain, known))
        return np.broadcast_to(self._value(condition, columns), columns[""].shape).astype(bool)

    def _ends(self, iname: str, columns: Columns) -> tuple[Any, Any]:
        """Return the first and the last iteration of a loop, given what is around it.

        Where isl does not find them, those at any values of the loops around it.
        """
        domain = domain_of(self.kernel, [iname])
        known = [name for name in isl_sets.names_of(domain, parameters=False) if name in columns]
        key = iname, tuple(known)
        if key in self.ends:
            return self.ends[key]
        try:
            with isl_sets.limited_operations(_OPERATIONS, f"the ends of '{iname}'"):
                low, high = ends_along(domain, iname, known)
                ends = as_expression(low), as_expression(high)
        except (CountingError, NotImplementedError, ValueError):
            low, high, _ = bounds_of(self.kernel, iname)
            ends = as_expression(low), as_expression(high)
        self.ends[key] = ends
        return ends

    def _value(self, expression: Any, columns: Columns) -> NDArray[Any]:
        """Return the value of a bound of a loop, which does not wrap."""
        return CValues(self, columns, "", is_wide=True)(expression)


# --- accesses that leave their arrays

_FAILURES = (CountingError, NotImplementedError, KeyError, TypeError, ValueError, RecursionError)
"""Of following a subscript; whether it leaves its array is not known then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideAccess:
    """An access that leaves its array, or that may leave it and cannot be looked at."""

    access: str  # the access, as it is written: ``load x[col[i]]``
    # the axis on which it leaves the array, and its length
    axis: int
    extent: int
    sources: tuple[str, ...]  # arrays that decide the subscript
    value: int | None = None  # the subscript there; None if it is not known to leave the array
    at: Mapping[str, int] = field(default_factory=dict[str, int])  # loop variables there
    interval: tuple[int, int] | None = None  # in which its subscripts lie; None if it is not known
    reason: str = ""  # why it cannot be followed; empty if it has too many points

    @property
    def text(self) -> str:
        """Which access leaves its array, or may leave it, and what helps."""
        sources = " and ".join(map(repr, self.sources))
        axis = f"axis {self.axis} of its array goes from 0 to {self.extent - 1}"
        if self.value is not None:
            at = ", ".join(f"{name} = {value}" for name, value in self.at.items())
            other = f"pass other elements of {sources}" if sources else "pass other sizes"
            return (
                f"{self.access} has the subscript {self.value}{at and ' at '}{at}, and {axis};"
                f" nothing was launched: {other}"
            )
        if self.reason:
            return (
                f"{self.access} may leave its array, and {axis}: {self.reason}; nothing was"
                " launched: compute the subscript of integer arguments that the kernel does not"
                " write"
            )
        known = "anywhere" if self.interval is None else "from {} to {}".format(*self.interval)
        return (
            f"{self.access} has subscripts {known} as far as the smallest and largest elements"
            f" of {sources or 'its sizes'} tell, and {axis}; it is executed too often to look at"
            " each; nothing was launched: pass smaller sizes, or an array that is long enough for"
            " these subscripts"
        )


def deciding_arrays(kernel: Any, accesses: Sequence[ArrayAccess]) -> frozenset[str]:
    """Return the arrays that decide the subscripts of accesses, or whether they are executed."""
    points = Points(kernel, {}, {}, {})
    return frozenset(
        name
        for access in accesses
        for index in access.index
        for name in points.arrays_behind(access, index)
    )


def find_outside(
    kernel: Any,
    scalars: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    given: Mapping[str, NDArray[Any]],
    accesses: Sequence[ArrayAccess],
) -> OutsideAccess | None:
    """Find an access that leaves its array; `given` are contents of arrays before the launch."""
    sizes = {n: int(v) for n, v in scalars.items() if isinstance(v, int | np.integer)}
    all_shapes = {**shapes_of_temporaries(kernel, sizes), **shapes}
    followed = followed_limits(kernel, sizes, all_shapes, ranges_of(given))
    points = Points(kernel, scalars, all_shapes, given)
    unchecked: OutsideAccess | None = None
    for access in accesses:
        extents = all_shapes.get(access.array)
        if extents is None or access.is_flat or len(access.index) != len(extents):
            continue
        for axis, (index, extent) in enumerate(zip(access.index, extents, strict=True)):
            sources = points.arrays_behind(access, index)
            if _is_inside(followed, index, extent):
                continue
            subscript: dict[str, Any] = {
                "access": access.text,
                "axis": axis,
                "extent": int(extent),
                "sources": sources,
            }
            reason = ""
            try:
                leaving = points.outside(access, index, extent)
            except TooManyPointsError:
                if _is_inside(replace(followed, is_strict=False), index, extent):
                    continue
            except _FAILURES as error:
                reason = str(error) or type(error).__name__
            else:
                if leaving is not None:
                    value, at = leaving
                    return OutsideAccess(value=value, at=at, **subscript)
                continue
            interval = _interval(followed, index)
            unchecked = unchecked or OutsideAccess(interval=interval, reason=reason, **subscript)
    return unchecked


def _is_inside(followed: Any, index: Any, extent: int) -> bool:
    interval = _interval(followed, index)
    if interval is None:
        return False
    low, high = interval
    return low > high or (low >= 0 and high < extent)


def _interval(followed: Any, index: Any) -> tuple[int, int] | None:
    with suppress(*_FAILURES):
        return followed.interval(index)
    return None
