"""Parameters of a search space, read from the signature of the function that builds a variant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from countperf.errors import SearchSpaceError

_HOW = (
    "annotate it with its values, tile: Literal[8, 16, 32], or with bool, or give the values as its"
    " default, tile=(8, 16, 32) or unroll=range(1, 9)"
)


def parameters_of(function: Callable[..., Any]) -> dict[str, Sequence[Any]]:
    """Return the values of each argument of a function, by name, in the order of its signature.

    Values are those of a ``Literal`` annotation, both truth values of ``bool``, or a default that
    is a list, a tuple or a range. Arguments with any other default are left to the function.
    """
    name = getattr(function, "__name__", repr(function))
    try:
        hints = get_type_hints(function)
        signature = inspect.signature(function)
    except (NameError, TypeError, AttributeError, ValueError) as error:
        raise SearchSpaceError(
            f"the signature of '{name}' cannot be read: {error}; pass a function of Python, and"
            " import what its annotations name"
        ) from error
    found: dict[str, Sequence[Any]] = {}
    for argument in signature.parameters.values():
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        values = _values(hints.get(argument.name), argument.default)
        if values is not None:
            found[argument.name] = values
        elif argument.default is argument.empty:
            raise SearchSpaceError(f"argument {argument.name} of '{name}' has no values: {_HOW}")
    if not found:
        raise SearchSpaceError(f"'{name}' has no argument with values: {_HOW}")
    return found


def _values(hint: object, default: object) -> Sequence[Any] | None:
    if get_origin(hint) is Literal:
        return get_args(hint)
    if isinstance(default, list | tuple | range):
        return default
    return (False, True) if hint is bool else None
