"""Builders of the library's search spaces; all arrays are row major and f32."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import loopy as lp
import numpy as np
from loopy import TranslationUnit
from numpy.typing import NDArray

from countperf.tuning.space import Choice, SearchSpace
from measurement_kernels import paper, paper_tests
from measurement_kernels.arguments import Argument, ArrayArgument, SizeParameter, Sizes, arrays
from measurement_kernels.loopy_kernels import in_f64
from measurement_kernels.units import in_order, make_unit, prefetch, split_plane, tag_blocks

# --- inputs, references, sizes; processes of a search exchange them, hence no closures


@dataclass(frozen=True, slots=True)
class Inputs:
    """Function that draws the inputs of a space's variants."""

    arguments: tuple[ArrayArgument, ...]

    def __call__(self, random: np.random.Generator, sizes: Sizes) -> dict[str, Any]:
        """Draw the input arrays."""
        inputs = (array for array in self.arguments if array.role == "input")
        return {array.name: array.draw(random, "f32", sizes) for array in inputs}


@dataclass(frozen=True, slots=True)
class Rounded:
    """Function that returns outputs computed in f64 and rounded to f32."""

    expected: Callable[[Mapping[str, Any], Sizes], Mapping[str, NDArray[Any]]]

    def __call__(self, arguments: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
        """Compute the outputs."""
        expected = self.expected(arguments, sizes)
        return {name: values.astype("float32", copy=False) for name, values in expected.items()}


@dataclass(frozen=True, slots=True)
class CheckSizes:
    """Function that returns sizes of so many groups; of several lengths, the largest counts."""

    groups: int | Mapping[str, int]
    lengths: Mapping[str, tuple[str, ...]]  # by size: parameters that multiply, between blanks

    def __call__(self, choice: Choice) -> dict[str, int]:
        """Compute the sizes."""
        return {
            name: (self.groups if isinstance(self.groups, int) else self.groups[name])
            * max(covered(choice, parameters) for parameters in lengths)
            for name, lengths in self.lengths.items()
        }


def covered(choice: Choice, parameters: str) -> int:
    """Return the product of a choice's values of some parameters, separated by blanks."""
    return math.prod(int(choice[name]) for name in parameters.split())


def _start(
    name: str, domain: str, instructions: str, arguments: Sequence[Argument], **multiples: int
) -> TranslationUnit:
    """Return a unit whose sizes are multiples of lengths."""
    sizes = [SizeParameter(size, multiple) for size, multiple in multiples.items()]
    return make_unit(
        name,
        domain=domain,
        instructions=instructions,
        sizes=sizes,
        arguments=arguments,
        element_type="f32",
    )


# --- c = a · b, a of n by m, b of m by l
#
# Each work item computes a block of ``rows`` by ``columns`` elements of c, which are apart by the
# size of the group, so that lanes access neighbors. The sum runs in steps of ``step``. ``fetch``
# names the factors whose parts for a step go through local memory. ``block``: ``ilp`` keeps the
# block in registers, with loops over it unrolled inside the sum; ``ilp.seq`` keeps it in a private
# array, with loops inside the sum; ``for`` computes one element after the other, with the sum
# inside, which excludes a fetch: the loops would have to nest both ways.


def build_matmul(
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
    """Build a variant of the matrix product."""
    lengths = {"n": items_i * rows, "m": step, "l": items_j * columns}
    unit = _start("matmul", paper.PRODUCT_DOMAIN, paper.PRODUCT, paper.PRODUCT_ARGUMENTS, **lengths)
    unit, (axis_i, axis_j), group = split_plane(
        unit, "ij", items=(items_i, items_j), each=(rows, columns), first_lane=lanes == "i"
    )
    unit = in_order(unit, ["i_each", "j_each"])
    unit = lp.split_iname(unit, "k", step, outer_iname="k_step", inner_iname="k_in")
    sweeps = {"a": ["i_each", "i_item", "k_in"], "b": ["k_in", "j_each", "j_item"]}
    for array in fetch if fetch != "none" else "":
        axes = {f"{array}_row": axis_i, f"{array}_column": axis_j}
        within = ["i_group", "j_group", "k_step"]
        unit = prefetch(unit, array, sweeps[array], within, axes, group)
    return tag_blocks(unit, block, ["i_each", "j_each"], ["k_in"] if unroll else [])


MATMUL = SearchSpace(
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
    build=build_matmul,
    sizes={"n": 512, "m": 512, "l": 512},
    check_sizes=CheckSizes(2, {"n": ("items_i rows",), "m": ("step",), "l": ("items_j columns",)}),
    make_arguments=Inputs(paper.PRODUCT_ARGUMENTS),
    reference=Rounded(paper.product),
)

# --- 5-point stencil with a quadratic source, n by n with a halo of one
#
# Each item computes a block of ``rows`` by ``columns`` points, which are apart by the size of the
# group. With ``tile`` the points of a group and their halo go through local memory.


_TILE = ["i_each", "i_item", "j_each", "j_item"]


def build_stencil(
    items_i: int, items_j: int, rows: int, columns: int, tile: bool, lanes: str, block: str
) -> TranslationUnit:
    """Build a variant of the stencil."""
    domain, arguments = paper_tests.STENCIL_DOMAIN, paper_tests.STENCIL_ARGUMENTS
    length = max(items_i * rows, items_j * columns)
    unit = _start("stencil", domain, paper_tests.STENCIL, arguments, n=length)
    unit, (axis_i, axis_j), group = split_plane(
        unit, "ij", items=(items_i, items_j), each=(rows, columns), first_lane=lanes == "i"
    )
    if tile:
        axes = {"u_row": axis_i, "u_column": axis_j}
        unit = prefetch(unit, "u", _TILE, ["i_group", "j_group"], axes, group)
    return tag_blocks(unit, block, ["i_each", "j_each"])


STENCIL = SearchSpace(
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
    build=build_stencil,
    sizes={"n": 2048},
    check_sizes=CheckSizes(2, {"n": ("items_i rows", "items_j columns")}),
    make_arguments=Inputs(paper_tests.STENCIL_ARGUMENTS),
    reference=Rounded(paper_tests.stencil),
)

# --- derivatives of a discontinuous Galerkin field: res[r, e, i] = sum_j d[r, i, j] u[e, j]
#
# Three reference directions r, 32 nodes per element. Groups take ``items_e`` elements, ``each`` to
# an item in turn, and all or some of the nodes along the other axis; lanes run along nodes or
# elements. With ``fetch`` the matrix of a direction (``d``), the field of the group's elements
# (``u``), or both go through local memory.

NODES = 32
DIRECTIONS = 3
_DG_ARGUMENTS = arrays(
    f"d[{DIRECTIONS}, {NODES}, {NODES}], u[elements, {NODES}], "
    f"output res[{DIRECTIONS}, elements, {NODES}]"
)


def build_dg_differentiation(
    items_e: int, items_i: int, each: int, fetch: str, lanes: str, block: str, unroll: bool
) -> TranslationUnit:
    """Build a variant of the derivatives."""
    domain = f"0 <= r < {DIRECTIONS} and 0 <= e < elements and 0 <= i, j < {NODES}"
    unit = _start(
        "dg_differentiation",
        f"{{ [r, e, i, j]: {domain} }}",
        "res[r, e, i] = sum(j, d[r, i, j] * u[e, j])",
        _DG_ARGUMENTS,
        elements=items_e * each,
    )
    unit, (axis_e, axis_i), group = split_plane(
        unit, "ei", items=(items_e, items_i), each=(each, 1), first_lane=lanes != "nodes"
    )
    unit = lp.tag_inames(unit, {"r": "g.2"})
    for array, sweep, axes in (
        ("d", ["i_item", "j"], {"d_direction": None, "d_row": axis_i, "d_column": axis_e}),
        ("u", ["e_each", "e_item", "j"], {"u_element": axis_e, "u_node": axis_i}),
    ):
        if array in fetch:
            unit = prefetch(unit, array, sweep, ["r", "e_group", "i_group"], axes, group)
    return tag_blocks(unit, block, ["e_each"], ["j"] if unroll else [])


def _derivatives(arguments: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
    del sizes
    return {"res": np.einsum("rij,ej->rei", *in_f64(arguments, "d u"))}


DG_DIFFERENTIATION = SearchSpace(
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
    build=build_dg_differentiation,
    sizes={"elements": 8192},
    check_sizes=CheckSizes(3, {"elements": ("items_e each",)}),
    make_arguments=Inputs(_DG_ARGUMENTS),
    reference=Rounded(_derivatives),
)

# --- b = aᵀ, b of n by m
#
# Each item moves a block of ``rows`` by ``columns`` elements of b, which are apart by the size of
# the group. With ``tile`` a group's reads go through local memory; lanes run along rows or columns
# of b.


def build_transpose(
    items_i: int, items_j: int, rows: int, columns: int, tile: bool, lanes: str, block: str
) -> TranslationUnit:
    """Build a variant of the transpose."""
    lengths = {"n": items_i * rows, "m": items_j * columns}
    domain = "{ [i, j]: 0 <= i < n and 0 <= j < m }"
    unit = _start("transpose", domain, "b[i, j] = a[j, i]", paper.TRANSPOSE_ARGUMENTS, **lengths)
    unit, _, group = split_plane(
        unit, "ij", items=(items_i, items_j), each=(rows, columns), first_lane=lanes == "i"
    )
    if tile:
        wide = 1 if items_i * rows > 1 else 0  # a tile of one column is fetched along axis 0
        rows_axis = wide if items_j * columns > 1 else None  # one row: there is no loop over rows
        axes = {"a_row": rows_axis, "a_column": 0 if items_i * rows > 1 else None}
        unit = prefetch(unit, "a", _TILE, ["i_group", "j_group"], axes, group)
    return tag_blocks(unit, block, ["i_each", "j_each"])


TRANSPOSE = SearchSpace(
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
    build=build_transpose,
    sizes={"n": 2048, "m": 2048},
    check_sizes=CheckSizes({"n": 2, "m": 3}, {"n": ("items_i rows",), "m": ("items_j columns",)}),
    make_arguments=Inputs(paper.TRANSPOSE_ARGUMENTS),
    reference=Rounded(paper.transposed),
)

# --- three 5 by 5 filters on a gray image of n by n
#
# ``r[q, x, y] = sum(xi, eta, m[x + xi, y + eta] * f[q, xi, eta])``, the image with a margin of two.
# Each item computes a block of ``rows`` by ``columns`` pixels, which are apart by the size of the
# group; filters lie along the third axis of the NDRange. With ``fetch`` the group's filter (``f``),
# its pixels and their halo (``m``), or both go through local memory.

TAPS = 5
_FILTER_ARGUMENTS = arrays(
    f"m[n + {TAPS - 1}, n + {TAPS - 1}], f[3, {TAPS}, {TAPS}], output r[3, n, n]"
)


def build_convolution(
    items_x: int,
    items_y: int,
    rows: int,
    columns: int,
    fetch: str,
    lanes: str,
    block: str,
    unroll: bool,
) -> TranslationUnit:
    """Build a variant of the filters."""
    unit = _start(
        "convolution",
        f"{{ [q, x, y, xi, eta]: 0 <= q < 3 and 0 <= x, y < n and 0 <= xi, eta < {TAPS} }}",
        "r[q, x, y] = sum([xi, eta], m[x + xi, y + eta] * f[q, xi, eta])",
        _FILTER_ARGUMENTS,
        n=max(items_x * rows, items_y * columns),
    )
    unit, (axis_x, axis_y), group = split_plane(
        unit, "xy", items=(items_x, items_y), each=(rows, columns), first_lane=lanes == "x"
    )
    unit = lp.tag_inames(unit, {"q": "g.2"})
    pixels = ["x_each", "x_item", "y_each", "y_item"]
    for array, sweep, axes in (
        ("f", ["xi", "eta"], {"f_filter": None, "f_xi": axis_x, "f_eta": axis_y}),
        ("m", [*pixels, "xi", "eta"], {"m_x": axis_x, "m_y": axis_y}),
    ):
        if array in fetch:
            unit = prefetch(unit, array, sweep, ["q", "x_group", "y_group"], axes, group)
    return tag_blocks(unit, block, ["x_each", "y_each"], ["xi", "eta"] if unroll else [])


def _filtered(arguments: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
    n = sizes["n"]
    m, f = in_f64(arguments, "m f")
    r = np.zeros((3, n, n))
    for xi in range(TAPS):
        for eta in range(TAPS):
            r += f[:, xi, eta, None, None] * m[xi : xi + n, eta : eta + n]
    return {"r": r}


CONVOLUTION = SearchSpace(
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
    build=build_convolution,
    sizes={"n": 512},
    check_sizes=CheckSizes(2, {"n": ("items_x rows", "items_y columns")}),
    make_arguments=Inputs(_FILTER_ARGUMENTS),
    reference=Rounded(_filtered),
)
