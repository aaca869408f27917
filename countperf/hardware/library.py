"""Descriptions of devices on disk, and limits of NVIDIA's compute capabilities.

A description is a TOML file with one table per number, so that each carries unit and source::

    format = "countperf-device-parameters"
    version = 1
    slug = "nvidia-gtx-970"
    name = "NVIDIA GeForce GTX 970"
    compute_capability = "5.2"        # optional: limits that the file does not state follow from it

    clock_hz = { value = 1.253e9, unit = "Hz", source = "paper" }

    [sources]
    paper = "Author, year, table"

    [classes]
    "mul.f32" = { kind = "compute", subsystem = "alu", cpi = 0.375, latency = 6, unit = "cycle", \
source = "paper" }

    [links]
    h2d = { startup_s = 4e-6, bandwidth_byte_per_s = 15.8e9, lambda_c = 0.7, source = "paper" }

Source of the limits: CUDA C Programming Guide, "Technical Specifications per Compute Capability",
and ``cuda_occupancy.h`` of the CUDA Toolkit (granularity of allocation), which computes what the
CUDA Occupancy Calculator does. Capabilities 1.x and 2.x have left both since; their numbers are
those of the editions of their time (the header: CUDA Toolkit 7.0).

From 3.0 on, the results are checked against the header itself, with the limits that CCCL states
(``cuda/__device/arch_traits.h``, 5.0 and later). Where the sources differ: registers of a work item
are at most 63 on 3.0 and 255 from 7.0 on (the guide), not 255 and 256 (the header). Kernels here
take one barrier of a group; where one takes two, 8.6 and later but 9.0 and 10.0 hold half as many.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NoReturn

from countperf.documents import Part, check_format, field_path, parse_toml, read_file_text, validate
from countperf.errors import DeviceError, DeviceParameterError, DocumentError
from countperf.hardware.parameters import UNITS, DeviceParameters, declare_device

SOURCE = (
    "CUDA C Programming Guide, technical specifications per compute capability;"
    " cuda_occupancy.h of the CUDA Toolkit"
)

_SUB_GROUP_SIZE = 32
_FILE = Path(__file__).with_name("capabilities.csv")
with _FILE.open(encoding="utf-8", newline="") as _file:
    _ROWS = {row.pop("compute_capability"): row for row in csv.DictReader(_file)}

# of compute capability 2.x
_COARSE_REGISTERS = (21, 22, 29, 30, 37, 38, 45, 46)

COMPUTE_CAPABILITIES: tuple[str, ...] = tuple(_ROWS)
"""The compute capabilities whose limits are known."""


def capability_limits(compute_capability: str) -> Mapping[str, Any]:
    """Return the limits of a compute capability, as fields of `DeviceParameters`."""
    if compute_capability not in _ROWS:
        known = ", ".join(COMPUTE_CAPABILITIES)
        message = f"no limits of compute capability {compute_capability!r} (known: {known})"
        raise DeviceParameterError(message, field="compute_capability")
    limits: dict[str, Any] = {name: int(text) for name, text in _ROWS[compute_capability].items()}
    limits["sub_group_size"] = _SUB_GROUP_SIZE
    most = limits["max_sub_groups_per_compute_unit"]
    limits["max_work_items_per_compute_unit"] = most * _SUB_GROUP_SIZE
    limits["register_mode"] = "group" if compute_capability.startswith("1.") else "sub_group"
    limits["coarse_registers"] = _COARSE_REGISTERS if compute_capability.startswith("2.") else ()
    return MappingProxyType(limits)


def with_capability_limits(device: DeviceParameters) -> DeviceParameters:
    """Return a device with the limits of its compute capability where it states none itself."""
    if device.compute_capability is None:
        message = f"device {device.slug!r}: no compute_capability, which its limits follow from"
        raise DeviceParameterError(message, field="compute_capability")
    limits = capability_limits(device.compute_capability)
    absent = {name: value for name, value in limits.items() if getattr(device, name) is None}
    sources = dict.fromkeys(absent, SOURCE)
    for name in ("register_mode", "coarse_registers"):
        if name not in device.model_fields_set:
            absent[name] = limits[name]
    return device.replaced(**absent, sources={**device.sources, **sources})


def capability_device(compute_capability: str) -> DeviceParameters:
    """Return a device that has nothing but the limits of a compute capability."""
    slug = f"compute-capability-{compute_capability.replace('.', '-')}"
    return with_capability_limits(declare_device(slug, compute_capability=compute_capability))


_CATALOG = Path(__file__).parent / "catalog"


def available_devices() -> tuple[str, ...]:
    """Return the slugs of the devices in the catalogue, sorted."""
    return tuple(sorted(path.stem for path in _CATALOG.glob("*.toml")))


def load_device(device: str | Path) -> DeviceParameters:
    """Read a device's description."""
    if str(device).endswith(".json"):
        measured = DeviceParameters.read_file(device)
        known = measured.compute_capability in COMPUTE_CAPABILITIES
        return with_capability_limits(measured) if known else measured
    if isinstance(device, Path) or device.endswith(".toml"):
        return read_device(read_file_text(device), path=device)
    if device not in available_devices():
        known = ", ".join(available_devices())
        message = f"no description of a device {device!r} (known: {known}); give a TOML file"
        raise DeviceError(message, device=device)
    path = _CATALOG / f"{device}.toml"
    return read_device(read_file_text(path), path=path)


