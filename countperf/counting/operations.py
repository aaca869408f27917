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

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
import pymbolic.primitives as p
from loopy import AddressSpace
from loopy.kernel.array import ArrayBase
from loopy.kernel.data import ImageArg
from loopy.symbolic import LinearSubscript, ResolvedFunction
from loopy.type_inference import TypeReader

from countperf.counting.choices import alternatives
from countperf.counting.keys import Case, FirstIteration, MemoryAccess, Operation, type_name
from countperf.counting.statistics import Statistics
from countperf.counting.texts import text_of
from countperf.errors import UnsupportedExpressionError
from countperf.symbolic.affine import NotAffineError, RefusingMapper, ToCondition
from countperf.symbolic.memory import kept_in_process
from countperf.symbolic.quasipolynomial import Number

DType = np.dtype[Any]
Key = Operation | MemoryAccess
Tally = dict[tuple[Key, tuple[Case | FirstIteration, ...]], Number]

_MINMAX_FUNCTIONS = {"min", "max", "fmin", "fmax"}
_FUSED_FUNCTIONS = {"fma", "mad"}
_IDENTITIES = ("_lpy_real_", "_lpy_conj_", "_lpy_imag_")
"""Of real numbers, as Loopy names them in its code."""
_LOOPYS_FUNCTIONS = {"make_tuple", "indexof", "indexof_vec"}


_LIMITS = {
    "INFINITY": np.dtype(np.float32),
    "HUGE_VAL": np.dtype(np.float64),
    "INT_MIN": np.dtype(np.int32),
    "INT_MAX": np.dtype(np.int32),
    "LONG_MIN": np.dtype(np.int64),
    "LONG_MAX": np.dtype(np.int64),
    "UINT_MAX": np.dtype(np.uint32),
    "ULONG_MAX": np.dtype(np.uint64),
}
"""Constants of C that Loopy writes, such as for the initial value of a minimum."""

_CONTEXT_TYPES = {"f": np.dtype(np.float32), "d": np.dtype(np.float64)}


@kept_in_process(256)
def _joined(left: DType, right: DType) -> DType:
    """Return the type that C's usual arithmetic conversions give (C11, section 6.3.1.8)."""
    for kind in "Vc":  # vectors and complex numbers have rules of their own; none applies here
        if kind in (left.kind, right.kind):
            return left if left.kind == kind else right
    if "f" in (left.kind, right.kind) and left.kind != right.kind:
        return left if left.kind == "f" else right
    if left.kind == "b" or right.kind == "b":
        return right if left.kind == "b" else left
    return max(left, right, key=lambda t: (t.itemsize, t.kind == "u"))


def context_of(dtype: DType | None) -> str | None:
    """Return the code generator's type context for a type."""
    if dtype is None:
        return None
    if dtype.kind == "f":
        return {8: "d", 4: "f"}.get(dtype.itemsize)
    if dtype.kind == "c":
        return {16: "d", 8: "f"}.get(dtype.itemsize)
    if dtype.fields:  # a vector
        return context_of(np.dtype(next(iter(dtype.fields.values()))[0]))
    return "i" if dtype.kind in "iub" else None


@p.expr_dataclass()
class UnrolledVariable(p.Variable):
    """A loop variable of an unrolled loop, which stands as a number in each copy of the body."""

    mapper_method: ClassVar[str] = "map_variable"


def _is_literal(expr: Any) -> bool:
    if type(expr) is p.Variable:
        return expr.name in _LIMITS
    return not isinstance(expr, p.ExpressionNode) or type(expr) is UnrolledVariable


def is_constant(expr: Any) -> bool:
    """Return whether an expression is a number, or sums, products and small powers of numbers."""
    match expr:
        case p.Sum() | p.Product():
            return all(map(is_constant, expr.children))
        case p.Quotient() | p.FloorDiv() | p.Remainder():
            return is_constant(expr.numerator) and is_constant(expr.denominator)
        case p.Power():
            small = _is_literal(expr.exponent) and expr.exponent in (0, 1, 2)
            return small and is_constant(expr.base)
        case _:
            return _is_literal(expr)


