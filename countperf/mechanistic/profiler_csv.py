"""Values that profilers measured of a kernel, in the place of counted ones.

Read are the tables of ``ncu --csv`` (one metric a line, or ``--page raw``: one launch a line) and
of ``nvprof --csv --metrics ...`` or ``--events ...`` (``--log-file``). Lines before the header,
such as those that begin with ``==``, are skipped.

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
(`countperf.mechanistic.memory_costs`).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from countperf.display import ShortRepr
from countperf.documents import read_file_text
from countperf.errors import TableError
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.profile import ProfiledKernel

_SECTOR_BYTES = 32
_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_RAW_FIRST = "ID"
_NUMBER = re.compile(r"^\s*([-+]?[0-9][0-9,]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z%].*)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMetrics(ShortRepr):
    """Metrics of one kernel, means over its launches.

    Attributes
    ----------
    kernel : str
        The profiler's name of the kernel.
    launches : int
        How many launches the means are over.
    values : Mapping from str to float
        By metric, in byte, instruction and the like; shares as fractions.
    """

    kernel: str
    launches: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredField:
    """A number that was measured.

    Attributes
    ----------
    value : float
        Of the whole launch.
    metrics : tuple of str
        Where it comes from.
    """

    value: float
    metrics: tuple[str, ...]


def read_profiler_csv(path: Path | str) -> tuple[KernelMetrics, ...]:
    """Read a profiler's table.

    Parameters
    ----------
    path : Path or str
        What ``ncu --csv`` or ``nvprof --csv`` wrote.

    Returns
    -------
    tuple of KernelMetrics
        One per kernel, in the order of the table.

    Raises
    ------
    DocumentError
        The file cannot be read.
    TableError
        It is no such table, or has a number that is none.
    """
    return parse_profiler_csv(read_file_text(Path(path)), name=str(path))


def parse_profiler_csv(text: str, *, name: str = "the table") -> tuple[KernelMetrics, ...]:
    """Parse a profiler's table; parameters, result and errors as of `read_profiler_csv`."""
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    for place, row in enumerate(rows):
        if "Metric Name" in row or "Event Name" in row:
            return _collected(_long(row, rows[place + 1 :]))
        if row[0] == _RAW_FIRST and "Kernel Name" in row:
            return _collected(_wide(row, rows[place + 1 :]))
    message = (
        f"{name} is no table of ncu --csv or nvprof --csv: no line has the columns 'Metric Name',"
        " 'Event Name', or 'ID' and 'Kernel Name'; export it with one of these options"
    )
    raise TableError(message)


_Cell = tuple[str, str, str, float]  # kernel, launch, metric, value


