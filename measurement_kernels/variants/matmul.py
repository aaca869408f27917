"""Ways to write c = a · b, a of n by m, b of m by l, row major, f32.

Each work item makes a block of ``rows`` by ``columns`` elements of c, apart by the size of the
group, so that lanes touch neighbors. The sum runs in steps of ``step``; with ``fetch`` the parts of
a, of b, or of both that a group needs for a step go through local memory. ``block`` says how the
block is kept: ``ilp`` in registers, loops over it unrolled inside the sum; ``ilp.seq`` in a private
array, loops inside the sum; ``for`` one element after the other, the sum inside, which goes with no
fetch: the loops would have to nest both ways.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from countperf.tuning.space import Choice, SearchSpace
from measurement_kernels.arguments import SizeParameter
from measurement_kernels.matmul_tiled import ARGUMENTS, expected
from measurement_kernels.variants.common import (
    Inputs,
    Rounded,
    in_order,
    prefetch_tile,
    split_plane,
    written_as,
)

if TYPE_CHECKING:
    from loopy import TranslationUnit


def build(
    items_i: int,
    items_j: int,
    rows: int,
    columns: int,
    step: int,
    fetch: str,
    block: str,
    lanes: str,
    unroll: bool,
) -> TranslationUnit:
    """Build a variant."""
    from measurement_kernels.units import make_unit, split_iname

    unit = make_unit(
        "matmul",
        domain="{ [i, j, k]: 0 <= i < n and 0 <= j < l and 0 <= k < m }",
        instructions="c[i, j] = sum(k, a[i, k] * b[k, j])",
        sizes=[
            SizeParameter(name="n", multiple=items_i * rows),
            SizeParameter(name="m", multiple=step),
            SizeParameter(name="l", multiple=items_j * columns),
        ],
        arguments=ARGUMENTS,
        element_type="f32",
    )
    unit, (axis_i, axis_j), group = split_plane(
        unit, items=(items_i, items_j), each=(rows, columns), lanes=lanes
    )
    unit = in_order(unit, ["i_each", "j_each"])
    unit = split_iname(unit, "k", step, outer_iname="k_step", inner_iname="k_in")
    within = ["i_group", "j_group", "k_step"]
    if "a" in fetch:
        unit = prefetch_tile(
            unit,
            "a",
            sweep=["i_each", "i_item", "k_in"],
            within=within,
            axes={"a_row": axis_i, "a_column": axis_j},
            group_shape=group,
        )
    if "b" in fetch:
        unit = prefetch_tile(
            unit,
            "b",
            sweep=["k_in", "j_each", "j_item"],
            within=within,
            axes={"b_row": axis_i, "b_column": axis_j},
            group_shape=group,
        )
    return written_as(unit, block, ["i_each", "j_each"], ["k_in"] if unroll else [])


def _check_sizes(choice: Choice) -> dict[str, int]:
    return {
        "n": 2 * int(choice["items_i"]) * int(choice["rows"]),
        "m": 2 * int(choice["step"]),
        "l": 2 * int(choice["items_j"]) * int(choice["columns"]),
    }


SPACE = SearchSpace(
    name="matmul",
    parameters={
        "items_i": [1, 4, 16],
        "items_j": [8, 16, 32],
        "rows": [1, 2, 4],
        "columns": [1, 2, 4],
        "step": [8, 32],
        "fetch": ["none", "a", "b", "ab"],
        "block": ["ilp", "ilp.seq", "for"],
        "lanes": ["j", "i"],
        "unroll": [False, True],
    },
    constraints=(
        "items_i * items_j <= 512",
        "items_i > 1 or lanes == 'j'",
        "rows * columns > 1 or block == 'ilp'",
        "fetch == 'none' or block != 'for'",
        "step * rows * columns <= 256 or not unroll",
    ),
    together=("block", "unroll"),
    build=build,
    sizes={"n": 512, "m": 512, "l": 512},
    check_sizes=_check_sizes,
    make_arguments=Inputs(arguments=ARGUMENTS),
    reference=Rounded(expected=expected),
)
