"""Imported first by the process that those of a pool are forked from, ahead of its other imports.

It ignores interrupts: a terminal sends Ctrl-C to all processes of a command; the one that the user
started ends the others. A thread ends it with the process that it serves, until all is imported:
that takes seconds, and processes with threads are not to be forked.
"""

from __future__ import annotations

import os
import signal
import threading

OWNER_VARIABLE = "COUNTPERF_POOL_OWNER"
"""Environment variable: number of the process that starts the fork server.

It may have ended before this process began, when that is no longer its parent.
"""

_LOOKS_EVERY_S = 0.1
_done = threading.Event()


def _end_without(parent: int) -> None:
    while not _done.wait(_LOOKS_EVERY_S):
        if os.getppid() != parent:
            os._exit(1)


def end_watch() -> None:
    """End the thread, for all is imported."""
    _done.set()
    _watch.join()


signal.signal(signal.SIGINT, signal.SIG_IGN)
_owner = int(os.environ.get(OWNER_VARIABLE, os.getppid()))
_watch = threading.Thread(target=_end_without, args=(_owner,), daemon=True)
_watch.start()
