"""A cost function inside scipy.optimize: the shape of the blocks that a matrix product is cut into.

A product of 4096 by 4096 matrices is done in launches on blocks of n by m and m by l; blocks have
to be multiples of 16 from 256 on, and three of them have to fit into a memory of 8 MiB.
Differential evolution calls the cost function with arrays of candidates:
``python examples/search_with_scipy.py``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import differential_evolution

import countperf

SIZE = 4096
MEMORY_BYTES = 8 * 2**20
UNIT = 16
SMALLEST = 256  # below, launches weigh more than the fit's measurements can tell


def main() -> None:
    """Search, and print what was found."""
    weights = countperf.load_weights("pocl-epyc-zen5")
    cost = weights.compile(countperf.load_kernel("matmul-tiled/square/16x16/f32"))

    def total_s(blocks: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the time of all launches, s, for blocks in units of 16, shape (3, candidates)."""
        n, m, columns = np.rint(blocks).astype(np.int64) * UNIT
        launches = -(-SIZE // n) * -(-SIZE // m) * -(-SIZE // columns)
        fits = 4 * (n * m + m * columns + n * columns) <= MEMORY_BYTES
        return np.where(fits, launches * cost(n=n, m=m, l=columns), np.inf)

    limits = [(SMALLEST // UNIT, SIZE // UNIT)] * 3
    found = differential_evolution(
        total_s,
        limits,
        integrality=[True] * 3,
        vectorized=True,
        updating="deferred",
        polish=False,
        maxiter=60,
        rng=0,
    )
    n, m, columns = np.rint(found.x).astype(int) * UNIT
    print(f"blocks of {n} x {m} x {columns}: {found.fun:.3f} s predicted, {found.nfev} calls")


if __name__ == "__main__":
    main()
