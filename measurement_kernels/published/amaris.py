"""Kernels of Amaris, de Camargo, Dyab, Goldman, Trystram (NCA 2016), doi:10.1109/NCA.2016.7778637.

Measurements: github.com/marcosamaris/gpuperfpredict, CC-BY 4.0. All are f32.

A square work group of b by b items covers b by b elements of a row-major matrix, and
b divides n; sums of vectors have groups of b*b items in a row. "Swapped" kernels let local axis 0,
along which lanes are numbered, run along rows instead of columns of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import loopy as lp
import numpy as np
from loopy import TranslationUnit
from loopy.version import LOOPY_USE_LANGUAGE_VERSION_2018_2

from measurement_kernels.arguments import SizeParameter, arrays
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.groups import GroupShape
from measurement_kernels.loopy_kernels import LoopyKernel, Tile, computed_from, mapped, sizes_along

_SQUARES: tuple[GroupShape, ...] = tuple((b, b) for b in (4, 8, 12, 16, 20, 24, 28, 32))
_FEW_SQUARES: tuple[GroupShape, ...] = tuple((b, b) for b in (4, 8, 16, 32))
_LINES = (64, 256, 1024)

# --- matrix products and sums

_STEP = "x_outer y_outer k_outer"

_product = partial(
    LoopyKernel,
    family="published-matmul",
    collection="published",
    exponents=range(5, 11),
    sizes=sizes_along(n=0),
    arguments=arrays("a[n, n], b[n, n], output p[n, n]"),
    check={"n": 3},
    domain="{ [y, x, k] : 0 <= y, x, k < n }",
    expected=computed_from("a b", lambda a, b: {"p": a @ b}),
)

_STRAIGHT = "p[y, x] = sum(k, a[y, k]*b[k, x])"
_SWAPPED = "p[x, y] = sum(k, a[x, k]*b[k, y])"

_sum = partial(
    LoopyKernel,
    family="published-matrix-sum",
    collection="published",
    groups=_FEW_SQUARES,
    exponents=range(5, 11),
    sizes=sizes_along(n=0),
    arguments=arrays("a[n, n], b[n, n], output s[n, n]"),
    check={"n": 3},
    domain="{ [y, x] : 0 <= y, x < n }",
    transform=mapped(y=1, x=0),
    expected=computed_from("a b", lambda a, b: {"s": a + b}),
)

_KERNELS = (
    _product(
        variant="global", groups=_FEW_SQUARES, instructions=_STRAIGHT, transform=mapped(y=1, x=0)
    ),
    _product(
        variant="global-swapped",
        groups=_FEW_SQUARES,
        instructions=_SWAPPED,
        transform=mapped(y=1, x=0),
    ),
    _product(
        variant="tiled",
        groups=_SQUARES,
        instructions=_STRAIGHT,
        transform=mapped(
            Tile("a", "y_inner k_inner", _STEP, {"a_row": 1, "a_column": 0}),
            Tile("b", "k_inner x_inner", _STEP, {"b_row": 1, "b_column": 0}),
            split={"k": 0},
            y=1,
            x=0,
        ),
    ),
    _product(
        variant="tiled-swapped",
        groups=_SQUARES,
        instructions=_SWAPPED,
        transform=mapped(
            Tile("a", "x_inner k_inner", _STEP, {"a_row": 0, "a_column": 1}),
            Tile("b", "k_inner y_inner", _STEP, {"b_row": 0, "b_column": 1}),
            split={"k": 0},
            y=1,
            x=0,
        ),
    ),
    _sum(variant="rows", instructions="s[y, x] = a[y, x] + b[y, x]"),
    _sum(variant="columns", instructions="s[x, y] = a[x, y] + b[x, y]"),
    LoopyKernel(
        family="published-vector-add",
        collection="published",
        groups=tuple((items, 1) for items in _LINES),
        exponents=range(10, 24),
        sizes=sizes_along(n=0),
        arguments=arrays("a[n], b[n], output c[n]"),
        check={"n": 3},
        domain="{ [i] : 0 <= i < n }",
        instructions="c[i] = a[i] + b[i]",
        transform=mapped(i=0),
        expected=computed_from("a b", lambda a, b: {"c": a + b}),
    ),
)

# --- scalar product


@cache
def _dot_product(items: int) -> TranslationUnit:
    """Build the scalar product for groups of a power of two of items.

    Item l of group g sums ``a[t, g, l]*b[t, g, l]`` over t, which are its elements of a vector
    along which all items of all groups stride. A tree in local memory adds up the group, with a
    barrier before each level and after the last.
    """
    widths = [items >> level for level in range(1, items.bit_length())]
    levels = [
        f"part[l{width}] = part[l{width}] + part[l{width} + {width}]"
        f" {{id=level{width}, dep={'own' if 2 * width == items else f'level{2 * width}'},"
        f" inames=g:l{width}}}"
        for width in widths
    ]
    lanes = "".join(f" and 0 <= l{width} < {width}" for width in widths)
    names = ", ".join(f"l{width}" for width in widths)
    unit = lp.make_kernel(
        f"{{ [t, g, l, {names}] : 0 <= t < rows and 0 <= g < groups and 0 <= l < {items}{lanes} }}",
        "\n".join(
            [
                "part[l] = sum(t, a[t, g, l]*b[t, g, l]) {id=own}",
                *levels,
                "... lbarrier {id=last, dep=level1, inames=g}",
                "r[g] = part[l1] {id=result, dep=last}",
            ]
        ),
        [
            lp.GlobalArg("a, b", np.float32, shape=f"(rows, groups, {items})"),
            lp.GlobalArg("r", np.float32, shape="(groups,)", is_input=False),
            lp.TemporaryVariable("part", np.float32, (items,), address_space=lp.AddressSpace.LOCAL),
            lp.ValueArg("rows, groups", np.int32),
        ],
        name="dot_product",
        assumptions="rows >= 1 and groups >= 1",
        silenced_warnings=["write_race(result)"],  # only lane 0 has an l1
        lang_version=LOOPY_USE_LANGUAGE_VERSION_2018_2,
    )
    # every level has a name for the lanes that take part in it
    tags = {f"l{width}": "l.0" for width in widths}
    return lp.tag_inames(unit, {"g": "g.0", "l": "l.0", **tags})


def _dot_entry(items: int) -> CatalogEntry:
    return CatalogEntry(
        family="published-dot-product",
        collection="published",
        group_shape=(items, 1),
        exponents=range(4, 14),
        sizes=(SizeParameter("rows", fixed=1), SizeParameter("groups")),
        arguments=arrays(f"a[rows, groups, {items}], b[rows, groups, {items}], output r[groups]"),
        check_parameters={"rows": 3, "groups": 5},
        builder=partial(_dot_product, items),
        expected=computed_from("a b", lambda a, b: {"r": (a * b).sum(axis=(0, 2))}),
    )


def entries() -> Iterator[CatalogEntry]:
    """List the kernels."""
    for kernel in _KERNELS:
        yield from kernel.entries()
    for items in _LINES:
        yield _dot_entry(items)
