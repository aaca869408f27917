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
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
class Record:
    """A configuration that a tuner measured."""

    place: str  # path of its field in the file
    configuration: dict[str, Value]  # a value for each parameter
    time_s: float  # its run time, s


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Content of a tuner's file."""

    name: str  # kernel and device, as the file names them
    device: str
    records: tuple[Record, ...]  # at least one of them ran


def read_times(path: Path | str) -> pd.DataFrame:
    """Read a table of times from any file of this module."""
    import pandas as pd

    text = _text(path)
    if text.lstrip()[:1] in ("{", "["):
        ran = [each for each in _records(text, path).records if not math.isnan(each.time_s)]
        return pd.DataFrame([{**each.configuration, "seconds": each.time_s} for each in ran])
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
    if not _NUMBER.fullmatch(text) or not any(each.isdigit() for each in text):
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


def _bad(place: str, message: str, path: Path | str) -> DocumentError:
    return DocumentError(f"{path}: {place} {message}", path=str(path), field=place)


def _table(text: str, path: Path | str) -> pd.DataFrame:
    """Read a table whose columns are separated by commas, semicolons, tabs or bars."""
    import pandas as pd

    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    separator = max(",;\t|", key=lines[0].count) if lines else ","
    try:
        rows = list(csv.reader(lines, delimiter=separator, strict=True, skipinitialspace=True))
    except csv.Error as error:
        raise _bad("$", f"is no table: {error}; read are: {KINDS}", path) from error
    header = [name.strip() for name in rows[0]] if rows else []
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise TableError(f"{path}: two columns are called {twice!r}; drop one", column=twice)
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(header):
            message = f"{path}: row {number} has {len(row)} cells, but there are {len(header)}"
            raise TableError(f"{message} columns; write each of them", row=number)
    cells = [[_cell(cell.strip(), separator) for cell in row] for row in rows[1:]]
    return pd.DataFrame(cells, columns=pd.Index(header), dtype=object)


def _cell(text: str, separator: str) -> Value | None:
    """Return the value of a cell; where commas separate no columns, they separate decimals."""
    if separator != "," and re.fullmatch(r"[-+]?\d+,\d+([eE][-+]?\d+)?", text):
        text = text.replace(",", ".")
    return number_or_text(text) if text else None


def _extra_p(text: str, path: Path | str) -> list[dict[str, Value]]:
    """Read Extra-P's text format: a row per region and point, with the mean of its times."""
    names: list[str] = []
    points: list[list[Value]] = []
    region, metric, place = "", "", 0
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
            found = re.findall(r"\(([^()]*)\)", rest) or (values if len(names) == 1 else [rest])
            points += [
                [number_or_text(each) for each in re.split(r"[\s,]+", point.strip())]
                for point in found
            ]
            if any(len(point) != len(names) for point in points):
                raise TableError(f"{bad}a point needs a value of each of {', '.join(names)}")
        elif word == "REGION":  # a call path, such as main->axpy
            region, place = rest.rpartition("->")[2].strip(), 0
        elif word == "METRIC":
            metric, place = rest, 0
            metrics.append(rest)
        elif word == "DATA" and place < len(points):
            times = [number_or_text(each) for each in values]
            if not times or any(isinstance(each, str) for each in times):
                raise TableError(f"{bad}numbers are wanted, not {rest!r}")
            if metric.lower() == "time" or metric.lower() in _UNITS_S:
                mean_s = math.fsum(cast("list[float]", times)) / len(times)
                mean_s *= _UNITS_S.get(metric.lower(), 1.0)
                kernel = {"kernel": region} if region else {}
                rows.append(
                    {**kernel, **dict(zip(names, points[place], strict=True)), "seconds": mean_s}
                )
            place += 1
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
    if any(each.lower() == "time" for each in metrics):
        warnings.warn(
            f"{path}: Extra-P's text format has no units; METRIC time is taken as seconds (else"
            " write the unit, such as METRIC milliseconds, or a .csv table with a column of that"
            " name)",
            CountperfWarning,
            stacklevel=4,
        )
    return rows


