"""Values that Nsight Compute measured of a kernel, in the place of counted ones.

Read is a table of ``ncu --csv``: one metric a line, or one launch a line (``--page raw``). Values
of instances (``--print-metric-instances``) are left out. `_SOURCES` lists the fields of a profile
and the metrics that give them.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from countperf.devices.parameters import DeviceParameters
from countperf.errors import TableError
from countperf.mechanistic.profile import ProfiledKernel
from countperf.store import read_file_text
from countperf.text import ShortRepr

_FLOPS = {
    f"_sass_thread_inst_executed_op_{letter}{kind}_pred_on.sum": n
    for letter in "fdh"
    for kind, n in (("add", 1), ("mul", 1), ("fma", 2))
}
_LOCAL = "launch__shared_mem_per_block_"
_SOURCES: tuple[tuple[str, str, Mapping[str, float]], ...] = (
    ("total_bytes", "byte", {"dram__bytes.sum": 1}),
    ("total_bytes", "byte", {"dram__bytes_read.sum": 1, "dram__bytes_write.sum": 1}),
    ("occupancy", "%", {"sm__warps_active.avg.pct_of_peak_sustained_active": 1}),
    ("ins_issued", "inst", {"smsp__inst_issued.sum": 1}),
    ("ins_issued", "inst", {"sm__inst_issued.sum": 1}),
    ("total_flops", "inst", {f"smsp_{name}": n for name, n in _FLOPS.items()}),
    ("total_flops", "inst", {f"sm_{name}": n for name, n in _FLOPS.items()}),
    ("registers_per_work_item", "register", {"launch__registers_per_thread": 1}),
    ("local_bytes_per_group", "byte", {f"{_LOCAL}static": 1, f"{_LOCAL}dynamic": 1}),
)
"""Fields, the unit of their metrics, and what each metric counts for; the first with metrics."""
_UNITS = {metric: unit for _, unit, metrics in _SOURCES for metric in metrics}
_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_NUMBER = re.compile(r"(\d{1,3}(,\d{3})+|\d+)(\.\d+)?([eE][-+]?\d+)?")
_COLUMNS = ["Kernel Name", "Grid Size", "Block Size", "Device", "CC"]
_CELLS = ["Metric Name", "Metric Value", "Metric Unit"]


@dataclass(frozen=True, slots=True)
class KernelMetrics(ShortRepr):
    """Metrics of one kernel at one size on one device, means over its launches."""

    kernel: str  # the profiler's name of the kernel
    # of each launch, as the table writes them; empty where it does not
    grid: str
    block: str
    device: str
    compute_capability: str
    values: Mapping[str, float]  # by metric, in byte, instruction and the like

    def __str__(self) -> str:
        return (
            f"{self.kernel} with {_count(self.grid)} groups of {_count(self.block)} on device"
            f" {self.device or '?'} of compute capability {self.compute_capability or '?'}"
        )

    def is_of(self, profiled: ProfiledKernel, device: DeviceParameters) -> bool:
        """Return whether this was measured of a program's launch on such a device."""
        launch, own = profiled.launch, device.compute_capability or ""
        return (
            _is_called(self.kernel, profiled.profile.name)
            and _count(self.grid) in ("?", str(launch.num_groups))
            and _count(self.block) in ("?", str(launch.work_items_per_group))
            and ("" in (own, self.compute_capability) or self.compute_capability == own)
        )


def read_profiler_csv(path: Path | str) -> tuple[KernelMetrics, ...]:
    """Read a profiler's table."""
    return parse_profiler_csv(read_file_text(Path(path)), name=str(path))


def parse_profiler_csv(text: str, *, name: str = "the table") -> tuple[KernelMetrics, ...]:
    """Parse a profiler's table; refuse what is none, and numbers in a unit that is not known."""
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
        message = f"{name} is damaged: {str(error).strip()}; export the table again"
        raise TableError(message) from error
    if "ID" in cells["ID"].to_list():
        raise TableError(f"{name} has several tables; put each into a file of its own")
    if "Metric Name" not in cells and not cells.empty:  # a launch a line, below the units
        units, cells = cells.iloc[0], cells.iloc[1:]
        cells = cells.melt([column for column in cells if "__" not in column])
        cells = cells.rename(columns={"variable": "Metric Name", "value": "Metric Value"})
        cells["Metric Unit"] = cells["Metric Name"].map(units)
    cells = cells.reindex(columns=[*_COLUMNS, *_CELLS], fill_value="")
    launches: dict[Any, dict[str, list[float]]] = {}  # by the values of the first columns
    for *launch, metric, number, unit in cells[cells["Kernel Name"] != ""].itertuples(index=False):
        values = launches.setdefault(tuple(launch), {})
        if metric in _UNITS and (value := _read_number(metric, number, unit)) is not None:
            values.setdefault(metric, []).append(value)
    if not launches:
        raise TableError(f"{name} has no line of a kernel", column="Kernel Name")
    return tuple(
        KernelMetrics(*launch, values={metric: sum(of) / len(of) for metric, of in values.items()})
        for launch, values in launches.items()
    )


