"""Values that Nsight Compute measured of a kernel, in the place of counted ones.

Read is a table of ``ncu --csv``: one metric a line, or one launch a line (``--page raw``). Values
of instances (``--print-metric-instances``) are left out. Launches of other sizes, and on other
devices, stay apart.

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

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from countperf.devices.parameters import DeviceParameters
from countperf.errors import TableError
from countperf.mechanistic.profile import ProfiledKernel
from countperf.store import read_file_text
from countperf.text import ShortRepr

_SOURCES: tuple[tuple[str, str, Mapping[str, float]], ...] = (
    ("total_bytes", "byte", {"dram__bytes.sum": 1.0}),
    ("total_bytes", "byte", {"dram__bytes_read.sum": 1.0, "dram__bytes_write.sum": 1.0}),
    ("occupancy", "%", {"sm__warps_active.avg.pct_of_peak_sustained_active": 1.0}),
    ("ins_issued", "count", {"smsp__inst_issued.sum": 1.0}),
    ("ins_issued", "count", {"sm__inst_issued.sum": 1.0}),
    *(
        (
            "total_flops",
            "count",
            {
                f"{unit}__sass_thread_inst_executed_op_{letter}{kind}_pred_on.sum": flops
                for letter in "fdh"
                for kind, flops in (("add", 1.0), ("mul", 1.0), ("fma", 2.0))
            },
        )
        for unit in ("smsp", "sm")
    ),
    ("registers_per_work_item", "count", {"launch__registers_per_thread": 1.0}),
    (
        "local_bytes_per_group",
        "byte",
        {f"launch__shared_mem_per_block_{kind}": 1.0 for kind in ("static", "dynamic")},
    ),
)
"""Fields, the kind of their metrics, and what a unit of each counts for; the first with metrics."""
_KINDS = {metric: kind for _, kind, metrics in _SOURCES for metric in metrics}
_UNITS = {
    "byte": re.compile(r"([KMGT]?i?)(?:B|bytes?)(?:/.*)?"),
    "count": re.compile(
        r"([KMGT]?)(?:inst|instruction|register|sector|request|warp|thread|block)s?(?:/.*)?"
    ),
    "%": re.compile(r"()%.*"),
}
_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20}
_NUMBER = re.compile(r"(\d{1,3}(,\d{3})+|\d+)(\.\d+)?([eE][-+]?\d+)?")
_INSTANCES = re.compile(r"(?<=\S)\s*\(.*\)$")
_LAUNCH = ["Kernel Name", "Grid Size", "Block Size", "Device", "CC"]
_CELL = ["Metric Name", "Metric Value", "Metric Unit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMetrics(ShortRepr):
    """Metrics of one kernel at one size on one device, means over its launches."""

    kernel: str  # the profiler's name of the kernel
    values: Mapping[str, float]  # by metric, in byte, instruction and the like
    groups: int | None = None  # of each launch, where the table says so
    work_items_per_group: int | None = None
    device: str = ""  # its number
    compute_capability: str = ""  # its

    def __str__(self) -> str:
        text = self.kernel
        if self.groups is not None:
            text += f" with {self.groups} groups of {self.work_items_per_group}"
        if self.device:
            text += f" on device {self.device}"
        if self.compute_capability:
            text += f" of compute capability {self.compute_capability}"
        return text


class MeasuredField(NamedTuple):
    """A number that was measured."""

    value: float  # of the whole launch
    metrics: tuple[str, ...]  # where it comes from


def read_profiler_csv(path: Path | str) -> tuple[KernelMetrics, ...]:
    """Read a profiler's table."""
    return parse_profiler_csv(read_file_text(Path(path)), name=str(path))


def parse_profiler_csv(text: str, *, name: str = "the table") -> tuple[KernelMetrics, ...]:
    """Parse a profiler's table; parameters, result and errors as of `read_profiler_csv`."""
    import pandas as pd

    table = re.search(r'^"?ID"?,.*', text.removeprefix("\ufeff"), re.MULTILINE | re.DOTALL)
    if table is None:
        raise TableError(
            f"{name} is no table of ncu --csv: no line begins with the column 'ID' and a comma;"
            " export it by ncu --csv --metrics ..., or ncu --csv --page raw"
        )
    try:
        with warnings.catch_warnings(action="error"):  # of lines that are too long
            cells = pd.read_csv(io.StringIO(table[0]), dtype=str, index_col=False).fillna("")
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise TableError(
            f"{name} is damaged: {str(error).strip()}; export the table again"
        ) from error
    if "ID" in cells["ID"].to_list():
        raise TableError(f"{name} has several tables; put each into a file of its own")
    if "Metric Name" not in cells and not cells.empty:  # a launch a line, below the units
        units, cells = cells.iloc[0], cells.iloc[1:]
        if units["ID"]:
            raise TableError("the line below the header has no units", row=1)
        cells = cells.melt([column for column in cells if "__" not in column])
        cells = cells.rename(columns={"variable": "Metric Name", "value": "Metric Value"})
        cells["Metric Unit"] = cells["Metric Name"].map(units)
    elif "Metric Value" not in cells:
        raise TableError("the table has no column 'Metric Value'", column="Metric Value")
    cells = cells.reindex(columns=[*_LAUNCH, *_CELL], fill_value="")
    cells = cells[cells["Kernel Name"] != ""]
    if cells.empty:
        raise TableError("the table has no line of a kernel", column="Kernel Name")
    launches: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for *launch, metric, number, unit in cells.itertuples(index=False):
        values = launches.setdefault(tuple(launch), {})
        if metric in _KINDS and (value := _read_number(metric, number, unit)) is not None:
            values.setdefault(metric, []).append(value)
    return tuple(
        KernelMetrics(
            kernel=kernel,
            values={metric: sum(of) / len(of) for metric, of in values.items()},
            groups=_product(grid),
            work_items_per_group=_product(block),
            device=device,
            compute_capability=capability,
        )
        for (kernel, grid, block, device, capability), values in launches.items()
    )


