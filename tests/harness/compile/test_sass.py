"""Listings of machine code from nvcc and nvdisasm."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.errors import DeviceError, KernelBuildError
from countperf.harness.nvcc import compile_sass, disassemble, find_disassembler, find_nvcc
from countperf.mechanistic.sass import SassLatencies, analyze_sass

needs_tools = pytest.mark.skipif(
    find_nvcc() is None or find_disassembler() is None,
    reason="no nvcc or nvdisasm (the extra 'nvcc')",
)

_SCALE = """
extern "C" __global__ void scale(float *a, float factor) { a[threadIdx.x] *= factor; }
extern "C" __global__ void clear(float *a) { a[threadIdx.x] = 0; }
"""


@needs_tools
@pytest.mark.parametrize("capability", ["7.5", "9.0"])
def test_a_listing_has_all_kernels(capability: str) -> None:
    found = analyze_sass(compile_sass(_SCALE, capability), SassLatencies(constant_memory=30))

    assert set(found) == {"scale", "clear"}
    opcodes = [each.base for each in found["scale"].segments[0].instructions]
    assert opcodes.count("LDG") == opcodes.count("FMUL") == opcodes.count("STG") == 1
    assert opcodes[-1] == "EXIT"


@needs_tools
def test_errors_say_what_to_do() -> None:
    with pytest.raises(KernelBuildError, match="nothing"):
        compile_sass(_SCALE.replace("= 0", "= nothing"))
    with pytest.raises(KernelBuildError, match=r"sm_20: .*COUNTPERF_NVCC"):  # an old capability
        compile_sass(_SCALE, "2.0")
    with pytest.raises(DeviceError, match=r"nvdisasm refuses the code: .*COUNTPERF_NVDISASM"):
        disassemble(b"no object file")


def test_a_missing_disassembler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COUNTPERF_NVDISASM", str(tmp_path / "none"))

    with pytest.raises(DeviceError, match="pip install nvidia-cuda-nvdisasm"):
        disassemble(b"")
