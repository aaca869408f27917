"""All that countperf changes in Loopy while it runs, each with its reason; seen with Loopy 2025.2.

- `unattended`: the defaults of ``ScheduleDebugger.__init__`` (no function passes on the argument
  that keeps it from asking at the terminal) and ``print`` of ``loopy.check``, which shows kernels.
- `replace_domain_substitution`: ``substitute_into_domain``, which fails where two arguments of a
  call contain one name.
- `forget_kernels`: entries of caches in memory that Loopy offers no function to clear.
- `record_launches`: ``__call__`` of the executors, since Loopy calls nobody when it launches.

Settings hold in all threads while one needs them. `without_disk_caches` uses a public switch.
"""

from __future__ import annotations

import sqlite3
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any, cast

import loopy as lp
import loopy.check
import loopy.symbolic
import loopy.tools
import loopy.transform.callable
from loopy.schedule import ScheduleDebugger


def share_by_threads(
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


@share_by_threads
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


@share_by_threads
@contextmanager
def without_disk_caches() -> Generator[None]:
    """Have Loopy look nothing up on the disk and write nothing there, in all threads."""
    was_enabled = lp.CACHING_ENABLED
    lp.set_caching_enabled(False)
    try:
        yield
    finally:
        lp.set_caching_enabled(was_enabled)


@contextmanager
def replace_domain_substitution(substitute: Callable[..., Any]) -> Generator[None]:
    """Have Loopy put arguments into domains by a function that does so for all arguments.

    Its own fails where two arguments contain one name (2025.2), or where any contains a name (the
    development version).
    """
    inlining: Any = loopy.transform.callable
    usual = inlining.substitute_into_domain
    inlining.substitute_into_domain = substitute
    try:
        yield
    finally:
        inlining.substitute_into_domain = usual


def forget_kernels() -> None:
    """Clear Loopy's caches in memory, of 256 kernels and 64 MB of pages each or without a bound."""
    loopy.tools.clear_in_mem_caches()
    for cache in loopy.tools.caches:
        with suppress(AttributeError, sqlite3.Error):  # closed, or in use
            cast("Any", cache).conn.execute("PRAGMA shrink_memory")
    memoized = getattr(loopy.symbolic, "_get_dependencies_and_reduction_inames", None)
    getattr(getattr(memoized, "__wrapped__", None), "_memoize_dic", {}).clear()


def record_launches(wrap: Callable[[Any], Any]) -> None:
    """Have Loopy's executors launch through a wrapper, which has the attribute ``is_recorded``."""
    from loopy.target.c.c_execution import CExecutor
    from loopy.target.pyopencl_execution import PyOpenCLExecutor

    for executor in (CExecutor, PyOpenCLExecutor):
        if not hasattr(executor.__call__, "is_recorded"):
            executor.__call__ = wrap(executor.__call__)
