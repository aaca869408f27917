"""From a Loopy kernel to its profile, and to the predictions of all models.

What a sub-group executes comes from `countperf.counting.programs` (counts, symbolic in the sizes)
and `countperf.counting.expansion` (the dependency graph at given sizes). What Loopy does not know
is declared: the registers of a work item, and where addresses are read from data, the lines that a
sub-group touches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from countperf.counting.programs import KernelProgram, kernel_programs
from countperf.counting.sizes import size_ranges
from countperf.display import ShortRepr
from countperf.errors import ModelNotApplicableError, ParameterError
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.profile import (
    KernelProfile,
    LaunchConfiguration,
    ProfiledKernel,
)
from countperf.mechanistic.profiler_csv import KernelMetrics, with_measured
from countperf.mechanistic.program_profile import ProgramAtSizes
from countperf.properties.vector import PropertyVector
from countperf.symbolic.isl_counts import assumptions_text, guards_of
from countperf.symbolic.kernel_sets import assumptions_of

MAX_INSTRUCTIONS = 20_000
"""Instructions of a sub-group up to which its graph is written out in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfiler(ShortRepr):
    """A Loopy kernel on a device: gives its profile at any sizes."""

    programs: tuple[KernelProgram, ...]  # its device programs
    device: DeviceParameters  # gives the size of sub-groups and lines
    # declared, for all device programs or by their names
    registers_per_work_item: int | Mapping[str, int] | None = None
    occupancy: float | None = None  # declared, see `LaunchConfiguration`
    active_groups: int | None = None
    # lines that a sub-group touches in accesses to arrays whose addresses are read from data
    lines: Mapping[str, float] = field(default_factory=dict[str, float])
    max_instructions: int = MAX_INSTRUCTIONS  # longest graph of a sub-group
    metrics: tuple[KernelMetrics, ...] = ()  # what a profiler measured, in the place of counts

    def at(self, parameters: Mapping[str, Any], /) -> ProfiledKernel:
        """Return profile and launch at parameter values."""
        if len(self.programs) != 1:
            names = ", ".join(program.name for program in self.programs)
            message = (
                f"kernel '{self.kernel}' has {len(self.programs)} device programs ({names}) and no"
                " single profile; take launches_at() or predict_all()"
            )
            raise ModelNotApplicableError(message, parameter="kernel")
        ((profiled, _),) = self.launches_at(parameters)
        if self.lacks_registers(profiled.profile):
            raise missing_registers(profiled.profile.name, self.device)
        return profiled

    def launches_at(
        self, parameters: Mapping[str, Any], /
    ) -> tuple[tuple[ProfiledKernel, int], ...]:
        """Return profile and launch of each device program, and how often it is launched."""
        values = self._checked(parameters)
        launches: list[tuple[ProfiledKernel, int]] = []
        for program in self.programs:
            at_sizes = ProgramAtSizes(
                program,
                values,
                self.device,
                lines=self.lines,
                max_instructions=self.max_instructions,
            )
            if not at_sizes.launches or not at_sizes.groups:
                continue
            profile = at_sizes.profile(self._registers(program))
            launch = LaunchConfiguration(
                work_items_per_group=program.grid.group_size,
                num_groups=at_sizes.groups,
                occupancy=self.occupancy,
                active_groups=self._active_groups(profile),
            )
            profiled = ProfiledKernel(profile=profile, launch=launch)
            if self.metrics:
                profiled = with_measured(profiled, self.metrics, self.device)
            launches.append((profiled, at_sizes.launches))
        if not launches:
            message = f"kernel '{self.kernel}' launches nothing at {values}"
            raise ModelNotApplicableError(message, parameter="kernel")
        return tuple(launches)

    def _active_groups(self, profile: KernelProfile) -> int | None:
        if self.active_groups is None and profile.local_bytes_per_group:
            device = self.device
            # a CPU core: one group at a time, and local memory that is cache
            is_core = device.max_groups_per_compute_unit == 1
            return 1 if is_core and device.local_bytes_per_compute_unit is None else None
        return self.active_groups

    @property
    def kernel(self) -> str:
        """Name of the kernel."""
        return self.programs[0].kernel.name

    @property
    def note(self) -> str:
        """Where instructions come from, if not from Loopy."""
        return ""

    def lacks_registers(self, profile: KernelProfile) -> bool:
        """Return whether the occupancy cannot be known without the registers of a work item."""
        launch = (self.occupancy, self.active_groups)
        return launch == (None, None) and registers_are_missing(profile, self.device)

    def _checked(self, parameters: Mapping[str, Any]) -> dict[str, int]:
        kernel = self.programs[0].kernel
        vector = PropertyVector(
            {},
            kernel=kernel.name,
            parameters=self.programs[0].parameters,
            assumptions=assumptions_text(assumptions_of(kernel)),
            assumption_guards=tuple(guards_of(assumptions_of(kernel))),
            defaults=self.programs[0].domains.defaults,
        )
        vector.hold_sizes_to(size_ranges(kernel))
        values = vector.checked_parameters(parameters, {})
        for name, value in values.items():
            if not isinstance(value, int):
                message = f"kernel '{kernel.name}': {name} must be one integer for a profile"
                raise ParameterError(message, parameter=name)
        return values

    def _registers(self, program: KernelProgram) -> int | None:
        declared = self.registers_per_work_item
        if isinstance(declared, Mapping):
            declared = declared.get(program.name)
        # where registers limit nothing (on a CPU), they don't matter
        return None if self.device.registers_per_compute_unit is None else declared


def profile_kernel(
    kernel: Any,
    device: DeviceParameters,
    *,
    registers_per_work_item: int | Mapping[str, int] | None = None,
    occupancy: float | None = None,
    active_groups: int | None = None,
    statistics: Mapping[str, Any] | None = None,
    lines: Mapping[str, float] | None = None,
    contract: bool = True,
    max_instructions: int = MAX_INSTRUCTIONS,
    metrics: Sequence[KernelMetrics] = (),
) -> KernelProfiler:
    """Profile a Loopy kernel for the mechanistic models."""
    return KernelProfiler(
        programs=kernel_programs(kernel, statistics=statistics, contract=contract),
        device=device,
        registers_per_work_item=registers_per_work_item,
        occupancy=occupancy,
        active_groups=active_groups,
        lines=dict(lines or {}),
        max_instructions=max_instructions,
        metrics=tuple(metrics),
    )


def _where_nvcc_finds_them(capability: str | None) -> str:
    """Say which CUDA has an nvcc that compiles for a compute capability."""
    if capability is None:
        return ""
    version = tuple(map(int, capability.split(".")))
    newest = "13 or 12" if version >= (7, 5) else "12" if version >= (5, 0) else ""
    note = f"; the nvcc of CUDA {newest} finds them, where it is installed"
    return note if newest else " and no nvcc of CUDA 12 or 13 finds"


def registers_are_missing(profile: KernelProfile, device: DeviceParameters) -> bool:
    """Return whether nobody declared or measured registers, which may limit the occupancy."""
    is_known = profile.registers_per_work_item is not None or "occupancy" in profile.measured
    return not is_known and device.registers_per_compute_unit is not None


def missing_registers(name: str, device: DeviceParameters) -> ModelNotApplicableError:
    """Return the error about registers that nobody declared."""
    message = (
        f"kernel '{name}': its occupancy on {device.slug} depends on the registers of a work item,"
        f" which Loopy does not know{_where_nvcc_finds_them(device.compute_capability)}; state them"
        " (registers_per_work_item=N)"
    )
    return ModelNotApplicableError(message, parameter="registers_per_work_item")
