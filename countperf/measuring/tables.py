"""Measurements from tables of times that a profiler, a cluster or a paper gave.

What a table does not say is marked and not guessed: lines carry the remark `ELSEWHERE`, the
environment says `UNKNOWN`, and the noise of a single time is zero, so that a fit counts all cases
the same.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from countperf.counting.size_parameters import check_range, size_ranges
from countperf.counting.structure.memory_hierarchy import CountedCaches
from countperf.devices.identity import DeviceIdentity
from countperf.errors import CountingError, ParameterError, TableError, option
from countperf.measuring.cases import PURPOSES, KernelCase
from countperf.measuring.lines import Environment, Header, Measurement, Protocol
from countperf.user_code import describe_failure

if TYPE_CHECKING:
    import pandas as pd

ELSEWHERE = "measured elsewhere; spread and noise are not known"
"""Remark of every line that came from a table."""

UNKNOWN = "unknown"
"""Word for properties of an environment that nobody noted."""

SECONDS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
"""Columns that may hold the time, and their unit, s."""

_TEXTS = ("case", "family", "variant", "purpose")


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
    table: pd.DataFrame,
    kernels: Mapping[str, Any],
    *,
    ignore: Sequence[str],
    caches: CountedCaches,
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
            raise row.error("kernel", f"no kernel is called {name!r}; {there}")
        choice = {column: row.value(column) for column in _choices_of(kernels[name], columns)}
        key = (name, *choice.values())
        if key not in known:
            known[key] = _count_kernel(row, kernels[name], choice, caches)
        line = _measurement(row, known[key], choice, time_column)
        if line.case in lines:
            before = [*lines].index(line.case) + 1
            said = f"case {line.case} stands in row {before} already; keep one of them"
            raise row.error("kernel", f"{said}, such as the smaller time")
        lines[line.case] = line
        used |= {*choice, *line.parameters}
    for column in columns:
        if column not in used:
            said = f"column {column!r} is no size of any of the kernels; drop it"
            raise TableError(f"{said}, or in Python pass ignore=[{column!r}]", column=column)
    return tuple(lines.values())


def _time_column(columns: Sequence[str]) -> str:
    """Return the column of times of a table that has a column of kernels, too."""
    times = [column for column in columns if column in SECONDS]
    there = f"(columns: {', '.join(columns)}); commas separate those of a file"
    if "kernel" not in columns:
        said = f"the table has no column 'kernel'; add one with the names that {option('kernels')}"
        raise TableError(f"{said} has {there}", column="kernel")
    if len(times) != 1:
        said = f"the table has {len(times)} columns of times; it needs one of"
        raise TableError(f"{said} {', '.join(SECONDS)} {there}", column="seconds")
    return times[0]


@dataclass(frozen=True, slots=True)
class _TableRow:
    """A row of a table, counted from 1."""

    number: int
    cells: Mapping[str, Any]

    def error(self, column: str, message: str) -> TableError:
        """Make the error of a cell."""
        said = f"row {self.number}, column {column!r}: {message}"
        return TableError(said, row=self.number, column=column)

    def value(self, column: str) -> Any:
        """Return the value of a cell as plain Python."""
        needed = f"the kernel {self.cells['kernel']!r} needs it"
        if column not in self.cells:
            raise self.error(column, f"the table has no such column, and {needed}; add it")
        value = self.cells[column]
        value = value.item() if hasattr(value, "item") else value
        if value is None or value != value or str(value) == "<NA>":
            raise self.error(column, f"nothing stands there, and {needed}")
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def size(self, column: str, held: range | None) -> int:
        """Return the value of a size, which the kernel's type of it holds."""
        value = self.value(column)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.error(column, f"{value!r} is no size; a natural number is wanted")
        try:
            check_range(str(self.cells["kernel"]), column, value, held or range(2**63))
        except ParameterError as error:
            raise self.error(column, str(error)) from error
        return value

    def seconds(self, column: str) -> float:
        """Return the time, s."""
        try:
            value = float(self.cells[column]) * SECONDS[column]
        except (TypeError, ValueError):
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            said = f"{self.cells[column]!r} is no time; a positive number is wanted"
            raise self.error(column, f"{said}: drop rows that were not measured")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableKernel:
    """A kernel of a table, counted; one that cannot be keeps its times, with the reason."""

    unit: Any
    sizes: tuple[str, ...]
    group_shape: tuple[int, int]
    properties: dict[str, Any] | None
    why_not: str


def _is_builder(kernel: Any) -> bool:
    """Return whether a kernel is a function of choices; without importing Loopy."""
    return callable(kernel) and not hasattr(kernel, "callables_table")


def _choices_of(kernel: Any, columns: Collection[str]) -> tuple[str, ...]:
    """Return the arguments of a function that a table has, or that it cannot do without."""
    if not _is_builder(kernel):
        return ()
    return tuple(
        name
        for name, argument in inspect.signature(kernel).parameters.items()
        if name in columns or argument.default is inspect.Parameter.empty
    )


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
            raise row.error("kernel", f"{said}; drop the row") from error
        if not hasattr(unit, "callables_table"):
            said = f"the function {name!r} returns no kernel, but {type(unit).__name__}"
            raise row.error("kernel", said)
    sizes, why_not, properties = tuple(sorted(unit.default_entrypoint.all_params())), "", None
    shapes: set[tuple[int, ...]] = set()
    try:
        vector = count_kernel(unit, view="structure", caches=caches)
        grids = [launch.grid.items for launch in PreparedKernel(unit).launches()]
    except CountingError as error:
        why_not = f"not counted: {error}"
        if "Loopy generates no code for it" in why_not:  # such as groups of 0
            said = f"{why_not} for {dict(choice)}: it cannot have run; drop the row"
            raise row.error("kernel", said) from error
    else:
        sizes, properties = vector.parameters, vector.to_document()
        shapes = {tuple(items[axis] for axis in sorted(items)) for items in grids}
    extents = (*next(iter(shapes)), 1, 1) if len(shapes) == 1 else (0, 0)
    is_planar = math.prod(extents[2:]) == 1
    return _TableKernel(
        unit=unit,
        sizes=sizes,
        group_shape=(extents[0], extents[1]) if is_planar else (0, 0),
        properties=properties,
        why_not=why_not,
    )


def _measurement(
    row: _TableRow, kernel: _TableKernel, choice: Mapping[str, Any], time_column: str
) -> Measurement:
    """Return the measurement of a row."""
    name = str(row.cells["kernel"])
    ranges = size_ranges(kernel.unit.default_entrypoint)
    sizes = {column: row.size(column, ranges.get(column)) for column in kernel.sizes}
    variant, values = (
        ",".join(f"{column}={value}" for column, value in each.items()) for each in (choice, sizes)
    )
    texts = {column: str(row.cells[column]) for column in _TEXTS if column in row.cells}
    purpose: Any = texts.get("purpose", "measurement")
    if purpose not in PURPOSES:
        raise row.error("purpose", f"{purpose!r} is none of {', '.join(PURPOSES)}")
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
