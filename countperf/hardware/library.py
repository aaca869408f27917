"""Descriptions of devices on disk: the shipped catalogue, and users' files.

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
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from countperf.documents import check_format, parse_toml, read_file_text, validate
from countperf.errors import DeviceError, DocumentError
from countperf.hardware.capabilities import COMPUTE_CAPABILITIES, with_capability_limits
from countperf.hardware.parameters import UNITS, DeviceParameters

_CATALOG = Path(__file__).parent / "catalog"
_CYCLE = "cycle"


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
    named = fields.pop("sources", {})
    if not isinstance(named, dict):
        _fail("a table of sources is wanted", "$.sources", path)
    for name, text in named.items():
        if not isinstance(text, str) or not text:
            step = f".{name}" if name.isidentifier() else f'["{name}"]'
            _fail("a text is wanted", f"$.sources{step}", path)
    reader = _Reader(named, path)
    plain: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, entry in fields.items():
        if name in UNITS:
            plain[name], sources[name] = reader.number(name, entry)
        elif name in ("classes", "links"):
            plain[name] = reader.entries(name, entry)
        else:
            plain[name] = entry
    device = validate(DeviceParameters, {**plain, "sources": sources}, path=path)
    if device.compute_capability is None:
        return device
    return with_capability_limits(device)


class _Reader:
    """Flattens tables with unit and source into plain numbers, checking both."""

    def __init__(self, named: Mapping[str, Any], path: Path | str | None) -> None:
        self.named = named
        self.path = path

    def number(self, name: str, entry: object) -> tuple[object, str]:
        where = f"$.{name}"
        table = self._table(entry, where, ("value", "unit", "source"))
        if table["unit"] != UNITS[name]:
            _fail(f"the unit must be {UNITS[name]!r}", f"{where}.unit", self.path)
        return table["value"], self._source(table, where)

    def entries(self, kind: str, entry: object) -> dict[str, Any]:
        if not isinstance(entry, dict):
            _fail("a table is wanted", f"$.{kind}", self.path)
        found: dict[str, Any] = {}
        for name, part in entry.items():
            where = f'$.{kind}["{name}"]' if "." in name else f"$.{kind}.{name}"
            wanted = ("cpi", "latency", "unit", "source") if kind == "classes" else ("source",)
            table = self._table(part, where, wanted, exact=False)
            found[name] = {**table, "source": self._source(table, where)}
            if kind == "classes":
                if found[name].pop("unit") != _CYCLE:
                    _fail(f"the unit must be {_CYCLE!r}", f"{where}.unit", self.path)
                found[name]["name"] = name
        return found

    def _table(
        self, entry: object, where: str, wanted: tuple[str, ...], *, exact: bool = True
    ) -> dict[str, Any]:
        if not isinstance(entry, dict):
            _fail(f"a table with {', '.join(wanted)} is wanted", where, self.path)
        for name in wanted:
            if name not in entry:
                _fail("missing", f"{where}.{name}", self.path)
        for name in entry:
            if exact and name not in wanted:
                _fail("unknown field", f"{where}.{name}", self.path)
        return dict(entry)

    def _source(self, table: Mapping[str, Any], where: str) -> str:
        name = table["source"]
        text = self.named.get(name) if isinstance(name, str) else None
        if not isinstance(text, str) or not text:
            known = ", ".join(map(str, self.named)) or "none"
            _fail(f"{name!r} is not in [sources] ({known})", f"{where}.source", self.path)
        return text


def _prefix(path: Path | str | None) -> str:
    return "" if path is None else f"{path}: "


def _fail(message: str, field: str, path: Path | str | None) -> NoReturn:
    raise DocumentError(
        f"{_prefix(path)}{field}: {message}", path=None if path is None else str(path), field=field
    )
