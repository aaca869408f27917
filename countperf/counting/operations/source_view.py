"""The source's view: what Loopy emits, with complex numbers and with vectors.

Complex numbers are expanded to the real operations of the code that Loopy emits for them: it calls
helpers of pyopencl's header ``pyopencl-complex.h`` (version 2025.2.5 and later), so that the sum of
``a`` and ``b`` is ``cfloat_add(a, b)``. Rules:

1. An expression counts the real operations of the helpers that are emitted for it: a product of
   complex numbers is four ``mul`` and two ``add``, one by a real number two ``mul``. Real operands
   of a sum or product are joined first; a product inside a sum is fused (three ``fma``). Loopy's
   option ``allow_fp_reordering`` must be on, as it is by default.
2. An element is one access of 64 or 128 bits.
3. A conversion between complex types is a macro that names its argument twice, so what is inside
   counts twice, and two ``convert``; an element that is converted is read once.
4. A multiplication by -1 is two ``neg``.
5. Helpers that branch on data in ways that count differently (``sqrt``, ``tan``, ``tanh``) are one
   ``special`` each: ``csqrt``, ``ctan``, ``ctanh``. Comparisons are refused: no valid code is
   emitted for them.

OpenCL's vector types are arrays of ``float4`` and the like, vector axes, and vectorized loops.
Rules:

1. An operation on vectors counts once for each component; a scalar joined to a vector is spread
   for free.
2. An element is one access of all its bits. Reading one component reads the whole element, as
   compilers do; storing one component is one store of its own bits.
3. In a loop tagged ``vec``, Loopy emits an instruction once, on whole vectors, where it can, and
   otherwise unrolls it: its own check decides here, too.
4. ``dot`` is one ``special``, as any function that returns a number; so is a call of a generator of
   random numbers, which makes all components of a vector at once.
5. Vectors of three lie in memory as four, and are loaded so; three components are stored, in one
   access. Operations count three times.
6. What Loopy emits no valid code for is refused: quotients of vector types, comparisons and
   conditional expressions of vectors, conversions between vector types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
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
from countperf.counting.operations.access_counter import Tally, list_subscripts, strip_linear
from countperf.counting.operations.scalars import InstructionCounter, find_tagged_inames
from countperf.errors import UnsupportedExpressionError
from countperf.symbolic import sets

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


_COMPONENTWISE = frozenset(
    ["add", "mul", "div", "neg", "fma", "minmax", "special", "bitwise", "shift", "mod"]
)


def component_of(dtype: DType) -> tuple[DType, int] | None:
    """Return the type and number of the components of a vector type; None for other types."""
    if not dtype.fields:
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


class SourceCounter(InstructionCounter):
    """Tallies instructions as they are emitted, by the rules for all types."""

    helpers: Mapping[str, Mapping[str, int]] = HELPERS
    _lane: str | None = None
    is_optimized = False  # whether what leaves numbers alone is left out

    @cached_property
    def _has_complex(self) -> bool:
        variables = [*self.kernel.args, *self.kernel.temporary_variables.values()]
        return any(variable.dtype.involves_complex() for variable in variables)

    def _is_complex(self, expr: Any) -> bool:
        """Return whether Loopy takes an expression for complex; it does not look in subscripts."""
        is_possible = self._has_complex and self._context != "i"
        return is_possible and self._infer(expr).kind == "c"

    def _helper(self, name: str, dtype: DType, number: int = 1) -> None:
        real = real_part(dtype)
        for kind, times in self.helpers[name].items():
            if kind in _KINDS:
                self._operation(kind, real, times * number)
            else:
                self._operation("special", real, times * number, kind)

    # --- types

    def map_foreign(self, expr: Any, /, *_: Any, **__: Any) -> DType | None:
        """Complex constants without a type have single precision, as Loopy takes them."""
        if self._has_complex and isinstance(expr, complex) and not isinstance(expr, np.generic):
            return np.dtype(np.complex64)
        return super().map_foreign(expr)

    def _as_type(self, expr: Any, target: DType | None) -> DType | None:
        """A conversion between complex types names its argument twice."""
        if (
            target is None
            or target.kind != "c"
            or is_constant(expr)
            or not self._is_complex(expr)
            or self._infer(expr) == target
        ):
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
        components = component_of(target)
        if components is not None or component_of(source) is not None:
            if components is None or components[0] != source:
                mend = "convert each component"
                raise self._refusal(f"the conversion of {source} to {target}", mend)
        elif target.kind == "c" and source.kind == "c":
            self._operation("convert", real_part(target), 2)
        elif target.kind == "c":
            super()._convert(source, real_part(target))
        elif source.kind == "c":
            mend = "take real() or imag() of it"
            raise self._refusal(f"the conversion of {source} to {target}", mend)
        else:
            super()._convert(source, target)

    def _operation(self, kind: str, dtype: DType | None, number: int = 1, name: str = "") -> None:
        components = None if dtype is None else component_of(dtype)
        if components is not None:
            if kind not in _COMPONENTWISE:
                raise self._refusal(f"'{kind}' of vectors", "write it for each component")
            dtype, number = components[0], number * components[1]
        elif dtype is not None and dtype.kind == "c":
            if kind != "select":
                mend = "write it in real() and imag(), or pass its counts in instruction_counts"
                raise self._refusal(f"'{name or kind}' of {dtype}", mend)
            dtype, number = real_part(dtype), 2 * number
        super()._operation(kind, dtype, number, name)

    # --- sums and products

    def map_sum(self, expr: Any) -> DType | None:
        """A complex sum: complex terms as a binary tree, the sum of real ones added to it."""
        return self._join_terms(expr, "add") if self._is_complex(expr) else super().map_sum(expr)

    def map_product(self, expr: Any) -> DType | None:
        """A complex product: as a sum."""
        if not self._is_complex(expr):
            return super().map_product(expr)
        return self._join_terms(expr, "mul")

    def _join_terms(self, expr: Any, name: str) -> DType | None:
        target = self._infer(expr)
        if all(map(is_constant, expr.children)):
            return target
        if not self.kernel.options.allow_fp_reordering:
            raise self._refusal(
                "complex arithmetic without the option allow_fp_reordering",
                "set it: t_unit = loopy.set_options(t_unit, allow_fp_reordering=True)",
            )
        complexes = [c for c in expr.children if self._is_complex(c)]
        reals = [c for c in expr.children if not self._is_complex(c)]
        kind = self._join_tree(complexes, target, name)
        if not reals:
            return target
        folded = _fold_constants(reals, name)
        if folded is None:
            self._as_type(type(expr)(tuple(reals)) if len(reals) > 1 else reals[0], target)
        if name == "mul" and folded == -1:
            self._helper("neg", target)
        elif (folded is None or kind != "constant") and not self._is_nothing(name, folded):
            self._helper(f"r{name}", target)
        return target

    def _join_tree(
        self, operands: Sequence[Any], target: DType, name: str, *, is_fused: bool = False
    ) -> Kind:
        """Tally operands joined as a balanced tree; return what the whole is.

        A product that is an operand of a sum by itself is made by the helper that also adds.
        """
        if len(operands) == 1:
            kind = self._kind_of(operands[0], target)
            if is_fused:
                self._factors(operands[0], target)
            else:
                self._as_type(operands[0], target)
            return kind
        halves = (operands[: len(operands) // 2], operands[len(operands) // 2 :])
        single = (half for half in halves if name == "add" and len(half) == 1)
        products = (half for half in single if self._kind_of(half[0], target) == "product")
        fused = next(products, None)
        left, right = (
            self._join_tree(half, target, name, is_fused=half is fused) for half in halves
        )
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
        while isinstance(expr, TypeCast) and self._infer(expr.child) == target:
            expr = expr.child
        if self._infer(expr) != target:  # a cast is emitted around it
            return "value"
        if isinstance(expr, p.Power):
            return "product" if expr.exponent in (2, 3, 4) else "value"
        if not isinstance(expr, p.Product) or not all(map(self._is_complex, expr.children)):
            return "value"
        if len(expr.children) > 1:
            return "product"
        return self._kind_of(next(iter(expr.children)), target)

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
            value = expr.base
            for _ in range(int(expr.exponent) - 1):
                value = value * expr.base
            return self.rec(value)
        has_real_exponent = self._is_complex(expr.base) and not self._is_complex(expr.exponent)
        self._as_type(expr.base, target)
        self._as_type(expr.exponent, target)
        self._helper("powr" if has_real_exponent else "pow", target)
        return target

    def map_comparison(self, expr: Any) -> DType | None:
        """Comparisons of complex numbers are refused: no valid code is emitted for them."""
        if self._is_complex(expr.left) or self._is_complex(expr.right):
            raise self._refusal(f"the comparison {expr} of complex numbers", "compare real parts")
        return super().map_comparison(expr)

    # --- vectorized loops

    @cached_property
    def vectorized(self) -> frozenset[str]:
        """The loop variables that are tagged ``vec``."""
        return find_tagged_inames(self.kernel, VectorizeTag)

    def loops_around(self, instruction: Any) -> frozenset[str]:
        """Return the loops of an instruction, without one that is done by vectors."""
        lane = self._lane_of(instruction)
        return instruction.within_inames - ({lane} if lane else set[str]())

    def _start(self, instruction: Any) -> None:
        super()._start(instruction)
        self._lane = self._lane_of(instruction)

    def tally_predicates(self, instruction: Any) -> Tally:
        """Return what predicates take; those on the components of vectors are refused."""
        lane = self._lane_of(instruction)
        for predicate in instruction.predicates:
            if lane and lane in get_dependencies(predicate):
                self._start(instruction)
                raise self._refusal(
                    f"the predicate {predicate} on the vectorized loop '{lane}'", "tag it 'unr'"
                )
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
        except UnvectorizableError:
            return None
        except NotImplementedError as error:
            raise UnsupportedExpressionError(
                f"kernel '{self.kernel.name}', instruction '{instruction.id}': Loopy cannot tell "
                f"whether it can be vectorized along '{lane}', and emits no code; tag the loop "
                "'unr'"
            ) from error
        return lane if is_stored or not is_computed else None

    def _whole_vectors(self, within: frozenset[str], lane: str) -> int | None:
        """Return the length of a vectorized loop if it runs in full wherever it runs."""
        low, high = sets.constant_bounds(self.domains.domain(frozenset([lane])))[lane]
        if low != 0 or high is None:
            return None
        domains = self.domains
        whole = domains.counter.count(domains.find_points(within, ()))
        vectors = domains.counter.count(domains.find_points(within - {lane}, ()))
        return high + 1 if whole == vectors.scale(high + 1) else None

    # --- elements

    def _vector(self, variable: Any) -> tuple[DType, DType, int] | None:
        """Return the vector type of the elements of an array, its component type and width."""
        dtype = variable.dtype.numpy_dtype
        axis = vector_axis(variable)
        if axis is not None:
            width = int(variable.shape[axis])
            try:
                vector = self.kernel.target.vector_dtype(NumpyType(dtype), width).numpy_dtype
            except KeyError as error:
                raise self._refusal(
                    f"vectors of {width} {dtype}",
                    "leave the tag 'vec' out of the kernel's axes and arrays",
                ) from error
            return vector, dtype, width
        if not dtype.fields:
            return None
        components = component_of(dtype)
        if components is None:
            raise self._refusal(
                f"the structure type of '{variable.name}'",
                "keep its members in arrays of their own",
            )
        return dtype, *components

    def _find_subscripted(self, direction: str, name: str, index: tuple[Any, ...]) -> DType | None:
        variable = self._variable(name)
        axis = vector_axis(variable)
        if axis is None:
            self._vector(variable)
            return super()._find_subscripted(direction, name, index)
        vector = self._vector(variable)
        assert vector is not None
        is_whole = self._is_lane(index[axis])
        rest = index[:axis] + index[axis + 1 :]
        if is_whole or direction == "load":
            whole, part, width = vector
            size = part.itemsize * width if direction == "store" else whole.itemsize
            self._index(rest)
            self._touch(direction, variable, rest, 8 * size)
        else:
            self._store_component(variable, index, vector)
        return vector[0] if is_whole else vector[1]

    def _is_lane(self, part: Any) -> bool:
        return isinstance(part, p.Variable) and part.name == self._lane

    def _store_component(
        self, variable: Any, index: tuple[Any, ...], vector: tuple[DType, DType, int]
    ) -> None:
        self._index(index)
        width = components_in_memory(vector[2])
        self._touch("store", variable, index, 8 * vector[1].itemsize, width)

    def map_lookup(self, expr: Any) -> DType | None:
        """A component of a vector is free; the element is read as a whole."""
        dtype = self.rec(expr.aggregate)
        components = None if dtype is None else component_of(dtype)
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
        array: Any = element.aggregate
        variable = self._variable(array.name)
        vector = self._vector(variable)
        assert vector is not None  # what has members is a vector
        fields: Any = vector[0].fields
        number = int(fields[assignee.name][1]) // vector[1].itemsize
        self._store_component(variable, (*list_subscripts(element), number), vector)
        return vector[1]

    # --- arithmetic

    def _join(self, types: Sequence[DType | None]) -> DType | None:
        known = [dtype for dtype in types if dtype is not None]
        vectors = [dtype for dtype in known if component_of(dtype)]
        if not vectors:
            return super()._join(types)
        for dtype in known:
            self._convert(dtype, vectors[0])
        return vectors[0]

    def _quotient(self, expr: Any, children: Sequence[Any], result: DType | None) -> DType | None:
        if result is None or component_of(result) is None:
            return super()._quotient(expr, children, result)
        if self._lane is None:
            raise self._refusal(
                f"the quotient of vectors {expr}, for which Loopy emits no valid code",
                "multiply by a reciprocal",
            )
        self._operation("div", result)
        return result

    def map_call(self, expr: Any) -> DType | None:
        """Functions of vectors count for each component; those of complex numbers call a helper.

        Making a vector is free.
        """
        callable_ = self._callable(expr)
        types: Any = getattr(callable_, "arg_id_to_dtype", None) or {}
        result = getattr(types.get(-1), "numpy_dtype", None)
        components = None if result is None else component_of(result)
        is_random = type(callable_).__name__ == "Random123Callable"  # whose module needs Mako
        if components and (is_random or str(callable_.name).startswith("make_")):
            self._arguments(expr, callable_)
            if is_random:
                self._operation("special", components[0], name=callable_.name)
            return result
        name = str(getattr(callable_, "name_in_target", ""))
        root, _, function = name.partition("_")
        if root not in ("cfloat", "cdouble"):
            return super().map_call(expr)
        if function not in HELPERS and function not in OPAQUE:
            raise self._refusal(f"the function {name}", "write it in real() and imag()")
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
