"""Registers, memory and machine code of kernels on NVIDIA GPUs, from nvcc, without a GPU."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from countperf.devices.device import pick_errors
from countperf.errors import DeviceError, KernelBuildError
from countperf.machine_code.tools import run_program

_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+)(?:\+(\d+))? bytes smem")
_MESSAGE_LIMIT = 800
_OLD_DEVICES = (
    "; CUDA 13 compiles for compute capability 7.5 and newer, CUDA 12 for 5.0 and newer: name the"
    " nvcc of such a toolkit in COUNTPERF_NVCC"
)

Program = Literal["nvcc", "nvdisasm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources:
    """Registers and memory of a kernel compiled for an architecture."""

    registers: int  # registers per work item
    # bytes of registers that did not fit, stored and loaded, per work item
    spill_bytes: int = 0
    # local memory (CUDA: shared memory) per group that the kernel declares, byte
    shared_bytes: int = 0


def require_program(name: Program) -> Path:
    """Return a program of CUDA's toolkit, or say how to get it."""
    if (program := find_program(name)) is None:
        raise DeviceError(f"no {name} found: {advise_program(name)}")
    return program


def advise_program(name: str) -> str:
    """Say how to get a program of CUDA's toolkit."""
    return (
        f"install NVIDIA's CUDA toolkit, or 'pip install nvidia-cuda-{name}', or name the program"
        f" in the environment variable COUNTPERF_{name.upper()}"
    )


def find_program(name: Program) -> Path | None:
    """Find a program of CUDA's toolkit."""
    if named := os.environ.get(f"COUNTPERF_{name.upper()}"):
        return Path(path) if (path := shutil.which(named)) else None
    homes = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    paths = [shutil.which(name), *(f"{home}/bin/{name}" for home in homes if home)]
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or ()) if package else ():
        paths += sorted(map(str, Path(folder).glob(f"*/bin/{name}")), reverse=True)
    return next((Path(path) for path in paths if path and os.access(path, os.X_OK)), None)


def compile_for(t_unit: Any, capability: str = "9.0") -> dict[str, KernelResources]:
    """Compile a Loopy kernel for a compute capability and read what it takes."""
    from countperf.devices.targets import generate_cuda

    code = generate_cuda(t_unit)
    said, _ = run_nvcc(code.source, capability, "-cubin", "-Xptxas", "-v")
    resources = parse_resources(said)
    return {name: resources[name] for name in code.kernels}


def compile_cubin(source: str, capability: str = "9.0") -> bytes:
    """Compile CUDA C to machine code."""
    return run_nvcc(source, capability, "-cubin")[1]


def run_nvcc(source: str, capability: str, *flags: str) -> tuple[str, bytes]:
    """Return what nvcc says of a source, and what it makes; errors as of `compile_cubin`."""
    nvcc = require_program("nvcc")
    architecture = f"sm_{capability.replace('.', '')}"
    with tempfile.TemporaryDirectory(prefix="countperf-nvcc-") as folder:
        path = Path(folder) / "kernels.cu"
        path.write_text(source, encoding="utf-8")
        target = path.with_suffix(".out")
        result = run_program(nvcc, f"-arch={architecture}", *flags, path, "-o", target)
        said = (result.stdout + result.stderr).replace(f"{folder}/", "")
        if result.returncode:
            message = pick_errors(said) or f"status {result.returncode}"
            advice = _OLD_DEVICES if "Unsupported gpu architecture" in message else ""
            raise KernelBuildError(f"nvcc for {architecture}: {message}{advice}")
        return said, target.read_bytes()


def parse_resources(text: str) -> dict[str, KernelResources]:
    """Read what ``ptxas -v`` says."""
    resources: dict[str, KernelResources] = {}
    for part in text.split("Compiling entry function '")[1:]:
        properties, found, used = part.partition("Used ")
        if found:
            shared = _SHARED.search(used.partition("\n")[0])
            resources[part.partition("'")[0]] = KernelResources(
                registers=int(used.split()[0]),
                spill_bytes=sum(map(int, (_SPILLS.findall(properties) or [(0, 0)])[-1])),
                shared_bytes=sum(int(size or 0) for size in shared.groups()) if shared else 0,
            )
    return resources


def compile_sass(source: str, capability: str = "9.0") -> str:
    """Compile CUDA C to machine code and return its listing."""
    return disassemble(compile_cubin(source, capability))


def disassemble(cubin: bytes) -> str:
    """Return the listing of machine code."""
    program = require_program("nvdisasm")
    with tempfile.TemporaryDirectory(prefix="countperf-sass-") as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(cubin)
        result = run_program(program, "-c", path)
    if result.returncode:
        said = (result.stderr or result.stdout).strip().replace(str(path), "the cubin")
        raise DeviceError(
            f"nvdisasm refuses the code: {said[:_MESSAGE_LIMIT]}; take nvcc and nvdisasm of one"
            " toolkit (COUNTPERF_NVCC, COUNTPERF_NVDISASM)"
        )
    return result.stdout
