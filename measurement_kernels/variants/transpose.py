"""Ways to write b = aᵀ, row major, b of n by m, f32.

Each item moves a block of ``rows`` by ``columns`` elements of b, apart by the size of the group.
With ``tile`` what a group reads goes through local memory; lanes run along rows or columns of b.
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
    ArrayArgument(name="a", shape=(Extent("m"), Extent("n"))),
    ArrayArgument(name="b", shape=(Extent("n"), Extent("m")), role="output"),
)


def build(
    items_i: int, items_j: int, rows: int, columns: int, tile: bool, lanes: str, block: str
) -> TranslationUnit:
    """Build a variant."""
    from measurement_kernels.units import make_unit

    unit = make_unit(
        "transpose",
        domain="{ [i, j]: 0 <= i < n and 0 <= j < m }",
        instructions="b[i, j] = a[j, i]",
        sizes=[
            SizeParameter(name="n", multiple=items_i * rows),
            SizeParameter(name="m", multiple=items_j * columns),
        ],
        arguments=_ARGUMENTS,
        element_type="f32",
    )
    unit, _, group = split_plane(unit, items=(items_i, items_j), each=(rows, columns), lanes=lanes)
    if not tile:
        return written_as(unit, block, ["i_each", "j_each"])
    wide = 1 if items_i * rows > 1 else 0  # a tile of one column is fetched along axis 0
    rows_axis = wide if items_j * columns > 1 else None  # a tile of one row has no loop over rows
    columns_axis = 0 if items_i * rows > 1 else None
    unit = prefetch_tile(
        unit,
        "a",
        sweep=["i_each", "i_item", "j_each", "j_item"],
        within=["i_group", "j_group"],
        axes={"a_row": rows_axis, "a_column": columns_axis},
        group_shape=group,
    )
    return written_as(unit, block, ["i_each", "j_each"])


def _check_sizes(choice: Choice) -> dict[str, int]:
    return {
        "n": 2 * int(choice["items_i"]) * int(choice["rows"]),
        "m": 3 * int(choice["items_j"]) * int(choice["columns"]),
    }


def _expected(arguments: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
    del sizes
    return {"b": arguments["a"].T}


SPACE = SearchSpace(
    name="transpose",
    parameters={
        "items_i": [1, 4, 8, 16, 32],
        "items_j": [1, 4, 8, 16, 32],
        "rows": [1, 2, 4],
        "columns": [1, 2, 4],
        "tile": [False, True],
        "lanes": ["j", "i"],
        "block": ["for", "unr"],
    },
    constraints=(
        "16 <= items_i * items_j <= 512",
        "rows * columns > 1 or block == 'for'",
        "items_i > 1 or lanes == 'j'",
        "items_j > 1 or lanes == 'i'",
    ),
    together=("block",),
    build=build,
    sizes={"n": 2048, "m": 2048},
    check_sizes=_check_sizes,
    make_arguments=Inputs(arguments=_ARGUMENTS),
    reference=Rounded(expected=_expected),
)
