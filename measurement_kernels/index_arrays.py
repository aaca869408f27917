"""Arrays of indices that kernels read: places in a table, and the starts of rows in an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from measurement_kernels.arguments import ArrayArgument, Extent, Sizes

Layout = Literal["flat", "rows", "columns"]
"""One place per item, or a row of places per item: contiguous, or with stride n."""

LAID_OUT: dict[Layout, tuple[str, tuple[Extent, ...]]] = {
    "flat": ("i", (Extent("n"),)),
    "rows": ("i, k", (Extent("n"), Extent("m"))),
    "columns": ("k, i", (Extent("m"), Extent("n"))),
}
"""Indices of an item's places in their array, and the array's shape."""


def loops(layout: Layout) -> tuple[tuple[str, str], ...]:
    """Return the loops over items and their places, with the sizes that bound them."""
    return (("i", "n"),) if layout == "flat" else (("i", "n"), ("k", "m"))


def shape_at(layout: Layout, sizes: Sizes) -> tuple[int, ...]:
    """Return the shape of the array of places."""
    return tuple(extent.at(sizes) for extent in LAID_OUT[layout][1])


def anywhere(
    layout: Layout, table: Extent | int, random: np.random.Generator, sizes: Sizes
) -> NDArray[np.int32]:
    """Return random places below the length of a table."""
    length = table if isinstance(table, int) else table.at(sizes)
    return random.integers(length, size=shape_at(layout, sizes), dtype="int32")


def each_once(
    layout: Layout, block: int, random: np.random.Generator, sizes: Sizes
) -> NDArray[np.int32]:
    """Return all places in random order, each once.

    Places are shuffled within blocks of `block` places; 0: all places are one block.
    """
    shape = shape_at(layout, sizes)
    number = int(np.prod(shape))
    blocks = np.arange(number) // block if block else np.zeros(number)
    return np.lexsort((random.random(number), blocks)).astype("int32").reshape(shape)


def near(
    layout: Layout, reach: int, random: np.random.Generator, sizes: Sizes
) -> NDArray[np.int32]:
    """Return places that differ by at most `reach` from their item's own."""
    shape = shape_at(layout, sizes)
    item = np.arange(sizes["n"]).reshape((-1, 1) if layout == "rows" else (-1,))
    away = random.integers(-reach, reach + 1, size=shape)
    return np.clip(item + away, 0, sizes["n"] - 1).astype("int32")


ROW_LOOPS = ("{ [i] : 0 <= i < n }", "{ [j] : 0 <= j < length }")
"""Loops over rows, and over the elements of one; ``length`` is computed by `row_sums`."""


def row_sums(target: str, term: str) -> str:
    """Return instructions that sum a term along each row; ``start + j`` is an element's place."""
    return f"""
        for i
            <> start = starts[i] {{id=start}}
            <> length = starts[i + 1] - start {{id=length, dep=start}}
            {target}[i] = sum(j, {term}) {{dep=length:start}}
        end
    """


def row_starts(lengths: Callable[[Sizes], NDArray[np.int64]]) -> ArrayArgument:
    """Return the array of the places where rows of given lengths begin, and the last one ends."""

    def starts(random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
        del random
        return np.concatenate([[0], np.cumsum(lengths(sizes))]).astype("int32")

    return ArrayArgument(name="starts", shape=(Extent("n", offset=1),), indices=starts)


def uneven_lengths(mean: int, step: int, sizes: Sizes) -> NDArray[np.int64]:
    """Return lengths between 1 and ``2*mean - 1``; pairs of rows have twice the mean together."""
    row = np.arange(sizes["n"])
    shorter = 1 + step * (row // 2) % (2 * mean - 1)
    return np.where(row % 2 == 0, shorter, 2 * mean - shorter)
