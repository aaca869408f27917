"""Dynamic instruction counts of a Loopy kernel from Oclgrind, an OpenCL simulator.

The kernel's generated code runs on constant buffers. Compiled without optimization and without
contraction, the instructions are those of the source: ``fadd`` and ``fsub`` are additions,
``fmul`` multiplications and negations, loads and stores as written.

Clang copies a whole structure, such as a complex number, by the intrinsic ``llvm.memcpy``, one call
for each. Oclgrind counts the call by the address spaces (``p1i8`` global, ``p0i8`` private), and no
load, store or byte: `DynamicCounts.copied` counts these.

For the compiler's view the same code is compiled with contraction on, and LLVM's passes at -O3 run
over it (``llvm_ir.py``): Oclgrind's own optimization is -Oz, which shares values, but leaves loops
in a shape in which no load in them is certain to be executed, so that none is hoisted.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
from loopy.kernel.array import VectorArrayDimTag
from loopy.kernel.tools import get_subkernel_to_insn_id_map
from loopy.schedule.tools import get_subkernel_arg_info
from pymbolic import evaluate

from countperf.counting.frontend.schedule import generate_code, linearize_kernel, preprocess_unit
from tests.oracles import llvm_ir

PROGRAM = shutil.which("oclgrind-kernel")

_LINE = re.compile(r"^\s*(\d+) - (.+?)(?: \((\d+) bytes\))?$")
_FORMATS = {
    **{"f2": "ushort", "f4": "float", "f8": "double"},  # half has none of its own; 0x3e00 is 1.5
    **{"c8": "float", "c16": "double", "b1": "char", "i1": "char", "u1": "uchar"},
    **{"i2": "short", "u2": "ushort", "i4": "int", "i8": "long", "u4": "uint", "u8": "ulong"},
}
# without optimization, C's plain inline functions have no definition to call
_PROLOGUE = """#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define inline static inline
"""


@dataclass(frozen=True)
class DynamicCounts:
    """Executed instructions of one run, by Oclgrind's names, and bytes of memory instructions."""

    instructions: dict[str, int]
    bytes: dict[str, int]

    def of(self, *names: str) -> int:
        return sum(self.instructions.get(name, 0) for name in names)

    def _matching(self, pattern: str) -> int:
        found = (n for name, n in self.instructions.items() if re.fullmatch(pattern, name))
        return sum(found)

    def fused(self) -> int:
        """Multiplications fused with an addition."""
        return self._matching(r"call llvm\.fmuladd\.f\d+\(\)")

    def copied(self, source: int, target: int) -> int:
        """Structures copied whole between two address spaces."""
        return self._matching(rf"call llvm\.memcpy\.p{target}i8\.p{source}i8\.i64\(\)")

    def calls(self, function: str) -> int:
        """Calls of an OpenCL built-in, whatever its argument types."""
        return self._matching(rf"call _Z{len(function)}{function}[a-zA-Z0-9_]*\(\)")


def run(
    t_unit: Any,
    parameters: Mapping[str, int],
    folder: Path,
    *,
    options: str = "-cl-opt-disable",
    contents: Mapping[str, Sequence[int]] | None = None,
    contraction: bool = False,
    passes: Sequence[str] | None = None,
) -> DynamicCounts:
    """Simulate all launches of a kernel and return what they executed.

    Integer arrays are filled with zeros, real ones with 1.5, unless their contents are given. With
    `passes`, options of LLVM's ``opt``, the unoptimized code is rewritten by them first.
    """
    assert PROGRAM is not None, "oclgrind-kernel is not installed"
    t_unit = preprocess_unit(t_unit)
    kernel = linearize_kernel(t_unit)
    t_unit = t_unit.with_kernel(kernel)
    code = generate_code(t_unit)
    source = f"#pragma OPENCL FP_CONTRACT {'ON' if contraction else 'OFF'}\n"
    source += _PROLOGUE + code.device_code()
    (folder / "kernel.cl").write_text(source)
    if "pyopencl-complex.h" in source:
        header = resources.files("pyopencl") / "cl" / "pyopencl-complex.h"
        (folder / "pyopencl-complex.h").write_text(header.read_text())
    instructions: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    launched = get_subkernel_to_insn_id_map(kernel)  # the others are functions that they call
    for program in code.device_programs:
        if program.name not in launched:
            continue
        geometry = _geometry(kernel, t_unit.callables_table, launched[program.name], parameters)
        lines = ["kernel.cl", program.name, *geometry, ""]
        for name in get_subkernel_arg_info(kernel, program.name).passed_names:
            lines += _argument(kernel.get_var_descriptor(name), parameters, contents or {})
        (folder / "kernel.sim").write_text("\n".join(lines) + "\n")
        if passes is not None:
            llvm_ir.optimize(folder, passes)
        command = [PROGRAM, "--inst-counts", "--build-options", f"{options} -I.", "kernel.sim"]
        finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        output = finished.stdout + finished.stderr
        assert "Instructions executed" in output, f"Oclgrind ran nothing:\n{output}\n{source}"
        assert "Invalid" not in output, output
        assert "FATAL ERROR" not in output, output
        for line in output.splitlines():
            if match := _LINE.match(line):
                instructions[match[2]] += int(match[1])
                if match[3]:
                    moved[match[2]] += int(match[3])
    return DynamicCounts(dict(instructions), dict(moved))


