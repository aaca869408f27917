"""Complex numbers, expanded to the real operations of the code that Loopy emits for them.

Loopy calls helpers of pyopencl's header ``pyopencl-complex.h`` (version 2025.2.5 and later): the
sum of ``a`` and ``b`` is ``cfloat_add(a, b)``. Rules:

1. An expression counts the real operations of the helpers that are emitted for it: a product of
   complex numbers is four ``mul`` and two ``add``, one by a real number two ``mul``. Real operands
   of a sum or product are joined first; a product inside a sum is fused (three ``fma``), as Loopy
   emits it unless its option ``allow_fp_reordering`` is off.
2. An element is one access of 64 or 128 bits.
3. A conversion between complex types is a macro that names its argument twice, so what is inside
   counts twice, and two ``convert``; an element that is converted is read once.
4. A multiplication by -1 is two ``neg``.
5. Helpers that branch on data in ways that count differently (``sqrt``, ``tan``, ``tanh``) are one
   ``special`` each: ``csqrt``, ``ctan``, ``ctanh``. Comparisons are refused: no valid code is
   emitted for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pymbolic.primitives as p
from loopy.symbolic import LinearSubscript, TypeCast

from countperf.counting.expression_types import DType, UnrolledVariable, is_constant
from countperf.counting.operations.functions import FunctionCounter, TupleCounter

Kind = Literal["constant", "product", "value"]

HELPERS: dict[str, dict[str, int]] = {
    "real": {},
    "imag": {},
    "new": {},
    "fromreal": {},
    "abs": {"hypot": 1},
    "neg": {"neg": 2},
    "conj": {"neg": 1},
    "add": {"add": 2},
    "addr": {"add": 1},
    "radd": {"add": 1},
    "mul": {"mul": 4, "add": 2},
    "mulr": {"mul": 2},
    "rmul": {"mul": 2},
    "fma": {"fma": 3, "mul": 1, "add": 1},
    "divide": {"div": 3, "mul": 4, "add": 3, "neg": 1, "compare": 1, "fabs": 2},
    "rdivide": {"div": 3, "mul": 3, "add": 1, "neg": 1, "compare": 1, "fabs": 2},
    "divider": {"div": 2},
    "pow": {"mul": 6, "add": 2, "log": 1, "hypot": 1, "atan2": 1, "exp": 1, "sincos": 1},
    "powr": {"mul": 4, "log": 1, "hypot": 1, "atan2": 1, "exp": 1, "sincos": 1},
    "exp": {"mul": 2, "exp": 1, "sincos": 1},
    "log": {"log": 1, "hypot": 1, "atan2": 1},
    "sin": {"mul": 2, "sincos": 1, "sinh": 1, "cosh": 1},
    "cos": {"mul": 2, "neg": 1, "sincos": 1, "sinh": 1, "cosh": 1},
    "sinh": {"mul": 2, "sincos": 1, "sinh": 1, "cosh": 1},
    "cosh": {"mul": 2, "sincos": 1, "sinh": 1, "cosh": 1},
}
"""Real operations of each helper, on every path through it."""

OPAQUE = frozenset(["sqrt", "tan", "tanh"])
"""Helpers whose operations depend on data: calls of functions."""

_KINDS = frozenset(["add", "mul", "div", "neg", "fma", "compare"])


class ComplexRules(TupleCounter):
    """Rules by which an instruction counter expands complex arithmetic."""

    helpers: Mapping[str, Mapping[str, int]] = HELPERS

    def _is_complex(self, expr: Any) -> bool:
        """Return whether Loopy takes an expression for complex; it does not look in subscripts."""
        return self._context != "i" and self._inferred(expr).kind == "c"

    def _helper(self, name: str, dtype: DType, number: int = 1) -> None:
        real = real_part(dtype)
        for kind, times in self.helpers[name].items():
            if kind in _KINDS:
                self._operation(kind, real, times * number)
            else:
                self._operation("special", real, times * number, kind)

    # --- types

    def _constant_type(self, value: Any) -> DType | None:
        """Complex constants without a type have single precision, as Loopy takes them."""
        if isinstance(value, complex) and not isinstance(value, np.generic):
            return np.dtype(np.complex64)
        return super()._constant_type(value)

    def _as_type(self, expr: Any, target: DType | None) -> DType | None:
        """A conversion between complex types names its argument twice."""
        if (
            target is None
            or target.kind != "c"
            or is_constant(expr)
            or not self._is_complex(expr)
            or self._inferred(expr) == target
        ):
            return super()._as_type(expr, target)
        source = self.rec(expr)
        if isinstance(expr, p.Subscript | LinearSubscript):
            self._index(expr.index_tuple if isinstance(expr, p.Subscript) else (expr.index,))
        elif not isinstance(expr, p.Variable):
            self.rec(expr)
        self._convert(source, target)
        return source

    def _convert(self, source: DType | None, target: DType | None) -> None:
        if source is None or target is None or "c" not in (source.kind, target.kind):
            super()._convert(source, target)
        elif target.kind != "c":
            raise self._refusal(
                f"the conversion of {source} to {target}", "take real() or imag() of it"
            )
        elif source.kind != "c":
            super()._convert(source, real_part(target))
        elif source != target:
            self._operation("convert", real_part(target), 2)

    def _operation(self, kind: str, dtype: DType | None, number: int = 1, name: str = "") -> None:
        if dtype is None or dtype.kind != "c":
            super()._operation(kind, dtype, number, name)
        elif kind == "select":
            super()._operation(kind, real_part(dtype), 2 * number)
        else:
            raise self._refusal(
                f"'{name or kind}' of {dtype}",
                "write it in real() and imag(), or pass its counts in instruction_counts",
            )

    def _real_operand(self, expr: Any, target: DType) -> None:
        """Tally a real operand, which a helper takes in the precision of its complex ones."""
        self._as_type(expr, real_part(target))

    # --- sums and products

    def map_sum(self, expr: Any) -> DType | None:
        """A complex sum: complex terms as a binary tree, the sum of real ones added to it."""
        if not self._is_complex(expr):
            return super().map_sum(expr)
        return self._join_terms(expr, self._inferred(expr), "add")

    def map_product(self, expr: Any) -> DType | None:
        """A complex product: as a sum."""
        if not self._is_complex(expr):
            return super().map_product(expr)
        return self._join_terms(expr, self._inferred(expr), "mul")

    def _join_terms(self, expr: Any, target: DType, name: str) -> DType | None:
        if all(is_constant(child) for child in expr.children):
            return target
        if not self.kernel.options.allow_fp_reordering:
            return self._in_order(expr, target, name)
        complexes = [c for c in expr.children if self._is_complex(c)]
        reals = [c for c in expr.children if not self._is_complex(c)]
        kinds: list[Kind] = [self._kind_of(c, target) for c in complexes]
        fused = self._find_fused_products(kinds) if name == "add" else frozenset[int]()
        for position, child in enumerate(complexes):
            if position in fused:
                self._factors(child, target)
            else:
                self._as_type(child, target)
        kind = self._tree(kinds, target, name)
        if not reals:
            return target
        whole: Any = type(expr)(tuple(reals)) if len(reals) > 1 else next(iter(reals))
        folded = _fold_constants(reals, name)
        if folded is None:
            self._real_operand(whole, target)
        if name == "mul" and folded == -1:
            self._helper("neg", target)
        elif (folded is None or kind != "constant") and not self._is_nothing(name, folded):
            self._helper(f"r{name}", target)
        return target

    def _tree(self, kinds: Sequence[Kind], target: DType, name: str) -> Kind:
        """Join operands as a balanced tree; return what the whole is."""
        if len(kinds) == 1:
            return kinds[0]
        middle = len(kinds) // 2
        left = self._tree(kinds[:middle], target, name)
        right = self._tree(kinds[middle:], target, name)
        if left == right == "constant":
            return "constant"
        if name == "add" and "product" in (left, right):  # the product is made by the fma
            self._helper("fma", target)
            return "value"
        self._helper(name, target)
        return "product" if name == "mul" else "value"

    def _find_fused_products(self, kinds: Sequence[Kind], first: int = 0) -> frozenset[int]:
        """Return the places of the products that a balanced tree of sums fuses; see `_tree`."""
        if len(kinds) == 1:
            return frozenset()
        middle = len(kinds) // 2
        below = self._find_fused_products(kinds[:middle], first) | self._find_fused_products(
            kinds[middle:], first + middle
        )
        if middle == 1 and kinds[0] == "product":
            return below | {first}
        if len(kinds) - middle == 1 and kinds[middle] == "product":
            return below | {first + middle}
        return below

    def _factors(self, expr: Any, target: DType) -> None:
        """Tally the two factors of a product that a sum fuses."""
        while isinstance(expr, TypeCast):
            expr = expr.child
        if isinstance(expr, p.Power):
            times: Any = expr.exponent
            factors = [expr.base] * int(times)
            middle = len(factors) - 1  # joined from left to right
        else:
            factors = list(expr.children)
            if len(factors) == 1:
                self._factors(factors[0], target)
                return
            middle = len(factors) // 2
        for part in (factors[:middle], factors[middle:]):
            if len(part) == 1:
                self._as_type(part[0], target)
            elif isinstance(expr, p.Power):
                self.rec(p.Power(expr.base, len(part)))
            else:
                self.rec(p.Product(tuple(part)))

    def _kind_of(self, expr: Any, target: DType) -> Kind:
        """Return whether an operand is a constant, or a call of the helper of products."""
        if is_constant(expr):
            return "constant"
        while isinstance(expr, TypeCast) and self._inferred(expr.child) == target:
            expr = expr.child
        if self._inferred(expr) != target:  # a cast is emitted around it
            return "value"
        if isinstance(expr, p.Power):
            return "product" if expr.exponent in (2, 3, 4) else "value"
        if not isinstance(expr, p.Product) or not all(map(self._is_complex, expr.children)):
            return "value"
        if not self.kernel.options.allow_fp_reordering or len(expr.children) > 1:
            return "product"
        return self._kind_of(next(iter(expr.children)), target)

    def _in_order(self, expr: Any, target: DType, name: str) -> DType | None:
        """Join operands from left to right."""
        result: DType | None = None
        for position, child in enumerate(expr.children):
            before = expr.children[:position]
            is_folded = all(is_constant(other) for other in before)
            is_complex = self._is_complex(child)
            dtype = self._as_type(child, target) if is_complex else self.rec(child)
            if result is None:
                result = target if is_complex else dtype
            elif is_folded and is_constant(child):
                result = target if is_complex else result
            elif is_complex and result.kind == "c":
                self._helper(name, target)
            elif is_complex:
                if not is_folded:
                    self._convert(result, target)
                folded = _fold_constants(before, name)
                is_negation = name == "mul" and folded == -1
                if not self._is_nothing(name, folded):
                    self._helper("neg" if is_negation else f"r{name}", target)
                result = target
            elif result.kind == "c":
                if not is_constant(child):
                    self._convert(dtype, target)
                is_negation = name == "mul" and is_minus_one(child)
                if not self._is_nothing(name, child):
                    self._helper("neg" if is_negation else f"{name}r", target)
            else:
                result = self._join((result, dtype))
                self._operation(name, result)
        return result

    def map_quotient(self, expr: Any) -> DType | None:
        """Complex quotients by the helper for the kinds of their operands."""
        upper, lower = self._is_complex(expr.numerator), self._is_complex(expr.denominator)
        if not (upper or lower):
            return super().map_quotient(expr)
        target = self._inferred(expr)
        for operand, is_complex in ((expr.numerator, upper), (expr.denominator, lower)):
            if is_complex:
                self._as_type(operand, target)
            else:
                self._real_operand(operand, target)
        name = "divide" if upper and lower else "divider" if upper else "rdivide"
        if name != "divider" or not self._is_nothing(name, expr.denominator):
            self._helper(name, target)
        return target

    def _is_nothing(self, name: str, real: Any) -> bool:
        """Return whether a helper leaves a complex number alone, given the real operand."""
        del name, real
        return False

    def map_power(self, expr: Any) -> DType | None:
        """Exponents 2, 3 and 4 are products; others call a helper."""
        if not self._is_complex(expr) or type(expr.exponent) is UnrolledVariable:
            return super().map_power(expr)
        target = self._inferred(expr)
        if is_constant(expr.exponent) and expr.exponent in (2, 3, 4):
            value = expr.base
            for _ in range(int(expr.exponent) - 1):
                value = value * expr.base
            return self.rec(value)
        if self._is_complex(expr.base) and not self._is_complex(expr.exponent):
            self._as_type(expr.base, target)
            self._real_operand(expr.exponent, target)
            self._helper("powr", target)
        else:
            self._as_type(expr.base, target)
            self._as_type(expr.exponent, target)
            self._helper("pow", target)
        return target

    def map_call(self, expr: Any) -> DType | None:
        """Functions of complex numbers call a helper."""
        callable_ = self._callable(expr)
        name = str(getattr(callable_, "name_in_target", ""))
        root, _, function = name.partition("_")
        if root not in ("cfloat", "cdouble"):
            return super().map_call(expr)
        if function not in HELPERS and function not in OPAQUE:
            raise self._refusal(f"the function {name}", "write it in real() and imag()")
        (operand,) = expr.parameters
        dtype = callable_.arg_id_to_dtype[0].numpy_dtype
        self._as_type(operand, dtype)
        if function in OPAQUE:
            self._operation("special", real_part(dtype), name=f"c{function}")
        else:
            self._helper(function, dtype)
        return callable_.arg_id_to_dtype[-1].numpy_dtype

    def map_comparison(self, expr: Any) -> DType | None:
        """Comparisons of complex numbers are refused: no valid code is emitted for them."""
        if self._is_complex(expr.left) or self._is_complex(expr.right):
            raise self._refusal(f"the comparison {expr} of complex numbers", "compare real parts")
        return super().map_comparison(expr)


class ComplexCounter(ComplexRules, FunctionCounter):
    """An instruction counter that expands complex arithmetic."""


def real_part(dtype: DType) -> DType:
    """Return the type of the parts of a complex type."""
    return np.dtype(f"f{dtype.itemsize // 2}")


def is_minus_one(value: Any) -> bool:
    """Return whether an operand is the constant -1."""
    return is_constant(value) and value == -1


def _fold_constants(operands: Sequence[Any], name: str) -> Any | None:
    """Return the value of constant operands joined; None if some operand is no constant."""
    if not all(
        is_constant(operand) and not isinstance(operand, p.Variable) for operand in operands
    ):
        return None
    result: Any = operands[0]
    for operand in operands[1:]:
        result = result + operand if name == "add" else result * operand
    return result
