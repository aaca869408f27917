"""Machine code that PoCL compiles for the groups of a kernel, by loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from countperf.errors import CountingError, KernelBuildError
from countperf.harness.compile.build import POCL
from countperf.harness.compile.compiled_kernel import CompiledKernel, read_compiled
from countperf.harness.compile.objects import keeps_no_code
from countperf.harness.device import Device
from countperf.machine_code.calling_conventions import KernelLaunch
from countperf.machine_code.classify_x86 import classify
from countperf.machine_code.code import CompiledCode, code_of

SOURCE = "x86-64 machine code from PoCL"


def compile_with_pocl(
    t_unit: Any, device: Device, parameters: Mapping[str, int]
) -> dict[str, CompiledCode]:
    """Compile a kernel with PoCL, as for a launch at given sizes, and read its machine code.

    A group of the kernel is launched, with arrays of zeros, in a process of its own. Loops have the
    iterations of a group at these sizes; if these depend on data, all code is counted.
    """
    if device.identity.platform != POCL:
        raise keeps_no_code(device)
    (compiled,) = read_compiled([(t_unit, parameters)], device)
    if isinstance(compiled, KernelBuildError):
        raise compiled
    return codes_of(compiled, parameters)


def codes_of(compiled: CompiledKernel, parameters: Mapping[str, int]) -> dict[str, CompiledCode]:
    """Return the machine code of each launch at given sizes."""
    try:
        followed = compiled.follow(parameters)
    except CountingError:
        launches = compiled.host.launches(parameters)
        return {launch.kernel: _code(compiled, launch, None) for launch in launches}
    return {each.launch.kernel: _code(compiled, each.launch, each.executed) for each in followed}


def _code(
    compiled: CompiledKernel, launch: KernelLaunch, executed: Mapping[int, int] | None
) -> CompiledCode:
    program = compiled.programs[launch.kernel]
    return code_of(
        [
            (
                classify(line.mnemonic, line.operands),
                program.target(line) if line.mnemonic[0] == "j" else None,
            )
            for line in program.lines
        ],
        executed,
        kernel=launch.kernel,
        source=SOURCE,
        group_shape=launch.group_shape,
    )
