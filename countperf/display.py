"""Short forms of results for interactive use: what ``repr`` shows of a large object."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from reprlib import Repr
from textwrap import wrap
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

above: Any = None
"""Functions of higher layers that methods of results call: `countperf` itself assigns it."""

MOST_LINES = 25
"""Lines of a ``repr``, at most."""

_WIDTH = 160


def shortened(text: str, most: int = MOST_LINES) -> str:
    r"""Break the long lines of a text, cut it to a number of lines, and say how many are out."""
    lines = [part for line in text.splitlines() for part in _broken(line)]
    if len(lines) <= most:
        return "\n".join(lines)
    kept = most - 1
    return "\n".join([*lines[:kept], f"... {len(lines) - kept} more lines"])


def cut(text: str, most: int) -> str:
    """Return a text, cut after so many characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def some_of(names: Sequence[str], *, most: int = 12) -> str:
    """List names for a message, the first ones of many."""
    more = len(names) - most
    listed = ", ".join(names[:most]) or "none"
    return listed if more <= 0 else f"{listed} and {more} more"


def printed(self: Any) -> str:
    """Return the text of a result in 25 lines at most: the `repr` of results with a report."""
    return shortened(above.printed(self).text(12, widest=2 * _WIDTH))


def _broken(line: str) -> list[str]:
    """Break a line that is too long; what follows is indented by four more."""
    if len(line) <= _WIDTH:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    return wrap(line.strip(), _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ")


class _Values(Repr):
    """Writes the values of fields: of collections the first entries, long texts cut."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2
        self.maxtuple = self.maxlist = self.maxset = self.maxfrozenset = self.maxdict = 3
        self.maxstring = self.maxother = self.maxlong = 150

    def repr_instance(self, x: Any, level: int) -> str:
        return " ".join(super().repr_instance(x, level).split())


_VALUES = _Values()


def short_repr(value: object) -> str:
    """Return a ``repr`` of at most 25 lines: a field on each, long values cut."""
    lines = [f"  {name}={_VALUES.repr(part)[:_WIDTH]}," for name, part in _fields(value)]
    kept = MOST_LINES - 2
    if len(lines) > kept:
        lines = [*lines[: kept - 1], f"  ... {len(lines) - kept + 1} more fields"]
    return "\n".join([f"{type(value).__name__}(", *lines, ")"])


class FieldsAlone:
    """A dataclass that is pickled without what it has cached."""

    def __getstate__(self) -> dict[str, Any]:
        names = [field.name for field in dataclasses.fields(cast("Any", self))]
        return {name: self.__dict__[name] for name in names}


class ShortRepr:
    """A class whose objects are shown field by field: in at most 25 lines, long values cut.

    Dataclasses keep the ``repr`` that their class has when they are decorated.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = lambda self: short_repr(self)


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
