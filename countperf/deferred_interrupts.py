"""A block that Ctrl-C does not split: the interrupt is raised after its end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupts() -> Generator[None]:
    """Run a block to its end before an interrupt is raised.

    A result that is written to a file and entered in memory has to be in both or in neither.
    Python raises `KeyboardInterrupt` in the main thread alone: in other threads, and where the
    process ignores interrupts, this does nothing.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C was pressed while the block ran.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    received: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda *each: received.append(each))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if received:
            usual(*received[0])
