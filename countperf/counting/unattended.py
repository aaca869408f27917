"""Suppression of Loopy's questions at the terminal and of warnings that do not concern callers."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import loopy.check
from loopy.schedule import ScheduleDebugger

from countperf.counting.threads import shared_by_threads


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
