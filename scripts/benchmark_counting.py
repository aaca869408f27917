"""Time to count the 16x16 tiled matrix multiplication: countperf against loopy.statistics.

Run it in an environment that has islpy-barvinok (scripts/benchmark_counting makes one): without it
loopy.statistics does not count exactly. Preprocessing and scheduling are timed apart. Each
repetition works on a renamed copy of the kernel, so that nothing memoized is reused.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import islpy
import loopy as lp

from countperf.properties.count_properties import count_kernel
from measurement_kernels.catalog import entry

REPETITIONS = 15


def renamed(t_unit: Any, number: int) -> Any:
    """Return a copy of a translation unit whose kernel has another name."""
    return lp.rename_callable(
        t_unit, t_unit.default_entrypoint.name, f"repetition_{number}"
    ).with_entrypoints(f"repetition_{number}")


def scheduled(t_unit: Any) -> Any:
    """Preprocess and schedule."""
    t_unit = lp.preprocess_program(t_unit)
    kernel = lp.get_one_linearized_kernel(t_unit.default_entrypoint, t_unit.callables_table)
    return t_unit.with_kernel(kernel)


def loopy_statistics(t_unit: Any) -> None:
    """Count operations and memory accesses, as loopy.statistics does."""
    lp.get_op_map(t_unit, subgroup_size=32, count_redundant_work=True)
    lp.get_mem_access_map(t_unit, subgroup_size=32, count_redundant_work=True)


def median_time(function: Callable[[Any], Any], arguments: list[Any]) -> float:
    """Return the median time of a function over its arguments, s."""
    times: list[float] = []
    for argument in arguments:
        start = time.perf_counter()
        function(argument)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Print the times and their ratio."""
    exact = hasattr(islpy.Set, "card")
    t_unit = entry("matmul-tiled/square/16x16").build()
    copies = [renamed(t_unit, number) for number in range(REPETITIONS)]
    preparation = median_time(scheduled, copies)
    prepared = [scheduled(copy) for copy in copies]
    preprocessed = [lp.preprocess_program(copy) for copy in copies]
    count_kernel(prepared[0])
    loopy_statistics(preprocessed[0])
    ours = median_time(count_kernel, prepared)
    theirs = median_time(loopy_statistics, preprocessed)
    print(f"islpy {islpy.version.VERSION_TEXT}, barvinok: {'yes' if exact else 'no'}")
    print(f"preprocessing and scheduling       {preparation * 1e3:8.2f} ms")
    print(f"countperf, all properties          {ours * 1e3:8.2f} ms")
    print(f"loopy get_op_map + get_mem_access  {theirs * 1e3:8.2f} ms")
    print(f"ratio countperf : loopy            {ours / theirs:8.3f}   (aim: at most 0.5)")


if __name__ == "__main__":
    main()
