"""Compare counts with the hardware counters of an RTX 2080 Ti that the toolkit KTT published.

``python scripts/compare_ktt_counters.py --data DIR [--exceptions]`` prints a table with a row for
each kernel and counter: configurations, those that agree within 1 % and exactly, and the smallest
and largest ratio of counted over measured. DIR holds ``ktt/`` with
``hub_KTConvolutionOutput_2080Ti.json.gz`` and ``coulomb_2080_full_search_space.json.gz``.

Of the convolution those configurations are compared whose tiles divide the image: at a border the
published kernel guards whole tiles by conditions that depend on macros. Its parameter ``PADDING``
changes nothing: the kernel asks for a macro of another name, and its local memory shows it.

Of the Coulomb summation those with an array for each coordinate are compared (``USE_SOA``). The
point-in-polygon kernel is not: what it executes depends on the points, which are random and not
published, and its counters have the compiler's expansion of divisions in them.

Sources: github.com/AutoTuningAssociation/benchmark_hub, commit 8eeb99e7, and
github.com/HiPerCoRe/KTT, commit 931c4157, both MIT.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from compare_gpu_counters import WITHIN, summary
from convolution_features import IMAGE, LANES, SECTOR, Choice, count_group, groups, is_whole
from countperf.counting.access_analysis import AccessAnalysis
from countperf.counting.analysis import analyze_kernel
from countperf.counting.keys import MemoryAccess, Operation
from countperf.counting.programs import kernel_programs
from countperf.counting.transactions import transactions
from measurement_kernels.published.convolution import build_convolution
from measurement_kernels.published.coulomb import coulomb_entry

CONVOLUTION = "ktt/hub_KTConvolutionOutput_2080Ti.json.gz"
COULOMB = "ktt/coulomb_2080_full_search_space.json.gz"
ATOMS, GRID = 64, 256
_SPILLED = "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"


def results(path: Path) -> Iterator[tuple[dict[str, int], dict[str, float], dict[str, int]]]:
    """Yield configuration, counters and compiler's figures of each configuration that ran."""
    with gzip.open(path, "rt") as file:
        content = json.load(file)
    for result in content["Results"]:
        if result["Status"] != "Ok":
            continue
        (computed,) = result["ComputationResults"]
        counters = computed.get("ProfilingData", {}).get("Counters", [])
        if counters:
            yield (
                {each["Name"]: int(each["Value"]) for each in result["Configuration"]},
                {each["Name"]: float(each["Value"]) for each in counters},
                computed["CompilationData"],
            )


_FP32 = "smsp__sass_thread_inst_executed_op_fp32_pred_on.sum"
_MEMORY = "smsp__sass_thread_inst_executed_op_memory_pred_on.sum"
_GLOBAL_LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
_LOCAL_LOADS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
_LOCAL_STORES = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
_STORED = "lts__t_sectors_op_write.sum"

MEANINGS = {
    _FP32: "f32 instructions of work items",
    _MEMORY: "loads and stores of work items",
    _GLOBAL_LOADS: "global loads of sub-groups",
    _LOCAL_LOADS: "passes of local loads over the banks",
    _LOCAL_STORES: "passes of local stores over the banks",
    _STORED: "sectors of 32 B stored to the second-level cache",
}
"""Counters, and what is counted for each."""


def _stored_sectors(accesses: Iterable[AccessAnalysis], sizes: Mapping[str, int]) -> int:
    return sum(
        transactions(each, sizes, line_bytes=SECTOR, sub_group_size=LANES).transactions
        for each in accesses
        if (each.access.address_space, each.access.direction) == ("global", "store")
    )


