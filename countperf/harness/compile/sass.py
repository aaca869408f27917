"""Machine code of kernels on NVIDIA GPUs as text (SASS), from nvcc and nvdisasm, without a GPU.

`countperf.mechanistic.sass` reads the text.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from countperf.errors import DeviceError
from countperf.harness.nvcc import compile_cubin, find_cuda_program

INSTALL_ADVICE = (
    "install NVIDIA's CUDA toolkit, or 'pip install nvidia-cuda-nvdisasm', or name the program in"
    " the environment variable COUNTPERF_NVDISASM"
)
_MESSAGE_LIMIT = 800


def find_disassembler() -> Path | None:
    """Find CUDA's disassembler."""
    return find_cuda_program("nvdisasm", "COUNTPERF_NVDISASM")


def compile_sass(source: str, capability: str = "9.0") -> str:
    """Compile CUDA C to machine code and return its listing."""
    return disassemble(compile_cubin(source, capability))


def disassemble(cubin: bytes) -> str:
    """Return the listing of machine code."""
    program = find_disassembler()
    if program is None:
        raise DeviceError(f"no nvdisasm found: {INSTALL_ADVICE}")
    with tempfile.TemporaryDirectory(prefix="countperf-sass-") as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(cubin)
        result = subprocess.run(
            [str(program), "-c", str(path)],
            capture_output=True,
            text=True,
            check=False,
            errors="replace",
        )
    if result.returncode:
        said = (result.stderr or result.stdout).strip().replace(str(path), "the cubin")
        raise DeviceError(
            f"nvdisasm refuses the code: {said[:_MESSAGE_LIMIT]}; take nvcc and nvdisasm of one"
            " toolkit (COUNTPERF_NVCC, COUNTPERF_NVDISASM)"
        )
    return result.stdout
