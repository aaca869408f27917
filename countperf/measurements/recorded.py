"""Times that others recorded: tables, Extra-P's text format, and files of tuners.

Tuners' files are Kernel Tuner's caches (also those that a killed run left open, and their failures
in ``__error__``), T4 results, and the output of the Kernel Tuning Toolkit (KTT). `read_records`
reads them; times become seconds. A configuration that stands
there several times becomes one, with the mean of its times. Texts that are numbers become numbers.

Sources: Kernel Tuner 1.5, ``process_cache``, and ``schema/T4/1.0.0/results-schema.json`` shipped
with it; the fields of KTT 2.1's JSON output; Extra-P 4, ``text_file_reader.py``.
"""

from __future__ import annotations

import csv
import io
import math
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from countperf.documents import field_path, parse_json, read_content
from countperf.errors import CountperfWarning, DocumentError, TableError

if TYPE_CHECKING:
    import pandas as pd

Value: TypeAlias = bool | int | float | str

_UNITS_S = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    # as T4 files that Kernel Tuner wrote before 2026 spell it
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds", "miliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs", "usec", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), 1e-9),
}
_FAILED = 1e19  # Kernel Tuner wrote times of at least that, ms, for what failed
_LARGEST = 2.0**64
_MAX_ROWS = 1_000_000  # of a table
_NUMBER = re.compile(r"[-+]?(0|[1-9]\d*)?(\.\d*)?([eE][-+]?\d+)?")
_EXTRA_P = re.compile(r"(\s*#[^\n]*\n|\s*\n)*(PARAMETER|POINTS|REGION|METRIC|DATA)\s")

KINDS = (
    "a table (.csv) with a column of times, such as seconds; Extra-P's text format (PARAMETER,"
    " POINTS, REGION, METRIC, DATA); a cache of Kernel Tuner (fields tune_params_keys, cache), T4"
    " results (results) or the output of KTT (Metadata, Results) (.json); each also compressed by"
    " gzip"
)
"""Files that are read, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Configurations that a tuner measured; at least one of them ran."""

    name: str  # kernel and device, as the file names them
    device: str
    configurations: tuple[dict[str, Value], ...]  # each with a value for each parameter
    times_s: tuple[float, ...]  # run time of each, s; nan of those that failed


def read_times(path: Path | str) -> pd.DataFrame:
    """Read a table of times from any file of this module."""
    import pandas as pd

    text = _text(path)
    if text.lstrip()[:1] in ("{", "["):
        records = _records(text, path)
        timed = zip(records.configurations, records.times_s, strict=True)
        return pd.DataFrame([{**at, "seconds": s} for at, s in timed if not math.isnan(s)])
    if _EXTRA_P.match(text):
        return pd.DataFrame(_extra_p(text, path))
    return _table(text, path)


def read_records(path: Path | str) -> Records:
    """Read the file of a tuner."""
    return _records(_text(path), path)


