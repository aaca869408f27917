"""Main loop of a pool's processes, which end with the process that started them.

A process that is killed can end nothing itself. So three things watch, each of which is enough for
the processes of a pool:

- a shell that waits for the end of a pipe which only the starting process holds open, and then
  kills the group of each process, with all that it began (compilers, for example);
- Linux itself: a process is killed with its parent, which is the fork server, which ends at the end
  of a pipe of its own;
- where systems do not offer that, a thread of each process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import inspect
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_GUARD = """
trap '' HUP INT TERM
while read -r line; do last=$line; done
for process in $last; do kill -s KILL -- "-$process"; done
"""


class Guard:
    """Ends groups of processes when this process has ended without doing so itself.

    The shell that does so is started with the first group, holds neither the terminal nor any pipe
    of the caller, and ends with this process.
    """

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._shell: subprocess.Popen[str] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def add(self, group: int) -> None:
        """Have a group end with this process."""
        with self._lock:
            if self._owner != os.getpid():  # a fork has children of its own
                self._groups, self._shell, self._owner = set(), None, os.getpid()
            self._groups.add(group)
            self._tell()

    def remove(self, group: int) -> None:
        """Forget a group, whose number may soon be that of another one."""
        with self._lock:
            if self._owner == os.getpid() and group in self._groups:
                self._groups.remove(group)
                self._tell()

    def _tell(self) -> None:
        if os.name != "posix":
            return
        if self._shell is None or self._shell.poll() is not None:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd="/",
                start_new_session=True,  # so that what ends this process leaves it alone
            )
            atexit.register(_end, self._shell, os.getpid())
        assert self._shell.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the next call starts another one
            self._shell.stdin.write(" ".join(map(str, self._groups)) + "\n")
            self._shell.stdin.flush()


def _end(shell: subprocess.Popen[str], owner: int) -> None:
    if os.getpid() == owner:
        with shell, contextlib.suppress(BrokenPipeError):
            assert shell.stdin is not None
            shell.stdin.close()


GUARD = Guard()
"""The guard of this process."""


def kill_group(number: int) -> None:
    """Kill a process and all that it began, unless it has ended."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(number, signal.SIGKILL)


def end_with_parent() -> None:
    """Have this process, one that `multiprocessing` started, end with the one that started it.

    It leads a group of its own from then on.
    """
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # so that it can be stopped and ended with all that it begins
    parent = multiprocessing.parent_process()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    elif parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()
    if parent is None or not parent.is_alive():
        os._exit(1)  # it has ended meanwhile


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    kill_group(os.getpid())
    os._exit(1)


def serve(connection: Connection[Any, Any], folder: str, path: list[str]) -> None:
    """Do one task after the other until the connection ends."""
    _begin(folder, path)
    try:
        initial = pickle.loads(connection.recv_bytes())
        with contextlib.suppress(BaseException):
            if initial is not None:
                initial[0](*initial[1])
        _say(connection, "ready", None)
        while True:
            _say(connection, *_done(connection, connection.recv_bytes()))
    except (EOFError, OSError):
        return  # there is nobody left to work for


def _begin(folder: str, path: list[str]) -> None:
    """Be where the caller is; keep what Loopy warns of variants from the terminal."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for others
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # of the caller, who may wait for the end of its pipes
        os.dup2(nothing, stream)
    os.close(nothing)
    with contextlib.suppress(OSError):
        os.chdir(folder)
    sys.path[:] = path
    gc.freeze()  # what was imported stays
    gc.set_threshold(20_000, 20, 20)
    warnings.simplefilter("ignore")


def _done(connection: Connection[Any, Any], content: bytes) -> tuple[str, Any]:
    """Do a task; return what kind of end it came to, and with what."""
    try:
        function, args, kwargs = pickle.loads(content)
        result = function(*args, **kwargs)
        if not inspect.isgenerator(result):
            return "done", result
        for part in result:
            _say(connection, "part", part)
        return "parts", None
    except Exception as error:  # noqa: BLE001  it goes to the caller
        error.add_note(f"in a process of a pool:\n{traceback.format_exc()}")
        return "error", error
    except BaseException as error:  # noqa: BLE001  of users' code, such as SystemExit
        return "exit", f"it raised {type(error).__name__}: {error}"


def _say(connection: Connection[Any, Any], kind: str, value: Any) -> None:
    try:
        content: bytes = cloudpickle.dumps((kind, value), pickle.HIGHEST_PROTOCOL)
        if kind == "error":
            pickle.loads(content)  # of exceptions, some cannot be made again
    except Exception as error:  # noqa: BLE001  objects may raise anything
        text = f"{type(value).__name__}: {value}" if kind == "error" else str(error)
        content = pickle.dumps(("error", RuntimeError(text)))
    connection.send_bytes(content)
