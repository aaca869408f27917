"""Kernels compiled by an OpenCL runtime for CPUs, and what their groups execute at given sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from countperf.errors import CountingError, KernelBuildError
from countperf.execution.memory_hierarchy import DEFAULT_CACHES, CacheSize
from countperf.harness.compile.data_loops import (
    DataLoop,
    contents_for,
    data_loops_of,
)
from countperf.harness.compile.launches import HostCode
from countperf.harness.compile.objects import INTEL, POCL, compile_many
from countperf.harness.device import Device
from countperf.machine_code.calling_conventions import (
    KernelLaunch,
    fill_arrays,
    intel_group,
    middle_group,
    pocl_group,
)
from countperf.machine_code.executed_counts import ROOT, missed, properties_of
from countperf.machine_code.interpreter import Program
from countperf.machine_code.machine_state import Machine
from countperf.machine_code.object_file import entry_of
from countperf.machine_code.throughput import (
    Analyzed,
    Block,
    Cycles,
    analyze,
    blocks_of,
    cycles_of,
)

GROUP_STATES: Mapping[str, Callable[[KernelLaunch, Sequence[int]], Machine]] = {
    POCL: pocl_group,
    INTEL: intel_group,
}
"""Function from a launch and a group's number to its registers at entry, by platform."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledKernel:
    """The compiled code of a translation unit, to be followed at any sizes."""

    platform: str  # of the OpenCL runtime
    programs: Mapping[str, Program]  # the code of each of the device's kernels
    host: HostCode  # what launches them
    data_loops: tuple[DataLoop, ...] = ()  # loops whose trip counts are data
    # cycles of blocks that were analyzed already
    analyzed: Analyzed = field(default_factory=dict[Block, Cycles])

    def counts(
        self,
        parameters: Mapping[str, int],
        statistics: Mapping[str, Any] | None = None,
        *,
        cache: CacheSize = DEFAULT_CACHES.code,
        every_group: bool = False,
    ) -> dict[str, int]:
        """Follow groups of each launch; return instructions of all groups, by property name."""
        followed = self.follow(parameters, statistics, every_group=every_group)
        analyze((block for each in followed for block in each.blocks), self.analyzed)
        return counted(followed, self.analyzed, cache=cache)

    def follow(
        self,
        parameters: Mapping[str, int],
        statistics: Mapping[str, Any] | None = None,
        *,
        every_group: bool = False,
    ) -> tuple[FollowedLaunch, ...]:
        """Follow the middle group of each launch, which stands for all, or every group."""
        contents = contents_for(self.data_loops, statistics or {})
        followed: list[FollowedLaunch] = []
        for launch in self.host.launches(parameters):
            program = self.programs.get(launch.kernel)
            if program is None:
                raise CountingError(f"there is no code of kernel {launch.kernel!r}")
            entry = entry_of(program, launch.kernel, launch.group_shape)
            groups = product(*map(range, launch.groups)) if every_group else [middle_group(launch)]
            alike = 1 if every_group else launch.number_of_groups
            for group in groups:
                machine = GROUP_STATES[self.platform](launch, group)
                fill_arrays(machine, launch, contents)
                try:
                    executed = program.executed(entry, machine)
                except CountingError as error:
                    raise CountingError(
                        f"the compiled code of {launch.kernel!r} cannot be followed: {error};"
                        " predict with a model that does not read it"
                    ) from error
                followed.append(FollowedLaunch(alike, program, executed, machine.accessed))
        return tuple(followed)


@dataclass(frozen=True, slots=True)
class FollowedLaunch:
    """Instructions that a group of a launch executes."""

    groups: int  # for so many it stands
    program: Program  # its code
    executed: Mapping[int, int]  # how often each line is executed, by number
    accessed: Mapping[int, int]  # where lines accessed memory when they were executed first

    @property
    def blocks(self) -> list[Block]:
        """Blocks to be analyzed."""
        return blocks_of(self.program, self.executed)


def counted(
    followed: Sequence[FollowedLaunch],
    analyzed: Analyzed,
    *,
    cache: CacheSize = DEFAULT_CACHES.code,
) -> dict[str, int]:
    """Return what all groups of launches execute, by property name."""
    found: Counter[str] = Counter()
    for each in followed:
        program, executed, groups = each.program, each.executed, each.groups
        for place, count in executed.items():
            line = program.lines[place]
            for name, number in properties_of(line.mnemonic, line.operands):
                found[name] += number * count * groups
        for name, number in missed(program, executed, each.accessed, cache).items():
            found[name] += number * groups
        for name, number in cycles_of(program, executed, analyzed).items():
            found[f"{ROOT}.{name}"] += number * groups
    return dict(sorted((name, number) for name, number in found.items() if number))


def counts_of_many(
    requests: Sequence[tuple[CompiledKernel, Mapping[str, int], Mapping[str, Any], CacheSize]],
) -> list[dict[str, int] | CountingError]:
    """Count what kernels execute, with one run of the analyzer for all."""
    analyzed: Analyzed = {}
    followed: list[tuple[FollowedLaunch, ...] | CountingError] = []
    for kernel, parameters, statistics, _ in requests:
        try:
            followed.append(kernel.follow(parameters, statistics))
        except CountingError as error:
            followed.append(error)
    analyze(
        (
            block
            for launches in followed
            if not isinstance(launches, CountingError)
            for launch in launches
            for block in launch.blocks
        ),
        analyzed,
    )
    return [
        each if isinstance(each, CountingError) else counted(each, analyzed, cache=cache)
        for each, (_, _, _, cache) in zip(followed, requests, strict=True)
    ]


def read_compiled(
    units: Sequence[tuple[Any, Mapping[str, int]]], device: Device
) -> tuple[CompiledKernel | KernelBuildError, ...]:
    """Compile kernels with an OpenCL runtime for CPUs, and read their code."""
    platform = device.identity.platform
    return tuple(
        compiled if isinstance(compiled, KernelBuildError) else kernel_of(unit, compiled, platform)
        for (unit, _), compiled in zip(units, compile_many(units, device), strict=True)
    )


def kernel_of(unit: Any, programs: Mapping[str, Program], platform: str) -> CompiledKernel:
    """Join a translation unit and the code that a runtime made of it."""
    return CompiledKernel(
        platform=platform,
        programs=programs,
        host=HostCode.of(unit),
        data_loops=data_loops_of(unit.default_entrypoint),
    )
