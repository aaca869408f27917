"""Registers, spills and messages of nvcc, and listings of machine code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from countperf.devices.nvcc import (
    KernelResources,
    compile_for,
    compile_sass,
    disassemble,
    find_program,
    parse_resources,
)
from countperf.devices.targets import generate_cuda
from countperf.errors import DeviceError, KernelBuildError
from countperf.mechanistic.compiled_profile import SassLatencies, analyze_sass
from measurement_kernels.catalog import entries, entry
from measurement_kernels.entry import CatalogEntry
from tests.devices.loopy_cases import two_launches
from tests.devices.nvcc_batches import compile_sources

needs_nvcc = pytest.mark.skipif(find_program("nvcc") is None, reason="no nvcc (the extra 'nvcc')")
needs_tools = pytest.mark.skipif(
    find_program("nvcc") is None or find_program("nvdisasm") is None,
    reason="no nvcc or nvdisasm (the extra 'nvcc')",
)

SAID = """\
ptxas info    : 0 bytes gmem, 16 bytes cmem[3]
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 2048 bytes smem
ptxas info    : Compile time = 13.117 ms
ptxas info    : Function properties for helper
    80 bytes stack frame, 40 bytes spill stores, 40 bytes spill loads
ptxas info    : Compiling entry function 'second' for 'sm_75'
ptxas info    : Function properties for second
    24 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, 24 bytes cumulative stack size, 100+16 bytes smem, 368 bytes cmem[0]
"""  # noqa: E501


def test_reading_what_ptxas_says() -> None:
    assert parse_resources(SAID) == {
        "first": KernelResources(registers=32, shared_bytes=2048),
        "second": KernelResources(registers=255, spill_bytes=28, shared_bytes=116),
    }


@needs_nvcc
def test_the_resources_of_each_launch_of_a_kernel() -> None:
    assert list(compile_for(two_launches())) == ["two_launches", "two_launches_0"]


@needs_nvcc
def test_a_refusal_names_the_source() -> None:
    broken = 'extern "C" __global__ void f(float *a) { a[0] = nothing; }'
    with pytest.raises(KernelBuildError, match=r'broken\(1\): error: .*"nothing" is undefined'):
        compile_sources({"good": broken.replace("nothing", "0"), "broken": broken})


def _compiled(some: Sequence[CatalogEntry], capability: str) -> dict[str, Any]:
    """Compile kernels, and see that each one fits into the registers."""
    code = {kernel.name: generate_cuda(kernel.build()) for kernel in some}
    compiled = compile_sources({name: cuda.source for name, cuda in code.items()}, capability)
    assert {n: set(kernels) for n, kernels in compiled.items()} == {
        name: set(cuda.kernels) for name, cuda in code.items()
    }
    for name, kernels in compiled.items():
        for resources in kernels.values():
            assert 0 < resources.registers <= 255, name
            assert resources.spill_bytes == 0, name
    return compiled


@needs_nvcc
@pytest.mark.parametrize(
    ("capability", "share"),
    [("9.0", 6), *(pytest.param(c, 1, marks=pytest.mark.nightly) for c in ("7.5", "8.0", "9.0"))],
)
def test_every_kernel_compiles_without_spills(capability: str, share: int) -> None:
    everything = entries(element_type=None, purpose=None)
    assert len(everything) == 318
    tiled = entry("matmul-tiled/square/16x16/f64")
    compiled = _compiled([*{*everything[::share], tiled}], capability)
    assert compiled[tiled.name]["matmul_tiled"].shared_bytes == 2 * 16 * 16 * 8


@needs_nvcc
@pytest.mark.filterwarnings("ignore:.*:loopy.diagnostic.LoopyWarning")
@pytest.mark.parametrize("share", [12, pytest.param(1, marks=pytest.mark.nightly)])
def test_kernels_beyond_the_paper_compile(share: int) -> None:
    """Some of the extended classes, the random shapes and the variants (all 2145 take minutes)."""
    some = [
        *entries(element_type=None, collection="extended")[::3],
        *entries(element_type=None, collection="random")[::24],
        *entries(element_type=None, collection=None, purpose="variant")[::12],
    ][::share]
    assert len(_compiled(some, "9.0")) > 150 // share


def test_a_named_program_wins_and_the_toolkit_is_found_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named, of_toolkit = tmp_path / "my-nvcc", tmp_path / "bin" / "nvcc"
    of_toolkit.parent.mkdir()
    for program in (named, of_toolkit):
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("COUNTPERF_NVCC", str(named))
    assert find_program("nvcc") == named
    monkeypatch.delenv("COUNTPERF_NVCC")
    assert find_program("nvcc") == of_toolkit


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


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, call in (("nvcc", lambda: compile_sass("")), ("nvdisasm", lambda: disassemble(b""))):
        monkeypatch.setenv(f"COUNTPERF_{name.upper()}", "/no/such/program")
        said = f"no {name} found: .*pip install nvidia-cuda-{name}"
        with pytest.raises(DeviceError, match=said):
            call()
