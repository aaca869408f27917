"""A pool of processes, each of which can be lost, or ended, without harm to the others.

Pools of the standard library are broken as a whole when one process ends, cannot end a task that
hangs, and run the caller's script again in each process, so that scripts need a guard. Here a task
whose process ends, or that takes longer than it may, fails alone, and another process takes the
place of its own; the caller's main module stays where it is.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import spawn
from multiprocessing.connection import Pipe, wait
from multiprocessing.context import BaseContext
from pathlib import Path
from types import TracebackType
from typing import Any

import cloudpickle

from countperf.harness.environment import available_cores
from countperf.tuning.exclusive_timing import STOPS, Standstill, can_stop
from countperf.tuning.serving import GUARD, kill_group, serve
from countperf.user_code import path_of_children

START_S = 60.0
"""After so long a process that does not get ready is given up, s."""

_NAME = "countperf-worker"
_SAFE_PATH = "PYTHONSAFEPATH"
_SLOWEST = 2.0  # factor by which limits are stretched where others use the processors
_SHORTEST_S = 0.02  # between two looks at what is late
_GRACE_S = 1.0  # for idle processes to end by themselves

_numbers = itertools.count()
_starting = threading.Lock()
_pools: weakref.WeakSet[Pool] = weakref.WeakSet()

Call = tuple[Callable[..., Any], tuple[Any, ...]]


class WorkerLostError(BrokenExecutor):
    """The process of a task has ended, or was ended."""

    def __init__(
        self,
        reason: str,
        parts: list[Any],
        *,
        is_late: bool = False,
        is_dropped: bool = False,
    ) -> None:
        super().__init__(reason)
        self.is_late = is_late
        self.reason = reason
        self.parts = parts
        self.is_dropped = is_dropped


@dataclass(eq=False)
class _Task:
    future: Future[Any]
    call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
    limit_s: float | None
    parts: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class _Worker:
    process: Any
    number: int
    connection: Any  # of a type that depends on the system
    began_s: float  # to start, or its task, or the next part of it
    stood_s: float = 0.0  # by then
    waited_s: float = 0.0  # for a processor, by then
    is_ready: bool = False
    task: _Task | None = None

    def begin(self) -> None:
        self.began_s = time.monotonic()
        self.stood_s = STOPS.stood_s(self.number)
        self.waited_s = _waited_s(self.number)

    def left_s(self) -> float | None:
        """Return what is left of the time that it may take for what it does, s."""
        if self.is_ready and self.task is None:
            return None
        limit_s = START_S
        if self.is_ready and self.task is not None:
            if self.task.limit_s is None:
                return None
            limit_s = self.task.limit_s
        stood_s = STOPS.stood_s(self.number) - self.stood_s
        spent_s = time.monotonic() - self.began_s - stood_s
        waited_s = _waited_s(self.number) - self.waited_s
        return limit_s - max(spent_s - waited_s, spent_s / _SLOWEST)


class Pool(Executor):
    """A pool of processes that can stand still, be lost, and be ended."""

    def __init__(self, processes: int, context: BaseContext, initial: Call | None = None) -> None:
        self._max_workers = processes  # as of the pools of the standard library
        self._context: Any = context
        self._initial = initial
        self.standstill = Standstill(self.running) if can_stop() else None
        self._lock = threading.Lock()
        self._queue: deque[_Task] = deque()
        self._dropped: set[Future[Any]] = set()
        self._workers: list[_Worker] = []
        self._woken, self._wake = Pipe(duplex=False)
        self._is_woken = False
        self._is_shut = self._is_ended = False
        self._manager: threading.Thread | None = None

    # --- what callers do

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a process do something, which may take as long as it likes."""
        return self._enqueue(_Task(Future(), (fn, args, kwargs), None))

    def submit_within(self, limit_s: float, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Have a process do something, and end the process where that takes too long."""
        return self._enqueue(_Task(Future(), (fn, args, {}), limit_s))

    def drop(self, futures: Iterable[Future[Any]]) -> None:
        """End what is under way of these, with the processes that do it."""
        with self._lock:
            self._dropped.update(futures)
        self._notify()

    def running(self) -> list[int]:
        """Return the numbers of its processes."""
        return [worker.number for worker in list(self._workers)]

    @property
    def is_starting(self) -> bool:
        """Whether a process is there that is not ready yet."""
        return any(not worker.is_ready for worker in list(self._workers))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks, and end the processes when all are done."""
        with self._lock:
            self._is_shut = True
            cancelled = list(self._queue) if cancel_futures else []
        for task in cancelled:
            task.future.cancel()
        self._notify()
        if wait and self._manager is not None:
            self._manager.join()

    def end(self) -> None:
        """End the processes, whatever they are doing."""
        self._is_ended = True
        for number in self.running():
            kill_group(number)
        self.shutdown(cancel_futures=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.shutdown()
        else:
            self.end()

    def _enqueue(self, task: _Task) -> Future[Any]:
        with self._lock:
            if self._is_shut:
                raise RuntimeError("no tasks are taken after the shutdown of a pool")
            self._queue.append(task)
            if self._manager is None:
                self._manager = threading.Thread(target=self._manage, name=_NAME, daemon=True)
                self._manager.start()
                _pools.add(self)
        self._notify()
        return task.future

    def _notify(self) -> None:
        with self._lock:
            if not self._is_woken:
                self._is_woken = True
                self._wake.send_bytes(b"!")

    # --- the thread that looks after the processes

    def _manage(self) -> None:
        try:
            while not self._is_ended:
                self._end_dropped()
                self._assign()
                if self._is_shut and not self._queue and not any(w.task for w in self._workers):
                    break
                self._await()
        finally:
            for worker in list(self._workers):
                with contextlib.suppress(OSError):
                    worker.connection.close()
            for worker in list(self._workers):
                if not self._is_ended:
                    worker.process.join(_GRACE_S)
                self._lose(worker, "its pool was ended", is_dropped=True)
            for task in self._queue:
                task.future.cancel()
            self._queue.clear()

    def _assign(self) -> None:
        """Give waiting tasks to idle processes, and have others started while there are fewer."""
        while self._queue and not self._is_ended:
            worker = next((w for w in self._workers if w.task is None), None)
            if worker is None and len(self._workers) >= self._max_workers:
                return
            task = self._queue.popleft()
            if not task.future.set_running_or_notify_cancel():
                continue
            try:
                worker = worker or self._started()
            except (OSError, EOFError) as error:
                task.future.set_exception(WorkerLostError(f"it did not start: {error}", []))
                continue
            worker.task = task
            if worker.is_ready:
                self._send(worker, task)

    def _started(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process: Any = self._context.Process(
            target=serve,
            args=(theirs, str(Path.cwd()), path_of_children()),
            name=f"{_NAME}-{next(_numbers)}",
        )
        with _starting, _without_callers_modules():
            process.start()
        theirs.close()
        worker = _Worker(process, process.pid, ours, time.monotonic())
        GUARD.add(worker.number)
        self._workers.append(worker)
        with contextlib.suppress(OSError):  # it has ended; that is seen soon
            ours.send_bytes(cloudpickle.dumps(self._initial))
        return worker

    def _send(self, worker: _Worker, task: _Task) -> None:
        try:
            content: bytes = cloudpickle.dumps(task.call, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001  objects may raise anything
            worker.task = None
            task.future.set_exception(error)
            return
        worker.begin()
        with contextlib.suppress(OSError):  # it has ended; that is seen soon
            worker.connection.send_bytes(content)

    def _await(self) -> None:
        """Wait until something happens, and see to it."""
        limits = [left_s for w in self._workers if (left_s := w.left_s()) is not None]
        sources: list[Any] = [self._woken]
        for worker in self._workers:
            sources += [worker.connection, worker.process.sentinel]
        there = set(wait(sources, max(_SHORTEST_S, min(limits)) if limits else None))
        if self._woken in there:
            with self._lock:
                self._woken.recv_bytes()
                self._is_woken = False
        for worker in list(self._workers):
            if worker.connection in there:
                self._receive(worker)
            elif worker.process.sentinel in there:
                self._lose(worker, _how_it_ended(worker))
            elif (left_s := worker.left_s()) is not None and left_s <= 0:
                limit_s = worker.task.limit_s if worker.is_ready and worker.task else START_S
                self._lose(worker, f"it took longer than {limit_s:.3g} s", is_late=True)

    def _receive(self, worker: _Worker) -> None:
        try:
            content = worker.connection.recv_bytes()
        except (EOFError, OSError):
            self._lose(worker, _how_it_ended(worker))
            return
        task = worker.task
        try:
            kind, value = pickle.loads(content)
        except Exception as error:  # noqa: BLE001  what comes back may raise anything
            kind, value = "error", error
        if kind == "ready":
            worker.is_ready = True
            if task is not None:
                self._send(worker, task)
        elif task is not None and kind == "part":
            task.parts.append(value)
            worker.begin()
        elif task is not None:
            worker.task = None
            self._finish(task, kind, value)

    def _finish(self, task: _Task, kind: str, value: Any) -> None:
        if kind == "parts":
            task.future.set_result(task.parts)
        elif kind == "done":
            task.future.set_result(value)
        elif kind == "exit":
            task.future.set_exception(WorkerLostError(value, task.parts))
        else:
            task.future.set_exception(value)

    def _end_dropped(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, set()
        for worker in list(self._workers):
            if worker.task is not None and worker.task.future in dropped:
                self._lose(worker, "its pool had no more time for it", is_dropped=True)
        for task in self._queue:
            if task.future in dropped:
                task.future.cancel()

    def _lose(self, worker: _Worker, reason: str, **kind: bool) -> None:
        """End a process, if it has not ended, and have its task fail."""
        self._workers.remove(worker)
        kill_group(worker.number)
        worker.process.kill()
        worker.process.join()
        with contextlib.suppress(OSError):
            worker.connection.close()
        GUARD.remove(worker.number)
        STOPS.forget(worker.number)
        if worker.task is not None:
            task, worker.task = worker.task, None
            task.future.set_exception(WorkerLostError(reason, task.parts, **kind))


def _waited_s(number: int) -> float:
    """Return for how long a process has waited for a processor so far, s; 0 if not known."""
    try:
        _, waited_ns, *_ = Path(f"/proc/{number}/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0.0
    return int(waited_ns) * 1e-9


def _how_it_ended(worker: _Worker) -> str:
    worker.process.join(_GRACE_S)
    status = worker.process.exitcode
    if status is None:
        return "it closed its connection"
    if status < 0:
        try:
            return f"it was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"it was ended by signal {-status}"
    return f"it ended with status {status}"


@contextlib.contextmanager
def _without_callers_modules() -> Generator[None]:
    """Have processes of ours run neither the caller's main module nor what lies beside it.

    Nothing of it is needed there: what a search space refers to in it is sent with the space.
    """
    original, safe = spawn.get_preparation_data, os.environ.get(_SAFE_PATH)

    def prepared(name: str) -> dict[str, Any]:
        preparation: dict[str, Any] = original(name)
        if name.startswith(_NAME):
            preparation.pop("init_main_from_name", None)
            preparation.pop("init_main_from_path", None)
        return {**preparation, "sys_path": path_of_children()}

    spawn.get_preparation_data = prepared
    os.environ[_SAFE_PATH] = "1"  # of the fork server, whose first imports are on its own path
    try:
        yield
    finally:
        spawn.get_preparation_data = original
        if safe is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = safe


@atexit.register
def _end_all() -> None:
    """End pools that nobody ended, before `multiprocessing` waits for their processes."""
    if multiprocessing.parent_process() is None:
        for pool in list(_pools):
            pool.end()


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
        os.environ["COUNTPERF_POOL_OWNER"] = str(os.getpid())  # see countperf.interrupts
    return Pool(workers or available_cores(), context, initial)


class Remote:
    """An object that lives in a process of its own, made there from arguments.

    A process that is lost is replaced when something is called again, with an object of its own.
    """

    def __init__(self, make: Callable[..., Any], *given: Any) -> None:
        self._made = make, given
        self.pool = process_pool(1, initial=(_made, self._made))

    def open(self) -> Future[Any]:
        """Have the process make the object, while the caller does something else."""
        return self.pool.submit(_called, self._made, "__class__")

    def call(self, limit_s: float, method: str, *given: Any) -> Future[Any]:
        """Call a method of the object, which may take so long, s."""
        return self.pool.submit_within(limit_s, _called, self._made, method, *given)


@lru_cache(maxsize=1)
def _made(make: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    return make(*given)


def _called(made: Call, method: str, *given: Any) -> Any:
    return getattr(_made(*made), method)(*given)


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
