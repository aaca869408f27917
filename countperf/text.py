"""Numbers with units, and results as text, HTML, frames and objects; the only place that rounds.

A result gives its facts, rows and columns once, by `Result.lay_out`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import Decimal
from fractions import Fraction
from html import escape
from numbers import Integral, Real
from pathlib import PurePath
from reprlib import Repr
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pandas as pd

# SI Brochure (9th edition, 2019, with the prefixes of 2022), Table 7
PREFIXES = dict(zip(range(-30, 31, 3), [*"qryzafpnµm", "", *"kMGTPEZYRQ"], strict=True))
_LEAST_SHARE = 1e-3
_WHOLE = 10  # factors from which on decimals are left out


def format_quantity(value: float, unit: str, *, digits: int = 3) -> str:
    """Write a number with an SI prefix, rounded to significant digits."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g} {unit}"
    rounded = Decimal(f"{value:.{digits - 1}e}")
    # one to three digits before the point
    exponent = max(min(rounded.adjusted() // 3 * 3, max(PREFIXES)), min(PREFIXES))
    return f"{rounded.scaleb(-exponent):f} {PREFIXES[exponent]}{unit}"


def format_percent(fraction: float) -> str:
    """Write a fraction in percent: two significant digits below 100 %, whole percents above."""
    if not math.isfinite(fraction) or fraction == 0:
        return f"{fraction:g} %"
    percent = 100 * Decimal(fraction)
    return f"{Decimal(f'{percent:.1e}'):f} %" if abs(percent) < 100 else f"{percent:.0f} %"


def format_share(fraction: float) -> str:
    """Write a part of a whole in percent; what is less than a thousandth as just that."""
    return "< 0.1 %" if 0 < abs(fraction) < _LEAST_SHARE else format_percent(fraction)


def width_text(factor: float) -> str:
    """Write the factor between the middle and the ends of an interval: ``×2.1``."""
    return f"×{factor:.1f}" if factor < _WHOLE else f"×{factor:.0f}"


def point_text(point: Mapping[str, Any]) -> str:
    """Write values of parameters: ``n = 256, m = 16``."""
    return ", ".join(f"{name} = {value_text(value)}" for name, value in point.items())


def weights_text(weights: str, device: str) -> str:
    """Name weights after their model; those that ship for the device have its name."""
    return "" if weights in ("", device) else f", weights {weights}"


def choice_text(choice: Mapping[str, Any]) -> str:
    """Write the parameters of a variant: ``tile=16 unroll=yes``."""
    return " ".join(f"{name}={value_text(value)}" for name, value in choice.items())


def value_text(value: Any) -> str:
    """Write the value of a parameter; a switch as yes or no."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def interval_text(interval_s: Sequence[Any]) -> str:
    """Write both ends of an interval of times."""
    return " to ".join(format_quantity(float(end), "s") for end in interval_s)


Row = Mapping[str, Any]


def format_seconds(value: float) -> str:
    """Write a time with an SI prefix."""
    return format_quantity(value, "s")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its title, and how its values are written."""

    title: str = ""
    format: Callable[[float], str] | None = None  # of numbers; by default by their type
    right: bool = False  # whether texts stand at the right, as columns of numbers do

    def cell(self, value: Any) -> str:
        """Write a value; nothing for None."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        if isinstance(value, Mapping):
            return point_text(value)
        if isinstance(value, tuple | list):
            return ", ".join(map(str, value))
        if not _is_number(value):
            return value_text(value)
        if self.format is not None:
            return self.format(float(value))
        return str(value) if isinstance(value, Integral) else f"{float(value):.4g}"


EACH = Column()  # in the place of a column of parameters or choices: a column for each of them


def columns_of(names: str, format: Callable[[float], str] | None = None) -> dict[str, Column]:
    """Return columns of one format, whose titles are their names without the unit ``_s``."""
    return {
        name: Column(name.removesuffix("_s").replace("_", " "), format) for name in names.split()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells below titles, to be written as text or as HTML."""

    header: tuple[str, ...]  # titles of the columns; none: no line of titles
    rows: tuple[tuple[str, ...], ...]  # cells
    right: tuple[int, ...] = ()  # columns of numbers
    titles: tuple[str, ...] = ()  # in HTML, where text has no line of titles

    def lines(self, most: int | None = None, *, more: str = "", indent: str = "  ") -> list[str]:
        """Return aligned lines; of many rows the first and last, or where all are."""
        rows = [self.header, *self.rows] if self.header else self.rows
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if i in self.right else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        left_out = 0 if most is None else len(self.rows) - most
        if most is not None and left_out > 0:
            half = 1 + (most + 1) // 2
            lines[half : half + left_out] = [f"... {left_out} more{more}"]
        return [indent + line for line in lines]

    def html(self, most: int = 25) -> str:
        """Return an HTML table; of many rows the first and the last."""
        rows: list[Sequence[str]] = list(self.rows)
        if len(rows) > most:
            rows[(most + 1) // 2 : len(rows) - most // 2] = [["..."] * len(self.rows[0])]
        titles = self.header or self.titles or ("",) * len(rows[0])

        def row(cells: Sequence[str], tag: str) -> str:
            number = ' class="number"'
            return "".join(
                f'<{tag} data-head="{escape(titles[position])}"'
                f"{number if position in self.right else ''}>{escape(text)}</{tag}>"
                for position, text in enumerate(cells)
            )

        body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
        head = f"<thead><tr>{row(titles, 'th')}</tr></thead>"
        return f"<table>{head}<tbody>{body}</tbody></table>"


def table_of(rows: Sequence[Row], columns: Mapping[str, Column] | None = None) -> Table:
    """Write rows in columns; those without any cell are left out.

    Without `columns`, all values are shown, in the order in which rows have them.
    """
    columns = columns or {name: Column(name) for row in _flatten(rows)[0] for name in row}
    kept = {name: column.title for name, column in columns.items() if column is not EACH}
    rows, parts = _flatten(rows, {*kept, *kept.values()})
    shown: dict[str, Column] = {}
    for name, column in columns.items():
        names = parts.get(name, []) if column is EACH else [name]
        shown |= {part: Column(part) if column is EACH else column for part in names}
    values = {name: [row.get(name) for row in rows] for name in shown}
    cells = {name: [*map(column.cell, values[name])] for name, column in shown.items()}
    names = [name for name in shown if not rows or any(cells[name])]
    return Table(
        header=tuple(shown[name].title for name in names),
        rows=tuple(zip(*(cells[name] for name in names), strict=True)),
        right=tuple(
            i
            for i, name in enumerate(names)
            if shown[name].right
            or shown[name].format is not None
            or all(value is None or _is_number(value) for value in values[name])
        ),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | Fraction)


def _flatten(
    rows: Sequence[Row], kept: Collection[str] = ()
) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Give each parameter, and both ends of the interval, a column; return rows and new columns.

    A parameter that is called like a column of results, or like its title, is named with the
    column that it comes from: ``parameters.time_s``. Mappings in columns `kept` stay whole.
    """
    taken = {*kept, "low_s", "high_s"}.union(
        name for row in rows for name, value in row.items() if not isinstance(value, Mapping)
    )
    parts: dict[str, list[str]] = {}
    flat: list[dict[str, Any]] = []
    for row in rows:
        flat.append({})
        for name, value in row.items():
            values = {name: value}
            if name == "interval_s":
                values = dict(zip(("low_s", "high_s"), value or (None, None), strict=True))
            elif isinstance(value, Mapping) and name not in kept:
                values = {f"{name}.{n}" if n in taken else n: one for n, one in value.items()}
                parts[name] = [*dict.fromkeys([*parts.get(name, ()), *values])]
            flat[-1] |= values
    return flat, parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A result: sentences, rows of full values, and what to know of it."""

    head: Sequence[str] = ()
    rows: Sequence[Row] = ()
    columns: Mapping[str, Column] | None = None  # what people see of the rows
    shown: Table | None = None  # what people see in the place of the rows
    parts: Sequence[Printed] = ()  # what text has in the place of a table
    notes: Sequence[str] = ()
    facts: Row = field(default_factory=dict[str, Any])  # what JSON has beside the rows
    name: str = ""  # of the rows in JSON; without one it has the facts alone

    @property
    def table(self) -> Table | None:
        """The rows as people see them; None if there are none."""
        table = self.shown or table_of(self.rows, self.columns)
        return table if table.rows else None

    def text(self, most_rows: int | None = None, *, widest: int | None = None) -> str:
        """Return it as text; long tables and lines are cut where it is asked for."""
        more, indent = ": .to_frame() has all", "  " if self.head else ""
        table = None if self.parts else self.table
        lines = [] if table is None else table.lines(most_rows, more=more, indent=indent)
        lines += [line for part in self.parts for line in part.text(most_rows).splitlines()]
        return "\n".join(
            line if widest is None else cut(line, widest)
            for line in [*self.head, *lines, *self.notes]
        )

    def html(self, most_rows: int = 25) -> str:
        """Return it as HTML, for notebooks; of a longer table the first and the last rows."""
        head = [f"<p>{'<br>'.join(map(escape, self.head))}</p>"] if self.head else []
        notes = [f"<p>{escape(note)}</p>" for note in self.notes]
        table = self.table
        return "\n".join([*head, *([] if table is None else [table.html(most_rows)]), *notes])

    def frame(self) -> pd.DataFrame:
        """Return the rows as a pandas data frame: a column for each parameter, times in s."""
        import pandas as pd

        return pd.DataFrame(_flatten(self.rows)[0])

    def object(self) -> dict[str, Any]:
        """Return facts and rows as JSON has them; nothing is rounded."""
        return plain({**self.facts, **({self.name: self.rows} if self.name else {})})


def plain(value: Any) -> Any:
    """Return a value as JSON has it: objects for records, lists for arrays, None for their NaN."""
    if hasattr(value, "dtype"):  # of NumPy, which is not imported for that
        if value.ndim:
            return [plain(entry) for entry in value]
        return None if value != value else value.item()
    if isinstance(value, Fraction):
        return float(value)
    if hasattr(value, "model_dump"):  # a document
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return extract(value, *(field.name for field in fields(value)))
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(part) for part in value]
    return str(value) if isinstance(value, PurePath) else value


def extract(record: Any, *names: str) -> dict[str, Any]:
    """Return some of a record's attributes as plain values, by name."""
    return {name: plain(getattr(record, name)) for name in names}


def check_lines(checks: Iterable[tuple[bool, str, str]]) -> list[str]:
    """Write checks: whether each passed, what was found, and how to mend it."""
    lines: list[str] = []
    for passed, text, mend in checks:
        lines.append(f"{'ok' if passed else '!!'}  {text}")
        lines += [f"      mend: {mend}"] if mend else []
    return lines


def make_interval_columns(level: str) -> dict[str, Column]:
    """Return columns of both ends of an interval."""
    return {"low_s": Column("from", format_seconds), "high_s": Column(level, format_seconds)}


def wrap_note(text: object, bullet: str = "- ") -> str:
    """Write a text as an item of a list, in lines of 100 characters."""
    return fill(
        f"{bullet}{' '.join(str(text).split())}",
        100,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def short_name(model: str) -> str:
    """Return the name by which weights of a model are asked for."""
    kind = model.partition("-")[0]
    return kind if kind in ("structural", "compiled") else model


# --- what ``repr`` shows of large objects

MOST_LINES = 25  # lines of a ``repr``, at most

_WIDTH = 160


def shorten_text(text: str, most: int = MOST_LINES) -> str:
    r"""Break the long lines of a text, cut it to a number of lines, and say how many are out."""
    lines: list[str] = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        more: dict[str, Any] = {"initial_indent": indent, "subsequent_indent": f"{indent}    "}
        lines += [line] if len(line) <= _WIDTH else wrap(line.strip(), _WIDTH, **more)
    if len(lines) > most:
        lines[most - 1 :] = [f"... {len(lines) - most + 1} more lines"]
    return "\n".join(lines)


def cut(text: str, most: int) -> str:
    """Return a text, cut after so many characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def some_of(names: Sequence[str], *, most: int = 12) -> str:
    """List names for a message, the first ones of many."""
    more = len(names) - most
    listed = ", ".join(names[:most]) or "none"
    return listed if more <= 0 else f"{listed} and {more} more"


_VALUES = Repr()  # of collections the first entries, long texts cut
_VALUES.maxlevel = 2
_VALUES.maxtuple = _VALUES.maxlist = _VALUES.maxset = _VALUES.maxfrozenset = _VALUES.maxdict = 3
_VALUES.maxstring = _VALUES.maxother = _VALUES.maxlong = 150


def short_repr(value: object) -> str:
    """Return a ``repr`` of at most 25 lines: a field on each, long values cut."""
    names = getattr(type(value), "model_fields", ())
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.repr]
    lines = [
        f"  {name}={' '.join(_VALUES.repr(getattr(value, name)).split())[:_WIDTH]},"
        for name in names
    ]
    kept = MOST_LINES - 2
    if len(lines) > kept:
        lines = [*lines[: kept - 1], f"  ... {len(lines) - kept + 1} more fields"]
    return "\n".join([f"{type(value).__name__}(", *lines, ")"])


class FieldsAlone:
    """A dataclass that is pickled without what it has cached."""

    def __getstate__(self) -> dict[str, Any]:
        names = [field.name for field in fields(cast("Any", self))]
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
        return shorten_text(str(self))


class Result:
    """A result that people and programs read: text, HTML, frame and object of the same columns."""

    __slots__ = ()

    def lay_out(self) -> Printed:
        """Return sentences, rows and facts, of which all forms of the result are made."""
        raise NotImplementedError

    def __str__(self) -> str:
        return shorten_text(self.lay_out().text(12, widest=2 * _WIDTH))

    def _repr_html_(self) -> str:
        return self.lay_out().html()

    def to_frame(self) -> pd.DataFrame:
        """Return the result as a pandas data frame, with full values in s."""
        return self.lay_out().frame()

    def to_object(self) -> dict[str, Any]:
        """Return the result as JSON has it; nothing is rounded."""
        return self.lay_out().object()
