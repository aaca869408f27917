"""Predict many distinct kernels in one process; fail if it keeps more than 64 MB of them.

What countperf and Loopy keep in memory is bounded: 512 property vectors, caches of a stated number
of entries, all but the vectors forgotten after every 64 counts. What grows beyond that is islpy's:
32 bytes for each argument that isl consumes, in Loopy's transformations and here, about 25 kB a
kernel.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np

import countperf

_MOST_KILOBYTES = 64 * 1000
_WARM = 600  # kernels until all caches that are bounded are full


def resident_kilobytes() -> int:
    """Return the memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def kernel(number: int) -> Any:
    """Return a kernel that no other number has."""
    knl = lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        f"z[i] = {number}*x[i] + y[i+{number}]",
        [lp.GlobalArg("x,y,z", np.float32, shape=f"n+{number}"), lp.ValueArg("n", np.int32)],
        name=f"k{number}",
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    return lp.split_iname(knl, "i", 64, outer_tag="g.0", inner_tag="l.0")


def main() -> int:
    """Return 1 if too much is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", type=int, nargs="?", default=2000)
    number = parser.parse_args().kernels
    weights = countperf.load_weights("pocl-epyc-zen5")
    before = 0
    for k in range(_WARM + number):
        if k == _WARM:
            before = resident_kilobytes()
        vector = countperf.count_kernel(kernel(k), view="structure")
        weights.predict(vector, n=1000)
    kept = resident_kilobytes() - before
    print(f"{kept / 1000:.1f} MB of {number} kernels, {kept / number:.1f} kB each")
    return int(kept > _MOST_KILOBYTES)


if __name__ == "__main__":
    sys.exit(main())