def number_or_text(text: str) -> Value:
    """Return what a text stands for: a number, ``true`` or ``false``, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if not _NUMBER.fullmatch(text) or not any(character.isdigit() for character in text):
        return text
    value = float(text)
    if not abs(value) < _LARGEST:
        return text
    return value if set(text) & set(".eE") else int(text)


def _text(path: Path | str) -> str:
    content = read_content(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _bad("$", f"is no text in UTF-8 ({error}); read are: {KINDS}", path) from error
    if not text.strip():
        raise _bad("$", f"is empty; read are: {KINDS}", path)
    return text


def _bad(field: str, message: str, path: Path | str) -> DocumentError:
    return DocumentError(f"{path}: {field} {message}", path=str(path), field=field)


def _table(text: str, path: Path | str) -> pd.DataFrame:
    """Read a table whose columns are separated by commas, semicolons, tabs or bars."""
    import pandas as pd

    lines = (
        line
        for line in io.StringIO(text, newline=None)
        if line.strip() and not line.lstrip().startswith("#")
    )
    first = next(lines, "")
    separator = max(",;\t|", key=first.count)
    reader = csv.reader(
        chain([first], lines), delimiter=separator, strict=True, skipinitialspace=True
    )
    try:
        header = [name.strip() for name in next(reader)]
        if len(set(header)) < len(header):
            twice = next(name for name in header if header.count(name) > 1)
            raise TableError(f"{path}: two columns are called {twice!r}; drop one", column=twice)
        rows = list(_rows(reader, len(header), separator, path))
    except csv.Error as error:
        raise _bad("$", f"is no table: {error}; read are: {KINDS}", path) from error
    return pd.DataFrame(rows, columns=pd.Index(header), dtype=object)


def _rows(
    reader: Iterable[list[str]], width: int, separator: str, path: Path | str
) -> Iterator[list[Value | None]]:
    """Yield the rows of a table, each of the same width."""
    for number, row in enumerate(reader, 1):
        if len(row) != width:
            message = f"{path}: row {number} has {len(row)} cells, but there are {width}"
            raise TableError(f"{message} columns; write each of them", row=number)
        if number > _MAX_ROWS:
            raise TableError(f"{path} has more than {_MAX_ROWS} rows; split it", row=number)
        yield [_cell(cell.strip(), separator) for cell in row]


def _cell(text: str, separator: str) -> Value | None:
    """Return the value of a cell; where commas separate no columns, they separate decimals."""
    if separator != "," and re.fullmatch(r"[-+]?\d+,\d+([eE][-+]?\d+)?", text):
        text = text.replace(",", ".")
    return number_or_text(text) if text else None


def _extra_p(text: str, path: Path | str) -> list[dict[str, Value]]:
    """Read Extra-P's text format: a row per region and point, with the mean of its times."""
    names: list[str] = []
    points: list[list[Value]] = []
    region, metric, index = "", "", 0
    rows: list[dict[str, Value]] = []
    metrics: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        word, *values = re.split(r"[\s,]+", line.strip())
        rest = line.strip()[len(word) :].strip()
        if not word or word.startswith("#"):
            continue
        bad = f"{path}: line {number} of Extra-P's text format: "
        if word == "PARAMETER":
            names += values
        elif word == "POINTS":
            texts = re.findall(r"\(([^()]*)\)", rest) or (values if len(names) == 1 else [rest])
            points += [
                [number_or_text(part) for part in re.split(r"[\s,]+", point.strip())]
                for point in texts
            ]
            if any(len(point) != len(names) for point in points):
                raise TableError(f"{bad}a point needs a value of each of {', '.join(names)}")
        elif word == "REGION":  # a call path, such as main->axpy
            region, index = rest.rpartition("->")[2].strip(), 0
        elif word == "METRIC":
            metric, index = rest, 0
            metrics.append(rest)
        elif word == "DATA" and index < len(points):
            times = [number_or_text(part) for part in values]
            if not times or any(isinstance(part, str) for part in times):
                raise TableError(f"{bad}numbers are wanted, not {rest!r}")
            if metric.lower() == "time" or metric.lower() in _UNITS_S:
                mean_s = math.fsum(cast("list[float]", times)) / len(times)
                mean_s *= _UNITS_S.get(metric.lower(), 1.0)
                kernel = {"kernel": region} if region else {}
                rows.append(
                    {**kernel, **dict(zip(names, points[index], strict=True)), "seconds": mean_s}
                )
            index += 1
        else:
            known = "there are more lines of DATA than POINTS" if word == "DATA" else repr(word)
            raise TableError(f"{bad}{known}; read are PARAMETER, POINTS, REGION, METRIC, DATA")
    if not rows:
        raise TableError(
            f"{path}: Extra-P's text format without METRIC time (there is:"
            f" {', '.join(metrics) or 'none'}); name the metric of run times 'time', or a unit such"
            " as 'milliseconds'",
            column="seconds",
        )
    if any(part.lower() == "time" for part in metrics):
        warnings.warn(
            f"{path}: Extra-P's text format has no units; METRIC time is taken as seconds (else"
            " write the unit, such as METRIC milliseconds, or a .csv table with a column of that"
            " name)",
            CountperfWarning,
            stacklevel=4,
        )
    return rows


