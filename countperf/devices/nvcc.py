"""Registers, memory and machine code of kernels on NVIDIA GPUs, from nvcc, without a GPU.

``ptxas -v`` says what each kernel takes once compiled for an architecture. Any number of kernels is
put into one file, since starting the compiler takes longer than most kernels do. Machine code as
text (SASS) is nvdisasm's; `countperf.machine_code.sass_instruction` reads it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from countperf.devices.device import pick_errors
from countperf.errors import DeviceError, KernelBuildError
from countperf.machine_code.tools import run_program

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+(\d+))? bytes smem")
_KERNEL_NAME = re.compile(
    r"(?:__global__\s+void|KERNEL)\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\("
)
_MESSAGE_LIMIT = 800
_UNSUPPORTED = "Unsupported gpu architecture"
_OLD_DEVICES = (
    "CUDA 13 compiles for compute capability 7.5 and newer, CUDA 12 for 5.0 and newer: name the"
    " nvcc of such a toolkit in COUNTPERF_NVCC"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources:
    """Registers and memory of a kernel compiled for an architecture."""

    registers: int  # registers per work item
    # bytes of registers that did not fit, stored and loaded, per work item
    spill_bytes: int = 0
    # local memory (CUDA: shared memory) per group that the kernel declares, byte
    shared_bytes: int = 0


def find_nvcc() -> Path | None:
    """Find CUDA's compiler."""
    return _find_program("nvcc")


def find_disassembler() -> Path | None:
    """Find CUDA's disassembler."""
    return _find_program("nvdisasm")


def require_program(name: Literal["nvcc", "nvdisasm"]) -> Path:
    """Return a program of CUDA's toolkit, or say how to get it."""
    if (program := _find_program(name)) is None:
        raise DeviceError(f"no {name} found: {advise_program(name)}")
    return program


def advise_program(name: str) -> str:
    """Say how to get a program of CUDA's toolkit."""
    return (
        f"install NVIDIA's CUDA toolkit, or 'pip install nvidia-cuda-{name}', or name the program"
        f" in the environment variable COUNTPERF_{name.upper()}"
    )


def _find_program(name: str) -> Path | None:
    named = os.environ.get(f"COUNTPERF_{name.upper()}")
    if named:
        path = shutil.which(named)
        return None if path is None else Path(path)
    return next((path for path in _candidates(name) if os.access(path, os.X_OK)), None)


def _candidates(name: str) -> Iterator[Path]:
    on_path = shutil.which(name)
    if on_path is not None:
        yield Path(on_path)
    homes = [os.environ.get(home, "") for home in ("CUDA_HOME", "CUDA_PATH")]
    for home in (*filter(None, homes), "/usr/local/cuda"):
        yield Path(home) / "bin" / name
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or ()) if package else ():
        yield from sorted(Path(folder).glob(f"*/bin/{name}"), reverse=True)


def compile_for(t_unit: Any, capability: str = "9.0") -> dict[str, KernelResources]:
    """Compile a Loopy kernel for a compute capability and read what it takes."""
    from countperf.devices.cuda.target import generate_cuda

    code = generate_cuda(t_unit)
    resources = compile_sources({"kernel": code.source}, capability)["kernel"]
    return {name: resources[name] for name in code.kernels}


def compile_sources(
    sources: Mapping[str, str], capability: str = "9.0"
) -> dict[str, dict[str, KernelResources]]:
    """Compile many sources in one go and read what their kernels take."""
    names = list(sources)
    texts = [_apart(sources[name], name, number) for number, name in enumerate(names)]
    by_source: dict[str, dict[str, KernelResources]] = {name: {} for name in names}
    said, _ = run_nvcc("\n".join(texts), capability, "-cubin", "-Xptxas", "-v")
    for entry, resources in parse_resources(said).items():
        number, _, kernel = entry[1:].partition("_")
        by_source[names[int(number)]][kernel] = resources
    return by_source


def _apart(source: str, label: str, number: int) -> str:
    """Put a source into a namespace of its own, its kernels under names of their own."""
    for name in set(_KERNEL_NAME.findall(source)):
        source = re.sub(rf"\b{name}\b", f"k{number}_{name}", source)
    return f'namespace n{number} {{\n#line 1 "{label}"\n{source}\n}}\n#undef bIdx\n#undef tIdx\n'


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
            advice = f"; {_OLD_DEVICES}" if _UNSUPPORTED in message else ""
            raise KernelBuildError(f"nvcc for {architecture}: {message}{advice}")
        return said, target.read_bytes()


def parse_resources(text: str) -> dict[str, KernelResources]:
    """Read what ``ptxas -v`` says."""
    resources: dict[str, KernelResources] = {}
    entry, spills = "", 0
    for line in text.splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
        elif entry and (match := _SPILLS.search(line)):
            spills = int(match[1]) + int(match[2])
        elif entry and (match := _REGISTERS.search(line)):
            shared = _SHARED.search(line)
            resources[entry] = KernelResources(
                registers=int(match[1]),
                spill_bytes=spills,
                shared_bytes=sum(int(part or 0) for part in shared.groups()) if shared else 0,
            )
            entry, spills = "", 0
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
