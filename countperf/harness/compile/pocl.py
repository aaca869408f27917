"""Machine code that PoCL compiles for the groups of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from countperf.errors import DeviceError, KernelBuildError
from countperf.harness.compile.build import POCL
from countperf.harness.compile.objects import compile_many, keeps_no_code
from countperf.harness.device import Device
from countperf.machine_code.classify_x86 import parse_disassembly
from countperf.machine_code.code import CompiledCode, code_of
from countperf.machine_code.objdump import disassemble

SOURCE = "x86-64 machine code from PoCL"


def compile_with_pocl(
    t_unit: Any, device: Device, parameters: Mapping[str, int]
) -> dict[str, CompiledCode]:
    """Compile a kernel with PoCL, as for a launch at given sizes, and read its machine code.

    A group of the kernel is launched, with arrays of zeros, in a process of its own.
    """
    if device.identity.platform != POCL:
        raise keeps_no_code(device)
    (found,) = compile_many([(t_unit, parameters)], device, codes_of)
    if isinstance(found, KernelBuildError):
        raise found
    return found


def codes_of(objects: Sequence[Path]) -> dict[str, CompiledCode]:
    """Return the machine code in PoCL's objects by the names of kernels."""
    return {path.stem: _code(path) for path in objects}


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
