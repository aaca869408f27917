"""Profiles of Loopy kernels with instructions from machine code (SASS), or from PTX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from countperf.errors import (
    CountingError,
    DeviceError,
    KernelBuildError,
    ModelNotApplicableError,
)
from countperf.hardware.parameters import DeviceParameters, load_device
from countperf.harness.compile.gpu_counts import GpuKernel, GpuLaunch, gpu_launches
from countperf.harness.cuda.target import Launches, generate_cuda
from countperf.harness.description import describe_kernel
from countperf.harness.nvcc import compile_for, find_nvcc
from countperf.harness.ptx import compile_ptx
from countperf.mechanistic.from_kernel import KernelProfiler
from countperf.mechanistic.from_kernel import profile_kernel as profile_declared
from countperf.mechanistic.profile import ProfiledKernel
from countperf.mechanistic.ptx import PtxLaunch, PtxProgram, parse_ptx
from countperf.mechanistic.sass import SassAnalysis, analyze_sass, latencies_of

_DECLARED = ("registers_per_work_item", "occupancy", "active_groups")


def profile_kernel(
    kernel: Any, device: DeviceParameters | str | Path, **options: Any
) -> KernelProfiler:
    """Profile a Loopy kernel for the mechanistic models.

    Parameters
    ----------
    kernel : loopy.TranslationUnit
        With one entry point.
    device : DeviceParameters, str or Path
        A device, its slug in the catalogue, or the path of its TOML file.
    **options
        As of `countperf.mechanistic.from_kernel.profile_kernel`. If none of
        ``registers_per_work_item``, ``occupancy`` and ``active_groups`` is given although the
        device's registers limit its occupancy, ``nvcc`` says how many registers the kernel takes,
        where it is installed and compiles for the device's compute capability.

    Returns
    -------
    KernelProfiler
        Its profiles ask for the registers if nobody knows them.

    Raises
    ------
    CountingError
        The kernel cannot be counted.
    DeviceError, DocumentError
        There is no such device, or its file is damaged.
    """
    described = device if isinstance(device, DeviceParameters) else load_device(device)
    if all(options.get(name) is None for name in _DECLARED):
        options = {**options, "registers_per_work_item": compiled_registers(kernel, described)}
    return profile_declared(kernel, described, **options)


def compiled_registers(kernel: Any, device: DeviceParameters) -> dict[str, int] | None:
    """Return the registers of a work item by device program, as ``nvcc`` allocates them."""
    if device.registers_per_compute_unit is None or device.compute_capability is None:
        return None
    if find_nvcc() is None:
        return None
    try:
        compiled = compile_for(kernel, device.compute_capability)
    except (KernelBuildError, DeviceError):
        return None
    return {name: resources.registers for name, resources in compiled.items()}


Analysis = Literal["sass", "ptx"]
"""Where a kernel's instructions come from."""

