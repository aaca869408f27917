"""Values that profilers measured of a kernel, in the place of counted ones.

Read are the tables of ``ncu --csv`` (one metric a line, also with ``--print-summary``; or ``--page
raw``: one launch a line) and of ``nvprof --csv`` with ``--metrics ...`` or ``--events ...``
(``--log-file``), several in a file. Lines that belong to none, such as those that begin with
``==``, are skipped. Where all numbers have decimal commas, they are read so. Launches of other
sizes stay apart.

===========================  =================================================================
field                        metrics (Nsight Compute; nvprof)
===========================  =================================================================
``total_bytes``,             ``dram__bytes.sum``, or ``dram__bytes_read.sum`` and
``gmem_bytes``               ``dram__bytes_write.sum``; ``dram_read_bytes`` and
                             ``dram_write_bytes``, or ``dram_read_transactions`` and
                             ``dram_write_transactions`` of 32 bytes
``occupancy``                ``sm__warps_active.avg.pct_of_peak_sustained_active``;
                             ``achieved_occupancy``
``ins_issued``               ``smsp__inst_issued.sum``, ``sm__inst_issued.sum``; ``inst_issued``,
                             or ``inst_executed`` and ``inst_replay_overhead``
``total_flops``              ``smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma}_pred_on.sum``
                             and ``{dadd,dmul,dfma}``; ``flop_count_sp``, ``flop_count_dp``
``registers_per_work_item``  ``launch__registers_per_thread``
``local_bytes_per_group``    ``launch__shared_mem_per_block_static`` and ``..._dynamic``
===========================  =================================================================

``dram_ratio`` is the first of these over the counted bytes; costs of global memory follow from it
(`countperf.mechanistic.classes`) where it is above 1.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from countperf.display import ShortRepr
from countperf.documents import read_file_text
from countperf.errors import TableError
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.profile import ProfiledKernel

_SECTOR_BYTES = 32
_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20}
_RAW_FIRST = "ID"
_NUMBER = re.compile(r"\s*([-+]?[0-9][0-9.,]*(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z%].*)?")
_POINTS, _COMMAS = (
    re.compile(rf"[-+]?(\d{{1,3}}({group}\d{{3}})+|\d+)({point}\d+)?([eE][-+]?\d+)?")
    for group, point in ((",", r"\."), (r"\.", ","))
)
_BYTES = re.compile(r"([KMGT]?i?)(?:B|bytes?)(?:/.*)?")
_COUNTS = re.compile(
    r"([KMGT]?)(?:|(?:inst|instruction|register|sector|request|warp|thread|block)s?)(?:/.*)?"
)
_OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
_SHARED = "launch__shared_mem_per_block"
_LABELS = {
    "Registers Per Thread": "launch__registers_per_thread",
    "Static Shared Memory Per Block": f"{_SHARED}_static",
    "Dynamic Shared Memory Per Block": f"{_SHARED}_dynamic",
    "Achieved Occupancy": _OCCUPANCY,
    "Issued Instructions": "smsp__inst_issued.sum",
}
"""Names of metrics, by what the page of details calls them."""
_START, _END = "smsp__sass_thread_inst_executed_op_", "_pred_on.sum"
_FLOPS = {
    **{f"{_START}{letter}{kind}{_END}": 1.0 for letter in "fd" for kind in ("add", "mul")},
    **{f"{_START}{letter}fma{_END}": 2.0 for letter in "fd"},
    **{"flop_count_sp": 1.0, "flop_count_dp": 1.0},
}
_TRAFFIC = (
    ("dram__bytes_read.sum", "dram__bytes_write.sum", 1.0),
    ("dram_read_bytes", "dram_write_bytes", 1.0),
    ("dram_read_transactions", "dram_write_transactions", _SECTOR_BYTES),
)
_ISSUED = ("smsp__inst_issued.sum", "sm__inst_issued.sum", "inst_issued")
_KINDS = {
    **dict.fromkeys(("dram__bytes.sum", *_TRAFFIC[0][:2], *_TRAFFIC[1][:2]), "byte"),
    **dict.fromkeys((f"{_SHARED}_static", f"{_SHARED}_dynamic"), "byte"),
    **dict.fromkeys((_OCCUPANCY, "achieved_occupancy"), "share"),
    **dict.fromkeys((*_TRAFFIC[2][:2], *_ISSUED, "inst_executed", *_FLOPS), "count"),
    "launch__registers_per_thread": "count",
}
"""Of which kind metrics are that give fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMetrics(ShortRepr):
    """Metrics of one kernel at one size on one device, means over its launches."""

    kernel: str  # the profiler's name of the kernel
    launches: int  # how many launches the means are over
    values: Mapping[str, float]  # by metric, in byte, instruction and the like
    groups: int | None = None  # of each launch, where the table says so
    work_items_per_group: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredField:
    """A number that was measured."""

    value: float  # of the whole launch
    metrics: tuple[str, ...]  # where it comes from


