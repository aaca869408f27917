"""What data decides: addresses that are read from an array, and how many iterations an item makes.

``gathers``
    Elements of a table by numbers that are read, one for each item. The numbers are random, or stay
    near the item, so that neighbors load neighbors; the table is small, or as long as the result.
``gathers-in-loops``
    Sums of such elements along rows of numbers, which lie one behind the other or side by side.
``scatters``
    Elements of an array stored at places that are read, each place once: anywhere, or near where
    they come from.
``scatters-in-loops``
    The same along rows of places, which lie one behind the other or side by side; or a number
    stored in a small array, over and over.
``uneven-rows``
    Sums of rows that lie one behind the other and differ in length, by a lot or not at all. Items
    that run together wait for the longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter, Sizes
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.places import LAID_OUT, Way, anywhere, each_once, loops
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import Divided, Formula, Program, Shape
from measurement_kernels.rows import DOMAIN, row_starts, row_sums, uneven_lengths

if TYPE_CHECKING:
    import numpy as np
    from loopy import TranslationUnit
    from numpy.typing import NDArray

_ROW = 24
_SMALL = 2048
_STEP = 7
_NUMBERS = {
    "near": "numbers near the item",
    "random": "random numbers",
    "small": f"random numbers below {_SMALL}",
}
_WAYS = {
    "flat": "one for each item",
    "rows": "summed along rows",
    "columns": "summed along columns",
}
_BLOCK = 16
_PLACES = {
    "near": f"places in blocks of {_BLOCK}",
    "random": "random places",
    "small": f"{_SMALL} random places",
}
_STORED = {"flat": "one for each item", "rows": "along rows", "columns": "along columns"}
_ROWS = (
    (5, 64, "f32", 1),
    (12, 128, "f32", 1),
    (12, 256, "f64", 1),
    (24, 32, "f32", 2),
    (40, 64, "f32", 1),
    (96, 128, "f32", 2),
)
"""Mean length, items of a group, type, and how many arrays are summed the product of."""


def entries() -> Iterator[CatalogEntry]:
    """List the families."""
    for pattern in ("near", "random", "small"):
        yield _gather("flat", pattern, 128)
        yield _gather("flat", pattern, 256, "f64")
        yield _gather("rows", pattern, 64)
        yield _gather("columns", pattern, 256)
    yield _gather("rows", "random", 128, "f64")
    yield _gather("columns", "near", 96, "f64")
    for pattern in ("near", "random"):
        yield _scatter("flat", pattern, 128)
        yield _scatter("flat", pattern, 256, "f64")
        yield _scatter("rows", pattern, 64)
        yield _scatter("columns", pattern, 256)
    yield _scatter("rows", "random", 128, "f64")
    yield _scatter("columns", "near", 96, "f64")
    yield _scatter("rows", "small", 64, "f64")
    yield _scatter("columns", "small", 128)
    for mean, items, element_type, arrays in _ROWS:
        for is_even in (True, False):
            yield _uneven(mean, items, element_type, arrays, is_even=is_even)


def _sizes(way: Way, items: int) -> tuple[SizeParameter, ...]:
    if way == "flat":
        return (SizeParameter(name="n", multiple=items, base=49152),)
    return (
        SizeParameter(name="n", multiple=items, base=6144),
        SizeParameter(name="m", fixed=_ROW),
    )


def _gather(way: Way, pattern: str, items: int, element_type: str = "f32") -> CatalogEntry:
    """Make a kernel that adds elements of a table."""
    index, shape = LAID_OUT[way]
    table = _SMALL if pattern == "small" else Extent("n")
    numbers = partial(_near, way) if pattern == "near" else partial(anywhere, way, table)
    program = Program(
        name=f"gather_{way}",
        loops=loops(way),
        formulas=(
            Formula(
                target="r[i]",
                terms=(f"x[t[{index}]]" if way == "flat" else f"a[{index}] * x[t[{index}]]",),
                summed=() if way == "flat" else ("k",),
            ),
        ),
        sizes=_sizes(way, items),
        arguments=(
            ArrayArgument(name="t", shape=shape, indices=numbers),
            *(() if way == "flat" else (ArrayArgument(name="a", shape=shape),)),
            ArrayArgument(name="x", shape=(table,)),
            ArrayArgument(name="r", shape=(Extent("n"),), role="output"),
        ),
        element_type=element_type,
    )
    return program_entry(
        program,
        Shape(divided=(Divided(loop="i", axis=0, items=items),)),
        family="gathers" if way == "flat" else "gathers-in-loops",
        variant=pattern if way == "flat" else f"{way}-{pattern}",
        collection="extended",
        description=f"elements of a table by {_NUMBERS[pattern]}, {_WAYS[way]}",
        exponent_steps=(0, 2, 4),
        statistics={"x": "stride1" if pattern == "near" else "indirect"},
    )


def _near(way: Way, random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
    """Return places in the table about those of their items, side by side."""
    import numpy as np

    del random
    n, item = sizes["n"], np.arange(sizes["n"])
    m = sizes.get("m", 1)
    near = item if way == "flat" else np.add.outer(item, np.arange(m) - m // 2)
    found = np.clip(near, 0, n - 1).astype("int32")
    return np.ascontiguousarray(found.T if way == "columns" else found)


def _scatter(way: Way, pattern: str, items: int, element_type: str = "f32") -> CatalogEntry:
    """Make a kernel that stores elements at places that it reads.

    In a small array, places are stored again and again, always the same number.
    """
    index, shape = LAID_OUT[way]
    is_small = pattern == "small"
    sizes = _sizes(way, items)
    if is_small:
        sizes = (
            SizeParameter(name="n", multiple=items, fixed=_SMALL),
            SizeParameter(name="m", base=72),
        )
    places = (
        partial(anywhere, way, Extent("n"))
        if is_small
        else partial(each_once, way, _BLOCK if pattern == "near" else 0)
    )
    result = Extent("n", factor=1 if way == "flat" or is_small else _ROW)
    program = Program(
        name=f"scatter_{way}",
        loops=loops(way),
        formulas=(Formula(target=f"r[t[{index}]]", terms=("2" if is_small else f"x[{index}]",)),),
        sizes=sizes,
        arguments=(
            ArrayArgument(name="t", shape=shape, indices=places),
            *(() if is_small else (ArrayArgument(name="x", shape=shape),)),
            ArrayArgument(name="r", shape=(result,), role="updated"),
        ),
        element_type=element_type,
    )
    return program_entry(
        program,
        Shape(divided=(Divided(loop="i", axis=0, items=items),)),
        family="scatters" if way == "flat" else "scatters-in-loops",
        variant=pattern if way == "flat" else f"{way}-{pattern}",
        collection="extended",
        description=f"elements stored at {_PLACES[pattern]}, {_STORED[way]}",
        exponent_steps=(0, 2, 4),
        statistics={"r": "stride1" if pattern == "near" else "indirect"},
    )


def _even_lengths(mean: int, sizes: Sizes) -> NDArray[np.int64]:
    import numpy as np

    return np.full(sizes["n"], mean)


def _uneven(
    mean: int, items: int, element_type: str, arrays: int, *, is_even: bool
) -> CatalogEntry:
    """Make a kernel whose items add rows between two places that they read."""
    names = ("a", "b")[:arrays]
    sizes = (SizeParameter(name="n", multiple=2 * items, base=max(2, 131072 // mean)),)
    arguments = (
        row_starts(
            partial(_even_lengths, mean) if is_even else partial(uneven_lengths, mean, _STEP)
        ),
        *(ArrayArgument(name=name, shape=(Extent("n", factor=mean),)) for name in names),
        ArrayArgument(name="r", shape=(Extent("n"),), role="output"),
    )
    kind = "even" if is_even else "uneven"
    return CatalogEntry(
        family="uneven-rows",
        variant=f"{kind}-{mean}" + ("-product" if arrays == 2 else ""),
        group_shape=(items, 1),
        element_type=element_type,
        collection="extended",
        description=f"sums of rows of {mean} elements{'' if is_even else ' on average'}",
        exponents=range(8),
        exponent_steps=(0, 2),
        sizes=sizes,
        arguments=arguments,
        check_parameters={"n": 4 * items},
        builder=partial(_unit, names, items, element_type, sizes, arguments),
        expected=partial(_row_sums, names),
        statistics={"j": Fraction(mean), **dict.fromkeys(names, "4ofn")},
    )


@cache
def _unit(
    names: tuple[str, ...],
    items: int,
    element_type: str,
    sizes: tuple[SizeParameter, ...],
    arguments: tuple[ArrayArgument, ...],
) -> TranslationUnit:
    from measurement_kernels.units import make_unit, map_to_items

    unit = make_unit(
        "row_sums",
        domain=DOMAIN,
        instructions=row_sums("r", "*".join(f"{name}[start + j]" for name in names)),
        sizes=sizes,
        arguments=arguments,
        element_type=element_type,
    )
    return map_to_items(unit, {"i": 0}, (items, 1))


def _row_sums(
    names: tuple[str, ...], arguments: Mapping[str, Any], parameters: Sizes
) -> dict[str, NDArray[Any]]:
    import numpy as np

    del parameters
    products = 1.0
    for name in names:
        products = products * arguments[name].astype("float64")
    return {"r": np.add.reduceat(products, arguments["starts"][:-1])}