def _geometry(
    kernel: Any, callables: Any, ids: Any, parameters: Mapping[str, int]
) -> tuple[str, str]:
    """Return the global and the local size of the launch of some instructions."""
    sizes = kernel.get_grid_sizes_for_insn_ids_as_exprs(ids, callables)
    groups, local = ([int(evaluate(s, dict(parameters))) for s in part] for part in sizes)
    groups += [1] * (3 - len(groups))
    local += [1] * (3 - len(local))
    items = [g * s for g, s in zip(groups, local, strict=True)]
    return " ".join(map(str, items)), " ".join(map(str, local))


def _argument(
    argument: Any, parameters: Mapping[str, int], contents: Mapping[str, Sequence[int]]
) -> list[str]:
    dtype = np.dtype(argument.dtype.numpy_dtype)
    components = dtype
    if dtype.fields is not None:
        components = np.dtype(next(iter(dtype.fields.values()))[0])
    name = _FORMATS[f"{components.kind}{components.itemsize}"]
    if isinstance(argument, lp.ValueArg):
        value = parameters.get(argument.name, 1)
        return [f"<size={dtype.itemsize} {name}>", str(value)]
    cells = 1
    tags: tuple[Any, ...] = argument.dim_tags or ()
    for extent, tag in zip(argument.shape, tags, strict=True):
        is_padded = isinstance(tag, VectorArrayDimTag) and extent == 3  # as OpenCL's vectors are
        cells *= 4 if is_padded else int(evaluate(extent, dict(parameters)))
    given = contents.get(argument.name)
    if given is not None:
        assert len(given) == cells, f"{argument.name}: {len(given)} values for {cells} cells"
        return [f"<size={cells * dtype.itemsize} {name}>", " ".join(map(str, given))]
    fill = {"ushort": "15872", "float": "1.5", "double": "1.5"}.get(name, "0")
    return [f"<size={cells * dtype.itemsize} {name} fill={fill}>"]


def disagreements(
    counted: Mapping[str, Any], dynamic: DynamicCounts, *, optimized: bool = False
) -> dict[str, tuple[int, int]]:
    """Compare evaluated properties with dynamic counts; return (counted, executed) that differ.

    In optimized code negations are part of other operations, and not compared.
    """

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

    pairs: dict[str, tuple[int, int]] = {}
    for direction, space in itertools.product(("load", "store"), ("global", "local")):
        names = [f"{direction} {space}"] + ["load constant"] * (direction + space == "loadglobal")
        counted_as = f"{space[0]}mem"
        pairs[f"{space} {direction}s"] = (
            total(rf"{counted_as}\.{direction}\..*"),
            dynamic.of(*names),
        )
        executed = sum(dynamic.bytes.get(name, 0) for name in names)
        pairs[f"bytes of {space} {direction}s"] = moved(counted_as, direction), executed
    multiplied = (total(r"flop\.(mul|neg)\..*"), dynamic.of("fmul", "fneg"))
    if optimized:
        multiplied = total(r"flop\.mul\..*"), dynamic.of("fmul")
    pairs |= {
        "barriers": (total(r"barrier\.local"), dynamic.calls("barrier")),
        "additions": (total(r"flop\.add\..*"), dynamic.of("fadd", "fsub")),
        "multiplications": multiplied,
        "fused multiply-adds": (total(r"flop\.fma\..*"), dynamic.fused()),
        "divisions": (total(r"flop\.div\..*"), dynamic.of("fdiv")),
        "powers": (total(r"flop\.pow\..*"), dynamic.calls("pow")),
        "rsqrt": (total(r"flop\.special\..*\.rsqrt"), dynamic.calls("rsqrt")),
    }
    return {what: pair for what, pair in pairs.items() if pair[0] != pair[1]}
