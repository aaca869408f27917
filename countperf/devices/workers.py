"""Worker processes: each does one task at a time, and can be lost or killed without harm to others.

A worker is a fresh Python process, never a fork, which drivers do not survive. It does not run the
caller's main module, and ends with the thread that started it (after its task but on Linux).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import IO, Any

import cloudpickle

from countperf.devices.device import check_process
from countperf.devices.identity import available_cores
from countperf.errors import FLAGS
from countperf.user_code import path_of_children

NOT_SENT = (pickle.PicklingError, AttributeError, TypeError, ValueError)  # of what is not pickled
_MESSAGE_LIMIT = 800
_PROGRAM = """
import ctypes, os, sys
_, caller, *sys.path = sys.argv
if sys.platform == "linux":  # end with the caller, also amid code that holds the interpreter
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG of linux/prctl.h, SIGKILL
if os.getppid() == int(caller):
    from countperf.devices import workers
    workers.work()
"""


class WorkerLostError(BrokenExecutor):
    """The process of a task has ended, or was ended."""

    def __init__(self, reason: str, *, is_late: bool = False) -> None:
        super().__init__(reason)
        self.is_late = is_late


class Worker:
    """A process that does one task after the other; a lost one is replaced at the next task."""

    def __init__(self, folder: str) -> None:
        self._folder = folder  # for its temporary files
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes]
        self._lock = threading.Lock()
        self._lost: WorkerLostError | None = None  # why the process was killed
        self._has_ended = False

    def do(self, limit_s: float | None, content: bytes) -> Any:
        """Do a packed task, which may take so long from when it is unpacked, s."""
        late = WorkerLostError(f"it took longer than {limit_s or 0:.3g} s", is_late=True)
        timer = threading.Timer(limit_s or 0, self._kill, [late])
        process = self._begin()
        try:
            _send(process.stdin, content)
            pickle.load(process.stdout)  # it is unpacked
            if limit_s is not None:
                timer.start()
            kind, packed = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise self._find_reason() from None
        finally:
            if timer.is_alive():
                timer.cancel()
                timer.join()
        value = pickle.loads(packed)
        if kind == "done":
            return value
        raise value if kind == "error" else WorkerLostError(value)

    def end(self) -> None:
        """Kill the process, whatever it is doing; it is not replaced."""
        self._has_ended = True
        self._kill(WorkerLostError("its pool was ended"))

    def close(self) -> None:
        """Wait for the end of the process, and close its streams; no task is under way."""
        self._kill(WorkerLostError("it is not needed"))
        if self._process is not None:
            with contextlib.suppress(OSError), self._output, self._process:
                pass
            self._process = None

    def _begin(self) -> Any:
        """Start the process, unless it runs."""
        if self._lost is not None or (self._process and self._process.poll() is not None):
            self.close()
        with self._lock:
            if self._has_ended:
                raise WorkerLostError("its pool was ended")
            if self._process is None:
                self._lost = None
                self._output = tempfile.TemporaryFile()  # noqa: SIM115  closed by close
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM, str(os.getpid()), *path_of_children()],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._output,
                    start_new_session=True,  # Ctrl-C is for the caller
                    env={**os.environ, "TMPDIR": self._folder},
                )
            return self._process

    def _kill(self, reason: WorkerLostError) -> None:
        """Kill the process with all that it began."""
        with self._lock:
            if self._process is not None:
                self._lost = self._lost or reason
                with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.kill()

    def _find_reason(self) -> WorkerLostError:
        """Return why the process has ended, with the last that it printed."""
        assert self._process is not None
        status = self._process.wait()
        end = f"it ended with status {status}"
        if -status in {*signal.Signals}:
            end = f"it was ended by {signal.Signals(-status).name}"
        self._output.seek(0)
        printed = self._output.read().decode(errors="replace").strip()[-_MESSAGE_LIMIT:]
        lost = self._lost or WorkerLostError(": ".join(filter(None, (end, printed))))
        self.close()
        return lost


class Pool(ThreadPoolExecutor):
    """Workers of this machine, one for each processor; ``with`` ends them amid what they do."""

    def __init__(self, processes: int | None = None) -> None:
        super().__init__(processes or available_cores())
        self._owner = os.getpid()
        self.folder = tempfile.TemporaryDirectory(prefix="countperf-", ignore_cleanup_errors=True)
        self._workers = [Worker(self.folder.name) for _ in range(self._max_workers)]
        self._idle = [*self._workers]

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a process do something, which may take as long as it likes."""
        return self.submit_within(None, partial(fn, **kwargs), *args)

    def submit_within(
        self, limit_s: float | None, fn: Callable[..., Any], /, *args: Any
    ) -> Future[Any]:
        """Have a process do something, and end the process where that takes too long."""
        check_process(self._owner, "this pool of processes")
        return super().submit(self._do, limit_s, cloudpickle.dumps((fn, args, FLAGS)))

    def _do(self, limit_s: float | None, content: bytes) -> Any:
        worker = self._idle.pop()  # the one that was used last, since it runs
        try:
            return worker.do(limit_s, content)
        finally:
            self._idle.append(worker)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks, and end the processes when all are done."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            for worker in self._workers:
                worker.close()
            self.folder.cleanup()  # with what killed processes left

    def end(self) -> None:
        """End the processes, whatever they are doing."""
        self.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.end()
        self.shutdown()

    def __exit__(self, *_: object) -> None:
        self.end()


def _send(stream: IO[bytes], content: object) -> None:
    pickle.dump(content, stream)
    stream.flush()


def work() -> None:
    """Do the tasks that come by standard input, until it ends with the caller."""
    tasks, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    warnings.simplefilter("ignore")
    with contextlib.suppress(EOFError):
        while True:
            _send(answers, _do(pickle.load(tasks), answers))


def _do(content: bytes, answers: IO[bytes]) -> tuple[str, bytes]:
    """Do a task; return what kind of end it came to, and with what."""
    try:
        try:
            function, args, flags = pickle.loads(content)  # imports what it needs
            FLAGS.update(flags)
        finally:
            _send(answers, None)
        return "done", cloudpickle.dumps(function(*args))
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


def pool_or(
    executor: Executor | None, workers: int | None = None
) -> AbstractContextManager[Executor]:
    """Give an executor, or a pool of processes for as long as it is needed."""
    return Pool(workers) if executor is None else nullcontext(executor)


def capacity(executor: Executor) -> int:
    """Return how many tasks an executor (Python's, MPI's, Dask's) runs at a time, or our cores."""
    runner: Any = executor
    workers = getattr(runner, "_max_workers", None) or getattr(runner, "num_workers", None)
    if isinstance(workers, int) and workers > 0:
        return workers
    threads = getattr(getattr(runner, "_client", None), "nthreads", None)
    return max(1, sum(threads().values())) if threads else available_cores()
