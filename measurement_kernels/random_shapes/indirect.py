"""Random accesses through data: elements of tables at indices from an array, and stores the same.

Each item reads one index, or a row of them. Rows are contiguous or side by side; their length is a
constant or a size. Indices are random, or at most a few elements from the item's own place; tables
have lengths from a few hundred elements to that of the result. Stores write each place once, except
for those of a constant, which write the places of a small array repeatedly.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter, Sizes, arrays
from measurement_kernels.index_arrays import (
    LAID_OUT,
    Layout,
    anywhere,
    each_once,
    loops,
    shape_at,
)
from measurement_kernels.programs import Divided, Formula, Program, Shape
from measurement_kernels.random_shapes.draws import Draw

_GATHER_S = 0.6e-9
_SCATTER_S = 1.2e-9
_SMALLEST_TABLE, _LARGEST_TABLE = 8, 18
_ROWS = (3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64, 96)

_ONE = ("{x}", "{c} * {x}", "{x} * {x}", "fabs({x} - {c})", "fmax({x}, {c})")
_WITH_NUMBERS = ("{a} * {x}", "{a} * {x}", "{a} - {c} * {x}", "fmin({a}, {x})", "{a} * {x} * {x}")
_TWO = ("{x} * {y}", "{x} - {y}", "{c} * {x} + {y}", "fmax({x}, {c} * {y})")
_STORED = ("{a}", "{c} * {a}", "{a} * {a} + {c}", "{a} + {b}", "{a} * {b}", "fmax({a}, {b})")

STATISTICS = {
    **dict.fromkeys(("x", "y", "anywhere"), "indirect"),
    **dict.fromkeys(("u", "v", "near"), "stride1"),
}
"""Stride classes of accesses through data, by table or result."""


def gather(draw: Draw) -> tuple[Program, Shape]:
    """Draw a kernel that reads tables: `x` and `y` anywhere, or `u` and `v` near the item."""
    layout = draw.pick(tuple(LAID_OUT))
    index, shape = LAID_OUT[layout]
    is_near = draw.chance(0.4)
    first, second = "uv" if is_near else "xy"
    text = draw.pick(draw.pick((_ONE, _WITH_NUMBERS, _TWO))).format(
        a=f"a[{index}]", x=f"{first}[t[{index}]]", y=f"{second}[t[{index}]]", c=draw.coefficient()
    )
    tables = [name for name in (first, second) if f"{name}[t" in text]
    length = 2 ** draw.integer(_SMALLEST_TABLE, _LARGEST_TABLE)
    table = Extent("n") if is_near or draw.chance(0.3) else length
    reach = draw.pick((1, 4, 16))
    items = _items(draw)
    sizes = _sizes(draw, layout, items, len(tables) * _GATHER_S, fixed=draw.chance(0.5))
    numbers = partial(_near, layout, reach) if is_near else partial(anywhere, layout, table)
    program = Program(
        "gather",
        loops(layout),
        (Formula("r[i]", (text,), summed=() if layout == "flat" else ("k",)),),
        sizes,
        (
            ArrayArgument(name="t", shape=shape, indices=numbers),
            *((ArrayArgument(name="a", shape=shape),) if "a[" in text else ()),
            *(ArrayArgument(name=name, shape=(table,)) for name in tables),
            *arrays("output r[n]"),
        ),
    )
    return program, Shape((items,), block=draw.pick(("for", "unr")))


def scatter(draw: Draw) -> tuple[Program, Shape]:
    """Draw a kernel that stores into an array called `anywhere` or `near`."""
    layout = draw.pick(tuple(LAID_OUT))
    index, shape = LAID_OUT[layout]
    is_near = draw.chance(0.4)
    is_small = layout != "flat" and not is_near and draw.chance(0.3)
    target = "near" if is_near else "anywhere"
    text = draw.pick(_STORED).format(a=f"a[{index}]", b=f"b[{index}]", c=draw.coefficient())
    text = "2" if is_small else text
    block = draw.pick((4, 8, 16, 32))
    small = 2 ** draw.integer(_SMALLEST_TABLE, _LARGEST_TABLE)
    items = _items(draw)
    sizes = _sizes(draw, layout, items, _SCATTER_S, fixed=True)
    result = small if is_small else Extent("n", factor=sizes[-1].fixed or 1)
    places = (
        partial(anywhere, layout, small)
        if is_small
        else partial(each_once, layout, block if is_near else 0)
    )
    program = Program(
        "scatter",
        loops(layout),
        (Formula(f"{target}[t[{index}]]", (text,)),),
        sizes,
        (
            ArrayArgument(name="t", shape=shape, indices=places),
            *(ArrayArgument(name=name, shape=shape) for name in "ab" if f"{name}[" in text),
            ArrayArgument(name=target, shape=(result,), role="updated"),
        ),
    )
    return program, Shape((items,), block=draw.pick(("for", "unr")))


def _items(draw: Draw) -> Divided:
    return Divided("i", 0, draw.linear_group(), draw.length((1, 1, 1, 2, 4)))


def _sizes(
    draw: Draw, layout: Layout, items: Divided, each_s: float, *, fixed: bool
) -> tuple[SizeParameter, ...]:
    """Draw sizes; with `fixed`, the length of rows is a constant."""
    multiples = {"n": items.items * items.each}
    if layout == "flat":
        return draw.sizes(multiples, lambda s: s["n"] * each_s)
    if not fixed:
        return draw.sizes(multiples | {"m": 1}, lambda s: s["n"] * s["m"] * each_s, skew=3.0)
    row = draw.length(_ROWS)
    sizes = draw.sizes(multiples, lambda s: s["n"] * row * each_s)
    return (*sizes, SizeParameter("m", fixed=row))


def _near(
    layout: Layout, reach: int, random: np.random.Generator, sizes: Sizes
) -> NDArray[np.int32]:
    """Return indices that differ by at most `reach` from their item's own."""
    shape = shape_at(layout, sizes)
    item = np.arange(sizes["n"]).reshape((-1, 1) if layout == "rows" else (-1,))
    away = random.integers(-reach, reach + 1, size=shape)
    return np.clip(item + away, 0, sizes["n"] - 1).astype("int32")
