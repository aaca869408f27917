"""Time to rank variants of the matrix product from source to order, and where it goes.

``python scripts/benchmark_ranking.py [POINTS] [REPETITIONS] [--weights WEIGHTS] [--space SPACE]``:
the whole with a pool of a process per processor, pool and imports included; then, in one process,
the processor time of a point, which other load on the machine leaves alone: with what variants
share, and step by step without.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from itertools import islice
from typing import Any

from countperf.counting.disk_caches import without_disk_caches
from countperf.counting.resources import scheduled
from countperf.models.library import load_weights
from countperf.properties.count_properties import count_kernel
from countperf.tuning import steps
from countperf.tuning.points import PredictionTask, predict_points
from countperf.tuning.pools import processors
from countperf.tuning.ranker import rank_points
from countperf.workflow.spaces import load_space


def timed(function: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[Any, float]:
    """Call a function, and return its result and the processor time that it took, s."""
    start = time.process_time()
    result = function(*arguments, **named)
    return result, time.process_time() - start


def shared_s(question: PredictionTask, points: int) -> float:
    """Return the processor time of a point when many are predicted in order, s."""
    space = question.found_space()
    choices = sorted(islice(space.choices(), points), key=space.index)
    _, seconds = timed(predict_points, question, choices)
    return seconds / points


def unshared_s(question: PredictionTask, points: int) -> dict[str, float]:
    """Return the mean processor time of each step for one point, nothing shared, s."""
    space = question.found_space()
    times: dict[str, list[float]] = {}
    for choice in islice(space.choices(), points):
        steps.forget()
        with without_disk_caches():
            unit, build_s = timed(space.build, **choice)
            (unit, _), schedule_s = timed(scheduled, unit)
            vector, count_s = timed(count_kernel, unit, view=question.weights.view, cache=False)
        _, predict_s = timed(question.weights.predict, vector, space.sizes, incomplete_ok=True)
        for name, seconds in (
            ("transformations", build_s),
            ("preprocessing and scheduling", schedule_s),
            ("counting", count_s),
            ("prediction", predict_s),
        ):
            times.setdefault(name, []).append(seconds)
    return {name: statistics.mean(values) for name, values in times.items()}


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    points = options.points
    question = PredictionTask(
        space=load_space(options.space),
        weights=load_weights(options.weights),
        sizes={},
        incomplete_ok=True,
    )
    totals: list[float] = []
    for _ in range(options.repetitions):
        start = time.perf_counter()
        ranking = rank_points(question, points=points)
        seconds = time.perf_counter() - start
        totals.append(seconds)
        print(f"{ranking.predicted} predicted, {ranking.refused} refused: {seconds:.1f} s")
    if totals:
        middle = statistics.median(totals)
        print(f"{points} points on {processors()} processors: {middle:.1f} s, median")
    print(f"  {shared_s(question, points) * 1e3:.1f} ms a point, processor time; unshared:")
    for name, seconds in unshared_s(question, max(1, points // 20)).items():
        print(f"  {name}: {seconds * 1e3:.1f} ms a point, processor time")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    command = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    command.add_argument("points", type=int, nargs="?", default=1000)
    command.add_argument("repetitions", type=int, nargs="?", default=5)
    command.add_argument("--weights", default="pocl-epyc-zen5", help="slug or path")
    command.add_argument("--space", default="matmul")
    main(command.parse_args())
