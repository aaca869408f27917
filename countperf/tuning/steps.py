"""Steps of builders whose results variants share: those that begin alike are built once so far.

A builder is a chain of steps, each from a unit to the next one, which is immutable. A step that is
asked for with the very unit and the arguments of before returns what it returned then, so that of
variants which differ only in their last steps only these are done. Put the steps of what varies
fastest last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

REMEMBERED = 256
"""Results that a process keeps, of all steps together; a unit takes some tens of kilobytes."""


class Latest(Generic[R]):
    """The results that a process asked for lately, by what they are of."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._results: OrderedDict[Hashable, R] = OrderedDict()
        self._lock = threading.Lock()

    def found(self, key: Hashable, make: Callable[[], R]) -> R:
        """Return what is known, or make it."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        result = make()
        with self._lock:
            self._results[key] = result
            while len(self._results) > self._most:
                self._results.popitem(last=False)
        return result

    def forget(self) -> None:
        """Forget all."""
        with self._lock:
            self._results.clear()


_results: Latest[tuple[Any, Any]] = Latest(REMEMBERED)
forget = _results.forget


def step(function: Callable[P, R]) -> Callable[P, R]:
    """Have a step of a builder remember its latest results; a decorator."""

    @wraps(function)
    def remembering(*args: P.args, **kwargs: P.kwargs) -> R:
        key = (function, _key(args), _key(kwargs))
        # the arguments are kept, so that no other object takes over the identity of one
        return _results.found(key, lambda: ((args, kwargs), function(*args, **kwargs)))[1]

    return remembering


def _key(value: Any) -> Hashable:
    match value:
        case None | bool() | int() | float() | str():
            return type(value), value
        case list() | tuple():
            return type(value), tuple(_key(part) for part in value)
        case Mapping():
            return "mapping", tuple((_key(name), _key(part)) for name, part in value.items())
        case set() | frozenset():
            return "set", frozenset(_key(part) for part in value)
        case _:
            return "object", id(value)
