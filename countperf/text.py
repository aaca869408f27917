"""Numbers with units, and results as text, HTML, frames and objects; the only place that rounds.

Everything else holds full values in s, byte, flop and Hz. The class of a result imports this module
and gives its facts, rows and columns once, by `Result.lay_out`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
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
_PREFIXES = dict(zip(range(-30, 31, 3), [*"qryzafpnµm", "", *"kMGTPEZYRQ"], strict=True))
_LEAST_SHARE = 1e-3
_WHOLE = 10  # factors from which on decimals are left out

# enough digits for any two floats side by side
_WIDE = Context(prec=800, rounding=ROUND_HALF_EVEN)


def si_prefix(exponent: int) -> str:
    """Return the SI prefix of a power of ten."""
    return _PREFIXES[exponent]


def format_quantity(value: float, unit: str, *, digits: int = 3) -> str:
    """Write a number with an SI prefix, rounded to significant digits."""
    number = Decimal(value)
    if not number.is_finite() or number == 0:
        return f"{value:g} {unit}"
    rounded = round_to_digits(number, digits)
    # one to three digits before the point
    exponent = max(min(rounded.adjusted() // 3 * 3, max(_PREFIXES)), min(_PREFIXES))
    return f"{rounded.scaleb(-exponent):f} {si_prefix(exponent)}{unit}"


def format_percent(fraction: float) -> str:
    """Write a fraction in percent: two significant digits below 100 %, whole percents above."""
    percent = Decimal(fraction) * 100
    if not percent.is_finite() or percent == 0:
        return f"{fraction:g} %"
    rounded = (
        round_to_digits(percent, 2)
        if abs(percent) < 100
        else percent.quantize(Decimal(1), context=_WIDE)
    )
    return f"{rounded:f} %"


def format_share(fraction: float) -> str:
    """Write a part of a whole in percent; what is less than a thousandth as just that."""
    return "< 0.1 %" if 0 < abs(fraction) < _LEAST_SHARE else format_percent(fraction)


def round_to_digits(number: Decimal, digits: int) -> Decimal:
    """Round a number that is not zero to significant digits, keeping trailing zeros."""
    rounded = number.quantize(Decimal(1).scaleb(number.adjusted() - digits + 1), context=_WIDE)
    # 999.6 to three digits is 1000: one digit too many
    return rounded.quantize(Decimal(1).scaleb(rounded.adjusted() - digits + 1), context=_WIDE)


def format_table(
    rows: Sequence[Sequence[str]], *, header: Sequence[str] = (), right: Sequence[int] = ()
) -> str:
    """Align the columns of a table."""
    lines = [list(header), *map(list, rows)] if header else [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


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
        if isinstance(value, bool) or not _is_real(value):
            return value_text(value)
        if self.format is not None:
            return self.format(float(value))
        return str(value) if isinstance(value, Integral) else f"{float(value):.4g}"

    def stands_right(self, values: Iterable[object]) -> bool:
        """Return whether cells are aligned at their right ends."""
        return self.right or self.format is not None or all(map(_is_number, values))


EACH = Column()
"""In the place of a column of parameters or choices: a column for each of them."""


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
        lines = format_table(self.rows, header=self.header, right=self.right).splitlines()
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
    if columns is None:
        rows = _flat(rows)[0]
        shown = {name: Column(name) for row in rows for name in row}
    else:
        kept = {name: column.title for name, column in columns.items() if column is not EACH}
        rows, parts = _flat(rows, kept)
        shown: dict[str, Column] = {}
        for name, column in columns.items():
            shown |= {name: column} if column is not EACH else parts.get(name, {})
    values = {name: [row.get(name) for row in rows] for name in shown}
    cells = {name: [*map(column.cell, values[name])] for name, column in shown.items()}
    names = [name for name in shown if not rows or any(cells[name])]
    return Table(
        header=tuple(shown[name].title for name in names),
        rows=tuple(zip(*(cells[name] for name in names), strict=True)),
        right=tuple(i for i, name in enumerate(names) if shown[name].stands_right(values[name])),
    )


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, Fraction)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _flat(
    rows: Sequence[Row], kept: Mapping[str, str] | None = None
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Column]]]:
    """Give each parameter, and both ends of the interval, a column of its own.

    A parameter that is called like a column of results, or like its title, is named with the
    column that it comes from: ``parameters.time_s``. Mappings in columns that are `kept` (names and
    titles) stay whole. Returned are the rows, and the columns that the others became.
    """
    kept = kept or {}
    rows = [dict(_with_ends(row)) for row in rows]
    taken = {*kept, *kept.values()}.union(
        name for row in rows for name, value in row.items() if not isinstance(value, Mapping)
    )
    parts: dict[str, dict[str, Column]] = {}
    flat: list[dict[str, Any]] = []
    for row in rows:
        flat.append({})
        for name, value in row.items():
            if name in kept or not isinstance(value, Mapping):
                flat[-1][name] = value
                continue
            for part, one in value.items():
                full = f"{name}.{part}" if part in taken else part
                parts.setdefault(name, {})[full] = Column(full)
                flat[-1][full] = one
    return flat, parts


def _with_ends(row: Row) -> Iterator[tuple[str, Any]]:
    """Give both ends of the interval a column."""
    for name, value in row.items():
        if name == "interval_s":
            yield from zip(("low_s", "high_s"), value or (None, None), strict=True)
        else:
            yield name, value


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

        return pd.DataFrame(_flat(self.rows)[0])

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
        return picked(value, *(field.name for field in fields(value)))
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(part) for part in value]
    return str(value) if isinstance(value, PurePath) else value


def picked(record: Any, *names: str) -> dict[str, Any]:
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


def wrap_note(text: object) -> str:
    """Write a text as an item of a list, in lines of 100 characters."""
    return fill(
        f"- {' '.join(str(text).split())}",
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


class Result:
    """A result that people and programs read: text, HTML, frame and object of the same columns."""

    __slots__ = ()

    def lay_out(self) -> Printed:
        """Return sentences, rows and facts, of which all forms of the result are made."""
        raise NotImplementedError

    def __str__(self) -> str:
        return shortened(self.lay_out().text(12, widest=2 * _WIDTH))

    def _repr_html_(self) -> str:
        return self.lay_out().html()

    def to_frame(self) -> pd.DataFrame:
        """Return the result as a pandas data frame, with full values in s."""
        return self.lay_out().frame()

    def to_object(self) -> dict[str, Any]:
        """Return the result as JSON has it; nothing is rounded."""
        return self.lay_out().object()
