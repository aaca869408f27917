"""Arrays of places that items read: one for each item, or rows of them, laid out either way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from measurement_kernels.arguments import Extent, Sizes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Way = Literal["flat", "rows", "columns"]
"""One place for each item, or rows of them that lie one behind the other, or side by side."""

LAID_OUT: dict[Way, tuple[str, tuple[Extent, ...]]] = {
    "flat": ("i", (Extent("n"),)),
    "rows": ("i, k", (Extent("n"), Extent("m"))),
    "columns": ("k, i", (Extent("m"), Extent("n"))),
}
"""The indices of an item's places in their array, and its shape."""


def loops(way: Way) -> tuple[tuple[str, str], ...]:
    """Return the loops over items and their places, with the sizes that bound them."""
    return (("i", "n"),) if way == "flat" else (("i", "n"), ("k", "m"))


def shape_at(way: Way, sizes: Sizes) -> tuple[int, ...]:
    """Return the shape of the array of places."""
    return tuple(extent.at(sizes) for extent in LAID_OUT[way][1])


def anywhere(
    way: Way, table: Extent | int, random: np.random.Generator, sizes: Sizes
) -> NDArray[np.int32]:
    """Return places below the length of a table."""
    length = table if isinstance(table, int) else table.at(sizes)
    return random.integers(length, size=shape_at(way, sizes), dtype="int32")


def each_once(way: Way, block: int, random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
    """Return as many places as there are, each once.

    They are shuffled in blocks of so many that stay in order, or all of them if that is 0.
    """
    import numpy as np

    shape = shape_at(way, sizes)
    number = int(np.prod(shape))
    blocks = np.arange(number) // block if block else np.zeros(number)
    return np.lexsort((random.random(number), blocks)).astype("int32").reshape(shape)
