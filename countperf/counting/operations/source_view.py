"""The source's view: what Loopy emits, with complex numbers and with vectors.

Complex numbers count as the real operations of the helpers of pyopencl's ``pyopencl-complex.h``
(2025.2.5) that Loopy calls: ``cfloat_add(a, b)``. Real operands of a sum or product are joined
first; a product inside a sum is fused. A conversion between complex types names its argument twice,
so that what is inside counts twice, and an element that is converted is read once.

An operation on vectors counts once for each component; a scalar is spread for free. An element is
one access of all its bits, of three components those of four when it is loaded; a component is read
with its element, and stored by itself. Loopy's own check decides whether vectors do a loop tagged
``vec``, or it is unrolled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np
import pymbolic.primitives as p
from loopy.codegen import UnvectorizableError
from loopy.expression import VectorizabilityChecker
from loopy.kernel.array import ArrayBase, VectorArrayDimTag
from loopy.kernel.data import VectorizeTag
from loopy.symbolic import LinearSubscript, TypeCast, get_dependencies
from loopy.types import NumpyType

from countperf.counting.accesses import components_in_memory
from countperf.counting.expression_types import DType, UnrolledVariable, is_constant, number_of
from countperf.counting.operations.scalars import InstructionCounter, Tally, find_tagged_inames
from countperf.counting.operations.subscripts import list_subscripts, strip_linear
from countperf.symbolic import sets

Kind = Literal["constant", "product", "value"]

HELPERS: dict[str, dict[str, int]] = {
    **{name: {} for name in ("real", "imag", "new", "fromreal")},
    "abs": {"hypot": 1},
    "neg": {"neg": 2},
    "conj": {"neg": 1},
    "add": {"add": 2},
    **{name: {"add": 1} for name in ("addr", "radd")},
    "mul": {"mul": 4, "add": 2},
    **{name: {"mul": 2} for name in ("mulr", "rmul")},
    "fma": {"fma": 3, "mul": 1, "add": 1},
    "divide": {"div": 3, "mul": 4, "add": 3, "neg": 1, "compare": 1, "fabs": 2},
    "rdivide": {"div": 3, "mul": 3, "add": 1, "neg": 1, "compare": 1, "fabs": 2},
    "divider": {"div": 2},
    "pow": {"mul": 6, "add": 2, "log": 1, "hypot": 1, "atan2": 1, "exp": 1, "sincos": 1},
    "powr": {"mul": 4, "log": 1, "hypot": 1, "atan2": 1, "exp": 1, "sincos": 1},
    "exp": {"mul": 2, "exp": 1, "sincos": 1},
    "log": {"log": 1, "hypot": 1, "atan2": 1},
    **{name: {"mul": 2, "sincos": 1, "sinh": 1, "cosh": 1} for name in ("sin", "sinh", "cosh")},
    "cos": {"mul": 2, "neg": 1, "sincos": 1, "sinh": 1, "cosh": 1},
}
"""Real operations of each helper, on every path through it."""

OPAQUE = frozenset(["sqrt", "tan", "tanh"])
"""Helpers whose operations depend on data: calls of functions."""

_KINDS = frozenset(["add", "mul", "div", "neg", "fma", "compare"])
_COMPONENTWISE = (_KINDS - {"compare"}) | {"minmax", "special", "bitwise", "shift", "mod"}


def component_of(dtype: DType | None) -> tuple[DType, int] | None:
    """Return the type and number of the components of a vector type; None for other types."""
    if dtype is None or not dtype.fields:
        return None
    parts = {np.dtype(entry[0]) for entry in dtype.fields.values()}
    names = dtype.names or ()
    if len(parts) > 1 or not names or not all(n.startswith(("s", "padding")) for n in names):
        return None
    return parts.pop(), sum(name.startswith("s") for name in names)


def vector_axis(array: Any) -> int | None:
    """Return the axis of an array that is implemented as components of vectors."""
    if isinstance(array, ArrayBase):
        for axis, tag in enumerate(array.dim_tags or ()):
            if isinstance(tag, VectorArrayDimTag):
                return axis
    return None


def real_part(dtype: DType) -> DType:
    """Return the type of the parts of a complex type."""
    return np.dtype(f"f{dtype.itemsize // 2}")


class SourceCounter(InstructionCounter):
    """Tallies instructions as they are emitted, by the rules for all types."""

    helpers: Mapping[str, Mapping[str, int]] = HELPERS
    _lane: str | None = None

    @cached_property
    def _has_complex(self) -> bool:
        variables = [*self.kernel.args, *self.kernel.temporary_variables.values()]
        return any(variable.dtype.involves_complex() for variable in variables)

    def _is_complex(self, expr: Any) -> bool:
        """Return whether Loopy takes an expression for complex; it does not look in subscripts."""
        is_possible = self._has_complex and self._context != "i"
        return is_possible and self._infer(expr).kind == "c"

    def _helper(self, name: str, dtype: DType) -> None:
        real = real_part(dtype)
        for kind, times in self.helpers[name].items():
            function = "" if kind in _KINDS else kind
            self._operation("special" if function else kind, real, times, function)

    # --- types

    def map_foreign(self, expr: Any, /, *_: Any, **__: Any) -> DType | None:
        """Complex constants without a type have single precision, as Loopy takes them."""
        if self._has_complex and isinstance(expr, complex) and not isinstance(expr, np.generic):
            return np.dtype(np.complex64)
        return super().map_foreign(expr)

    def _as_type(self, expr: Any, target: DType | None) -> DType | None:
        """A conversion between complex types names its argument twice."""
        is_number = target is None or target.kind != "c" or is_constant(expr)
        if is_number or not self._is_complex(expr) or self._infer(expr) == target:
            return super()._as_type(expr, target)
        source = self.rec(expr)
        if isinstance(expr, p.Subscript | LinearSubscript):
            self._index(map(strip_linear, list_subscripts(expr)))
        elif not isinstance(expr, p.Variable):
            self.rec(expr)
        self._convert(source, target)
        return source

    def _convert(self, source: DType | None, target: DType | None) -> None:
        if source is None or target is None or source == target:
            return
        what = f"the conversion of {source} to {target}"
        components = component_of(target)
        if components is not None or component_of(source) is not None:
            if components is None or components[0] != source:
                raise self._refusal(what, "convert each component")
        elif source.kind != "c":
            super()._convert(source, real_part(target) if target.kind == "c" else target)
        elif target.kind == "c":
            self._operation("convert", real_part(target), 2)
        else:
            raise self._refusal(what, "take real() or imag() of it")

    def _operation(self, kind: str, dtype: DType | None, number: int = 1, name: str = "") -> None:
        components = component_of(dtype)
        if components is not None:
            if kind not in _COMPONENTWISE:
                raise self._refusal(f"'{kind}' of vectors", "write it for each component")
            if kind == "div" and self._lane is None:
                what = "the quotient of vectors, for which Loopy emits no valid code"
                raise self._refusal(what, "multiply by a reciprocal")
            dtype, number = components[0], number * components[1]
        elif dtype is not None and dtype.kind == "c":
            if kind != "select":
                mend = "write it in real() and imag(), or pass its counts in instruction_counts"
                raise self._refusal(f"'{name or kind}' of {dtype}", mend)
            dtype, number = real_part(dtype), 2 * number
        super()._operation(kind, dtype, number, name)

    # --- sums and products

    def map_sum(self, expr: Any) -> DType | None:
        """Complex terms are joined as a binary tree, and the sum of real ones is added to it."""
        return self._join_terms(expr, "add") if self._is_complex(expr) else super().map_sum(expr)

    def map_product(self, expr: Any) -> DType | None:
        """As a sum."""
        is_complex = self._is_complex(expr)
        return self._join_terms(expr, "mul") if is_complex else super().map_product(expr)

    def _join_terms(self, expr: Any, name: str) -> DType | None:
        target = self._infer(expr)
        if all(map(is_constant, expr.children)):
            return target
        if not self.kernel.options.allow_fp_reordering:
            raise self._refusal(
                "complex arithmetic without the option allow_fp_reordering",
                "set it: t_unit = loopy.set_options(t_unit, allow_fp_reordering=True)",
            )
        self._join_tree([c for c in expr.children if self._is_complex(c)], target, name)
        reals = [c for c in expr.children if not self._is_complex(c)]
        if not reals:
            return target
        real = type(expr)(tuple(reals)) if len(reals) > 1 else reals[0]
        if number_of(real) is None:
            self._as_type(real, target)
        if name == "mul" and number_of(real) == -1:
            self._helper("neg", target)
        elif not self._is_nothing(name, real):
            self._helper(f"r{name}", target)
        return target

    def _join_tree(
        self, operands: Sequence[Any], target: DType, name: str, *, is_fused: bool = False
    ) -> Kind:
        """Tally operands joined as a balanced tree, products fused; return what the whole is."""
        if len(operands) == 1:
            kind = self._kind_of(operands[0], target)
            (self._factors if is_fused else self._as_type)(operands[0], target)
            return kind
        halves = (operands[: len(operands) // 2], operands[len(operands) // 2 :])
        single = (half for half in halves if name == "add" and len(half) == 1)
        products = (half for half in single if self._kind_of(half[0], target) == "product")
        fused = next(products, None)
        kinds = (self._join_tree(half, target, name, is_fused=half is fused) for half in halves)
        left, right = kinds
        if left == right == "constant":
            return "constant"
        if name == "add" and "product" in (left, right):
            self._helper("fma", target)
            return "value"
        self._helper(name, target)
        return "product" if name == "mul" else "value"

    def _factors(self, expr: Any, target: DType) -> None:
        """Tally the two factors of a product that a sum fuses."""
        while isinstance(expr, TypeCast):
            expr = expr.child
        is_power, times = isinstance(expr, p.Power), getattr(expr, "exponent", 1)
        factors = (expr.base,) * int(times) if is_power else tuple(expr.children)
        if len(factors) == 1:
            self._factors(factors[0], target)
            return
        middle = len(factors) - 1 if is_power else len(factors) // 2  # powers from left to right
        for part in (factors[:middle], factors[middle:]):
            if len(part) == 1:
                self._as_type(part[0], target)
            else:
                self.rec(p.Power(expr.base, len(part)) if is_power else p.Product(part))

    def _kind_of(self, expr: Any, target: DType) -> Kind:
        """Return whether an operand is a constant, or a call of the helper of products."""
        if is_constant(expr):
            return "constant"
        while isinstance(expr, TypeCast) and self._infer(expr.child) == target:
            expr = expr.child
        if self._infer(expr) != target:  # a cast is emitted around it
            return "value"
        if isinstance(expr, p.Power):
            return "product" if expr.exponent in (2, 3, 4) else "value"
        if isinstance(expr, p.Product) and all(map(self._is_complex, expr.children)):
            first, *others = expr.children
            return "product" if others else self._kind_of(first, target)
        return "value"

    def map_quotient(self, expr: Any) -> DType | None:
        """Complex quotients by the helper for the kinds of their operands."""
        upper, lower = self._is_complex(expr.numerator), self._is_complex(expr.denominator)
        if not (upper or lower):
            return super().map_quotient(expr)
        target = self._infer(expr)
        self._as_type(expr.numerator, target)
        self._as_type(expr.denominator, target)
        name = "divide" if upper and lower else "divider" if upper else "rdivide"
        if name != "divider" or not self._is_nothing(name, expr.denominator):
            self._helper(name, target)
        return target

    def _is_nothing(self, name: str, real: Any) -> bool:
        """Return whether a helper leaves a complex number alone, given the real operand."""
        number = number_of(real) if self.is_optimized else None
        return number == 0 and bool(np.signbit(number)) if name == "add" else number == 1

    def map_power(self, expr: Any) -> DType | None:
        """Exponents 2, 3 and 4 are products; others call a helper."""
        if not self._is_complex(expr) or type(expr.exponent) is UnrolledVariable:
            return super().map_power(expr)
        target = self._infer(expr)
        if is_constant(expr.exponent) and expr.exponent in (2, 3, 4):
            return self.rec(prod([expr.base] * int(expr.exponent - 1), start=expr.base))
        has_real_exponent = self._is_complex(expr.base) and not self._is_complex(expr.exponent)
        self._as_type(expr.base, target)
        self._as_type(expr.exponent, target)
        self._helper("powr" if has_real_exponent else "pow", target)
        return target

    # --- vectorized loops

    @cached_property
    def vectorized(self) -> frozenset[str]:
        """The loop variables that are tagged ``vec``."""
        return find_tagged_inames(self.kernel, VectorizeTag)

    def loops_around(self, instruction: Any) -> frozenset[str]:
        """Return the loops of an instruction, without one that is done by vectors."""
        return instruction.within_inames - {self._lane_of(instruction)}

    def _start(self, instruction: Any) -> None:
        super()._start(instruction)
        self._lane = self._lane_of(instruction)

    def tally_predicates(self, instruction: Any) -> Tally:
        """Return what predicates take; those on the components of vectors are refused."""
        lane = self._lane_of(instruction)
        for predicate in instruction.predicates:
            if lane and lane in get_dependencies(predicate):
                self._start(instruction)
                what = f"the predicate {predicate} on the vectorized loop '{lane}'"
                raise self._refusal(what, "tag it 'unr'")
        return super().tally_predicates(instruction)

    def _lane_of(self, instruction: Any) -> str | None:
        """Return the loop that vectors do for an instruction, as Loopy decides it."""
        around = sorted(instruction.within_inames & self.vectorized)
        if not around:
            return None
        (lane,) = around
        length = self._whole_vectors(instruction.within_inames, lane)
        if length is None or not hasattr(instruction, "assignee"):
            return None
        check = VectorizabilityChecker(self.kernel, lane, length)
        try:
            is_stored, is_computed = check(instruction.assignee), check(instruction.expression)
        except (UnvectorizableError, NotImplementedError):  # it emits no code for the latter
            return None
        return lane if is_stored or not is_computed else None

    def _whole_vectors(self, within: frozenset[str], lane: str) -> int | None:
        """Return the length of a vectorized loop if it runs in full wherever it runs."""
        low, high = sets.constant_bounds(self.domains.domain(frozenset([lane])))[lane]
        if low != 0 or high is None:
            return None
        count, find_points = self.domains.counter.count, self.domains.find_points
        vectors = count(find_points(within - {lane}, ())).scale(high + 1)
        return high + 1 if count(find_points(within, ())) == vectors else None

    # --- elements

    def _vector(self, variable: Any) -> Any:
        """Return the type of the elements of an array, its component type and width, if vectors."""
        dtype = variable.dtype.numpy_dtype
        axis = vector_axis(variable)
        if axis is not None:
            width = int(variable.shape[axis])
            try:
                vector = self.kernel.target.vector_dtype(NumpyType(dtype), width).numpy_dtype
            except KeyError as error:
                mend = "leave the tag 'vec' out of the kernel's axes and arrays"
                raise self._refusal(f"vectors of {width} {dtype}", mend) from error
            return vector, dtype, width
        components = component_of(dtype)
        if dtype.fields and components is None:
            mend = "keep its members in arrays of their own"
            raise self._refusal(f"the structure type of '{variable.name}'", mend)
        return components and (dtype, *components)

    def _find_subscripted(self, direction: str, name: str, index: tuple[Any, ...]) -> DType | None:
        variable = self._variable(name)
        axis = vector_axis(variable)
        if axis is None:
            self._vector(variable)
            return super()._find_subscripted(direction, name, index)
        whole, part, width = self._vector(variable)
        is_whole = self._is_lane(index[axis])
        if direction == "store" and not is_whole:
            return self._store_component(variable, index)
        rest = index[:axis] + index[axis + 1 :]
        size = part.itemsize * width if direction == "store" else whole.itemsize
        self._index(rest)
        self._touch(direction, variable, rest, 8 * size)
        return whole if is_whole else part

    def _is_lane(self, part: Any) -> bool:
        return isinstance(part, p.Variable) and part.name == self._lane

    def _store_component(self, variable: Any, index: tuple[Any, ...]) -> DType:
        self._index(index)
        _, part, width = self._vector(variable)
        self._touch("store", variable, index, 8 * part.itemsize, components_in_memory(width))
        return part

    def map_lookup(self, expr: Any) -> DType | None:
        """A component of a vector is free; the element is read as a whole."""
        components = component_of(self.rec(expr.aggregate))
        if components is None:
            raise self._refusal(f"the member {expr}", "keep its members in arrays of their own")
        return components[0]

    def _store(self, assignee: Any) -> DType | None:
        if not isinstance(assignee, p.Lookup):
            return super()._store(assignee)
        element: Any = assignee.aggregate
        if not isinstance(element, p.Subscript):
            mend = "assign the whole vector, or to an element of an array"
            raise self._refusal(f"the assignee {assignee}", mend)
        whole: Any = element.aggregate
        variable = self._variable(whole.name)
        vector, part, _ = self._vector(variable)
        number = int(vector.fields[assignee.name][1]) // part.itemsize
        return self._store_component(variable, (*list_subscripts(element), number))

    # --- arithmetic

    def _join(self, types: Sequence[DType | None]) -> DType | None:
        vector = next(filter(component_of, types), None)
        if vector is None:
            return super()._join(types)
        for dtype in types:
            self._convert(dtype, vector)
        return vector

    def map_call(self, expr: Any) -> DType | None:
        """As for numbers; complex functions call a helper, and making a vector is free."""
        callable_ = self._callable(expr)
        types: Any = getattr(callable_, "arg_id_to_dtype", None) or {}
        result = getattr(types.get(-1), "numpy_dtype", None)
        components = component_of(result)
        is_random = type(callable_).__name__ == "Random123Callable"  # whose module needs Mako
        if components and (is_random or str(callable_.name).startswith("make_")):
            self._arguments(expr, callable_)
            self._operation("special", components[0], int(is_random), callable_.name)
            return result
        name = str(getattr(callable_, "name_in_target", ""))
        root, _, function = name.partition("_")
        if root not in ("cfloat", "cdouble"):
            return super().map_call(expr)
        dtype = types[0].numpy_dtype
        self._as_type(expr.parameters[0], dtype)
        if function in OPAQUE:
            self._operation("special", real_part(dtype), name=f"c{function}")
        else:
            self._helper(function, dtype)
        return result

    def map_if(self, expr: Any) -> DType | None:
        """Conditional expressions of vectors are refused."""
        if self._lane is not None:
            within = self.kernel.id_to_insn[self._instruction].within_inames
            width = self._whole_vectors(within, self._lane)
            if VectorizabilityChecker(self.kernel, self._lane, width or 0)(expr):
                raise self._refusal(f"the conditional vector {expr}", "tag the loop 'unr'")
        return super().map_if(expr)
