"""PTX that nvcc makes of a kernel, by loop and class; no GPU is needed."""

from __future__ import annotations

from typing import Any

from countperf.errors import ModelNotApplicableError
from countperf.harness.cuda.target import generate_cuda
from countperf.harness.nvcc import compile_for
from countperf.harness.ptx import compile_ptx
from countperf.machine_code.code import CompiledCode, code_of
from countperf.machine_code.ptx_unit import PtxInstruction
from countperf.mechanistic.ptx import parse_ptx

_FLOPS = frozenset({"add", "mul", "fma", "div", "minmax", "compare"})
_SELECTED = {"convert": "convert", "select": "move", "bitwise": "iop.scalar"}


def compile_with_nvcc(t_unit: Any, capability: str = "9.0") -> dict[str, CompiledCode]:
    """Compile a kernel to PTX and read it."""
    code = generate_cuda(t_unit)
    programs = parse_ptx(compile_ptx(code.source, capability))
    resources = compile_for(t_unit, capability)
    return {
        name: code_of(
            [(_classes(each), each.target) for each in programs[name].instructions],
            kernel=name,
            source=f"PTX for compute capability {capability}",
            group_shape=(1,),
            registers=resources[name].registers,
            spill_bytes=resources[name].spill_store_bytes + resources[name].spill_load_bytes,
        )
        for name in code.kernels
    }


def _classes(instruction: PtxInstruction) -> tuple[str, ...]:
    name = instruction.name
    if not name:
        return ()
    head, _, rest = name.partition(".")
    if head in ("load", "store", "barrier", "call"):
        return (name,)
    if head == "branch":
        return ("branch",)
    type_name, _, function = rest.partition(".")
    if head == "special":
        return (f"flop.{'sqrt' if function == 'sqrt' else 'special'}.{type_name}.1",)
    if head in _SELECTED:
        return (_SELECTED[head],)
    if type_name.startswith("i"):
        return ("idiv" if head in ("div", "mod") else "iop.scalar",)
    if head in _FLOPS:
        return (f"flop.{head}.{type_name}.1",)
    raise ModelNotApplicableError(f"class {name!r} of PTX is not known here", parameter="idg")
