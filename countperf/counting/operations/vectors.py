"""OpenCL's vector types: arrays of ``float4`` and the like, vector axes, vectorized loops.

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

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymbolic.primitives as p
from loopy.codegen import UnvectorizableError
from loopy.expression import VectorizabilityChecker
from loopy.kernel.array import ArrayBase, VectorArrayDimTag
from loopy.kernel.data import VectorizeTag
from loopy.symbolic import get_dependencies
from loopy.types import NumpyType

from countperf.counting.accesses import components_in_memory
from countperf.counting.domains import Domains
from countperf.counting.expression_types import DType
from countperf.counting.keys import MemoryAccess
from countperf.counting.operations.access_counter import Tally
from countperf.counting.operations.complex_arithmetic import ComplexCounter, ComplexRules
from countperf.counting.operations.functions import find_tagged_inames
from countperf.errors import UnsupportedExpressionError
from countperf.symbolic import sets

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


def has_vectors(kernel: Any) -> bool:
    """Return whether a kernel has vector types, vector axes or vectorized loops."""
    variables = [*kernel.args, *kernel.temporary_variables.values()]
    return bool(find_tagged_inames(kernel, VectorizeTag)) or any(
        vector_axis(variable) is not None or variable.dtype.numpy_dtype.fields
        for variable in variables
    )


class VectorRules(ComplexRules):
    """Rules by which an instruction counter counts vectors."""

    _lane: str | None = None
    _domains: Domains

    @cached_property
    def vectorized(self) -> frozenset[str]:
        """The loop variables that are tagged ``vec``."""
        return find_tagged_inames(self.kernel, VectorizeTag)

    # --- loops

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
        whole = domains.counter.count(domains.executed_set(within, ()))
        vectors = domains.counter.count(domains.executed_set(within - {lane}, ()))
        return high + 1 if whole == vectors.scale(high + 1) else None

    # --- elements

    def _vector(self, variable: Any) -> tuple[DType, DType, int] | None:
        """Return the vector type of the elements of an array, its component type and width."""
        dtype = super()._element_type(variable)
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
        is_whole = isinstance(index[axis], p.Variable) and index[axis].name == self._lane
        rest = index[:axis] + index[axis + 1 :]
        if is_whole or direction == "load":
            self._element(direction, variable, rest, _bits_of(vector, direction))
        else:
            self._component_store(variable, index, vector)
        return vector[0] if is_whole else vector[1]

    def _element(
        self,
        direction: str,
        variable: Any,
        index: tuple[Any, ...],
        bits: int,
        component_of: int = 0,
    ) -> None:
        """Tally the loads in a subscript, and the access to a vector or a component there."""
        self._index(index)
        space = self._address_space(variable)
        if space is not None:
            access = MemoryAccess(
                address_space=space,
                direction=direction,
                array=variable.name,
                bits=bits,
                index=index,
                component_of=component_of,
            )
            self._access_of(access)

    def _component_store(
        self, variable: Any, index: tuple[Any, ...], vector: tuple[DType, DType, int]
    ) -> None:
        bits = vector[1].itemsize * 8
        self._element("store", variable, index, bits, components_in_memory(vector[2]))

    def _access_of(self, access: MemoryAccess) -> None:
        """Tally an access to a vector or a component."""
        self._add(access)

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
        number = _number_of(vector[0], assignee.name)
        self._component_store(variable, (*element.index_tuple, number), vector)
        return vector[1]

    # --- arithmetic

    def _operation(self, kind: str, dtype: DType | None, number: int = 1, name: str = "") -> None:
        components = None if dtype is None else component_of(dtype)
        if components is None:
            super()._operation(kind, dtype, number, name)
        elif kind not in _COMPONENTWISE:
            raise self._refusal(f"'{kind}' of vectors", "write it for each component")
        else:
            super()._operation(kind, components[0], number * components[1], name)

    def _join(self, types: Sequence[DType | None]) -> DType | None:
        known = [dtype for dtype in types if dtype is not None]
        vectors = [dtype for dtype in known if component_of(dtype)]
        if not vectors:
            return super()._join(types)
        for dtype in known:
            self._convert(dtype, vectors[0])
        return vectors[0]

    def _convert(self, source: DType | None, target: DType | None) -> None:
        if source is None or target is None or source == target:
            return
        components = component_of(target)
        if components is None and component_of(source) is None:
            super()._convert(source, target)
        elif components is None or components[0] != source:
            raise self._refusal(f"the conversion of {source} to {target}", "convert each component")

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
        """A function of vectors counts for each component; making a vector is free."""
        from loopy.library.random123 import Random123Callable

        callable_ = self._callable(expr)
        if isinstance(callable_, Random123Callable):
            self._arguments(expr, callable_)
            types: Any = callable_.arg_id_to_dtype
            result = types[-1].numpy_dtype
            parts = component_of(result)
            assert parts is not None  # a generator returns a vector
            self._operation("special", parts[0], name=callable_.name)
            return result
        if not str(getattr(callable_, "name", "")).startswith("make_") or not component_of(
            result := callable_.arg_id_to_dtype[-1].numpy_dtype
        ):
            return super().map_call(expr)
        self._arguments(expr, callable_)
        return result

    def map_if(self, expr: Any) -> DType | None:
        """Conditional expressions of vectors are refused."""
        if self._lane is not None:
            within = self.kernel.id_to_insn[self._instruction].within_inames
            width = self._whole_vectors(within, self._lane)
            if VectorizabilityChecker(self.kernel, self._lane, width or 0)(expr):
                raise self._refusal(f"the conditional vector {expr}", "tag the loop 'unr'")
        return super().map_if(expr)


class VectorCounter(VectorRules, ComplexCounter):
    """An instruction counter that knows vectors."""


def _bits_of(vector: tuple[DType, DType, int], direction: str) -> int:
    """Return the bits of an access to a whole vector."""
    whole, part, width = vector
    return 8 * (part.itemsize * width if direction == "store" else whole.itemsize)


def _number_of(vector: DType, component: str) -> int:
    """Return the number of a component from one of its names."""
    fields: Any = vector.fields
    part, position, *_ = fields[component]
    return int(position) // np.dtype(part).itemsize
