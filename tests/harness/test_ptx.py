"""PTX of Loopy kernels: its instructions against those that are counted in Loopy."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.errors import DeviceError, KernelBuildError
from countperf.hardware.parameters import load_device
from countperf.harness.compile.ptx import profile_kernel, with_machine_code
from countperf.harness.nvcc import find_nvcc
from countperf.harness.ptx import compile_ptx
from countperf.mechanistic.profile import KernelProfile
from measurement_kernels import catalog
from tests.counting import profiled
from tests.made import LINE, make

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc (the extra 'nvcc')")
H200 = load_device("nvidia-h200")
INTEGERS = ("i32", "i64")


def _compiled(unit: Any, sizes: dict[str, int], registers: int = 32) -> KernelProfile:
    profiler = profile_kernel(unit, H200, registers_per_work_item=registers)
    return with_machine_code(profiler, unit, "ptx").at(sizes).profile


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

    compiled = _compiled(unit, sizes)
    counted = profile_kernel(unit, H200, registers_per_work_item=32).at(sizes).profile

    assert _without_addresses(compiled.alpha) == dict(counted.alpha)
    assert any(name.endswith(INTEGERS) for name in compiled.alpha)


@needs_nvcc
def test_the_compiler_reads_a_point_once_that_the_source_reads_often() -> None:
    unit: Any = catalog.entry("n-body").builder()

    compiled = _compiled(unit, {"n": 512})
    counted = profile_kernel(unit, H200, registers_per_work_item=32).at({"n": 512}).profile

    same = ("fma.f32", "add.f32", "special.f32.rsqrt", "load.local.32", "barrier")
    assert {name: compiled.alpha[name] for name in same} == {
        name: counted.alpha[name] for name in same
    }
    assert compiled.alpha["load.global.32.x3"] == 3 + 6  # its own point, and two blocks
    assert counted.alpha["load.global.32.x3"] == 3 * 512 + 6


@needs_nvcc
def test_dependencies_of_saxpy() -> None:
    graph = _compiled(profiled.saxpy(), {"n": 128}, 16).idg

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
def test_a_loop_that_is_entered_only_if_its_size_is_positive() -> None:
    # nvcc guards the loop by a forward branch that is taken: n multiply-adds for each item
    unit: Any = catalog.entry("matmul-naive/16x16/f32").build()
    alpha = _compiled(unit, {"n": 64, "m": 2000, "l": 64}).alpha

    assert alpha["fma.f32"] == 2000
    assert sum(n for name, n in alpha.items() if name.startswith("load.global")) == 2 * 2000


@needs_nvcc
@pytest.mark.parametrize(
    ("function", "kind", "name", "fewest"),
    [("log", np.float64, "fma.f64", 16), ("sin", np.float32, "fma.f32", 5)],
)
def test_functions_take_the_way_of_normal_numbers(
    function: str, kind: Any, name: str, fewest: int
) -> None:
    # of log's 17 multiply-adds, one is for infinities; sin's slow reduction has a loop
    arrays = lp.GlobalArg("x, z", kind, shape="n")
    unit = make(LINE, f"z[i] = {function}(x[i])", "n:i4", arrays, group=64)
    alpha = _compiled(unit, {"n": 4096}).alpha

    assert alpha[name] >= fewest
    assert sum(n for key, n in alpha.items() if key.startswith("load.")) == 1


@needs_nvcc
def test_code_that_does_not_compile_and_a_missing_nvcc_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(KernelBuildError, match="nvcc for sm_90"):
        compile_ptx("__global__ void broken( {")
    monkeypatch.setenv("COUNTPERF_NVCC", "/no/such/nvcc")
    with pytest.raises(DeviceError, match="no nvcc found"):
        compile_ptx("")
