"""The operations and memory accesses of one instruction, as Loopy's code generator emits them.

Rules (each handler states its own):

1. What counts is the generated code, with the foldings that every compiler makes: constant
   subexpressions are free, ``x**2`` is ``x*x`` (its operand is emitted twice), other integer
   exponents call a helper whose multiplications are counted (one ``special``, ``pown``, where the
   exponent is no constant), a multiplication by -1 is ``neg``.
2. Types are those of the generated C: untyped constants take the type of the context (that of the
   assignee, an argument, a comparison), operands follow C's usual conversions, and an operand that
   is converted between integer and real types or real sizes counts a ``convert``.
3. Subscripts are index arithmetic: their loads count, their arithmetic does not.
4. Affine conditions inside expressions restrict where their branches count. Conditions on data
   take a probability from the caller, unless nothing inside the branches counts.
5. A node class without a handler is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pymbolic.primitives as p
from loopy.symbolic import ResolvedFunction

from countperf.counting.expression_types import (
    DType,
    context_of,
    flattened_operands,
    is_constant,
    is_literal,
    join_types,
    leading_constants,
    signature_of,
    text_of,
)
from countperf.counting.keys import Case
from countperf.counting.operations.access_counter import AccessCounter, Tally
from countperf.symbolic.affine import NotAffineError

_MINMAX_FUNCTIONS = {"min", "max", "fmin", "fmax"}
_FUSED_FUNCTIONS = {"fma", "mad"}
_IDENTITIES = ("_lpy_real_", "_lpy_conj_", "_lpy_imag_")
"""Of real numbers, as Loopy names them in its code."""


class InstructionCounter(AccessCounter):
    """Tallies the operations and accesses of one execution of each of a kernel's instructions.

    Parameters are those of `countperf.counting.operations.access_counter.AccessCounter`.
    """

    # --- arithmetic

    def _join(self, types: Sequence[DType | None]) -> DType | None:
        result: DType | None = None
        for dtype in types:
            if dtype is not None:
                result = dtype if result is None else join_types(result, dtype)
        return result

    def _operands(self, children: Sequence[Any]) -> DType | None:
        """Tally operands from left to right; each is converted to the type reached with it."""
        return (self._operand_steps(children) or [None])[-1]

    def _operand_steps(self, children: Sequence[Any]) -> list[DType | None]:
        """Tally operands as `_operands`; return the type that is reached with each of them."""
        steps: list[DType | None] = []
        result: DType | None = None
        for position, child in enumerate(children):
            dtype = self.rec(child)
            following = self._join((result, dtype))
            if position and not all(is_constant(c) for c in children[:position]):
                self._convert(result, following)
            if not is_constant(child):
                self._convert(dtype, following)
            steps.append(following)
            result = following
        return steps

    def map_sum(self, expr: Any) -> DType | None:
        """A sum of k terms is k - 1 additions from left to right; leading constants fold."""
        children = flattened_operands(expr, p.Sum)
        steps = self._operand_steps(children)
        for dtype in steps[max(leading_constants(children), 1) :]:
            self._operation("add", dtype)
        return steps[-1]

    def map_product(self, expr: Any) -> DType | None:
        """A product of k factors is k - 1 multiplications, those by -1 ``neg``; constants fold."""
        children = flattened_operands(expr, p.Product)
        steps = self._operand_steps(children)
        leading = leading_constants(children)
        folded = 1
        for child in children[:leading]:
            folded = folded * child
        for position in range(max(leading, 1), len(children)):
            factors = [children[position]]
            if position == leading:
                factors.append(folded)
            is_negation = any(is_constant(f) and f == -1 for f in factors)
            self._operation("neg" if is_negation else "mul", steps[position])
        return steps[-1]

    def map_quotient(self, expr: Any) -> DType | None:
        """One division in the joined type; a quotient of constants is free."""
        children = (expr.numerator, expr.denominator)
        return self._quotient(expr, children, self._operands(children))

    def _quotient(self, expr: Any, children: Sequence[Any], result: DType | None) -> DType | None:
        if result is None or result.kind != "f":
            raise self._refusal(
                f"the quotient of integers {expr}",
                "use // or cast an operand, loopy.TypeCast(np.float32, operand)",
            )
        if not all(is_constant(child) for child in children):
            self._operation("div", result)
        return result

    def map_floor_div(self, expr: Any) -> DType | None:
        """One integer division; of constants it is free."""
        return self._integer_operation("div", expr)

    def map_remainder(self, expr: Any) -> DType | None:
        """One integer remainder; of constants it is free."""
        return self._integer_operation("mod", expr)

    def _integer_operation(self, kind: str, expr: Any) -> DType | None:
        children = (expr.numerator, expr.denominator)
        with self._set(_context="i"):
            dtype = self._operands(children)
        if dtype is not None and dtype.kind not in "iub":
            number, mend = ("real", "write it as a - b*floor(a / b)")
            if dtype.kind != "f":
                number, mend = ("complex", "write it in real() and imag()")
            raise self._refusal(
                f"{text_of(expr)} of {number} numbers, for which Loopy generates no code", mend
            )
        if not all(is_constant(child) for child in children):
            self._operation(kind, dtype)
        return dtype

    def map_power(self, expr: Any) -> DType | None:
        """Exponents 0, 1, 2 fold; integer ones call a helper; real ones are ``pow``."""
        exponent = expr.exponent
        if is_literal(exponent) and exponent == 0:
            return np.dtype(np.int32)
        if is_literal(exponent) and exponent == 1:
            return self.rec(expr.base)
        if is_literal(exponent) and exponent == 2:
            return self.rec(p.Product((expr.base, expr.base)))
        base = self.rec(expr.base)
        result = self._inferred(expr)
        if self._inferred(exponent).kind in "iu":
            self._integer_power(expr, base, result)
        else:
            self.rec(exponent)
            self._operation("pow", result)
        return result

    def _integer_power(self, expr: Any, base: DType | None, result: DType | None) -> None:
        """Count the loop of the helper ``loopy_pow``: squarings, products, a reciprocal.

        Where the exponent is no constant, data decides its length: a call of OpenCL's ``pown``.
        """
        if not is_literal(expr.exponent):
            self.rec(expr.exponent)
            self._operation("special", result, name="pown")
            return
        exponent = abs(int(expr.exponent))
        squarings = exponent.bit_length() - 1
        self._operation("mul", base if base is not None else result, squarings)
        self._operation("mul", result, bin(exponent).count("1"))
        if expr.exponent < 0:
            self._reciprocal(base)

    def _reciprocal(self, base: DType | None) -> None:
        """Count ``1.0/x``, which is in double precision, and back in the type of the base."""
        double = np.dtype(np.float64)
        self._operation("div", double)
        self._convert(base, double)
        self._convert(double, base)

    def _variadic(self, children: Sequence[Any], kind: str) -> DType | None:
        dtype = self._operands(children)
        self._operation(kind, dtype, len(children) - 1)
        return dtype

    def map_min(self, expr: Any) -> DType | None:
        """The minimum or maximum of k values is k - 1 ``minmax``."""
        return self._variadic(expr.children, "minmax")

    map_max = map_min

    def map_bitwise_and(self, expr: Any) -> DType | None:
        """K operands are k - 1 ``bitwise``."""
        return self._variadic(expr.children, "bitwise")

    map_bitwise_or = map_bitwise_and
    map_bitwise_xor = map_bitwise_and

    def map_bitwise_not(self, expr: Any) -> DType | None:
        """One ``bitwise``."""
        dtype = self.rec(expr.child)
        self._operation("bitwise", dtype)
        return dtype

    def map_left_shift(self, expr: Any) -> DType | None:
        """One ``shift``."""
        dtype = self.rec(expr.shiftee)
        self.rec(expr.shift)
        self._operation("shift", dtype)
        return dtype

    map_right_shift = map_left_shift

    def map_type_cast(self, expr: Any) -> DType | None:
        """A cast between different types is one ``convert``; of a constant it is free."""
        target = expr.type.numpy_dtype
        self._as_type(expr.child, target)
        return target

    def map_call(self, expr: Any) -> DType | None:
        """Known functions by their kind; unknown scalar functions are ``special``.

        Real and imaginary parts and conjugates of real numbers are free. Absolute values of them
        are emitted as ``fabs``, and count as that.
        """
        if not isinstance(expr.function, ResolvedFunction):
            raise self._refusal(f"the unresolved function in {expr}", "register a callable")
        callable_ = self.callables[expr.function.name]
        name = getattr(callable_, "name_in_target", None) or callable_.name
        if str(name).startswith(_IDENTITIES):
            return self.rec(expr.parameters[0])
        types = signature_of(callable_)
        name = callable_.name
        if any(dtype is not None and dtype.kind == "c" for dtype in types.values()):
            raise self._refusal(f"the complex function {name}", "write it in real operations")
        result = types.get(-1)
        for position, parameter in enumerate(expr.parameters):
            wanted = types.get(position)
            self._in_context(context_of(wanted), parameter, wanted)
        if name in _MINMAX_FUNCTIONS:
            self._operation("minmax", result)
        elif name in _FUSED_FUNCTIONS:
            self._operation("fma", result)
        elif name == "pow":
            self._operation("pow", result)
        else:
            is_real = result is not None and result.kind == "f"
            name = "fabs" if name == "abs" and is_real else name
            self._operation("special", result, name=name)
        return result

    # --- logic

    def map_comparison(self, expr: Any) -> DType | None:
        """A comparison of data is one ``compare``; of loop variables it is free."""
        if not self._is_free(expr):
            with self._set(_context=context_of(self._inferred(expr.left - expr.right))):
                self._operation("compare", self._operands((expr.left, expr.right)))
        return np.dtype(np.bool_)

    def _is_free(self, comparison: Any) -> bool:
        """Return whether a comparison is of loop variables and sizes alone, affine or not."""
        try:
            self.to_index(comparison.left)
            self.to_index(comparison.right)
        except NotAffineError:
            pass
        else:
            return True
        try:
            self.to_condition(comparison)
        except NotAffineError:
            return False
        return True

    def map_logical_and(self, expr: Any) -> DType | None:
        """Each operand counts where those before it let it be evaluated."""
        for position, child in enumerate(expr.children):
            if position == 0:
                self.rec(child)
                continue
            before = expr.children[:position]
            test = before[0] if position == 1 else type(expr)(before)
            self._branch(test, child, holds=isinstance(expr, p.LogicalAnd))
        return np.dtype(np.bool_)

    map_logical_or = map_logical_and

    def map_logical_not(self, expr: Any) -> DType | None:
        """Free."""
        self.rec(expr.child)
        return np.dtype(np.bool_)

    def map_if(self, expr: Any) -> DType | None:
        """Each branch counts on its own part; a select between values of data is ``select``."""
        self.rec(expr.condition)
        result = self._inferred(expr)
        for branch, holds in ((expr.then, True), (expr.else_, False)):
            self._branch(expr.condition, branch, holds=holds, target=result)
        self._operation("select", result)
        return result

    def _branch(self, test: Any, branch: Any, *, holds: bool, target: DType | None = None) -> None:
        """Tally a branch on its own part, and its conversion to the type of the whole."""
        if is_constant(branch):
            return
        try:
            condition = self.to_condition(test)
        except NotAffineError:
            self._data_dependent_branch(test, branch, holds=holds, target=target)
            return
        with self._set(_cases=(*self._cases, Case(alternatives=condition, holds=holds))):
            self._as_type(branch, target)

    def _data_dependent_branch(
        self, test: Any, branch: Any, *, holds: bool, target: DType | None
    ) -> None:
        share = self._share_of(test, self._instruction, holds=holds)
        if share is None:
            counted: Tally = {}
            with self._set(_tally=counted):
                self._as_type(branch, target)
            if not counted:
                return
            self.statistics.require(test, self._instruction)
            for key, number in counted.items():
                self._tally[key] = self._tally.get(key, 0) + number
            return
        with self._set(_factor=self._factor * share):
            self._as_type(branch, target)

    def _share_of(self, test: Any, instruction: str, *, holds: bool) -> Fraction | None:
        """Return how often a condition on data holds, or does not, as it is stated; None if not."""
        share = self.statistics.probability(test, instruction)
        return share if share is None or holds else 1 - share
