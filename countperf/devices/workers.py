"""Worker processes: each does one task at a time, and can be lost or killed without harm to others.

A worker is a fresh Python process, never a fork: drivers do not survive a fork. It runs neither the
caller's main module nor what lies beside it: functions of scripts and notebooks are sent with the
task (cloudpickle). It ends with the thread that started it, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from functools import lru_cache, partial
from types import TracebackType
from typing import IO, Any

import cloudpickle

from countperf.devices.device import check_process
from countperf.devices.machine import available_cores
from countperf.errors import FLAGS
from countperf.user_code import path_of_children

NOT_SENT = (pickle.PicklingError, AttributeError, TypeError, ValueError)
"""Errors that a task raises if it cannot be pickled."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_HEADER_BYTES = 8  # length of a message
_MESSAGE_LIMIT = 800
_PROGRAM = (
    "from sys import argv, path; path[:] = argv[1:]; from countperf.devices import workers;"
    " workers.work()"
)


class WorkerLostError(BrokenExecutor):
    """The process of a task has ended, or was ended."""

    def __init__(self, reason: str, *, is_late: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_late = is_late


class Worker:
    """A process that does one task after the other; a lost one is replaced at the next task.

    A task is an event, which is set when nobody wants its outcome any more.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes]
        self._lock = threading.Lock()
        self._task: threading.Event | None = None  # under way
        self._lost: WorkerLostError | None = None  # why the process was killed
        self._has_ended = False

    def do(self, task: threading.Event, limit_s: float | None, content: bytes) -> Any:
        """Do a packed task, which may take so long from when it is unpacked, s."""
        late = WorkerLostError(f"it took longer than {limit_s or 0:.3g} s", is_late=True)
        timer = threading.Timer(limit_s or 0, self.kill, (task, late))
        try:
            stdin, stdout = self._begin(task)
            _send(stdin, content)
            _receive(stdout)
            if limit_s is not None:
                timer.start()
            kind, packed = pickle.loads(_receive(stdout))
        except (EOFError, ConnectionError):
            raise self._reason() from None
        finally:
            timer.cancel()
            with self._lock:
                self._task = None
                if self._lost is not None:
                    self._discard()
        value = pickle.loads(packed)
        if kind == "done":
            return value
        raise value if kind == "error" else WorkerLostError(value)

    def kill(self, task: threading.Event, reason: WorkerLostError) -> None:
        """Kill the process with all that it began, if it does that task."""
        with self._lock:
            if self._task is task:
                self._lost = self._lost or reason
                self._kill()

    def end(self) -> None:
        """End the process, whatever it is doing; it is not replaced."""
        with self._lock:
            self._has_ended = True
            if self._task is None:
                self._discard()
            else:
                self._lost = self._lost or WorkerLostError("its pool was ended")
                self._kill()

    def _begin(self, task: threading.Event) -> tuple[IO[bytes], IO[bytes]]:
        """Start the process, unless it runs; return its streams."""
        with self._lock:
            if self._has_ended or task.is_set():
                raise WorkerLostError("its pool had no more time for it")
            if self._process is not None and self._process.poll() is not None:
                self._discard()
            if self._process is None:
                self._output = tempfile.TemporaryFile()  # noqa: SIM115  closed by _discard
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM, *path_of_children()],
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._output,
                    env={**os.environ, **self._environment},
                    start_new_session=True,  # Ctrl-C is for the caller
                )
            self._task, self._lost = task, None
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            return self._process.stdin, self._process.stdout

    def _reason(self) -> WorkerLostError:
        """Return why the process has ended, with the last that it printed."""
        with self._lock:
            assert self._process is not None
            end = _how_it_ended(self._process.wait())
            self._output.seek(0)
            printed = self._output.read().decode(errors="replace").strip()[-_MESSAGE_LIMIT:]
            lost = self._lost or WorkerLostError(": ".join(filter(None, (end, printed))))
            self._discard()
            return lost

    def _kill(self) -> None:
        if self._process is not None:
            if hasattr(os, "killpg"):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()

    def _discard(self) -> None:
        if self._process is not None:
            self._kill()
            with self._process, self._output:  # waits, and closes the streams
                self._process = None


class Pool(ThreadPoolExecutor):
    """Workers of this machine, as an executor: each is looked after by a thread."""

    def __init__(self, processes: int) -> None:
        super().__init__(processes)
        self._owner = os.getpid()
        self._workers = [Worker() for _ in range(processes)]
        self._idle = [*self._workers]
        self._tasks: dict[Future[Any], threading.Event] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a process do something, which may take as long as it likes."""
        return self.submit_within(None, partial(fn, **kwargs) if kwargs else fn, *args)

    def submit_within(
        self, limit_s: float | None, fn: Callable[..., Any], /, *args: Any
    ) -> Future[Any]:
        """Have a process do something, and end the process where that takes too long."""
        check_process(self._owner, "this pool of processes")
        try:
            content = cloudpickle.dumps((fn, args, FLAGS), pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001  objects may raise anything
            refused: Future[Any] = Future()
            refused.set_exception(error)
            return refused
        event = threading.Event()
        task = super().submit(self._do, event, limit_s, content)
        self._tasks[task] = event
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def _do(self, task: threading.Event, limit_s: float | None, content: bytes) -> Any:
        worker = self._idle.pop()  # the one that was used last, since it runs
        try:
            return worker.do(task, limit_s, content)
        finally:
            self._idle.append(worker)

    def drop(self, tasks: Iterable[Future[Any]]) -> None:
        """End what is under way of these, with the processes that do it."""
        for task in tasks:
            event = self._tasks.get(task)
            if event is not None and not task.cancel():
                event.set()
                for worker in self._workers:
                    worker.kill(event, WorkerLostError("its pool had no more time for it"))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks, and end the processes when all are done."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            for worker in self._workers:
                worker.end()

    def end(self) -> None:
        """End the processes, whatever they are doing."""
        super().shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.end()
        super().shutdown()

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


def run_apart(
    limit_s: float,
    function: Callable[..., Any],
    *args: Any,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """Call a function in a process of its own, which is killed if that takes too long, s."""
    worker = Worker(environment)
    try:
        return worker.do(threading.Event(), limit_s, cloudpickle.dumps((function, args, FLAGS)))
    finally:
        worker.end()


# --- messages: a length, then so many bytes


def _send(stream: IO[bytes], content: bytes) -> None:
    left = memoryview(len(content).to_bytes(_HEADER_BYTES, "little") + content)
    while left:
        left = left[stream.write(left) :]


def _receive(stream: IO[bytes]) -> bytes:
    return _read(stream, int.from_bytes(_read(stream, _HEADER_BYTES), "little"))


def _read(stream: IO[bytes], size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = stream.read(size - len(content))
        if not part:
            raise EOFError
        content += part
    return bytes(content)


# --- in the process


def work() -> None:
    """Do the tasks that come by standard input, until it ends with the caller."""
    tasks, answers = (os.fdopen(os.dup(n), mode, 0) for n, mode in ((0, "rb"), (1, "wb")))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    if sys.platform == "linux":  # also amid compiled code that holds the interpreter
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_take, args=(tasks, arrived), daemon=True).start()
    warnings.simplefilter("ignore")
    while True:
        _send(answers, pickle.dumps(_do(arrived.get(), answers)))


def _take(tasks: IO[bytes], arrived: queue.SimpleQueue[bytes]) -> None:
    try:
        while True:
            arrived.put(_receive(tasks))
    finally:  # the caller has ended
        if hasattr(os, "killpg"):
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


def _do(content: bytes, answers: IO[bytes]) -> tuple[str, bytes]:
    """Do a task; return what kind of end it came to, and with what."""
    try:
        try:
            function, args, flags = pickle.loads(content)  # imports what it needs
            FLAGS.update(flags)
        finally:
            _send(answers, b"")
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
        self._recipe = make, given
        self.pool = process_pool(1)

    def call(self, limit_s: float, method: str, *given: Any) -> Future[Any]:
        """Call a method of the object, which may take so long, s."""
        return self.pool.submit_within(limit_s, _call_method, self._recipe, method, *given)


@lru_cache(maxsize=1)
def _make(make: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    return make(*given)


def _call_method(made: tuple[Callable[..., Any], tuple[Any, ...]], method: str, *given: Any) -> Any:
    return getattr(_make(*made), method)(*given)


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
