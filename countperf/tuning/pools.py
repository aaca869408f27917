"""Pools of processes that build and count, and other executors of `concurrent.futures`."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from countperf.harness.environment import available_cores
from countperf.tuning.workers import Call, Pool


@contextmanager
def pool_or(executor: Executor | None, workers: int | None = None) -> Generator[Executor]:
    """Give an executor, or a pool of processes for as long as it is needed."""
    if executor is not None:
        yield executor
        return
    with process_pool(workers) as pool:
        yield pool


def process_pool(workers: int | None = None, *, initial: Call | None = None) -> Pool:
    """Return a pool of fresh processes, one for each processor unless told otherwise.

    Fresh, since those forked from one that has drivers loaded, or threads, may hang.
    """
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(["countperf.interrupts", "countperf.tuning.preload"])
        os.environ["COUNTPERF_POOL_OWNER"] = str(os.getpid())  # see countperf.tuning.preload
    return Pool(workers or available_cores(), context, initial)


def shares_memory(executor: Executor) -> bool:
    """Return whether tasks see the objects they are given, not copies: threads, and replays."""
    return isinstance(executor, ThreadPoolExecutor) or hasattr(executor, "wait_in_replay")


def capacity(executor: Executor) -> int:
    """Return how many tasks an executor runs at a time; the processors of this machine if unknown.

    Of Dask's executor the threads of all workers now, of those of Python and MPI the workers.
    """
    found: Any = executor
    for name in ("_max_workers", "num_workers"):
        workers = getattr(found, name, None)
        if isinstance(workers, int) and workers > 0:
            return workers
    client = getattr(found, "_client", None)
    if client is not None and hasattr(client, "nthreads"):
        return max(1, sum(client.nthreads().values()))
    return available_cores()
