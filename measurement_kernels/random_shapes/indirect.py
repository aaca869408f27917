"""Random accesses through data: elements of tables by numbers that are read, and stores the same.

Each item reads one number, or a row of them; the rows lie one behind the other or side by side, and
their length is a constant or a size. Numbers lead anywhere in a table, or to within a few elements
of the item's own place; tables are of lengths from a few hundred elements to that of the result.
Stores reach each place once, but for those of one value, which go to the places of a small array
over and over.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter, Sizes
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.places import LAID_OUT, Way, anywhere, each_once, loops, shape_at
from measurement_kernels.programs import Divided, Formula, Program, Shape
from measurement_kernels.random_shapes.draws import Draw, random_entries

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NUMBER = 32
_REGULAR = 16
_DOUBLE = 8
_GATHER_S = 0.6e-9
_SCATTER_S = 1.2e-9
_SMALLEST_TABLE, _LARGEST_TABLE = 8, 18
_ROWS = (3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64, 96)

_ONE = ("{x}", "{c} * {x}", "{x} * {x}", "fabs({x} - {c})", "fmax({x}, {c})")
_WITH_NUMBERS = ("{a} * {x}", "{a} * {x}", "{a} - {c} * {x}", "fmin({a}, {x})", "{a} * {x} * {x}")
_TWO = ("{x} * {y}", "{x} - {y}", "{c} * {x} + {y}", "fmax({x}, {c} * {y})")
_STORED = ("{a}", "{c} * {a}", "{a} * {a} + {c}", "{a} + {b}", "{a} * {b}", "fmax({a}, {b})")

_STATISTICS = {
    **dict.fromkeys(("x", "y", "anywhere"), "indirect"),
    **dict.fromkeys(("u", "v", "near"), "stride1"),
}
"""Where data leads, by array: tables and results."""


def entries() -> Iterator[CatalogEntry]:
    """List the families."""
    yield from random_entries(
        "random-gather",
        "random reads of tables by numbers",
        _NUMBER,
        _REGULAR,
        drawn_gather,
        double=_DOUBLE,
        statistics=_STATISTICS,
    )
    yield from random_entries(
        "random-scatter",
        "random stores at places that are read",
        _NUMBER,
        _REGULAR,
        drawn_scatter,
        double=_DOUBLE,
        statistics=_STATISTICS,
    )


def drawn_gather(draw: Draw) -> tuple[Program, Shape]:
    """Draw a kernel that reads one or two tables: `x` and `y` anywhere, `u` and `v` near by."""
    way = draw.pick(tuple(LAID_OUT))
    index, shape = LAID_OUT[way]
    is_near = draw.chance(0.4)
    first, second = "uv" if is_near else "xy"
    terms = draw.pick((_ONE, _WITH_NUMBERS, _TWO))
    text = draw.pick(terms).format(
        a=f"a[{index}]",
        x=f"{first}[t[{index}]]",
        y=f"{second}[t[{index}]]",
        c=draw.coefficient(),
    )
    tables = [name for name in (first, second) if f"{name}[t" in text]
    length = 2 ** draw.integer(_SMALLEST_TABLE, _LARGEST_TABLE)
    table = Extent("n") if is_near or draw.chance(0.3) else length
    reach = draw.pick((1, 4, 16))
    items = _drawn_items(draw)
    sizes = _drawn_sizes(draw, way, items, len(tables) * _GATHER_S, fixed=draw.chance(0.5))
    numbers = partial(_near, way, reach) if is_near else partial(anywhere, way, table)
    program = Program(
        name="gather",
        loops=loops(way),
        formulas=(Formula(target="r[i]", terms=(text,), summed=() if way == "flat" else ("k",)),),
        sizes=sizes,
        arguments=(
            ArrayArgument(name="t", shape=shape, indices=numbers),
            *((ArrayArgument(name="a", shape=shape),) if "a[" in text else ()),
            *(ArrayArgument(name=name, shape=(table,)) for name in tables),
            ArrayArgument(name="r", shape=(Extent("n"),), role="output"),
        ),
    )
    return program, Shape(divided=(items,), block=draw.pick(("for", "unr")))


def drawn_scatter(draw: Draw) -> tuple[Program, Shape]:
    """Draw a kernel that stores into an array, `anywhere` or `near` by."""
    way = draw.pick(tuple(LAID_OUT))
    index, shape = LAID_OUT[way]
    is_near = draw.chance(0.4)
    is_small = way != "flat" and not is_near and draw.chance(0.3)
    target = "near" if is_near else "anywhere"
    text = draw.pick(_STORED).format(a=f"a[{index}]", b=f"b[{index}]", c=draw.coefficient())
    text = "2" if is_small else text
    block = draw.pick((4, 8, 16, 32))
    small = 2 ** draw.integer(_SMALLEST_TABLE, _LARGEST_TABLE)
    items = _drawn_items(draw)
    sizes = _drawn_sizes(draw, way, items, _SCATTER_S, fixed=True)
    row = sizes[-1].fixed or 1
    result = small if is_small else Extent("n", factor=row)
    places = (
        partial(anywhere, way, small)
        if is_small
        else partial(each_once, way, block if is_near else 0)
    )
    program = Program(
        name="scatter",
        loops=loops(way),
        formulas=(Formula(target=f"{target}[t[{index}]]", terms=(text,)),),
        sizes=sizes,
        arguments=(
            ArrayArgument(name="t", shape=shape, indices=places),
            *(ArrayArgument(name=name, shape=shape) for name in "ab" if f"{name}[" in text),
            ArrayArgument(name=target, shape=(result,), role="updated"),
        ),
    )
    return program, Shape(divided=(items,), block=draw.pick(("for", "unr")))


def _drawn_items(draw: Draw) -> Divided:
    return Divided(loop="i", axis=0, items=draw.linear_group(), each=draw.length((1, 1, 1, 2, 4)))


def _drawn_sizes(
    draw: Draw, way: Way, items: Divided, each_s: float, *, fixed: bool
) -> tuple[SizeParameter, ...]:
    """Draw sizes, with a length of rows that is a constant or not."""
    multiples = {"n": items.items * items.each}
    if way == "flat":
        return draw.sizes(multiples, lambda s: s["n"] * each_s)
    if not fixed:
        return draw.sizes(multiples | {"m": 1}, lambda s: s["n"] * s["m"] * each_s, skew=3.0)
    row = draw.length(_ROWS)
    sizes = draw.sizes(multiples, lambda s: s["n"] * row * each_s)
    return (*sizes, SizeParameter(name="m", fixed=row))


def _near(way: Way, reach: int, random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
    """Return numbers that are at most so far from their item's own."""
    import numpy as np

    shape = shape_at(way, sizes)
    item = np.arange(sizes["n"]).reshape((-1, 1) if way == "rows" else (-1,))
    away = random.integers(-reach, reach + 1, size=shape)
    return np.clip(item + away, 0, sizes["n"] - 1).astype("int32")
