"""Class 1, matrix products from tiles in local memory.

c = a · b, a of n by m, b of m by l, row major; one work item per element of c. Each group steps
along m in tiles as wide as the group along local axis 0: it fetches, between two barriers, as many
rows of a as it has rows itself, and the square of b that goes with them.
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

ARGUMENTS = (
    ArrayArgument(name="a", shape=(Extent("n"), Extent("m"))),
    ArrayArgument(name="b", shape=(Extent("m"), Extent("l"))),
    ArrayArgument(name="c", shape=(Extent("n"), Extent("l")), role="output"),
)

_SHIFTS: Mapping[str, Mapping[str, int]] = {
    "square": {"n": 0, "m": 0, "l": 0},
    "half-n": {"n": 1, "m": 0, "l": 0},
    "half-m": {"n": 0, "m": 1, "l": 0},
    "half-l": {"n": 0, "m": 0, "l": 1},
}
"""Binary logarithm of what a size is the largest size divided by."""


def sizes(group_shape: GroupShape, shifts: Mapping[str, int]) -> tuple[SizeParameter, ...]:
    """Describe n, m and l."""
    columns, rows = group_shape
    multiples = {"n": rows, "m": columns, "l": columns}
    return tuple(
        SizeParameter(name=name, multiple=multiple, shift=shifts[name])
        for name, multiple in multiples.items()
    )


def entries() -> Iterator[CatalogEntry]:
    """List the kernels of this class."""
    for variant, shifts in _SHIFTS.items():
        for group_shape in PLANAR_GROUPS:
            for element_type in ELEMENT_TYPES:
                columns, rows = group_shape
                yield CatalogEntry(
                    family="matmul-tiled",
                    variant=variant,
                    group_shape=group_shape,
                    element_type=element_type,
                    description="matrix product from tiles of both factors in local memory",
                    exponents=range(4, 13),
                    sizes=sizes(group_shape, shifts),
                    arguments=ARGUMENTS,
                    check_parameters={"n": 2 * rows, "m": 2 * columns, "l": 3 * columns},
                    builder=partial(build, group_shape, element_type),
                    expected=expected,
                )


@cache
def build(group_shape: GroupShape, element_type: str) -> TranslationUnit:
    """Build the kernel, the same for all shapes of the matrices."""
    import loopy as lp

    from measurement_kernels.units import make_unit, map_to_items, prefetch

    unit = make_unit(
        "matmul_tiled",
        domain="{ [i, j, k]: 0 <= i < n and 0 <= j < l and 0 <= k < m }",
        instructions="c[i, j] = sum(k, a[i, k] * b[k, j])",
        sizes=sizes(group_shape, _SHIFTS["square"]),
        arguments=ARGUMENTS,
        element_type=element_type,
    )
    unit = map_to_items(unit, {"i": 1, "j": 0}, group_shape)
    unit = lp.split_iname(unit, "k", group_shape[0])
    step = ["i_outer", "j_outer", "k_outer"]
    unit = prefetch(
        unit,
        "a",
        sweep=["i_inner", "k_inner"],
        within=step,
        axes={"a_row": 1, "a_column": 0},
        group_shape=group_shape,
    )
    return prefetch(
        unit,
        "b",
        sweep=["k_inner", "j_inner"],
        within=step,
        axes={"b_row": 1, "b_column": 0},
        group_shape=group_shape,
    )


def expected(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    """Compute the product."""
    del parameters
    return {"c": arguments["a"].astype("float64") @ arguments["b"].astype("float64")}