OLDEST_CAPABILITY = "7.5"
"""Compute capability whose PTX stands in where nvcc knows a device's no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCodeProfiler(KernelProfiler):
    """A Loopy kernel with instructions from machine code: gives its profile at any sizes.

    With SASS, latency bound, core instructions and issue slots are those of the machine code, which
    MERPSYS takes; with PTX, the graph of instructions, which all models take. The first sub-group
    of the middle work group is followed. Launch and lines of accesses come from Loopy.
    """

    cuda: Launches  # arguments of each launch
    gpu: GpuKernel | None = None  # machine code that is followed
    # segments of the machine code of each device program
    sass: Mapping[str, SassAnalysis] = field(default_factory=dict[str, SassAnalysis])
    ptx: Mapping[str, PtxProgram] = field(default_factory=dict[str, PtxProgram])  # PTX of each
    origin: str  # what was read

    @property
    def note(self) -> str:
        """Where instructions come from."""
        return self.origin

    def launches_at(
        self, parameters: Mapping[str, Any], /
    ) -> tuple[tuple[ProfiledKernel, int], ...]:
        """Return profile and launch of each device program, and how often it is launched."""
        profiles = KernelProfiler.launches_at(self, parameters)
        launches = {
            launch.kernel: launch for launch in reversed(gpu_launches(self.cuda, parameters))
        }
        return tuple(
            (self._with_code(profiled, launches[profiled.profile.name]), times)
            for profiled, times in profiles
        )

    def _with_code(self, profiled: ProfiledKernel, launch: GpuLaunch) -> ProfiledKernel:
        if self.gpu is None:
            start = PtxLaunch(
                arguments=launch.arguments,
                groups=launch.groups,
                shape=launch.shape,
                group=launch.middle,
            )
            return with_ptx(profiled, self.ptx[launch.kernel], start)
        code = self.sass[launch.kernel]
        executed = self.gpu.of_middle(launch)
        return code.applied(profiled, *code.trips(executed.instructions))


def with_machine_code(
    profiler: KernelProfiler, kernel: Any, analysis: Analysis
) -> MachineCodeProfiler:
    """Return the profiler of a kernel with instructions from SASS or PTX, as nvcc generates it.

    Loops are not unrolled. Where there is no SASS, for lack of ``nvdisasm`` or since nvcc does not
    know the device's compute capability any more, PTX is read, and ``note`` says so.
    """
    device = profiler.device
    capability = device.compute_capability
    if capability is None:
        message = (
            f"device {device.slug!r} has no compute capability, and so no machine code that nvcc"
            " makes; leave analysis= out, or take an NVIDIA device"
        )
        raise ModelNotApplicableError(message, parameter="device")
    code = generate_cuda(kernel)
    more: dict[str, Any] = {"cuda": Launches(code, describe_kernel(kernel, lambda _: []))}
    reason = ""
    if analysis == "sass":
        try:
            more["gpu"] = GpuKernel(kernel, capability, keeps_loops=True)
        except (CountingError, DeviceError, KernelBuildError) as error:
            reason = f" instead of machine code ({error})"
        else:
            more["sass"] = analyze_sass(more["gpu"].listing, latencies_of(device))
            more["origin"] = f"instructions: machine code for compute capability {capability}"
    if "sass" not in more:
        try:
            text = compile_ptx(code.source, capability)
        except KernelBuildError as error:
            if float(capability) >= float(OLDEST_CAPABILITY):
                raise
            reason = reason or f" ({error})"
            capability = OLDEST_CAPABILITY
            text = compile_ptx(code.source, capability)
        more["ptx"] = parse_ptx(text)
        more["origin"] = f"instructions: PTX for compute capability {capability}{reason}"
    given = {field.name: getattr(profiler, field.name) for field in fields(profiler)}
    return MachineCodeProfiler(**given, **more)


def with_ptx(profiled: ProfiledKernel, written: PtxProgram, launch: PtxLaunch) -> ProfiledKernel:
    """Return a profile with the instructions and dependencies of PTX; errors as of its graph."""
    graph = written.graph(launch=launch)
    graph = replace(graph, nodes=_with_lines(graph.nodes, profiled.profile.alpha))
    profile = replace(
        profiled.profile,
        idg=graph,
        sub_group_idgs=None,
        idg_is_sample=False,
        alpha={name: float(count) for name, count in graph.counts().items()},
        alpha_comp=None,
        alpha_mem=None,
        alpha_sync=None,
        ins_cuda=None,
        ins_issued=None,
    )
    return ProfiledKernel(profile=profile, launch=profiled.launch)


def _with_lines(nodes: Sequence[str], alpha: Mapping[str, float]) -> list[str]:
    """Give accesses the mean excess that Loopy's side found for their kind."""
    totals: dict[str, tuple[float, float]] = {}
    for name, count in alpha.items():
        if name.startswith(("load.", "store.")):
            base, _, excess = name.partition(".x")
            number, product = totals.get(base, (0.0, 0.0))
            weight = float(excess) if excess else 1.0
            totals[base] = (number + count, product + count * weight)
    names = {
        base: f"{base}.x{product / number:.4g}" if product > number else base
        for base, (number, product) in totals.items()
        if number
    }
    return [names.get(name, name) for name in nodes]
