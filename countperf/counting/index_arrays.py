"""Integer arrays whose elements decide where a kernel accesses memory, and what they may hold.

An element may be a subscript, or a part of one, directly or by way of a private variable; or it may
bound a loop whose variable is one. Elements get limits such that no subscript leaves its array: the
interval of each subscript is found from those of the elements, and the limits are lowered until it
fits. Conditions are not taken into account, so that limits may be lower than they have to be.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from loopy.symbolic import WalkMapper, simplify_via_aff
from numpy.typing import NDArray
from pymbolic import evaluate
from pymbolic.mapper import Mapper
from pymbolic.primitives import Subscript, Variable

from countperf.counting.automatic import offset_of
from countperf.counting.expression_types import name_of
from countperf.counting.extents import ArrayAccess, accesses_of
from countperf.counting.frontend.c_arithmetic import type_of, types_of_variables
from countperf.errors import CountingError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.coverage import at_values, extremes
from countperf.symbolic.kernel_sets import domain_of
from countperf.symbolic.quasipolynomial import QuasiPolynomial

_ROUNDS = 200
_Interval = tuple[int, int]


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
    contents: Mapping[str, NDArray[Any]] | None = None,
) -> dict[str, IndexLimits]:
    """Find limits of the elements of integer arrays that decide where memory is accessed."""
    known = ranges_of(contents or {})
    all_shapes = {**shapes_of_temporaries(kernel, sizes), **shapes}
    limits = _Limits(kernel, sizes, all_shapes, dict(known), known=frozenset(known))
    limits.lower()
    return {
        name: IndexLimits(
            low=low,
            high=high,
            bounds_loops=name in limits.loop_arrays,
            rows=next(
                (i for i in sorted(kernel.all_inames()) if limits.array_of_rows(i) == name), ""
            ),
        )
        for name, (low, high) in limits.limits.items()
        if name not in known
    }


def ranges_of(contents: Mapping[str, NDArray[Any]]) -> dict[str, tuple[int, int]]:
    """Return the smallest and the largest element of each integer array that has elements."""
    return {
        name: (int(array.min()), int(array.max()))
        for name, array in contents.items()
        if array.dtype.kind in "iu" and array.size
    }


def followed_limits(
    kernel: Any,
    sizes: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    limits: Mapping[str, tuple[int, int]],
) -> _Limits:
    """Return what follows subscripts to arrays whose elements have known limits.

    It refuses what may wrap, or may be read before it is written.
    """
    return _Limits(kernel, sizes, shapes, dict(limits), is_strict=True)


def shapes_of_temporaries(kernel: Any, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays that a kernel allocates itself, at some sizes."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, variable in kernel.temporary_variables.items():
        if isinstance(variable.shape, tuple):
            shapes[name] = tuple(int(evaluate(extent, dict(sizes))) for extent in variable.shape)
    return shapes


def size_arguments(kernel: Any) -> frozenset[str]:
    """Return the scalar arguments that decide loops, shapes, conditions or subscripts."""
    names = set(kernel.all_params())
    collector = _Names()
    for variable in [*kernel.args, *kernel.temporary_variables.values()]:
        for extent in getattr(variable, "shape", None) or ():
            collector(0 if extent is None else extent)
        for tag in getattr(variable, "dim_tags", None) or ():
            collector(getattr(tag, "stride", 0))
        collector(offset_of(variable))
    for access in accesses_of(kernel):
        for part in (*access.index, *(condition for condition, _ in access.conditions)):
            collector(part)
    waiting = collector.names | names
    while waiting:
        name = waiting.pop()
        names.add(name)
        if name in kernel.temporary_variables:
            behind = _Names()
            for writer in kernel.writer_map().get(name, ()):
                behind(getattr(kernel.id_to_insn[writer], "expression", 0))
            waiting |= behind.names - names
    return frozenset(names & set(kernel.arg_dict))


class SelfWrittenIndexError(CountingError):
    """A kernel computes what subscripts are read from, so that no inputs decide them."""


@dataclass
class _Limits:
    kernel: Any
    sizes: Mapping[str, int]
    shapes: Mapping[str, Sequence[int]]
    limits: dict[str, _Interval] = field(default_factory=dict[str, _Interval])
    loop_arrays: set[str] = field(default_factory=set[str])
    known: frozenset[str] = frozenset()
    is_strict: bool = False

    def lower(self) -> None:
        """Find limits with which all subscripts stay inside."""
        subscripts = [
            (access, axis, extent)
            for access in accesses_of(self.kernel)
            if access.array in self.shapes and not access.is_flat
            for axis, extent in enumerate(self.shapes[access.array])
        ]
        waiting: list[tuple[ArrayAccess, Any, int, frozenset[str]]] = []
        for access, axis, extent in subscripts:
            if len(access.index) != len(self.shapes[access.array]):
                continue  # an array without axes
            expression = access.index[axis]
            sources = self.sources(expression) - self.known
            if sources:
                waiting.append((access, expression, extent, sources))
        for _, _, extent, sources in waiting:
            for name in sources:
                _, high = self.limits.get(name, (0, 0))
                self.limits[name] = 0, max(high, extent)
        for _ in range(_ROUNDS):
            if not [parts for parts in waiting if self._adapt(*parts)]:
                return
        raise CountingError(f"{waiting[0][0].text}: no elements keep its subscript in the array")

    def _adapt(
        self, access: ArrayAccess, expression: Any, extent: int, sources: frozenset[str]
    ) -> bool:
        """Change limits if a subscript may lie outside; return whether it may."""
        low, high = self.interval(expression)
        if low >= 0 and high < extent:
            return False
        if low > high:
            return False  # nothing is executed
        for name in sorted(sources):
            first, last = self.limits[name]
            if low < 0:
                first += 1
            if high >= extent:
                last = min(last - 1, max(first, (last * extent) // (high + 1)))
            if first > last:
                raise CountingError(
                    f"{access.text}: its subscript goes from {low} to {high}, and its axis up to"
                    f" {extent - 1}, whatever the elements of {name!r} are"
                )
            self.limits[name] = first, last
        return True

    # --- what a value depends on

    def sources(self, expression: Any, seen: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return the integer arrays among the arguments on which a value depends."""
        collector = _Names()
        collector(expression)
        arrays: set[str] = set()
        for name in collector.names - seen:
            if name in self.kernel.arg_dict:
                if not hasattr(self.kernel.arg_dict[name], "dim_tags"):
                    continue
                arrays.add(name)
                for writer in self._writers(name):
                    arrays |= self.sources(writer, seen | {name})
            elif name in self.kernel.temporary_variables:
                for writer in self._writers(name):
                    arrays |= self.sources(writer, seen | {name})
            elif name in self.kernel.all_inames():
                behind = self._loop_sources(name, seen | {name})
                self.loop_arrays |= behind
                arrays |= behind
        return frozenset(arrays)

    def _loop_sources(self, iname: str, seen: frozenset[str]) -> frozenset[str]:
        domain = domain_of(self.kernel, [iname])
        domain = sets.project_onto(domain, [iname])
        arrays: set[str] = set()
        for name in isl_sets.names_of(domain, parameters=True):
            if name not in self.sizes:
                arrays |= self.sources(Variable(name), seen)
        return frozenset(arrays)

    def array_of_rows(self, iname: str) -> str:
        """Return the array of whose elements a loop goes from one to the next; else nothing."""
        domain = domain_of(self.kernel, [iname])
        domain = sets.project_onto(domain, [iname])
        names = {*isl_sets.names_of(domain, parameters=True)} - {*self.sizes}
        if len(names) != 2 or not names <= {*self.kernel.temporary_variables}:
            return ""
        bounds = [(name, writer) for name in sorted(names) for writer in self._writers(name)]
        if len(bounds) != 2 or not all(isinstance(bound, Subscript) for _, bound in bounds):
            return ""
        for (first, start), (last, stop) in (bounds, bounds[::-1]):
            at = {**self.sizes, first: 3, last: 10}
            limits = extremes(at_values(domain, at)[0], [QuasiPolynomial.name(iname)])
            if _follows(start, stop) and limits == ((3, 9),):
                return start.aggregate.name
        return ""

    def _writers(self, name: str) -> list[Any]:
        expressions: list[Any] = []
        for writer in sorted(self.kernel.writer_map().get(name, ())):
            instruction = self.kernel.id_to_insn[writer]
            expression = getattr(instruction, "expression", None)
            if expression is None or len(instruction.assignees) != 1:
                raise CountingError(f"the value of {name!r} cannot be followed")
            expressions.append(expression)
        return expressions

    # --- what a value may be

    def interval(self, expression: Any) -> _Interval:
        """Return the smallest and the largest value that an expression may have."""
        return _Intervals(self)(expression)

    def interval_of(self, name: str, seen: frozenset[str]) -> _Interval:
        """Return the interval of a size, loop variable, private variable, or array's elements."""
        if name in self.sizes:
            return self.sizes[name], self.sizes[name]
        if name in self.limits:
            if name not in self.kernel.get_written_variables():
                return self.limits[name]
            if name in seen:
                raise SelfWrittenIndexError(
                    f"the kernel writes {name!r} from its own elements, and reads subscripts from"
                    " it"
                )
            written = [
                _Intervals(self, seen | {name})(expression) for expression in self._writers(name)
            ]
            return _span(
                [*self.limits[name], *(end for expression in written for end in expression)]
            )
        if name in self.kernel.all_inames():
            return self._loop_interval(name, seen)
        if name in self.kernel.temporary_variables and name not in seen:
            if self.is_strict:
                self._check_written(name)
            parts = [
                _Intervals(self, seen | {name})(expression) for expression in self._writers(name)
            ]
            if parts:
                return min(low for low, _ in parts), max(high for _, high in parts)
        raise CountingError(f"the value of {name!r} cannot be followed")

    def _check_written(self, name: str) -> None:
        """Refuse a variable of which not every read is known to follow a write, or that wraps."""
        writers = [
            self.kernel.id_to_insn[writer] for writer in self.kernel.writer_map().get(name, ())
        ]
        variable = self.kernel.temporary_variables[name]
        if variable.shape != () or len(writers) != 1 or writers[0].predicates:
            raise CountingError(f"some elements of {name!r} may be read before they are written")
        interval = _Intervals(self, frozenset([name]))(writers[0].expression)
        check_type(type_of(self.kernel, name), interval, name)

    @cached_property
    def has_unsigned(self) -> bool:
        """True if numbers of the kernel are unsigned."""
        return any(dtype.kind == "u" for dtype in types_of_variables(self.kernel))

    def check_wrapping(self, expression: Any, interval: _Interval) -> None:
        """Refuse values that may wrap in the type in which C computes them: at least ``int``."""
        low, high = interval
        if low < (0 if self.has_unsigned else -(2**31)) or high >= 2**31:
            raise CountingError(f"{expression} may leave the range of its type")

    def _loop_interval(self, iname: str, seen: frozenset[str]) -> _Interval:
        domain = domain_of(self.kernel, [iname])
        domain = sets.project_onto(domain, [iname])
        for name in isl_sets.names_of(domain, parameters=True):
            if name in self.sizes:
                continue
            low, high = self.interval_of(name, seen)
            value = QuasiPolynomial.name(name)
            domain = sets.restrict(domain, nonnegative=[value - low, high - value])
        domain, _ = at_values(domain, self.sizes)
        ends = extremes(domain, [QuasiPolynomial.name(iname)])
        return (0, -1) if ends is None else ends[0]


