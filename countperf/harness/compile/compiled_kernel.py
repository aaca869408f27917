"""Kernels compiled by an OpenCL runtime for CPUs, and what their groups execute at given sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import loopy as lp
import numpy as np

from countperf.counting.copies import generated
from countperf.errors import CountingError, KernelBuildError
from countperf.execution.memory_hierarchy import DEFAULT_CACHES, CacheSize
from countperf.harness.arrays import ArrayArgument
from countperf.harness.compile.data_loops import (
    DataLoop,
    contents_for,
    data_loops_of,
)
from countperf.harness.compile.launches import launches_of
from countperf.harness.compile.objects import INTEL, POCL, compile_objects
from countperf.harness.description import describe_kernel
from countperf.harness.device import Device
from countperf.harness.scalars import as_scalar
from countperf.machine_code.calling_conventions import (
    fill_arrays,
    intel_group,
    middle_group,
    pocl_group,
)
from countperf.machine_code.executed_counts import ROOT, missed, properties_of
from countperf.machine_code.interpreter import MOST_STEPS, Program
from countperf.machine_code.launch import KernelLaunch
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
    """The compiled code of a translation unit, to be followed at any sizes.

    Attributes
    ----------
    platform : str
        Of the OpenCL runtime.
    programs : Mapping from str to Program
        The code of each of the device's kernels.
    host_code, host_function : str
        What launches them.
    scalars : Mapping from str to numpy.dtype
        Arguments that are no arrays.
    arrays : tuple of str
        Those that are.
    offsets : frozenset of str
        Scalars that only say where arrays begin; 0 by default.
    strided : tuple of ArrayArgument
        Arrays with strides that Loopy leaves to the caller; C order by default.
    data_loops : tuple of DataLoop
        Loops whose trip counts are data.
    analyzed : dict
        Cycles of blocks that were analyzed already.
    """

    platform: str
    programs: Mapping[str, Program]
    host_code: str
    host_function: str
    scalars: Mapping[str, np.dtype[Any]]
    arrays: tuple[str, ...]
    offsets: frozenset[str] = frozenset()
    strided: tuple[ArrayArgument, ...] = ()
    data_loops: tuple[DataLoop, ...] = ()
    analyzed: Analyzed = field(default_factory=dict[Block, Cycles])

    def numbers(self, parameters: Mapping[str, int]) -> dict[str, Any]:
        """Return the scalar arguments at given sizes, as the code takes them."""
        values: dict[str, Any] = dict.fromkeys(self.scalars, 1)
        values |= dict.fromkeys(self.offsets, 0)
        for array in self.strided:
            for name in array.automatic:
                values.pop(name, None)
        values |= {name: parameters[name] for name in self.scalars if name in parameters}
        for array in self.strided:
            values |= array.chosen_strides(array.extents(values), values)
        return {name: as_scalar(dtype, values[name], name) for name, dtype in self.scalars.items()}

    def launches(self, parameters: Mapping[str, int]) -> tuple[KernelLaunch, ...]:
        """Return what is launched at given sizes, but for launches of no group."""
        arguments = {name: name for name in self.arrays} | self.numbers(parameters)
        found = launches_of(self.host_code, self.host_function, arguments)
        return tuple(each for each in found if each.number_of_groups)

    def counts(
        self,
        parameters: Mapping[str, int],
        statistics: Mapping[str, Any] | None = None,
        *,
        cache: CacheSize = DEFAULT_CACHES.code,
    ) -> dict[str, int]:
        """Follow a group of each launch; return instructions of all groups, by property name.

        Parameters
        ----------
        parameters : mapping from str to int
            Values of all integer arguments; other scalars are 1, for what they are decides nothing.
        statistics : mapping from str to number or str, optional
            Mean trip counts of loops that depend on data, by name; others are passed over.
        cache : CacheSize, optional
            First-level cache of the device that it is counted for.

        Raises
        ------
        CountingError
            A loop depends on data and no mean trip count is stated, or a group executes too many
            instructions to be followed.
        """
        followed = self.follow(parameters, statistics)
        analyze((block for each in followed for block in each.blocks), self.analyzed)
        return counted(followed, self.analyzed, cache=cache)

    def follow(
        self,
        parameters: Mapping[str, int],
        statistics: Mapping[str, Any] | None = None,
        most_steps: int = MOST_STEPS,
    ) -> tuple[FollowedLaunch, ...]:
        """Follow a group of each launch, for so many steps at most; the rest as for `counts`."""
        contents = contents_for(self.data_loops, statistics or {})
        found: list[FollowedLaunch] = []
        for launch in self.launches(parameters):
            program = self.programs.get(launch.kernel)
            if program is None:
                raise CountingError(f"there is no code of kernel {launch.kernel!r}")
            machine = GROUP_STATES[self.platform](launch, middle_group(launch))
            fill_arrays(machine, launch, contents)
            entry = entry_of(program, launch.kernel, launch.group_shape)
            try:
                executed = program.executed(entry, machine, most_steps)
            except CountingError as error:
                raise CountingError(
                    f"the compiled code of {launch.kernel!r} cannot be followed: {error}; predict"
                    " with a model that does not read it"
                ) from error
            found.append(FollowedLaunch(launch, program, executed, machine.accessed))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class FollowedLaunch:
    """Instructions that a group of a launch executes.

    Attributes
    ----------
    launch : KernelLaunch
        The launch.
    program : Program
        Its code.
    executed : Mapping from int to int
        How often each line is executed, by number.
    accessed : Mapping from int to int
        Where lines accessed memory when they were executed first.
    """

    launch: KernelLaunch
    program: Program
    executed: Mapping[int, int]
    accessed: Mapping[int, int]

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
    """Return what all groups of launches execute, by property name.

    Parameters
    ----------
    followed : sequence of FollowedLaunch
        All launches of a kernel.
    analyzed : dict
        Cycles of blocks that were analyzed already; new ones are added.
    cache
        As for `CompiledKernel.counts`.
    """
    found: Counter[str] = Counter()
    for each in followed:
        program, executed, groups = each.program, each.executed, each.launch.number_of_groups
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
    """Count what kernels execute, with one run of the analyzer for all.

    Parameters
    ----------
    requests : sequence of (CompiledKernel, mapping, mapping, CacheSize)
        Kernels, sizes, statistics and caches, as for `CompiledKernel.counts`.

    Returns
    -------
    list of dict or CountingError
        In the same order; an error for what cannot be followed.
    """
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
    """Compile kernels with an OpenCL runtime for CPUs, and read their code.

    Parameters
    ----------
    units : sequence of (loopy.TranslationUnit, mapping from str to int)
        Kernels with one entry point whose argument types are known, and values of their integer
        arguments: PoCL compiles for a launch, of which one group runs, with arrays of zeros.
    device : Device
        A processor that PoCL or Intel's runtime runs kernels on.

    Returns
    -------
    tuple of CompiledKernel or KernelBuildError
        In the same order; an error for a kernel that could not be compiled.

    Raises
    ------
    DeviceError
        The runtime is another one, the processors are not x86-64, or there is no ``objdump``.
    KernelBuildError
        A kernel cannot be handed to another process.
    """
    return tuple(
        KernelBuildError(objects.problem)
        if objects.problem
        else kernel_of(unit, objects.programs, device.identity.platform)
        for (unit, _), objects in zip(units, compile_objects(units, device), strict=True)
    )


def kernel_of(unit: Any, programs: Mapping[str, Program], platform: str) -> CompiledKernel:
    """Join a translation unit and the code that a runtime made of it.

    Parameters
    ----------
    unit : loopy.TranslationUnit
        With one entry point whose argument types are known.
    programs : mapping from str to Program
        The code of each of the device's kernels.
    platform : str
        Of the OpenCL runtime.
    """
    if not isinstance(unit.target, lp.PyOpenCLTarget):
        unit = unit.copy(target=lp.PyOpenCLTarget())
    code, kernel = generated(unit), describe_kernel(unit, _no_launch)
    return CompiledKernel(
        platform=platform,
        programs=programs,
        host_code=code.host_code(),
        host_function=code.host_programs[kernel.name].name,
        scalars=kernel.scalars,
        arrays=tuple(kernel.arguments),
        offsets=kernel.offsets,
        strided=tuple(part for part in kernel.arguments.values() if part.automatic),
        data_loops=data_loops_of(unit.default_entrypoint),
    )


def _no_launch(_: Mapping[str, Any]) -> list[Any]:
    return []
