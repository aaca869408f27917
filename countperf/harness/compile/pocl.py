"""Machine code that PoCL compiles for the groups of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from countperf.errors import DeviceError, KernelBuildError
from countperf.harness.compile.build import POCL
from countperf.harness.compile.objects import compile_many
from countperf.harness.device import Device
from countperf.machine_code.classify_x86 import parse_disassembly
from countperf.machine_code.code import CompiledCode, code_of
from countperf.machine_code.objdump import disassemble

SOURCE = "x86-64 machine code from PoCL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """Object code of a kernel from PoCL, or the problem."""

    codes: tuple[CompiledCode, ...]  # one of each launch
    problem: str = ""  # why there are none


def compile_with_pocl(
    t_unit: Any, device: Device, parameters: Mapping[str, int]
) -> dict[str, CompiledCode]:
    """Compile a kernel with PoCL, as for a launch at given sizes, and read its machine code.

    A group of the kernel is launched, with arrays of zeros, in a process of its own.
    """
    (found,) = compile_many_with_pocl([(t_unit, parameters)], device)
    if found.problem:
        raise KernelBuildError(found.problem)
    return {code.kernel: code for code in found.codes}


def compile_many_with_pocl(
    units: Sequence[tuple[Any, Mapping[str, int]]], device: Device
) -> tuple[Compiled, ...]:
    """Compile many kernels with PoCL in one process, which takes less time."""
    if device.identity.platform != POCL:
        raise DeviceError(
            f"{device.label} ({device.identity.platform}) does not keep its machine code: name a"
            " device of PoCL's, or read PTX for NVIDIA's",
            device=device.label,
        )
    return compile_many(
        units,
        device,
        lambda paths: Compiled(codes=tuple(_code(path) for path in paths)),
        lambda problem: Compiled(codes=(), problem=problem),
    )


def _code(path: Path) -> CompiledCode:
    kernel = path.stem
    functions = parse_disassembly(disassemble(path))
    name = f"_pocl_kernel_{kernel}_workgroup"
    if name not in functions:
        raise DeviceError(
            f"PoCL's object for kernel {kernel!r} has no function {name} (it has"
            f" {', '.join(functions)}): this version of PoCL is not known, 3.1 is"
        )
    # of a group of one item, the function of the group only calls that of the item
    item = f"_pocl_kernel_{kernel}"
    if f"{item}@plt" in functions:
        name = item
    return code_of(
        functions[name],
        kernel=kernel,
        source=SOURCE,
        group_shape=tuple(int(extent) for extent in path.parent.name.split("-")[:3]),
    )
