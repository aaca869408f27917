"""Linear algebra on one thread.

Fits solve many small systems. OpenBLAS shares each of them among all cores, whose threads wait for
each other longer than they compute: a fit of 4,000 cases takes five times the processor time on two
cores, and more where other programs run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import threadpool_limits

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def on_one_thread(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Make a function during whose calls BLAS uses one thread."""

    @wraps(function)
    def limited(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        with threadpool_limits(limits=1, user_api="blas"):
            return function(*arguments, **options)

    return limited
