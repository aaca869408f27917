"""Class 8, arithmetic of one kind, nearly without memory access.

Each work item sums k terms into its element of an n by m row-major result (n by n in the paper).
A term is a chain of 6 to 8 operations of one kind on the loop index, from 1 to k, converted to the
element type. The sum adds one addition per term, whatever the kind. k is a parameter of the kernel
too; its three values are variants, so that entries have one exponent.

Constants are exact in binary32, so that Loopy gives them the element type. None lets a compiler put
something cheaper in place of the operation: all divisors depend on the loop index, no exponent is
half an integer. A term is stored before it is added, so that only the addition waits for the one
before.

Terms do not depend on the work item, as in the paper: a compiler that vectorizes across work items
may notice, and compute each once per vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from measurement_kernels.arguments import (
    ELEMENT_TYPES,
    ArrayArgument,
    Extent,
    SizeParameter,
    Sizes,
)
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.groups import PLANAR_GROUPS, GroupShape

if TYPE_CHECKING:
    from loopy import TranslationUnit
    from numpy.typing import NDArray

_TERMS: Mapping[str, tuple[str, int]] = {
    "add": ("x + 1.5 - 0.75 + 2.25 - 1.125 + 0.875 - 2.5 + 1.75 - 1.375", 8),
    "mul": ("x * 1.5 * 0.75 * 1.25 * 0.625 * 1.125 * 0.875 * 1.375 * 0.8125", 8),
    "div": ("1.5 / (0.75 / (1.25 / (0.625 / (1.125 / (0.875 / (1.375 / (0.8125 / x)))))))", 8),
    "pow": ("(((((x**1.25)**0.875)**1.125)**0.8125)**1.375)**0.6875", 6),
    "rsqrt": ("rsqrt(rsqrt(rsqrt(rsqrt(rsqrt(rsqrt(rsqrt(rsqrt(x))))))))", 8),
}
"""Term in the loop index x, and how many operations of its kind it has."""

TERM_COUNTS = (256, 512, 768)
"""Terms per sum, k."""

_ARGUMENTS = (ArrayArgument(name="out", shape=(Extent("n"), Extent("m")), role="output"),)


def _sizes(group_shape: GroupShape, terms: int | None = None) -> tuple[SizeParameter, ...]:
    columns, rows = group_shape
    return (
        SizeParameter(name="n", multiple=rows),
        SizeParameter(name="m", multiple=columns),
        SizeParameter(name="k", fixed=terms),
    )


def entries() -> Iterator[CatalogEntry]:
    """List the kernels of this class."""
    for kind, (_, operations) in _TERMS.items():
        for terms in TERM_COUNTS:
            for group_shape in PLANAR_GROUPS:
                for element_type in ELEMENT_TYPES:
                    columns, rows = group_shape
                    yield CatalogEntry(
                        family="arithmetic",
                        variant=f"{kind}-k{terms}",
                        group_shape=group_shape,
                        element_type=element_type,
                        description=f"sum of {terms} terms of {operations} {kind} each",
                        exponents=range(4, 13),
                        exponent_steps=(0, 1, 2),
                        sizes=_sizes(group_shape, terms),
                        arguments=_ARGUMENTS,
                        check_parameters={"n": 2 * rows, "m": 2 * columns, "k": 24},
                        builder=partial(_build, kind, group_shape, element_type),
                        expected=partial(_expected, kind),
                    )


@cache
def _build(kind: str, group_shape: GroupShape, element_type: str) -> TranslationUnit:
    from measurement_kernels.units import make_unit, map_to_items

    term, _ = _TERMS[kind]
    dtype = ELEMENT_TYPES[element_type]
    unit = make_unit(
        f"arithmetic_{kind}",
        domain="{ [i, j, r]: 0 <= i < n and 0 <= j < m and 1 <= r <= k }",
        instructions=f"""
            for i, j
                <{dtype}> total = 0 {{id=begin}}
                for r
                    <{dtype}> x = r {{id=convert}}
                    <{dtype}> term = {term} {{id=term, dep=convert}}
                    total = total + term {{id=add, dep=begin:term}}
                end
                out[i, j] = total {{dep=add}}
            end
        """,
        sizes=_sizes(group_shape),
        arguments=_ARGUMENTS,
        element_type=element_type,
    )
    return map_to_items(unit, {"i": 1, "j": 0}, group_shape)


def _expected(
    kind: str, arguments: Mapping[str, Any], parameters: Sizes
) -> dict[str, NDArray[Any]]:
    import numpy as np

    del arguments
    x = np.arange(1, parameters["k"] + 1, dtype="float64")
    match kind:
        case "add":
            term = x + (1.5 - 0.75 + 2.25 - 1.125 + 0.875 - 2.5 + 1.75 - 1.375)
        case "mul":
            term = x * (1.5 * 0.75 * 1.25 * 0.625 * 1.125 * 0.875 * 1.375 * 0.8125)
        case "div":
            term = x * (1.5 / 0.75 * 1.25 / 0.625 * 1.125 / 0.875 * 1.375 / 0.8125)
        case "pow":
            term = x ** (1.25 * 0.875 * 1.125 * 0.8125 * 1.375 * 0.6875)
        case _:
            term = x ** (0.5**8)
    return {"out": np.full((parameters["n"], parameters["m"]), term.sum())}
