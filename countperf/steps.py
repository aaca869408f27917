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
    """Progress of some work.

    Attributes
    ----------
    work : str
        What is done, such as ``counting kernels``.
    done : int
        Steps that are done; 0 at the beginning.
    total : int or None
        Steps in all; None if nobody knows.
    """

    work: str
    done: int
    total: int | None


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
    """Tell the listener, if there is one, how far some work is.

    Parameters
    ----------
    work, done, total
        As the attributes of `Step`.
    """
    channel = _channel.get()
    if channel is not None and not channel.is_busy:
        channel.listener(Step(work=work, done=done, total=total))


def stepped(items: Iterable[_T], work: str, total: int | None = None) -> Generator[_T]:
    """Yield items, and tell the listener of each that is done with.

    What is done within a step is not told apart: its own steps go to nobody.

    Parameters
    ----------
    items : iterable
        What to go through.
    work : str
        What is done with them.
    total : int, optional
        How many there are, where they do not say so themselves.

    Examples
    --------
    >>> told = []
    >>> with listening(told.append):
    ...     list(stepped("ab", "reading"))
    ['a', 'b']
    >>> [(step.done, step.total) for step in told]
    [(0, 2), (1, 2), (2, 2)]
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
    """Write a duration for people who wait, to the second.

    Examples
    --------
    >>> format_duration(7.2), format_duration(125)
    ('7 s', '2 min 05 s')
    """
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"
