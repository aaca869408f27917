"""Caches that a process keeps from one count to the next, and a function that clears them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar, cast

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_CLEARING: list[Callable[[], Any]] = []


def kept_in_process(
    maximum: int,
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Keep the latest results of a function, `maximum` many, until `forget_counts`."""

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        keeping = lru_cache(maxsize=maximum)(function)
        _CLEARING.append(keeping.cache_clear)
        return cast("Callable[_Parameters, _Result]", keeping)

    return decorate


def kept_by_hand(memory: dict[Any, _Result]) -> dict[Any, _Result]:
    """Return a dictionary that `forget_counts` will clear."""
    _CLEARING.append(memory.clear)
    return memory


def forget_counts() -> None:
    """Forget whatever counting, parsing and naming keep in the process; for honest timings.

    The handlers that mappers found for classes of expressions stay, as the modules do.
    """
    for clear in _CLEARING:
        clear()


class FieldsAlone:
    """A dataclass that is pickled without what it has cached."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: self.__dict__[field.name] for field in fields(cast("Any", self))}
