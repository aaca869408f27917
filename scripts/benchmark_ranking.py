"""Time to rank variants of the matrix product from source to order, and where it goes.

``python scripts/benchmark_ranking.py [POINTS] [REPETITIONS]``: the whole with a pool of a process
per processor, pool and imports included; then, in one process, the processor time of a point, which
other load on the machine leaves alone: with what variants share, and step by step without.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable
from itertools import islice
from typing import Any

from countperf.counting.resources import scheduled, without_disk_caches
from countperf.models.library import load_weights
from countperf.properties.count_properties import count_kernel
from countperf.tuning import steps
from countperf.tuning.points import Question, load_space, predict_points
from countperf.tuning.pools import processors
from countperf.tuning.ranker import rank_points

WEIGHTS = "pocl-epyc-zen5"


def timed(function: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[Any, float]:
    """Call a function, and return its result and the processor time that it took, s."""
    start = time.process_time()
    result = function(*arguments, **named)
    return result, time.process_time() - start


def shared_s(question: Question, points: int) -> float:
    """Return the processor time of a point when many are predicted in order, s."""
    space = load_space("matmul")
    choices = sorted(islice(space.choices(), points), key=space.index)
    _, seconds = timed(predict_points, question, choices)
    return seconds / points


def unshared_s(question: Question, points: int) -> dict[str, float]:
    """Return the mean processor time of each step for one point, nothing shared, s."""
    space = load_space("matmul")
    times: dict[str, list[float]] = {}
    for choice in islice(space.choices(), points):
        steps.forget()
        with without_disk_caches():
            unit, build_s = timed(space.build, **choice)
            (unit, _), schedule_s = timed(scheduled, unit)
            vector, count_s = timed(count_kernel, unit, cache=False)
        _, predict_s = timed(question.weights.predict, vector, space.sizes, incomplete_ok=True)
        for name, seconds in (
            ("transformations", build_s),
            ("preprocessing and scheduling", schedule_s),
            ("counting", count_s),
            ("prediction", predict_s),
        ):
            times.setdefault(name, []).append(seconds)
    return {name: statistics.mean(values) for name, values in times.items()}


def main(points: int, repetitions: int) -> None:
    """Measure and print."""
    question = Question(space="matmul", weights=load_weights(WEIGHTS), sizes={}, incomplete_ok=True)
    totals: list[float] = []
    for _ in range(repetitions):
        start = time.perf_counter()
        ranking = rank_points(question, points=points)
        seconds = time.perf_counter() - start
        totals.append(seconds)
        print(f"{ranking.predicted} predicted, {ranking.refused} refused: {seconds:.1f} s")
    print(
        f"{points} points on {processors()} processors: {statistics.median(totals):.1f} s, median"
    )
    print(f"  {shared_s(question, points) * 1e3:.1f} ms a point, processor time; unshared:")
    for name, seconds in unshared_s(question, max(1, points // 20)).items():
        print(f"  {name}: {seconds * 1e3:.1f} ms a point, processor time")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [1000, 5][len(given) :]))