def read_profiler_csv(path: Path | str) -> tuple[KernelMetrics, ...]:
    """Read a profiler's table."""
    return parse_profiler_csv(read_file_text(Path(path)), name=str(path))


def parse_profiler_csv(text: str, *, name: str = "the table") -> tuple[KernelMetrics, ...]:
    """Parse a profiler's table; parameters, result and errors as of `read_profiler_csv`."""
    cells = list(_cells(text, name))
    numbers = [match[1] for cell in cells if (match := _NUMBER.fullmatch(cell.text))]
    has_commas = not all(map(_POINTS.fullmatch, numbers)) and all(map(_COMMAS.fullmatch, numbers))
    return _collected(cells, has_commas=has_commas)


class _Cell(NamedTuple):
    """A value of a table, of a launch or the mean of several."""

    line: Mapping[str, str]  # all of its line, by column
    metric: str
    text: str
    unit: str | None
    row: int
    column: str

    @property
    def launches(self) -> int | None:
        """Number of launches, where the table says so."""
        invocations = self.line.get("Invocations", "")
        return int(invocations) if invocations.isdecimal() else None


def _cells(text: str, name: str) -> Iterator[_Cell]:
    """Yield the cells of all tables of a file."""
    header: list[str] = []
    units: dict[str, str] | None = None
    has_table = False
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        try:
            row = next(csv.reader([line], strict=True), [])
        except csv.Error as error:
            if not header or not line.startswith('"'):
                continue  # what the program printed
            message = f"{name}: line {number} is damaged: {error}; export the table again"
            raise TableError(message, row=number) from error
        is_long = "Metric Name" in row or "Event Name" in row
        if is_long or (row[:1] == [_RAW_FIRST] and "Kernel Name" in row):
            header, units, has_table = row, None, True
            if is_long:
                _check_columns(header)
        elif {"Metric Name", "Event Name"} & set(header):
            yield from _long(header, row, number)
        elif header and row and units is None:
            if row[0] != "":
                raise TableError("the line below the header has no units", row=number)
            units = dict(zip(header, row, strict=False))
        elif header and units is not None and len(row) == len(header):
            cells = dict(zip(header, row, strict=True))
            for metric, value in cells.items():
                if "__" in metric:
                    name_of = _LABELS.get(metric, metric)
                    yield _Cell(cells, name_of, value, units[metric], number, metric)
    if not has_table:
        raise TableError(
            f"{name} is no table of ncu --csv or nvprof --csv: no line has the columns 'Metric"
            " Name', 'Event Name', or 'ID' and 'Kernel Name', separated by commas; export it by"
            " ncu --csv --metrics ..., ncu --csv --page raw, or nvprof --csv --metrics ..."
        )


def _check_columns(header: Sequence[str]) -> None:
    for names in (("Kernel Name", "Kernel"), ("Metric Value", "Average", "Avg")):
        if not set(names) & set(header):
            missing = " or ".join(map(repr, names))
            raise TableError(f"the table has no column {missing}", column=names[0])


def _long(header: Sequence[str], row: Sequence[str], number: int) -> Iterator[_Cell]:
    """Yield the cell of a line that has one metric; lines of ncu end before the rules' columns."""
    metric = "Metric Name" if "Metric Name" in header else "Event Name"
    value = next(name for name in ("Metric Value", "Average", "Avg") if name in header)
    cells = dict(zip(header, row, strict=False))
    is_cut = value != "Metric Value" and len(row) < len(header)
    if len(row) > len(header) or is_cut or not cells.get(metric) or value not in cells:
        return  # what the program printed, a new table's title, or a rule
    unit = cells.get("Metric Unit") if metric == "Metric Name" else None
    yield _Cell(cells, _LABELS.get(cells[metric], cells[metric]), cells[value], unit, number, value)


