"""Occupancy of a kernel on a device, and the next budgets at which more groups are resident."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from countperf import front_door
from countperf.display import ShortRepr, Table, shortened
from countperf.errors import ParameterError
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.occupancy import Residency, resident_groups
from countperf.mechanistic.profile import ProfiledKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(ShortRepr):
    """A change of one resource, with all others as they are, that raises the occupancy.

    Attributes
    ----------
    resource : {"work_items_per_group", "registers_per_work_item", "local_bytes_per_group"}
        What is changed.
    value : int
        Its new value, the nearest that raises the occupancy.
    residency : Residency
        What is then resident.
    """

    resource: str
    value: int
    residency: Residency


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOccupancy(ShortRepr):
    """Occupancy of one device program.

    Attributes
    ----------
    program : str
        Its name.
    uses : Mapping from str to int or None
        ``work_items_per_group``, ``registers_per_work_item`` (None: not known) and
        ``local_bytes_per_group``.
    residency : Residency
        What is resident; an upper bound where the registers are not known.
    most_registers : int or None
        Registers of a work item up to which it stays so; None where registers limit nothing.
    changes : tuple of Change
        The nearest changes that raise the occupancy: of the size of a group, of registers, of local
        memory; those that cannot are absent.
    """

    program: str
    uses: Mapping[str, int | None]
    residency: Residency
    most_registers: int | None
    changes: tuple[Change, ...]

    @property
    def registers_are_known(self) -> bool:
        """Whether the occupancy is exact, not a bound for want of the registers."""
        return self.most_registers is None or self.uses["registers_per_work_item"] is not None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelOccupancy(Table):
    """Occupancy of a kernel on a device, program by program.

    Attributes
    ----------
    kernel, device : str
        The kernel's name, the device's slug.
    parameters : Mapping from str to int
        Values of the size parameters.
    programs : tuple of ProgramOccupancy
        One for each device program that is launched.
    """

    kernel: str
    device: str
    parameters: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    programs: tuple[ProgramOccupancy, ...]

    def __repr__(self) -> str:
        return shortened(front_door.function("occupancy_text")(self))


def program_occupancy(profiled: ProfiledKernel, device: DeviceParameters) -> ProgramOccupancy:
    """Find what is resident of a launch, what limits it, and which changes would raise it.

    Parameters
    ----------
    profiled : ProfiledKernel
        Profile and launch; without registers the result is an upper bound.
    device : DeviceParameters
        Limits of a compute unit.

    Raises
    ------
    ParameterError, DeviceParameterError
        As of `countperf.mechanistic.occupancy.resident_groups`.
    """
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
            found = resident_groups(device, **{**uses, name: value})
        except ParameterError:  # not even one group fits
            continue
        if found.occupancy_max > residency.occupancy_max:
            return Change(resource=name, value=value, residency=found)
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
