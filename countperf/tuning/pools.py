"""What builds and counts: a pool of processes, or any other executor of `concurrent.futures`."""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import signal
import subprocess
import threading
import warnings
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing.context import BaseContext
from typing import Any, Protocol

_LONGEST_S = 30.0  # that processes are stopped: what waits for one of them goes on after it


class StandsStill(Protocol):
    """What an executor has (`standstill`) whose processes can stand still in the midst of tasks."""

    def reached(self) -> AbstractContextManager[None]:
        """Have all stand still."""
        ...


class Standstill:
    """Stops processes in the midst of what they do, each with the processes that it began.

    Parameters
    ----------
    processes : callable
        Returns the numbers of those that are to stop, each of which has to lead a group of its own.
        Where this process comes to its end meanwhile, so do they.
    """

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        self._processes = processes

    @contextmanager
    def reached(self) -> Generator[None]:
        """Have all stand still, but for no longer than half a minute."""
        stopped = tuple(self._processes())
        go_on = threading.Timer(_LONGEST_S, _signal, (stopped, "SIGCONT"))
        go_on.daemon = True
        _guard.add(stopped)
        try:
            _signal(stopped, "SIGSTOP")
            go_on.start()
            yield
        finally:
            go_on.cancel()
            _signal(stopped, "SIGCONT")
            _guard.remove(stopped)


def _signal(processes: Iterable[int], name: str) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # which ended, or has just begun
            os.killpg(process, getattr(signal, name))


_GUARD = """
while read -r line; do last=$line; done
for process in $last; do kill -s KILL -- "-$process"; done
"""


class _Guard:
    """Ends processes that stand still when this one was killed and can have none go on."""

    def __init__(self) -> None:
        self._stopped: set[int] = set()
        self._shell: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def add(self, processes: Iterable[int]) -> None:
        with self._lock:
            self._stopped.update(processes)
            self._tell()

    def remove(self, processes: Iterable[int]) -> None:
        with self._lock:
            self._stopped.difference_update(processes)
            self._tell()

    def _tell(self) -> None:
        if self._shell is None or self._shell.poll() is not None:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # so that what ends this process leaves it alone
            )
            atexit.register(_end, self._shell)
        assert self._shell.stdin is not None
        self._shell.stdin.write(" ".join(map(str, self._stopped)) + "\n")
        self._shell.stdin.flush()


def _end(shell: subprocess.Popen[str]) -> None:
    with shell, suppress(BrokenPipeError):
        assert shell.stdin is not None
        shell.stdin.close()


_guard = _Guard()


def can_stop() -> bool:
    """Tell whether processes of this system can be stopped and go on."""
    return hasattr(signal, "SIGSTOP") and hasattr(os, "killpg")


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
    standstill : Standstill or None
        What has them stand still; None where systems cannot.
    """

    def __init__(self, processes: int, context: BaseContext) -> None:
        self.standstill = Standstill(self.running) if can_stop() else None
        super().__init__(processes, mp_context=context, initializer=_begin)

    def running(self) -> list[int]:
        """Return the numbers of its processes."""
        there = dict(self._processes or {})  # none once it is shut down
        return [number for number, process in there.items() if process.is_alive()]

    def end(self) -> None:
        """End the processes, whatever they are doing."""
        there = list((self._processes or {}).values())
        self.shutdown(wait=False, cancel_futures=True)
        for process in there:
            process.kill()
        self.shutdown()


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


def _begin() -> None:
    """Keep what Loopy warns of thousands of variants from the terminal; leave Ctrl-C to others."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # so that it can be stopped with all that it begins
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