@dataclass(frozen=True, slots=True)
class _Field:
    """A value in a file of JSON, and where it stands."""

    value: Any
    path: Path | str
    location: str = "$"

    def bad(self, message: str) -> DocumentError:
        """Make an error about it."""
        return _bad(self.location, message, self.path)

    def get(self, name: str, default: object = None) -> _Field:
        """Return a field of an object."""
        value = self.object().get(name, default)
        return _Field(value, self.path, field_path((name,), root=self.location))

    def object(self) -> dict[str, Any]:
        """Return an object."""
        if not isinstance(self.value, dict):
            raise self.bad("is no object")
        return cast("dict[str, Any]", self.value)

    def list(self) -> list[_Field]:
        """Return the elements of a list."""
        if not isinstance(self.value, list):
            raise self.bad(f"is no list: {str(self.value)[:40]}")
        elements = cast("list[Any]", self.value)
        return [
            _Field(element, self.path, f"{self.location}[{number}]")
            for number, element in enumerate(elements)
        ]

    def rows(self) -> list[_Field]:
        """Return the elements of a list that is not empty."""
        rows = self.list()
        if not rows:
            raise self.bad("is an empty list")
        return rows

    def number(self) -> float:
        """Return a number that is not negative; nan for nothing, an error's name, or infinity."""
        value = number_or_text(self.value) if isinstance(self.value, str) else self.value
        if value is None or isinstance(value, str):
            return math.nan
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.bad(f"is no number: {str(value)[:40]}")
        if value < 0:
            raise self.bad(f"is negative: {value}")
        return float(value) if value < _FAILED else math.nan

    def time(self) -> float:
        """Return a time, which is positive; nan for what is none, such as an error's name."""
        time = self.number()
        if time == 0:
            raise self.bad("is no time: 0; a positive number is wanted")
        return time

    def unit_s(self) -> float:
        """Return a unit of time, s."""
        unit_s = _UNITS_S.get(str(self.value).lower())
        if unit_s is None:
            raise self.bad(f"is no unit of time: {self.value!r}; there are {', '.join(_UNITS_S)}")
        return unit_s

    def configuration(self) -> dict[str, Value]:
        """Return values of parameters."""
        configuration: dict[str, Value] = {}
        for name, value in self.object().items():
            plain = number_or_text(value) if isinstance(value, str) else value
            is_number = isinstance(plain, int | float) and abs(plain) < _LARGEST
            if not is_number and not isinstance(plain, str):
                message = f"is no number, text or truth value: {str(value)[:40]}"
                raise self.get(name).bad(message)
            configuration[name] = plain
        return configuration


_Record: TypeAlias = tuple[_Field, dict[str, Value], float]
"""Where it stands, its configuration, its time, s."""


def _records(text: str, path: Path | str) -> Records:
    content = _Field(_content(text, path), path)
    if not isinstance(content.value, dict):
        raise content.bad(f"is no object; read are: {KINDS}")
    if "cache" in content.value:
        name, device = (content.get(name).value for name in ("kernel_name", "device_name"))
        records = _kernel_tuner(content)
    elif "Results" in content.value:
        metadata, rows = content.get("Metadata"), content.get("Results").rows()
        name, device = rows[0].get("KernelName").value, metadata.get("Device").value
        records = _ktt(rows, metadata.get("TimeUnit").unit_s())
    elif "results" in content.value:
        metadata = content.get("metadata", {})
        name = metadata.get("kernel_name").value
        device = metadata.get("device_name").value or metadata.get("device").value
        records = _t4(content.get("results").rows(), metadata)
    else:
        raise content.bad(f"has none of the formats that are read: {KINDS}")
    repeated: dict[tuple[Value, ...], list[float]] = {}
    names: list[str] = []
    for where, configuration, time_s in records:
        names = names or list(configuration)
        if configuration.keys() != set(names):
            wanted, there = ", ".join(names), ", ".join(configuration)
            raise where.bad(f"has the parameters {there}; the first has {wanted}")
        repeated.setdefault(tuple(configuration[name] for name in names), []).append(time_s)
    times_s = tuple(map(_mean, repeated.values()))
    if all(map(math.isnan, times_s)):
        raise content.bad("has no configuration that ran")
    return Records(
        name=str(name or Path(path).name),
        device=str(device or "unknown"),
        configurations=tuple(dict(zip(names, values, strict=True)) for values in repeated),
        times_s=times_s,
    )


