"""Settings of Loopy that hold in all threads while one needs them: no questions, no disk caches."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import loopy as lp
import loopy.check
from loopy.schedule import ScheduleDebugger


def shared_by_threads(
    make: Callable[[], AbstractContextManager[object]],
) -> Callable[[], AbstractContextManager[None]]:
    """Return a context that is entered by the first thread, and left by the last that is in it."""
    lock, stack = threading.Lock(), ExitStack()
    depth = 0

    @contextmanager
    def shared() -> Generator[None]:
        nonlocal depth
        with lock:
            if not depth:
                stack.enter_context(make())
            depth += 1
        try:
            yield
        finally:
            with lock:
                depth -= 1
                if not depth:
                    stack.close()

    shared.__doc__ = make.__doc__
    return shared


@shared_by_threads
@contextmanager
def unattended() -> Generator[None]:
    """Let Loopy's scheduler fail where it would ask, until the last thread that wants it is done.

    Of a kernel that it cannot schedule it would show its state, and wait for the enter key. There
    is an argument against that, but none of the functions that schedule kernels passes it on. Nor
    does it print the kernels that its checks refuse, or warn meanwhile that what it uses of its
    dependencies will be no more.
    """
    checks: Any = loopy.check
    initialize = ScheduleDebugger.__init__
    usual = initialize.__defaults__
    initialize.__defaults__ = (None, False)  # debug_length, interactive
    checks.print = _print_nothing  # in place of the builtin function, in that module alone
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        initialize.__defaults__ = usual
        del checks.print


def _print_nothing(*_: object, **__: object) -> None:
    """Stand in for ``print``."""


@shared_by_threads
@contextmanager
def without_disk_caches() -> Generator[None]:
    """Have Loopy look nothing up on the disk and write nothing there, in all threads."""
    was_enabled = lp.CACHING_ENABLED
    lp.set_caching_enabled(False)
    try:
        yield
    finally:
        lp.set_caching_enabled(was_enabled)
