"""What builds and counts: a pool of processes, or any other executor of `concurrent.futures`."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Generator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.context import BaseContext
from multiprocessing.synchronize import Lock, Semaphore
from typing import Any, Protocol

_PATIENCE_S = 0.5  # between looks whether what is waited for can still come


class StandsStill(Protocol):
    """What an executor has (`standstill`) whose processes can stand still in the midst of tasks."""

    def reached(self, is_idle: Callable[[], bool]) -> AbstractContextManager[None]:
        """Have all stand still; see `Standstill.reached`."""
        ...


class Standstill:
    """Lets the processes of a pool stand still between two steps of their tasks.

    Tasks that are not to be disturbed by others, nor to disturb them, need not end for it.

    Parameters
    ----------
    context : multiprocessing.context.BaseContext
        Of the processes.
    processes : int
        How many there are.
    """

    def __init__(self, context: BaseContext, processes: int) -> None:
        self._processes = processes
        self._turn = context.Lock()  # whoever wants to move takes it for a moment
        self._free = context.Semaphore(processes)

    @contextmanager
    def moving(self) -> Generator[None]:
        """Do a step of a task, in a process of the pool; waits while all are to stand still."""
        with self._turn:
            self._free.acquire()
        try:
            yield
        finally:
            self._free.release()

    @contextmanager
    def reached(self, is_idle: Callable[[], bool]) -> Generator[None]:
        """Wait until all processes stand still, and have them do so.

        Parameters
        ----------
        is_idle : callable
            Whether the pool has nothing to do, so that nothing is to be waited for: a process that
            came to an end in the midst of a step would not be seen to stand still.
        """
        has_turn = _taken(self._turn, is_idle)
        standing = 0
        try:
            while has_turn and standing < self._processes and _taken(self._free, is_idle):
                standing += 1
            yield
        finally:
            for _ in range(standing):
                self._free.release()
            if has_turn:
                self._turn.release()


def _taken(what: Lock | Semaphore, is_idle: Callable[[], bool]) -> bool:
    while not what.acquire(timeout=_PATIENCE_S):
        if is_idle():
            return False
    return True


class Pool(ProcessPoolExecutor):
    """A pool of processes that can stand still.

    Parameters
    ----------
    processes : int
        How many.
    context : multiprocessing.context.BaseContext
        How they are started.

    Attributes
    ----------
    standstill : Standstill
        What has them stand still.
    """

    def __init__(self, processes: int, context: BaseContext) -> None:
        self.standstill = Standstill(context, processes)
        super().__init__(
            processes, mp_context=context, initializer=_begin, initargs=(self.standstill,)
        )


_standstill: Standstill | None = None  # of the pool that this process belongs to


def moving() -> AbstractContextManager[None]:
    """Do a step of a task, wherever it is; a process of a `Pool` waits if it is to stand still."""
    return nullcontext() if _standstill is None else _standstill.moving()


@contextmanager
def pool_or(executor: Executor | None, workers: int | None = None) -> Generator[Executor]:
    """Give an executor, or a pool of processes for as long as it is needed."""
    if executor is not None:
        yield executor
        return
    with process_pool(workers) as pool:
        yield pool


def process_pool(workers: int | None = None) -> Pool:
    """Return a pool of fresh processes, one for each processor unless told otherwise.

    Fresh, since those forked from one that has drivers loaded may hang.
    """
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(["countperf.tuning.preload"])
    return Pool(workers or processors(), context)


def _begin(standstill: Standstill) -> None:
    """Keep what Loopy warns of thousands of variants from the terminal; leave Ctrl-C to others."""
    global _standstill
    _standstill = standstill
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
