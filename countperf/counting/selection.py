"""Selection of the counting rules of a kernel and of the instructions to count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymbolic.primitives as p

from countperf.counting.access_counter import Powers
from countperf.counting.compiled_view import CompiledCounter
from countperf.counting.complex_arithmetic import HELPERS, ComplexCounter, ComplexRules
from countperf.counting.domains import Domains
from countperf.counting.expression_types import DType, number_of
from countperf.counting.functions import FunctionCounter
from countperf.counting.keys import MemoryAccess
from countperf.counting.operations import InstructionCounter
from countperf.counting.vectors import (
    VectorCounter,
    VectorRules,
    component_of,
    has_vectors,
    vector_axis,
)

# --- The compiler's view of complex numbers and of vectors
# Rules, besides those of `compiled_view`:
#
# 1. The helper that Loopy calls for an operation on complex numbers is inlined, and contracted by
#    rule 3 inside of it: a product is two ``mul`` and two ``fma``, a fused product and sum four
#    ``fma``. Its operations count together: all of them, or none where the value is there.
# 2. An element is one access of all its bits, also where it is converted.
# 3. A vector element is one value, and so is each of its components. Whoever loads a component
#    loads the vector; all of them load it once.
# 4. An operation on vectors counts once for each component, also a fused one.
# 5. Loops that Loopy does by vectors are none; where it unrolls them instead, rule 7 holds.
#
# Not modeled, so that the counts are bounds from above: parts of complex results that nobody uses,
# as in ``real(a*b)``; loads of a vector that was stored before.


_INLINED: dict[str, dict[str, int]] = {
    "mul": {"mul": 2, "fma": 2},
    "fma": {"fma": 4},
    "divide": {"div": 3, "mul": 1, "fma": 3, "neg": 1, "compare": 1, "fabs": 2},
    "rdivide": {"div": 3, "mul": 2, "fma": 1, "neg": 1, "compare": 1, "fabs": 2},
    "pow": {"mul": 4, "fma": 2, "log": 1, "hypot": 1, "atan2": 1, "exp": 1, "sincos": 1},
}
"""Operations that are left of the helpers that contraction changes."""


class CompiledComplexCounter(ComplexRules, CompiledCounter):
    """Tallies what a compiler leaves of instructions with complex numbers."""

    helpers: Mapping[str, Mapping[str, int]] = HELPERS | _INLINED

    def _is_counted_by_parts(self, expr: Any) -> bool:
        if isinstance(expr, p.Sum | p.Product) and self._is_complex(expr):
            return False
        return super()._is_counted_by_parts(expr)

    def _is_nothing(self, name: str, real: Any) -> bool:
        number = number_of(real)
        if name == "add":
            return number == 0 and bool(np.signbit(number))
        return number == 1

    def _convert(self, source: DType | None, target: DType | None) -> None:
        kinds = {dtype.kind for dtype in (source, target) if dtype is not None}
        if "c" not in kinds or self._names is not None:
            super()._convert(source, target)
            return
        names = self._values.names(self._value)
        with self._depending_on(names, speculated=True):
            super()._convert(source, target)


class CompiledVectorCounter(VectorRules, CompiledComplexCounter):
    """Tallies what a compiler leaves of instructions with vectors."""

    def _is_contracted(self, dtype: DType | None) -> bool:
        components = None if dtype is None else component_of(dtype)
        return super()._is_contracted(dtype if components is None else components[0])

    def _subscripted(self, direction: str, name: str, index: tuple[Any, ...]) -> DType | None:
        dtype = super()._subscripted(direction, name, index)
        self._value = self._load_value(name, index)
        return dtype

    def _load_value(self, name: str, index: tuple[Any, ...]) -> int:
        """Return the value of an element: of the vector, where a loop along it is done by one."""
        axis = vector_axis(self._variable(name))
        if axis is not None and len(index) > axis and self._is_lane(index[axis]):
            index = (*index[:axis], *index[axis + 1 :])
        return super()._load_value(name, index)

    def _is_lane(self, part: Any) -> bool:
        return isinstance(part, p.Variable) and part.name == self._lane

    def _access_of(self, access: MemoryAccess) -> None:
        if access.direction == "store":
            with self._depending_on(self.inames, speculated=False):
                self._add(access)
            return
        value = super()._load_value(access.array, access.index)
        self._unless_there(value, lambda: self._add(access), speculated=False)


def instruction_counter(domains: Domains, *, powers: Powers = "emitted") -> InstructionCounter:
    """Return the counter of the source's view with the rules that the types of a kernel need."""
    by_types = (FunctionCounter, ComplexCounter, VectorCounter)
    return by_types[_types_of(domains.kernel)](domains, powers=powers)


def compiled_counter(domains: Domains, *, powers: Powers = "emitted") -> CompiledCounter:
    """Return the counter of the compiler's view with the rules that the types of a kernel need."""
    by_types = (CompiledCounter, CompiledComplexCounter, CompiledVectorCounter)
    return by_types[_types_of(domains.kernel)](domains, powers=powers)


def _types_of(kernel: Any) -> int:
    """Return 2 for a kernel with vectors, 1 for one with complex numbers, 0 for others."""
    if has_vectors(kernel):
        return 2
    variables = [*kernel.args, *kernel.temporary_variables.values()]
    return int(any(variable.dtype.involves_complex() for variable in variables))
