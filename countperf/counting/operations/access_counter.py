"""The memory accesses of one instruction, and the types of what its expressions read."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pymbolic.primitives as p
from loopy import AddressSpace
from loopy.kernel.array import ArrayBase
from loopy.kernel.data import ImageArg
from loopy.symbolic import IdentityMapper, LinearSubscript, WalkMapper
from loopy.type_inference import TypeReader

from countperf.counting.domains import Domains
from countperf.counting.expression_types import (
    CONTEXT_TYPES,
    LIMITS,
    DType,
    context_of,
    is_constant,
    name_of,
    text_of,
)
from countperf.counting.keys import Case, FirstIteration, MemoryAccess, Operation, type_name
from countperf.errors import UnsupportedExpressionError
from countperf.symbolic.affine import NotAffineError, RefusingMapper, ToCondition
from countperf.symbolic.quasipolynomial import Number

Key = Operation | MemoryAccess
Tally = dict[tuple[Key, tuple[Case | FirstIteration, ...]], Number]

_REWRITE = "rewrite the expression, or pass its instruction's counts in instruction_counts"


class AccessCounter(RefusingMapper):
    """Tallies the accesses of one execution of each of a kernel's instructions.

    `countperf.counting.operations.scalars.InstructionCounter` adds the operations.
    """

    def __init__(self, domains: Domains) -> None:
        super().__init__()
        self.domains = domains
        self.kernel = domains.kernel
        self.callables = domains.callables
        self.to_condition = domains.to_condition
        self.statistics = domains.statistics
        self.inames: frozenset[str] = domains.kernel.all_inames()
        self._tally: Tally = {}
        self._cases: tuple[Case, ...] = ()
        self._factor: Number = 1
        self._in_index = False
        self._context: str | None = None
        self._instruction = ""
        self._type_reader: Any = None
        self.to_index = cache(domains.to_polynomial.rec)  # nothing counts in what it can map

    # --- bookkeeping

    def tally(self, instruction: Any) -> Tally:
        """Return how often each key occurs in one execution of an instruction."""
        self._start(instruction)
        targets = [self._store(assignee) for assignee in instruction.assignees]
        target = targets[0] if len(targets) == 1 else None
        self._in_context(context_of(targets[0]), instruction.expression, target)
        return self._tally

    def tally_predicates(self, instruction: Any) -> Tally:
        """Return what the evaluation of an instruction's predicates takes, once."""
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

    def _inferred(self, expr: Any) -> DType:
        """Return the type that Loopy infers for an expression."""
        if self._type_reader is None:
            self._type_reader = TypeReader(self.kernel, self.callables)
        try:
            inferred = self._type_reader(expr)
            return getattr(inferred, "numpy_dtype", inferred)  # of pow, Loopy keeps NumPy's
        except Exception as error:  # type inference fails in many ways
            raise self._refusal(
                f"{text_of(expr)}, whose type Loopy does not infer ({type(error).__name__})",
                _REWRITE,
            ) from error

    def _add(self, key: Key, number: Number = 1) -> None:
        if not number:
            return
        if isinstance(key, Operation) and self._in_index:
            return
        entry = (key, self._cases)
        self._tally[entry] = self._tally.get(entry, 0) + number * self._factor

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
            f"{what}; {mend}"
        )

    def handle_unsupported_expression(self, expr: Any, /, *_: Any, **__: Any) -> Any:
        """Refuse an expression node without a counting rule."""
        raise self._refusal(
            f"{type(expr).__name__} ({text_of(expr)})",
            _REWRITE,
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
            if self._context in CONTEXT_TYPES:
                return CONTEXT_TYPES[self._context]
            if isinstance(value, int) or self._context in ("i", "b"):
                return np.dtype(np.int32 if -(2**31) <= value < 2**31 else np.int64)
        raise self._refusal(
            f"the constant {value!r} of type {type(value).__name__}",
            "use a number, with a type of its own where nothing else decides it",
        )

    def map_nan(self, expr: Any) -> DType | None:
        """Free."""
        if expr.data_type is None:
            return CONTEXT_TYPES.get(self._context or "", np.dtype(np.float32))
        return np.dtype(expr.data_type)

    def map_variable(self, expr: Any) -> DType | None:
        """Loop variables, parameters and private scalars are free; others are loads."""
        if expr.name in LIMITS:
            return CONTEXT_TYPES.get(self._context or "", LIMITS[expr.name])
        if expr.name in self.inames:
            return self.kernel.index_dtype.numpy_dtype
        variable = self._variable(expr.name)
        space = self._address_space(variable)
        if space is not None:
            self._access("load", expr.name, variable, space, ())
        return self._element_type(variable)

    map_tagged_variable = map_variable

    def _variable(self, name: str) -> Any:
        variable = self.kernel.arg_dict.get(name)
        if variable is None:
            variable = self.kernel.temporary_variables.get(name)
        if variable is None:
            raise self._refusal(f"the name '{name}'", _REWRITE)
        return variable

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
        return self._find_subscripted("load", expr.aggregate.name, expr.index_tuple)

    def map_linear_subscript(self, expr: Any) -> DType | None:
        """A subscript of the flattened array: one load."""
        return self._find_subscripted(
            "load", expr.aggregate.name, (LinearSubscript(0, expr.index),)
        )

    def _find_subscripted(self, direction: str, name: str, index: tuple[Any, ...]) -> DType | None:
        variable = self._variable(name)
        by_data: list[Any] = []
        for part in index:
            whole = getattr(part, "index", part) if is_linear(part) else part
            try:
                self.to_index(whole)
            except NotAffineError:
                by_data.append(whole)
        self._index(by_data)
        space = self._address_space(variable)
        if space is not None:
            for chosen, where in (
                alternatives(index, self.to_condition) if by_data else [(index, ())]
            ):
                with self._set(_cases=(*self._cases, *where)):
                    self._access(direction, name, variable, space, chosen)
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
            return self._find_subscripted("store", assignee.aggregate.name, index)
        if issubclass(kind, p.Subscript):
            return self._find_subscripted("store", assignee.aggregate.name, assignee.index_tuple)
        raise self._refusal(f"the assignee {assignee} ({type(assignee).__name__})", _REWRITE)


def is_linear(part: Any) -> bool:
    """Return whether a subscript is that of the flattened array."""
    return isinstance(part, LinearSubscript)


# --- Subscripts that choose: minima, maxima, absolute values and conditional expressions in them
# ``a[min(i + 1, n - 1)]`` is ``a[i + 1]`` where ``i + 1 <= n - 1``, and ``a[n - 1]`` elsewhere: two
# accesses under affine conditions, which count each on its own part.


Alternative = tuple[tuple[Any, ...], tuple[Case, ...]]
"""A subscript without choices, and the conditions under which it is accessed."""

MAXIMUM_ALTERNATIVES = 32
_MINIMA = frozenset(["min", "fmin"])
_MAXIMA = frozenset(["max", "fmax"])
_SIZES = frozenset(["abs", "fabs"])


def alternatives(index: tuple[Any, ...], to_condition: ToCondition) -> list[Alternative]:
    """Return the subscripts that an access chooses from."""
    choices: list[Alternative] = []
    open_ones: list[Alternative] = [(index, ())]
    while open_ones:
        parts, cases = open_ones.pop()
        walker = _Finder()
        for part in parts:
            walker(part.index if isinstance(part, LinearSubscript) else part)
        if not walker.choices:
            choices.append((parts, cases))
            continue
        node, (test, taken, other) = walker.choices[-1]  # there are none inside it
        try:
            condition = to_condition(test)
        except NotAffineError:
            return [(index, ())]
        for branch, holds in ((other, False), (taken, True)):
            replaced = tuple(map(_Replacer(node, branch), parts))
            case = Case(alternatives=condition, holds=holds)
            open_ones.append((replaced, (*cases, case)))
        if len(choices) + len(open_ones) > MAXIMUM_ALTERNATIVES:
            return [(index, ())]
    return choices


class _Finder(WalkMapper[[]]):
    """Finds nodes that choose, each before those inside it, with what they choose from."""

    def __init__(self) -> None:
        super().__init__()
        self.choices: list[tuple[Any, tuple[Any, Any, Any]]] = []

    def visit(self, expr: Any) -> bool:
        branches = _branches(expr)
        if branches is not None:
            self.choices.append((expr, branches))
        return True


def _branches(expr: Any) -> tuple[Any, Any, Any] | None:
    """Return condition, what is chosen where it holds, and what elsewhere; None for other nodes."""
    match expr:
        case p.If():
            return expr.condition, expr.then, expr.else_
        case p.Min():
            return _extremum(expr.children, "<=", p.Min)
        case p.Max():
            return _extremum(expr.children, ">=", p.Max)
        case p.Call():
            name = name_of(expr.function)
            if name in _MINIMA and len(expr.parameters) == 2:
                return _extremum(expr.parameters, "<=", p.Min)
            if name in _MAXIMA and len(expr.parameters) == 2:
                return _extremum(expr.parameters, ">=", p.Max)
            if name in _SIZES and len(expr.parameters) == 1:
                value: Any = expr.parameters[0]
                return p.Comparison(value, ">=", 0), value, -value
            return None
        case _:
            return None


def _extremum(operands: Any, operator: str, kind: Any) -> tuple[Any, Any, Any]:
    first, second, *rest = operands
    taken, other = (kind((side, *rest)) if rest else side for side in (first, second))
    return p.Comparison(first, operator, second), taken, other


class _Replacer(IdentityMapper[[]]):
    """Replaces each node that equals a given one."""

    def __init__(self, node: Any, branch: Any) -> None:
        super().__init__()
        self.node = node
        self.branch = branch

    def rec(self, expr: Any, *_: Any, **__: Any) -> Any:
        return self.branch if expr == self.node else super().rec(expr)

    __call__ = rec