@cache
def convolution(choice: Choice) -> dict[str, int]:
    """Count a convolution whose tiles divide the image."""
    counts = count_group(choice)
    wide, high, columns, rows, padding = choice
    unit = build_convolution(wide, high, columns, rows, use_padding=padding)
    stored = _stored_sectors(analyze_kernel(unit).accesses, {"h": high * rows, "w": IMAGE})
    found = {
        _FP32: counts.fused,
        _MEMORY: 2 * counts.tile_elements + counts.local_load_elements + counts.pixels,
        _GLOBAL_LOADS: counts.loads,
        _LOCAL_LOADS: counts.local_load_passes,
        _LOCAL_STORES: counts.local_store_passes,
    }
    number = groups(choice)
    in_rows = {_STORED: IMAGE // (high * rows) * stored}
    return {**{name: number * value for name, value in found.items()}, **in_rows}


@cache
def coulomb(group: tuple[int, int], iterations: int, unrolled: bool) -> dict[str, int]:
    """Count a Coulomb summation; ``unrolled``: over all points of an item, without a last step."""
    unit = coulomb_entry(group, iterations).build()
    sizes = {"n": GRID, "atoms": ATOMS}
    (program,) = kernel_programs(unit)
    accesses = analyze_kernel(unit).accesses

    def total(lanes: int, kind: type, chosen: Callable[[Any], bool]) -> int:
        return sum(
            int(number.evaluate(sizes))
            for key, number in program.instruction_totals(lanes).items()
            if isinstance(key, kind) and chosen(key)
        )

    steps = GRID**3 // iterations * ATOMS if unrolled else 0
    return {
        _FP32: total(1, Operation, lambda key: key.type_name == "f32" and key.kind != "convert")
        - steps,
        _MEMORY: total(1, MemoryAccess, lambda key: key.address_space == "global"),
        _GLOBAL_LOADS: total(
            LANES,
            MemoryAccess,
            lambda key: (key.address_space, key.direction) == ("global", "load"),
        ),
        _STORED: _stored_sectors(accesses, sizes),
    }


def compared(data: Path, every: int = 1) -> pd.DataFrame:
    """Compare configurations and counters.

    Parameters
    ----------
    data : Path
        Folder with ``ktt/``.
    every : int, optional
        Every n-th configuration of the convolution only.

    Returns
    -------
    DataFrame
        ``kernel``, ``configuration``, ``counter``, ``counted``, ``measured``, ``why`` (a reason
        for a difference that the compiler gives).
    """
    rows: list[dict[str, object]] = []

    def add(
        kernel: str,
        choice: Mapping[str, int],
        found: Mapping[str, int],
        why: str,
        counters: Mapping[str, float],
    ) -> None:
        label = ",".join(f"{name}={value}" for name, value in choice.items())
        rows.extend(
            {
                "kernel": kernel,
                "configuration": label,
                "counter": MEANINGS[name],
                "counted": number,
                "measured": counters[name],
                "why": why,
            }
            for name, number in found.items()
        )

    for choice, counters, compiled in islice(results(data / CONVOLUTION), 0, None, every):
        wide, high = choice["BLOCK_SIZE_X"], choice["BLOCK_SIZE_Y"]
        columns, lines = choice["TILE_SIZE_X"], choice["TILE_SIZE_Y"]
        variant = wide, high, columns, lines, 0
        if not is_whole(variant):
            continue
        spills = compiled["PrivateMemorySize"] > 0 or counters[_SPILLED] > 0
        found = convolution(variant)
        add("convolution", choice, found, "spills registers" if spills else "", counters)
    for choice, counters, compiled in results(data / COULOMB):
        if not choice["USE_SOA"]:
            continue
        iterations = choice["Z_ITERATIONS"]
        group = choice["WORK_GROUP_SIZE_X"], choice["WORK_GROUP_SIZE_Y"]
        # left to itself, the compiler unrolls all; the last step along z is then left out
        found = coulomb(group, iterations, choice["INNER_UNROLL_FACTOR"] == 0)
        spills = compiled["PrivateMemorySize"] > 0 or counters[_SPILLED] > 0
        add("coulomb", choice, found, "sums in memory" if spills else "", counters)
    return pd.DataFrame(rows)


def main() -> None:
    """Compare, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with ktt/ in it")
    parser.add_argument("--every", type=int, default=1, help="every n-th convolution only")
    parser.add_argument("--exceptions", action="store_true", help="list the cases beyond 1 %%")
    options = parser.parse_args()
    cases = compared(options.data, options.every)
    with pd.option_context("display.width", 250, "display.max_rows", None, "max_colwidth", None):
        # apart for what the compiler explains
        print(summary(cases, by=("kernel", "counter", "why")).to_string())
        if options.exceptions:
            ratio = cases["counted"] / cases["measured"]
            far = cases[((ratio - 1).abs() > WITHIN) & (cases["why"] == "")]
            print(far.assign(ratio=ratio).to_string())


if __name__ == "__main__":
    main()
