"""Process-wide settings that hold while some thread needs them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager


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
