"""The compiler's view: the operations and accesses that an optimizing compiler leaves.

What remains of the source's view after what every compiler of OpenCL does in its default mode:

1. **Common subexpressions.** A value is not computed or loaded again, within an instruction or in
   later ones, where the first time is certain to have come before: in the same iteration of the
   loops around it, under no further condition, by no smaller set of work items. Operands of ``+``
   and ``*`` commute, but nothing is reassociated.
2. **Memory.** An assignment to an array ends the knowledge of all its elements but the one stored.
   So does a barrier, for local arrays and for global ones that the device program stores to.
   Loopy's arguments are ``restrict``: an assignment to one array leaves the others alone.
3. **Contraction.** ``a*b + c`` of one real type is one ``fma``, within one expression, without a
   conversion in between; of ``a*b + c*d`` the left product is fused. A product with -1 is a
   ``neg``, which makes the sum a subtraction and takes the place of the fused product.
4. **Invariant loads** are executed once per entry of a sequential loop if the address does not
   change in it, rule 2 allows it throughout the loop, and all iterations execute the load or none.
   Loops are left from the inside out, up to the first that keeps the load. A loop with a barrier
   keeps what is under any condition, be it only that the last group is partial.
5. **Invariant operations** likewise, but those other than functions, powers and integer divisions
   may be executed for nothing: conditions that change in the loop do not keep them, and they are
   executed once per entry of the outermost loop left, unless it has a barrier.
6. **Accumulators in memory.** An element that is the only one of its array that is accessed in a
   loop without a barrier, that is stored in each iteration and that does not change in the loop is
   loaded once before the loop and stored once after it.
7. **Unrolled loops** are straight-line code: rules 4 and 5 without speculation, for what is
   directly in them, not in a sequential loop inside them.
8. A quotient by a power of two is a ``mul``; the helper of integer powers begins with the first
   factor and divides in the type of the base. What IEEE 754 has leave each value alone is nothing:
   factors and divisors of 1, terms of -0.0, and of 0 between integers, but not ``x + 0.0``.
9. What feeds one **branch**, and nothing else, is executed there, if no loop or barrier lies in
   between: one part of a conditional expression that calls a function or loads from global memory,
   or one guarded store. Loads are not moved across stores.

A helper of complex numbers is inlined and contracted, and counts as a whole or not at all. A vector
element is one value, and so is each of its components; whoever loads a component loads the vector.

Tested by what LLVM 14 leaves at -O3 without vectorization. Not modeled, so that counts are bounds
from above: partial redundancy, what is stored or computed and never used (such as parts of complex
results), addresses of one array that are never equal, loads behind conditions on data. Of either
sign: conditional code that is evaluated in any case, and values carried to the next iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pymbolic.primitives as p
from loopy.symbolic import LinearSubscript, get_dependencies

from countperf.counting import device_programs as programs
from countperf.counting.domains import Domains
from countperf.counting.expression_types import (
    DType,
    flatten_operands,
    is_constant,
    leading_constants,
    number_of,
)
from countperf.counting.keys import Case, MemoryAccess
from countperf.counting.operations.code_motion import Hoisting, Moved, find_sunk_instructions
from countperf.counting.operations.scalars import Key, Tally
from countperf.counting.operations.source_view import (
    HELPERS,
    SourceCounter,
    component_of,
    vector_axis,
)
from countperf.counting.operations.subscripts import list_subscripts, strip_linear
from countperf.errors import CountingError
from countperf.symbolic.affine import ALWAYS, try_affine

_GUARDED_NODES = (p.Call, p.FloorDiv, p.Remainder, p.Power)
"""Nodes whose operations are not executed for nothing."""

_INLINED: dict[str, dict[str, int]] = {
    "mul": {"mul": 2, "fma": 2},
    "fma": {"fma": 4},
    "divide": {"div": 3, "mul": 1, "fma": 3, "neg": 1, "compare": 1, "fabs": 2},
    "rdivide": {"div": 3, "mul": 2, "fma": 1, "neg": 1, "compare": 1, "fabs": 2},
    "pow": {"mul": 4, "fma": 2, "log": 1, "hypot": 1, "atan2": 1, "exp": 1, "sincos": 1},
}
"""Operations that are left of the helpers that contraction changes."""


@dataclass(frozen=True, slots=True)
class _SumTerm:
    """An operand, perhaps a product whose last multiplication is not yet decided on."""

    dtype: DType | None
    value: int
    kind: str = ""
    factors: tuple[int, int] = (0, 0)


class CompiledCounter(SourceCounter):
    """Tallies what a compiler leaves of each instruction; instructions come in schedule order."""

    helpers: Mapping[str, Mapping[str, int]] = HELPERS | _INLINED
    is_optimized = True

    def __init__(self, domains: Domains) -> None:
        super().__init__(domains)
        self.unrolled = frozenset[str]()  # a compiler knows their loop variables
        self._positions = programs.positions_of(domains.kernel)
        self._hoisting = Hoisting(domains, self._positions)
        self._sunk = find_sunk_instructions(domains.kernel, self._positions)
        self._order = iter(self._positions)  # instructions to look at
        self._position = programs.Position((), ())
        self._current: Any = None
        self._predicates: tuple[Case, ...] = ()
        self._data_predicates: list[Any] = []
        self._tests: frozenset[programs.Guard] = frozenset()
        self._sunk_cases: tuple[Case, ...] = ()
        self._sunk_share = Fraction(1)
        self._values = programs.Values()
        self._value = 0  # of the part of an expression that was looked at last
        self._names: frozenset[str] | None = None  # that the node at work depends on
        self._is_speculated = False
        self._pins: frozenset[str] = frozenset()  # of the operands of the node at work

    # --- from instruction to instruction

    def tally(self, instruction: Any) -> Tally:
        """Return how often each key is left of one execution of an instruction."""
        self._begin(instruction)
        data = ((test, self._versions_in(test), True) for test in self._data_predicates)
        with self._set(_tests=self._tests.union(data), _sunk_cases=(), _sunk_share=Fraction(1)):
            try:
                self._sink(instruction)
                result = super().tally(instruction)
                self._assign(instruction)
            except CountingError:
                self._values.assign(programs.list_assigned_names(self.kernel, instruction))
                raise
        return result

    def _start(self, instruction: Any) -> None:
        self._begin(instruction)
        super()._start(instruction)
        self._cases, self._factor = self._sunk_cases, self._sunk_share

    def _sink(self, instruction: Any) -> None:
        """Have an instruction executed in the branch that it is moved into, if any (rule 9)."""
        sunk = self._sunk.get(instruction.id)
        if sunk is None:
            return
        for test, holds in sunk.branch:
            condition = try_affine(self.to_condition, test)
            if condition is not None:
                self._sunk_cases += (Case(alternatives=condition, holds=holds),)
            else:
                self._tests |= {(test, self._versions_in(test), holds)}
                share = self._share_of(test, sunk.into, holds=holds)
                self._sunk_share *= 1 if share is None else share  # refused where it is branched

    def _begin(self, instruction: Any) -> None:
        if self._current is instruction:
            return
        self._current = instruction
        while self._position is not self._positions[instruction.id]:
            reached = next(self._order)
            self._position = self._positions[reached]
            clobbered = self._hoisting.find_clobbered_arrays(self._position.regions[0])
            for kind, region in self._position.events:  # what they change is forgotten
                if kind == "enter" and not region.iname:
                    self._values = programs.Values()
                if kind != "wait":
                    self._values.assign(region.written)
                if kind == "wait" or (kind == "enter" and region.has_barrier):
                    self._values.assign(clobbered)
            if reached != instruction.id:
                skipped = self.kernel.id_to_insn[reached]
                self._values.assign(programs.list_assigned_names(self.kernel, skipped))
        self._predicates, self._data_predicates = self.domains.predicates(instruction)

    def _assign(self, instruction: Any) -> None:
        """Forget what an instruction overwrites, and remember what it stores."""
        names = instruction.assignee_var_names()
        point = self._point
        region = self._straight_region(self._position.regions)
        source, is_certain = self._value, not point.guards or instruction.id in self._sunk
        self._values.assign(programs.list_assigned_names(self.kernel, instruction))
        for assignee, name in zip(instruction.assignees, names, strict=True):
            if self._address_space(self._variable(name)) is not None:
                stored = self._load_value(name, list_subscripts(assignee))
                self._values.provide(stored, region, point)
            elif len(names) == 1 and isinstance(assignee, p.Variable) and is_certain:
                self._values.name_scalar(name, source, region, point)

    @property
    def _point(self) -> programs.Point:
        within = self.loops_around(self._current)
        return programs.Point(
            tuple(r for r in self._position.regions if not r.iname or r.iname in within),
            within,
            tuple(c for c in (*self._predicates, *self._cases) if c.alternatives != ALWAYS),
            self._tests,
        )

    def _versions_in(self, expr: Any) -> frozenset[tuple[str, int]]:
        return frozenset((name, self._values.version(name)) for name in get_dependencies(expr))

    # --- where things are executed

    def _find_hoisting_loops(self, key: Key) -> Moved:
        names = self._names or frozenset()
        if isinstance(key, MemoryAccess) and key.array in self._position.regions[0].written:
            moved = self._hoisting.find_accumulator_loops(self._point, key)
            return moved or self._move_out(names, speculated=False)
        return self._move_out(names | self._pins, speculated=self._is_speculated)

    def _move_out(self, names: frozenset[str], *, speculated: bool) -> Moved:
        return self._hoisting.find_hoisting_loops(self._point, names, speculated=speculated)

    def _straight_region(self, regions: Sequence[programs.Loop]) -> programs.Loop:
        """Return the innermost loop that is one, not unrolled: straight-line code is its body."""
        return next(r for r in reversed(regions) if not r.is_unrolled)

    def _provide(self, value: int, *, speculated: bool) -> None:
        """Remember a value: it stays for as long as the outermost loop that it was moved out of."""
        regions = self._position.regions
        region = self._straight_region(regions)
        moved = self._move_out(self._values.names(value), speculated=speculated)
        for first in moved:
            region = next(r for r in regions if r.iname == first.outermost)
            if region.is_unrolled:
                region = self._straight_region(regions[: regions.index(region)])
        if not speculated:
            left = frozenset[str]().union(*(first.loops for first in moved))
            self._values.add_names(value, frozenset(r.pin for r in regions if r.iname not in left))
        self._values.provide(value, region, self._point)

    # --- expressions

    def rec(self, expr: Any, /, *_: Any, **__: Any) -> DType | None:
        """Tally what is left of a part of an expression and return its type."""
        if not isinstance(expr, p.ExpressionNode):
            dtype = super().rec(expr)
            self._value = self._values.number(("constant", repr(expr), str(dtype)))
            return dtype
        outer, self._pins = self._pins, frozenset()
        by_parts = isinstance(expr, p.Variable | p.Subscript | LinearSubscript)
        if isinstance(expr, p.Sum | p.Product):  # whose parts count where each is
            by_parts = not self._is_complex(expr)
        dtype = super().rec(expr) if by_parts else self._node(expr)
        regions = {region.pin for region in self._position.regions}
        self._pins = outer | (self._values.names(self._value) & regions)
        return dtype

    def _node(self, expr: Any) -> DType | None:
        """Tally a node whose operations count together: all of them, or none."""
        value = self._values.number(
            ("node", expr, self._context, self._in_index, self._versions_in(expr)),
            self._names_in(expr),
        )
        if not self._values.is_there(value, self._point):
            speculated = not isinstance(expr, _GUARDED_NODES)
            with self._depending_on(self._values.names(value), speculated=speculated):
                self._values.types[value] = super().rec(expr)
                self._values.add_names(value, self._pins)
                self._provide(value, speculated=speculated)
        self._value = value
        return self._values.types[value]

    def _depending_on(
        self, names: frozenset[str], *, speculated: bool
    ) -> AbstractContextManager[None]:
        """Tally what depends on names, and may or may not be executed for nothing."""
        return self._set(_names=names, _is_speculated=speculated, _pins=frozenset[str]())

    def _unless_there(self, value: int, tally: Callable[[], None], *, speculated: bool) -> None:
        """Tally what makes a value, unless it is there."""
        if not self._values.is_there(value, self._point):
            with self._depending_on(self._values.names(value), speculated=speculated):
                tally()
                self._provide(value, speculated=speculated)

    def _names_in(self, expr: Any) -> frozenset[str]:
        point = self._point
        scalars = (self._values.scalar(name, point) for name in get_dependencies(expr))
        return self._values.names(*scalars)

    def map_variable(self, expr: Any) -> DType | None:
        """As in the source's view; private scalars are the values that they were assigned."""
        self._value = -1
        dtype = super().map_variable(expr)
        if self._value < 0:
            self._value = self._values.scalar(expr.name, self._point)
        return dtype

    def _access(self, access: MemoryAccess) -> None:
        value = self._value = self._load_value(access.array, access.index)
        if access.direction == "store":
            with self._depending_on(self.inames, speculated=False):
                super()._access(access)
        else:
            self._unless_there(value, partial(super()._access, access), speculated=False)

    def _load_value(self, name: str, index: tuple[Any, ...]) -> int:
        """Return the value of an element: of the vector, where a loop along it is done by one."""
        axis = vector_axis(self._variable(name))
        if axis is not None and len(index) > axis and self._is_lane(index[axis]):
            index = (*index[:axis], *index[axis + 1 :])
        parts: list[Any] = []
        names = frozenset([name])
        for part in index:
            inner = strip_linear(part)
            polynomial = try_affine(self.domains.to_polynomial, inner)
            if polynomial is None:
                parts.append((inner, self._versions_in(inner)))
                names |= self._names_in(inner)
            else:
                parts.append(polynomial)
                names |= polynomial.names()
        version = self._values.version(name)
        return self._values.number(("load", name, version, tuple(parts)), names)

    def _convert(self, source: DType | None, target: DType | None) -> None:
        names = self._values.names(self._value)
        is_alone = self._names is None
        with self._depending_on(names, speculated=True) if is_alone else nullcontext():
            super()._convert(source, target)
        if source is not None and target is not None and source != target:
            self._value = self._values.number(("convert", str(target), self._value), names)

    def _tally_by_data(self, test: Any, tally: Callable[[], object], *, holds: bool) -> None:
        with self._set(_tests=self._tests | {(test, self._versions_in(test), holds)}):
            super()._tally_by_data(test, tally, holds=holds)

    def _find_subscripted(self, direction: str, name: str, index: tuple[Any, ...]) -> DType | None:
        dtype = super()._find_subscripted(direction, name, index)
        self._value = self._load_value(name, index)
        return dtype

    # --- sums of products

    def _compute(self, kind: str, dtype: DType | None, *operands: int) -> int:
        """Tally an operation, unless its value is there; the first two operands commute."""
        key = (kind, str(dtype), *sorted(operands[:2]), *operands[2:])
        value = self._values.number(key, self._values.names(*operands))
        if not self._in_index:
            self._unless_there(value, lambda: self._operation(kind, dtype), speculated=True)
        return value

    def _finish_counting(self, term: _SumTerm) -> int:
        return self._compute(term.kind, term.dtype, *term.factors) if term.kind else term.value

    def _convert_value(
        self, term: _SumTerm, target: DType | None, *, is_constant: bool
    ) -> _SumTerm:
        if term.dtype == target or is_constant:
            return _SumTerm(target, term.value, term.kind, term.factors)
        operand = self._finish_counting(term)
        key = ("convert", str(target), operand)
        value = self._values.number(key, self._values.names(operand))
        self._unless_there(value, lambda: self._convert(term.dtype, target), speculated=True)
        return _SumTerm(target, value)

    def _term(self, expr: Any) -> _SumTerm:
        if isinstance(expr, p.Product):
            return self._product(flatten_operands(expr, p.Product))
        if isinstance(expr, p.Power) and is_constant(expr.exponent) and expr.exponent == 2:
            return self._product(flatten_operands(p.Product((expr.base,) * 2), p.Product))
        dtype = self.rec(expr)
        return _SumTerm(dtype, self._value)

    def map_sum(self, expr: Any) -> DType | None:
        """A sum as in the source's view, with contraction (rule 3)."""
        if self._is_complex(expr):
            return super().map_sum(expr)
        children = flatten_operands(expr, p.Sum)
        leading = leading_constants(children)
        total = self._term(children[0])
        for position, child in enumerate(children[1:], start=1):
            term = self._term(child)
            dtype = self._join((total.dtype, term.dtype))
            total = self._convert_value(total, dtype, is_constant=position <= leading)
            term = self._convert_value(term, dtype, is_constant=is_constant(child))
            if position < leading:
                value = self._values.number(("folded +", total.value, term.value))
            elif position == leading and _is_no_term(p.Sum(tuple(children[:leading])), dtype):
                value = self._finish_counting(term)
            elif _is_no_term(child, dtype):
                value = self._finish_counting(total)
            else:
                value = self._sum(dtype, total, term)
            total = _SumTerm(dtype, value)
        self._value = self._finish_counting(total)
        return total.dtype

    def _sum(self, dtype: DType | None, left: _SumTerm, right: _SumTerm) -> int:
        components = component_of(dtype)
        element = components[0] if components else dtype
        if element is not None and element.kind == "f":  # these are contracted
            product, other = (left, right) if left.kind else (right, left)
            if product.kind == "mul":
                return self._compute("fma", dtype, *product.factors, self._finish_counting(other))
        return self._compute("add", dtype, *map(self._finish_counting, (left, right)))

    def map_product(self, expr: Any) -> DType | None:
        """A product as in the source's view."""
        if self._is_complex(expr):
            return super().map_product(expr)
        term = self._product(flatten_operands(expr, p.Product))
        self._value = self._finish_counting(term)
        return term.dtype

    def _product(self, children: Sequence[Any]) -> _SumTerm:
        leading = leading_constants(children)
        folded = p.Product(tuple(children[:leading]))
        total = _SumTerm(self.rec(children[0]), self._value)
        for position, child in enumerate(children[1:], start=1):
            term = _SumTerm(self.rec(child), self._value)
            dtype = self._join((total.dtype, term.dtype))
            total = self._convert_value(total, dtype, is_constant=position <= leading)
            term = self._convert_value(term, dtype, is_constant=is_constant(child))
            if position < leading:
                key = ("folded", repr(folded), position, str(dtype))
                total = _SumTerm(dtype, self._values.number(key))
                continue
            constants = {number_of(child), number_of(folded) if position == leading else None}
            factors = (self._finish_counting(total), term.value)
            if 1 in constants:
                total = _SumTerm(dtype, factors[0 if number_of(child) == 1 else 1])
            else:
                total = _SumTerm(dtype, 0, "neg" if -1 in constants else "mul", factors)
        return total

    def map_quotient(self, expr: Any) -> DType | None:
        """One division, or a multiplication by an exact reciprocal (rule 8)."""
        divisor = number_of(expr.denominator)
        is_complex = self._is_complex(expr.numerator)
        if divisor is not None and not is_complex and not is_constant(expr.numerator):
            mantissa, _ = np.frexp(float(divisor))
            if abs(mantissa) == 0.5:
                dtype = self._operands((expr.numerator, expr.denominator))[-1]
                if dtype is not None and dtype.kind == "f":
                    if divisor != 1:
                        self._operation("neg" if divisor == -1 else "mul", dtype)
                    return dtype
        return super().map_quotient(expr)

    def map_floor_div(self, expr: Any) -> DType | None:
        """Quotients and remainders by 1 are nothing."""
        is_nothing = number_of(expr.denominator) == 1
        return self.rec(expr.numerator) if is_nothing else super().map_floor_div(expr)

    map_remainder = map_floor_div


def _is_no_term(expr: Any, dtype: DType | None) -> bool:
    """Return whether adding a constant leaves all values of a type alone."""
    number = number_of(expr)
    if number != 0 or dtype is None:
        return False
    return dtype.kind in "iu" or (dtype.kind == "f" and bool(np.signbit(number)))
