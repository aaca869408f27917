"""Measurements from times that a profiler, a cluster or a paper gave, or another tuner recorded.

`MeasurementSet.from_table` says which columns a table has. In a file (.csv), lines that begin with
``#`` are skipped. Of a cache of Kernel Tuner (.json; 1.5, ``process_cache``), a configuration that
ran becomes a row of its parameters and its ``time``, ms.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ConfigDict

from countperf.counting.size_parameters import check_range, size_ranges
from countperf.counting.structure.memory_hierarchy import CountedCaches
from countperf.devices.identity import DeviceIdentity
from countperf.documents import Part, parse_json, validate
from countperf.errors import CountingError, DocumentError, ParameterError, TableError, option
from countperf.measuring.cases import (
    PURPOSES,
    Environment,
    Header,
    KernelCase,
    Measurement,
    Protocol,
)
from countperf.store import make_file_error, read_content
from countperf.user_code import describe_failure

if TYPE_CHECKING:
    import pandas as pd

ELSEWHERE = "measured elsewhere; spread and noise are not known"  # remark of every line
UNKNOWN = "unknown"  # of an environment that nobody noted
# columns that may hold the time, and their unit, s
_SECONDS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
_TEXTS = ("case", "family", "variant", "purpose")
_FAILED_MS = 1e19  # Kernel Tuner wrote times of at least that for what failed
_KINDS = (
    "a table (.csv) with a column of times, such as seconds; and a cache of Kernel Tuner (.json,"
    " with the fields tune_params_keys and cache); each also compressed by gzip"
)


def read_times(path: Path | str) -> pd.DataFrame:
    """Read a table of times from a file."""
    try:
        text = read_content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise make_file_error(f"no text in UTF-8 ({error}); read are: {_KINDS}", path) from error
    if not text.strip():
        raise make_file_error(f"the file is empty; read are: {_KINDS}", path)
    return (_read_cache if text.lstrip()[0] in "{[" else _read_table)(text, path)


def _read_table(text: str, path: Path | str) -> pd.DataFrame:
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # of rows that are too long
            table = pd.read_csv(
                io.StringIO(text), comment="#", skipinitialspace=True, index_col=False, dtype=object
            )
    except (ValueError, pd.errors.ParserWarning) as error:
        raise make_file_error(f"no table: {error}; read are: {_KINDS}", path) from error
    table.columns = table.columns.str.strip()
    return table.map(_parse_cell)


def _parse_cell(cell: Any) -> bool | float | str:
    """Return what a cell stands for: a number, ``true`` or ``false``, else the text."""
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(cell)
    text = str(cell).strip()
    return {"true": True, "false": False}.get(text.lower(), text)


class _Cache(Part):
    """The fields of a cache of Kernel Tuner that are read."""

    model_config = ConfigDict(extra="ignore")

    tune_params_keys: tuple[str, ...]
    objective: str | tuple[str, ...] = "time"
    cache: dict[str, dict[str, Any]]


def _read_cache(text: str, path: Path | str) -> pd.DataFrame:
    import pandas as pd

    try:
        parsed = parse_json(text, path=path, allow_nan=True)
    except DocumentError:  # a killed run leaves the brackets open, and its last line cut short
        kept = text.rstrip()
        if not kept.endswith((",", "{", "}")):
            kept = kept.rpartition("\n")[0].rstrip()
        parsed = parse_json(kept.removesuffix(",") + "}}", path=path, allow_nan=True)
    if not isinstance(parsed, dict) or "cache" not in parsed:
        raise make_file_error(f"no cache of Kernel Tuner; read are: {_KINDS}", path)
    content = validate(_Cache, parsed, path=path)
    names, objectives = content.tune_params_keys, content.objective
    of_time = ("time", *([objectives] if isinstance(objectives, str) else objectives))
    times: list[dict[str, Any]] = []
    for key, row in content.cache.items():
        if "__error__" in row or any(isinstance(row.get(name), str) for name in of_time):
            continue
        for name in (*names, "time"):
            if name not in row:
                mend = ": tune with the objective time, or keep its field" if name == "time" else ""
                raise make_file_error(f"$.cache[{key!r}] has no field {name!r}{mend}", path)
        time_ms = row["time"]
        if isinstance(time_ms, bool | list | dict) or (time_ms is not None and time_ms <= 0):
            raise make_file_error(f"$.cache[{key!r}].time is no time: {time_ms}", path)
        if time_ms is not None and time_ms < _FAILED_MS:
            times.append({**{name: row[name] for name in names}, "milliseconds": time_ms})
    if not times:
        raise make_file_error("$.cache has no configuration that ran", path)
    return pd.DataFrame(times)


def identity_elsewhere(slug: str, name: str, compute_units: int) -> DeviceIdentity:
    """Return the identity of a GPU of which only name and compute units are known."""
    return DeviceIdentity(
        slug=slug,
        platform=UNKNOWN,
        vendor=UNKNOWN,
        name=name,
        driver_version=UNKNOWN,
        device_type="gpu",
        compute_units=compute_units,
    )


def table_header(device: DeviceIdentity, source: str) -> Header:
    """Return the header of measurements from a table."""
    return Header(
        device=device,
        protocol=Protocol(
            name=f"elsewhere: {source}" if source else "elsewhere",
            rounds=1,
            runs=1,
            drops=0,
            spread_limit=1.0,
            noise_limit=1.0,
        ),
        environment=Environment(
            recorded_at=UNKNOWN, operating_system=UNKNOWN, processor=UNKNOWN, cores=0
        ),
    )


def lines_of_table(
    table: pd.DataFrame, kernels: Mapping[str, Any], *, ignore: Sequence[str], caches: CountedCaches
) -> tuple[Measurement, ...]:
    """Return a measurement for each row of a table."""
    columns = [str(column) for column in table.columns]
    time_column = _time_column(columns)
    used = {"kernel", time_column, *_TEXTS, *ignore}
    known: dict[tuple[Any, ...], _TableKernel] = {}
    lines: dict[str, Measurement] = {}
    for number, values in enumerate(table.astype(object).itertuples(index=False, name=None), 1):
        row = _TableRow(number, dict(zip(columns, values, strict=True)))
        if (name := row.cells["kernel"]) not in kernels:
            there = f"{option('kernels')} has {', '.join(map(repr, kernels)) or 'none'}"
            raise row.make_error("kernel", f"no kernel is called {name!r}; {there}")
        choice = {column: row.value(column) for column in _choices_of(kernels[name], columns)}
        key = (name, *choice.values())
        if key not in known:
            known[key] = _count_kernel(row, kernels[name], choice, caches)
        line = _make_measurement(row, known[key], choice, time_column)
        if line.case in lines:
            before = [*lines].index(line.case) + 1
            said = f"case {line.case} stands in row {before} already; keep one of them"
            raise row.make_error("kernel", f"{said}, such as the smaller time")
        lines[line.case] = line
        used |= {*choice, *line.parameters}
    for column in columns:
        if column not in used:
            said = f"column {column!r} is no size of any of the kernels; drop it"
            raise TableError(f"{said}, or in Python pass ignore=[{column!r}]", column=column)
    return tuple(lines.values())


def _time_column(columns: Sequence[str]) -> str:
    """Return the column of times of a table that has a column of kernels, too."""
    times = [column for column in columns if column in _SECONDS]
    there = f"(columns: {', '.join(columns)}); commas separate those of a file"
    if "kernel" not in columns:
        said = f"the table has no column 'kernel'; add one with the names that {option('kernels')}"
        raise TableError(f"{said} has {there}", column="kernel")
    if len(times) != 1:
        said = f"the table has {len(times)} columns of times; it needs one of"
        raise TableError(f"{said} {', '.join(_SECONDS)} {there}", column="seconds")
    return times[0]


@dataclass(frozen=True, slots=True)
class _TableRow:
    """A row of a table, counted from 1."""

    number: int
    cells: Mapping[str, Any]

    def make_error(self, column: str, message: str) -> TableError:
        """Make the error of a cell."""
        said = f"row {self.number}, column {column!r}: {message}"
        return TableError(said, row=self.number, column=column)

    def value(self, column: str) -> Any:
        """Return the value of a cell as plain Python."""
        needed = f"the kernel {self.cells['kernel']!r} needs it"
        if column not in self.cells:
            raise self.make_error(column, f"the table has no such column, and {needed}; add it")
        value = self.cells[column]
        value = value.item() if hasattr(value, "item") else value
        if value is None or value != value or str(value) == "<NA>":
            raise self.make_error(column, f"nothing stands there, and {needed}")
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def size(self, column: str, held: range | None) -> int:
        """Return the value of a size, which the kernel's type of it holds."""
        value = self.value(column)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.make_error(column, f"{value!r} is no size; a natural number is wanted")
        try:
            check_range(str(self.cells["kernel"]), column, value, held or range(2**63))
        except ParameterError as error:
            raise self.make_error(column, str(error)) from error
        return value

    def seconds(self, column: str) -> float:
        """Return the time, s."""
        try:
            value = float(self.cells[column]) * _SECONDS[column]
        except (TypeError, ValueError):
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            said = f"{self.cells[column]!r} is no time; a positive number is wanted"
            raise self.make_error(column, f"{said}: drop rows that were not measured")
        return value


