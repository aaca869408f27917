"""Ways to differentiate a discontinuous Galerkin field: res[r, e, i] = sum_j d[r, i, j] u[e, j].

Three reference directions r, ``nodes`` = 32 nodes per element, f32; ``elements`` is a parameter.
Groups take ``items_e`` elements, ``each`` to an item in turn, and all or some of the nodes along
the other axis; lanes run along nodes or elements. With ``fetch`` the matrix of a direction, the
field of the group's elements, or both go through local memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from countperf.tuning.space import Choice, SearchSpace
from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter, Sizes
from measurement_kernels.variants.common import (
    Inputs,
    Rounded,
    split_to_items,
    sweep_of,
    written_as,
)

if TYPE_CHECKING:
    from loopy import TranslationUnit
    from numpy.typing import NDArray

NODES = 32
DIRECTIONS = 3


_ARGUMENTS = (
    ArrayArgument(name="d", shape=(DIRECTIONS, NODES, NODES)),
    ArrayArgument(name="u", shape=(Extent("elements"), NODES)),
    ArrayArgument(name="res", shape=(DIRECTIONS, Extent("elements"), NODES), role="output"),
)


def build(
    items_e: int, items_i: int, each: int, fetch: str, lanes: str, block: str, unroll: bool
) -> TranslationUnit:
    """Build a variant."""
    from measurement_kernels.units import make_unit, prefetch, tag_inames

    unit = make_unit(
        "dg_differentiation",
        domain="{ [r, e, i, j]: "
        f"0 <= r < {DIRECTIONS} and 0 <= e < elements and 0 <= i, j < {NODES} }}",
        instructions="res[r, e, i] = sum(j, d[r, i, j] * u[e, j])",
        sizes=[SizeParameter(name="elements", multiple=items_e * each)],
        arguments=_ARGUMENTS,
        element_type="f32",
    )
    axis_e, axis_i = (1, 0) if lanes == "nodes" else (0, 1)
    group = (items_i, items_e) if lanes == "nodes" else (items_e, items_i)
    unit = split_to_items(unit, "e", axis=axis_e, items=items_e, each=each)
    unit = split_to_items(unit, "i", axis=axis_i, items=items_i, each=1)
    unit = tag_inames(unit, {"r": "g.2"})
    within = ["r", "e_group", "i_group"]
    if "d" in fetch:
        unit = prefetch(
            unit,
            "d",
            sweep=["i_item", "j"],
            within=within,
            axes={"d_direction": None, "d_row": axis_i, "d_column": axis_e},
            group_shape=group,
        )
    if "u" in fetch:
        unit = prefetch(
            unit,
            "u",
            sweep=sweep_of(unit, ["e_each", "e_item", "j"]),
            within=within,
            axes={"u_element": axis_e, "u_node": axis_i},
            group_shape=group,
        )
    return written_as(unit, block, ["e_each"], ["j"] if unroll else [])


def _check_sizes(choice: Choice) -> dict[str, int]:
    return {"elements": 3 * int(choice["items_e"]) * int(choice["each"])}


def _expected(arguments: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
    import numpy as np

    del sizes
    d, u = (arguments[name].astype("float64") for name in "du")
    return {"res": np.einsum("rij,ej->rei", d, u)}


SPACE = SearchSpace(
    name="dg-differentiation",
    parameters={
        "items_e": [2, 4, 8, 16, 32],
        "items_i": [4, 8, 16, 32],
        "each": [1, 2, 4, 8],
        "fetch": ["none", "d", "u", "du"],
        "lanes": ["nodes", "elements"],
        "block": ["ilp", "ilp.seq", "for"],
        "unroll": [False, True],
    },
    constraints=(
        "items_e * items_i <= 512",
        "each > 1 or block == 'ilp'",
        "fetch == 'none' or block != 'for'",
        "each <= 4 or not unroll",
    ),
    together=("block", "unroll"),
    build=build,
    sizes={"elements": 8192},
    check_sizes=_check_sizes,
    make_arguments=Inputs(arguments=_ARGUMENTS),
    reference=Rounded(expected=_expected),
)
