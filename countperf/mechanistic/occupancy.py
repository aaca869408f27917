"""Work groups resident on a compute unit, and the occupancy that follows.

Source: Ma, Chamberlain & Agrawal (2014), Eq. (4), with the limit on sub-groups of current hardware
and the granularity of allocation of the vendors' occupancy calculators (optional). Registers are
allocated per work item (Eq. 4), per sub-group (NVIDIA since compute capability 2.0) or per group
(before), as the device's ``register_mode`` says; per group, its sub-groups count in multiples of
the device's ``sub_group_unit``. Units of allocation that the device does not state are 1. Left out:
anything that lowers the achieved occupancy (tail, imbalance).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from countperf import text
from countperf.devices.parameters import DeviceParameters
from countperf.errors import ParameterError, option
from countperf.mechanistic.profile import ProfiledKernel, check_positive, check_whole

_MODEL = "occupancy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency(text.ShortRepr):
    """Work groups and sub-groups that are resident on a compute unit."""

    active_groups: int  # groups resident on a compute unit
    limits: Mapping[str, int]  # the groups that each resource allows
    limiter: str  # the first of them that attains the minimum
    sub_groups_per_group: int
    ratio: float | None  # resident sub-groups over those that the device holds

    @property
    def occupancy_max(self) -> int:
        """Sub-groups resident on a full compute unit."""
        return self.active_groups * self.sub_groups_per_group


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGeometry:
    """A launch as one compute unit sees it."""

    sub_groups_per_group: int  # sub-groups of a group and of the launch
    total_sub_groups: int
    groups_on_compute_unit: int  # groups that the fullest compute unit executes
    concurrent_groups: int  # groups resident there at a time
    occupancy: float  # concurrent sub-groups per compute unit


def resident_groups(
    device: DeviceParameters,
    *,
    work_items_per_group: int,
    registers_per_work_item: int = 0,
    local_bytes_per_group: int = 0,
) -> Residency:
    r"""Count the work groups that are resident on a compute unit.

    Ma et al., Eq. (4): :math:`B_a = \min(\lfloor Z/S_B \rfloor, \lfloor R/(R_T T_r) \rfloor,
    B_{max}, \lfloor T_{max}/T_r \rfloor)`, all per compute unit.
    """
    items, registers, local = work_items_per_group, registers_per_work_item, local_bytes_per_group
    check_whole(items, "work_items_per_group")
    check_whole(registers, "registers_per_work_item", least=0)
    check_whole(local, "local_bytes_per_group", least=0)
    _check_most(items, "work_items_per_group", device.max_work_items_per_group)
    _check_most(registers, "registers_per_work_item", device.max_registers_per_work_item)
    _check_most(local, "local_bytes_per_group", device.max_local_bytes_per_group)
    sub_groups = -(-items // device.require_int("sub_group_size", model=_MODEL))
    most_sub_groups = device.max_sub_groups_per_compute_unit
    limits = {
        "groups": device.require_int("max_groups_per_compute_unit", model=_MODEL),
        "work_items": device.require_int("max_work_items_per_compute_unit", model=_MODEL) // items,
    }
    if most_sub_groups is not None:
        limits["sub_groups"] = most_sub_groups // _allocate_sub_groups(sub_groups, device)
    if registers:
        limits["registers"] = _groups_by_registers(device, registers, items)
    if local:
        used = _ceil_to(local + (device.local_reserved_bytes_per_group or 0), device.local_unit)
        limits["local"] = device.require_int("local_bytes_per_compute_unit", model=_MODEL) // used
    limiter = min(limits, key=limits.__getitem__)  # ties: the first
    active = limits[limiter]
    if active == 0:
        parameter = {"registers": "registers_per_work_item", "local": "local_bytes_per_group"}
        raise ParameterError(
            f"device {device.slug!r}: not even one group of {items} work items fits"
            f" on a compute unit (limited by: {limiter}); make the group smaller or use less of it",
            parameter=parameter.get(limiter, "work_items_per_group"),
        )
    return Residency(
        active_groups=active,
        limits=limits,
        limiter=limiter,
        sub_groups_per_group=sub_groups,
        ratio=None if most_sub_groups is None else active * sub_groups / most_sub_groups,
    )


def resident_groups_of(kernel: ProfiledKernel, device: DeviceParameters) -> Residency:
    """Count the resident groups of a kernel's launch; unknown registers limit nothing."""
    return resident_groups(
        device,
        work_items_per_group=kernel.launch.work_items_per_group,
        registers_per_work_item=kernel.profile.registers_per_work_item or 0,
        local_bytes_per_group=kernel.profile.local_bytes_per_group or 0,
    )