def _number(cell: _Cell, *, has_commas: bool) -> float | None:
    """Return a number in its base unit; None for texts such as ``n/a`` and levels of use."""

    def bad(said: str) -> TableError:
        message = f"{cell.text!r} in column {cell.column} {said} (line {cell.row}: {cell.metric})"
        return TableError(message, row=cell.row, column=cell.column)

    match = _NUMBER.fullmatch(cell.text)
    if match is None or not (_COMMAS if has_commas else _POINTS).fullmatch(match[1]):
        if any(letter.isdigit() for letter in cell.text) and not cell.text[:1].isalpha():
            raise bad("is no number: export the table with LC_ALL=C, without decimal commas")
        return None
    group, point = ".," if has_commas else ",."
    value = float(match[1].replace(group, "").replace(point, "."))
    unit = (match[2] or cell.unit or "").strip()
    kind = _KINDS.get(cell.metric)
    if kind and value < 0:
        raise bad("is negative")
    if kind is None or kind == "share":
        is_percentage = unit.startswith("%")
        if kind and "pct" in cell.metric and not is_percentage:
            raise bad(f"has the unit {unit!r}; % is wanted")
        value = value / 100 if is_percentage else value
        if kind and value > 1:
            raise bad("is more than all: a share up to 1 is wanted, or a percentage with its %")
        prefix = _BYTES.fullmatch(unit)
        return value * (_SCALES.get(prefix[1], 1.0) if prefix and not kind else 1.0)
    prefix = (_BYTES if kind == "byte" else _COUNTS).fullmatch(unit)
    if prefix is None and (unit or "__" in cell.metric):
        raise bad(f"has the unit {unit!r}; {kind} is wanted, such as ncu --print-units base gives")
    if cell.launches is None and value % 1 and unit in ("inst", "byte"):
        raise bad(f"is no whole number of {unit}: export the table with LC_ALL=C")
    scale = _SCALES.get(prefix[1] if prefix else "")
    if scale is None:
        raise bad(f"has the unit {unit!r}, which is not known")
    return value * scale


def _collected(cells: Sequence[_Cell], *, has_commas: bool) -> tuple[KernelMetrics, ...]:
    collected: dict[tuple[str, tuple[str, ...]], dict[str, list[tuple[float, int]]]] = {}
    launches: dict[tuple[str, tuple[str, ...]], set[tuple[str, str]]] = {}
    for cell in cells:
        value = _number(cell, has_commas=has_commas)
        if value is not None:
            line = cell.line
            block = line.get("Block Size") or line.get("launch__block_size", "")
            grid = line.get("Grid Size") or line.get("launch__grid_size", "")
            name = line.get("Kernel Name", line.get("Kernel", ""))
            key = (name, (grid, block, line.get("Device", "")))
            weighted = (value, cell.launches or 1)
            collected.setdefault(key, {}).setdefault(cell.metric, []).append(weighted)
            launches.setdefault(key, set()).add(
                (line.get("Process ID", ""), line.get(_RAW_FIRST, "0"))
            )
    if not collected:
        raise TableError("the table has no metric with a number", column="Metric Value")
    return tuple(
        KernelMetrics(
            kernel=key[0],
            launches=max(len(launches[key]), *(sum(n for _, n in v) for v in metrics.values())),
            values={
                metric: v[0][0] if len(v) == 1 else sum(x * n for x, n in v) / sum(n for _, n in v)
                for metric, v in metrics.items()
            },
            groups=_product(key[1][0]),
            work_items_per_group=_product(key[1][1]),
        )
        for key, metrics in collected.items()
    )


def _product(size: str) -> int | None:
    """Return the product of a size such as ``(16, 16, 1)``, or a number; None for no size."""
    extents = re.findall(r"\d+", re.sub(r"(?<=\d)[.,](?=\d{3}\b)", "", size))
    return math.prod(map(int, extents)) if extents else None


def measured_fields(metrics: KernelMetrics) -> dict[str, MeasuredField]:
    """Return the fields of a profile that metrics give, of the whole launch; see the module."""
    values = metrics.values
    measured: dict[str, MeasuredField] = {}

    def take(field: str, names: Sequence[str], scale: float = 1.0) -> None:
        there = [name for name in names if name in values]
        if field not in measured and there:
            total = scale * sum(values[name] for name in there)
            measured[field] = MeasuredField(value=total, metrics=tuple(there))

    take("total_bytes", ["dram__bytes.sum"])
    for read, write, scale in _TRAFFIC:
        if read in values and write in values:
            take("total_bytes", [read, write], scale)
    take("occupancy", [_OCCUPANCY])
    take("occupancy", ["achieved_occupancy"])
    for name in _ISSUED:
        take("ins_issued", [name])
    replayed = ("inst_executed", "inst_replay_overhead")
    if "ins_issued" not in measured and set(replayed) <= set(values):
        issued = values[replayed[0]] * (1 + values[replayed[1]])
        measured["ins_issued"] = MeasuredField(value=issued, metrics=replayed)
    if there := tuple(name for name in _FLOPS if name in values):
        total = sum(_FLOPS[name] * values[name] for name in there)
        measured["total_flops"] = MeasuredField(value=total, metrics=there)
    take("registers_per_work_item", ["launch__registers_per_thread"])
    take("local_bytes_per_group", [f"{_SHARED}_static", f"{_SHARED}_dynamic"])
    return measured