def _content(text: str, path: Path | str) -> object:
    """Parse JSON; Kernel Tuner's cache also without its last brackets, as a killed run leaves it.

    A last line that was cut short is left out.
    """
    try:
        return parse_json(text, path=path, allow_nan=True)
    except DocumentError as error:
        kept = text.rstrip()
        if '"cache"' not in text or error.offset is None:
            raise
        if not kept.endswith((",", "{", "}")):
            kept = kept.rpartition("\n")[0].rstrip()
        for end in ("}}", "}"):
            try:
                return parse_json(kept.removesuffix(",") + end, path=path, allow_nan=True)
            except DocumentError:
                continue
        raise


def _mean(times: Iterable[float]) -> float:
    known = [time for time in times if not math.isnan(time)]
    return math.fsum(known) / len(known) if known else math.nan


def _kernel_tuner(content: _Field) -> Iterator[_Record]:
    keys = content.get("tune_params_keys")
    names = [name.value for name in keys.list()]
    if not all(isinstance(name, str) for name in names):
        raise keys.bad("is no list of names")
    objective: Any = content.get("objective", "time").value
    objectives = [str(name) for name in (objective if isinstance(objective, list) else [objective])]
    cache = content.get("cache")
    for row in map(cache.get, cache.object()):
        fields = row.object()
        for name in names:
            if name not in fields:
                raise row.get(name).bad("is missing")
        failed = "__error__" in fields or any(
            isinstance(value := fields.get(name), str) and isinstance(number_or_text(value), str)
            for name in ("time", *objectives)
        )
        if not failed and "time" not in fields:
            said = f"is missing; the file's objective is {', '.join(objectives)}, which"
            message = f"{said} is no run time: tune with the objective time, or keep its field"
            raise row.get("time").bad(message)
        values = _Field({name: fields[name] for name in names}, row.path, row.location)
        yield row, values.configuration(), math.nan if failed else row.get("time").time() * 1e-3


def _t4(rows: Iterable[_Field], metadata: _Field) -> Iterator[_Record]:
    unit = metadata.get("timeunit")
    unit_s = unit.unit_s() if unit.value else math.nan
    for row in rows:
        times = row.get("times", {}).get("runtimes", []).list()
        runs = _Field(_mean([time_s.number() for time_s in times]), row.path, row.location)
        is_right = (
            row.get("invalidity", "correct").value == "correct"
            and row.get("correctness", 1).value != 0
        )
        configuration = row.get("configuration").configuration()
        yield row, configuration, _t4_time(row, runs, unit_s) if is_right else math.nan


def _t4_time(row: _Field, mean: _Field, unit_s: float) -> float:
    """Return the measured time, s: ``time``, the objective if it is a time, or the mean of runs."""
    objectives = [str(measured.value) for measured in row.get("objectives", []).list()]
    value = mean
    for measured in row.get("measurements", []).list():
        name, unit = measured.get("name").value, measured.get("unit")
        if name == "time" or (name in objectives and str(unit.value).lower() in _UNITS_S):
            value = measured.get("value")
            unit_s = unit.unit_s() if unit.value else unit_s
            break
    time = value.time()
    if math.isnan(time) and value is mean:
        said = f"a correct result without a time (its objective: {', '.join(objectives) or 'none'})"
        raise row.bad(f"is {said}")
    if math.isnan(unit_s) and not math.isnan(time):
        message = "has a time without a unit: add timeunit to $.metadata, such as milliseconds"
        raise row.bad(message)
    return time * unit_s


def _ktt(rows: Iterable[_Field], unit_s: float) -> Iterator[_Record]:
    for row in rows:
        pairs: dict[str, Any] = {}
        listed = row.get("Configuration")
        for pair in listed.rows():
            name = pair.get("Name")
            if not isinstance(name.value, str) or name.value in pairs:
                raise name.bad(f"is no name of its own: {str(name.value)[:40]}")
            pairs[name.value] = pair.get("Value").value
        configuration = _Field(pairs, row.path, listed.location).configuration()
        ran = row.get("Status").value == "Ok"
        yield row, configuration, row.get("TotalDuration").time() * unit_s if ran else math.nan
