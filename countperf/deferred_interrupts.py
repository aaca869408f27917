"""Work that Ctrl-C ends between its steps: an interrupt amid a step would leave it half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

_received: list[int] = []
"""Interrupts that wait for the end of a step; in the main thread alone."""


@contextmanager
def deferred_interrupts() -> Generator[None]:
    """Have Ctrl-C wait for `end_if_interrupted`, or for the end of the block.

    Python raises `KeyboardInterrupt` between any two instructions of the main thread, also where a
    lock has just been taken that another thread waits for. In other threads, and where interrupts
    are not handled as Python does by default, this does nothing.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _defer)
    try:
        yield
        end_if_interrupted()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _received.clear()


def end_if_interrupted() -> None:
    """Raise `KeyboardInterrupt` if Ctrl-C was pressed in a block that defers it."""
    if _received and threading.current_thread() is threading.main_thread():
        _received.clear()
        raise KeyboardInterrupt


def _defer(number: int, frame: FrameType | None) -> None:
    if _received:
        signal.default_int_handler(number, frame)
    _received.append(number)
