"""What builds and counts: a pool of processes, or any other executor of `concurrent.futures`."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import warnings
from collections.abc import Generator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


@contextmanager
def pool_or(executor: Executor | None, workers: int | None = None) -> Generator[Executor]:
    """Give an executor, or a pool of processes for as long as it is needed."""
    if executor is not None:
        yield executor
        return
    with process_pool(workers) as pool:
        yield pool


def process_pool(workers: int | None = None) -> ProcessPoolExecutor:
    """Return a pool of fresh processes, one for each processor unless told otherwise.

    Fresh, since those forked from one that has drivers loaded may hang.
    """
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(["countperf.tuning.preload"])
    return ProcessPoolExecutor(workers or processors(), mp_context=context, initializer=_quiet)


def _quiet() -> None:
    """Keep what Loopy warns of thousands of variants from the terminal; leave Ctrl-C to others."""
    gc.freeze()  # what was imported stays
    gc.set_threshold(20_000, 20, 20)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def shares_memory(executor: Executor) -> bool:
    """Return whether tasks see the objects they are given, not copies: threads, and replays."""
    return isinstance(executor, ThreadPoolExecutor) or hasattr(executor, "wait_in_replay")


def processors() -> int:
    """Count the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
    return processors()