def _is_called(kernel: str, name: str) -> bool:
    """Return whether a profiler's name is of a function, whatever its types and template are."""
    if kernel.startswith("_Z"):
        return re.match(rf"_Z(?:N.*\D)?{len(name)}{re.escape(name)}", kernel) is not None
    plain, count = kernel.replace("(anonymous namespace)::", ""), 1
    while count:
        plain, count = re.subn(r"<[^<>]*>", "", plain)
    return re.split(r"\s|::", plain.partition("(")[0].strip())[-1] == name


def with_measured(
    profiled: ProfiledKernel, metrics: Sequence[KernelMetrics], device: DeviceParameters
) -> ProfiledKernel:
    """Return a profile with what a profiler measured in the place of what was counted."""
    name = profiled.profile.name
    size = (profiled.launch.num_groups, profiled.launch.work_items_per_group)
    named = [metric for metric in metrics if _is_called(metric.kernel, name)]
    chosen = [metric for metric in named if _has_size(metric, size)]
    if len(chosen) != 1:
        there = ", ".join(map(_described, chosen or named or metrics)) or "none"
        if named and not chosen:
            message = (
                f"the table has other sizes of {name!r} than the launch of {size[0]} groups of"
                f" {size[1]}: {there}; profile it at the same size, or ask for that size"
            )
        else:
            message = f"{len(chosen)} kernels of the table are called {name!r}; there are: {there}"
        raise TableError(message, column="Kernel Name")
    measured = measured_fields(chosen[0])
    if not measured:
        known = ", ".join(list(chosen[0].values)[:6])
        message = (
            f"no metric of {chosen[0].kernel} gives a field of a profile (found: {known}); export"
            " ncu --csv --page raw, or --metrics dram__bytes.sum,smsp__inst_issued.sum or others"
            " that countperf.mechanistic.profiler_csv lists"
        )
        raise TableError(message, column="Metric Name")
    sub_groups = profiled.launch.total_sub_groups(device.require_int("sub_group_size"))
    changes: dict[str, Any] = {field: metric.value for field, metric in measured.items()}
    marks = {field: ", ".join(metric.metrics) for field, metric in measured.items()}
    launch = profiled.launch
    if (share := changes.pop("occupancy", None)) is not None:
        most = device.require("max_sub_groups_per_compute_unit", model="achieved occupancy")
        launch = replace(launch, occupancy=share * most)
    if "ins_issued" in changes:
        changes["ins_issued"] /= sub_groups
    if "total_bytes" in changes:
        if profiled.profile.total_bytes:
            changes["dram_ratio"] = changes["total_bytes"] / profiled.profile.total_bytes
            unused = "; without effect below 1" if changes["dram_ratio"] < 1 else ""
            marks["dram_ratio"] = f"{changes['dram_ratio']:.3g}: {marks['total_bytes']}{unused}"
        changes["gmem_bytes"] = changes["total_bytes"] / sub_groups
        marks["gmem_bytes"] = marks["total_bytes"]
    for whole in ("registers_per_work_item", "local_bytes_per_group"):
        if whole in changes:
            changes[whole] = round(changes[whole])
    return ProfiledKernel(
        profile=replace(profiled.profile, measured=marks, **changes), launch=launch
    )


def _has_size(metrics: KernelMetrics, size: tuple[int, int]) -> bool:
    """Return whether metrics may be of a launch of so many groups of so many work items."""
    there = (metrics.groups, metrics.work_items_per_group)
    return all(one is None or one == other for one, other in zip(there, size, strict=True))


def _described(metrics: KernelMetrics) -> str:
    if metrics.groups is None:
        return metrics.kernel
    return f"{metrics.kernel} with {metrics.groups} groups of {metrics.work_items_per_group}"