def _read_number(metric: str, text: str, unit: str) -> float | None:
    """Return a number in its base unit; None for texts such as ``n/a``."""
    kind, text = _KINDS[metric], _INSTANCES.sub("", text)
    scale = _UNITS[kind].fullmatch(unit)
    if not any(letter.isdigit() for letter in text):
        return None
    if not _NUMBER.fullmatch(text):
        said = "is no number from 0: export the table with LC_ALL=C, without decimal commas"
    elif scale is None or scale[1] not in _SCALES:
        wanted = f"{kind} is wanted, such as ncu --print-units base gives"
        said = f"has the unit {unit!r}; {wanted}"
    elif (value := float(text.replace(",", ""))) % 1 and unit in ("inst", "byte"):
        said = f"is no whole number of {unit}: export the table with LC_ALL=C"
    elif kind != "%":
        return value * _SCALES[scale[1]]
    elif value <= 100:
        return value / 100
    else:
        said = "is more than all"
    raise TableError(f"{text!r} {said} ({metric})", column=metric)


def _product(size: str) -> int | None:
    """Return the product of a size such as ``(16, 16, 1)``; None for no size."""
    extents = re.findall(r"\d+", size)
    return math.prod(map(int, extents)) if extents else None


def measured_fields(metrics: KernelMetrics) -> dict[str, MeasuredField]:
    """Return the fields of a profile that metrics give, of the whole launch; see the module."""
    measured: dict[str, MeasuredField] = {}
    for field, kind, factors in _SOURCES:
        there = {name: metrics.values[name] for name in factors if name in metrics.values}
        is_whole = bool(there) and (kind != "byte" or len(there) == len(factors))
        if is_whole and field not in measured:
            total = sum(factors[name] * value for name, value in there.items())
            measured[field] = MeasuredField(total, tuple(there))
    return measured


def _is_called(kernel: str, name: str) -> bool:
    """Return whether a profiler's name is of a function, whatever its types and template are."""
    if kernel.startswith("_Z"):
        return re.match(rf"_Z(?:N.*\D)?{len(name)}{re.escape(name)}", kernel) is not None
    plain, count = kernel.replace("(anonymous namespace)::", ""), 1
    while count:
        plain, count = re.subn(r"<[^<>]*>", "", plain)
    return re.split(r"\s|::", plain.partition("(")[0].strip())[-1] == name


def _choose(
    metrics: Sequence[KernelMetrics], name: str, size: tuple[int, int], device: DeviceParameters
) -> KernelMetrics:
    """Return the metrics of a launch on a device."""
    own, launched = device.compute_capability, f"{size[0]} groups of {size[1]}"
    named = [one for one in metrics if _is_called(one.kernel, name)]
    sized = [
        one
        for one in named
        if one.groups in (None, size[0]) and one.work_items_per_group in (None, size[1])
    ]
    chosen = [one for one in sized if own is None or one.compute_capability in ("", own)]
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        said = f"{len(chosen)} kernels of the table are called {name!r}; there are"
        mend = "; leave the lines of one in the table, such as of one device (ncu --devices 0)"
    elif sized:
        said = f"the table was measured on another device than {device.slug}, of compute"
        said += f" capability {own}"
        mend = "; profile the kernel there, or predict for the device of the table"
    elif named:
        said = f"the table has other sizes of {name!r} than the launch of {launched}"
        mend = "; profile it at the same size, or ask for that size"
    else:
        said, mend = f"no kernel of the table is called {name!r}; there are", ""
    there = ", ".join(map(str, chosen or sized or named or metrics))
    raise TableError(f"{said}: {there}{mend}", column="Kernel Name")


def with_measured(
    profiled: ProfiledKernel, metrics: Sequence[KernelMetrics], device: DeviceParameters
) -> ProfiledKernel:
    """Return a profile with what a profiler measured in the place of what was counted."""
    launch = profiled.launch
    size = (launch.num_groups, launch.work_items_per_group)
    chosen = _choose(metrics, profiled.profile.name, size, device)
    measured = measured_fields(chosen)
    if not measured:
        message = (
            f"no metric of {chosen.kernel} gives a field of a profile; export"
            " ncu --csv --page raw, or --metrics dram__bytes.sum,smsp__inst_issued.sum or others"
            " that countperf.mechanistic.profiler_csv lists"
        )
        raise TableError(message, column="Metric Name")
    sub_groups = launch.total_sub_groups(device.require_int("sub_group_size"))
    changes: dict[str, Any] = {field: metric.value for field, metric in measured.items()}
    marks = {field: ", ".join(metric.metrics) for field, metric in measured.items()}
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