class _Names(WalkMapper[[]]):
    """Collects the names in an expression on which its value depends."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def map_variable(self, expr: Any) -> None:
        self.names.add(expr.name)

    def map_subscript(self, expr: Any) -> None:
        """Note the array; where it is read decides nothing but which element is."""
        self.names.add(expr.aggregate.name)


def _joining(join: Callable[[Iterable[int]], int]) -> Any:
    def handler(self: _Intervals, expr: Any) -> _Interval:
        lows, highs = zip(*map(self.rec, expr.children), strict=True)
        return join(lows), join(highs)

    return handler


def _shifting(shift: Callable[[int, int], int]) -> Any:
    def handler(self: _Intervals, expr: Any) -> _Interval:
        least, most = self.rec(expr.shift)
        if not 0 <= least <= most < 64:
            raise CountingError(f"{expr} shifts by more bits than there are")
        return _span(shift(end, by) for end in self.rec(expr.shiftee) for by in (least, most))

    return handler


class _Intervals(Mapper[_Interval, []]):
    """Evaluates integer expressions on intervals."""

    def __init__(self, limits: _Limits, seen: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self._limits = limits
        self._seen = seen

    def rec(self, expr: Any, *_: Any, **__: Any) -> _Interval:
        interval = super().rec(expr)
        if self._limits.is_strict and not isinstance(expr, int | np.integer):
            self._limits.check_wrapping(expr, interval)
        return interval

    __call__ = rec

    map_sum, map_min, map_max = _joining(sum), _joining(min), _joining(max)
    map_left_shift, map_right_shift = _shifting(operator.lshift), _shifting(operator.rshift)

    def map_constant(self, expr: Any) -> _Interval:
        wraps = self._limits.is_strict and isinstance(expr, np.unsignedinteger)
        if isinstance(expr, int | np.integer) and not wraps:
            return int(expr), int(expr)
        raise CountingError(f"{expr} is no integer")

    def map_variable(self, expr: Any) -> _Interval:
        return self._limits.interval_of(expr.name, self._seen)

    def map_subscript(self, expr: Subscript) -> _Interval:
        assert isinstance(expr.aggregate, Variable)
        return self._limits.interval_of(expr.aggregate.name, self._seen)

    def map_product(self, expr: Any) -> _Interval:
        interval = (1, 1)
        for child in expr.children:
            interval = _span(a * b for a in interval for b in self.rec(child))
        return interval

    def _divided(self, expr: Any) -> tuple[_Interval, _Interval]:
        ends, divisors = self.rec(expr.numerator), self.rec(expr.denominator)
        if divisors[0] < 1:
            raise CountingError(f"{expr} divides by what may not be positive")
        return ends, divisors

    def map_floor_div(self, expr: Any) -> _Interval:
        ends, divisors = self._divided(expr)
        return _span(a // b for a in ends for b in divisors)

    def map_remainder(self, expr: Any) -> _Interval:
        (low, high), (least, most) = self._divided(expr)
        return (low, high) if low >= 0 and high < least else (0, most - 1)

    def map_if(self, expr: Any) -> _Interval:
        return _span((*self.rec(expr.then), *self.rec(expr.else_)))

    def map_type_cast(self, expr: Any) -> _Interval:
        interval = self.rec(expr.child)
        if self._limits.is_strict:
            check_type(np.dtype(expr.type.numpy_dtype), interval, expr)
        return interval

    def map_bitwise_xor(self, expr: Any) -> _Interval:
        """Take all numbers of as many bits, if none is negative."""
        parts = [self.rec(child) for child in expr.children]
        if min(low for low, _ in parts) < 0:
            raise CountingError(f"{expr} has no interval: a part of it may be negative")
        return 0, (1 << max(high for _, high in parts).bit_length()) - 1

    map_bitwise_or = map_bitwise_xor

    def map_bitwise_and(self, expr: Any) -> _Interval:
        """Stay below the least part, of those that are not negative."""
        highs = [high for low, high in map(self.rec, expr.children) if low >= 0]
        if not highs:
            raise CountingError(f"{expr} has no interval: all parts of it may be negative")
        return 0, min(highs)

    def map_call(self, expr: Any) -> _Interval:
        name = name_of(expr.function)
        parts = [self.rec(parameter) for parameter in expr.parameters]
        if name == "abs" and len(parts) == 1:
            low, high = parts[0]
            return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        if name in ("min", "max") and parts:
            choose = min if name == "min" else max
            return choose(low for low, _ in parts), choose(high for _, high in parts)
        raise CountingError(f"{expr} has no interval")

    def handle_unsupported_expression(self, expr: Any, *_: Any, **__: Any) -> _Interval:
        raise CountingError(f"{expr} has no interval")


def check_type(dtype: np.dtype[Any], interval: _Interval, what: object) -> None:
    """Refuse values that a signed type does not hold, and all of other types."""
    if (
        dtype.kind != "i"
        or not np.iinfo(dtype).min <= interval[0] <= interval[1] <= np.iinfo(dtype).max
    ):
        raise CountingError(f"{what} may leave the range of {dtype}")


def _span(values: Iterable[int]) -> _Interval:
    some = list(values)
    return min(some), max(some)


def _follows(element: Subscript, other: Subscript) -> bool:
    """Return whether another element is the next one of the same array of one axis."""
    if element.aggregate != other.aggregate or len(element.index_tuple) != 1:
        return False
    subscript: Any = element.index_tuple[0]
    following: Any = other.index_tuple[0]
    return simplify_via_aff(following - subscript) == 1