def _long(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[_Cell]:
    """Yield the cells of a table with a metric in each line."""
    metric = "Metric Name" if "Metric Name" in header else "Event Name"
    kernel = "Kernel Name" if "Kernel Name" in header else "Kernel"
    value = "Metric Value" if "Metric Value" in header else "Avg"
    for missing in (kernel, value):
        if missing not in header:
            raise TableError(f"the table has no column {missing!r}", column=missing)
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            continue  # what the program printed, or a new table's title
        cells = dict(zip(header, row, strict=True))
        if cells[metric] in ("", metric):
            continue
        unit = cells.get("Metric Unit", "")
        found = _number(cells[value], unit, number, value)
        if found is not None:
            yield cells[kernel], cells.get("ID", "0"), cells[metric], found


def _wide(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[_Cell]:
    """Yield the cells of a table with a launch in each line, units in the first."""
    if not rows or rows[0][0] != "":
        raise TableError("the line below the header has no units", row=1)
    units = dict(zip(header, rows[0], strict=False))
    for number, row in enumerate(rows[1:], 2):
        cells = dict(zip(header, row, strict=False))
        for name, text in cells.items():
            if "__" not in name:
                continue
            found = _number(text, units.get(name, ""), number, name)
            if found is not None:
                yield cells.get("Kernel Name", ""), cells[_RAW_FIRST], name, found


def _number(text: str, unit: str, row: int, column: str) -> float | None:
    """Return a number in its base unit; None for texts such as ``n/a`` and levels of use."""
    match = _NUMBER.match(text)
    if match is None:
        if any(letter.isdigit() for letter in text) and not text[:1].isalpha():
            raise TableError(f"{text!r} in column {column} is no number", row=row, column=column)
        return None
    value = float(match[1].replace(",", ""))
    unit = (match[2] or unit).strip()
    if unit.startswith("%"):
        return value / 100
    prefix = re.match(r"^([KMGT]?)(?:i?B|byte|bytes)(?:/|$)", unit)
    return value * (_SCALES[prefix[1]] if prefix else 1.0)


def _collected(cells: Iterator[_Cell]) -> tuple[KernelMetrics, ...]:
    found: dict[str, dict[str, list[float]]] = {}
    launches: dict[str, set[str]] = {}
    for kernel, launch, metric, value in cells:
        found.setdefault(kernel, {}).setdefault(metric, []).append(value)
        launches.setdefault(kernel, set()).add(launch)
    if not found:
        raise TableError("the table has no metric with a number", column="Metric Value")
    return tuple(
        KernelMetrics(
            kernel=kernel,
            launches=len(launches[kernel]),
            values={metric: sum(v) / len(v) for metric, v in metrics.items()},
        )
        for kernel, metrics in found.items()
    )


def measured_fields(metrics: KernelMetrics) -> dict[str, MeasuredField]:
    """Return the fields of a profile that metrics give, of the whole launch; see the module."""
    values = metrics.values
    found: dict[str, MeasuredField] = {}

    def take(field: str, names: Sequence[str], scale: float = 1.0) -> None:
        there = [name for name in names if name in values]
        if field not in found and there:
            total = scale * sum(values[name] for name in there)
            found[field] = MeasuredField(value=total, metrics=tuple(there))

    take("total_bytes", ["dram__bytes.sum"])
    for read, write, scale in (
        ("dram__bytes_read.sum", "dram__bytes_write.sum", 1.0),
        ("dram_read_bytes", "dram_write_bytes", 1.0),
        ("dram_read_transactions", "dram_write_transactions", _SECTOR_BYTES),
    ):
        if read in values and write in values:
            take("total_bytes", [read, write], scale)
    take("occupancy", ["sm__warps_active.avg.pct_of_peak_sustained_active"])
    take("occupancy", ["achieved_occupancy"])
    for name in ("smsp__inst_issued.sum", "sm__inst_issued.sum", "inst_issued"):
        take("ins_issued", [name])
    if "ins_issued" not in found and {"inst_executed", "inst_replay_overhead"} <= set(values):
        issued = values["inst_executed"] * (1 + values["inst_replay_overhead"])
        found["ins_issued"] = MeasuredField(
            value=issued, metrics=("inst_executed", "inst_replay_overhead")
        )
    _take_flops(values, found)
    take("registers_per_work_item", ["launch__registers_per_thread"])
    shared = "launch__shared_mem_per_block"
    take("local_bytes_per_group", [f"{shared}_static", f"{shared}_dynamic"])
    return found


def _take_flops(values: Mapping[str, float], found: dict[str, MeasuredField]) -> None:
    start, end = "smsp__sass_thread_inst_executed_op_", "_pred_on.sum"
    weights = {f"{start}{letter}{kind}{end}": 1.0 for letter in "fd" for kind in ("add", "mul")}
    weights |= {f"{start}{letter}fma{end}": 2.0 for letter in "fd"}
    weights |= {"flop_count_sp": 1.0, "flop_count_dp": 1.0}
    there = [name for name in weights if name in values]
    if there:
        total = sum(weights[name] * values[name] for name in there)
        found["total_flops"] = MeasuredField(value=total, metrics=tuple(there))


def with_measured(
    profiled: ProfiledKernel, metrics: Sequence[KernelMetrics], device: DeviceParameters
) -> ProfiledKernel:
    """Return a profile with what a profiler measured in the place of what was counted.

    Parameters
    ----------
    profiled : ProfiledKernel
        Profile and launch by counts.
    metrics : sequence of KernelMetrics
        Those of the kernel whose name contains that of the profile are taken.
    device : DeviceParameters
        Size of its sub-groups, and how many a compute unit holds.

    Returns
    -------
    ProfiledKernel
        ``profile.measured`` names each field that was measured, and its metrics.

    Raises
    ------
    TableError
        No kernel, or more than one, has such a name; or no metric gives a field.
    DeviceParameterError
        The device lacks a number that is needed.
    """
    name = profiled.profile.name
    named = [each for each in metrics if name in each.kernel]
    exact = [each for each in named if re.split(r"[(<]", each.kernel)[0].strip() == name]
    chosen = exact or named
    if len(chosen) != 1:
        listed = ", ".join(each.kernel for each in (chosen or metrics)) or "none"
        message = f"{len(chosen)} kernels of the table are called {name!r}; there are: {listed}"
        raise TableError(message, column="Kernel Name")
    found = measured_fields(chosen[0])
    if not found:
        known = ", ".join(list(chosen[0].values)[:6])
        message = (
            f"no metric of {chosen[0].kernel} gives a field of a profile (found: {known}); export"
            " dram__bytes.sum, smsp__inst_issued.sum or those that"
            " countperf.mechanistic.profiler_csv lists"
        )
        raise TableError(message, column="Metric Name")
    sub_groups = profiled.launch.total_sub_groups(device.require_int("sub_group_size"))
    changes: dict[str, Any] = {field: each.value for field, each in found.items()}
    marks = {field: ", ".join(each.metrics) for field, each in found.items()}
    launch = profiled.launch
    if (share := changes.pop("occupancy", None)) is not None:
        most = device.require("max_sub_groups_per_compute_unit", model="achieved occupancy")
        launch = replace(launch, occupancy=share * most)
    if "ins_issued" in changes:
        changes["ins_issued"] /= sub_groups
    if "total_bytes" in changes:
        if profiled.profile.total_bytes:
            changes["dram_ratio"] = changes["total_bytes"] / profiled.profile.total_bytes
            marks["dram_ratio"] = f"{changes['dram_ratio']:.3g}: {marks['total_bytes']}"
        changes["gmem_bytes"] = changes["total_bytes"] / sub_groups
        marks["gmem_bytes"] = marks["total_bytes"]
    for whole in ("registers_per_work_item", "local_bytes_per_group"):
        if whole in changes:
            changes[whole] = round(changes[whole])
    return ProfiledKernel(
        profile=replace(profiled.profile, measured=marks, **changes), launch=launch
    )
