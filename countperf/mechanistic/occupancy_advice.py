"""Occupancy of a kernel on a device, and the next budgets at which more groups are resident."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from countperf.display import ShortRepr, Table, printed
from countperf.errors import ParameterError
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.occupancy import Residency, resident_groups
from countperf.mechanistic.profile import ProfiledKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(ShortRepr):
    """A change of one resource, with all others as they are, that raises the occupancy."""

    resource: str  # what is changed
    value: int  # its new value, the nearest that raises the occupancy
    residency: Residency  # what is then resident


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOccupancy(ShortRepr):
    """Occupancy of one device program."""

    program: str  # its name
    uses: Mapping[str, int | None]
    residency: Residency  # what is resident
    most_registers: int | None  # registers of a work item up to which it stays so
    changes: tuple[Change, ...]

    @property
    def registers_are_known(self) -> bool:
        """Whether the occupancy is exact, not a bound for want of the registers."""
        return self.most_registers is None or self.uses["registers_per_work_item"] is not None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelOccupancy(Table):
    """Occupancy of a kernel on a device, program by program."""

    kernel: str  # the kernel's name, the device's slug
    device: str
    # values of the size parameters
    parameters: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    programs: tuple[ProgramOccupancy, ...]  # one for each device program that is launched

    __repr__ = printed


def program_occupancy(profiled: ProfiledKernel, device: DeviceParameters) -> ProgramOccupancy:
    """Find what is resident of a launch, what limits it, and which changes would raise it."""
    profile = profiled.profile
    uses = {
        "work_items_per_group": profiled.launch.work_items_per_group,
        "registers_per_work_item": profile.registers_per_work_item or 0,
        "local_bytes_per_group": profile.local_bytes_per_group or 0,
    }
    residency = resident_groups(device, **uses)
    changes = (
        _changed(device, uses, residency, name, _values(device, uses, name)) for name in uses
    )
    known = profile.registers_per_work_item is not None
    return ProgramOccupancy(
        program=profile.name,
        uses={**uses, "registers_per_work_item": profile.registers_per_work_item},
        residency=residency,
        most_registers=_most_registers(device, uses, residency),
        changes=tuple(
            change
            for change in changes
            if change is not None and (known or change.resource != "registers_per_work_item")
        ),
    )


def _values(device: DeviceParameters, uses: Mapping[str, int], name: str) -> Iterable[int]:
    """Return values of a resource to be tried, the nearest to its present one first."""
    now = uses[name]
    if name == "registers_per_work_item":
        return range(now - 1, 0, -1)
    if name == "local_bytes_per_group":
        step = device.local_unit or 1
        return (now // step * step, *range(now // step * step - step, -1, -step)) if now else ()
    size = device.sub_group_size or 1
    most = device.max_work_items_per_group or now
    return sorted(range(size, most + 1, size), key=lambda value: (abs(value - now), value))


def _changed(
    device: DeviceParameters,
    uses: Mapping[str, int],
    residency: Residency,
    name: str,
    values: Iterable[int],
) -> Change | None:
    for value in values:
        if value == uses[name]:
            continue
        try:
            changed = resident_groups(device, **{**uses, name: value})
        except ParameterError:  # not even one group fits
            continue
        if changed.occupancy_max > residency.occupancy_max:
            return Change(resource=name, value=value, residency=changed)
    return None


def _most_registers(
    device: DeviceParameters, uses: Mapping[str, int], residency: Residency
) -> int | None:
    if device.registers_per_compute_unit is None:
        return None
    most = device.max_registers_per_work_item or (
        device.registers_per_compute_unit // uses["work_items_per_group"]
    )
    for registers in range(most, 0, -1):
        try:
            found = resident_groups(device, **{**uses, "registers_per_work_item": registers})
        except ParameterError:
            continue
        if found.active_groups >= residency.active_groups:
            return registers
    return None
