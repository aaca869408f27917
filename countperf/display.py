"""Short forms of results for interactive use: what ``repr`` shows of a large object."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from fractions import Fraction
from pathlib import Path, PurePath
from textwrap import wrap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

above: Any = None
"""Functions of higher layers that methods of results call: `countperf` itself assigns it."""

MOST_LINES = 25
"""Lines of a ``repr``, at most."""

_WIDTH = 160
_SHOWN = 3  # entries of a collection
_DEEPEST = 2  # collections and objects in each other


def shortened(text: str, most: int = MOST_LINES) -> str:
    r"""Break the long lines of a text, cut it to a number of lines, and say how many are out."""
    lines = [part for line in text.splitlines() for part in _broken(line)]
    if len(lines) <= most:
        return "\n".join(lines)
    kept = most - 1
    return "\n".join([*lines[:kept], f"... {len(lines) - kept} more lines"])


def printed(self: Any) -> str:
    """Return the text of a result in 25 lines at most: the `repr` of results with a report."""
    return shortened(above.printed(self).text(12, widest=2 * _WIDTH))


def _broken(line: str) -> list[str]:
    """Break a line that is too long; what follows is indented by four more."""
    if len(line) <= _WIDTH:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    return wrap(line.strip(), _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ")


def short_repr(value: object) -> str:
    """Return a ``repr`` of at most 25 lines: a field on each, long values cut."""
    lines = [f"  {name}={_one_line(part)}," for name, part in _fields(value)]
    kept = MOST_LINES - 2
    if len(lines) > kept:
        lines = [*lines[: kept - 1], f"  ... {len(lines) - kept + 1} more fields"]
    return "\n".join([f"{type(value).__name__}(", *lines, ")"])


def _short_repr_of(self: object) -> str:
    return short_repr(self)


class ShortRepr:
    """A class whose objects are shown field by field: in at most 25 lines, long values cut.

    Dataclasses keep the ``repr`` that their class has when they are decorated.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = _short_repr_of


class Formula:
    """A class whose objects are shown as they print, in 25 lines at most."""

    __slots__ = ()

    def __repr__(self) -> str:
        return shortened(str(self))


def _fields(value: object) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.repr:
                yield field.name, getattr(value, field.name)
        return
    for name in getattr(type(value), "model_fields", {}):
        yield name, getattr(value, name)


def _one_line(value: object) -> str:
    text = " ".join(_shown(value, depth=0).split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 4]} ..."


def _shown(value: Any, depth: int) -> str:
    """Write a value; objects of other types by their names alone, which may be as large."""
    if isinstance(value, str | bytes):
        return repr(value[: _WIDTH + 1])
    if value is None or isinstance(value, bool | int | float | complex | Fraction):
        return repr(value)
    if isinstance(value, PurePath | Enum):
        return str(value)
    if type(value).__module__ == "numpy":  # not imported here: results without arrays need none
        is_array = type(value).__name__ == "ndarray"
        return f"<array of shape {value.shape}, {value.dtype}>" if is_array else repr(value)
    if isinstance(value, dict | MappingProxyType):
        entries = [f"{key!r}: {_shown(part, depth + 1)}" for key, part in _first(value.items())]
        return "{" + _joined(entries, len(value)) + "}"
    if type(value) in (tuple, list, set, frozenset):
        opening, closing = {tuple: "()", list: "[]"}.get(type(value), "{}")
        if depth >= _DEEPEST:
            return f"{opening}{len(value)} entries{closing}"
        entries = [_shown(part, depth + 1) for part in _first(value)]
        return opening + _joined(entries, len(value)) + closing
    if isinstance(value, Formula):
        return str(value)[: _WIDTH + 1]
    named = getattr(value, "slug", None) or getattr(value, "name", None)
    if isinstance(named, str):
        return f"<{type(value).__name__} {named}>"
    if isinstance(value, ShortRepr) and depth < _DEEPEST:
        parts = ", ".join(f"{name}={_shown(part, depth + 1)}" for name, part in _fields(value))
        return f"{type(value).__name__}({parts})"
    return f"<{type(value).__name__}>"


def _first(values: Iterable[Any]) -> list[Any]:
    return [part for part, _ in zip(values, range(_SHOWN), strict=False)]


def _joined(entries: Sequence[str], size: int) -> str:
    more = [f"... {size - len(entries)} more"] if size > len(entries) else []
    return ", ".join([*entries, *more])


class Table:
    """A result that is a table: as a data frame, and in notebooks."""

    __slots__ = ()

    def to_frame(self) -> pd.DataFrame:
        """Return the result as a pandas data frame, with full values in s."""
        return above.printed(self).frame()

    def _repr_html_(self) -> str:
        return above.printed(self).html()


class Drawable:
    """A result with a picture."""

    __slots__ = ()

    def plot(self, path: Path | str | None = None, **options: Any) -> Figure:
        """Draw the result."""
        return above.figure(self, path, **options)
