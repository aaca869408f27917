"""Profiles of Loopy kernels with instructions from machine code (SASS), or from PTX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from countperf.errors import DeviceError, KernelBuildError, ModelNotApplicableError
from countperf.harness.compile.sass import compile_sass
from countperf.harness.cuda.target import generate_cuda
from countperf.harness.ptx import (
    compile_ptx,
    first_sub_group,
    iterations,
    loop_trips,
    loops_in,
    with_loops_kept,
    with_ptx,
)
from countperf.mechanistic.from_kernel import KernelProfiler
from countperf.mechanistic.profile import ProfiledKernel
from countperf.mechanistic.ptx import PtxProgram, parse_ptx
from countperf.mechanistic.sass import SassAnalysis, analyze_sass, latencies_of

Analysis = Literal["sass", "ptx"]
"""Where a kernel's instructions come from."""

OLDEST_CAPABILITY = "7.5"
"""Compute capability whose PTX stands in where nvcc knows a device's no more."""

_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCodeProfiler(KernelProfiler):
    """A Loopy kernel with instructions from machine code: gives its profile at any sizes.

    With SASS, latency bound, core instructions and issue slots are those of the machine code, which
    MERPSYS takes; with PTX, the graph of instructions, which all models take. Trip counts, launch,
    and lines of accesses come from Loopy.

    Attributes
    ----------
    sources : Mapping from str to str
        CUDA C of each device program.
    sass : Mapping from str to SassAnalysis
        Machine code of each; empty if there is none.
    ptx : Mapping from str to PtxProgram
        PTX of each; empty if there is machine code.
    origin : str
        What was read.
    """

    sources: Mapping[str, str]
    sass: Mapping[str, SassAnalysis] = field(default_factory=dict[str, SassAnalysis])
    ptx: Mapping[str, PtxProgram] = field(default_factory=dict[str, PtxProgram])
    origin: str

    @property
    def note(self) -> str:
        """Where instructions come from."""
        return self.origin

    def launches_at(
        self, parameters: Mapping[str, Any], /
    ) -> tuple[tuple[ProfiledKernel, int], ...]:
        """Return profile and launch of each device program, and how often it is launched.

        Raises
        ------
        ParameterError, CountingError, DeviceParameterError
            As of `KernelProfiler.launches_at`.
        ModelNotApplicableError
            The same; or the machine code has other loops than Loopy's code.
        """
        found = KernelProfiler.launches_at(self, parameters)
        return tuple((self._with_code(each, parameters), times) for each, times in found)

    def _with_code(self, profiled: ProfiledKernel, parameters: Mapping[str, Any]) -> ProfiledKernel:
        name = profiled.profile.name
        (program,) = [each for each in self.programs if each.name == name]
        sub_group = first_sub_group(program, parameters, self.device)
        source = self.sources[name]
        if self.ptx:
            written = self.ptx[name]
            return with_ptx(profiled, written, loop_trips(program, written, source, sub_group))
        code, names = self.sass[name], loops_in(source)
        if code.loops != len(names):
            message = (
                f"kernel {name!r}: its machine code has {code.loops} loops, the code of Loopy"
                f" {len(names)} ({', '.join(names)}), so that their trip counts are not known;"
                " leave analysis= out, which counts the code of Loopy"
            )
            raise ModelNotApplicableError(message, parameter="trips")
        return code.applied(profiled, *iterations(program, names, sub_group))


def with_machine_code(
    profiler: KernelProfiler, kernel: Any, analysis: Analysis
) -> MachineCodeProfiler:
    """Return the profiler of a kernel with instructions from SASS or PTX, as nvcc generates it.

    Loops are not unrolled. Where there is no SASS, for lack of ``nvdisasm`` or since nvcc does not
    know the device's compute capability any more, PTX is read, and ``note`` says so.

    Parameters
    ----------
    profiler : KernelProfiler
        Of this kernel, for an NVIDIA device.
    kernel : loopy.TranslationUnit
        The kernel.
    analysis : {"sass", "ptx"}
        What to read.

    Raises
    ------
    ModelNotApplicableError
        The device has no compute capability, or an instruction of PTX has no class.
    ParameterError
        The machine code has calls, or loops that overlap.
    DeviceParameterError
        The device lacks a latency.
    DeviceError, KernelBuildError
        There is no nvcc, or it refuses the code.
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
    found: dict[str, Any] = {"sources": _by_kernel(code.source)}
    reason = ""
    if analysis == "sass":
        try:
            text = compile_sass(with_loops_kept(code.source), capability)
        except (DeviceError, KernelBuildError) as error:
            reason = f" instead of machine code ({error})"
        else:
            found["sass"] = analyze_sass(text, latencies_of(device))
            found["origin"] = f"instructions: machine code for compute capability {capability}"
    if "sass" not in found:
        try:
            text = compile_ptx(code.source, capability)
        except KernelBuildError as error:
            if float(capability) >= float(OLDEST_CAPABILITY):
                raise
            reason = reason or f" ({error})"
            capability = OLDEST_CAPABILITY
            text = compile_ptx(code.source, capability)
        found["ptx"] = parse_ptx(text)
        found["origin"] = f"instructions: PTX for compute capability {capability}{reason}"
    given = {each.name: getattr(profiler, each.name) for each in fields(profiler)}
    return MachineCodeProfiler(**given, **found)


def _by_kernel(source: str) -> dict[str, str]:
    """Return the code of each kernel of a source."""
    parts = _KERNEL.split(source)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