def read_device(text: str, *, path: Path | str | None = None) -> DeviceParameters:
    """Parse and validate the TOML description of a device."""
    content = parse_toml(text, path=path)
    fields = check_format(content, str(DeviceParameters.model_fields["format"].default), path=path)
    named = validate(_Sources, {"sources": fields.pop("sources", {})}, path=path).sources

    def read(row: type[_Row], entry: object, where: str) -> tuple[dict[str, Any], str]:
        values = validate(row, entry, path=path, root=where).model_dump(exclude_unset=True)
        source = values.pop("source")
        if not named.get(source):
            known = ", ".join(named) or "none"
            _fail(f"{source!r} is not in [sources] ({known})", f"{where}.source", path)
        return values, named[source]

    plain: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, entry in fields.items():
        if name in UNITS:
            number, sources[name] = read(_Number, entry, f"$.{name}")
            if number["unit"] != UNITS[name]:
                _fail(f"the unit must be {UNITS[name]!r}", f"$.{name}.unit", path)
            plain[name] = number["value"]
        elif name in _TABLES and isinstance(entry, dict):
            plain[name] = {}
            for key, part in entry.items():
                found, source = read(_TABLES[name], part, field_path((key,), root=f"$.{name}"))
                extra = {"name": key} if name == "classes" else {}
                found.pop("unit", None)
                plain[name][key] = {**found, **extra, "source": source}
        else:
            plain[name] = entry
    device = validate(DeviceParameters, {**plain, "sources": sources}, path=path)
    return device if device.compute_capability is None else with_capability_limits(device)


class _Sources(Part):
    sources: dict[str, str]


class _Row(Part):
    source: str  # name of a text in ``[sources]``


class _Number(_Row):
    value: Any
    unit: str


class _Class(_Row):
    kind: str
    subsystem: str
    cpi: float
    latency: float
    unit: Literal["cycle"]


class _Link(_Row):
    startup_s: float
    bandwidth_byte_per_s: float
    lambda_c: float = 1.0


_TABLES: Mapping[str, type[_Row]] = {"classes": _Class, "links": _Link}


def _fail(message: str, field: str, path: Path | str | None) -> NoReturn:
    prefix = "" if path is None else f"{path}: "
    raise DocumentError(
        f"{prefix}{field}: {message}", path=None if path is None else str(path), field=field
    )
