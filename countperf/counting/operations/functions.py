"""Functions that Loopy itself defines: tuples, updates of reductions with two results, identities.

Rules, after the helpers that Loopy emits for them:

1. ``make_tuple`` assigns each of its operands to the assignee at its place, and is no operation.
2. An update of an arg-maximum or arg-minimum is one ``compare`` of the values and two ``select``:
   which of the two values it keeps, and which of the two indices.
3. An update of a segmented sum or product is one ``bitwise`` (the flags joined), one ``select``,
   and one addition or multiplication where the flag of the second operand is not set. A flag that
   is data takes its probability from the caller, as any condition does.
4. ``indexof`` and ``indexof_vec`` are index arithmetic: only the loads in the subscript count.
5. The loop variable of an unrolled loop is a number in each copy of the body: it converts for free,
   and joins other numbers for free. A multiplication by it is one, also where it is -1.
"""

from __future__ import annotations

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

from countperf.counting.domains import Domains
from countperf.counting.expression_types import DType, UnrolledVariable, context_of, signature_of
from countperf.counting.keys import Case
from countperf.counting.operations.access_counter import Tally
from countperf.counting.operations.scalars import InstructionCounter
from countperf.symbolic.affine import NotAffineError

_UNROLLED = (UnrollTag, UnrolledIlpTag)


def _as_written(expr: Any) -> Any:
    return p.Variable(expr.name) if type(expr) is UnrolledVariable else None


_WRITTEN = SubstitutionMapper(_as_written)


def find_tagged_inames(kernel: Any, kinds: type | tuple[type, ...]) -> frozenset[str]:
    """Return the loop variables that have a tag of some kinds."""
    return frozenset(
        [
            name
            for name, iname in kernel.inames.items()
            for tag in iname.tags
            if isinstance(tag, kinds)
        ]
    )


class TupleCounter(InstructionCounter):
    """An instruction counter that knows tuples, and the reductions that Loopy makes of them."""

    def tally(self, instruction: Any) -> Tally:
        """Return how often each key occurs; a tuple is assigned operand by operand."""
        call = instruction.expression
        if not (isinstance(call, p.Call) and isinstance(self._callable(call), MakeTupleCallable)):
            return super().tally(instruction)
        self._start(instruction)
        if len(instruction.assignees) != len(call.parameters):
            raise self._refusal(f"an assignment of part of the tuple {call}", "assign it whole")
        for assignee, operand in zip(instruction.assignees, call.parameters, strict=True):
            target = self._store(assignee)
            self._in_context(context_of(target), operand, target)
        return self._tally

    def _callable(self, call: Any) -> Any:
        if not isinstance(call.function, ResolvedFunction):
            return None
        return self.callables.get(call.function.name)

    def map_call(self, expr: Any) -> DType | None:
        """Functions that Loopy defines by the rules of this module; others as everywhere."""
        callable_ = self._callable(expr)
        match callable_:
            case ArgExtOpCallable():
                return self._arg_extremum(expr, self._arguments(expr, callable_))
            case SegmentOpCallable():
                return self._segment_call(expr, callable_, self._arguments(expr, callable_))
            case MakeTupleCallable():
                raise self._refusal(f"the tuple {expr} inside an expression", "assign it whole")
            case IndexOfCallable():
                (subscript,) = expr.parameters
                self._index(subscript.index_tuple)
                return self.kernel.index_dtype.numpy_dtype
            case _:
                pass
        return super().map_call(expr)

    def _arguments(self, expr: Any, callable_: Any) -> list[DType]:
        """Tally the arguments of a call; return the types that the function takes."""
        types = signature_of(callable_)
        wanted = [types[position] for position in range(len(expr.parameters))]
        for parameter, dtype in zip(expr.parameters, wanted, strict=True):
            self._in_context(context_of(dtype), parameter, dtype)
        return wanted

    def _arg_extremum(self, expr: Any, types: list[DType]) -> DType | None:
        value, index = self._scalar(expr, types[0]), types[1]
        self._operation("compare", value)
        self._operation("select", value)
        self._operation("select", index)
        return value

    def _segment_call(self, expr: Any, callable_: Any, types: list[DType]) -> DType | None:
        value, flag = self._scalar(expr, types[0]), types[1]
        self._operation("bitwise", flag)
        self._operation("select", value)
        is_product = isinstance(callable_.name.reduction_op, SegmentedProductReductionOperation)
        self._where_unset(expr.parameters[3], "mul" if is_product else "add", value)
        return value

    def _scalar(self, expr: Any, dtype: DType) -> DType:
        if dtype.kind not in "fiu":
            raise self._refusal(f"the reduction {expr} of {dtype}", "reduce real numbers")
        return dtype

    def _where_unset(self, flag: Any, kind: str, dtype: DType) -> None:
        """Count an operation where a flag is zero."""
        where: dict[str, Any] = {}
        try:
            is_set = self.to_condition(p.Comparison(flag, "!=", 0))
            where["_cases"] = (*self._cases, Case(alternatives=is_set, holds=False))
        except NotAffineError:
            probability = self.statistics.probability(flag, self._instruction)
            if probability is None:
                self.statistics.require(flag, self._instruction)
                return
            where["_factor"] = self._factor * (1 - probability)
        with self._set(**where):
            self._operation(kind, np.dtype(dtype))


class FunctionCounter(TupleCounter):
    """An instruction counter that knows the functions that Loopy defines, and unrolled loops."""

    def __init__(self, domains: Domains) -> None:
        super().__init__(domains)
        self.unrolled = find_tagged_inames(self.kernel, _UNROLLED)

    def tally(self, instruction: Any) -> Tally:
        """Return how often each key occurs; the variables of unrolled loops are numbers."""
        literals = self.unrolled & instruction.within_inames
        if literals and literals & get_dependencies(instruction.expression):
            replace = SubstitutionMapper(
                make_subst_func({name: UnrolledVariable(name) for name in literals})
            )
            instruction = instruction.copy(expression=replace(instruction.expression))
        return super().tally(instruction)

    def map_variable(self, expr: Any) -> DType | None:
        """As everywhere; the loop variable of an unrolled loop is an untyped constant."""
        if type(expr) is UnrolledVariable:
            return self._constant_type(0)
        return super().map_variable(expr)

    map_tagged_variable = map_variable

    def _access(
        self, direction: str, name: str, variable: Any, space: str, index: tuple[Any, ...]
    ) -> None:
        if self.unrolled:  # subscripts are kept as they are written
            index = tuple(_WRITTEN(part) for part in index)
        super()._access(direction, name, variable, space, index)

    def map_power(self, expr: Any) -> DType | None:
        """As everywhere; the loop variable of an unrolled loop is no exponent that is counted."""
        if type(expr.exponent) is UnrolledVariable:
            raise self._refusal(
                f"the power {expr}, whose exponent differs in each copy of the unrolled loop",
                "write one instruction for each exponent",
            )
        return super().map_power(expr)
