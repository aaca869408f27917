"""Steps of long work: who works says what is done; who calls may listen, and show it.

Ctrl-C ends work between its steps where an interrupt amid one would leave it half done.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterable, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

_T = TypeVar("_T")
Listener = Callable[[str, int, int | None], None]
"""Takes what is done, such as ``counting kernels``, the steps that are done, and those in all."""


@dataclass(slots=True)
class _Channel:
    listener: Listener
    is_busy: bool = False  # a step is under way, whose own steps go to nobody


_channels: list[_Channel] = []


@contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Pass the steps of the work within the block to a listener."""
    _channels.append(_Channel(listener))
    try:
        yield
    finally:
        _channels.pop()


def report(work: str, done: int, total: int | None = None) -> None:
    """Tell the listener, if there is one, how far some work is."""
    if _channels and not _channels[-1].is_busy:
        _channels[-1].listener(work, done, total)


def stepped(items: Iterable[_T], work: str, total: int | None = None) -> Generator[_T]:
    """Yield items, and tell the listener of each that is done with."""
    if not _channels or _channels[-1].is_busy:
        yield from items
        return
    channel = _channels[-1]
    if total is None and isinstance(items, Sized):
        total = len(items)
    report(work, 0, total)
    for done, item in enumerate(items, start=1):
        channel.is_busy = True
        try:
            yield item
        finally:
            channel.is_busy = False
        report(work, done, total)


def format_duration(seconds: float) -> str:
    """Write a duration for people who wait, to the second."""
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


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
