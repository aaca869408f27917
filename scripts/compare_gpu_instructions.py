"""Compare executed instructions of published kernels with the hardware counters of Maxwell GPUs.

``python scripts/compare_gpu_instructions.py --data DIR [--output FILE]`` writes a table with a row
per kernel and counter: cases, and the smallest, middle and largest ratio of counted over measured.
DIR holds ``amaris/`` (see `amaris_data`). Kernels are compiled for compute capability 5.2, so that
``COUNTPERF_NVCC`` and ``COUNTPERF_NVDISASM`` have to name programs of a toolkit that knows it (CUDA
12 or older). The published kernels were compiled by an older nvcc, from CUDA C that tests the
limits of arrays; countperf's are compiled from Loopy's, in which group sizes divide arrays.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from amaris_data import GPUS, KERNELS, counters, sizes_of
from countperf.errors import CountingError
from countperf.harness.compile.gpu_counts import GpuCounts, GpuKernel
from measurement_kernels.catalog import entry

CAPABILITY = "5.2"
MOST_CASES = 2
"""Sizes of a kernel and group that are compared, of those that were measured."""
LARGEST = (1100, 2**22)
"""Largest size that is compared: rows of matrices, elements of vectors."""
_LINES = ("vectorAdd", "dotProd")


def _sum(counts: Mapping[str, int], *kinds: str) -> int:
    return sum(number for name, number in counts.items() if name.startswith(kinds))


COUNTERS: Mapping[str, Callable[[GpuCounts], float]] = {
    "inst_executed": lambda c: c.instructions["all"],
    "not_predicated_off_thread_inst_executed": lambda c: c.lanes["all"],
    "FP Instructions(Single)": lambda c: _sum(c.lanes, "flop."),
    "Executed Control-Flow Instructions": lambda c: _sum(c.instructions, "branch"),
    "Load/Store Instructions": lambda c: _sum(c.lanes, "load.global", "load.local", "store"),
    "Integer Instructions": lambda c: _sum(c.lanes, "iop"),
}
"""From what is counted to what the counter of that name should show."""


def compared(data: Path) -> pd.DataFrame:
    """Return a row per case and counter: what is counted and what was measured."""
    maxwell = [name for name, gpu in GPUS.items() if gpu.capability == CAPABILITY]
    found: dict[tuple[str, int], dict[int, list[dict[str, Any]]]] = {}
    for row in counters(data).to_dict("records"):
        if row["gpu"] in maxwell and row["size"] <= LARGEST[row["kernel"] in _LINES]:
            sizes = found.setdefault((row["kernel"], int(row["block"])), {})
            sizes.setdefault(int(row["size"]), []).append(row)
    rows: list[dict[str, Any]] = []
    for (kernel, block), cases in sorted(found.items()):
        compiled = GpuKernel(entry(_name(kernel, block)).build(), CAPABILITY)
        sizes = sorted(cases)
        for size in sizes[:: max(1, len(sizes) // MOST_CASES)][-MOST_CASES:]:
            rows += _rows(compiled, kernel, size, block, cases[size])
    return pd.DataFrame(rows)


def _name(kernel: str, block: int) -> str:
    is_line = kernel in _LINES
    return f"{KERNELS[kernel]}/{block * block if is_line else block}x{1 if is_line else block}/f32"


def _rows(
    compiled: GpuKernel, kernel: str, size: int, block: int, cases: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    sub_groups = round(median(row["warps_launched"] for row in cases))
    items = block * block
    groups = sub_groups // -(-items // 32)
    try:
        counts = compiled.counts(sizes_of(kernel, size, items, groups))
    except CountingError as error:
        print(f"{KERNELS[kernel]}, groups of {block}x{block}, size {size}: {error}")
        return
    for counter, counted in COUNTERS.items():
        numbers = [float(row[counter]) for row in cases if row.get(counter) is not None]
        numbers = [number for number in numbers if not isnan(number)]
        if numbers and median(numbers):
            yield {
                "kernel": KERNELS[kernel],
                "group": f"{block}x{block}",
                "size": size,
                "counter": counter,
                "counted": counted(counts),
                "measured": round(median(numbers)),
            }


def summary(cases: pd.DataFrame) -> pd.DataFrame:
    """Return a row per kernel and counter."""
    ratios = cases.assign(ratio=cases["counted"] / cases["measured"])
    found = ratios.groupby(["kernel", "counter"])["ratio"].agg(["count", "min", "median", "max"])
    return found.round(3).reset_index().rename(columns={"count": "cases"})


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--output", type=Path, metavar="FILE", help="CSV to write")
    options = parser.parse_args()
    cases = compared(options.data)
    table = summary(cases)
    if options.output is not None:
        table.to_csv(options.output, index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
