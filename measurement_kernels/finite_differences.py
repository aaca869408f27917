"""Test kernel: a 5-point stencil with a quadratic source term.

u is n + 2 by n + 2, the result n by n, row major, one work item per element. Each group fetches its
tile of u and the halo around it, 18 by 18 for 16 by 16 items: four slots per item, most of them
guarded, and one barrier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter, Sizes
from measurement_kernels.entry import CatalogEntry

if TYPE_CHECKING:
    from loopy import TranslationUnit
    from numpy.typing import NDArray

_GROUP_SHAPE = (16, 16)
_SIZES = (SizeParameter(name="n", multiple=16),)
_ARGUMENTS = (
    ArrayArgument(name="u", shape=(Extent("n", offset=2), Extent("n", offset=2))),
    ArrayArgument(name="res", shape=(Extent("n"), Extent("n")), role="output"),
)


def entries() -> Iterator[CatalogEntry]:
    """List the kernel."""
    yield CatalogEntry(
        family="finite-differences",
        group_shape=_GROUP_SHAPE,
        purpose="test",
        description="5-point stencil with a quadratic source, tile and halo in local memory",
        exponents=range(6, 13),
        sizes=_SIZES,
        arguments=_ARGUMENTS,
        check_parameters={"n": 48},
        builder=_build,
        expected=_expected,
    )


@cache
def _build() -> TranslationUnit:
    from measurement_kernels.units import make_unit, map_to_items, prefetch

    unit = make_unit(
        "finite_differences",
        domain="{ [i, j]: 0 <= i < n and 0 <= j < n }",
        instructions="""
            res[i, j] = (u[i+1, j+1]**2 - 1 - 4*u[i+1, j+1]
                + u[i+2, j+1] + u[i, j+1] + u[i+1, j+2] + u[i+1, j])
        """,
        sizes=_SIZES,
        arguments=_ARGUMENTS,
        element_type="f32",
    )
    unit = map_to_items(unit, {"i": 1, "j": 0}, _GROUP_SHAPE)
    return prefetch(
        unit,
        "u",
        sweep=["i_inner", "j_inner"],
        within=["i_outer", "j_outer"],
        axes={"u_row": 1, "u_column": 0},
        group_shape=_GROUP_SHAPE,
    )


def _expected(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    del parameters
    u = arguments["u"].astype("float64")
    center = u[1:-1, 1:-1]
    neighbors = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return {"res": center**2 - 1 - 4 * center + neighbors}
