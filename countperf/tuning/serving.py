"""Main loop of a pool's processes: one task after the other until the pool ends."""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import pickle
import signal
import sys
import traceback
import warnings
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from countperf.tuning.orphans import end_with_parent


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
