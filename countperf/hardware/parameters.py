"""Device parameters: the constants that mechanistic models need.

A `DeviceParameters` holds plain numbers under the names of the models' vocabulary, each with a
unit (`DeviceParameters.unit_of`) and a source (`DeviceParameters.source_of`). A number that nobody
gave is ``None``; a model that needs it calls `DeviceParameters.require`, which raises an error that
names the field. Nothing is guessed.

Cycles are those of a compute unit, instructions are those of a sub-group: a cost of 0.25 cycles
means that a compute unit starts four sub-group instructions of the class in every cycle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, ValidationError

from countperf.documents import Document, field_path
from countperf.errors import DeviceParameterError

InstructionKind = Literal["compute", "memory", "barrier"]
TransferDirection = Literal["h2d", "d2h"]
RegisterMode = Literal["work_item", "sub_group", "group"]

_Parameters = TypeVar("_Parameters", bound="DeviceParameters")

DECLARED = "declared by the caller"
"""The source of a number that came without one."""

_PositiveFloat = Annotated[float, Field(gt=0)]
_NonNegativeFloat = Annotated[float, Field(ge=0)]
_PositiveInt = Annotated[int, Field(gt=0)]
_NonNegativeInt = Annotated[int, Field(ge=0)]


def _in(unit: str) -> Any:
    """Declare a number in a unit, which may be absent."""
    return Field(default=None, json_schema_extra={"unit": unit})


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionClass:
    """One class of instructions of a device."""

    name: str  # name of the class, such as ``"mul.f32"``
    subsystem: str  # the pipeline that executes it
    cpi: float
    latency: float  # cycles from the start of an instruction to its result
    kind: InstructionKind  # what the class counts as in models that know only one of each
    source: str = DECLARED  # where the two numbers come from

    def __post_init__(self) -> None:
        _check_positive(self.cpi, f"classes.{self.name}.cpi")
        _check_not_negative(self.latency, f"classes.{self.name}.latency")
        if self.kind not in ("compute", "memory", "barrier"):
            field = f"classes.{self.name}.kind"
            message = f"{field} must be compute, memory or barrier, not {self.kind!r}"
            raise DeviceParameterError(message, field=field)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkParameters:
    """One direction of the link between host and device."""

    startup_s: float  # time of an empty transfer, s
    bandwidth_byte_per_s: float  # nominal bandwidth, byte/s
    lambda_c: float = 1.0  # share of it that transfers reach
    source: str = DECLARED  # where the numbers come from

    def __post_init__(self) -> None:
        _check_not_negative(self.startup_s, "links.startup_s")
        _check_positive(self.bandwidth_byte_per_s, "links.bandwidth_byte_per_s")
        _check_positive(self.lambda_c, "links.lambda_c")


class DeviceParameters(Document):
    """Constants of one device; every number may be absent (``None``).

    Direct construction raises pydantic's errors; use `declare_device` for ours.
    """

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
    issue_cycles: _PositiveFloat | None = _in(
        "cycle/instruction"
    )  # machine constants of Hong & Kim (2009)
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
            message = (
                f"device {self.slug!r}: no instruction class {name!r}, which {model} needs"
                f" (known: {known}); add it to the device's document"
            )
            raise DeviceParameterError(message, field=f"classes.{name}")
        return self.classes[name]

    def source_of(self, field: str) -> str:
        """Return where a number comes from."""
        return self.sources.get(field, DECLARED)

    def replaced(self, **changes: Any) -> Self:
        """Return the device with other values, checked like `declare_device`."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return _construct(type(self), {**values, **changes})


UNITS: Mapping[str, str] = {
    name: str(field.json_schema_extra["unit"])
    for name, field in DeviceParameters.model_fields.items()
    if isinstance(field.json_schema_extra, dict)
}
"""Unit of every numeric field of `DeviceParameters`, as a catalogue file must write it."""


def declare_device(slug: str = "declared", **values: Any) -> DeviceParameters:
    """Describe a device by what is known of it."""
    return _construct(DeviceParameters, {"slug": slug, "name": slug, **values})


def _construct(device_type: type[_Parameters], values: Mapping[str, Any]) -> _Parameters:
    try:
        return device_type(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = field_path(first["loc"], root="").lstrip(".")
        message = (
            f"device {values.get('slug')!r}: {field}: {first['msg']} (found: {first['input']!r})"
        )
        raise DeviceParameterError(message, field=field) from error


def some_of(names: Sequence[str], *, most: int = 12) -> str:
    """List names for a message, the first ones of many."""
    more = len(names) - most
    listed = ", ".join(names[:most]) or "none"
    return listed if more <= 0 else f"{listed} and {more} more"


def _check_positive(value: float, field: str) -> None:
    if not (math.isfinite(value) and value > 0):
        message = f"{field} must be positive and finite, not {value}"
        raise DeviceParameterError(message, field=field)


def _check_not_negative(value: float, field: str) -> None:
    if not (math.isfinite(value) and value >= 0):
        message = f"{field} must be finite and not negative, not {value}"
        raise DeviceParameterError(message, field=field)
