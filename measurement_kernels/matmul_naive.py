"""Class 2, the matrix product straight from global memory.

c = a · b, row major, one work item per element of c. The paper's matrices are n by n; here a is
n by m and b is m by l, since n and l are rounded up to different multiples.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from measurement_kernels.arguments import ELEMENT_TYPES, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.groups import PLANAR_GROUPS, GroupShape
from measurement_kernels.matmul_tiled import ARGUMENTS, expected

if TYPE_CHECKING:
    from loopy import TranslationUnit


def _sizes(group_shape: GroupShape) -> tuple[SizeParameter, ...]:
    columns, rows = group_shape
    return (
        SizeParameter(name="n", multiple=rows),
        SizeParameter(name="m"),
        SizeParameter(name="l", multiple=columns),
    )


def entries() -> Iterator[CatalogEntry]:
    """List the kernels of this class."""
    for group_shape in PLANAR_GROUPS:
        for element_type in ELEMENT_TYPES:
            columns, rows = group_shape
            yield CatalogEntry(
                family="matmul-naive",
                group_shape=group_shape,
                element_type=element_type,
                description="matrix product, both factors read from global memory",
                exponents=range(4, 13),
                sizes=_sizes(group_shape),
                arguments=ARGUMENTS,
                check_parameters={"n": 2 * rows, "m": 50, "l": 3 * columns},
                builder=partial(_build, group_shape, element_type),
                expected=expected,
            )


@cache
def _build(group_shape: GroupShape, element_type: str) -> TranslationUnit:
    from measurement_kernels.units import make_unit, map_to_items

    unit = make_unit(
        "matmul_naive",
        domain="{ [i, j, k]: 0 <= i < n and 0 <= j < l and 0 <= k < m }",
        instructions="c[i, j] = sum(k, a[i, k] * b[k, j])",
        sizes=_sizes(group_shape),
        arguments=ARGUMENTS,
        element_type=element_type,
    )
    return map_to_items(unit, {"i": 1, "j": 0}, group_shape)
