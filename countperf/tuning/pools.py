"""Processes that do tasks, each of which can be lost, or ended, without harm to the others.

Pebble's pool ends a task that takes too long, with its process, and replaces a process that has
ended. What is ours: functions of scripts and notebooks go along (cloudpickle), the caller's main
module is not run again, and processes end with the caller, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import BrokenExecutor, Executor, Future
from functools import lru_cache, partial
from multiprocessing import spawn
from types import TracebackType
from typing import Any

import cloudpickle
from pebble import ProcessExpired, ProcessPool

from countperf.harness.environment import available_cores
from countperf.user_code import path_of_children

if sys.platform == "win32":
    from multiprocessing.context import SpawnContext as SystemContext
    from multiprocessing.context import SpawnProcess as SystemProcess
else:
    from multiprocessing import forkserver
    from multiprocessing.context import ForkServerContext as SystemContext
    from multiprocessing.context import ForkServerProcess as SystemProcess

START_S = 60.0
"""After so long a process that does not get ready is given up, s."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SAFE_PATH = "PYTHONSAFEPATH"
_starting = threading.Lock()


class WorkerLostError(BrokenExecutor):
    """The process of a task has ended, or was ended."""

    def __init__(self, reason: str, *, is_late: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_late = is_late


class _Task(Future[Any]):
    """Outcome of a task of Pebble's, unpacked; it cannot be cancelled, but dropped."""

    def __init__(self, limit_s: float | None) -> None:
        super().__init__()
        self.inner: Any = None
        self._limit_s = limit_s

    def cancel(self) -> bool:
        return False

    def running(self) -> bool:
        return not self.done() and self.inner.running()

    def finish(self, inner: Any) -> None:
        if self.done():
            return
        if inner.cancelled():
            self.set_exception(WorkerLostError("its pool had no more time for it"))
        elif isinstance(error := inner.exception(), ProcessExpired):
            self.set_exception(WorkerLostError(_how_it_ended(error.exitcode or 0)))
        elif isinstance(error, TimeoutError):
            reason = f"it took longer than {self._limit_s:.3g} s"
            self.set_exception(WorkerLostError(reason, is_late=True))
        elif error is not None:
            self.set_exception(WorkerLostError(f"its pool failed: {error}"))
        else:
            self._unpack(*inner.result())

    def _unpack(self, kind: str, content: bytes) -> None:
        value = pickle.loads(content)
        if kind == "done":
            self.set_result(value)
        else:
            self.set_exception(value if kind == "error" else WorkerLostError(value))


class Pool(Executor):
    """Processes of this machine, as an executor."""

    def __init__(self, processes: int) -> None:
        self._max_workers = processes  # as of the pools of the standard library
        self._tasks: set[Future[Any]] = set()
        self._pool: Any = ProcessPool(
            processes, initializer=_begin, initargs=(path_of_children(),), context=_context()
        )

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a process do something, which may take as long as it likes."""
        return self.submit_within(None, partial(fn, **kwargs) if kwargs else fn, *args)

    def submit_within(
        self, limit_s: float | None, fn: Callable[..., Any], /, *args: Any
    ) -> Future[Any]:
        """Have a process do something, and end the process where that takes too long."""
        task = _Task(limit_s)
        try:
            content = cloudpickle.dumps((fn, args), pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001  objects may raise anything
            task.set_exception(error)
            return task
        task.inner = self._pool.schedule(_done, (content,), timeout=limit_s)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.inner.add_done_callback(task.finish)
        return task

    def drop(self, tasks: Iterable[Future[Any]]) -> None:
        """End what is under way of these, with the processes that do it."""
        for task in tasks:
            if isinstance(task, _Task) and task.inner is not None:
                task.inner.cancel()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks, and end the processes when all are done."""
        if cancel_futures:
            self.end()
            return
        self._pool.close()
        if wait:
            self._pool.join()

    def end(self) -> None:
        """End the processes, whatever they are doing."""
        self._pool.stop()
        self._pool.join()
        for task in list(self._tasks):
            if not task.done():
                task.set_exception(WorkerLostError("its pool was ended"))

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


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"it ended with status {status}"
    try:
        return f"it was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"it was ended by signal {-status}"


# the base classes are those of each system
class _Process(SystemProcess):  # pyright: ignore[reportGeneralTypeIssues, reportUntypedBaseClass]
    """Process that leads a group of its own and does not run the caller's main module."""

    def start(self) -> None:
        with _starting, _own_modules(self.name):
            super().start()

    def terminate(self) -> None:
        """Kill it with all that it began."""
        if self.pid is not None and hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self.kill()


class _Context(SystemContext):  # pyright: ignore[reportGeneralTypeIssues, reportUntypedBaseClass]
    Process = _Process


@lru_cache(maxsize=1)
def _context() -> _Context:
    """Return how processes are started: fresh, since those forked from one with drivers may hang.

    The server that they are forked from begins its imports at once.
    """
    context = _Context()
    if sys.platform != "win32":
        context.set_forkserver_preload(["countperf.interrupts", "countperf.tuning.preload"])
        os.environ["COUNTPERF_POOL_OWNER"] = str(os.getpid())  # see countperf.interrupts
        with _starting, _own_modules(""):
            forkserver.ensure_running()  # pyright: ignore[reportPossiblyUnboundVariable]
    return context


@contextlib.contextmanager
def _own_modules(name: str) -> Generator[None]:
    """Have a process run neither the caller's main module nor what lies beside it.

    Nothing of it is needed there: what a task refers to in it is sent with the task.
    """
    original, safe = spawn.get_preparation_data, os.environ.get(_SAFE_PATH)

    def prepared(asked: str) -> dict[str, Any]:
        preparation: dict[str, Any] = original(asked)
        if asked == name:
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


def _begin(path: list[str]) -> None:
    """Prepare a process: its end, its signals, no stream of the caller's."""
    parent = multiprocessing.parent_process()
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    if sys.platform != "win32":  # the fork server ends when nobody else holds this pipe open
        server: Any = vars(forkserver)["_forkserver"]  # pyright: ignore[reportPossiblyUnboundVariable]
        os.close(server._forkserver_alive_fd)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is None or not parent.is_alive():
        os._exit(1)  # it has ended meanwhile
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # of the caller, who may wait for the end of its pipes
        os.dup2(nothing, stream)
    os.close(nothing)
    sys.path[:] = path
    gc.freeze()  # what was imported stays
    warnings.simplefilter("ignore")


def _done(content: bytes) -> tuple[str, bytes]:
    """Do a task; return what kind of end it came to, and with what."""
    try:
        function, args = pickle.loads(content)
        return "done", cloudpickle.dumps(function(*args), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001  it goes to the caller
        error.add_note(f"in a process of a pool:\n{traceback.format_exc()}")
        try:
            packed: bytes = cloudpickle.dumps(error)
            pickle.loads(packed)  # of exceptions, some cannot be made again
        except Exception:  # noqa: BLE001  objects may raise anything
            packed = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
        return "error", packed
    except BaseException as error:  # noqa: BLE001  of users' code, such as SystemExit
        return "exit", pickle.dumps(f"it raised {type(error).__name__}: {error}")


@contextlib.contextmanager
def pool_or(executor: Executor | None, workers: int | None = None) -> Generator[Executor]:
    """Give an executor, or a pool of processes for as long as it is needed."""
    if executor is not None:
        yield executor
        return
    with process_pool(workers) as pool:
        yield pool


def process_pool(workers: int | None = None) -> Pool:
    """Return a pool of fresh processes, one for each processor unless told otherwise."""
    return Pool(workers or available_cores())


class Remote:
    """An object that lives in a process of its own, made there from arguments.

    A process that is lost is replaced when something is called again, with an object of its own.
    """

    def __init__(self, make: Callable[..., Any], *given: Any) -> None:
        self._made = make, given
        self.pool = process_pool(1)

    def call(self, limit_s: float, method: str, *given: Any) -> Future[Any]:
        """Call a method of the object, which may take so long, s."""
        return self.pool.submit_within(limit_s, _called, self._made, method, *given)


@lru_cache(maxsize=1)
def _made(make: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    return make(*given)


def _called(made: tuple[Callable[..., Any], tuple[Any, ...]], method: str, *given: Any) -> Any:
    return getattr(_made(*made), method)(*given)


def capacity(executor: Executor) -> int:
    """Return how many tasks an executor runs at a time; the processors of this machine if unknown.

    Of Dask's executor the threads of all workers now, of those of Python and MPI the workers.
    """
    runner: Any = executor
    for name in ("_max_workers", "num_workers"):
        workers = getattr(runner, name, None)
        if isinstance(workers, int) and workers > 0:
            return workers
    client = getattr(runner, "_client", None)
    if client is not None and hasattr(client, "nthreads"):
        return max(1, sum(client.nthreads().values()))
    return available_cores()
