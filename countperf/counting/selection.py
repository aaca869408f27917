"""Selection of the counting rules of a kernel and of the instructions to count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from loopy.diagnostic import LoopyError
from loopy.match import parse_match

from countperf.counting.complex_arithmetic import ComplexCounter
from countperf.counting.domains import Domains
from countperf.counting.functions import FunctionCounter
from countperf.counting.operations import InstructionCounter
from countperf.counting.vectors import VectorCounter, has_vectors
from countperf.errors import CountingError


def instruction_counter(
    domains: Domains, *, statistics: Mapping[str, Any], powers: Literal["emitted", "written"]
) -> InstructionCounter:
    """Return the counter with the rules that the types of a kernel need."""
    kernel = domains.kernel
    if has_vectors(kernel):
        return VectorCounter(domains, statistics=statistics, powers=powers)
    variables = [*kernel.args, *kernel.temporary_variables.values()]
    is_complex = any(variable.dtype.involves_complex() for variable in variables)
    counter_class = ComplexCounter if is_complex else FunctionCounter
    return counter_class(
        kernel, domains.callables, domains.to_condition, statistics=statistics, powers=powers
    )


def matching_ids(kernel: Any, within: str | None) -> frozenset[str]:
    """Return the ids of the instructions that a match expression selects; of all without one."""
    if within is None:
        return frozenset(kernel.id_to_insn)
    try:
        match = parse_match(within)
    except (LoopyError, ValueError, TypeError, AttributeError) as error:
        raise CountingError(
            f"kernel '{kernel.name}': within={within!r} is no match expression of Loopy ({error}); "
            'write such as within="id:fetch* or writes:tile"',
            kernel=kernel.name,
            where=str(within),
        ) from error
    found = frozenset(i.id for i in kernel.instructions if match(kernel, i))
    if not found:
        raise CountingError(
            f"kernel '{kernel.name}': within={within!r} matches no instruction (it has: "
            f"{', '.join(sorted(kernel.id_to_insn))})",
            kernel=kernel.name,
            where=within,
        )
    return found
