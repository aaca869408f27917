"""The memory accesses of one instruction, and the types of what its expressions read."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pymbolic.primitives as p
from loopy import AddressSpace
from loopy.kernel.array import ArrayBase
from loopy.kernel.data import ImageArg
from loopy.symbolic import IdentityMapper, LinearSubscript
from loopy.type_inference import TypeReader

from countperf.counting.domains import Domains
from countperf.counting.expression_types import (
    CONTEXT_TYPES,
    LIMITS,
    DType,
    is_constant,
    list_nodes,
    name_of,
    text_of,
)
from countperf.counting.keys import Case, FirstIteration, MemoryAccess, Operation, type_name
from countperf.errors import UnsupportedExpressionError
from countperf.symbolic.affine import RefusingMapper, ToCondition, try_affine
from countperf.symbolic.quasipolynomial import Number

Key = Operation | MemoryAccess
Tally = dict[tuple[Key, tuple[Case | FirstIteration, ...]], Number]

_REWRITE = "rewrite the expression, or pass its instruction's counts in instruction_counts"


class AccessCounter(RefusingMapper):
    """Tallies the accesses of one execution of each of a kernel's instructions."""

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
        if not number or (isinstance(key, Operation) and self._in_index):
            return
        entry = (key, self._cases)
        self._tally[entry] = self._tally.get(entry, 0) + number * self._factor

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
        if source.kind in "cV" or target.kind in "cV":
            mend = "write it in real() and imag()"
            raise self._refusal(f"the conversion of {source} to {target}", mend)
        if source.kind in "fiu" and target.kind in "fiu" and "f" in (source.kind, target.kind):
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
        if expr.name in LIMITS:
            return CONTEXT_TYPES.get(self._context or "", LIMITS[expr.name])
        if expr.name in self.inames:
            return self.kernel.index_dtype.numpy_dtype
        variable = self._variable(expr.name)
        self._touch("load", variable, ())
        return variable.dtype.numpy_dtype

    def map_tagged_variable(self, expr: Any) -> DType | None:
        """As one without tags."""
        return self.map_variable(expr)

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
                index=self._subscripts(index),
                component_of=component_of,
            )
            self._access(access)

    def _subscripts(self, index: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the subscripts of an access as they are written."""
        return index

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


def list_subscripts(expr: Any) -> tuple[Any, ...]:
    """Return the parts of a subscript; that of the flattened array is one `LinearSubscript`."""
    if isinstance(expr, LinearSubscript):
        return (LinearSubscript(0, expr.index),)
    return expr.index_tuple if isinstance(expr, p.Subscript) else ()


def strip_linear(part: Any) -> Any:
    """Return the expression of a part of a subscript."""
    return part.index if isinstance(part, LinearSubscript) else part


# --- Subscripts that choose: minima, maxima, absolute values and conditional expressions in them
# ``a[min(i + 1, n - 1)]`` is ``a[i + 1]`` where ``i + 1 <= n - 1``, and ``a[n - 1]`` elsewhere: two
# accesses under affine conditions, which count each on its own part.

Choice = tuple[tuple[Any, ...], tuple[Case, ...]]
"""A subscript without choices, and the conditions under which it is accessed."""

_MAX_CHOICES = 32
_CHOOSING = (p.If, p.Min, p.Max, p.Call)
_EXTREMA = {"min": p.Min, "fmin": p.Min, "max": p.Max, "fmax": p.Max}


def list_choices(index: tuple[Any, ...], to_condition: ToCondition) -> list[Choice]:
    """Return the subscripts that an access chooses from."""
    choices: list[Choice] = []
    open_ones: list[Choice] = [(index, ())]
    while open_ones:
        parts, cases = open_ones.pop()
        nodes = [n for part in map(strip_linear, parts) for n in list_nodes(part, *_CHOOSING)]
        found = [(node, branches) for node in nodes for branches in _list_branches(node)]
        if not found:
            choices.append((parts, cases))
            continue
        node, (test, taken, other) = found[-1]  # there are none inside it
        condition = try_affine(to_condition, test)
        if condition is None or len(choices) + len(open_ones) + 2 > _MAX_CHOICES:
            return [(index, ())]
        for branch, holds in ((other, False), (taken, True)):
            replaced = tuple(map(_Replacer(node, branch), parts))
            case = Case(alternatives=condition, holds=holds)
            open_ones.append((replaced, (*cases, case)))
    return choices


def _list_branches(expr: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield condition, what a node chooses where it holds, and what elsewhere, if it chooses."""
    operands, kind = (), type(expr)
    if isinstance(expr, p.If):
        yield expr.condition, expr.then, expr.else_
    elif isinstance(expr, p.Min | p.Max):
        operands = expr.children
    elif isinstance(expr, p.Call):
        name = name_of(expr.function)
        if name in ("abs", "fabs") and len(expr.parameters) == 1:
            value: Any = expr.parameters[0]
            yield p.Comparison(value, ">=", 0), value, -value
        elif name in _EXTREMA and len(expr.parameters) == 2:
            operands, kind = expr.parameters, _EXTREMA[name]
    if operands:
        first, second, *rest = operands
        taken, other = (kind((side, *rest)) if rest else side for side in (first, second))
        yield p.Comparison(first, "<=" if kind is p.Min else ">=", second), taken, other


class _Replacer(IdentityMapper[[]]):
    """Replaces each node that equals a given one."""

    def __init__(self, node: Any, branch: Any) -> None:
        super().__init__()
        self.node, self.branch = node, branch

    def rec(self, expr: Any, *_: Any, **__: Any) -> Any:
        return self.branch if expr == self.node else super().rec(expr)

    __call__ = rec
