"""The operations and memory accesses of one instruction, as Loopy's code generator emits them.

Each handler states its rule. Constant subexpressions are free, as every compiler folds them. Types
are those of the generated C: untyped constants take the type of the context (that of the assignee,
an argument, a comparison), operands follow C's usual conversions, and one that is converted between
integer and real types or real sizes counts a ``convert``. The loop variable of an unrolled loop is
such a constant in each copy of the body, by which a multiplication is one, also where it is -1.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pymbolic.primitives as p
from loopy import AddressSpace
from loopy.kernel.array import ArrayBase
from loopy.kernel.data import ImageArg, UnrolledIlpTag, UnrollTag
from loopy.library.function import IndexOfCallable, MakeTupleCallable
from loopy.library.reduction import (
    ArgExtOpCallable,
    SegmentedProductReductionOperation,
    SegmentOpCallable,
)
from loopy.symbolic import LinearSubscript, ResolvedFunction, SubstitutionMapper, get_dependencies
from loopy.type_inference import TypeReader
from pymbolic.mapper.substitutor import make_subst_func

from countperf.counting import expression_types as expressions
from countperf.counting.domains import Domains
from countperf.counting.expression_types import CONTEXT_TYPES, DType, is_constant, text_of
from countperf.counting.keys import Case, FirstIteration, MemoryAccess, Operation, type_name
from countperf.counting.operations.subscripts import list_choices, list_subscripts, strip_linear
from countperf.errors import UnsupportedExpressionError
from countperf.symbolic.affine import RefusingMapper, try_affine
from countperf.symbolic.quasipolynomial import Number

Key = Operation | MemoryAccess
Tally = dict[tuple[Key, tuple[Case | FirstIteration, ...]], Number]

FUNCTION_KINDS = {
    **dict.fromkeys(("min", "max", "fmin", "fmax"), "minmax"),
    **{"fma": "fma", "mad": "fma", "pow": "pow"},
}
"""Operations that functions are; others are ``special``."""

_IDENTITIES = ("_lpy_real_", "_lpy_conj_", "_lpy_imag_")
"""Of real numbers, as Loopy names them in its code."""

_AS_WRITTEN = SubstitutionMapper(
    lambda expr: p.Variable(expr.name) if type(expr) is expressions.UnrolledVariable else None
)
_REWRITE = "rewrite the expression, or pass its instruction's counts in instruction_counts"


def find_tagged_inames(kernel: Any, *kinds: type) -> frozenset[str]:
    """Return the loop variables that have a tag of some kinds."""
    return frozenset(n for n in kernel.inames if kernel.iname_tags_of_type(n, kinds))


class InstructionCounter(RefusingMapper):
    """Tallies the operations and accesses of one execution of each of a kernel's instructions."""

    is_optimized = False  # whether what leaves numbers alone is left out

    def __init__(self, domains: Domains) -> None:
        super().__init__()
        self.domains = domains
        self.kernel = domains.kernel
        self.callables = domains.callables
        self.to_condition = domains.to_condition
        self.to_index = cache(domains.to_polynomial.rec)  # nothing counts in what it can map
        self.statistics = domains.statistics
        self.inames: frozenset[str] = domains.kernel.all_inames()
        self.unrolled = find_tagged_inames(self.kernel, UnrollTag, UnrolledIlpTag)
        self._tally: Tally = {}
        self._cases: tuple[Case, ...] = ()
        self._factor: Number = 1
        self._in_index = False
        self._context: str | None = None
        self._instruction = ""
        self._type_reader: Any = TypeReader(self.kernel, self.callables)

    def tally(self, instruction: Any) -> Tally:
        """Return how often each key occurs in one execution; making a tuple is free."""
        literals = self.unrolled & instruction.within_inames
        if literals and literals & get_dependencies(instruction.expression):
            numbers = {name: expressions.UnrolledVariable(name) for name in literals}
            replace = SubstitutionMapper(make_subst_func(numbers))
            instruction = instruction.copy(expression=replace(instruction.expression))
        self._start(instruction)
        call, assignees = instruction.expression, instruction.assignees
        if isinstance(call, p.Call) and isinstance(self._callable(call), MakeTupleCallable):
            if len(assignees) != len(call.parameters):
                raise self._refusal(f"an assignment of part of the tuple {call}", "assign it whole")
            for assignee, operand in zip(assignees, call.parameters, strict=True):
                self._to_type(operand, self._store(assignee))
        else:
            target, *others = [self._store(assignee) for assignee in assignees]
            context = expressions.context_of(target)
            self._in_context(context, call, None if others else target)
        return self._tally

    def tally_predicates(self, instruction: Any) -> Tally:
        """Return what the evaluation of an instruction's predicates takes, once."""
        self._start(instruction)
        for predicate in sorted(instruction.predicates, key=str):
            self.rec(predicate)
        return self._tally

    # --- bookkeeping

    def _start(self, instruction: Any) -> None:
        self._tally, self._cases, self._factor = {}, (), 1
        self._instruction, self._context = instruction.id, None

    def _in_context(
        self, context: str | None, expr: Any, target: DType | None = None
    ) -> DType | None:
        """Tally an expression whose untyped constants have the type of a context; convert it."""
        with self._set(_context=context):
            return self._as_type(expr, target)

    @contextmanager
    def _set(self, **attributes: Any) -> Generator[None]:
        """Set attributes for a while."""
        before = {name: getattr(self, name) for name in attributes}
        self.__dict__.update(attributes)
        try:
            yield
        finally:
            self.__dict__.update(before)

    def _to_type(self, expr: Any, target: DType | None) -> None:
        """Tally an expression in the context of a type, and convert it."""
        self._in_context(expressions.context_of(target), expr, target)

    def _index(self, index: Iterable[Any]) -> None:
        """Tally the loads in a subscript."""
        with self._set(_in_index=True):
            for part in index:
                self._in_context("i", part)

    def _as_type(self, expr: Any, target: DType | None) -> DType | None:
        """Tally an expression and its conversion to a type; constants convert for free."""
        source = self.rec(expr)
        if not is_constant(expr):
            self._convert(source, target)
        return source

    def _infer(self, expr: Any) -> DType:
        """Return the type that Loopy infers for an expression."""
        try:
            inferred = self._type_reader(expr)
            return getattr(inferred, "numpy_dtype", inferred)  # of pow, Loopy keeps NumPy's
        except Exception as error:  # type inference fails in many ways
            raise self._refusal(
                f"{text_of(expr)}, whose type Loopy does not infer ({type(error).__name__})",
                _REWRITE,
            ) from error

    def _add(self, key: Key, number: Number = 1) -> None:
        if not number or (isinstance(key, Operation) and self._in_index):
            return
        entry = (key, (*self._cases, *self._find_hoisting_loops(key)))
        self._tally[entry] = self._tally.get(entry, 0) + number * self._factor

    def _find_hoisting_loops(self, key: Key) -> tuple[FirstIteration] | tuple[()]:  # noqa: ARG002
        """Return the loops that a key is moved out of, if any."""
        return ()

    def _operation(self, kind: str, dtype: DType | None, number: int = 1, name: str = "") -> None:
        if dtype is None or dtype.kind == "b" or not number:
            return
        if dtype.kind not in "fiu" or dtype.itemsize > 8:
            is_long = dtype.kind in "fiu"
            mend = "compute in np.float64" if is_long else "write it in real() and imag()"
            raise self._refusal(f"arithmetic on {dtype}", mend)
        self._add(Operation(kind=kind, type_name=type_name(dtype), function=name), number)

    def _convert(self, source: DType | None, target: DType | None) -> None:
        if source is None or target is None or source == target:
            return
        kinds = {source.kind, target.kind}
        if not kinds.isdisjoint("cV"):
            mend = "write it in real() and imag()"
            raise self._refusal(f"the conversion of {source} to {target}", mend)
        if "f" in kinds and kinds <= set("fiu"):
            self._operation("convert", target if target.kind == "f" else source)

    def _refusal(self, what: str, mend: str) -> UnsupportedExpressionError:
        return UnsupportedExpressionError(
            f"kernel '{self.kernel.name}', instruction '{self._instruction}': no counting rule for "
            f"{what}; {mend}"
        )

    def handle_unsupported_expression(self, expr: Any, /, *_: Any, **__: Any) -> Any:
        """Refuse an expression node without a counting rule."""
        raise self._refusal(f"{type(expr).__name__} ({text_of(expr)})", _REWRITE)

    # --- leaves

    def map_foreign(self, expr: Any, /, *_: Any, **__: Any) -> DType | None:
        """Constants are free; untyped ones take the type of the context."""
        if isinstance(expr, np.generic):
            return expr.dtype
        if isinstance(expr, bool):
            return np.dtype(np.bool_)
        if isinstance(expr, int | float):
            if self._context in CONTEXT_TYPES:
                return CONTEXT_TYPES[self._context]
            if isinstance(expr, int) or self._context in ("i", "b"):
                return np.dtype(np.int32 if -(2**31) <= expr < 2**31 else np.int64)
        raise self._refusal(
            f"the constant {expr!r} of type {type(expr).__name__}",
            "use a number, with a type of its own where nothing else decides it",
        )

    def map_nan(self, expr: Any) -> DType | None:
        """Free."""
        if expr.data_type is None:
            return CONTEXT_TYPES.get(self._context or "", np.dtype(np.float32))
        return np.dtype(expr.data_type)

    def map_variable(self, expr: Any) -> DType | None:
        """Loop variables, parameters and private scalars are free; others are loads."""
        if type(expr) is expressions.UnrolledVariable:
            return self.map_foreign(0)
        if expr.name in expressions.LIMITS:
            return CONTEXT_TYPES.get(self._context or "", expressions.LIMITS[expr.name])
        if expr.name in self.inames:
            return self.kernel.index_dtype.numpy_dtype
        variable = self._variable(expr.name)
        self._touch("load", variable, ())
        return variable.dtype.numpy_dtype

    def _variable(self, name: str) -> Any:
        variable = self.kernel.arg_dict.get(name) or self.kernel.temporary_variables.get(name)
        if variable is None:
            raise self._refusal(f"the name '{name}'", _REWRITE)
        return variable

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

    def _touch(
        self,
        direction: str,
        variable: Any,
        index: tuple[Any, ...],
        bits: int | None = None,
        component_of: int = 0,
    ) -> None:
        """Tally an access to an element, or as many bits of it; registers are free."""
        space = self._address_space(variable)
        if space is not None:
            access = MemoryAccess(
                address_space=space,
                direction=direction,
                array=variable.name,
                bits=8 * variable.dtype.numpy_dtype.itemsize if bits is None else bits,
                index=tuple(map(_AS_WRITTEN, index)) if self.unrolled else index,
                component_of=component_of,
            )
            self._access(access)

    def _access(self, access: MemoryAccess) -> None:
        self._add(access)

    def map_subscript(self, expr: Any) -> DType | None:
        """Loads from global or local arrays count; private arrays are registers."""
        return self._find_subscripted("load", expr.aggregate.name, list_subscripts(expr))

    map_linear_subscript = map_subscript

    def _find_subscripted(self, direction: str, name: str, index: tuple[Any, ...]) -> DType | None:
        variable = self._variable(name)
        by_data = [p for p in map(strip_linear, index) if try_affine(self.to_index, p) is None]
        self._index(by_data)
        choices = list_choices(index, self.to_condition) if by_data else [(index, ())]
        for chosen, where in choices:
            with self._set(_cases=(*self._cases, *where)):
                self._touch(direction, variable, chosen)
        return variable.dtype.numpy_dtype

    def _store(self, assignee: Any) -> DType | None:
        if not isinstance(assignee, p.Variable | p.Subscript | LinearSubscript):
            raise self._refusal(f"the assignee {assignee} ({type(assignee).__name__})", _REWRITE)
        whole: Any = getattr(assignee, "aggregate", assignee)
        return self._find_subscripted("store", whole.name, list_subscripts(assignee))

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
        result = self._operands(children)[-1]
        if result is None or result.kind not in "fV":  # of vectors, their operations say
            raise self._refusal(
                f"the quotient of integers {expr}",
                "use // or cast an operand, loopy.TypeCast(np.float32, operand)",
            )
        if not all(map(is_constant, children)):
            self._operation("div", result)
        return result

    def map_floor_div(self, expr: Any) -> DType | None:
        """One integer division or remainder; of constants it is free."""
        children = (expr.numerator, expr.denominator)
        with self._set(_context="i"):
            dtype = self._operands(children)[-1]
        if dtype is not None and dtype.kind not in "iub":
            number, mend = ("real", "write it as a - b*floor(a / b)")
            if dtype.kind != "f":
                number, mend = ("complex", "write it in real() and imag()")
            what = f"{expressions.text_of(expr)} of {number} numbers"
            raise self._refusal(f"{what}, for which Loopy generates no code", mend)
        if not all(map(is_constant, children)):
            self._operation("div" if isinstance(expr, p.FloorDiv) else "mod", dtype)
        return dtype

    map_remainder = map_floor_div

    def map_power(self, expr: Any) -> DType | None:
        """Exponents 0, 1, 2 fold; integer ones call a helper; real ones are ``pow``."""
        exponent = expr.exponent
        if type(exponent) is expressions.UnrolledVariable:
            raise self._refusal(
                f"the power {expr}, whose exponent differs in each copy of the unrolled loop",
                "write one instruction for each exponent",
            )
        if expressions.is_literal(exponent) and exponent in (0, 1, 2):
            if exponent == 0:
                return np.dtype(np.int32)
            return self.rec(expr.base if exponent == 1 else p.Product((expr.base, expr.base)))
        base = self.rec(expr.base)
        result = self._infer(expr)
        if self._infer(exponent).kind in "iu":
            self._integer_power(expr, base, result)
        else:
            self.rec(exponent)
            self._operation("pow", result)
        return result

    def _integer_power(self, expr: Any, base: DType | None, result: DType | None) -> None:
        """Count the loop of ``loopy_pow``; where data decides its length, a call of ``pown``."""
        if not expressions.is_literal(expr.exponent):
            self.rec(expr.exponent)
            self._operation("special", result, name="pown")
            return
        exponent = abs(int(expr.exponent))
        squarings = exponent.bit_length() - 1
        self._operation("mul", base if base is not None else result, squarings)
        self._operation("mul", result, exponent.bit_count() - self.is_optimized)  # one is by 1
        if expr.exponent < 0:  # ``1.0/x`` is in double precision
            is_kept = self.is_optimized and base is not None and base.kind == "f"
            quotient = base if is_kept else np.dtype(np.float64)
            self._operation("div", quotient)
            self._convert(base, quotient)
            self._convert(quotient, base)

    def map_min(self, expr: Any) -> DType | None:
        """Of k values k - 1 ``minmax`` or ``bitwise``."""
        dtype = self._operands(expr.children)[-1]
        kind = "minmax" if isinstance(expr, p.Min | p.Max) else "bitwise"
        self._operation(kind, dtype, len(expr.children) - 1)
        return dtype

    map_max = map_bitwise_and = map_bitwise_or = map_bitwise_xor = map_min

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
        """Known functions by their kind, others as ``special``; parts of real numbers are free."""
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
                name = callable_.name
        if str(getattr(callable_, "name_in_target", None) or name).startswith(_IDENTITIES):
            return self.rec(expr.parameters[0])
        types = expressions.signature_of(callable_)
        if any(dtype is not None and dtype.kind == "c" for dtype in types.values()):
            raise self._refusal(f"the complex function {name}", "write it in real() and imag()")
        self._arguments(expr, callable_)
        result = types.get(-1)
        kind = FUNCTION_KINDS.get(name, "special")
        if name == "abs" and result is not None and result.kind == "f":
            name = "fabs"
        self._operation(kind, result, name=name if kind == "special" else "")
        return result

    def _arguments(self, expr: Any, callable_: Any) -> list[Any]:
        """Tally the arguments of a call; return the types that it takes."""
        types = expressions.signature_of(callable_)
        wanted = [types.get(position) for position in range(len(expr.parameters))]
        for parameter, dtype in zip(expr.parameters, wanted, strict=True):
            self._to_type(parameter, dtype)
        return wanted

    def _reduction(self, expr: Any, callable_: Any) -> DType:
        """Count an update of a reduction with two results, each a ``select``."""
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
        """A comparison of data is one ``compare``; of loop variables and sizes alone it is free."""
        sides = [try_affine(self.to_index, side) for side in (expr.left, expr.right)]
        if None in sides and try_affine(self.to_condition, expr) is None:
            with self._set(_context=expressions.context_of(self._infer(expr.left - expr.right))):
                self._operation("compare", self._operands((expr.left, expr.right))[-1])
        return np.dtype(np.bool_)

    def map_logical_and(self, expr: Any) -> DType | None:
        """Each operand counts where those before it let it be evaluated."""
        test, *others = expr.children
        self.rec(test)
        for position, child in enumerate(others, start=2):
            self._branch(test, child, holds=isinstance(expr, p.LogicalAnd))
            test = type(expr)(expr.children[:position])
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