def _read_number(metric: str, text: str, unit: str) -> float | None:
    """Return a number in its base unit; None for texts such as ``n/a``."""
    text = text.partition(" (")[0]  # in front of values of instances
    if not any(letter.isdigit() for letter in text):
        return None
    scale = re.fullmatch(rf"([KMGT]?){_UNITS[metric]}(/\w+)?", unit)
    if scale is None:
        wanted = f"{_UNITS[metric]} is wanted, such as ncu --print-units base gives"
        raise TableError(f"{text!r} has the unit {unit!r}; {wanted} ({metric})", column=metric)
    value = float(text.replace(",", "")) if _NUMBER.fullmatch(text) else math.nan
    if math.isnan(value) or (value % 1 and unit in ("inst", "byte")):
        raise TableError(
            f"{text!r} is no number of {unit} from 0: export the table with LC_ALL=C, without"
            f" decimal commas ({metric})",
            column=metric,
        )
    return value * _SCALES[scale[1]]


def _count(size: str) -> str:
    """Return the product of a size such as ``(16, 16, 1)``; ``?`` for no size."""
    extents = re.findall(r"\d+", size)
    return str(math.prod(map(int, extents))) if extents else "?"


def find_measured_fields(metrics: KernelMetrics) -> dict[str, tuple[float, str]]:
    """Return fields of a profile, of the whole launch, and the metrics that give each."""
    measured: dict[str, tuple[float, str]] = {}
    for field, unit, factors in _SOURCES:
        there = {name: metrics.values[name] for name in factors if name in metrics.values}
        if there and (unit != "byte" or len(there) == len(factors)):  # bytes must be whole
            total = sum(factors[name] * value for name, value in there.items())
            measured.setdefault(field, (total, ", ".join(there)))
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
    profile, launch = profiled.profile, profiled.launch
    chosen = [one for one in metrics if one.is_of(profiled, device)]
    if len(chosen) != 1:
        raise TableError(
            f"the table has {len(chosen) or 'no'} launches of {profile.name!r} with"
            f" {launch.num_groups} groups of {launch.work_items_per_group} on {device.slug}, of"
            f" compute capability {device.compute_capability or '?'}; it has"
            f" {', '.join(map(str, chosen or metrics))}; profile that size on such a device, or"
            " leave the lines of one launch in the table",
            column="Kernel Name",
        )
    measured = find_measured_fields(chosen[0])
    if not measured:
        raise TableError(
            f"no metric of {chosen[0].kernel} gives a field of a profile; export ncu --csv --page"
            " raw, or --metrics dram__bytes.sum,smsp__inst_issued.sum or others that"
            " countperf.mechanistic.profiler_csv lists",
            column="Metric Name",
        )
    sub_groups = launch.total_sub_groups(device.require_int("sub_group_size"))
    changes: dict[str, Any] = {field: value for field, (value, _) in measured.items()}
    marks = {field: named for field, (_, named) in measured.items()}
    if (share := changes.pop("occupancy", None)) is not None:
        most = device.require("max_sub_groups_per_compute_unit", model="achieved occupancy")
        launch = replace(launch, occupancy=share / 100 * most)
    if "ins_issued" in changes:
        changes["ins_issued"] /= sub_groups
    if "total_bytes" in changes:
        moved, marks["gmem_bytes"] = changes["total_bytes"], marks["total_bytes"]
        changes["gmem_bytes"] = moved / sub_groups
        if profile.traffic is not None and profile.traffic.asked:
            traffic = replace(profile.traffic, memory=moved, measured=marks["total_bytes"])
            changes["traffic"], changes["dram_ratio"] = traffic, traffic.charge_ratios[0]
            marks["dram_ratio"] = f"{traffic.ratio:.3g}: {marks['total_bytes']}"
    for whole in ("registers_per_work_item", "local_bytes_per_group"):
        if whole in changes:
            changes[whole] = round(changes[whole])
    return ProfiledKernel(profile=replace(profile, measured=marks, **changes), launch=launch)
