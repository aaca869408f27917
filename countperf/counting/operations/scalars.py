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

Of functions that Loopy itself defines, after the helpers that it emits for them:

6. ``make_tuple`` assigns each of its operands to the assignee at its place, and is no operation.
7. An update of an arg-maximum or arg-minimum is one ``compare`` of the values and two ``select``:
   which of the two values it keeps, and which of the two indices.
8. An update of a segmented sum or product is one ``bitwise`` (the flags joined), one ``select``,
   and one addition or multiplication where the flag of the second operand is not set. A flag that
   is data takes its probability from the caller, as any condition does.
9. ``indexof`` and ``indexof_vec`` are index arithmetic: only the loads in the subscript count.
10. The loop variable of an unrolled loop is a number in each copy of the body: it converts for
    free, and joins other numbers for free. A multiplication by it is one, also where it is -1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pymbolic.primitives as p
from loopy.kernel.data import UnrolledIlpTag, UnrollTag
from loopy.library.function import IndexOfCallable, MakeTupleCallable
from loopy.library.reduction import (
    ArgExtOpCallable,
    SegmentedProductReductionOperation,
    SegmentOpCallable,
)
from loopy.symbolic import ResolvedFunction, SubstitutionMapper, get_dependencies
from pymbolic.mapper.substitutor import make_subst_func

from countperf.counting import expression_types as expressions
from countperf.counting.domains import Domains
from countperf.counting.expression_types import DType, is_constant
from countperf.counting.keys import Case
from countperf.counting.operations.access_counter import AccessCounter, Tally
from countperf.symbolic.affine import try_affine

_KINDS = dict.fromkeys(("min", "max", "fmin", "fmax"), "minmax") | {
    **{"fma": "fma", "mad": "fma", "pow": "pow"}
}
"""Operations that functions are; others are ``special``."""

_IDENTITIES = ("_lpy_real_", "_lpy_conj_", "_lpy_imag_")
"""Of real numbers, as Loopy names them in its code."""

_AS_WRITTEN = SubstitutionMapper(
    lambda expr: p.Variable(expr.name) if type(expr) is expressions.UnrolledVariable else None
)


def find_tagged_inames(kernel: Any, *kinds: type) -> frozenset[str]:
    """Return the loop variables that have a tag of some kinds."""
    return frozenset(n for n in kernel.inames if kernel.iname_tags_of_type(n, kinds))


