"""Integer arithmetic as C computes it, which is not NumPy's.

Types that are narrower than ``int`` are promoted to it first; then both sides are converted to the
wider type, or to the unsigned one of two types of equal width. Results wrap. Floating-point numbers
are computed in double precision, and are off by a few roundings of the device's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, cast

import numpy as np
from loopy.symbolic import TypeCast
from numpy.typing import NDArray
from pymbolic.mapper import Mapper
from pymbolic.primitives import Subscript, Variable

from countperf.counting.expression_types import name_of
from countperf.errors import CountingError

INT, LONG, DOUBLE = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float64)

Type = np.dtype[Any]
Array = NDArray[Any]
Combine = Callable[[Array, Array], Array]
Columns = Mapping[str, Array]

_POWERS = 8  # exponents up to which numbers are multiplied

_ROUNDINGS: Mapping[int, float] = {2: 1e-2, 4: 1e-6, 8: 1e-14, 16: 1e-14}
"""Bound of the relative error of what a few operations compute, by the size in byte of the
smallest floating-point numbers of a kernel."""

_COMPARISONS: Mapping[str, Combine] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}

_FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "fabs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "sqrt": np.sqrt,
}


def promoted(dtype: Type) -> Type:
    """Return the type that C computes with: ``int`` for narrower integers."""
    if dtype.kind == "b" or (dtype.kind in "iu" and dtype.itemsize < INT.itemsize):
        return INT
    return dtype


def common(types: Sequence[Type]) -> Type:
    """Return the type in which C computes with numbers of some types."""

    def wider(one: Type, other: Type) -> Type:
        floats = [dtype for dtype in (one, other) if dtype.kind == "f"]
        if floats:
            return max(floats, key=lambda dtype: dtype.itemsize)
        if one.itemsize == other.itemsize:
            return one if one.kind == "u" else other
        return max(one, other, key=lambda dtype: dtype.itemsize)

    if any(dtype.kind not in "biuf" for dtype in types):
        raise CountingError("a subscript is computed of numbers that are not real")
    return reduce(wider, map(promoted, types))


def type_of(kernel: Any, name: str) -> Type:
    """Return the type of a loop variable, an argument, or a private variable."""
    if name in kernel.all_inames():
        return np.dtype(kernel.index_dtype.numpy_dtype)
    variable = kernel.arg_dict.get(name) or kernel.temporary_variables.get(name)
    return np.dtype(getattr(getattr(variable, "dtype", None), "numpy_dtype", INT))


def types_of_variables(kernel: Any) -> set[Type]:
    """Return the types of a kernel's loop variables, arguments and own variables."""
    names = {*kernel.all_inames(), *kernel.arg_dict, *kernel.temporary_variables}
    return {type_of(kernel, name) for name in names}


def _reducing(combine: Combine, dtype: Any = None) -> Any:
    """Return a handler that combines parts of an expression, in their common type or another."""

    def handler(self: CValues, expr: Any) -> Array:
        if dtype is None:
            return reduce(combine, self.in_common(*expr.children))
        return reduce(combine, [self.rec(child).astype(dtype) for child in expr.children])

    return handler


def _dividing(divide: Combine) -> Any:
    def handler(self: CValues, expr: Any) -> Array:
        numerator, denominator = self.in_common(expr.numerator, expr.denominator)
        if divide is np.divide and numerator.dtype.kind != "f":
            raise CountingError(f"{expr} divides integers, which Loopy does in several ways")
        if np.any(denominator == 0):
            raise CountingError(f"{expr} divides by zero")
        return divide(numerator, denominator)

    return handler


def _shifting(shift: Combine) -> Any:
    def handler(self: CValues, expr: Any) -> Array:
        (value,) = self.in_common(expr.shiftee)
        by = self.rec(expr.shift)
        if np.any((by < 0) | (by >= 8 * value.dtype.itemsize)):
            raise CountingError(f"{expr} shifts by more bits than there are")
        return shift(value, by.astype(value.dtype))

    return handler


