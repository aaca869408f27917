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
from countperf.machine_code.code import CompiledCode, Listed, code_of
from countperf.machine_code.interpreter import Program
from countperf.machine_code.object_file import entry_of

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
    places = range(len(program.lines)) if executed is not None else _function(program, launch)
    listed: list[Listed] = []
    for line in program.lines[places.start : places.stop]:
        target = program.target(line) if line.mnemonic[0] == "j" else None
        place = target - places.start if target is not None and target in places else None
        listed.append((classify(line.mnemonic, line.operands), place))
    return code_of(
        listed,
        executed,
        kernel=launch.kernel,
        source=SOURCE,
        group_shape=launch.group_shape,
    )


def _function(program: Program, launch: KernelLaunch) -> range:
    """Return the numbers of the lines of the function that runs a group."""
    entry = entry_of(program, launch.kernel, launch.group_shape)
    starts = {program.places.get(address, 0) for address in program.entries.values()}
    first = program.places[program.entries[entry]]
    return range(first, min((s for s in starts if s > first), default=len(program.lines)))
