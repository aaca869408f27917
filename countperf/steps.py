"""Steps of long work: who works says what is done; who calls may listen, and show it.

Ctrl-C ends work between its steps where an interrupt amid one would leave it half done.
"""

from __future__ import annotations

import signal
import sys
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


def step_through(items: Iterable[_T], work: str, total: int | None = None) -> Generator[_T]:
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


_received: list[int] = []  # interrupts that wait for the end of a step; in the main thread alone

_seen: list[int] = []  # interrupts in a block of `note_interrupts`


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _seen.append(number)
    raise KeyboardInterrupt


@contextmanager
def note_interrupts() -> Generator[list[int]]:
    """Note Ctrl-C as it raises `KeyboardInterrupt`, which libraries turn into other errors.

    Where it is raised amid what cannot fail, such as the end of an object, it is raised again.
    """
    before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook

    def raise_again(raised: sys.UnraisableHookArgs) -> None:
        if issubclass(raised.exc_type, KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        else:
            hook(raised)

    _seen.clear()
    if not callable(before) or not _is_main():
        yield _seen  # interrupts are ignored, or go to others
        return
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = raise_again
    try:
        yield _seen
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, before)


@contextmanager
def defer_interrupts() -> Generator[None]:
    """Have Ctrl-C wait for `end_if_interrupted`, or for the end of the block.

    Else it might come where a lock has just been taken that another thread waits for. In other
    threads, and where others handle interrupts, this does nothing.
    """
    before = signal.getsignal(signal.SIGINT)
    if not _is_main() or before not in (signal.default_int_handler, _interrupt):
        yield
        return
    signal.signal(signal.SIGINT, _defer)
    try:
        yield
        end_if_interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
        _received.clear()


def end_if_interrupted() -> None:
    """Raise `KeyboardInterrupt` if Ctrl-C was pressed in a block that defers it."""
    if _received and _is_main():
        _received.clear()
        raise KeyboardInterrupt


def _defer(number: int, frame: FrameType | None) -> None:
    if _received:
        _interrupt(number, frame)
    _received.append(number)
