"""Measurements from tables of times that a profiler, a cluster or a paper gave.

What a table does not say is marked and not guessed: lines carry the remark `ELSEWHERE`, the
environment says `UNKNOWN`, and the noise of a single time is zero, so that a fit counts all cases
the same.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from countperf.counting.size_parameters import check_range, size_ranges
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.devices.identity import DeviceIdentity
from countperf.errors import CountingError, ParameterError, TableError, option
from countperf.measuring.cases import PURPOSES, KernelCase, Purpose
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
    transactions: Sequence[str] = (),
    ignore: Sequence[str] = (),
    purpose: Purpose = "measurement",
    caches: CountedCaches = DEFAULT_CACHES,
) -> tuple[Measurement, ...]:
    """Return a measurement for each row of a table."""
    columns = tuple(map(str, table.columns))
    records: list[dict[str, Any]] = [
        dict(zip(columns, values, strict=True))
        for values in table.astype(object).itertuples(index=False, name=None)
    ]
    rows = _Rows(columns, records, kernels, tuple(transactions), frozenset(ignore), purpose, caches)
    rows.check_columns()
    lines = [rows.measurement(number) for number in range(len(records))]
    rows.refuse_idle_columns()
    first: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if (before := first.setdefault(line.case, number)) != number:
            said = f"row {number}: case {line.case} stands in row {before} already; keep one of"
            said += " them, such as the smaller time"
            raise TableError(said, row=number, column="kernel")
    return tuple(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """A kernel of a table, counted."""

    unit: Any
    sizes: tuple[str, ...]
    group_shape: tuple[int, int]
    properties: dict[str, Any] | None
    why_not: str
    at_sizes: Callable[[Mapping[str, int]], Mapping[str, int]] | None


@dataclass(frozen=True, slots=True)
class _Rows:
    """Reads the rows of a table."""

    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, Any]]
    kernels: Mapping[str, Any]
    transactions: tuple[str, ...]
    ignore: frozenset[str]
    purpose: Purpose
    caches: CountedCaches
    counted: dict[tuple[Any, ...], _Counted] = field(
        default_factory=dict[tuple[Any, ...], _Counted]
    )
    used: set[str] = field(default_factory=set[str])

    def check_columns(self) -> None:
        """Refuse a table without kernels or times, and columns of which nobody knows the use."""
        times = [column for column in self.columns if column in SECONDS]
        there = f"(columns: {', '.join(self.columns)})"
        if "kernel" not in self.columns:
            said = "the table has no column 'kernel'; add one with the names that"
            raise TableError(f"{said} {option('kernels')} has {there}", column="kernel")
        if len(times) != 1:
            said = f"the table has {len(times)} columns of times; it needs one of"
            raise TableError(f"{said} {', '.join(SECONDS)} {there}", column="seconds")
        for number, row in enumerate(self.rows):
            name = row["kernel"]
            if name not in self.kernels:
                there = ", ".join(map(repr, self.kernels)) or "none"
                message = f"no kernel is called {name!r}; {option('kernels')} has {there}"
                raise _bad_cell(number, "kernel", message)

    def refuse_idle_columns(self) -> None:
        """Refuse columns that no row has used; once all rows are read."""
        known = {"kernel", *SECONDS, *_TEXTS, *self.ignore, *self.used}
        for column in self.columns:
            if column not in known:
                raise TableError(
                    f"column {column!r} is no size of any of the kernels; drop it, or name it in "
                    f"{option('ignore')}",
                    column=column,
                )

    def kernel(self, number: int, name: str, choice: Mapping[str, Any]) -> _Counted:
        """Return the kernel of a row, counted; for a function, what it builds of a choice."""
        key = (name, *choice.values())
        if key not in self.counted:
            unit = self.kernels[name]
            if _is_builder(unit):
                try:
                    unit = unit(**choice)
                except Exception as error:  # whatever code of the user's raises
                    said = (
                        f"the function {name!r} fails for {dict(choice)}: {describe_failure(error)}"
                    )
                    raise _bad_cell(number, "kernel", f"{said}; drop the row") from error
                if not hasattr(unit, "callables_table"):
                    message = f"the function {name!r} returns no kernel, but {type(unit).__name__}"
                    raise _bad_cell(number, "kernel", message)
            counted = _count(unit, self.transactions, self.caches)
            if "Loopy generates no code for it" in counted.why_not:  # such as groups of 0
                said = f"{counted.why_not} for {dict(choice)}: it cannot have run; drop the row"
                raise _bad_cell(number, "kernel", said)
            self.counted[key] = counted
        return self.counted[key]

    def measurement(self, number: int) -> Measurement:
        """Return the measurement of a row."""
        row = self.rows[number]
        name = str(row["kernel"])
        given = self.kernels[name]
        names = _choices_of(given, row) if _is_builder(given) else ()
        choice = {column: self._value(row, number, column) for column in names}
        kernel = self.kernel(number, name, choice)
        ranges = size_ranges(kernel.unit.default_entrypoint)
        sizes = {
            column: self._size(row, number, column, ranges.get(column)) for column in kernel.sizes
        }
        self.used.update(choice, sizes)
        variant = ",".join(f"{column}={value}" for column, value in choice.items())
        values = ",".join(f"{column}={value}" for column, value in sizes.items())
        texts = {column: str(row[column]) for column in _TEXTS if column in row}
        purpose: Any = texts.get("purpose", self.purpose)
        if purpose not in PURPOSES:
            raise _bad_cell(number, "purpose", f"{purpose!r} is none of {', '.join(PURPOSES)}")
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
        known = None if kernel.at_sizes is None else dict(kernel.at_sizes(sizes))
        remarks = (ELSEWHERE, *([kernel.why_not] if kernel.why_not else ()))
        return Measurement.from_samples(
            case,
            [[self._seconds(row, number)]],
            dropped=0,
            recorded_at=UNKNOWN,
            properties=kernel.properties,
            transactions=known,
            remarks=remarks,
        )

    def _value(self, row: Mapping[str, Any], number: int, column: str) -> Any:
        """Return the value of a column as plain Python, which a function of choices takes."""
        needed = f"the kernel {row['kernel']!r} needs it"
        if column not in row:
            raise _bad_cell(number, column, f"the table has no such column, and {needed}; add it")
        value = row[column]
        value = value.item() if hasattr(value, "item") else value
        if value is None or value != value or str(value) == "<NA>":
            raise _bad_cell(number, column, f"nothing stands there, and {needed}")
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def _size(self, row: Mapping[str, Any], number: int, column: str, held: range | None) -> int:
        value = self._value(row, number, column)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            message = f"{value!r} is no size; a natural number is wanted"
            raise _bad_cell(number, column, message)
        try:
            check_range(str(row["kernel"]), column, value, held or range(2**63))
        except ParameterError as error:
            raise _bad_cell(number, column, str(error)) from error
        return value

    def _seconds(self, row: Mapping[str, Any], number: int) -> float:
        (column,) = (column for column in SECONDS if column in row)
        try:
            value = float(row[column]) * SECONDS[column]
        except (TypeError, ValueError):
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            said = f"{row[column]!r} is no time; a positive number is wanted"
            raise _bad_cell(number, column, f"{said}: drop rows that were not measured")
        return value


def _bad_cell(number: int, column: str, message: str) -> TableError:
    """Make the error of a cell, of a row counted from 0."""
    message = f"row {number + 1}, column {column!r}: {message}"
    return TableError(message, row=number + 1, column=column)


def _is_builder(kernel: Any) -> bool:
    """Return whether a kernel is a function of choices; without importing Loopy."""
    return callable(kernel) and not hasattr(kernel, "callables_table")


def _choices_of(builder: Any, columns: Collection[Any]) -> tuple[str, ...]:
    """Return the arguments of a function that a table has, or that it cannot do without."""
    arguments = inspect.signature(builder).parameters
    return tuple(
        name
        for name, argument in arguments.items()
        if name in columns or argument.default is inspect.Parameter.empty
    )


def _count(unit: Any, transactions: Sequence[str], caches: CountedCaches) -> _Counted:
    """Count a kernel; one that cannot be counted keeps its times, with the reason."""
    from countperf.counting.count_properties import count_kernel
    from countperf.counting.preparation import PreparedKernel
    from countperf.counting.transactions import TransactionCounts

    sizes, why_not, properties = tuple(sorted(unit.default_entrypoint.all_params())), "", None
    shapes: set[tuple[int, ...]] = set()
    try:
        vector = count_kernel(unit, view="structure", caches=caches)
        grids = [launch.grid.items for launch in PreparedKernel(unit).launches()]
    except CountingError as error:
        why_not = f"not counted: {error}"
    else:
        sizes, properties = vector.parameters, vector.to_document()
        shapes = {tuple(items[axis] for axis in sorted(items)) for items in grids}
    extents = (*next(iter(shapes)), 1, 1) if len(shapes) == 1 else (0, 0)
    is_planar = len(shapes) == 1 and math.prod(extents[2:]) == 1
    counts = TransactionCounts(kernel=unit, roots=tuple(transactions), statistics={})
    return _Counted(
        unit=unit,
        sizes=sizes,
        group_shape=(extents[0], extents[1]) if is_planar else (0, 0),
        properties=properties,
        why_not=why_not,
        at_sizes=counts if transactions and properties else None,
    )
