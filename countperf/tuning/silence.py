"""Keeps what Loopy prints and warns of variants from the terminal; what matters is in reasons."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, redirect_stdout

_lock = threading.Lock()
_depth = 0
_stack = ExitStack()


@contextmanager
def silence() -> Generator[None]:
    """Silence standard output and warnings until the last thread that asked for it is through."""
    global _depth
    with _lock:
        if not _depth:
            _stack.enter_context(redirect_stdout(io.StringIO()))
            _stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if not _depth:
                _stack.close()
