"""Profiles of Loopy kernels with instructions from machine code (SASS), or from PTX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from countperf.errors import (
    CountingError,
    DeviceError,
    KernelBuildError,
    ModelNotApplicableError,
)
from countperf.harness.compile.gpu_counts import CudaLaunches
from countperf.harness.cuda.target import generate_cuda
from countperf.harness.nvcc import compile_sass
from countperf.harness.ptx import compile_ptx, with_loops_kept, with_ptx
from countperf.mechanistic.from_kernel import KernelProfiler
from countperf.mechanistic.profile import ProfiledKernel
from countperf.mechanistic.ptx import PtxLaunch, PtxProgram, parse_ptx
from countperf.mechanistic.sass import SassAnalysis, analyze_sass, latencies_of

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

    cuda: CudaLaunches  # arguments of each launch
    # segments of the machine code of each device program
    sass: Mapping[str, SassAnalysis] = field(default_factory=dict[str, SassAnalysis])
    ptx: Mapping[str, PtxProgram]  # PTX of each, which is followed
    origin: str  # what was read

    @property
    def note(self) -> str:
        """Where instructions come from."""
        return self.origin

    def launches_at(
        self, parameters: Mapping[str, Any], /
    ) -> tuple[tuple[ProfiledKernel, int], ...]:
        """Return profile and launch of each device program, and how often it is launched."""
        found = KernelProfiler.launches_at(self, parameters)
        launches = {each.kernel: each for each in reversed(self.cuda.at(parameters))}
        return tuple(
            (self._with_code(each, launches[each.profile.name]), times) for each, times in found
        )

    def _with_code(self, profiled: ProfiledKernel, launch: PtxLaunch) -> ProfiledKernel:
        program = self.ptx[launch.kernel]
        if not self.sass:
            return with_ptx(profiled, program, launch)
        return self.sass[launch.kernel].applied(profiled, *program.trips(launch))


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
    origin = f"instructions: PTX for compute capability {capability}"
    try:
        ptx = parse_ptx(compile_ptx(code.source, capability))
    except KernelBuildError as error:
        if float(capability) >= float(OLDEST_CAPABILITY):
            raise
        ptx = parse_ptx(compile_ptx(code.source, OLDEST_CAPABILITY))
        origin = f"instructions: PTX for compute capability {OLDEST_CAPABILITY} ({error})"
        analysis = "ptx"
    sass: dict[str, SassAnalysis] = {}
    if analysis == "sass":
        try:
            listing = compile_sass(with_loops_kept(code.source), capability)
            sass = analyze_sass(listing, latencies_of(device))
            _check_loops(sass, ptx)
        except (CountingError, DeviceError, KernelBuildError) as error:
            sass, origin = {}, f"{origin} instead of machine code ({error})"
        else:
            origin = f"instructions: machine code for compute capability {capability}"
    given = {field.name: getattr(profiler, field.name) for field in fields(profiler)}
    cuda = CudaLaunches(kernel, code)
    return MachineCodeProfiler(**given, cuda=cuda, ptx=ptx, sass=sass, origin=origin)


def _check_loops(sass: Mapping[str, SassAnalysis], ptx: Mapping[str, PtxProgram]) -> None:
    """Refuse machine code whose loops are not those of the PTX, which say how often they run."""
    for name, program in ptx.items():
        depths = tuple(len(program.around(head)) for head in program.loop_ends)
        if depths != sass[name].depths:
            raise CountingError(f"{name} has other loops in machine code than in PTX")
