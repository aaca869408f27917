"""Integer arithmetic as C computes it, which is not NumPy's.

Types that are narrower than ``int`` are promoted to it first; then both sides are converted to the
wider type, or to the unsigned one of two types of equal width. Results wrap. Floating-point numbers
are computed in double precision, and are off by a few roundings of the device's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from loopy.symbolic import TypeCast
from numpy.typing import NDArray
from pymbolic.mapper import Mapper
from pymbolic.primitives import Call, Subscript, Variable

from countperf.counting.expression_types import name_of
from countperf.errors import CountingError

INT, LONG, DOUBLE = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float64)

Type = np.dtype[Any]
Array = NDArray[Any]
Combine = Callable[[Array, Array], Array]

_POWERS = 8  # exponents up to which numbers are multiplied

_ROUNDINGS: Mapping[int, float] = {2: 1e-2, 4: 1e-6, 8: 1e-14}
"""Bound of the relative error of what a few operations compute, by the size of numbers, byte."""

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


def type_of_constant(value: object) -> Type:
    """Return the type of a literal."""
    if isinstance(value, np.generic):
        return value.dtype
    if isinstance(value, bool | int):
        return INT if -(2**31) <= value < 2**31 else LONG
    if isinstance(value, float):
        return np.dtype(np.float32)  # Loopy writes it in the type of what is beside it
    raise CountingError(f"{value!r} is no number that a subscript is computed of")


class CTypes(Mapper[Type, []]):
    """Finds the types in which C computes expressions of a preprocessed kernel."""

    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self._kernel = kernel

    def named(self, name: str) -> Type:
        """Return the type of a loop variable, an argument, or a private variable."""
        if name in self._kernel.all_inames():
            return np.dtype(self._kernel.index_dtype.numpy_dtype)
        variable = self._kernel.arg_dict.get(name) or self._kernel.temporary_variables.get(name)
        return np.dtype(getattr(getattr(variable, "dtype", None), "numpy_dtype", INT))

    def _common(self, expr: Any) -> Type:
        parts = expr.parameters if isinstance(expr, Call) else expr.children
        return common([self.rec(part) for part in parts])

    def _fraction(self, expr: Any) -> Type:
        return common([self.rec(expr.numerator), self.rec(expr.denominator)])

    map_sum = map_product = map_min = map_max = map_call = _common
    map_bitwise_or = map_bitwise_xor = map_bitwise_and = _common
    map_floor_div = map_remainder = map_quotient = _fraction

    def map_constant(self, expr: Any) -> Type:
        """Take the type of the literal."""
        return type_of_constant(expr)

    def map_variable(self, expr: Any) -> Type:
        """Look it up."""
        return self.named(expr.name)

    def map_subscript(self, expr: Any) -> Type:
        """Take the type of the elements."""
        return self.named(expr.aggregate.name)

    def map_left_shift(self, expr: Any) -> Type:
        """Take the type of what is shifted."""
        return promoted(self.rec(expr.shiftee))

    map_right_shift = map_left_shift

    def map_bitwise_not(self, expr: Any) -> Type:
        """Promote."""
        return promoted(self.rec(expr.child))

    def map_power(self, expr: Any) -> Type:
        """Take the type of the base."""
        return promoted(self.rec(expr.base))

    def map_if(self, expr: Any) -> Type:
        """Take the common type."""
        return common([self.rec(expr.then), self.rec(expr.else_)])

    def map_comparison(self, expr: Any) -> Type:
        """Take ``int``."""
        del expr
        return INT

    map_logical_and = map_logical_or = map_logical_not = map_comparison

    def map_type_cast(self, expr: Any) -> Type:
        """Take the type that is asked for."""
        return np.dtype(expr.type.numpy_dtype)

    def handle_unsupported_expression(self, expr: Any, *_: Any, **__: Any) -> Type:
        """Refuse."""
        raise CountingError(f"{expr} cannot be followed")


def _reducing(combine: Combine, dtype: Any = None) -> Any:
    """Return a handler that combines parts of an expression, in their common type or another."""

    def handler(self: CValues, expr: Any) -> Array:
        if dtype is None:
            return reduce(combine, self.in_common(expr, *expr.children))
        return reduce(combine, [self.rec(child).astype(dtype) for child in expr.children])

    return handler


def _dividing(divide: Combine) -> Any:
    def handler(self: CValues, expr: Any) -> Array:
        numerator, denominator = self.in_common(expr, expr.numerator, expr.denominator)
        if divide is np.divide and numerator.dtype.kind != "f":
            raise CountingError(f"{expr} divides integers, which Loopy does in several ways")
        if np.any(denominator == 0):
            raise CountingError(f"{expr} divides by zero")
        return divide(numerator, denominator)

    return handler


def _shifting(shift: Combine) -> Any:
    def handler(self: CValues, expr: Any) -> Array:
        (value,) = self.in_common(expr, expr.shiftee)
        by = self.rec(expr.shift)
        if np.any((by < 0) | (by >= 8 * value.dtype.itemsize)):
            raise CountingError(f"{expr} shifts by more bits than there are")
        return shift(value, by.astype(value.dtype))

    return handler


class CValues(Mapper[Array, []]):
    """Evaluates expressions at many points, as C does."""

    def __init__(self, types: CTypes, *, is_wide: bool = False, nudge: int = 0) -> None:
        super().__init__()
        self._types = types
        self._is_wide = is_wide
        self._nudge = nudge
        self.is_rounded = False

    def named(self, name: str) -> Array:
        """Return the values of a variable."""
        raise NotImplementedError

    def element(self, name: str, index: Sequence[Array]) -> Array:
        """Return elements of an array."""
        raise NotImplementedError

    def is_given(self, name: str) -> bool:
        """Return whether a number is as the caller gives it, not computed."""
        raise NotImplementedError

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

    def in_common(self, expr: Any, *parts: Any) -> list[Array]:
        """Evaluate parts of an expression, in the type in which it is computed."""
        dtype = self._types(expr)
        return [self.converted(self.rec(part), dtype) for part in parts]

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
        dtype = type_of_constant(expr)
        return np.asarray([expr], DOUBLE if dtype.kind == "f" else dtype)

    def map_variable(self, expr: Any) -> Array:
        """Look it up."""
        return self.named(expr.name)

    def map_subscript(self, expr: Subscript) -> Array:
        """Look elements up."""
        assert isinstance(expr.aggregate, Variable)
        return self.element(expr.aggregate.name, [self.rec(part) for part in expr.index_tuple])

    def map_bitwise_not(self, expr: Any) -> Array:
        """Invert the bits."""
        (value,) = self.in_common(expr, expr.child)
        return np.bitwise_not(value)

    def map_power(self, expr: Any) -> Array:
        """Multiply a number with itself."""
        if not isinstance(expr.exponent, int | np.integer) or not 0 <= expr.exponent <= _POWERS:
            raise CountingError(f"{expr} cannot be followed")
        (base,) = self.in_common(expr, expr.base)
        return reduce(np.multiply, [base] * int(expr.exponent), np.ones(1, base.dtype))

    def map_if(self, expr: Any) -> Array:
        """Choose at each point."""
        then, other = self.in_common(expr, expr.then, expr.else_)
        return np.where(self.rec(expr.condition).astype(bool), then, other)

    def map_comparison(self, expr: Any) -> Array:
        """Compare in the common type."""
        dtype = common([self._types(expr.left), self._types(expr.right)])
        left, right = (self.converted(self.rec(side), dtype) for side in (expr.left, expr.right))
        return _COMPARISONS[expr.operator](left, right)

    def map_logical_not(self, expr: Any) -> Array:
        """Negate at each point."""
        return ~self.rec(expr.child).astype(bool)

    def map_type_cast(self, expr: TypeCast) -> Array:
        """Convert; floating-point numbers that were computed are off by roundings."""
        value, dtype = self.rec(expr.child), self._types(expr)
        return self.rounded(value, expr.child, dtype)

    def rounded(self, value: Array, expr: Any, dtype: Type) -> Array:
        """Convert the value of an expression to a type, as an assignment does."""
        stored = isinstance(expr, Variable | Subscript) and self.is_given(
            expr.name if isinstance(expr, Variable) else getattr(expr.aggregate, "name", "")
        )
        if value.dtype.kind == "f" and dtype.kind in "iu" and not stored:
            self.is_rounded = True
            off = _ROUNDINGS.get(self._types(expr).itemsize, _ROUNDINGS[8])
            value = value + self._nudge * off * np.maximum(np.abs(value), 1)
        return self.converted(value, dtype)

    def map_call(self, expr: Any) -> Array:
        """Evaluate functions whose results are exact."""
        name = name_of(expr.function)
        parts = self.in_common(expr, *expr.parameters)
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
