"""Ways to write a 5-point stencil with a quadratic source, n by n with a margin of one, f32.

Each item makes a block of ``rows`` by ``columns`` points, apart by the size of the group. With
``tile`` the points of a group and their halo go through local memory.
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
    split_plane,
    written_as,
)

if TYPE_CHECKING:
    from loopy import TranslationUnit
    from numpy.typing import NDArray

_ARGUMENTS = (
    ArrayArgument(name="u", shape=(Extent("n", offset=2), Extent("n", offset=2))),
    ArrayArgument(name="res", shape=(Extent("n"), Extent("n")), role="output"),
)


def build(
    items_i: int, items_j: int, rows: int, columns: int, tile: bool, lanes: str, block: str
) -> TranslationUnit:
    """Build a variant."""
    from measurement_kernels.units import make_unit

    unit = make_unit(
        "stencil",
        domain="{ [i, j]: 0 <= i < n and 0 <= j < n }",
        instructions="""
            res[i, j] = (u[i+1, j+1]**2 - 1 - 4*u[i+1, j+1]
                + u[i+2, j+1] + u[i, j+1] + u[i+1, j+2] + u[i+1, j])
        """,
        sizes=[SizeParameter(name="n", multiple=max(items_i * rows, items_j * columns))],
        arguments=_ARGUMENTS,
        element_type="f32",
    )
    unit, (axis_i, axis_j), group = split_plane(
        unit, items=(items_i, items_j), each=(rows, columns), lanes=lanes
    )
    if tile:
        unit = prefetch_tile(
            unit,
            "u",
            sweep=["i_each", "i_item", "j_each", "j_item"],
            within=["i_group", "j_group"],
            axes={"u_row": axis_i, "u_column": axis_j},
            group_shape=group,
        )
    return written_as(unit, block, ["i_each", "j_each"])


def _check_sizes(choice: Choice) -> dict[str, int]:
    along_i = int(choice["items_i"]) * int(choice["rows"])
    along_j = int(choice["items_j"]) * int(choice["columns"])
    return {"n": 2 * max(along_i, along_j)}


def _expected(arguments: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
    del sizes
    u = arguments["u"].astype("float64")
    center = u[1:-1, 1:-1]
    neighbors = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return {"res": center**2 - 1 - 4 * center + neighbors}


SPACE = SearchSpace(
    name="stencil",
    parameters={
        "items_i": [1, 4, 8, 16],
        "items_j": [8, 16, 32, 64],
        "rows": [1, 2, 4, 8],
        "columns": [1, 2, 4],
        "tile": [False, True],
        "lanes": ["j", "i"],
        "block": ["for", "unr"],
    },
    constraints=(
        "16 <= items_i * items_j <= 512",
        "rows * columns > 1 or block == 'for'",
        "items_i > 1 or lanes == 'j'",
    ),
    together=("block",),
    build=build,
    sizes={"n": 2048},
    check_sizes=_check_sizes,
    make_arguments=Inputs(arguments=_ARGUMENTS),
    reference=Rounded(expected=_expected),
)
