"""Class 4, the transpose of a row-major matrix, one work item per element.

b is n by m, a is m by n (n by n in the paper). ``tiled`` goes through a tile in local memory, so
that both sides have stride 1. The others do not, and give local axis 0 to the columns of b
(``stride1-writes``) or to those of a (``stride1-reads``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter, Sizes
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.groups import PLANAR_GROUPS, GroupShape

if TYPE_CHECKING:
    from loopy import TranslationUnit
    from numpy.typing import NDArray

_ARGUMENTS = (
    ArrayArgument(name="a", shape=(Extent("m"), Extent("n"))),
    ArrayArgument(name="b", shape=(Extent("n"), Extent("m")), role="output"),
)
_DESCRIPTIONS: Mapping[str, str] = {
    "tiled": "transpose through local memory, stride 1 on both sides",
    "stride1-writes": "transpose with stride-1 writes and strided reads",
    "stride1-reads": "transpose with stride-1 reads and strided writes",
}


def _axes(variant: str) -> dict[str, int]:
    """Assign local axes to rows and columns of b."""
    return {"i": 0, "j": 1} if variant == "stride1-reads" else {"i": 1, "j": 0}


def _sizes(variant: str, group_shape: GroupShape) -> tuple[SizeParameter, ...]:
    axes = _axes(variant)
    return (
        SizeParameter(name="n", multiple=group_shape[axes["i"]]),
        SizeParameter(name="m", multiple=group_shape[axes["j"]]),
    )


def entries() -> Iterator[CatalogEntry]:
    """List the kernels of this class."""
    for variant, description in _DESCRIPTIONS.items():
        for group_shape in PLANAR_GROUPS:
            sizes = _sizes(variant, group_shape)
            yield CatalogEntry(
                family="transpose",
                variant=variant,
                group_shape=group_shape,
                description=description,
                exponents=range(6, 13),
                sizes=sizes,
                arguments=_ARGUMENTS,
                check_parameters={"n": 2 * sizes[0].multiple, "m": 3 * sizes[1].multiple},
                builder=partial(_build, variant, group_shape),
                expected=_expected,
            )


@cache
def _build(variant: str, group_shape: GroupShape) -> TranslationUnit:
    from measurement_kernels.units import make_unit, map_to_items, prefetch

    unit = make_unit(
        "transpose",
        domain="{ [i, j]: 0 <= i < n and 0 <= j < m }",
        instructions="b[i, j] = a[j, i]",
        sizes=_sizes(variant, group_shape),
        arguments=_ARGUMENTS,
        element_type="f32",
    )
    unit = map_to_items(unit, _axes(variant), group_shape)
    if variant != "tiled":
        return unit
    return prefetch(
        unit,
        "a",
        sweep=["i_inner", "j_inner"],
        within=["i_outer", "j_outer"],
        axes={"a_row": 1, "a_column": 0},
        group_shape=group_shape,
    )


def _expected(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    del parameters
    return {"b": arguments["a"].T}