class _TableKernel(NamedTuple):
    """A kernel of a table, counted; one that cannot be keeps its times, with the reason."""

    unit: Any
    sizes: tuple[str, ...]
    group_shape: tuple[int, int] = (0, 0)
    properties: dict[str, Any] | None = None
    why_not: str = ""


def _is_builder(kernel: Any) -> bool:
    """Return whether a kernel is a function of choices; without importing Loopy."""
    return callable(kernel) and not hasattr(kernel, "callables_table")


def _choices_of(kernel: Any, columns: Collection[str]) -> list[str]:
    """Return the arguments of a function that a table has, or that it cannot do without."""
    parameters = inspect.signature(kernel).parameters if _is_builder(kernel) else {}
    return [n for n, p in parameters.items() if n in columns or p.default is p.empty]


def _count_kernel(
    row: _TableRow, kernel: Any, choice: Mapping[str, Any], caches: CountedCaches
) -> _TableKernel:
    """Count a kernel, for a function that which it builds of a choice."""
    from countperf.counting.count_properties import count_kernel
    from countperf.counting.preparation import PreparedKernel

    unit, name = kernel, row.cells["kernel"]
    if _is_builder(kernel):
        try:
            unit = kernel(**choice)
        except Exception as error:  # whatever code of the user's raises
            said = f"the function {name!r} fails for {dict(choice)}: {describe_failure(error)}"
            raise row.make_error("kernel", f"{said}; drop the row") from error
        if not hasattr(unit, "callables_table"):
            said = f"the function {name!r} returns no kernel, but {type(unit).__name__}"
            raise row.make_error("kernel", said)
    try:
        vector = count_kernel(unit, view="structure", caches=caches)
        grids = [launch.grid.items for launch in PreparedKernel(unit).launches()]
    except CountingError as error:
        why_not = f"not counted: {error}"
        if "Loopy generates no code for it" in why_not:  # such as groups of 0
            said = f"{why_not} for {dict(choice)}: it cannot have run; drop the row"
            raise row.make_error("kernel", said) from error
        sizes = tuple(sorted(unit.default_entrypoint.all_params()))
        return _TableKernel(unit, sizes, why_not=why_not)
    shapes = {tuple(items[axis] for axis in sorted(items)) for items in grids}
    first, second, *others = (*next(iter(shapes)), 1, 1)
    is_planar = len(shapes) == 1 and math.prod(others) == 1
    group_shape = (first, second) if is_planar else (0, 0)
    return _TableKernel(unit, vector.parameters, group_shape, vector.to_document())


