"""All that countperf changes in Loopy while it runs, each with its reason; seen with Loopy 2025.2.

- `unattended`: the defaults of ``ScheduleDebugger.__init__`` (no function passes on the argument
  that keeps it from asking at the terminal) and ``print`` of ``loopy.check``, which shows kernels.
- `replace_domain_substitution`: ``substitute_into_domain``, which fails where two arguments of a
  call contain one name.
- `watch_comparisons`: ``map_comparison``, since no target shows what it writes.
- `forget_kernels`: entries of caches in memory that Loopy offers no function to clear.
- `nest_copies`: ``SchedulerState`` and ``realize_ilp``, which nest loops over copies and order the
  axes of their private arrays by chance.
- `record_launches`: ``__call__`` of the executors, since Loopy calls nobody when it launches.

One thread at a time has Loopy changed. `without_disk_caches` uses a public switch.
"""

from __future__ import annotations

import sqlite3
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

import loopy as lp
import loopy.check
import loopy.preprocess
import loopy.schedule
import loopy.symbolic
import loopy.target.c.codegen.expression
import loopy.tools
import loopy.transform.callable
from loopy.schedule import ScheduleDebugger

_LOCK = threading.RLock()
"""Held by the thread that has Loopy changed."""


@contextmanager
def unattended() -> Generator[None]:
    """Let Loopy's scheduler fail where it would ask at the terminal.

    Nor does it print the kernels that its checks refuse, or warn meanwhile that what it uses of its
    dependencies will be no more.
    """
    checks: Any = loopy.check
    initialize = ScheduleDebugger.__init__
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        usual = initialize.__defaults__
        was_silent = hasattr(checks, "print")
        initialize.__defaults__ = (None, False)  # debug_length, interactive
        checks.print = lambda *_, **__: None  # instead of the builtin function, there alone
        try:
            yield
        finally:
            initialize.__defaults__ = usual
            if not was_silent:
                del checks.print


@contextmanager
def without_disk_caches() -> Generator[None]:
    """Have Loopy look nothing up on the disk and write nothing there."""
    with _LOCK:
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
    with _LOCK:
        usual = inlining.substitute_into_domain
        inlining.substitute_into_domain = substitute
        try:
            yield
        finally:
            inlining.substitute_into_domain = usual


class _Ordered(set[str]):
    """A set that is gone through in order."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._names = names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)


@contextmanager
def nest_copies(list_copies: Callable[[Any], list[str]]) -> Generator[None]:
    """Have Loopy nest the loops over copies of a kernel in the order that a function lists them.

    What its caches remember of other processes is not asked for.
    """
    scheduling: Any = loopy.schedule
    preprocessing: Any = loopy.preprocess

    def state(**fields: Any) -> Any:
        listed = [n for n in list_copies(fields["kernel"]) if n in fields["ilp_inames"]]
        return usual_state(**{**fields, "ilp_inames": _Ordered(listed)})

    def add_axes(kernel: Any) -> Any:
        for name in list_copies(kernel):
            kernel = lp.privatize_temporaries_with_inames(kernel, frozenset([name]))
        return kernel

    with without_disk_caches():
        usual_state, usual_axes = scheduling.SchedulerState, preprocessing.realize_ilp
        scheduling.SchedulerState, preprocessing.realize_ilp = state, add_axes
        try:
            yield
        finally:
            scheduling.SchedulerState, preprocessing.realize_ilp = usual_state, usual_axes


@contextmanager
def watch_comparisons(check: Callable[[Any, Any], None]) -> Generator[None]:
    """Have each comparison that Loopy writes checked, with the mapper that writes it."""
    writer: Any = loopy.target.c.codegen.expression.ExpressionToCExpressionMapper

    def map_comparison(mapper: Any, comparison: Any, *context: Any) -> Any:
        check(mapper, comparison)
        return usual(mapper, comparison, *context)

    with without_disk_caches():  # what is known already would not be checked
        usual = writer.map_comparison
        writer.map_comparison = map_comparison
        try:
            yield
        finally:
            writer.map_comparison = usual


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
