"""Machine code (SASS) of NVIDIA GPUs: followed, and in profiles of Loopy kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from countperf.counting.work_groups import GroupKinds, WorkGroups
from countperf.devices.description import describe_kernel
from countperf.devices.nvcc import compile_for, compile_sass, find_program
from countperf.devices.parameters import DeviceParameters, load_device
from countperf.devices.targets import Launches, Shape, generate_cuda
from countperf.errors import (
    CountingError,
    DeviceError,
    KernelBuildError,
    ModelNotApplicableError,
    ParameterError,
    option,
)
from countperf.machine_code.sass_instruction import SassInstruction, parse_sass
from countperf.machine_code.warp import LANES, Executed, WarpProgram, launch_sub_group
from countperf.mechanistic.from_kernel import KernelProfiler
from countperf.mechanistic.from_kernel import profile_kernel as profile_declared
from countperf.mechanistic.profile import InstructionGraph, ProfiledKernel
from countperf.mechanistic.sass import SassAnalysis, analyze_function, graph_of, latencies_of
from countperf.symbolic.point_arrays import Kind
from countperf.text import ShortRepr

# --- Instructions that a kernel executes on an NVIDIA GPU at given sizes; no GPU is needed
#
# The kernel is compiled by nvcc and disassembled, and sub-groups are followed through its machine
# code (`countperf.machine_code.warp`): those of a work group of each kind, which stands for the
# others of its kind; with too many kinds, all groups are followed.

_BANKS = {
    **dict.fromkeys((5, 6), (0x140, 0x8, 0x14)),
    **dict.fromkeys((7, 8), (0x160, 0x0, 0xC)),
    9: (0x210, 0x0, 0xC),
    **dict.fromkeys((10, 12), (0x380, 0x360, 0x370)),
}
"""Places in constant bank 0 of arguments, extents of a group, and of the grid, by major number."""

_MOST_GROUPS = 4096
"""Groups of a launch that are followed without being asked for."""

_FOR = re.compile(r"^(\s*)for \(\w+ (\w+) =", re.MULTILINE)
_NEGATIVE = re.compile(r"0x[89a-f][0-9a-f]{4}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCounts(ShortRepr):
    """Instructions that all sub-groups of all launches execute."""

    # by class (`countperf.machine_code.sass_instruction`), once for a sub-group
    instructions: Mapping[str, int]
    lanes: Mapping[str, int]  # the same for each lane whose predicate is true
    sub_groups: int  # sub-groups
    # work groups that were not followed: they are taken to execute what one of their kind does
    assumed_groups: int


def with_loops_kept(source: str) -> str:
    """Return CUDA C whose loops are not unrolled, as far as Loopy wrote them."""
    return _FOR.sub(r"\1#pragma unroll 1\n\g<0>", source)


_Launch = tuple[str, Shape, Shape, list[Any]]
"""Kernel, groups, shape of a group, and arguments."""


def _integers(arguments: Sequence[Any]) -> list[int | None]:
    return [int(a) if isinstance(a, np.integer) else None for a in arguments]


class GpuKernel:
    """A kernel compiled for an NVIDIA GPU, to be followed at any sizes."""

    def __init__(
        self,
        t_unit: Any,
        capability: str = "9.0",
        *,
        keeps_loops: bool = False,
        listing: str | None = None,
    ) -> None:
        self.capability = capability
        self._major = int(capability.partition(".")[0])
        if self._major not in _BANKS:
            known = ", ".join(map(str, _BANKS))
            raise CountingError(
                f"machine code for compute capability {capability} is not followed; it is for the"
                f" major numbers {known}"
            )
        self._code = generate_cuda(t_unit)
        self.launches = Launches(self._code, describe_kernel(t_unit))
        self.groups = WorkGroups(t_unit)
        source = with_loops_kept(self._code.source) if keeps_loops else self._code.source
        self.listing = compile_sass(source, capability) if listing is None else listing

    @cached_property
    def programs(self) -> dict[str, WarpProgram]:
        """The code of each device program, by name."""
        programs = parse_sass(self.listing)
        if lacking := [name for name in self._code.kernels if name not in programs]:
            message = (
                f"the listing has no function {lacking[0]} (it has: {', '.join(programs)}); pass"
                " that of this kernel's code, as Loopy generates it"
            )
            raise ParameterError(message, parameter="sass")
        if self._major in (5, 6):
            programs = {name: [_with_signs(i) for i in code] for name, code in programs.items()}
        return {name: WarpProgram(programs[name], name) for name in self._code.kernels}

    def counts(self, parameters: Mapping[str, int], *, every_group: bool = False) -> GpuCounts:
        """Follow sub-groups of each launch; return instructions of all."""
        instructions: Counter[str] = Counter()
        lanes: Counter[str] = Counter()
        sub_groups = assumed = 0
        for launch in self.launches.list_launches(parameters):
            kernel, extents, shape, arguments = launch
            program = self.programs[kernel]
            constants = self._constants(extents, shape, arguments)
            number = -(-prod(shape) // LANES)
            sub_groups += prod(extents) * number
            kinds = self._kinds(launch, parameters, every_group=every_group)
            assumed += prod(extents) - len(kinds)
            for kind, sub_group in product(kinds, range(number)):
                executed = program.follow_lanes(
                    *launch_sub_group(constants, kind.point, shape, sub_group)
                )
                for position, instruction in enumerate(program.instructions):
                    for name in (instruction.name, "all"):
                        instructions[name] += executed.instructions[position] * int(kind.times)
                        lanes[name] += executed.lanes[position] * int(kind.times)
        return GpuCounts(
            instructions={name: n for name, n in sorted(instructions.items()) if n},
            lanes={name: n for name, n in sorted(lanes.items()) if n},
            sub_groups=sub_groups,
            assumed_groups=assumed,
        )

    def follow_typical(self, parameters: Mapping[str, int]) -> dict[str, Executed]:
        """Follow the first sub-group of a typical group, of each program's first launch."""
        executed: dict[str, Executed] = {}
        for kernel, extents, shape, arguments in self.launches.list_launches(parameters):
            if kernel not in executed:
                group = self.groups.typical(kernel, extents, parameters, _integers(arguments))
                sub_group = launch_sub_group(
                    self._constants(extents, shape, arguments), group, shape, 0
                )
                executed[kernel] = self.programs[kernel].follow_lanes(*sub_group)
        return executed

    def _kinds(
        self, launch: _Launch, parameters: Mapping[str, int], *, every_group: bool
    ) -> Sequence[Kind]:
        """Return a group of each kind, or all groups."""
        kernel, groups, _, arguments = launch
        if every_group:
            return GroupKinds.of_each(groups).kinds
        found = self.groups.kinds(kernel, groups, parameters, _integers(arguments))
        if all(kind.is_exact for kind in found.kinds):
            return found.kinds
        if prod(groups) > _MOST_GROUPS:
            raise CountingError(
                f"kernel '{kernel}': work groups execute different numbers of instructions, and"
                f" there are {prod(groups)} of them; follow all with"
                f" {option('every_group', 'True')}, which takes long, or take smaller sizes"
            )
        return GroupKinds.of_each(groups).kinds

    def _constants(
        self, groups: Sequence[int], shape: Sequence[int], arguments: Sequence[Any]
    ) -> dict[int, int | None]:
        """Return the words of constant bank 0; places of arrays and real numbers are data."""
        offset, *places = _BANKS[self._major]
        constants: dict[int, int | None] = {
            first + 4 * axis: extent
            for first, extents in zip(places, (shape, groups), strict=True)
            for axis, extent in enumerate(extents)
        }
        for argument in arguments:
            size = argument.nbytes if isinstance(argument, np.generic) else 8
            offset = -(-offset // size) * size
            is_whole = isinstance(argument, np.integer | np.bool_)
            for number, byte in enumerate(argument.tobytes() if is_whole else bytes(size)):
                word = (offset + number) & ~3
                bits = byte << 8 * (offset + number - word)
                constants[word] = (constants.get(word) or 0) | bits if is_whole else None
            offset += size
        return constants


def _with_signs(instruction: SassInstruction) -> SassInstruction:
    """Return an instruction of Maxwell or Pascal with signs where nvdisasm leaves them out.

    Immediates have 20 bits, the first of which is the sign; of ``IADD3`` it is printed as a digit.
    """
    if instruction.base != "IADD3":
        return instruction
    operands = tuple(
        hex(int(operand, 16) - (1 << 20)) if _NEGATIVE.match(operand) else operand
        for operand in instruction.operands
    )
    return replace(instruction, operands=operands)


_DECLARED = ("registers_per_work_item", "occupancy", "active_groups")


def profile_kernel(
    kernel: Any, device: DeviceParameters | str | Path, **options: Any
) -> KernelProfiler:
    """Profile a Loopy kernel for the mechanistic models; options are those of `profile_declared`.

    If none of ``registers_per_work_item``, ``occupancy`` and ``active_groups`` is given although
    the device's registers limit its occupancy, ``nvcc`` says how many registers the kernel takes,
    where it is installed and compiles for the device's compute capability. Profiles ask for the
    registers if nobody knows them.
    """
    described = device if isinstance(device, DeviceParameters) else load_device(device)
    if all(options.get(name) is None for name in _DECLARED):
        options = {**options, "registers_per_work_item": find_compiled_registers(kernel, described)}
    return profile_declared(kernel, described, **options)


def find_compiled_registers(kernel: Any, device: DeviceParameters) -> dict[str, int] | None:
    """Return the registers of a work item by device program, as ``nvcc`` allocates them."""
    capability = device.compute_capability
    if device.registers_per_compute_unit is None or capability is None:
        return None
    if find_program("nvcc") is None:
        return None
    try:
        compiled = compile_for(kernel, capability)
    except (KernelBuildError, DeviceError):
        return None
    return {name: resources.registers for name, resources in compiled.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCodeProfiler(KernelProfiler):
    """A Loopy kernel with instructions from machine code: gives its profile at any sizes.

    Its graph of instructions, latency bound, core instructions and issue slots are those of the
    code. The first sub-group of a typical work group is followed. Launch and lines of accesses come
    from Loopy.
    """

    gpu: GpuKernel  # machine code that is followed
    sass: Mapping[str, SassAnalysis]  # segments of the machine code of each device program

    @property
    def note(self) -> str:
        """Where instructions come from."""
        return f"instructions: machine code for compute capability {self.gpu.capability}"

    def launches_at(
        self, parameters: Mapping[str, Any], /
    ) -> tuple[tuple[ProfiledKernel, int], ...]:
        """Return profile and launch of each device program, and how often it is launched."""
        executed = self.gpu.follow_typical(parameters)
        launches: list[tuple[ProfiledKernel, int]] = []
        for profiled, times in KernelProfiler.launches_at(self, parameters):
            name = profiled.profile.name
            graph = graph_of(name, self.gpu.programs[name].instructions, executed[name])
            followed = with_graph(profiled, graph, self.max_instructions)
            trips = self.sass[name].trips(executed[name].instructions)
            launches.append((self.sass[name].apply_to(followed, *trips), times))
        return tuple(launches)


def capability_of(device: DeviceParameters) -> str:
    """Return the compute capability of a device, or refuse one that has no such code."""
    if device.compute_capability is None:
        message = (
            f"device {device.slug!r} has no compute capability, and so no machine code that nvcc"
            f" makes; leave {option('analysis')} out, or take an NVIDIA device"
        )
        raise ModelNotApplicableError(message, parameter="device")
    return device.compute_capability


def with_machine_code(
    profiler: KernelProfiler, kernel: Any, listing: str | None = None
) -> MachineCodeProfiler:
    """Return the profiler of a kernel with instructions from SASS, as nvcc generates it.

    A listing of SASS, of the code that Loopy generates, takes the place of nvcc's, whose loops are
    not unrolled.
    """
    given = {field.name: getattr(profiler, field.name) for field in fields(profiler)}
    gpu = GpuKernel(kernel, capability_of(profiler.device), keeps_loops=True, listing=listing)
    latencies = latencies_of(profiler.device)
    sass = {
        name: analyze_function(name, program.instructions, latencies)
        for name, program in gpu.programs.items()
    }
    return MachineCodeProfiler(**given, gpu=gpu, sass=sass)


def with_graph(profiled: ProfiledKernel, graph: InstructionGraph, most: int) -> ProfiledKernel:
    """Return a profile with the instructions and dependencies of code; a long graph is cut."""
    graph = replace(graph, nodes=_with_lines(graph.nodes, profiled.profile.alpha))
    shown = InstructionGraph(graph.nodes[:most], [e for e in graph.edges if max(e) < most])
    profile = replace(
        profiled.profile,
        idg=shown,
        sub_group_idgs=None,
        idg_is_sample=len(graph.nodes) > most,
        alpha={name: float(count) for name, count in graph.counts().items()},
        alpha_comp=None,
        alpha_mem=None,
        alpha_sync=None,
    )
    return ProfiledKernel(profile=profile, launch=profiled.launch)


def _with_lines(nodes: Sequence[str], alpha: Mapping[str, float]) -> list[str]:
    """Give accesses the mean excess that Loopy's side found for their kind."""
    totals: dict[str, tuple[float, float]] = {}
    for name, count in alpha.items():
        if name.startswith(("load.", "store.")):
            base, _, excess = name.partition(".x")
            number, product = totals.get(base, (0.0, 0.0))
            totals[base] = (number + count, product + count * float(excess or 1.0))
    names = {
        base: f"{base}.x{product / number:.4g}"
        for base, (number, product) in totals.items()
        if number and product > number
    }
    return [names.get(name, name) for name in nodes]
