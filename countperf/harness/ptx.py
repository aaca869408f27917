"""Profiles of Loopy kernels whose instructions come from PTX, as nvcc generates it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from countperf.counting.expansion import SubGroup
from countperf.counting.programs import KernelProgram
from countperf.counting.sizes import SizeParameters
from countperf.errors import DeviceError, KernelBuildError, ModelNotApplicableError
from countperf.hardware.parameters import DeviceParameters
from countperf.harness.cuda.target import generate_cuda
from countperf.harness.nvcc import INSTALL_ADVICE, find_nvcc
from countperf.harness.profiles import profile_kernel
from countperf.mechanistic.profile import ProfiledKernel
from countperf.mechanistic.ptx import PtxProgram, parse_ptx

_FOR = re.compile(r"^(\s*)for \(\w+ (\w+) =", re.MULTILINE)
_MESSAGE_LIMIT = 800


def compile_ptx(source: str, capability: str = "9.0") -> str:
    """Translate CUDA C to PTX; loops stay loops.

    Parameters
    ----------
    source : str
        CUDA C, its loops written as Loopy writes them.
    capability : str, optional
        NVIDIA's compute capability.

    Raises
    ------
    KernelBuildError
        nvcc refuses the code.
    DeviceError
        There is no nvcc.
    """
    nvcc = find_nvcc()
    if nvcc is None:
        raise DeviceError(f"no nvcc found: {INSTALL_ADVICE}")
    kept = with_loops_kept(source)
    with tempfile.TemporaryDirectory(prefix="countperf-ptx-") as folder:
        path = Path(folder) / "kernel.cu"
        path.write_text(kept, encoding="utf-8")
        target = path.with_suffix(".ptx")
        architecture = f"sm_{capability.replace('.', '')}"
        result = subprocess.run(
            [str(nvcc), f"-arch={architecture}", "-ptx", str(path), "-o", str(target)],
            capture_output=True,
            text=True,
            check=False,
            errors="replace",
        )
        if result.returncode:
            said = (result.stdout + result.stderr).strip()
            raise KernelBuildError(f"nvcc for {architecture}: {said[:_MESSAGE_LIMIT]}")
        return target.read_text(encoding="utf-8")


def with_loops_kept(source: str) -> str:
    """Return CUDA C whose loops are not unrolled, as far as Loopy wrote them."""
    return _FOR.sub(r"\1#pragma unroll 1\n\g<0>", source)


def loops_in(source: str) -> tuple[str, ...]:
    """Return the variables of the loops that Loopy wrote into CUDA C, in order."""
    return tuple(name for _, name in _FOR.findall(source))


def profile_from_ptx(
    kernel: Any, device: DeviceParameters, parameters: Mapping[str, Any], /, **options: Any
) -> ProfiledKernel:
    """Profile a Loopy kernel with the instructions and dependencies of its PTX.

    Trip counts, launch, lines and local memory come from Loopy; counts and graph are those of the
    first sub-group of the middle work group, with address arithmetic and loop control.

    Parameters
    ----------
    kernel : loopy.TranslationUnit
        With one entry point and one launch.
    device : DeviceParameters
        NVIDIA's; its compute capability must be one that nvcc knows.
    parameters : mapping from str to int
        Values of all size parameters.
    **options
        As of `countperf.harness.profiles.profile_kernel`.

    Raises
    ------
    CountingError, ParameterError, DeviceParameterError
        As of `KernelProfiler.at`.
    ModelNotApplicableError
        The device has no compute capability, PTX has other loops than Loopy's code, or an
        instruction without a class.
    DeviceError, KernelBuildError
        There is no nvcc, or it refuses the code.
    """
    if device.compute_capability is None:
        message = f"device {device.slug!r} has no compute capability, and so no PTX"
        raise ModelNotApplicableError(message, parameter="device")
    profiler = profile_kernel(kernel, device, **options)
    profiled = profiler.at(parameters)
    (program,) = profiler.programs
    code = generate_cuda(kernel)
    written = parse_ptx(compile_ptx(code.source, device.compute_capability))[program.name]
    sub_group = first_sub_group(program, parameters, device)
    return with_ptx(profiled, written, loop_trips(program, written, code.source, sub_group))


def first_sub_group(
    program: KernelProgram, parameters: Mapping[str, Any], device: DeviceParameters
) -> SubGroup:
    """Return the sub-group whose loops stand for those of all; errors as of `profile_from_ptx`."""
    values = SizeParameters.of(
        program.kernel, program.domains.sizes, program.domains.defaults
    ).checked(parameters)
    size = device.require_int("sub_group_size", model="the profile")
    return SubGroup(program, values, sub_group_size=size)


def with_ptx(
    profiled: ProfiledKernel, written: PtxProgram, trips: Mapping[str, int]
) -> ProfiledKernel:
    """Return a profile with the instructions and dependencies of PTX.

    Raises
    ------
    ModelNotApplicableError
        A loop of PTX has no condition at its end.
    """
    graph = written.graph(trips)
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


def loop_trips(
    program: KernelProgram, written: PtxProgram, source: str, sub_group: SubGroup
) -> dict[str, int]:
    """Return the iterations of each loop of PTX, from the loops of Loopy's code.

    Raises
    ------
    ModelNotApplicableError
        PTX has more or fewer loops than the code, or one of them is not entered.
    """
    names = loops_in(source)
    labels = written.loops()
    if len(names) != len(labels):
        message = (
            f"kernel {program.name!r}: PTX has {len(labels)} loops ({', '.join(labels)}), the code"
            f" {len(names)} ({', '.join(names)}); parse it with parse_ptx and declare the trips"
        )
        raise ModelNotApplicableError(message, parameter="trips")
    return dict(zip(labels, iterations(program, names, sub_group), strict=True))


def iterations(
    program: KernelProgram, names: Sequence[str], sub_group: SubGroup
) -> tuple[int, ...]:
    """Return the iterations of loops, by their names."""
    found: list[int] = []
    for name in names:
        inside = [s for s in program.statements if name in s.within]
        found.append(len(sub_group.loop_range(name, inside)))
    return tuple(found)


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