def _make_measurement(
    row: _TableRow, kernel: _TableKernel, choice: Mapping[str, Any], time_column: str
) -> Measurement:
    name = str(row.cells["kernel"])
    ranges = size_ranges(kernel.unit.default_entrypoint)
    sizes = {column: row.size(column, ranges.get(column)) for column in kernel.sizes}
    variant, values = (
        ",".join(f"{column}={value}" for column, value in each.items()) for each in (choice, sizes)
    )
    texts = {column: str(row.cells[column]) for column in _TEXTS if column in row.cells}
    purpose: Any = texts.get("purpose", "measurement")
    if purpose not in PURPOSES:
        raise row.make_error("purpose", f"{purpose!r} is none of {', '.join(PURPOSES)}")
    case = KernelCase(
        name=texts.get("case") or "/".join(filter(None, (name, variant, values))),
        kernel=name,
        build=kernel.unit,
        family=texts.get("family") or name.split("/")[0],
        variant=texts.get("variant") or variant,
        group_shape=kernel.group_shape,
        parameters=sizes,
        purpose=purpose,
    )
    return Measurement.from_samples(
        case,
        [[row.seconds(time_column)]],
        dropped=0,
        recorded_at=UNKNOWN,
        properties=kernel.properties,
        remarks=(ELSEWHERE, *filter(None, [kernel.why_not])),
    )
