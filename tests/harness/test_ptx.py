"""PTX of Loopy kernels: its instructions against those that are counted in Loopy."""

from __future__ import annotations

from typing import Any

import pytest

from countperf.errors import DeviceError, KernelBuildError, ModelNotApplicableError
from countperf.hardware.library import load_device
from countperf.harness.nvcc import find_nvcc
from countperf.harness.profiles import profile_kernel
from countperf.harness.ptx import compile_ptx, profile_from_ptx
from measurement_kernels import catalog
from tests.counting import profiled

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc (the extra 'nvcc')")
H200 = load_device("nvidia-h200")
INTEGERS = ("i32", "i64")


def _without_addresses(alpha: Any) -> dict[str, float]:
    return {name: n for name, n in alpha.items() if not name.endswith(INTEGERS)}


@needs_nvcc
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("matmul-tiled/square/16x16", {"n": 64, "m": 128, "l": 64}),
        ("matmul-skinny/16x16", {"n": 64, "m": 128, "l": 64}),
        ("transpose/tiled/16x16", {"n": 64, "m": 64}),
        ("transpose/stride1-reads/16x16", {"n": 64, "m": 64}),
    ],
)
def test_instructions_of_ptx_are_those_that_are_counted(name: str, sizes: dict[str, int]) -> None:
    unit: Any = catalog.entry(name).builder()

    compiled = profile_from_ptx(unit, H200, sizes, registers_per_work_item=32).profile
    counted = profile_kernel(unit, H200, registers_per_work_item=32).at(sizes).profile

    assert _without_addresses(compiled.alpha) == dict(counted.alpha)
    assert any(name.endswith(INTEGERS) for name in compiled.alpha)


@needs_nvcc
def test_the_compiler_reads_a_point_once_that_the_source_reads_often() -> None:
    unit: Any = catalog.entry("n-body").builder()

    compiled = profile_from_ptx(unit, H200, {"n": 512}, registers_per_work_item=32).profile
    counted = profile_kernel(unit, H200, registers_per_work_item=32).at({"n": 512}).profile

    same = ("fma.f32", "add.f32", "special.f32.rsqrt", "load.local.32", "barrier")
    assert {name: compiled.alpha[name] for name in same} == {
        name: counted.alpha[name] for name in same
    }
    assert compiled.alpha["load.global.32.x3"] == 3 + 6  # its own point, and two blocks
    assert counted.alpha["load.global.32.x3"] == 3 * 512 + 6


@needs_nvcc
def test_dependencies_of_saxpy() -> None:
    graph = profile_from_ptx(
        profiled.saxpy(), H200, {"n": 128}, registers_per_work_item=16
    ).profile.idg

    assert graph is not None
    numbers = [k for k, name in enumerate(graph.nodes) if not name.endswith(INTEGERS)]
    assert [graph.nodes[k] for k in numbers] == [
        "load.global.32",
        "load.global.32",
        "fma.f32",
        "store.global.32",
    ]
    kept = [(numbers.index(i), numbers.index(j)) for i, j in graph.edges if {i, j} <= set(numbers)]
    assert kept == [(0, 2), (1, 2), (2, 3)]


@needs_nvcc
def test_code_that_does_not_compile_is_refused() -> None:
    with pytest.raises(KernelBuildError, match="nvcc for sm_90"):
        compile_ptx("__global__ void broken( {")


def test_a_device_without_ptx_is_refused() -> None:
    with pytest.raises(ModelNotApplicableError, match="no compute capability"):
        profile_from_ptx(profiled.saxpy(), load_device("pocl-epyc-zen5"), {"n": 64})


def test_without_nvcc_there_is_no_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTPERF_NVCC", "/no/such/nvcc")

    with pytest.raises(DeviceError, match="no nvcc found"):
        compile_ptx("")