class InstructionCounter(RefusingMapper):
    """Tallies one execution of each of a kernel's instructions.

    Parameters
    ----------
    kernel : loopy.LoopKernel
        Preprocessed, so that all types are known and reductions are realized.
    callables : mapping
        The translation unit's table of callables.
    to_condition : ToCondition
        Tells affine conditions.
    statistics : mapping from str to number
        Probabilities of conditions on data, by instruction id or by the condition's text.
    powers : {"emitted", "written"}
        Whether ``x**2`` is the multiplication that is emitted, or one ``pow`` as written.
    """

    def __init__(
        self,
        kernel: Any,
        callables: Any,
        to_condition: ToCondition,
        *,
        statistics: Mapping[str, Any],
        powers: Literal["emitted", "written"] = "emitted",
    ) -> None:
        super().__init__()
        self.kernel = kernel
        self.callables = callables
        self.to_condition = to_condition
        self.statistics = Statistics.of(kernel, statistics)
        self.powers = powers
        self.inames: frozenset[str] = kernel.all_inames()
        self._tally: Tally = {}
        self._cases: tuple[Case, ...] = ()
        self._factor: Number = 1
        self._in_index = False
        self._context: str | None = None
        self._instruction = ""
        self._type_reader: Any = None
        self.to_index = cache(to_condition.to_polynomial.rec)  # nothing counts in what it can map

    # --- bookkeeping

    def tally(self, instruction: Any) -> Tally:
        """Return how often each key occurs in one execution of an instruction.

        Parameters
        ----------
        instruction : loopy.Assignment or loopy.CallInstruction
            Its right-hand side, the subscripts of its assignees and its stores are tallied.

        Returns
        -------
        dict from (key, cases) to number
            The cases are the affine conditions under which the key occurs.

        Raises
        ------
        UnsupportedExpressionError
            An expression node or a function has no counting rule.
        DataDependentControlFlowError
            A condition depends on data and has no probability.
        """
        self._start(instruction)
        targets = [self._store(assignee) for assignee in instruction.assignees]
        target = targets[0] if len(targets) == 1 else None
        self._in_context(context_of(targets[0]), instruction.expression, target)
        return self._tally

    def tally_predicates(self, instruction: Any) -> Tally:
        """Return what the evaluation of an instruction's predicates takes, once.

        Raises
        ------
        UnsupportedExpressionError, DataDependentControlFlowError
            As for `tally`.
        """
        self._start(instruction)
        for predicate in sorted(instruction.predicates, key=str):
            self.rec(predicate)
        return self._tally

    def loops_around(self, instruction: Any) -> frozenset[str]:
        """Return the loop variables for whose values an instruction is executed, once for each."""
        return instruction.within_inames

    def _start(self, instruction: Any) -> None:
        self._tally, self._cases, self._factor = {}, (), 1
        self._instruction = instruction.id
        self._context = None

    def _in_context(
        self, context: str | None, expr: Any, target: DType | None = None
    ) -> DType | None:
        """Tally an expression whose untyped constants take the type of a context.

        It is converted to the target type, if one is given.
        """
        outer, self._context = self._context, context
        try:
            return self._as_type(expr, target)
        finally:
            self._context = outer

    def _as_type(self, expr: Any, target: DType | None) -> DType | None:
        """Tally an expression and its conversion to a type; constants convert for free."""
        source = self.rec(expr)
        if not is_constant(expr):
            self._convert(source, target)
        return source

    def _inferred(self, expr: Any) -> DType:
        """Return the type that Loopy infers for an expression."""
        if self._type_reader is None:
            self._type_reader = TypeReader(self.kernel, self.callables)
        try:
            return self._type_reader(expr).numpy_dtype
        except Exception as error:  # type inference fails in many ways
            raise self._refusal(
                f"{text_of(expr)}, whose type Loopy does not infer ({type(error).__name__})",
                "rewrite it, or pass its instruction's counts in instruction_counts",
            ) from error

    def _add(self, key: Key, number: Number = 1) -> None:
        if not number:
            return
        if isinstance(key, Operation) and self._in_index:
            return
        place = (key, self._cases)
        self._tally[place] = self._tally.get(place, 0) + number * self._factor

    def _operation(self, kind: str, dtype: DType | None, number: int = 1, name: str = "") -> None:
        if dtype is None or dtype.kind == "b" or not number:
            return
        if dtype.kind not in "fiu":
            raise self._refusal(f"arithmetic on {dtype}", "write it in real operations")
        if dtype.itemsize > 8:
            raise self._refusal(f"arithmetic on {dtype}", "compute in np.float64")
        self._add(Operation(kind=kind, type_name=type_name(dtype), function=name), number)

    def _convert(self, source: DType | None, target: DType | None) -> None:
        if source is None or target is None or source == target:
            return
        if source.kind in "cV" or target.kind in "cV":
            raise self._refusal(
                f"the conversion of {source} to {target}", "write it in real operations"
            )
        if source.kind in "fiu" and target.kind in "fiu" and "f" in (source.kind, target.kind):
            self._operation("convert", target if target.kind == "f" else source)

    def _refusal(self, what: str, mend: str) -> UnsupportedExpressionError:
        return UnsupportedExpressionError(
            f"kernel '{self.kernel.name}', instruction '{self._instruction}': no counting rule for "
            f"{what}; {mend}",
            kernel=self.kernel.name,
            where=self._instruction,
        )

    def handle_unsupported_expression(self, expr: Any, /, *_: Any, **__: Any) -> Any:
        """Refuse an expression node without a counting rule."""
        raise self._refusal(
            f"{type(expr).__name__} ({text_of(expr)})",
            "rewrite the expression, or pass its instruction's counts in instruction_counts",
        )

    def map_foreign(self, expr: Any, /, *_: Any, **__: Any) -> DType | None:
        """Numbers are constants."""
        return self._constant_type(expr)

    # --- leaves

    def _constant_type(self, value: Any) -> DType | None:
        """Constants are free; untyped ones take the type of the context."""
        if isinstance(value, np.generic):
            return value.dtype
        if isinstance(value, bool):
            return np.dtype(np.bool_)
        if isinstance(value, int | float):
            if self._context in _CONTEXT_TYPES:
                return _CONTEXT_TYPES[self._context]
            if isinstance(value, int) or self._context in ("i", "b"):
                return np.dtype(np.int32 if -(2**31) <= value < 2**31 else np.int64)
        raise self._refusal(
            f"the constant {value!r} of type {type(value).__name__}",
            "use a number, with a type of its own where nothing else decides it",
        )

    def map_nan(self, expr: Any) -> DType | None:
        """Free."""
        if expr.data_type is None:
            return _CONTEXT_TYPES.get(self._context or "", np.dtype(np.float32))
        return np.dtype(expr.data_type)

    def map_variable(self, expr: Any) -> DType | None:
        """Loop variables, parameters and private scalars are free; others are loads."""
        if expr.name in _LIMITS:
            return _CONTEXT_TYPES.get(self._context or "", _LIMITS[expr.name])
        if expr.name in self.inames:
            return self.kernel.index_dtype.numpy_dtype
        variable = self._variable(expr.name)
        space = self._address_space(variable)
        if space is not None:
            self._access("load", expr.name, variable, space, ())
        return self._element_type(variable)

    map_tagged_variable = map_variable

    def _variable(self, name: str) -> Any:
        found = self.kernel.arg_dict.get(name)
        if found is None:
            found = self.kernel.temporary_variables.get(name)
        if found is None:
            raise self._refusal(f"the name '{name}'", "declare it as an argument or temporary")
        return found

    def _element_type(self, variable: Any) -> DType:
        return variable.dtype.numpy_dtype

    def _address_space(self, variable: Any) -> str | None:
        """Return ``global``, ``local``, or None for what lives in registers."""
        if isinstance(variable, ImageArg):
            raise self._refusal(f"the image '{variable.name}'", "use a global array")
        if not isinstance(variable, ArrayBase):
            return None
        space = getattr(variable, "address_space", AddressSpace.GLOBAL)
        if space == AddressSpace.GLOBAL:
            return "global"
        return "local" if space == AddressSpace.LOCAL else None

    def _access(
        self, direction: str, name: str, variable: Any, space: str, index: tuple[Any, ...]
    ) -> None:
        dtype = self._element_type(variable)
        self._add(
            MemoryAccess(
                address_space=space,
                direction=direction,
                array=name,
                bits=dtype.itemsize * 8,
                index=index,
            )
        )

    def map_subscript(self, expr: Any) -> DType | None:
        """Loads from global or local arrays count; private arrays are registers."""
        return self._subscripted("load", expr.aggregate.name, expr.index_tuple)

    def map_linear_subscript(self, expr: Any) -> DType | None:
        """A subscript of the flattened array: one load."""
        return self._subscripted("load", expr.aggregate.name, (LinearSubscript(0, expr.index),))

    def _subscripted(self, direction: str, name: str, index: tuple[Any, ...]) -> DType | None:
        variable = self._variable(name)
        outer, self._in_index = self._in_index, True
        is_affine = True
        for part in index:
            whole = getattr(part, "index", part) if _is_linear(part) else part
            try:
                self.to_index(whole)
            except NotAffineError:
                is_affine = False
                self._in_context("i", whole)
        self._in_index = outer
        space = self._address_space(variable)
        if space is not None:
            cases = self._cases
            for chosen, where in (
                [(index, ())] if is_affine else alternatives(index, self.to_condition)
            ):
                self._cases = (*cases, *where)
                self._access(direction, name, variable, space, chosen)
            self._cases = cases
        return self._element_type(variable)

    def _store(self, assignee: Any) -> DType | None:
        kind = type(assignee)
        if issubclass(kind, p.Variable):
            variable = self._variable(assignee.name)
            space = self._address_space(variable)
            if space is not None:
                self._access("store", assignee.name, variable, space, ())
            return self._element_type(variable)
        if issubclass(kind, LinearSubscript):
            index = (LinearSubscript(0, assignee.index),)
            return self._subscripted("store", assignee.aggregate.name, index)
        if issubclass(kind, p.Subscript):
            return self._subscripted("store", assignee.aggregate.name, assignee.index_tuple)
        raise self._refusal(
            f"the assignee {assignee} ({type(assignee).__name__})", "assign to array elements"
        )

    # --- arithmetic

    def _join(self, types: Sequence[DType | None]) -> DType | None:
        result: DType | None = None
        for dtype in types:
            if dtype is not None:
                result = dtype if result is None else _joined(result, dtype)
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
                f"the quotient of integers {expr}", "use // or cast an operand to a real type"
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
        outer, self._context = self._context, "i"
        try:
            dtype = self._operands(children)
        finally:
            self._context = outer
        if dtype is not None and dtype.kind not in "iub":
            raise self._refusal(
                f"{text_of(expr)} of real numbers, for which Loopy generates no code",
                "write it as a - b*floor(a / b)",
            )
        if not all(is_constant(child) for child in children):
            self._operation(kind, dtype)
        return dtype

    def map_power(self, expr: Any) -> DType | None:
        """Exponents 0, 1, 2 fold; integer ones call a helper; real ones are ``pow``."""
        exponent = expr.exponent
        if _is_literal(exponent) and exponent == 0:
            return np.dtype(np.int32)
        if _is_literal(exponent) and exponent == 1:
            return self.rec(expr.base)
        if self.powers == "written":
            dtype = self._operands((expr.base, exponent))
            self._operation("pow", dtype)
            return dtype
        if _is_literal(exponent) and exponent == 2:
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
        if not _is_literal(expr.exponent):
            self.rec(expr.exponent)
            self._operation("special", result, name="pown")
            return
        exponent = abs(int(expr.exponent))
        squarings = exponent.bit_length() - 1
        self._operation("mul", base if base is not None else result, squarings)
        self._operation("mul", result, bin(exponent).count("1"))
        if expr.exponent < 0:
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

    def map_max(self, expr: Any) -> DType | None:
        """As a minimum."""
        return self._variadic(expr.children, "minmax")

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
            raise self._refusal(f"the unresolved function in {expr}", "register the callable")
        callable_ = self.callables[expr.function.name]
        name = getattr(callable_, "name_in_target", None) or getattr(callable_, "name", None)
        if name is None or hasattr(callable_, "subkernel"):
            raise self._refusal(f"the call {expr}", "inline the callee first")
        if str(name).startswith(_IDENTITIES):
            return self.rec(expr.parameters[0])
        types = callable_.arg_id_to_dtype or {}
        if not isinstance(callable_.name, str) or callable_.name in _LOOPYS_FUNCTIONS:
            raise self._refusal(f"the call of {text_of(expr)}", "assign its result whole")
        name = callable_.name
        if any(t is not None and t.numpy_dtype.kind == "c" for t in types.values()):
            raise self._refusal(f"the complex function {name}", "write it in real operations")
        result = types[-1].numpy_dtype if types.get(-1) is not None else None
        for position, parameter in enumerate(expr.parameters):
            wanted = types[position].numpy_dtype if types.get(position) is not None else None
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
            outer, self._context = (
                self._context,
                context_of(self._inferred(expr.left - expr.right)),
            )
            self._operation("compare", self._operands((expr.left, expr.right)))
            self._context = outer
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
        cases, factor = self._cases, self._factor
        try:
            condition = self.to_condition(test)
        except NotAffineError:
            self._data_dependent_branch(test, branch, holds=holds, target=target)
            return
        self._cases = (*cases, Case(alternatives=condition, holds=holds))
        try:
            self._as_type(branch, target)
        finally:
            self._cases, self._factor = cases, factor

    def _data_dependent_branch(
        self, test: Any, branch: Any, *, holds: bool, target: DType | None
    ) -> None:
        share = self._share_of(test, self._instruction, holds=holds)
        if share is None:
            outer, self._tally = self._tally, {}
            self._as_type(branch, target)
            counted, self._tally = self._tally, outer
            if not counted:
                return
            self.statistics.require(test, self._instruction)
            for place, number in counted.items():
                self._tally[place] = self._tally.get(place, 0) + number
            return
        factor = self._factor
        self._factor = factor * share
        try:
            self._as_type(branch, target)
        finally:
            self._factor = factor

    def _share_of(self, test: Any, instruction: str, *, holds: bool) -> Fraction | None:
        """Return how often a condition on data holds, or does not, as it is stated; None if not."""
        share = self.statistics.probability(test, instruction)
        return share if share is None or holds else 1 - share


def _is_linear(part: Any) -> bool:
    return isinstance(part, LinearSubscript)


def flattened_operands(expr: Any, cls: type) -> tuple[Any, ...]:
    """Return the operands of nested sums or products, as they are emitted: unparenthesized."""
    result: list[Any] = []
    for child in expr.children:
        if type(child) is cls:
            result.extend(flattened_operands(child, cls))
        else:
            result.append(child)
    return tuple(result)


def leading_constants(children: Sequence[Any]) -> int:
    """Return how many operands come before the first that is no constant: they fold."""
    number = 0
    while number < len(children) and is_constant(children[number]):
        number += 1
    return number
