#!/usr/bin/env python3
"""Show that ranking a large space takes bounded memory.

    scripts/benchmark_large_space.py [POINTS ...]

The space has 10^6 points, of which the builder refuses all but one in 500; the others are kernels
of their own that are built, counted and predicted. For each number of points a process of its own
ranks so many, scattered over the space, with two processes that predict. Printed are the peak
resident memory of that process and of the largest one that predicts, and the CPU time of all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import psutil

from countperf.models.library import load_weights
from countperf.tuning.points import PredictionTask
from countperf.tuning.pools import pool_or
from countperf.tuning.ranker import rank_points
from countperf.tuning.space import SearchSpace

WEIGHTS = "pocl-epyc-zen5"
POINTS = (1_000, 10_000, 100_000, 1_000_000)
_ONE_IN = 500


def build(rows: int, columns: int, variant: int) -> Any:
    """Build a copy in tiles, or refuse the point."""
    number = (rows * 100 + columns) * 100 + variant
    if number * 7919 % _ONE_IN:
        raise ValueError("this point is none of the kernels")
    unit = lp.make_kernel(
        "{ [i, j] : 0 <= i, j < n }",
        "b[i, j] = 2 * a[i, j]",
        [lp.GlobalArg("a, b", np.float32, shape="n, n"), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        name=f"copy_{number}",
        lang_version=(2018, 2),
    )
    unit = lp.split_iname(unit, "i", rows + 1, outer_tag="g.1")
    return lp.split_iname(unit, "j", columns + 1, outer_tag="g.0", inner_tag="l.0")


SPACE = SearchSpace(
    name="large",
    parameters={"rows": range(100), "columns": range(100), "variant": range(100)},
    build=build,
    sizes={"n": 2048},
)


def measure(points: int) -> None:
    """Rank some points and print what it took."""
    question = PredictionTask(
        space=SPACE, weights=load_weights(WEIGHTS), sizes={}, incomplete_ok=True
    )
    with pool_or(None, 2) as pool:
        ranking = rank_points(question, executor=pool, keep=20, points=points)
        others = psutil.Process().children(recursive=True)
        peaks = [_peak_mib(each.pid) for each in others]
        cpu_s = sum(sum(each.cpu_times()[:2]) for each in others)
    own = psutil.Process()
    found = {
        "points": ranking.predicted + ranking.refused,
        "predicted": ranking.predicted,
        "peak_mib": _peak_mib(own.pid),
        "peak_worker_mib": max(peaks),
        "cpu_s": round(cpu_s + sum(own.cpu_times()[:2]), 1),
    }
    print(json.dumps(found), flush=True)


def _peak_mib(process: int) -> int:
    """Return the peak resident memory of a process, MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    """Rank as many points as asked for, each number in a process of its own."""
    if sys.argv[1:2] == ["--one"]:
        measure(int(sys.argv[2]))
        return
    for points in map(int, sys.argv[1:] or POINTS):
        subprocess.run([sys.executable, __file__, "--one", str(points)], check=True)


if __name__ == "__main__":
    main()
