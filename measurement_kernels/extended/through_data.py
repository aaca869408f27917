"""Addresses and trip counts that depend on data.

``gathers``
    Elements of a table at indices from an array, one per item. Indices are random, or near the
    item, so that neighbors load neighbors; the table is small, or as long as the result.
``gathers-in-loops``
    Sums of such elements along rows of indices, which are contiguous or side by side.
``scatters``
    Elements of an array stored at indices from another one, each once: anywhere, or near the item.
``scatters-in-loops``
    The same along rows of indices, which are contiguous or side by side; or a number stored
    repeatedly in a small array.
``uneven-rows``
    Sums of contiguous rows whose lengths differ a lot or not at all. Items that run together wait
    for the longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter, Sizes, arrays
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.index_arrays import (
    LAID_OUT,
    ROW_LOOPS,
    Layout,
    anywhere,
    each_once,
    loops,
    row_starts,
    row_sums,
    uneven_lengths,
)
from measurement_kernels.loopy_kernels import LoopyKernel, in_f64, mapped
from measurement_kernels.programs import Formula, Program, Shape, along, program_entry

_ROW = 24
_SMALL = 2048
_STEP = 7
_BLOCK = 16
_ROWS = (
    (5, 64, "f32", "a"),
    (12, 128, "f32", "a"),
    (12, 256, "f64", "a"),
    (24, 32, "f32", "ab"),
    (40, 64, "f32", "a"),
    (96, 128, "f32", "ab"),
)
"""Mean length, items of a group, type, and the arrays of whose product sums are computed."""


def entries() -> Iterator[CatalogEntry]:
    """List the families."""
    for make, patterns in ((_gather, ("near", "random", "small")), (_scatter, ("near", "random"))):
        for pattern in patterns:
            yield make("flat", pattern, 128)
            yield make("flat", pattern, 256, "f64")
            yield make("rows", pattern, 64)
            yield make("columns", pattern, 256)
        yield make("rows", "random", 128, "f64")
        yield make("columns", "near", 96, "f64")
    yield _scatter("rows", "small", 64, "f64")
    yield _scatter("columns", "small", 128)
    for mean, items, element_type, names in _ROWS:
        for kind in ("even", "uneven"):
            yield _row_sums(mean, items, element_type, names, kind)


def _sizes(layout: Layout, items: int) -> tuple[SizeParameter, ...]:
    if layout == "flat":
        return (SizeParameter("n", items, base=49152),)
    return (SizeParameter("n", items, base=6144), SizeParameter("m", fixed=_ROW))


def _gather(layout: Layout, pattern: str, items: int, element_type: str = "f32") -> CatalogEntry:
    """Return an entry that adds elements of a table."""
    index, shape = LAID_OUT[layout]
    table = _SMALL if pattern == "small" else Extent("n")
    numbers = partial(_near, layout) if pattern == "near" else partial(anywhere, layout, table)
    flat = layout == "flat"
    program = Program(
        f"gather_{layout}",
        loops(layout),
        (
            Formula("r[i]", (f"x[t[{index}]]",))
            if flat
            else Formula("r[i]", (f"a[{index}] * x[t[{index}]]",), summed=("k",)),
        ),
        _sizes(layout, items),
        (
            ArrayArgument(name="t", shape=shape, indices=numbers),
            *(() if flat else (ArrayArgument(name="a", shape=shape),)),
            ArrayArgument(name="x", shape=(table,)),
            *arrays("output r[n]"),
        ),
        element_type,
    )
    return program_entry(
        program,
        Shape(along("i", (items,))),
        "gathers" if flat else "gathers-in-loops",
        pattern if flat else f"{layout}-{pattern}",
        (0, 2, 4),
        statistics={"x": "stride1" if pattern == "near" else "indirect"},
    )


def _near(layout: Layout, random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
    """Return places in the table around those of their items, side by side."""
    del random
    n, item = sizes["n"], np.arange(sizes["n"])
    m = sizes.get("m", 1)
    near = item if layout == "flat" else np.add.outer(item, np.arange(m) - m // 2)
    found = np.clip(near, 0, n - 1).astype("int32")
    return np.ascontiguousarray(found.T if layout == "columns" else found)


def _scatter(layout: Layout, pattern: str, items: int, element_type: str = "f32") -> CatalogEntry:
    """Return an entry that stores elements at places that it reads.

    In a small array, places are stored repeatedly, always with the same number.
    """
    index, shape = LAID_OUT[layout]
    flat, small = layout == "flat", pattern == "small"
    if small:
        sizes = (SizeParameter("n", items, fixed=_SMALL), SizeParameter("m", base=72))
        places = partial(anywhere, layout, Extent("n"))
    else:
        sizes = _sizes(layout, items)
        places = partial(each_once, layout, _BLOCK if pattern == "near" else 0)
    result = Extent("n", factor=1 if flat or small else _ROW)
    program = Program(
        f"scatter_{layout}",
        loops(layout),
        (Formula(f"r[t[{index}]]", ("2" if small else f"x[{index}]",)),),
        sizes,
        (
            ArrayArgument(name="t", shape=shape, indices=places),
            *(() if small else (ArrayArgument(name="x", shape=shape),)),
            ArrayArgument(name="r", shape=(result,), role="updated"),
        ),
        element_type,
    )
    return program_entry(
        program,
        Shape(along("i", (items,))),
        "scatters" if flat else "scatters-in-loops",
        pattern if flat else f"{layout}-{pattern}",
        (0, 2, 4),
        statistics={"r": "stride1" if pattern == "near" else "indirect"},
    )


def _even_lengths(mean: int, sizes: Sizes) -> NDArray[np.int64]:
    return np.full(sizes["n"], mean)


def _row_sums(mean: int, items: int, element_type: str, names: str, kind: str) -> CatalogEntry:
    """Return an entry whose items add rows between two places that they read."""
    (entry,) = LoopyKernel(
        name="row_sums",
        family="uneven-rows",
        variant=f"{kind}-{mean}" + ("-product" if len(names) == 2 else ""),
        collection="extended",
        groups=((items, 1),),
        element_types=(element_type,),
        exponents=range(8),
        exponent_steps=(0, 2),
        sizes=lambda _: (SizeParameter("n", 2 * items, base=max(2, 131072 // mean)),),
        arguments=(
            row_starts(
                partial(_even_lengths, mean)
                if kind == "even"
                else partial(uneven_lengths, mean, _STEP)
            ),
            *arrays("".join(f"{name}[{mean}*n], " for name in names) + "output r[n]"),
        ),
        check={"n": 2},
        domain=ROW_LOOPS,
        instructions=row_sums("r", "*".join(f"{name}[start + j]" for name in names)),
        transform=_one_row_per_item,
        expected=partial(_summed_rows, names),
        statistics={"j": Fraction(mean), **dict.fromkeys(names, "4ofn")},
    ).entries()
    return entry


_one_row_per_item = mapped(i=0)


def _summed_rows(
    names: str, arguments: Mapping[str, Any], parameters: Sizes
) -> dict[str, NDArray[Any]]:
    del parameters
    products = np.prod(in_f64(arguments, " ".join(names)), axis=0)
    return {"r": np.add.reduceat(products, arguments["starts"][:-1])}
