"""Times that others recorded: a table (.csv), or a cache of Kernel Tuner (.json).

A table has a line with the names of its columns, then a line a row; commas separate columns. Empty
lines and lines that begin with ``#`` are skipped. `MeasurementSet.from_table` says what columns
there are.

Of a cache (Kernel Tuner 1.5, ``process_cache``), a configuration that ran becomes a row of its
parameters and its ``time``, ms. A cache that a killed run left open is read up to there.
Either may be compressed by gzip.
"""

from __future__ import annotations

import contextlib
import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict

from countperf.documents import Part, parse_json, validate
from countperf.errors import DocumentError, TableError
from countperf.store import make_file_error, read_content

if TYPE_CHECKING:
    import pandas as pd

_FAILED = 1e19  # Kernel Tuner wrote times of at least that, ms, for what failed

KINDS = (
    "a table (.csv) with a column of times, such as seconds; and a cache of Kernel Tuner (.json,"
    " with the fields tune_params_keys and cache); each also compressed by gzip"
)
"""Files that are read, in words."""


def read_times(path: Path | str) -> pd.DataFrame:
    """Read a table of times from any file of this module."""
    try:
        text = read_content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise make_file_error(f"no text in UTF-8 ({error}); read are: {KINDS}", path) from error
    if not text.strip():
        raise make_file_error(f"the file is empty; read are: {KINDS}", path)
    return (_read_cache if text.lstrip()[0] in "{[" else _read_table)(text, path)


def _read_table(text: str, path: Path | str) -> pd.DataFrame:
    import pandas as pd

    lines = [line for line in text.splitlines(keepends=True) if line.lstrip()[:1] not in ("", "#")]
    try:
        rows = csv.reader(lines, strict=True, skipinitialspace=True)
        header, *cells = [[cell.strip() for cell in row] for row in rows]
    except (csv.Error, ValueError) as error:
        raise make_file_error(f"no table: {error}; read are: {KINDS}", path) from error
    for name in header:
        if header.count(name) > 1:
            raise TableError(f"{path}: two columns are called {name!r}; drop one", column=name)
    for number, row in enumerate(cells, 1):
        if len(row) != len(header):
            message = f"{path}: row {number} has {len(row)} cells, but there are {len(header)}"
            raise TableError(f"{message} columns; write each of them", row=number)
    values = [[_value(cell) for cell in row] for row in cells]
    return pd.DataFrame(values, columns=pd.Index(header), dtype=object)


def _value(text: str) -> bool | float | str | None:
    """Return what a cell stands for: a number, ``true`` or ``false``, nothing, else the text."""
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(text)
    return {"": None, "true": True, "false": False}.get(text.lower(), text)


class _Cache(Part):
    """The fields of a cache of Kernel Tuner that are read."""

    model_config = ConfigDict(extra="ignore")

    tune_params_keys: tuple[str, ...]
    objective: str | tuple[str, ...] = "time"
    cache: dict[str, dict[str, Any]]


def _read_cache(text: str, path: Path | str) -> pd.DataFrame:
    import pandas as pd

    parsed = _parse_cache(text, path)
    if not isinstance(parsed, dict) or "cache" not in parsed:
        raise make_file_error(f"no cache of Kernel Tuner; read are: {KINDS}", path)
    content = validate(_Cache, parsed, path=path)
    names = content.tune_params_keys
    objectives = [content.objective] if isinstance(content.objective, str) else content.objective
    times: list[dict[str, Any]] = []
    for key, row in content.cache.items():
        measured = [row.get(name) for name in ("time", *objectives)]
        if "__error__" in row or any(isinstance(value, str) for value in measured):
            continue
        for name in (*names, "time"):
            if name not in row:
                mend = ": tune with the objective time, or keep its field" if name == "time" else ""
                raise make_file_error(f"$.cache[{key!r}] has no field {name!r}{mend}", path)
        time_ms = row["time"]
        if isinstance(time_ms, bool | list | dict) or (time_ms is not None and time_ms <= 0):
            raise make_file_error(f"$.cache[{key!r}].time is no time: {time_ms}", path)
        if time_ms is not None and time_ms < _FAILED:
            times.append({name: row[name] for name in names} | {"milliseconds": time_ms})
    if not times:
        raise make_file_error("$.cache has no configuration that ran", path)
    return pd.DataFrame(times)


def _parse_cache(text: str, path: Path | str) -> object:
    """Parse JSON, also without the last brackets and with a last line that was cut short."""
    try:
        return parse_json(text, path=path, allow_nan=True)
    except DocumentError:
        kept = text.rstrip()
        if not kept.endswith((",", "{", "}")):
            kept = kept.rpartition("\n")[0].rstrip()
        with contextlib.suppress(DocumentError):
            return parse_json(kept.removesuffix(",") + "}}", path=path, allow_nan=True)
        raise
