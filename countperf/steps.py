"""Steps of long work: who works says what is done; who calls may listen, and show it.

Work in a thread that nobody listens to costs next to nothing, so that any function may count its
steps, however deep it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Progress of some work."""

    work: str  # what is done, such as ``counting kernels``
    done: int  # steps that are done
    total: int | None  # steps in all


Listener = Callable[[Step], None]


@dataclass(slots=True)
class _Channel:
    """A listener, and whether a step is under way, whose own steps go to nobody."""

    listener: Listener
    is_busy: bool = False


_channel: ContextVar[_Channel | None] = ContextVar("_channel", default=None)


@contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Pass the steps of the work within the block to a listener."""
    token = _channel.set(_Channel(listener))
    try:
        yield
    finally:
        _channel.reset(token)


def is_heard() -> bool:
    """Return whether anybody listens, so that a total is worth finding out."""
    channel = _channel.get()
    return channel is not None and not channel.is_busy


def report(work: str, done: int, total: int | None = None) -> None:
    """Tell the listener, if there is one, how far some work is."""
    channel = _channel.get()
    if channel is not None and not channel.is_busy:
        channel.listener(Step(work=work, done=done, total=total))


def stepped(items: Iterable[_T], work: str, total: int | None = None) -> Generator[_T]:
    """Yield items, and tell the listener of each that is done with.

    What is done within a step is not told apart: its own steps go to nobody.
    """
    channel = _channel.get()
    if channel is None or channel.is_busy:
        yield from items
        return
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
