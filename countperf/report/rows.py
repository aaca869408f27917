"""One printer of rows: a result gives full values once, and text and HTML are made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from countperf.report.numbers import (
    format_percent,
    format_quantity,
    format_share,
    format_table,
    point_text,
)

Rows = list[dict[str, Any]]

_PERCENTS = frozenset(
    {"relative_error", "error", "noise", "spread", "in_sample", "held_out_error", "ties"}
    | {"in_sample_error"}
    | {"pairwise_accuracy", "mape", "shape_error"}
)


def cell(name: str, value: Any) -> str:
    """Write a value of a row, by its name: ``..._s`` are seconds, errors and noise in percent."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return point_text(value)
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    if not isinstance(value, int | float | np.number):
        return str(value)
    if name.endswith("_s"):
        return format_quantity(float(value), "s")
    if name == "share":
        return format_share(float(value))
    if name.rpartition(":")[2] in _PERCENTS:
        return format_percent(float(value))
    if name.startswith(("kendall_tau", "regret_top_")):
        return f"{float(value):.2f}"
    return str(value) if isinstance(value, int | np.integer) else f"{float(value):.4g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells below titles, to be written as text or as HTML."""

    header: tuple[str, ...]  # titles of the columns
    rows: tuple[tuple[str, ...], ...]  # cells
    right: tuple[int, ...] = ()  # columns of numbers

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
            rows[(most + 1) // 2 : len(rows) - most // 2] = [["..."] * len(self.header)]

        def row(cells: Sequence[str], tag: str) -> str:
            return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in cells)}</tr>"

        body = "".join(row(cells, "td") for cells in rows)
        return f"<table><thead>{row(self.header, 'th')}</thead><tbody>{body}</tbody></table>"


def table_of(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str] | None = None) -> Table:
    """Write rows in columns: titles by the names of values; columns without any cell are left out.

    Without `columns`, all values are shown, in the order in which rows have them.
    """
    titles = columns or {name: name.removesuffix("_s") for row in rows for name in row}
    cells = {name: [cell(name, row.get(name)) for row in rows] for name in titles}
    names = [name for name in titles if not rows or any(cells[name])]
    return Table(
        header=tuple(titles[name] for name in names),
        rows=tuple(zip(*(cells[name] for name in names), strict=True)),
        right=tuple(
            place
            for place, name in enumerate(names)
            if name.endswith("_s") or all(_is_number(row.get(name)) for row in rows)
        ),
    )


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def ends(interval_s: tuple[float, float] | None) -> dict[str, float | None]:
    """Return both ends of an interval as columns of a row."""
    low, high = (None, None) if interval_s is None else interval_s
    return {"low_s": low, "high_s": high}


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A result for people: sentences, a table, and what to know of it."""

    head: Sequence[str]
    table: Table | None = None
    notes: Sequence[str] = ()

    def text(self, most_rows: int | None = None, *, widest: int | None = None) -> str:
        """Return it as text; long tables and lines are cut where it is asked for."""
        more, indent = ": .to_frame() has all", "  " if self.head else ""
        table = [] if self.table is None else self.table.lines(most_rows, more=more, indent=indent)
        said = [[_cut(line, widest) for line in part] for part in (self.head, self.notes)]
        return "\n".join([*said[0], *table, *said[1]])

    def html(self, most_rows: int = 25) -> str:
        """Return it as HTML, for notebooks; of a longer table the first and the last rows."""
        head = [f"<p>{'<br>'.join(map(escape, self.head))}</p>"] if self.head else []
        notes = [f"<p>{escape(note)}</p>" for note in self.notes]
        table = [] if self.table is None else [self.table.html(most_rows)]
        return "\n".join([*head, *table, *notes])


def _cut(text: str, widest: int | None) -> str:
    return text if widest is None or len(text) <= widest else f"{text[: widest - 3]}..."
