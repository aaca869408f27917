"""Device parameters: the constants that mechanistic models need, and their files.

A number that nobody gave is ``None``; nothing is guessed. Cycles are those of a compute unit,
instructions are those of a sub-group: a cost of 0.25 cycles means that a compute unit starts four
sub-group instructions of the class in every cycle.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from countperf.documents import Document, Part, check_format, field_path, parse_toml, validate
from countperf.errors import DeviceError, DeviceParameterError, nearest, option
from countperf.store import make_file_error, read_file_text
from countperf.text import some_of

InstructionKind = Literal["compute", "memory", "barrier"]
TransferDirection = Literal["h2d", "d2h", "d2d"]
RegisterMode = Literal["work_item", "sub_group", "group"]
_Parameters = TypeVar("_Parameters", bound="DeviceParameters")
DECLARED = "declared by the caller"  # the source of a number that came without one

_PositiveFloat = Annotated[float, Field(gt=0)]
_NonNegativeFloat = Annotated[float, Field(ge=0)]
_PositiveInt = Annotated[int, Field(gt=0)]
_NonNegativeInt = Annotated[int, Field(ge=0)]


def _in(unit: str) -> Any:
    """Declare a number in a unit, which may be absent."""
    return Field(default=None, json_schema_extra={"unit": unit})


_CHECKS = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True, config=_CHECKS)
class InstructionClass:
    """One class of instructions of a device; a `ValidationError` refuses numbers that cannot be."""

    name: str  # name of the class, such as ``"mul.f32"``
    subsystem: str  # the pipeline that executes it
    cpi: _PositiveFloat
    latency: _NonNegativeFloat | None  # cycles from the start of an instruction to its result
    kind: InstructionKind  # what the class counts as in models that know only one of each
    source: str = DECLARED  # where the two numbers come from

    @property
    def known_latency(self) -> float:
        """The latency; an error that names it where none is stated."""
        if self.latency is None:
            field = f"classes.{self.name}.latency"
            raise DeviceParameterError(
                f"no value for {field}, which all models but rooflines need; give it in the"
                " device's document, in cycle",
                field=field,
            )
        return self.latency


@dataclass(frozen=True, slots=True, kw_only=True, config=_CHECKS)
class LinkParameters:
    """A direction of the link between host and device, or the link to another such device."""

    startup_s: _NonNegativeFloat  # time of an empty transfer, s
    bandwidth_byte_per_s: _PositiveFloat  # nominal bandwidth, byte/s
    lambda_c: _PositiveFloat = 1.0  # share of it that transfers reach
    source: str = DECLARED  # where the numbers come from


class DeviceParameters(Document):
    """Constants of one device, each or None; `declare_device` raises our errors, not pydantic's."""

    format: Literal["countperf-device-parameters"] = "countperf-device-parameters"
    version: Literal[1] = 1
    # short name of the device, as in `DeviceIdentity`, and its name in full
    slug: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    name: str = Field(min_length=1)
    compute_capability: str | None = None  # NVIDIA's version of the architecture, such as ``"5.2"``
    register_mode: RegisterMode = "work_item"  # per what registers are allocated
    # registers per work item for which they are allocated in twice the ``register_unit``
    coarse_registers: tuple[_PositiveInt, ...] = ()
    num_compute_units: _PositiveInt | None = _in("compute unit")
    clock_hz: _PositiveFloat | None = _in("Hz")
    sub_group_size: _PositiveInt | None = _in("work item/sub-group")
    # sub-group instructions that a compute unit can start per cycle over all subsystems
    issue_limit: _PositiveFloat | None = _in("instruction/cycle")
    bandwidth_byte_per_s: _PositiveFloat | None = _in("byte/s")
    # peaks of the whole device, flop/s (an addition and a multiplication are two) and byte/s
    peak_flops: _PositiveFloat | None = _in("flop/s")
    launch_overhead_s: _NonNegativeFloat | None = _in("s")  # time of an empty launch, s
    cache_line_bytes: _PositiveInt | None = _in("byte")  # bytes of global memory that move together
    # share of the peak bandwidth that kernels reach
    achievable_bandwidth_share: _PositiveFloat | None = _in("1")
    # caches of global memory; 0: there is none. L1 that is no smaller than local memory has its
    # bytes in common with it. Bandwidths are those of the whole device.
    l1_bytes_per_compute_unit: _NonNegativeInt | None = _in("byte/compute unit")
    l1_bandwidth_byte_per_s: _PositiveFloat | None = _in("byte/s")
    l2_bytes: _NonNegativeInt | None = _in("byte")
    l2_bandwidth_byte_per_s: _PositiveFloat | None = _in("byte/s")
    l1_latency_cycles: _PositiveFloat | None = _in("cycle")  # of loads that they serve
    l2_latency_cycles: _PositiveFloat | None = _in("cycle")
    # scalar single-precision lanes, and instruction schedulers
    cores_per_compute_unit: _PositiveInt | None = _in("core/compute unit")
    schedulers_per_compute_unit: _PositiveInt | None = _in("scheduler/compute unit")
    # limits on what is resident on a compute unit at a time
    max_sub_groups_per_compute_unit: _PositiveInt | None = _in("sub-group/compute unit")
    max_work_items_per_compute_unit: _PositiveInt | None = _in("work item/compute unit")
    max_groups_per_compute_unit: _PositiveInt | None = _in("group/compute unit")
    max_work_items_per_group: _PositiveInt | None = _in("work item/group")
    max_local_bytes_per_group: _PositiveInt | None = _in("byte/group")
    max_registers_per_work_item: _PositiveInt | None = _in("register/work item")
    registers_per_compute_unit: _PositiveInt | None = _in("register/compute unit")
    local_bytes_per_compute_unit: _PositiveInt | None = _in("byte/compute unit")
    # granularity of allocation, and local memory that the system takes of every group
    register_unit: _PositiveInt | None = _in("register")
    local_unit: _PositiveInt | None = _in("byte")
    sub_group_unit: _PositiveInt | None = _in("sub-group")
    local_reserved_bytes_per_group: _NonNegativeInt | None = _in("byte/group")
    # machine constants of Hong & Kim (2009)
    issue_cycles: _PositiveFloat | None = _in("cycle/instruction")
    mem_ld_cycles: _PositiveFloat | None = _in("cycle")
    departure_del_coal_cycles: _PositiveFloat | None = _in("cycle")
    departure_del_uncoal_cycles: _PositiveFloat | None = _in("cycle")
    # cost of a memory instruction on the compute pipeline (work flow graph model)
    cpi_mem_instr: _NonNegativeFloat | None = _in("cycle/instruction")
    # memory clock, width of the bus, transfers per clock
    mem_clock_hz: _PositiveFloat | None = _in("Hz")
    bus_width_bits: _PositiveInt | None = _in("bit")
    data_rate: _PositiveFloat | None = _in("transfer/cycle")
    # machine constants of Ma, Chamberlain & Agrawal (2014)
    latency_steps: _PositiveFloat | None = _in("step")
    chunk: _PositiveFloat | None = _in("access/transaction")
    max_work_items_per_core: _PositiveFloat | None = _in("work item/core")
    # factor of the architecture in MERPSYS: estimated over measured times
    lambda_k: _PositiveFloat | None = _in("1")
    # cost of instructions by name of the class
    classes: dict[str, InstructionClass] = Field(default_factory=dict)
    # transfers to and from the device
    links: dict[TransferDirection, LinkParameters] = Field(default_factory=dict)
    sources: dict[str, str] = Field(default_factory=dict)  # source of each number, by field

    def require(self, field: str, *, model: str = "the model") -> float:
        """Return a number that a model cannot do without."""
        value = getattr(self, field)
        if value is None:
            message = (
                f"device {self.slug!r}: no value for {field}, which {model} needs; give it in the"
                f" device's document, in {UNITS[field]}"
            )
            raise DeviceParameterError(message, field=field)
        return float(value)

    def require_int(self, field: str, *, model: str = "the model") -> int:
        """Return a whole number that a model cannot do without; errors as in `require`."""
        return int(self.require(field, model=model))

    def require_class(self, name: str, *, model: str = "the model") -> InstructionClass:
        """Return the cost of a class of instructions."""
        if name not in self.classes:
            known = some_of(tuple(self.classes))
            raise DeviceParameterError(
                f"device {self.slug!r}: no instruction class {name!r}, which {model} needs"
                f" (known: {known}); add it to the device's document",
                field=f"classes.{name}",
            )
        return self.classes[name]

    def source_of(self, field: str) -> str:
        """Return where a number comes from."""
        return self.sources.get(field, DECLARED)

    def with_values(self, **changes: Any) -> Self:
        """Return the device with other values, checked like `declare_device`."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return _construct(type(self), {**values, **changes})


UNITS: Mapping[str, str] = {
    name: str(field.json_schema_extra["unit"])
    for name, field in DeviceParameters.model_fields.items()
    if isinstance(field.json_schema_extra, dict)
}
"""Unit of every numeric field of `DeviceParameters`, as a catalogue file must write it."""


def advise_characterization(slug: str) -> str:
    """Say how a device of this machine gets a description."""
    measured = f"runs/{slug}-parameters.json"
    return (
        f"it is measured on its machine by: countperf characterize --store runs/{slug}.json"
        f" --output {measured}; then pass that document, {option('document', measured)}"
    )


def declare_device(slug: str = "declared", **values: Any) -> DeviceParameters:
    """Describe a device by what is known of it."""
    return _construct(DeviceParameters, {"slug": slug, "name": slug, **values})


def _construct(device_type: type[_Parameters], values: Mapping[str, Any]) -> _Parameters:
    try:
        return device_type(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = field_path(first["loc"], root="").lstrip(".")
        said = f"{first['msg']} (found: {first['input']!r})"
        message = f"device {values.get('slug')!r}: {field}: {said}"
        raise DeviceParameterError(message, field=field) from error


# --- Descriptions of devices on disk, and limits of NVIDIA's compute capabilities
#
# A description is a TOML file with one table per number, so that each carries unit and source; see
# those in the folder ``catalog``. Limits that it does not state follow from ``compute_capability``.
#
# Source of the limits: below; of 1.x and 2.x editions of that time (the header: CUDA Toolkit 7.0).
# Where they differ: registers of a work item are at most 63 on 3.0 and 255 from 7.0 on (the guide),
# not 255 and 256 (the header), which refuses on 6.0 groups that 6.1 could not hold. Kernels here
# take one barrier of a group; with two, 8.6 and later but 9.0 and 10.0 hold half as many groups.

SOURCE = (
    "CUDA C Programming Guide, technical specifications per compute capability;"
    " cuda_occupancy.h of the CUDA Toolkit"
)
_SUB_GROUP_SIZE = 32
_COARSE_REGISTERS = (21, 22, 29, 30, 37, 38, 45, 46)  # of compute capability 2.x

with Path(__file__).with_name("capabilities.csv").open(encoding="utf-8", newline="") as _file:
    _ROWS = {row.pop("compute_capability"): row for row in csv.DictReader(_file)}

COMPUTE_CAPABILITIES: tuple[str, ...] = tuple(_ROWS)  # whose limits are known


def capability_limits(compute_capability: str) -> dict[str, Any]:
    """Return the limits of a compute capability, as fields of `DeviceParameters`."""
    if compute_capability not in _ROWS:
        known = ", ".join(COMPUTE_CAPABILITIES)
        message = f"no limits of compute capability {compute_capability!r} (known: {known})"
        raise DeviceParameterError(message, field="compute_capability")
    limits = {name: int(text) for name, text in _ROWS[compute_capability].items()}
    return {
        **limits,
        "sub_group_size": _SUB_GROUP_SIZE,
        "max_work_items_per_compute_unit": (
            limits["max_sub_groups_per_compute_unit"] * _SUB_GROUP_SIZE
        ),
        "register_mode": "group" if compute_capability.startswith("1.") else "sub_group",
        "coarse_registers": _COARSE_REGISTERS if compute_capability.startswith("2.") else (),
    }


def with_capability_limits(device: DeviceParameters) -> DeviceParameters:
    """Return a device with the limits of its compute capability where it states none itself."""
    if device.compute_capability is None:
        return device
    limits = capability_limits(device.compute_capability)
    absent = {name: value for name, value in limits.items() if getattr(device, name) is None}
    sources = dict.fromkeys(absent, SOURCE)
    for name in ("register_mode", "coarse_registers"):
        if name not in device.model_fields_set:
            absent[name] = limits[name]
    return device.with_values(**absent, sources={**device.sources, **sources})


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
        known, near = ", ".join(available_devices()), nearest(device, available_devices())
        message = f"no description of a device {device!r} (known: {known}); give a TOML file{near}"
        raise DeviceError(message, device=device)
    return load_device(_CATALOG / f"{device}.toml")


def read_device(text: str, *, path: Path | str | None = None) -> DeviceParameters:
    """Parse and validate the TOML description of a device."""
    content = parse_toml(text, path=path)
    fields = check_format(content, str(DeviceParameters.model_fields["format"].default), path=path)
    named = validate(_Sources, {"sources": fields.pop("sources", {})}, path=path).sources

    def take(row: type[_Row], entry: object, unit: str, where: str) -> tuple[dict[str, Any], str]:
        """Return a table without its unit and its source, and the text of the latter."""
        found = validate(row, entry, path=path, root=where)
        if found.unit != unit:
            field = f"{where}.unit"
            raise make_file_error(f"{field}: the unit must be {unit!r}", path, field=field)
        if not named.get(found.source):
            field, known = f"{where}.source", ", ".join(named) or "none"
            message = f"{field}: {found.source!r} is not in [sources] ({known})"
            raise make_file_error(message, path, field=field)
        return found.model_dump(exclude={"unit", "source"}), named[found.source]

    plain: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, entry in fields.items():
        if name in UNITS:
            number, sources[name] = take(_Number, entry, UNITS[name], f"$.{name}")
            plain[name] = number["value"]
        elif name in ("classes", "links") and isinstance(entry, dict):
            plain[name] = {}
            for key, part in entry.items():
                own = {"name": key, "latency": None} if name == "classes" else {}
                unit, where = "cycle" if own else "", field_path((key,), root=f"$.{name}")
                values, source = take(_Row, part, unit, where)
                plain[name][key] = {**own, **values, "source": source}
        else:
            plain[name] = entry
    device = validate(DeviceParameters, {**plain, "sources": sources}, path=path)
    return with_capability_limits(device)


class _Sources(Part):
    sources: dict[str, str]


class _Row(Part):
    model_config = ConfigDict(extra="allow")

    source: str  # name of a text in ``[sources]``
    unit: str = ""


class _Number(_Row):
    model_config = ConfigDict(extra="forbid")

    value: Any
