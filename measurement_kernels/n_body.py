"""Test kernel: sums of inverse distances between n points.

``pot[i] = sum(rsqrt(sum((x[k, i] - x[k, j])**2 for k in range(3))) if i != j else 0)`` over all j;
x is 3 by n, column major. One work item per point; each group fetches blocks of 3 by 256 points,
lanes along points (stride 3), and reads its own point from global memory at every use.

Distances are computed for i = j too; only their inverse square root is conditional. The difference
is stored before it is squared: Loopy emits a square as a product of its base with itself, and would
else read and subtract twice.
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

_GROUP_SHAPE = (256, 1)
_BLOCK = 256
_SIZES = (SizeParameter(name="n", multiple=_BLOCK),)
_ARGUMENTS = (
    ArrayArgument(name="x", shape=(3, Extent("n")), order="F"),
    ArrayArgument(name="pot", shape=(Extent("n"),), role="output"),
)


def entries() -> Iterator[CatalogEntry]:
    """List the kernel."""
    yield CatalogEntry(
        family="n-body",
        group_shape=_GROUP_SHAPE,
        purpose="test",
        description="sums of inverse distances, blocks of points in local memory",
        exponents=range(8, 17),
        sizes=_SIZES,
        arguments=_ARGUMENTS,
        check_parameters={"n": 512},
        builder=_build,
        expected=_expected,
    )


@cache
def _build() -> TranslationUnit:
    import loopy as lp

    from measurement_kernels.units import make_unit, map_to_items, prefetch

    unit = make_unit(
        "n_body",
        domain="{ [i, j, k]: 0 <= i < n and 0 <= j < n and 0 <= k < 3 }",
        instructions="""
            for i
                <> total = 0 {id=begin}
                for j
                    <> square = 0 {id=clear}
                    for k
                        <> difference = x[k, i] - x$block[k, j] {id=subtract}
                        square = square + difference**2 {id=square, dep=clear:subtract}
                    end
                    total = total + (rsqrt(square) if i != j else 0) {id=add, dep=begin:square}
                end
                pot[i] = total {dep=add}
            end
        """,
        sizes=_SIZES,
        arguments=_ARGUMENTS,
        element_type="f32",
    )
    unit = map_to_items(unit, {"i": 0}, _GROUP_SHAPE)
    unit = lp.split_iname(unit, "j", _BLOCK)
    unit = prefetch(
        unit,
        "x$block",
        sweep=["k", "j_inner"],
        within=["i_outer", "j_outer"],
        axes={"x_axis": None, "x_point": 0},
        group_shape=_GROUP_SHAPE,
    )
    return lp.tag_inames(unit, {"k": "unr", "x_axis": "unr"})


def _expected(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    import numpy as np

    n = parameters["n"]
    x = arguments["x"].astype("float64")
    pot = np.empty(n)
    for begin in range(0, n, _BLOCK):
        rows = slice(begin, begin + _BLOCK)
        squares = ((x[:, rows, np.newaxis] - x[:, np.newaxis, :]) ** 2).sum(axis=0)
        own = np.arange(begin, begin + _BLOCK)
        squares[own - begin, own] = np.inf
        pot[rows] = (1 / np.sqrt(squares)).sum(axis=1)
    return {"pot": pot}
