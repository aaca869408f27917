"""Ways to apply three 5 by 5 filters to a gray image of n by n, all row major, f32.

``r[q, x, y] = sum(xi, eta, m[x + xi, y + eta] * f[q, xi, eta])``, the image with a margin of two.
Each item makes a block of ``rows`` by ``columns`` pixels, apart by the size of the group; filters
lie along the third axis of the NDRange. With ``fetch`` the group's filter, its pixels and their
halo, or both go through local memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from countperf.tuning.space import Choice, SearchSpace
from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter, Sizes
from measurement_kernels.variants.common import (
    Inputs,
    Rounded,
    prefetch_tile,
    split_to_items,
    written_as,
)

if TYPE_CHECKING:
    from loopy import TranslationUnit
    from numpy.typing import NDArray

TAPS = 5
FILTERS = 3

_ARGUMENTS = (
    ArrayArgument(name="m", shape=(Extent("n", offset=TAPS - 1), Extent("n", offset=TAPS - 1))),
    ArrayArgument(name="f", shape=(FILTERS, TAPS, TAPS)),
    ArrayArgument(name="r", shape=(FILTERS, Extent("n"), Extent("n")), role="output"),
)


def build(
    items_x: int,
    items_y: int,
    rows: int,
    columns: int,
    fetch: str,
    lanes: str,
    block: str,
    unroll: bool,
) -> TranslationUnit:
    """Build a variant."""
    from measurement_kernels.units import make_unit, tag_inames

    unit = make_unit(
        "convolution",
        domain="{ [q, x, y, xi, eta]: "
        f"0 <= q < {FILTERS} and 0 <= x, y < n and 0 <= xi, eta < {TAPS} }}",
        instructions="r[q, x, y] = sum([xi, eta], m[x + xi, y + eta] * f[q, xi, eta])",
        sizes=[SizeParameter(name="n", multiple=max(items_x * rows, items_y * columns))],
        arguments=_ARGUMENTS,
        element_type="f32",
    )
    axis_x, axis_y = (1, 0) if lanes == "y" else (0, 1)
    group = (items_y, items_x) if lanes == "y" else (items_x, items_y)
    unit = split_to_items(unit, "x", axis=axis_x, items=items_x, each=rows)
    unit = split_to_items(unit, "y", axis=axis_y, items=items_y, each=columns)
    unit = tag_inames(unit, {"q": "g.2"})
    within = ["q", "x_group", "y_group"]
    if "f" in fetch:
        unit = prefetch_tile(
            unit,
            "f",
            sweep=["xi", "eta"],
            within=within,
            axes={"f_filter": None, "f_xi": axis_x, "f_eta": axis_y},
            group_shape=group,
        )
    if "m" in fetch:
        unit = prefetch_tile(
            unit,
            "m",
            sweep=["x_each", "x_item", "y_each", "y_item", "xi", "eta"],
            within=within,
            axes={"m_x": axis_x, "m_y": axis_y},
            group_shape=group,
        )
    return written_as(unit, block, ["x_each", "y_each"], ["xi", "eta"] if unroll else [])


def _check_sizes(choice: Choice) -> dict[str, int]:
    along_x = int(choice["items_x"]) * int(choice["rows"])
    along_y = int(choice["items_y"]) * int(choice["columns"])
    return {"n": 2 * max(along_x, along_y)}


def _expected(arguments: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
    import numpy as np

    n = sizes["n"]
    m, f = (arguments[name].astype("float64") for name in "mf")
    r = np.zeros((FILTERS, n, n))
    for xi in range(TAPS):
        for eta in range(TAPS):
            r += f[:, xi, eta, None, None] * m[xi : xi + n, eta : eta + n]
    return {"r": r}


SPACE = SearchSpace(
    name="convolution",
    parameters={
        "items_x": [1, 4, 8, 16],
        "items_y": [8, 16, 32],
        "rows": [1, 2, 4],
        "columns": [1, 2, 4],
        "fetch": ["none", "f", "m", "fm"],
        "lanes": ["y", "x"],
        "block": ["ilp", "ilp.seq", "for"],
        "unroll": [False, True],
    },
    constraints=(
        "16 <= items_x * items_y <= 512",
        "items_x > 1 or lanes == 'y'",
        "rows * columns > 1 or block == 'ilp'",
        "fetch == 'none' or block != 'for'",
        "rows * columns <= 4 or not unroll",
    ),
    together=("block", "unroll"),
    build=build,
    sizes={"n": 512},
    check_sizes=_check_sizes,
    make_arguments=Inputs(arguments=_ARGUMENTS),
    reference=Rounded(expected=_expected),
)
