"""Rows that lie one behind the other in an array, between places that another array holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from measurement_kernels.arguments import ArrayArgument, Extent, Sizes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DOMAIN = ("{ [i] : 0 <= i < n }", "{ [j] : 0 <= j < length }")
"""Loops over the rows, and over the elements of one."""


def row_sums(target: str, term: str) -> str:
    """Write the instructions that sum a term along each row; ``start + j`` is a place in it."""
    return f"""
        for i
            <> start = starts[i] {{id=start}}
            <> length = starts[i + 1] - start {{id=length, dep=start}}
            {target}[i] = sum(j, {term}) {{dep=length:start}}
        end
    """


def row_starts(lengths: Callable[[Sizes], NDArray[np.int64]]) -> ArrayArgument:
    """Return the array of where rows of given lengths begin, and where the last one ends."""

    def starts(random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
        import numpy as np

        del random
        return np.concatenate([[0], np.cumsum(lengths(sizes))]).astype("int32")

    return ArrayArgument(name="starts", shape=(Extent("n", offset=1),), indices=starts)


def uneven_lengths(mean: int, step: int, sizes: Sizes) -> NDArray[np.int64]:
    """Return lengths between 1 and ``2*mean - 1``; pairs of rows have twice the mean together.

    Parameters
    ----------
    mean : int
        Of the lengths.
    step : int
        From one pair of rows to the next, modulo ``2*mean - 1``.
    sizes : Mapping from str to int
        With the number of rows ``n``, an even one.
    """
    import numpy as np

    row = np.arange(sizes["n"])
    shorter = 1 + step * (row // 2) % (2 * mean - 1)
    return np.where(row % 2 == 0, shorter, 2 * mean - shorter)
