"""Search spaces whose configurations were measured by others, read from files of other tuners.

Formats: Kernel Tuner's cache files, T4 results (schema 1.0.0 of the autotuning community), and the
output of the Kernel Tuning Toolkit (KTT); plain or compressed by gzip. Times become seconds. A
configuration that failed has no time. What measuring a configuration took (compiling, checking,
running) is its cost, so that a search can be judged by what it would have spent.

Sources: Kernel Tuner 1.5, ``process_cache``, and ``schema/T4/1.0.0/results-schema.json`` shipped
with it; the fields of KTT 2.1's JSON output.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.documents import parse_json, read_content
from countperf.errors import DocumentError, ParameterError
from countperf.tuning.space import Choice, Value

_UNITS_S = {
    **dict.fromkeys(("s", "seconds"), 1.0),
    **dict.fromkeys(("ms", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nanoseconds"), 1e-9),
}
_MS = 1e-3
_FAILED_MS = 1e19  # Kernel Tuner wrote times of at least that for what failed
_KERNEL_TUNER_COSTS = ("compile_time", "verification_time", "benchmark_time")
_KINDS = (
    "a Kernel Tuner cache has the fields tune_params_keys and cache, a T4 file results, the output"
    " of KTT Metadata and Results"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedSpace(ShortRepr):
    """Configurations of a kernel with the times that somebody measured.

    Attributes
    ----------
    name, device : str
        Kernel and device, as the file names them.
    configurations : tuple of Mapping from str to value
        Each with a value for each parameter.
    times_s : ndarray, shape (n,)
        Run time of each configuration, s; nan where it failed.
    costs_s : ndarray, shape (n,)
        What measuring each took, s; nan where the file does not say.
    """

    name: str
    device: str
    configurations: tuple[Choice, ...]
    times_s: NDArray[np.float64]
    costs_s: NDArray[np.float64]

    @classmethod
    def read_file(cls, path: Path | str) -> RecordedSpace:
        """Read a file of one of the formats of this module.

        Raises
        ------
        DocumentError
            The file cannot be read, is of no such format, or has a value that is none of its
            format; the message names the entry.
        """
        content = parse_json(_text(path), path=path)
        if not isinstance(content, dict):
            raise _bad(path, "$", f"is no object: {_KINDS}")
        found = cast("dict[str, Any]", content)
        if "tune_params_keys" in found and "cache" in found:
            entries = _kernel_tuner(found, path)
            name, device = found.get("kernel_name"), found.get("device_name")
        elif "Results" in found:
            metadata = _object(found.get("Metadata"), path, "$.Metadata")
            entries, device = _ktt(found["Results"], metadata, path), metadata.get("Device")
            name = next((row.get("KernelName") for row in found["Results"]), None)
        elif "results" in found:
            metadata = _object(found.get("metadata", {}), path, "$.metadata")
            entries = _t4(found["results"], metadata, path)
            name, device = metadata.get("kernel_name"), metadata.get("device_name")
        else:
            raise _bad(path, "$", f"has none of the formats that are read: {_KINDS}")
        return cls._of(path, str(name or Path(path).name), str(device or "unknown"), entries)

    @classmethod
    def _of(
        cls, path: Path | str, name: str, device: str, entries: Iterable[_Entry]
    ) -> RecordedSpace:
        rows = list(entries)
        if not any(math.isfinite(row.time_s) for row in rows):
            raise _bad(path, "$", "has no configuration that ran")
        names = rows[0].configuration.keys()
        for row in rows:
            if row.configuration.keys() != names:
                wanted, found = ", ".join(names), ", ".join(row.configuration)
                raise _bad(path, row.place, f"has the parameters {found}; the first has {wanted}")
        return cls(
            name=name,
            device=device,
            configurations=tuple(row.configuration for row in rows),
            times_s=np.array([row.time_s for row in rows]),
            costs_s=np.array([row.cost_s for row in rows]),
        )

    @property
    def parameters(self) -> dict[str, tuple[Value, ...]]:
        """Values of each parameter, in the order in which they come."""
        return {
            name: tuple(dict.fromkeys(each[name] for each in self.configurations))
            for name in self.configurations[0]
        }

    @property
    def best_s(self) -> float:
        """Shortest time, s."""
        return float(np.nanmin(self.times_s))

    def where(self, **values: Value) -> RecordedSpace:
        """Return the configurations that have these values.

        Raises
        ------
        DocumentError
            None of them ran.
        """
        kept = [
            place
            for place, each in enumerate(self.configurations)
            if all(each.get(name) == value for name, value in values.items())
        ]
        if not np.isfinite(self.times_s[kept]).any():
            raise DocumentError(
                f"no configuration of '{self.name}' with {values} ran; values: {self.parameters}",
                path=None,
            )
        return RecordedSpace(
            name=self.name,
            device=self.device,
            configurations=tuple(self.configurations[place] for place in kept),
            times_s=self.times_s[kept],
            costs_s=self.costs_s[kept],
        )

    def times_of(self, configurations: Sequence[Choice]) -> NDArray[np.float64]:
        """Return the times of configurations of another file, s; nan where this one has none."""
        known: dict[tuple[tuple[str, Value | None], ...], float] = {
            tuple(each.items()): float(time_s)
            for each, time_s in zip(self.configurations, self.times_s, strict=True)
        }
        names = tuple(self.configurations[0])
        return np.array(
            [
                known.get(tuple((name, each.get(name)) for name in names), np.nan)
                for each in configurations
            ],
            np.float64,
        )


def read_value(text: str) -> tuple[str, Value]:
    """Read ``name=value``: a number, ``true`` or ``false``, else a text.

    Raises
    ------
    ParameterError
        There is no name or no value.

    Examples
    --------
    >>> read_value("block_size_x=32"), read_value("layout=soa")
    (('block_size_x', 32), ('layout', 'soa'))
    """
    name, _, written = text.partition("=")
    if not name or not written:
        raise ParameterError(
            f"{text!r} is no name=value, such as block_size_x=32", parameter="where"
        )
    try:
        value = json.loads(written)
    except json.JSONDecodeError:
        return name, written
    return name, value if isinstance(value, bool | int | float) else written


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    place: str
    configuration: dict[str, Value]
    time_s: float
    cost_s: float


def _text(path: Path | str) -> str:
    try:
        return read_content(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad(path, "$", f"is no text: {error}") from error


def _bad(path: Path | str, field: str, message: str) -> DocumentError:
    return DocumentError(f"{path}: {field} {message}", path=str(path), field=field)


def _object(content: object, path: Path | str, place: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise _bad(path, place, "is no object")
    return cast("dict[str, Any]", content)


def _rows(content: object, path: Path | str, place: str) -> list[dict[str, Any]]:
    if not isinstance(content, list) or not content:
        raise _bad(path, place, "is no list of configurations")
    rows = cast("list[object]", content)
    return [_object(row, path, f"{place}[{number}]") for number, row in enumerate(rows)]


def _number(value: object, path: Path | str, place: str) -> float:
    """Return a time that is not negative; nan for what is none (an error's name, infinity)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    if value < 0:
        raise _bad(path, place, f"is negative: {value}")
    return float(value) if math.isfinite(value) else math.nan


def _configuration(
    content: Mapping[str, Any], names: Iterable[str], path: Path | str, place: str
) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name in names:
        value = content.get(name)
        if not isinstance(value, bool | int | float | str):
            raise _bad(path, f"{place}.{name}", f"is no number, text or truth value: {value!r}")
        found[name] = value
    return found


def _sum(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) if known else math.nan


def _kernel_tuner(content: dict[str, Any], path: Path | str) -> Iterable[_Entry]:
    names = content["tune_params_keys"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _bad(path, "$.tune_params_keys", "is no list of names")
    for key, row in _object(content["cache"], path, "$.cache").items():
        place = f"$.cache[{key!r}]"
        fields = _object(row, path, place)
        time_ms = _number(fields.get("time"), path, f"{place}.time")
        costs = [_number(fields.get(name), path, place) * _MS for name in _KERNEL_TUNER_COSTS]
        yield _Entry(
            place=place,
            configuration=_configuration(fields, cast("list[str]", names), path, place),
            time_s=time_ms * _MS if 0 < time_ms < _FAILED_MS else math.nan,
            cost_s=_sum(costs),
        )


def _t4(results: object, metadata: Mapping[str, Any], path: Path | str) -> Iterable[_Entry]:
    unit_s = _unit_s(metadata.get("timeunit", "milliseconds"), path, "$.metadata.timeunit")
    for number, row in enumerate(_rows(results, path, "$.results")):
        place = f"$.results[{number}]"
        content = _object(row.get("configuration"), path, f"{place}.configuration")
        times = _object(row.get("times", {}), path, f"{place}.times")
        runs = times.get("runtimes", [])
        runs = runs if isinstance(runs, list) else []
        runtimes = [
            _number(run, path, f"{place}.times.runtimes") for run in cast("list[object]", runs)
        ]
        measured = [
            _number(each.get("value"), path, f"{place}.measurements")
            * _unit_s(each.get("unit") or "ms", path, f"{place}.measurements")
            for each in row.get("measurements", [])
            if isinstance(each, dict) and each.get("name") == "time"
        ]
        ran = row.get("invalidity", "correct") == "correct" and (measured or runtimes)
        mean = math.fsum(runtimes) / len(runtimes) * unit_s if runtimes else math.nan
        spent = [
            _number(times.get(name), path, f"{place}.times.{name}")
            for name in ("compilation_time", "compilation", "validation", "benchmark")
        ]
        yield _Entry(
            place=place,
            configuration=_configuration(content, content, path, f"{place}.configuration"),
            time_s=(measured[0] if measured else mean) or math.nan if ran else math.nan,
            cost_s=_sum([each * unit_s for each in (*spent, *runtimes)]),
        )


def _ktt(results: object, metadata: Mapping[str, Any], path: Path | str) -> Iterable[_Entry]:
    unit_s = _unit_s(metadata.get("TimeUnit", "Microseconds"), path, "$.Metadata.TimeUnit")
    for number, row in enumerate(_rows(results, path, "$.Results")):
        place = f"$.Results[{number}]"
        pairs = _rows(row.get("Configuration"), path, f"{place}.Configuration")
        content = {str(pair.get("Name")): pair.get("Value") for pair in pairs}
        time_s = _number(row.get("TotalDuration"), path, f"{place}.TotalDuration") * unit_s
        costs = [
            _number(row.get(name), path, f"{place}.{name}")
            for name in ("TotalDuration", "TotalOverhead")
        ]
        yield _Entry(
            place=place,
            configuration=_configuration(content, content, path, f"{place}.Configuration"),
            time_s=time_s if row.get("Status") == "Ok" and time_s > 0 else math.nan,
            cost_s=_sum(costs) * unit_s,
        )


def _unit_s(unit: object, path: Path | str, place: str) -> float:
    found = _UNITS_S.get(str(unit).lower())
    if found is None:
        known = ", ".join(_UNITS_S)
        raise _bad(path, place, f"is no unit of time: {unit!r}; there are {known}")
    return found