class CValues(Mapper[Array, []]):
    """Evaluates expressions at many points, as C does, with contents of arrays."""

    def __init__(
        self,
        points: Any,  # of `countperf.counting.index_values`
        columns: Columns,
        reader: str,
        *,
        is_wide: bool = False,
        nudge: int = 0,
    ) -> None:
        super().__init__()
        self._is_wide = is_wide
        self._nudge = nudge
        self.is_rounded = False
        self._points = points
        self._columns = columns
        self._reader = reader

    def is_given(self, name: str) -> bool:
        """Return whether it is an argument that the kernel does not write."""
        known = name in self._points.given or name in self._points.scalars
        return known and name not in self._points.kernel.writer_map()

    def named(self, name: str) -> Array:
        """Take a loop variable or argument; follow a private variable to what is written to it."""
        dtype = type_of(self._points.kernel, name)
        if name in self._columns:
            return self.converted(self._columns[name], dtype)
        if name in self._points.scalars:
            return self.converted(np.asarray([self._points.scalars[name]]), dtype)
        expression = self._points.written(name)
        if expression is None:
            return self.element(name, [])
        (writer,) = self._points.kernel.writer_map()[name]
        if self._reader and writer not in self._points.behind[self._reader]:
            raise CountingError(f"{name!r} may be read before it is written")
        outer, self._reader = self._reader, writer
        value = self.rec(expression)
        self._reader = outer
        return self.rounded(value, expression, dtype)

    def element(self, name: str, index: Sequence[Array]) -> Array:
        """Take elements; a subscript that leaves the array is found by itself."""
        if name in self._points.kernel.writer_map():
            return self._written_element(name, index)
        array = self._points.given.get(name)
        if array is None:
            variable = self._points.kernel.temporary_variables.get(name)
            array = getattr(variable, "initializer", None)
        if array is None:
            raise CountingError(f"the value of {name!r} cannot be followed")
        dtype = type_of(self._points.kernel, name)
        return self.converted(_elements(array, index, name), dtype)

    def _written_element(self, name: str, index: Sequence[Array]) -> Array:
        made = self._points.written_elements(name, self._reader)
        missing = [iname for iname in made.context if iname not in self._columns]
        if missing:
            raise CountingError(f"{name!r} is what the last iteration of {missing[0]!r} left")
        context = [
            self._columns[iname] - low for iname, low in zip(made.context, made.first, strict=True)
        ]
        points = np.broadcast_arrays(*context, *index) if [*context, *index] else []
        if not np.all(_elements(made.is_known, points, name)):
            raise CountingError(f"elements of {name!r} are read that nothing wrote")
        return _elements(made.values, points, name)

    def converted(self, value: Array, dtype: Type) -> Array:
        """Convert numbers to a type, as an assignment does; integers wrap."""
        if dtype.kind == "f" or dtype.kind == "b":
            return value.astype(DOUBLE if dtype.kind == "f" else dtype)
        if value.dtype.kind == "f":
            info = np.iinfo(dtype)
            if not np.all((value > float(info.min) - 1) & (value < float(info.max))):
                raise CountingError(f"floating-point numbers are cast to {dtype}, outside of it")
            return np.trunc(value).astype(dtype)
        if self._is_wide:
            return value.astype(LONG)
        return value.astype(dtype)

    def in_common(self, *parts: Any) -> list[Array]:
        """Evaluate parts of an expression, in the type in which C computes with them."""
        values = [self.rec(part) for part in parts]
        dtype = common([value.dtype for value in values])
        return [self.converted(value, dtype) for value in values]

    map_sum, map_product = _reducing(np.add), _reducing(np.multiply)
    map_min, map_max = _reducing(np.minimum), _reducing(np.maximum)
    map_bitwise_or, map_bitwise_and = _reducing(np.bitwise_or), _reducing(np.bitwise_and)
    map_bitwise_xor = _reducing(np.bitwise_xor)
    map_logical_and = _reducing(np.logical_and, bool)
    map_logical_or = _reducing(np.logical_or, bool)
    map_floor_div, map_remainder = _dividing(np.floor_divide), _dividing(np.remainder)
    map_quotient = _dividing(np.divide)
    map_left_shift, map_right_shift = _shifting(np.left_shift), _shifting(np.right_shift)

    def map_constant(self, expr: Any) -> Array:
        """Take the number."""
        if isinstance(expr, int):
            return np.asarray([expr], INT if -(2**31) <= expr < 2**31 else LONG)
        if not isinstance(expr, float | np.generic):
            raise CountingError(f"{expr!r} is no number that a subscript is computed of")
        return self.converted(np.asarray([expr]), np.asarray(expr).dtype)

    def map_variable(self, expr: Any) -> Array:
        """Look it up."""
        return self.named(expr.name)

    def map_subscript(self, expr: Subscript) -> Array:
        """Look elements up."""
        assert isinstance(expr.aggregate, Variable)
        return self.element(expr.aggregate.name, [self.rec(part) for part in expr.index_tuple])

    def map_bitwise_not(self, expr: Any) -> Array:
        """Invert the bits."""
        (value,) = self.in_common(expr.child)
        return np.bitwise_not(value)

    def map_power(self, expr: Any) -> Array:
        """Multiply a number with itself."""
        if not isinstance(expr.exponent, int | np.integer) or not 0 <= expr.exponent <= _POWERS:
            raise CountingError(f"{expr} cannot be followed")
        (base,) = self.in_common(expr.base)
        return reduce(np.multiply, [base] * int(expr.exponent), np.ones(1, base.dtype))

    def map_if(self, expr: Any) -> Array:
        """Choose at each point."""
        then, other = self.in_common(expr.then, expr.else_)
        return np.where(self.rec(expr.condition).astype(bool), then, other)

    def map_comparison(self, expr: Any) -> Array:
        """Compare in the common type."""
        left, right = self.in_common(expr.left, expr.right)
        return _COMPARISONS[expr.operator](left, right)

    def map_logical_not(self, expr: Any) -> Array:
        """Negate at each point."""
        return ~self.rec(expr.child).astype(bool)

    def map_type_cast(self, expr: TypeCast) -> Array:
        """Convert; floating-point numbers that were computed are off by roundings."""
        dtype = np.dtype(cast("Any", expr.type).numpy_dtype)
        return self.rounded(self.rec(expr.child), expr.child, dtype)

    def rounded(self, value: Array, expr: Any, dtype: Type) -> Array:
        """Convert the value of an expression to a type, as an assignment does."""
        stored = isinstance(expr, Variable | Subscript) and self.is_given(
            expr.name if isinstance(expr, Variable) else getattr(expr.aggregate, "name", "")
        )
        if value.dtype.kind == "f" and dtype.kind in "iu" and not stored:
            self.is_rounded = True
            types = types_of_variables(self._points.kernel)
            size = min((dtype.itemsize for dtype in types if dtype.kind == "f"), default=8)
            value = value + self._nudge * _ROUNDINGS[size] * np.maximum(np.abs(value), 1)
        return self.converted(value, dtype)

    def map_call(self, expr: Any) -> Array:
        """Evaluate functions whose results are exact."""
        name = name_of(expr.function)
        parts = self.in_common(*expr.parameters)
        if name in ("min", "fmin") and len(parts) > 1:
            return reduce(np.minimum, parts)
        if name in ("max", "fmax") and len(parts) > 1:
            return reduce(np.maximum, parts)
        if name == "abs" and len(parts) == 1:
            return np.abs(parts[0])
        if name in _FUNCTIONS and len(parts) == 1 and parts[0].dtype.kind == "f":
            return _FUNCTIONS[name](parts[0])
        raise CountingError(f"{expr} cannot be followed")

    def handle_unsupported_expression(self, expr: Any, *_: Any, **__: Any) -> Array:
        """Refuse."""
        raise CountingError(f"{expr} cannot be followed")


def _elements(array: Array, index: Sequence[Array], name: str) -> Array:
    """Return elements of an array, as columns; floating-point numbers in double precision."""
    if array.ndim != len(index):
        raise CountingError(f"{name!r} is read with another number of axes than it has")
    if not array.size and array.ndim:
        raise CountingError(f"{name!r} has no elements")
    inside = (
        np.clip(subscripts, 0, n - 1) for subscripts, n in zip(index, array.shape, strict=True)
    )
    elements = np.asarray(array[tuple(inside)]).reshape(-1 if not array.ndim else index[0].shape)
    return elements.astype(np.float64) if elements.dtype.kind == "f" else elements
