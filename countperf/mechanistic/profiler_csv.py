"""Values that Nsight Compute measured of a kernel, in the place of counted ones.

Read are tables of ``ncu --csv``: one metric a line (also with ``--print-summary``), or one launch a
line (``--page raw``), several in a file. Lines that belong to none, such as those that begin with
``==``, are skipped. Where all numbers have decimal commas, they are read so. Values of instances
(``--print-metric-instances``) are left out. Launches of other sizes, and on other devices, stay
apart.

===========================  =================================================================
field                        metrics
===========================  =================================================================
``total_bytes``,             ``dram__bytes.sum``, or ``dram__bytes_read.sum`` and
``gmem_bytes``               ``dram__bytes_write.sum``
``occupancy``                ``sm__warps_active.avg.pct_of_peak_sustained_active``
``ins_issued``               ``smsp__inst_issued.sum`` or ``sm__inst_issued.sum``
``total_flops``              ``smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma}_pred_on.sum``,
                             ``{dadd,dmul,dfma}`` and ``{hadd,hmul,hfma}``, or ``sm__sass_...``
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

_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20}
_INSTANCES = re.compile(r"(?<=\S)\s*\(.*\)$")
_NUMERIC = re.compile(r"[-+]?\d[\d.,]*([eE][-+]?\d+)?")
_POINTS, _COMMAS = (
    re.compile(rf"[-+]?(\d{{1,3}}({group}\d{{3}})+|\d+)({point}\d+)?([eE][-+]?\d+)?")
    for group, point in ((",", r"\."), (r"\.", ","))
)
_BYTES = re.compile(r"([KMGT]?i?)(?:B|bytes?)(?:/.*)?")
_COUNTS = re.compile(
    r"([KMGT]?)(?:inst|instruction|register|sector|request|warp|thread|block)s?(?:/.*)?"
)
_OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
_SHARED = [f"launch__shared_mem_per_block_{kind}" for kind in ("static", "dynamic")]
_LABELS = {
    "Registers Per Thread": "launch__registers_per_thread",
    "Static Shared Memory Per Block": _SHARED[0],
    "Dynamic Shared Memory Per Block": _SHARED[1],
    "Achieved Occupancy": _OCCUPANCY,
    "Issued Instructions": "smsp__inst_issued.sum",
}
"""Names of metrics, by what the page of details calls them."""
_FLOPS = [
    {
        f"{unit}__sass_thread_inst_executed_op_{letter}{kind}_pred_on.sum": times
        for letter in "fdh"
        for kind, times in (("add", 1.0), ("mul", 1.0), ("fma", 2.0))
    }
    for unit in ("smsp", "sm")
]
"""Operations of an instruction, by metrics summed over parts of compute units, or over these."""
_TRAFFIC = ["dram__bytes_read.sum", "dram__bytes_write.sum"]
_ISSUED = ("smsp__inst_issued.sum", "sm__inst_issued.sum")
_KINDS = {
    **dict.fromkeys(("dram__bytes.sum", *_TRAFFIC, *_SHARED), "byte"),
    **dict.fromkeys((*_ISSUED, *_FLOPS[0], *_FLOPS[1], "launch__registers_per_thread"), "count"),
    _OCCUPANCY: "share",
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
    device: str = ""  # its number
    compute_capability: str = ""  # its


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
    numbers = [cell.text for cell in cells if _NUMERIC.fullmatch(cell.text)]
    has_commas = not all(map(_POINTS.fullmatch, numbers)) and all(map(_COMMAS.fullmatch, numbers))
    collected: dict[_Launch, dict[str, list[tuple[float, int]]]] = {}
    launches: dict[_Launch, set[tuple[str | None, str | None]]] = {}
    for cell in cells:
        value, line = _number(cell, has_commas=has_commas), cell.line
        if value is None:
            continue
        block = line.get("Block Size") or line.get("launch__block_size", "")
        grid = line.get("Grid Size") or line.get("launch__grid_size", "")
        own = (line.get("Kernel Name", ""), grid, block, line.get("Device", ""), line.get("CC", ""))
        metric = _LABELS.get(cell.metric, cell.metric)
        collected.setdefault(own, {}).setdefault(metric, []).append((value, cell.launches or 1))
        launches.setdefault(own, set()).add((line.get("Process ID"), line.get("ID")))
    if not collected:
        raise TableError("the table has no metric with a number", column="Metric Value")
    return tuple(
        KernelMetrics(
            kernel=own[0],
            launches=max(len(launches[own]), *(sum(n for _, n in v) for v in metrics.values())),
            values={
                metric: v[0][0] if len(v) == 1 else sum(x * n for x, n in v) / sum(n for _, n in v)
                for metric, v in metrics.items()
            },
            groups=_product(own[1]),
            work_items_per_group=_product(own[2]),
            device=own[3],
            compute_capability=own[4],
        )
        for own, metrics in collected.items()
    )


_Launch = tuple[str, str, str, str, str]
"""Kernel, grid, block, device and its compute capability."""


class _Cell(NamedTuple):
    """A value of a table, of a launch or the mean of several."""

    line: Mapping[str, str]  # all of its line, by column
    metric: str
    text: str  # without values of instances
    unit: str
    row: int

    @property
    def launches(self) -> int | None:
        """Number of launches, where the table says so."""
        invocations = self.line.get("Invocations", "")
        return int(invocations) if invocations.isdecimal() else None


def _cells(text: str, name: str) -> Iterator[_Cell]:
    """Yield the cells of all tables of a file."""
    header: list[str] = []
    units: dict[str, str] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        try:
            row = next(csv.reader([line], strict=True), [])
        except csv.Error as error:
            if not header or not line.startswith('"'):
                continue  # what the program printed
            message = f"{name}: line {number} is damaged: {error}; export the table again"
            raise TableError(message, row=number) from error
        cells = dict(zip(header, row, strict=False))
        if "Metric Name" in row or (row[:1] == ["ID"] and "Kernel Name" in row):
            header, units = row, {}
            if "Metric Name" in row and not {"Metric Value", "Average"} & {*row}:
                message = "the table has no column 'Metric Value' or 'Average'"
                raise TableError(message, column="Metric Value")
        elif "Metric Name" in header:  # lines end before the columns of rules, which have no metric
            value = cells.get("Metric Value", cells.get("Average"))
            if len(row) <= len(header) and cells.get("Metric Name") and value is not None:
                plain, unit = _INSTANCES.sub("", value), cells.get("Metric Unit", "")
                yield _Cell(cells, cells["Metric Name"], plain, unit, number)
        elif header and not units and row:
            if row[0]:
                raise TableError("the line below the header has no units", row=number)
            units = cells
        elif header and len(row) == len(header):
            for metric, value in cells.items():
                if "__" in metric:
                    yield _Cell(cells, metric, _INSTANCES.sub("", value), units[metric], number)
    if not header:
        raise TableError(
            f"{name} is no table of ncu --csv: no line has the columns 'Metric Name', or 'ID' and"
            " 'Kernel Name', separated by commas; export it by ncu --csv --metrics ..., or ncu"
            " --csv --page raw"
        )


def _number(cell: _Cell, *, has_commas: bool) -> float | None:
    """Return a number in its base unit; None for texts such as ``n/a`` and levels of use."""

    def bad(said: str) -> TableError:
        message = f"{cell.text!r} {said} (line {cell.row}: {cell.metric})"
        return TableError(message, row=cell.row, column=cell.metric)

    kind = _KINDS.get(_LABELS.get(cell.metric, cell.metric))
    if not (_COMMAS if has_commas else _POINTS).fullmatch(cell.text):
        if kind and any(letter.isdigit() for letter in cell.text):
            raise bad("is no number: export the table with LC_ALL=C, without decimal commas")
        return None
    group, point = ".," if has_commas else ",."
    value = float(cell.text.replace(group, "").replace(point, "."))
    if kind is None:
        return value
    if value < 0:
        raise bad("is negative")
    if kind == "share":
        if not cell.unit.startswith("%"):
            raise bad(f"has the unit {cell.unit!r}; % is wanted")
        if value > 100:
            raise bad("is more than all")
        return value / 100
    prefix = (_BYTES if kind == "byte" else _COUNTS).fullmatch(cell.unit)
    if prefix is None or prefix[1] not in _SCALES:
        wanted = f"{kind} is wanted, such as ncu --print-units base gives"
        raise bad(f"has the unit {cell.unit!r}; {wanted}")
    if cell.launches is None and value % 1 and cell.unit in ("inst", "byte"):
        raise bad(f"is no whole number of {cell.unit}: export the table with LC_ALL=C")
    return value * _SCALES[prefix[1]]


def _product(size: str) -> int | None:
    """Return the product of a size such as ``(16, 16, 1)``, or a number; None for no size."""
    extents = re.findall(r"\d+", re.sub(r"(?<=\d)[.,](?=\d{3}\b)", "", size))
    return math.prod(map(int, extents)) if extents else None


def measured_fields(metrics: KernelMetrics) -> dict[str, MeasuredField]:
    """Return the fields of a profile that metrics give, of the whole launch; see the module."""
    values = metrics.values
    measured: dict[str, MeasuredField] = {}

    def take(field: str, names: Sequence[str], times: Mapping[str, float] | None = None) -> None:
        there = [name for name in names if name in values]
        if field not in measured and there:
            total = sum((times or {}).get(name, 1.0) * values[name] for name in there)
            measured[field] = MeasuredField(value=total, metrics=tuple(there))

    take("total_bytes", ["dram__bytes.sum"])
    if set(_TRAFFIC) <= set(values):
        take("total_bytes", _TRAFFIC)
    take("occupancy", [_OCCUPANCY])
    for name in _ISSUED:
        take("ins_issued", [name])
    for operations in _FLOPS:
        take("total_flops", list(operations), operations)
    take("registers_per_work_item", ["launch__registers_per_thread"])
    take("local_bytes_per_group", _SHARED)
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
    sized = [metric for metric in named if _has_size(metric, size)]
    own = device.compute_capability
    chosen = [one for one in sized if own is None or one.compute_capability in ("", own)]
    if len(chosen) != 1:
        there = ", ".join(map(_described, chosen or sized or named or metrics))
        if len(chosen) > 1:
            message = (
                f"{len(chosen)} kernels of the table are called {name!r}; there are: {there}; leave"
                " the lines of one in the table, such as of one device (ncu --devices 0)"
            )
        elif sized:
            message = (
                f"the table was measured on another device than {device.slug}, of compute"
                f" capability {own}: {there}; profile the kernel there, or predict for the device"
                " of the table"
            )
        elif named:
            message = (
                f"the table has other sizes of {name!r} than the launch of {size[0]} groups of"
                f" {size[1]}: {there}; profile it at the same size, or ask for that size"
            )
        else:
            message = f"no kernel of the table is called {name!r}; there are: {there}"
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
    text = metrics.kernel
    if metrics.groups is not None:
        text += f" with {metrics.groups} groups of {metrics.work_items_per_group}"
    if metrics.device:
        text += f" on device {metrics.device}"
    if metrics.compute_capability:
        text += f" of compute capability {metrics.compute_capability}"
    return text