def _records(text: str, path: Path | str) -> Records:
    content = _content(text, path)
    if not isinstance(content, dict):
        raise _bad("$", f"is no object; read are: {KINDS}", path)
    fields = cast("dict[str, Any]", content)
    if "cache" in fields:
        name, device = fields.get("kernel_name"), fields.get("device_name")
        found = _kernel_tuner(fields, path)
    elif "Results" in fields:
        metadata = _object(fields.get("Metadata"), path, "$.Metadata")
        device = metadata.get("Device")
        rows = _rows(fields["Results"], path, "$.Results")
        name, found = rows[0][1].get("KernelName"), _ktt(rows, metadata, path)
    elif "results" in fields:
        metadata = _object(fields.get("metadata", {}), path, "$.metadata")
        name = metadata.get("kernel_name")
        device = metadata.get("device_name") or metadata.get("device")
        found = _t4(_rows(fields["results"], path, "$.results"), metadata, path)
    else:
        raise _bad("$", f"has none of the formats that are read: {KINDS}", path)
    return Records(
        name=str(name or Path(path).name),
        device=str(device or "unknown"),
        records=_checked(found, path),
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


def _checked(found: Iterable[Record], path: Path | str) -> tuple[Record, ...]:
    """Make one record of those of each configuration; refuse other parameters, and no times."""
    repeated: dict[tuple[Value, ...], list[Record]] = {}
    names: list[str] = []
    for each in found:
        names = names or list(each.configuration)
        if each.configuration.keys() != set(names):
            wanted, there = ", ".join(names), ", ".join(each.configuration)
            raise _bad(each.place, f"has the parameters {there}; the first has {wanted}", path)
        repeated.setdefault(tuple(each.configuration[name] for name in names), []).append(each)
    records = tuple(
        Record(
            place=same[0].place,
            configuration={name: same[0].configuration[name] for name in names},
            time_s=_mean([each.time_s for each in same]),
        )
        for same in repeated.values()
    )
    if all(math.isnan(each.time_s) for each in records):
        raise _bad("$", "has no configuration that ran", path)
    return records


def _mean(times: Iterable[float]) -> float:
    known = [time for time in times if not math.isnan(time)]
    return math.fsum(known) / len(known) if known else math.nan


def _object(content: object, path: Path | str, place: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise _bad(place, "is no object", path)
    return cast("dict[str, Any]", content)


def _list(content: object, path: Path | str, place: str) -> list[Any]:
    if not isinstance(content, list):
        raise _bad(place, f"is no list: {str(content)[:40]}", path)
    return cast("list[Any]", content)


def _rows(content: object, path: Path | str, place: str) -> list[tuple[str, dict[str, Any]]]:
    rows = _list(content, path, place)
    if not rows:
        raise _bad(place, "is an empty list", path)
    return [
        (f"{place}[{number}]", _object(row, path, f"{place}[{number}]"))
        for number, row in enumerate(rows)
    ]


def _number(value: object, path: Path | str, place: str) -> float:
    """Return a number that is not negative; nan for nothing, an error's name, or infinity."""
    value = number_or_text(value) if isinstance(value, str) else value
    if value is None or isinstance(value, str):
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad(place, f"is no number: {str(value)[:40]}", path)
    if value < 0:
        raise _bad(place, f"is negative: {value}", path)
    return float(value) if value < _FAILED else math.nan


def _time(value: object, path: Path | str, place: str) -> float:
    """Return a time, which is positive; nan for what is none, such as an error's name."""
    found = _number(value, path, place)
    if found == 0:
        raise _bad(place, "is no time: 0; a positive number is wanted", path)
    return found


def _configuration(content: Mapping[str, Any], path: Path | str, place: str) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, value in content.items():
        plain = number_or_text(value) if isinstance(value, str) else value
        is_number = isinstance(plain, int | float) and abs(plain) < _LARGEST
        if not is_number and not isinstance(plain, str):
            place = field_path((name,), root=place)
            raise _bad(place, f"is no number, text or truth value: {str(value)[:40]}", path)
        found[name] = plain
    return found


def _unit_s(unit: object, path: Path | str, place: str) -> float:
    found = _UNITS_S.get(str(unit).lower())
    if found is None:
        raise _bad(place, f"is no unit of time: {unit!r}; there are {', '.join(_UNITS_S)}", path)
    return found


def _kernel_tuner(content: dict[str, Any], path: Path | str) -> Iterator[Record]:
    names = _list(content.get("tune_params_keys"), path, "$.tune_params_keys")
    if not all(isinstance(name, str) for name in names):
        raise _bad("$.tune_params_keys", "is no list of names", path)
    objective = content.get("objective", "time")
    objectives = cast("list[Any]", objective if isinstance(objective, list) else [objective])
    cache = _object(content["cache"], path, "$.cache")
    for key, row in cache.items():
        place = field_path(("cache", key))
        fields = _object(row, path, place)
        for name in names:
            if name not in fields:
                raise _bad(f"{place}.{name}", "is missing", path)
        failed = "__error__" in fields or any(
            isinstance(value := fields.get(each), str) and isinstance(number_or_text(value), str)
            for each in ("time", *map(str, objectives))
        )
        if not failed and "time" not in fields:
            said = f"is missing; the file's objective is {', '.join(map(str, objectives))}, which"
            message = f"{said} is no run time: tune with the objective time, or keep its field"
            raise _bad(f"{place}.time", message, path)
        yield Record(
            place=place,
            configuration=_configuration({name: fields[name] for name in names}, path, place),
            time_s=math.nan if failed else _time(fields["time"], path, f"{place}.time") * 1e-3,
        )


def _t4(
    rows: Iterable[tuple[str, dict[str, Any]]], metadata: Mapping[str, Any], path: Path | str
) -> Iterator[Record]:
    unit = metadata.get("timeunit")
    unit_s = _unit_s(unit, path, "$.metadata.timeunit") if unit else math.nan
    for place, row in rows:
        configuration = _object(row.get("configuration"), path, f"{place}.configuration")
        times = _object(row.get("times", {}), path, f"{place}.times")
        at = f"{place}.times.runtimes"
        runtimes = [_number(run, path, at) for run in _list(times.get("runtimes", []), path, at)]
        is_right = row.get("invalidity", "correct") == "correct" and row.get("correctness", 1) != 0
        yield Record(
            place=place,
            configuration=_configuration(configuration, path, f"{place}.configuration"),
            time_s=_t4_time(place, row, _mean(runtimes), unit_s, path) if is_right else math.nan,
        )


def _t4_time(
    place: str, row: Mapping[str, Any], mean: float, unit_s: float, path: Path | str
) -> float:
    """Return the measured time, s: ``time``, the objective if it is a time, or the mean of runs."""
    objectives = [str(each) for each in _list(row.get("objectives", []), path, place)]
    at = f"{place}.measurements"
    value: object = mean
    for each in _list(row.get("measurements", []), path, at):
        measured = _object(each, path, at)
        own_s = _UNITS_S.get(str(measured.get("unit")).lower())
        if measured.get("name") == "time" or (measured.get("name") in objectives and own_s):
            value = measured.get("value")
            own = measured.get("unit")
            unit_s = _unit_s(own, path, f"{at}.unit") if own else unit_s
            break
    time = _time(value, path, at)
    if math.isnan(time) and value is mean:
        said = f"a correct result without a time (its objective: {', '.join(objectives) or 'none'})"
        raise _bad(place, f"is {said}", path)
    if math.isnan(unit_s) and not math.isnan(time):
        message = "has a time without a unit: add timeunit to $.metadata, such as milliseconds"
        raise _bad(place, message, path)
    return time * unit_s


def _ktt(
    rows: Iterable[tuple[str, dict[str, Any]]], metadata: Mapping[str, Any], path: Path | str
) -> Iterator[Record]:
    unit_s = _unit_s(metadata.get("TimeUnit"), path, "$.Metadata.TimeUnit")
    for place, row in rows:
        at = f"{place}.Configuration"
        configuration: dict[str, Any] = {}
        for one, pair in _rows(row.get("Configuration"), path, at):
            name = pair.get("Name")
            if not isinstance(name, str) or name in configuration:
                raise _bad(f"{one}.Name", f"is no name of its own: {str(name)[:40]}", path)
            configuration[name] = pair.get("Value")
        ran = row.get("Status") == "Ok"
        total = f"{place}.TotalDuration"
        yield Record(
            place=place,
            configuration=_configuration(configuration, path, at),
            time_s=_time(row.get("TotalDuration"), path, total) * unit_s if ran else math.nan,
        )
