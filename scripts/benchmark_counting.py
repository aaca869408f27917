"""Counting, evaluating and remembering, timed beside loopy.statistics and Loopy's content hash.

Run it in an environment that has islpy-barvinok (scripts/benchmark_counting makes one): without it
loopy.statistics does not count exactly. Everything is CPU time of one core, and the two sides of a
ratio take turns in one run. Preprocessing and scheduling are timed apart. Each repetition works on
a renamed copy of the kernel, so that nothing that Loopy or countperf keeps per kernel is reused;
"first" also forgets the shapes that countperf has counted in the process, "later" does not.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import islpy
import loopy as lp
import numpy as np
from loopy.tools import LoopyKeyBuilder

from countperf.properties import cache
from countperf.properties.count_properties import count_kernel
from countperf.symbolic.memory import forget_counts
from generated_kernels import generated_kernel
from measurement_kernels.catalog import entry

LINEARITY = (125, 250, 500, 1000)
POINTS = 200_000


def renamed(t_unit: Any, number: int) -> Any:
    """Return a copy of a translation unit whose kernel has another name."""
    name = f"repetition_{number}"
    return lp.rename_callable(t_unit, t_unit.default_entrypoint.name, name).with_entrypoints(name)


def scheduled(t_unit: Any) -> Any:
    """Schedule a preprocessed kernel."""
    kernel = lp.get_one_linearized_kernel(t_unit.default_entrypoint, t_unit.callables_table)
    return t_unit.with_kernel(kernel)


def loopy_statistics(t_unit: Any) -> None:
    """Count operations and memory accesses, as loopy.statistics does."""
    lp.get_op_map(t_unit, subgroup_size=32, count_redundant_work=True)
    lp.get_mem_access_map(t_unit, subgroup_size=32, count_redundant_work=True)


def ours(t_unit: Any) -> None:
    """Count all properties anew."""
    count_kernel(t_unit, cache=False)


def ours_first(t_unit: Any) -> None:
    """Count all properties as if this were the first kernel of the process; see `PREPARATIONS`."""
    ours(t_unit)


PREPARATIONS: dict[Callable[[Any], Any], Callable[[], None]] = {ours_first: forget_counts}
"""What is done before a call, and not timed."""


def times_in_turn(
    functions: Sequence[tuple[Callable[[Any], Any], Sequence[Any]]],
) -> list[float]:
    """Return the median CPU time of each function over its arguments, s; they take turns."""
    times: list[list[float]] = [[] for _ in functions]
    for turn in zip(*(arguments for _, arguments in functions), strict=True):
        for (function, _), argument, taken in zip(functions, turn, times, strict=True):
            PREPARATIONS.get(function, lambda: None)()
            start = time.process_time()
            function(argument)
            taken.append(time.process_time() - start)
    return [statistics.median(taken) for taken in times]


def time_each(function: Callable[[], Any], repetitions: int) -> float:
    """Return the median CPU time of a call, s."""
    return times_in_turn([(lambda _: function(), range(repetitions))])[0]


def compare(label: str, t_unit: Any, repetitions: int) -> None:
    """Print preparation and counting of one kernel on both sides."""
    copies = [renamed(t_unit, number) for number in range(repetitions + 1)]
    start = time.process_time()
    preprocessed = [lp.preprocess_program(copy) for copy in copies]
    middle = time.process_time()
    prepared = [scheduled(t_unit) for t_unit in preprocessed]
    end = time.process_time()
    for function in (ours, loopy_statistics)[: 2 if repetitions > 5 else 1]:  # imports and the like
        function((prepared if function is ours else preprocessed)[-1])
    first, later, theirs = times_in_turn(
        [
            (ours_first, prepared[:repetitions]),
            (ours, copies_of(prepared[:repetitions])),
            (loopy_statistics, preprocessed[:repetitions]),
        ]
    )
    shown = ((middle - start) / len(copies), (end - middle) / len(copies), first, later, theirs)
    print(
        f"{label:24}"
        + "".join(f"{value * 1e3:10.2f}" for value in shown)
        + f"{first / theirs:8.3f}{later / theirs:8.3f}"
    )


def linearity() -> None:
    """Print the time per instruction for growing kernels."""
    for instructions in LINEARITY:
        prepared = scheduled(lp.preprocess_program(generated_kernel(instructions)))
        (taken,) = times_in_turn([(ours_first, copies_of([prepared] * 3))])
        print(
            f"{instructions:6} instructions {taken:8.3f} s "
            f"{taken / instructions * 1e3:8.3f} ms each"
        )


def evaluation(t_unit: Any) -> None:
    """Print how fast the vector of a kernel is evaluated."""
    vector = count_kernel(t_unit, cache=False)
    generator = np.random.default_rng(0)
    sizes = {name: 16 * generator.integers(1, 200, POINTS) for name in vector.parameters}
    one = dict.fromkeys(vector.parameters, 160)
    operations = lp.get_op_map(t_unit, subgroup_size=32, count_redundant_work=True)
    batch = time_each(lambda: vector.evaluate(sizes), 9)
    scalar = time_each(lambda: [vector.evaluate(one) for _ in range(1000)], 9) / 1000
    theirs = time_each(lambda: [operations.eval_and_sum(one) for _ in range(100)], 9) / 100
    print(f"batch of {POINTS} points       {POINTS / batch / 1e6:8.2f} million vectors/s")
    print(f"one point                    {scalar * 1e6:8.2f} us for the vector")
    print(f"loopy's eval_and_sum         {theirs * 1e6:8.2f} us for the operations")


def remembering(t_unit: Any, label: str, repetitions: int = 15) -> None:
    """Print what finding a count costs beside Loopy's content hash of the kernel."""
    with tempfile.TemporaryDirectory() as folder:

        def copies() -> list[Any]:
            return [renamed(t_unit, number) for number in range(repetitions)]

        def from_disk(copy: Any) -> None:
            cache.forget()
            count_kernel(copy, cache=folder)

        PREPARATIONS[from_disk] = forget_counts
        prepared = [scheduled(lp.preprocess_program(copy)) for copy in copies()]
        counting, storing = times_in_turn(
            [
                (ours, prepared),
                (lambda copy: count_kernel(copy, cache=folder), copies_of(prepared)),
            ]
        )
        for copy in copies():
            count_kernel(copy, cache=folder)
        size = Path(folder, "counts.sqlite3").stat().st_size
        hashing, disk = times_in_turn([(LoopyKeyBuilder(), copies()), (from_disk, copies())])
        for copy in copies():
            count_kernel(copy, cache=folder)
        hashing_again, memory = times_in_turn(
            [
                (LoopyKeyBuilder(), copies()),
                (lambda copy: count_kernel(copy, cache=folder), copies()),
            ]
        )
    print(
        f"{label}: counting {counting * 1e3:.2f} ms, with hashing and storing "
        f"{storing * 1e3:.2f} ms, {size / repetitions / 2:.0f} bytes an entry"
    )
    for name, taken, alone in (("disk", disk, hashing), ("memory", memory, hashing_again)):
        print(
            f"  hit on {name:8} {taken * 1e3:8.2f} ms = content hash {alone * 1e3:8.2f} ms "
            f"+ {(taken - alone) * 1e3:6.2f} ms"
        )


def copies_of(t_units: Sequence[Any]) -> list[Any]:
    """Return copies that have no content hash yet."""
    return [t_unit.with_kernel(t_unit.default_entrypoint.copy()) for t_unit in t_units]


def main() -> None:
    """Print all figures."""
    os.environ[cache.DIRECTORY_VARIABLE] = ""
    sys.setrecursionlimit(20_000)  # Loopy's scheduler, for long kernels
    exact = hasattr(islpy.Set, "card")
    print(f"islpy {islpy.version.VERSION_TEXT}, barvinok: {'yes' if exact else 'no'}")
    print(f"CPU time in ms{'':10}{'preproc.':>10}{'schedule':>10}", end="")
    print(f"{'first':>10}{'later':>10}{'loopy':>10}{'first:l.':>8}{'later:l.':>8}")
    matmul = entry("matmul-tiled/square/16x16").build()
    compare("tiled matmul", matmul, 25)
    compare("160 instructions", generated_kernel(160), 5)
    compare("1000 instructions", generated_kernel(1000), 1)
    linearity()
    evaluation(matmul)
    remembering(matmul, "tiled matmul")
    remembering(generated_kernel(160), "160 instructions", 5)


if __name__ == "__main__":
    main()
