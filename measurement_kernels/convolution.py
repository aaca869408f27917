"""Test kernel: three 7 by 7 filters on RGB images of n by n.

``r[i, j, x, y] = sum(m[i, w+x-xi, w+y-eta, c] * f[j, w+xi, w+eta, c])`` over colors c and offsets
xi, eta from -w to w = 3; all arrays row major, images with a margin of w. The paper's layout: local
axis 0 runs along x, so that stores have stride n; filters j lie along the third axis of the
NDRange; each group keeps its filter in local memory, goes through the images, and fetches for each
of them one color of its tile and halo at a time, lanes along y (stride 3).

The number of images is a parameter. The paper speaks of three and counted four.
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

_WIDTH = 3
_TAPS = 2 * _WIDTH + 1
_COLORS = 3
_FILTERS = 3

_GROUP_SHAPE = (16, 16)
_SIZES = (
    SizeParameter(name="n", multiple=16),
    SizeParameter(name="images", fixed=3),
)
_PADDED = Extent("n", offset=2 * _WIDTH)
_ARGUMENTS = (
    ArrayArgument(name="m", shape=(Extent("images"), _PADDED, _PADDED, _COLORS)),
    ArrayArgument(name="f", shape=(_FILTERS, _TAPS, _TAPS, _COLORS)),
    ArrayArgument(
        name="r", shape=(Extent("images"), _FILTERS, Extent("n"), Extent("n")), role="output"
    ),
)


def entries() -> Iterator[CatalogEntry]:
    """List the kernel."""
    yield CatalogEntry(
        family="convolution",
        group_shape=_GROUP_SHAPE,
        purpose="test",
        description="three 7 by 7 filters on color images, filters and image tiles in local memory",
        exponents=range(4, 11),
        sizes=_SIZES,
        arguments=_ARGUMENTS,
        check_parameters={"n": 32, "images": 2},
        builder=_build,
        expected=_expected,
    )


@cache
def _build() -> TranslationUnit:
    import loopy as lp

    from measurement_kernels.units import make_unit, map_to_items, prefetch

    unit = make_unit(
        "convolution",
        domain=f"""{{ [i, j, x, y, xi, eta, c]:
            0 <= i < images and 0 <= j < {_FILTERS} and 0 <= x < n and 0 <= y < n
            and -{_WIDTH} <= xi, eta <= {_WIDTH} and 0 <= c < {_COLORS} }}""",
        instructions=f"""
            r[i, j, x, y] = sum((c, xi, eta),
                m[i, {_WIDTH} + x - xi, {_WIDTH} + y - eta, c]
                * f[j, {_WIDTH} + xi, {_WIDTH} + eta, c])
        """,
        sizes=_SIZES,
        arguments=_ARGUMENTS,
        element_type="f32",
    )
    unit = map_to_items(unit, {"x": 0, "y": 1}, _GROUP_SHAPE)
    unit = lp.tag_inames(unit, {"j": "g.2"})
    groups = ["x_outer", "y_outer", "j"]
    unit = prefetch(
        unit,
        "f",
        sweep=["xi", "eta", "c"],
        within=groups,
        axes={"f_filter": None, "f_xi": None, "f_eta": 1, "f_color": 0},
        group_shape=_GROUP_SHAPE,
    )
    unit = prefetch(
        unit,
        "m",
        sweep=["x_inner", "y_inner", "xi", "eta"],
        within=[*groups, "i", "c"],
        axes={"m_image": None, "m_x": 1, "m_y": 0, "m_color": None},
        group_shape=_GROUP_SHAPE,
    )
    return lp.prioritize_loops(unit, "i,c,xi,eta")


def _expected(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    import numpy as np

    n, images = parameters["n"], parameters["images"]
    m = arguments["m"].astype("float64")
    f = arguments["f"].astype("float64")
    r = np.zeros((images, _FILTERS, n, n))
    for row in range(_TAPS):
        for column in range(_TAPS):
            x, y = 2 * _WIDTH - row, 2 * _WIDTH - column
            window = m[:, x : x + n, y : y + n, :]
            r += np.einsum("ixyc,jc->ijxy", window, f[:, row, column, :])
    return {"r": r}