def find_unused_local_bytes(kernel: ProfiledKernel, device: DeviceParameters) -> dict[int, int]:
    """Return by number of resident groups the least more local memory that leaves so many."""
    own, total = kernel.profile.local_bytes_per_group or 0, device.local_bytes_per_compute_unit or 0
    units = device.require_int("num_compute_units", model=_MODEL)
    most = min(
        resident_groups_of(kernel, device).active_groups, -(-kernel.launch.num_groups // units)
    )
    unit, reserved = device.local_unit or 1, device.local_reserved_bytes_per_group or 0
    # one group more than may be resident has to be one allocation too many
    needed = {n: total // (n + 1) // unit * unit - reserved + 1 for n in range(1, most)}
    largest = device.max_local_bytes_per_group or total
    able = {n: size - own for n, size in needed.items() if own <= size <= largest}
    return {**able, most: 0}


def launch_geometry(kernel: ProfiledKernel, device: DeviceParameters) -> LaunchGeometry:
    """Derive what one compute unit sees of a launch; what this states of its occupancy wins."""
    launch = kernel.launch
    sub_groups = launch.sub_groups_per_group(device.require_int("sub_group_size", model=_MODEL))
    on_unit = -(-launch.num_groups // device.require_int("num_compute_units", model=_MODEL))
    if launch.occupancy is not None:
        occupancy = check_occupancy(launch.occupancy, device)
        concurrent = max(1, min(int(occupancy // sub_groups), on_unit))
    else:
        active = launch.active_groups or resident_groups_of(kernel, device).active_groups
        concurrent = min(active, on_unit)
        occupancy = check_occupancy(concurrent * sub_groups, device)
    return LaunchGeometry(
        sub_groups_per_group=sub_groups,
        total_sub_groups=launch.num_groups * sub_groups,
        groups_on_compute_unit=on_unit,
        concurrent_groups=concurrent,
        occupancy=occupancy,
    )


def check_occupancy(occupancy: float, device: DeviceParameters) -> float:
    """Return an occupancy (sub-groups per compute unit) that the device can hold."""
    check_positive(occupancy, "occupancy")
    _check_most(occupancy, "occupancy", device.max_sub_groups_per_compute_unit)
    return float(occupancy)


def _groups_by_registers(device: DeviceParameters, registers: int, items: int) -> int:
    sub_group_size = device.require_int("sub_group_size", model=_MODEL)
    sub_groups = -(-items // sub_group_size)
    there = device.require_int("registers_per_compute_unit", model=_MODEL)
    unit, sub_group_unit = device.register_unit or 1, device.sub_group_unit or 1
    if registers in device.coarse_registers:
        unit *= 2
    match device.register_mode:
        case "work_item":
            return there // (registers * items)
        case "sub_group":
            held = there // _ceil_to(registers * sub_group_size, unit)
            return held // sub_group_unit * sub_group_unit // sub_groups
        case "group":
            allocated = _allocate_sub_groups(sub_groups, device) * sub_group_size
            return there // _ceil_to(registers * allocated, unit)


def _allocate_sub_groups(sub_groups: int, device: DeviceParameters) -> int:
    """Return the sub-groups that a group takes up."""
    return _ceil_to(sub_groups, device.sub_group_unit if device.register_mode == "group" else 1)


def _ceil_to(value: int, unit: int | None) -> int:
    return -(-value // (unit or 1)) * (unit or 1)


def _check_most(value: float, name: str, most: int | None) -> None:
    if most is not None and value > most:
        message = f"{name} is {value}, but the device allows at most {most}"
        raise ParameterError(message, parameter=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOccupancy(text.ShortRepr):
    """Occupancy of one device program."""

    program: str  # its name
    uses: Mapping[str, int | None]  # resources; registers are None where nobody knows them
    residency: Residency  # what is resident
    is_bound: bool  # whether it is an upper bound, for want of the registers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelOccupancy(text.Result):
    """Occupancy of a kernel on a device, program by program."""

    kernel: str  # the kernel's name, the device's slug
    device: str
    parameters: Mapping[str, int]  # values of the size parameters
    programs: tuple[ProgramOccupancy, ...]  # one for each device program that is launched

    __repr__ = text.Result.__str__

    def lay_out(self) -> text.Printed:
        """Give for each program what is resident, and what each resource allows."""
        rows: list[dict[str, Any]] = [
            {
                "program": program.program,
                **program.uses,
                "groups": program.residency.active_groups,
                "sub_groups": program.residency.occupancy_max,
                "occupancy": program.residency.ratio,
                "limited_by": program.residency.limiter,
                **{f"groups[{name}]": number for name, number in program.residency.limits.items()},
            }
            for program in self.programs
        ]
        shown = " ".join(name for name in rows[0] if not name.startswith("groups["))
        return text.Printed(
            head=[write_heading(self)],
            rows=rows,
            columns=text.columns_of(shown) | text.columns_of("occupancy", text.format_percent),
            notes=[
                f"{program.program}: at most {program.residency.active_groups} groups, since the"
                " registers of a work item are not known; state them"
                f" ({option('registers_per_work_item', 'N')})"
                for program in self.programs
                if program.is_bound
            ],
            facts=text.extract(self, "kernel", "device", "parameters"),
            name="programs",
        )


def program_occupancy(kernel: ProfiledKernel, device: DeviceParameters) -> ProgramOccupancy:
    """Find what is resident of a launch, and what limits it."""
    registers = kernel.profile.registers_per_work_item
    return ProgramOccupancy(
        program=kernel.profile.name,
        uses={
            "work_items_per_group": kernel.launch.work_items_per_group,
            "registers_per_work_item": registers,
            "local_bytes_per_group": kernel.profile.local_bytes_per_group or 0,
        },
        residency=resident_groups_of(kernel, device),
        is_bound=registers is None and device.registers_per_compute_unit is not None,
    )


def write_heading(of: Any) -> str:
    """Name kernel, device and sizes of answers or of an occupancy."""
    sizes = ", ".join(["", text.point_text(of.parameters)]) if of.parameters else ""
    return f"{of.kernel} on {of.device}{sizes}"
