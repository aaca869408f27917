"""Read times that tuners recorded as tables: Kernel Tuner's cache files, and T4 results.

Their tables have a column per tuning parameter, ``seconds``, ``runs``, and ``failure`` (empty where
there is a time). With a column ``kernel``, and sizes where the kernel has any, they are what
`countperf.MeasurementSet.from_table` reads.

Sources: https://kerneltuner.github.io (cache files; times in ms), and the T4 results schema
(https://github.com/odgaard/TuningSchema, version 1.0.0).
"""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.documents import parse_json, read_bytes
from countperf.errors import DocumentError

if TYPE_CHECKING:
    import pandas as pd

_UNITS_S = {
    **dict.fromkeys(("s", "seconds"), 1.0),
    **dict.fromkeys(("ms", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nanoseconds"), 1e-9),
}
_GZIP = b"\x1f\x8b"


def read_times(path: Path | str) -> pd.DataFrame:
    """Read a table of times: CSV, a cache file of Kernel Tuner, or T4 results.

    Parameters
    ----------
    path : Path or str
        The file; ``.csv`` (also ``.csv.gz``), or ``.json`` (also ``.json.gz``).

    Returns
    -------
    DataFrame
        The table; of a tuner's file without the configurations that failed.

    Raises
    ------
    DocumentError
        The file is missing, damaged, or none of these.
    """
    import pandas as pd

    if str(path).endswith((".csv", ".csv.gz")):
        read_bytes(path)  # says why it cannot be read
        try:
            return pd.read_csv(path, comment="#").convert_dtypes()
        except (ValueError, OSError) as error:
            raise _bad("$", f"no table: {error}", path) from error
    content = _content(path, open_end="}}")
    readers = {"cache": read_kernel_tuner_cache, "results": read_t4_results}
    for name, reader in readers.items():
        if name in content:
            table = reader(path)
            rows = [row for row in table.to_dict("records") if row["failure"] == ""]
            return pd.DataFrame(rows).drop(columns=["failure", "runs"], errors="ignore")
    raise _bad("$", "no cache of Kernel Tuner (cache) and no T4 results (results)", path)


def read_kernel_tuner_cache(path: Path | str) -> pd.DataFrame:
    """Read a cache file of Kernel Tuner.

    Parameters
    ----------
    path : Path or str
        The file, ``.json`` or ``.json.gz``; one that a search left open (without the brackets at
        its end) is read, too.

    Returns
    -------
    DataFrame
        A row per configuration.

    Raises
    ------
    DocumentError
        The file is missing or damaged, or a configuration lacks a parameter or a time.
    """
    content = _content(path, open_end="}}")
    names = _field(content, "tune_params_keys", list, "$", path)
    cache = _field(content, "cache", dict, "$", path)
    rows: list[dict[str, Any]] = []
    for key, entry in cache.items():
        where = f'$.cache["{key}"]'
        if not isinstance(entry, dict):
            raise _bad(where, "a configuration is wanted", path)
        choice = {name: _present(entry, name, where, path) for name in names}
        time = _present(entry, "time", where, path)
        runs = entry.get("times")
        if isinstance(time, str):  # the name of a failure
            rows.append({**choice, "seconds": math.nan, "runs": 0, "failure": time})
            continue
        seconds = _positive(time, f"{where}.time", path) * _UNITS_S["ms"]
        number = len(runs) if isinstance(runs, list) else 1
        rows.append({**choice, "seconds": seconds, "runs": number, "failure": ""})
    return _frame(rows)


def read_t4_results(path: Path | str) -> pd.DataFrame:
    """Read a file of T4 results.

    Parameters
    ----------
    path : Path or str
        The file, ``.json`` or ``.json.gz``.

    Returns
    -------
    DataFrame
        A row per result, in the file's order; the time is the measurement ``time`` if there is one,
        else the mean of the run times.

    Raises
    ------
    DocumentError
        The file is missing or damaged, or has a unit of time that is not known.
    """
    content = _content(path)
    metadata = content.get("metadata")
    unit = metadata.get("timeunit") if isinstance(metadata, dict) else None
    results = _field(content, "results", list, "$", path)
    rows: list[dict[str, Any]] = []
    for number, entry in enumerate(results):
        where = f"$.results[{number}]"
        if not isinstance(entry, dict):
            raise _bad(where, "a result is wanted", path)
        choice = _field(entry, "configuration", dict, where, path)
        times = entry.get("times")
        runs: Any = times.get("runtimes", ()) if isinstance(times, dict) else ()
        measured: Any = entry.get("measurements") or ()
        named = [each for each in measured if isinstance(each, dict) and each.get("name") == "time"]
        invalidity = str(entry.get("invalidity", "correct"))
        row = {**choice, "seconds": math.nan, "runs": len(runs), "failure": invalidity}
        if invalidity == "correct":
            if named:
                value, own = named[0].get("value"), named[0].get("unit") or unit
            elif runs:
                value, own = sum(runs) / len(runs), unit
            else:
                raise _bad(where, "a correct result has no time", path)
            if own not in _UNITS_S:
                known = ", ".join(_UNITS_S)
                raise _bad(where, f"{own!r} is no unit of time ({known})", path)
            row["seconds"] = _positive(value, where, path) * _UNITS_S[own]
            row["failure"] = ""
        rows.append(row)
    return _frame(rows)


def _content(path: Path | str, *, open_end: str = "") -> dict[str, Any]:
    """Return the object of a JSON file that may be compressed, or cut off before its end."""
    raw = read_bytes(path)
    try:
        text = (gzip.decompress(raw) if raw.startswith(_GZIP) else raw).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise _bad("$", f"no text, and no gzip file: {error}", path) from error
    stripped = text.rstrip().removesuffix(",")
    try:
        content = parse_json(text, path=path)
    except DocumentError:
        if not open_end or not stripped.endswith(("}", "{")):
            raise
        content = parse_json(stripped + open_end, path=path)
    if not isinstance(content, dict):
        raise _bad("$", "an object is wanted", path)
    return content


def _field(content: dict[str, Any], name: str, kind: type, where: str, path: Path | str) -> Any:
    value = _present(content, name, where, path)
    if not isinstance(value, kind):
        raise _bad(f"{where}.{name}", f"a {kind.__name__} is wanted", path)
    return value


def _present(content: dict[str, Any], name: str, where: str, path: Path | str) -> Any:
    if name not in content:
        raise _bad(f"{where}.{name}", "missing", path)
    return content[name]


def _positive(value: Any, where: str, path: Path | str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value <= 0:
        raise _bad(where, f"{value!r} is no time; a positive number is wanted", path)
    return float(value)


def _bad(where: str, message: str, path: Path | str) -> DocumentError:
    return DocumentError(f"{path}: {where}: {message}", path=str(path), field=where)


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows)
