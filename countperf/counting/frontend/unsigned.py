"""Unsigned integers in conditions and ends of loops, which are refused.

C computes with unsigned integers modulo a power of two, so that ``n - 5 >= 0`` always holds for an
unsigned ``n`` (C11, sections 6.2.5 and 6.3.1.8); Loopy writes its conditions and the ends of its
loops as if integers were signed. So sizes that bound loops have to be signed, and unsigned numbers
are compared with such alone, without differences. Those narrower than ``int`` C widens.
"""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
from loopy.kernel.function_interface import CallableKernel
from loopy.symbolic import TypeCast, WalkMapper

from countperf.counting.expression_types import text_of, type_of
from countperf.errors import CountingError

DType = np.dtype[Any]


def check_unsigned(t_unit: Any) -> None:
    """Refuse a translation unit in which unsigned numbers may make a condition wrong."""
    if not any(_unsigned_names(kernel) for kernel in _kernels_of(t_unit)):
        return
    for kernel in _kernels_of(lp.infer_unknown_types(t_unit, expect_completion=False)):
        unsigned = _unsigned_names(kernel)
        for name in sorted(unsigned & kernel.all_params()):
            raise CountingError(
                f"kernel '{kernel.name}': {name} ({type_of(kernel, name)}) bounds a loop, and Loopy"
                " generates conditions that unsigned numbers make wrong; declare np.int32, or"
                " np.int64, instead"
            )
        comparisons = _Comparisons(kernel, unsigned)
        for instruction in kernel.instructions:
            for expression in (*instruction.predicates, *_expressions_of(instruction)):
                comparisons(expression)


def _kernels_of(t_unit: Any) -> list[Any]:
    callables = t_unit.callables_table.values()
    return [known.subkernel for known in callables if isinstance(known, CallableKernel)]


def _expressions_of(instruction: Any) -> tuple[Any, ...]:
    if not isinstance(instruction, lp.MultiAssignmentBase):
        return ()
    return (instruction.expression, *instruction.assignees)


def _unsigned_names(kernel: Any) -> set[str]:
    names = (*kernel.arg_dict, *kernel.temporary_variables)
    return {name for name in names if _stays_unsigned(type_of(kernel, name))}


def _stays_unsigned(dtype: DType) -> bool:
    return dtype.kind == "u" and dtype.itemsize >= np.dtype(np.int32).itemsize


class _Comparisons(WalkMapper[[]]):
    """Refuses comparisons of unsigned numbers with others, or with differences."""

    def __init__(self, kernel: Any, unsigned: set[str]) -> None:
        super().__init__()
        self._kernel = kernel
        self._unsigned = unsigned

    def map_comparison(self, expr: Any) -> None:
        """Refuse a comparison in which C may convert, or compute, a negative number."""
        operands = _Operands()
        operands(expr.left)
        operands(expr.right)
        unsigned = sorted(operands.names & self._unsigned)
        signed = sorted(
            name
            for name in operands.names - self._unsigned
            if type_of(self._kernel, name).kind == "i"
        )
        if (unsigned or operands.casts_to_unsigned) and (signed or operands.has_negative):
            types = ", ".join(f"{name} ({type_of(self._kernel, name)})" for name in unsigned)
            raise CountingError(
                f"kernel '{self._kernel.name}': the condition {text_of(expr)} compares"
                f" {types or 'a cast to unsigned'} with a difference or with signed numbers, which"
                " unsigned numbers make wrong where these are negative; declare np.int32, or"
                " np.int64, instead"
            )
        super().map_comparison(expr)


class _Operands(WalkMapper[[]]):
    """Collects variables, casts and negative numbers outside of subscripts."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.has_negative = False
        self.casts_to_unsigned = False

    def map_constant(self, expr: Any) -> None:
        """Note whether it is negative."""
        self.has_negative |= not isinstance(expr, complex) and bool(expr < 0)

    def map_variable(self, expr: Any) -> None:
        """Note the name."""
        self.names.add(expr.name)

    def map_subscript(self, expr: Any) -> None:
        """Note the array; its subscripts are compared with nothing."""
        self.names.add(expr.aggregate.name)

    def map_type_cast(self, expr: TypeCast) -> None:
        """Note whether it is to unsigned numbers."""
        self.casts_to_unsigned |= _stays_unsigned(np.dtype(expr.type.numpy_dtype))
        self.rec(expr.child)
