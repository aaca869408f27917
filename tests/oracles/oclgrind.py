"""Dynamic instruction counts of a Loopy kernel from Oclgrind, an OpenCL simulator.

The kernel's generated code runs on constant buffers. Compiled without optimization and without
contraction, the instructions are those of the source: ``fadd`` and ``fsub`` are additions,
``fmul`` multiplications and negations, loads and stores as written.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
from pymbolic import evaluate

PROGRAM = shutil.which("oclgrind-kernel")

_LINE = re.compile(r"^\s*(\d+) - (.+?)(?: \((\d+) bytes\))?$")
_FORMATS = {"f4": "float", "f8": "double", "i4": "int", "i8": "long", "u4": "uint", "i2": "short"}


@dataclass(frozen=True)
class DynamicCounts:
    """Executed instructions of one run, by Oclgrind's names, and bytes of memory instructions."""

    instructions: dict[str, int]
    bytes: dict[str, int]

    def of(self, *names: str) -> int:
        return sum(self.instructions.get(name, 0) for name in names)

    def calls(self, function: str) -> int:
        """Calls of an OpenCL built-in, whatever its argument types."""
        pattern = re.compile(rf"call _Z{len(function)}{function}[a-zA-Z0-9_]*\(\)")
        return sum(n for name, n in self.instructions.items() if pattern.fullmatch(name))


def run(
    t_unit: Any,
    parameters: Mapping[str, int],
    folder: Path,
    *,
    options: str = "-cl-opt-disable",
) -> DynamicCounts:
    """Simulate one launch of a kernel and return what it executed."""
    assert PROGRAM is not None, "oclgrind-kernel is not installed"
    t_unit = lp.preprocess_program(t_unit)
    kernel = t_unit.default_entrypoint
    generated = lp.generate_code_v2(t_unit)
    (program,) = generated.device_programs
    source = "#pragma OPENCL FP_CONTRACT OFF\n" + generated.device_code()
    (folder / "kernel.cl").write_text(source)
    global_size, local_size = kernel.get_grid_size_upper_bounds_as_exprs(t_unit.callables_table)
    local = [int(evaluate(s, dict(parameters))) for s in local_size] or [1]
    groups = [int(evaluate(s, dict(parameters))) for s in global_size]
    groups += [1] * (len(local) - len(groups))
    local += [1] * (len(groups) - len(local))
    items = [g * s for g, s in zip(groups, local, strict=True)]
    lines = [
        "kernel.cl",
        program.name,
        " ".join(map(str, [*items, 1, 1][:3])),
        " ".join(map(str, [*local, 1, 1][:3])),
        "",
    ]
    for argument in kernel.args:
        lines += _argument(argument, parameters)
    (folder / "kernel.sim").write_text("\n".join(lines) + "\n")
    finished = subprocess.run(
        [PROGRAM, "--inst-counts", "--build-options", options, "kernel.sim"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    output = finished.stdout + finished.stderr
    assert "Instructions executed" in output, f"Oclgrind ran nothing:\n{output}\n{source}"
    assert "Invalid" not in output, output
    instructions: dict[str, int] = {}
    moved: dict[str, int] = {}
    for line in output.splitlines():
        match = _LINE.match(line)
        if match:
            instructions[match[2]] = int(match[1])
            if match[3]:
                moved[match[2]] = int(match[3])
    return DynamicCounts(instructions, moved)


def _argument(argument: Any, parameters: Mapping[str, int]) -> list[str]:
    dtype = np.dtype(argument.dtype.numpy_dtype)
    name = _FORMATS[f"{dtype.kind}{dtype.itemsize}"]
    if isinstance(argument, lp.ValueArg):
        value = parameters.get(argument.name, 1)
        return [f"<size={dtype.itemsize} {name}>", str(value)]
    cells = 1
    for extent in argument.shape:
        cells *= int(evaluate(extent, dict(parameters)))
    fill = "1.5" if dtype.kind == "f" else "0"
    return [f"<size={cells * dtype.itemsize} {name} fill={fill}>"]


def disagreements(counted: Mapping[str, Any], dynamic: DynamicCounts) -> dict[str, tuple[int, int]]:
    """Compare evaluated properties with dynamic counts; return (counted, executed) that differ."""

    def total(*patterns: str) -> int:
        return sum(
            int(value)
            for name, value in counted.items()
            if any(re.fullmatch(pattern, name) for pattern in patterns)
        )

    def moved(space: str, direction: str) -> int:
        pattern = re.compile(rf"{space}\.{direction}\.(\d+)(?:\..*)?")
        return sum(
            int(value) * int(match[1]) // 8
            for name, value in counted.items()
            if (match := pattern.fullmatch(name))
        )

    pairs = {
        "global loads": (total(r"gmem\.load\..*"), dynamic.of("load global", "load constant")),
        "global stores": (total(r"gmem\.store\..*"), dynamic.of("store global")),
        "local loads": (total(r"lmem\.load\..*"), dynamic.of("load local")),
        "local stores": (total(r"lmem\.store\..*"), dynamic.of("store local")),
        "bytes loaded from global memory": (
            moved("gmem", "load"),
            dynamic.bytes.get("load global", 0) + dynamic.bytes.get("load constant", 0),
        ),
        "bytes stored to global memory": (
            moved("gmem", "store"),
            dynamic.bytes.get("store global", 0),
        ),
        "bytes loaded from local memory": (
            moved("lmem", "load"),
            dynamic.bytes.get("load local", 0),
        ),
        "bytes stored to local memory": (
            moved("lmem", "store"),
            dynamic.bytes.get("store local", 0),
        ),
        "barriers": (total(r"barrier\.local"), dynamic.calls("barrier")),
        "additions": (total(r"flop\.add\..*"), dynamic.of("fadd", "fsub")),
        "multiplications": (total(r"flop\.(mul|neg)\..*"), dynamic.of("fmul", "fneg")),
        "divisions": (total(r"flop\.div\..*"), dynamic.of("fdiv")),
        "powers": (total(r"flop\.pow\..*"), dynamic.calls("pow")),
        "rsqrt": (total(r"flop\.special\..*\.rsqrt"), dynamic.calls("rsqrt")),
    }
    return {what: pair for what, pair in pairs.items() if pair[0] != pair[1]}
