"""Comparisons in generated code that unsigned arithmetic makes wrong.

C computes with unsigned integers modulo a power of two, so that ``n - 5 >= 0`` always holds for an
unsigned ``n`` (C11, sections 6.2.5 and 6.3.1.8); Loopy writes its conditions and the ends of its
loops as if integers were signed. Code is generated with a target that shows each comparison and
where it is evaluated. A side of it that is computed with unsigned numbers, or converted to them,
must not be negative there.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import reduce
from typing import Any

import loopy as lp
import numpy as np
import pymbolic.primitives as p
from loopy.kernel.function_interface import CallableKernel
from loopy.symbolic import get_dependencies
from pymbolic.primitives import is_zero

from countperf.counting.expression_types import join_types, text_of, type_of
from countperf.counting.frontend.loopy_patches import without_disk_caches
from countperf.errors import CountingError
from countperf.symbolic.kernel_sets import never_negative

DType = np.dtype[Any]
_INT = np.dtype(np.int32)


def _promote_type(dtype: DType) -> DType:
    """Return the type that C computes with: ``int`` for narrower integers."""
    is_narrow = dtype.kind == "b" or (dtype.kind in "iu" and dtype.itemsize < _INT.itemsize)
    return _INT if is_narrow else dtype


def _common(types: Sequence[DType]) -> DType:
    """Return the type in which C computes with numbers of some types."""
    return reduce(join_types, map(_promote_type, types))


def has_unsigned(t_unit: Any) -> bool:
    """Return whether the kernels of a translation unit have integers that C leaves unsigned."""
    kernels = [
        c.subkernel for c in t_unit.callables_table.values() if isinstance(c, CallableKernel)
    ]
    return any(
        _promote_type(type_of(kernel, name)).kind == "u"
        for kernel in kernels
        for name in (*kernel.arg_dict, *kernel.temporary_variables)
    )


def generate_without_wraps(t_unit: Any) -> Any:
    """Generate code of a translation unit; refuse it if a comparison in it may go wrong."""
    target = copy(t_unit.target)
    usual_builder = target.get_device_ast_builder

    def checking_builder() -> Any:
        builder = usual_builder()
        usual_mapper = builder.get_expression_to_code_mapper

        def checking_mapper(codegen_state: Any) -> Any:
            mapper = usual_mapper(codegen_state)
            usual_comparison = mapper.map_comparison

            def check_and_write(comparison: Any, *context: Any) -> Any:
                _Place(codegen_state, mapper).check(comparison)
                return usual_comparison(comparison, *context)

            mapper.map_comparison = check_and_write
            return mapper

        builder.get_expression_to_code_mapper = checking_mapper
        return builder

    target.get_device_ast_builder = checking_builder
    with without_disk_caches():  # what is known already would not be checked
        return lp.generate_code_v2(t_unit.copy(target=target))


class _Place:
    """A place in generated code, and the values that variables have there."""

    def __init__(self, codegen_state: Any, mapper: Any) -> None:
        self._kernel = codegen_state.kernel
        self._points = codegen_state.implemented_domain
        self._is_entry = codegen_state.is_entrypoint
        self._infer_type = mapper.infer_type

    def check(self, comparison: Any) -> None:
        """Refuse a comparison of which a side may be negative, and in C is not.

        Loopy's own conditions are of the form ``expression >= 0``, and are counted among what holds
        at their place: there the expression has to be at least zero for any loop variables.
        """
        if comparison.operator == ">=" and is_zero(comparison.right):
            self._points = None
        sides = (comparison.left, comparison.right)
        types = [self._type(side, comparison) for side in sides]
        is_order = comparison.operator not in ("==", "!=")  # which hold modulo a power of two
        if _common(types).kind == "u" and is_order:
            for side in sides:
                self._require(side, comparison)
        for side, dtype in zip(sides, types, strict=True):
            if dtype.kind == "u" and dtype != _common(types):
                self._require(side, comparison)

    def _type(self, expr: Any, comparison: Any) -> DType:
        """Return the type that C computes an expression in; refuse what wraps before it widens."""
        parts: Any
        match expr:
            case p.Sum() | p.Product() | p.Min() | p.Max():
                parts = expr.children
            case p.FloorDiv() | p.Remainder() | p.Quotient():
                parts = (expr.numerator, expr.denominator)
            case p.If():
                parts = (expr.then, expr.else_)
            case p.Comparison() | p.LogicalAnd() | p.LogicalOr() | p.LogicalNot():
                return _INT
            case int():
                return _INT
            case _:
                return _promote_type(np.dtype(self._infer_type(expr).numpy_dtype))
        types = [self._type(part, comparison) for part in parts]
        whole = _common(types)
        in_order = isinstance(expr, p.Sum | p.Product)
        for number, (part, dtype) in enumerate(zip(parts, types, strict=True), 1):
            so_far = _common(types[:number])
            if in_order and so_far.kind == "u" and so_far != whole:
                self._require(type(expr)(parts[:number]), comparison)
            if dtype.kind == "u" and (dtype != whole or not in_order):
                self._require(part, comparison)
        return whole

    def _require(self, expr: Any, comparison: Any) -> None:
        """Refuse the kernel if an expression may be negative."""
        if self._is_nonnegative(expr):
            return
        kernel = self._kernel
        names = sorted(get_dependencies(comparison))
        unsigned = [f"{n} ({type_of(kernel, n)})" for n in names if self._is_unsigned(n)]
        way = "declare np.int32, or np.int64,"
        if (
            self._is_entry
            and isinstance(expr, p.Sum)
            and get_dependencies(expr) <= kernel.outer_params()
        ):
            condition = text_of(expr).replace("(-1)*", "-1*")  # as isl reads it
            way = f"state lp.assume(kernel, '{condition} >= 0') if that holds, or {way}"
        raise CountingError(
            f"kernel '{kernel.name}': Loopy generates the condition {text_of(comparison)}, in which"
            f" {text_of(expr)} may be negative, and which unsigned numbers make wrong:"
            f" {', '.join(unsigned) or 'constants'}; {way} instead"
        )

    def _is_unsigned(self, name: str) -> bool:
        return type_of(self._kernel, name).kind == "u"

    def _is_nonnegative(self, expr: Any) -> bool:
        names = get_dependencies(expr)
        unsigned = [name for name in names if self._is_unsigned(name)]
        if never_negative(self._kernel, self._points, expr, unsigned):
            return True
        match expr:
            case p.Variable():
                return self._is_unsigned(expr.name) or expr.name in self._kernel.all_inames()
            case p.Sum() | p.Product() | p.Min() | p.BitwiseAnd() | p.BitwiseOr() | p.BitwiseXor():
                return all(map(self._is_nonnegative, expr.children))
            case p.FloorDiv() | p.Quotient() | p.Remainder():
                return all(map(self._is_nonnegative, (expr.numerator, expr.denominator)))
            case p.If():
                return all(map(self._is_nonnegative, (expr.then, expr.else_)))
            case int() | float() | np.number():
                return bool(expr >= 0)
            case _:
                return np.dtype(self._infer_type(expr).numpy_dtype).kind in "bu"
