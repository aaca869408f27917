"""Ranks and tunes with an executor of Dask or MPI; ``python -m tests.tuning.with_executor dask``.

A program of its own, since both start processes that import the main module again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from countperf.tuning import SearchSpace
from countperf.tuning.points import PredictionTask
from countperf.tuning.ranker import rank_points
from countperf.tuning.result import Budget
from countperf.tuning.search import tune_space
from tests.tuning.spaces import DOUBLE, build_double
from tests.tuning.test_search import WEIGHTS, scripted


def build_and_tell(group: int, each: int, fetch: bool) -> Any:
    """Refuse one variant with the process that was asked to build it."""
    if group == 16 and each == 1:
        raise ValueError(f"process {os.getpid()}")
    return build_double(group, each, fetch)


SPACE = SearchSpace(
    name="double",
    parameters=DOUBLE.parameters,
    build=build_and_tell,
    sizes=DOUBLE.sizes,
    make_arguments=DOUBLE.make_arguments,
    reference=DOUBLE.reference,
)


@contextmanager
def dask_executor() -> Generator[Executor]:
    distributed: Any = import_module("dask.distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


@contextmanager
def mpi_executor() -> Generator[Executor]:
    futures: Any = import_module("mpi4py.futures")
    with futures.MPIPoolExecutor() as executor:
        yield executor


def main(name: str) -> None:
    question = PredictionTask(space=SPACE, weights=WEIGHTS, sizes={})
    with {"dask": dask_executor, "mpi": mpi_executor}[name]() as executor:
        ranking = rank_points(question, executor=executor)
        tuned = tune_space(question, scripted(), Budget(measurements=4), executor=executor)
    refused = [e.reason for each in ranking.refusals.values() for e in each.examples]
    found = {
        "order": [[SPACE.label(p.choice), p.time_s] for p in ranking.best],
        "refused": ranking.refused,
        "elsewhere": any("process" in r for r in refused)
        and f"ValueError: process {os.getpid()}" not in refused,
        "winner": SPACE.label(tuned.winner.choice),
    }
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
