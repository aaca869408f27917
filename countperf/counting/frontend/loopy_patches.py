"""All that countperf changes in Loopy while it runs, each with its reason; seen with Loopy 2025.2.

One thread at a time has Loopy changed. `without_disk_caches` uses a public switch.
"""

from __future__ import annotations

import sqlite3
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, cast

import loopy as lp
import loopy.check
import loopy.preprocess
import loopy.schedule
import loopy.symbolic
import loopy.tools
import loopy.transform.callable
from loopy.schedule import ScheduleDebugger

_LOCK = threading.RLock()  # held by the thread that has Loopy changed


@contextmanager
def forbid_questions() -> Generator[None]:
    """Let Loopy's scheduler fail where it would ask at the terminal, and print no kernels."""
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
    with _LOCK, lp.CacheMode(False):
        yield


@contextmanager
def replace_domain_substitution(substitute: Callable[..., Any]) -> Generator[None]:
    """Have Loopy put arguments into domains by a function that, unlike its own, takes all."""
    inlining: Any = loopy.transform.callable
    with _LOCK:
        usual = inlining.substitute_into_domain
        inlining.substitute_into_domain = substitute
        try:
            yield
        finally:
            inlining.substitute_into_domain = usual


@contextmanager
def nest_copies(list_copies: Callable[[Any], list[str]]) -> Generator[None]:
    """Have Loopy nest loops over copies, and order axes for them, as a function lists them."""
    scheduling: Any = loopy.schedule
    preprocessing: Any = loopy.preprocess

    def state(**fields: Any) -> Any:
        copies = list_copies(fields["kernel"])
        listed = dict.fromkeys(name for name in copies if name in fields["ilp_inames"])
        return usual_state(**{**fields, "ilp_inames": listed.keys()})

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
