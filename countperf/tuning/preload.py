"""Imports shared by all processes of a pool, made once before they are forked.

Imports take seconds, during which the process that is served may end. A thread ends this one then;
it has ended itself when the imports are done, since processes with threads are not to be forked.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module

_NAMES = (
    "countperf.counting.resources",
    "countperf.harness.runner",
    "countperf.harness.session",
    "countperf.models.weights",
    "countperf.properties.count_properties",
    "countperf.tuning.measuring",
    "countperf.tuning.points",
    "countperf.tuning.sending",
    "countperf.tuning.serving",
    "loopy.check",
    "loopy.codegen.instruction",
    "loopy.codegen.loop",
    "loopy.library.random123",
    "loopy.schedule.device_mapping",
    "loopy.target.c.c_execution",
    "numpy.random",
)
_LOOKS_EVERY_S = 0.1

OWNER_VARIABLE = "COUNTPERF_POOL_OWNER"
"""Environment variable: number of the process that starts the fork server.

It may have ended before this process began, when that is no longer its parent.
"""


def _end_without(parent: int, done: threading.Event) -> None:
    """End this process when its parent has ended, until all is imported."""
    while not done.wait(_LOOKS_EVERY_S):
        if os.getppid() != parent:
            os._exit(1)


def _import_all() -> None:
    done = threading.Event()
    owner = int(os.environ.get(OWNER_VARIABLE, os.getppid()))
    watch = threading.Thread(target=_end_without, args=(owner, done), daemon=True)
    watch.start()
    try:
        for name in _NAMES:
            import_module(name)
    finally:
        done.set()
        watch.join()


_import_all()
