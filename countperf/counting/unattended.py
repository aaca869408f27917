"""Keeps Loopy from asking at the terminal."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

_lock = threading.Lock()
_depth = 0
_usual: tuple[object, ...] | None = None


@contextmanager
def unattended() -> Generator[None]:
    """Let Loopy's scheduler fail where it would ask, until the last thread that wants it is done.

    Of a kernel that it cannot schedule it would show its state, and wait for the enter key. There
    is an argument against that, but none of the functions that schedule kernels passes it on.
    """
    from loopy.schedule import ScheduleDebugger

    global _depth, _usual
    initialize = ScheduleDebugger.__init__
    with _lock:
        if not _depth:
            _usual = initialize.__defaults__
            initialize.__defaults__ = (None, False)  # debug_length, interactive
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if not _depth:
                initialize.__defaults__ = _usual