class InstructionCounter(AccessCounter):
    """Tallies the operations and accesses of one execution of each of a kernel's instructions."""

    def __init__(self, domains: Domains) -> None:
        super().__init__(domains)
        self.unrolled = find_tagged_inames(self.kernel, UnrollTag, UnrolledIlpTag)

    def tally(self, instruction: Any) -> Tally:
        """Return how often each key occurs in one execution of an instruction."""
        literals = self.unrolled & instruction.within_inames
        if literals and literals & get_dependencies(instruction.expression):
            replace = SubstitutionMapper(
                make_subst_func({name: expressions.UnrolledVariable(name) for name in literals})
            )
            instruction = instruction.copy(expression=replace(instruction.expression))
        self._start(instruction)
        call, assignees = instruction.expression, instruction.assignees
        if isinstance(call, p.Call) and isinstance(self._callable(call), MakeTupleCallable):
            if len(assignees) != len(call.parameters):
                raise self._refusal(f"an assignment of part of the tuple {call}", "assign it whole")
            for assignee, operand in zip(assignees, call.parameters, strict=True):
                target = self._store(assignee)
                self._in_context(expressions.context_of(target), operand, target)
            return self._tally
        targets = [self._store(assignee) for assignee in assignees]
        target = targets[0] if len(targets) == 1 else None
        self._in_context(expressions.context_of(targets[0]), call, target)
        return self._tally

    def map_variable(self, expr: Any) -> DType | None:
        """As everywhere; the loop variable of an unrolled loop is an untyped constant."""
        return (
            self.map_foreign(0)
            if type(expr) is expressions.UnrolledVariable
            else super().map_variable(expr)
        )

    def _subscripts(self, index: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(map(_AS_WRITTEN, index)) if self.unrolled else index

    # --- arithmetic

    def _join(self, types: Sequence[DType | None]) -> DType | None:
        result: DType | None = None
        for dtype in types:
            if dtype is not None:
                result = dtype if result is None else expressions.join_types(result, dtype)
        return result

    def _operands(self, children: Sequence[Any]) -> list[DType | None]:
        """Tally operands from left to right; each is converted to the type reached with it."""
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
        children = expressions.flatten_operands(expr, p.Sum)
        steps = self._operands(children)
        for dtype in steps[max(expressions.leading_constants(children), 1) :]:
            self._operation("add", dtype)
        return steps[-1]

    def map_product(self, expr: Any) -> DType | None:
        """A product of k factors is k - 1 multiplications, those by -1 ``neg``; constants fold."""
        children = expressions.flatten_operands(expr, p.Product)
        steps = self._operands(children)
        leading = expressions.leading_constants(children)
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
        return self._quotient(expr, children, self._operands(children)[-1])

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
            dtype = self._operands(children)[-1]
        if dtype is not None and dtype.kind not in "iub":
            number, mend = ("real", "write it as a - b*floor(a / b)")
            if dtype.kind != "f":
                number, mend = ("complex", "write it in real() and imag()")
            what = f"{expressions.text_of(expr)} of {number} numbers"
            raise self._refusal(f"{what}, for which Loopy generates no code", mend)
        if not all(is_constant(child) for child in children):
            self._operation(kind, dtype)
        return dtype

    def map_power(self, expr: Any) -> DType | None:
        """Exponents 0, 1, 2 fold; integer ones call a helper; real ones are ``pow``."""
        exponent = expr.exponent
        if type(exponent) is expressions.UnrolledVariable:
            raise self._refusal(
                f"the power {expr}, whose exponent differs in each copy of the unrolled loop",
                "write one instruction for each exponent",
            )
        if expressions.is_literal(exponent) and exponent == 0:
            return np.dtype(np.int32)
        if expressions.is_literal(exponent) and exponent == 1:
            return self.rec(expr.base)
        if expressions.is_literal(exponent) and exponent == 2:
            return self.rec(p.Product((expr.base, expr.base)))
        base = self.rec(expr.base)
        result = self._infer(expr)
        if self._infer(exponent).kind in "iu":
            self._integer_power(expr, base, result)
        else:
            self.rec(exponent)
            self._operation("pow", result)
        return result

    def _integer_power(self, expr: Any, base: DType | None, result: DType | None) -> None:
        """Count the loop of the helper ``loopy_pow``: squarings, products, a reciprocal.

        Where the exponent is no constant, data decides its length: a call of OpenCL's ``pown``.
        """
        if not expressions.is_literal(expr.exponent):
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
        dtype = self._operands(children)[-1]
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

    # --- functions

    def _callable(self, call: Any) -> Any:
        if not isinstance(call.function, ResolvedFunction):
            return None
        return self.callables.get(call.function.name)

    def map_call(self, expr: Any) -> DType | None:
        """Known functions by their kind; unknown scalar functions are ``special``.

        Real and imaginary parts and conjugates of real numbers are free. Absolute values of them
        are emitted as ``fabs``, and count as that.
        """
        match callable_ := self._callable(expr):
            case None:
                raise self._refusal(f"the unresolved function in {expr}", "register a callable")
            case ArgExtOpCallable() | SegmentOpCallable():
                return self._reduction(expr, callable_)
            case MakeTupleCallable():
                raise self._refusal(f"the tuple {expr} inside an expression", "assign it whole")
            case IndexOfCallable():
                self._index(expr.parameters[0].index_tuple)
                return self.kernel.index_dtype.numpy_dtype
            case _:
                pass
        name = callable_.name
        if str(getattr(callable_, "name_in_target", None) or name).startswith(_IDENTITIES):
            return self.rec(expr.parameters[0])
        types = expressions.signature_of(callable_)
        if any(dtype is not None and dtype.kind == "c" for dtype in types.values()):
            raise self._refusal(f"the complex function {name}", "write it in real() and imag()")
        self._arguments(expr, callable_)
        result = types.get(-1)
        kind = _KINDS.get(name, "special")
        if name == "abs" and result is not None and result.kind == "f":
            name = "fabs"
        self._operation(kind, result, name=name if kind == "special" else "")
        return result

    def _arguments(self, expr: Any, callable_: Any) -> list[Any]:
        """Tally the arguments of a call; return the types that the function takes."""
        types = expressions.signature_of(callable_)
        wanted = [types.get(position) for position in range(len(expr.parameters))]
        for parameter, dtype in zip(expr.parameters, wanted, strict=True):
            self._in_context(expressions.context_of(dtype), parameter, dtype)
        return wanted

    def _reduction(self, expr: Any, callable_: Any) -> DType:
        """Count an update of a reduction with two results (rules 7 and 8)."""
        value, other, *_ = self._arguments(expr, callable_)
        if value.kind not in "fiu":
            raise self._refusal(f"the reduction {expr} of {value}", "reduce real numbers")
        self._operation("select", value)
        if isinstance(callable_, ArgExtOpCallable):
            self._operation("compare", value)
            self._operation("select", other)
            return value
        self._operation("bitwise", other)
        is_product = isinstance(callable_.name.reduction_op, SegmentedProductReductionOperation)
        join = partial(self._operation, "mul" if is_product else "add", value)
        flag = expr.parameters[3]
        is_set = p.Comparison(flag, "!=", 0)
        is_affine = try_affine(self.to_condition, is_set) is not None
        self._tally_where(is_set if is_affine else flag, join, holds=False)
        return value

    # --- logic

    def map_comparison(self, expr: Any) -> DType | None:
        """A comparison of data is one ``compare``; of loop variables it is free."""
        if not self._is_free(expr):
            with self._set(_context=expressions.context_of(self._infer(expr.left - expr.right))):
                self._operation("compare", self._operands((expr.left, expr.right))[-1])
        return np.dtype(np.bool_)

    def _is_free(self, comparison: Any) -> bool:
        """Return whether a comparison is of loop variables and sizes alone, affine or not."""
        sides = [try_affine(self.to_index, side) for side in (comparison.left, comparison.right)]
        return None not in sides or try_affine(self.to_condition, comparison) is not None

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
        result = self._infer(expr)
        for branch, holds in ((expr.then, True), (expr.else_, False)):
            self._branch(expr.condition, branch, holds=holds, target=result)
        self._operation("select", result)
        return result

    def _branch(self, test: Any, branch: Any, *, holds: bool, target: DType | None = None) -> None:
        """Tally a branch on its own part, and its conversion to the type of the whole."""
        if not is_constant(branch):
            self._tally_where(test, partial(self._as_type, branch, target), holds=holds)

    def _tally_where(self, test: Any, tally: Callable[[], object], *, holds: bool) -> None:
        """Tally something on the part where a condition holds, or does not."""
        condition = try_affine(self.to_condition, test)
        if condition is None:
            self._tally_by_data(test, tally, holds=holds)
        else:
            with self._set(_cases=(*self._cases, Case(alternatives=condition, holds=holds))):
                tally()

    def _tally_by_data(self, test: Any, tally: Callable[[], object], *, holds: bool) -> None:
        share = self._share_of(test, self._instruction, holds=holds)
        if share is not None:
            with self._set(_factor=self._factor * share):
                tally()
            return
        counted: Tally = {}
        with self._set(_tally=counted):
            tally()
        if counted:
            self.statistics.require(test, self._instruction)
        for key, number in counted.items():
            self._tally[key] = self._tally.get(key, 0) + number

    def _share_of(self, test: Any, instruction: str, *, holds: bool) -> Fraction | None:
        """Return how often a condition on data holds, or does not, as it is stated; None if not."""
        share = self.statistics.probability(test, instruction)
        return share if share is None or holds else 1 - share
