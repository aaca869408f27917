"""Values of size parameters: one or several, as texts and as mappings.

Several values go together value by value: ``n=256,512 m=16,32`` means two points and not four.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from inspect import signature
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from countperf.errors import ParameterError, UnknownSizeError, nearest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")

Sizes = Mapping[str, Any]
"""Values of the size parameters by name: an integer each, or a sequence or array of integers."""

_DIGITS = 20  # of the largest integer of 64 bits
_SIZE = re.compile(r"(-?[0-9]+)(?:\*\*([0-9]{1,2})|e([0-9]{1,2})|([kMGT]|[KMGT]i))?")
_FACTORS = {p: 1000**n for n, p in enumerate(("k", "M", "G", "T"), 1)} | {
    f"{p}i": 1024**n for n, p in enumerate("KMGT", 1)
}
_MOST_VALUES = 10_000


def parse_sizes(name: str, text: str) -> int | tuple[int, ...]:
    """Return the values that a text names."""
    parts = text.split(",")
    values = [value for part in parts for value in _part(name, part.strip())]
    if len(parts) == 1 and ":" not in text:
        return values[0]
    return tuple(values)


def parse_size(name: str, text: str) -> int | None:
    """Return the value of ``1024``, ``2**10``, ``1e6``, ``1M`` (a million) or ``1Mi``, or None."""
    if (match := _SIZE.fullmatch(text)) is None:
        return None
    number, power, ten, prefix = match.groups()
    value = None
    if len(text) <= _DIGITS:
        value = int(number) ** int(power or 1) * 10 ** int(ten or 0) * _FACTORS.get(prefix, 1)
    if value is None or len(str(abs(value))) > _DIGITS:
        message = f"{name}={text:.{_DIGITS}}: the size is too large (at most {_DIGITS} digits)"
        raise ParameterError(message, parameter=name)
    return value


def _part(name: str, text: str) -> list[int]:
    """Return the values of an integer or a range, ``start:stop:count`` or with ``:log``."""
    fields = text.split(":")
    logarithmic = len(fields) == 4 and fields[-1] == "log"
    values = [parse_size(name, field) for field in (fields[:-1] if logarithmic else fields)]
    numbers = [value for value in values if value is not None]
    if len(values) not in (1, 3) or len(numbers) < len(values):
        raise ParameterError(
            f"{name}={text}: {text!r} is no integer and no range; write {name}=1024,"
            f" {name}=256,512, {name}=256:4096:8 (8 integers from 256 to 4096) or"
            f" {name}=256:4096:8:log; for long ones {name}=2**20, {name}=1M or {name}=1Mi",
            parameter=name,
        )
    if len(numbers) == 1:
        return numbers
    start, stop, count = numbers
    if start >= stop or not 2 <= count <= _MOST_VALUES or (logarithmic and start < 1):
        said = "a range is start:stop:count with a start below the stop (of at least 1 before :log)"
        most = f"a count of at least 2 and at most {_MOST_VALUES} values"
        raise ParameterError(f"{name}={text}: {said} and {most}", parameter=name)
    if logarithmic:
        values = [round(start * (stop / start) ** (i / (count - 1))) for i in range(count)]
    else:
        values = [round(start + i * (stop - start) / (count - 1)) for i in range(count)]
    if (distinct := len(set(values))) < count:
        said = f"rounded to integers, only {distinct} of the {count} values differ"
        raise ParameterError(f"{name}={text}: {said}; ask for fewer of them", parameter=name)
    return values


def combine_sizes(sizes: Sizes) -> list[dict[str, int]]:
    """Return the points that values of several parameters name together."""
    columns = {name: list(value) for name, value in sizes.items() if _is_several(value)}
    for name, values in columns.items():
        if not values:
            raise ParameterError(f"parameter {name} has no value; give one", parameter=name)
    if len({len(values) for values in columns.values()}) > 1:
        listed = " and ".join(f"{name} ({len(values)})" for name, values in columns.items())
        said = f"the parameters {listed} have different numbers of values; give equally many,"
        message = f"{said} which go together value by value"
        raise ParameterError(message, parameter=next(iter(columns)))
    points: list[dict[str, int]] = []
    for row in zip(*columns.values(), strict=True) if columns else [()]:
        several = dict(zip(columns, row, strict=True))
        point = {name: as_integer(name, several.get(name, value)) for name, value in sizes.items()}
        if point in points:
            listed = ", ".join(f"{name}={value}" for name, value in point.items())
            said = f"the point {listed} is there twice; give it once"
            raise ParameterError(said, parameter=next(iter(columns)))
        points.append(point)
    return points


def size_arrays(sizes: Sizes) -> dict[str, int | NDArray[np.int64]]:
    """Return values of parameters as counts and predictions take them; see `combine_sizes`."""
    points = combine_sizes(sizes)
    import numpy as np

    return {
        name: np.array([p[name] for p in points]) if _is_several(value) else points[0][name]
        for name, value in sizes.items()
    }


def first_point(sizes: Sizes) -> dict[str, int]:
    """Return the first of several values of each parameter."""
    several = {name: list(value)[:1] for name, value in sizes.items() if _is_several(value)}
    return combine_sizes({**sizes, **several})[0]


def merge_sizes(sizes: Sizes | None, more: Sizes) -> dict[str, Any]:
    """Return the sizes that a mapping and keywords give together, integers as Python's."""
    if sizes is not None and not isinstance(sizes, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
        said = f"sizes are given by name, and {sizes!r} has none; pass n=1024, or a mapping such as"
        raise ParameterError(f'{said} {{"n": 1024}}', parameter="parameters")
    for name in (sizes or {}).keys() & more.keys():
        said = f"{(sizes or {})[name]} in the mapping and {more[name]} as a keyword"
        raise ParameterError(f"{name} is given twice: {said}; give it once", parameter=name)
    return {
        name: value if _is_several(value) else as_integer(name, value)
        for name, value in {**(sizes or {}), **more}.items()
    }


def checks_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Have a function refuse keywords that are neither options nor sizes, by the nearest option."""
    parameters = signature(function).parameters.values()
    options = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    has_sizes = any(p.kind is p.VAR_KEYWORD for p in parameters)

    @wraps(function)
    def check(*args: P.args, **given: P.kwargs) -> R:
        others = [name for name in given if name not in options]
        for name in others:
            if not (has_sizes and _is_size(given[name])):
                value = f", and a size is an integer, not {given[name]!r:.40}" if has_sizes else ""
                near = nearest(name, options) or f"; its options are {', '.join(options)}"
                said = f"{function.__name__} has no option {name}{value}{near}"
                raise ParameterError(said, parameter=name)
        try:
            return function(*args, **given)
        except UnknownSizeError as error:
            if error.parameter not in others or not (near := nearest(error.parameter, options)):
                raise
            raise UnknownSizeError(f"{error}{near}", parameter=error.parameter) from error

    return check


def _is_size(value: Any) -> bool:
    with suppress(ParameterError):
        if not _is_several(value):
            as_integer("", value)
        return True
    return False


def _is_several(value: Any) -> bool:
    """Return whether a value is a sequence or an array with an axis."""
    is_sized = hasattr(value, "__len__") and getattr(value, "shape", None) != ()
    return is_sized and not isinstance(value, str | bytes | Mapping)


def as_integer(name: str, value: Any) -> int:
    """Return a whole number of any type as an integer of Python's; refuse everything else."""
    if not isinstance(value, bool):
        with suppress(TypeError):
            return index(value)
        if isinstance(value, Real) and value % 1 == 0:
            return int(value)  # pyright: ignore[reportArgumentType] - real numbers have it
    said = f"parameter {name} is {value!r:.40}; pass an integer or an array of integers"
    raise ParameterError(said, parameter=name)
