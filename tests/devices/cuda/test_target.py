"""Loopy's CUDA code: several launches, what is shared, what is constant, atomics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest
from numpy.typing import NDArray
from pymbolic import var

from countperf.devices.nvcc import find_program
from countperf.devices.targets import GeneratedCode, generate_cuda, retarget
from countperf.errors import KernelBuildError
from tests.devices.cuda.emulator import COMPILER, EmulatedModule, Memory
from tests.devices.loopy_cases import two_launches
from tests.devices.nvcc_batches import compile_sources
from tests.kernels import made

GROUP = 16
SIZE = 64


def run(code: GeneratedCode, folder: Path, **arguments: Any) -> dict[str, NDArray[Any]]:
    """Run on the host and return the arrays as they are afterwards."""
    if COMPILER is None:
        pytest.skip("no g++")
    module = EmulatedModule({"code": code.source}, folder)
    memory: dict[str, Memory] = {}
    shared: list[Memory] = []
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            memory[name] = Memory(value.nbytes)
            memory[name].content[:] = value.view(np.uint8)

    def allocate(size: int) -> np.uint64:
        shared.append(Memory(size))
        return np.uint64(shared[-1].address)

    given = {name: np.uint64(each.address) for name, each in memory.items()}
    code.host(
        lambda kernel, grid, group, values: module.launch("code", kernel, grid, group, values),
        allocate,
        **{**arguments, **given},
    )
    assert all(each.is_intact for each in (*memory.values(), *shared))
    return {name: each.content.view(arguments[name].dtype).copy() for name, each in memory.items()}


def unit(body: Any, arguments: str, *more: Any) -> Any:
    return made("i<n", body, f"{arguments}; n i32", *more, assumptions="", split=f"i:{GROUP}")


def vector(size: int = SIZE) -> NDArray[Any]:
    return np.random.default_rng(1).random(size, dtype=np.float32)


def test_every_launch_is_generated_and_shares_the_temporary(tmp_path: Path) -> None:
    code = generate_cuda(two_launches())
    a = vector()
    found = run(code, tmp_path, a=a, out=np.zeros_like(a), n=SIZE)
    assert code.kernels == ("two_launches", "two_launches_0")
    np.testing.assert_array_equal(found["out"], a[::-1] + 1)


def test_types_inferred_for_opencl_are_inferred_anew() -> None:
    made = unit("out[i] = rsqrt(x[i]) + pow(x[i], y[i])", "x,y,out f32 n")
    made = lp.infer_unknown_types(made)
    source = generate_cuda(made).source
    assert "powf(" in source
    assert "rsqrtf(" in source


def test_what_is_preprocessed_for_opencl_is_refused() -> None:
    made = unit("out[i] = 1", "out f32 n")
    with pytest.raises(KernelBuildError, match="as it was before"):
        generate_cuda(lp.preprocess_program(made))


def test_a_unit_for_cuda_stays_as_it_is() -> None:
    made = retarget(two_launches())
    assert retarget(made) is made


TABLE = np.array([0.5, 1.5, 2.5, 3.5], np.float32)


@pytest.mark.parametrize("space", [lp.AddressSpace.GLOBAL, lp.AddressSpace.PRIVATE])
def test_tables_in_the_kernel(space: Any, tmp_path: Path) -> None:
    table = lp.TemporaryVariable(
        "t", np.float32, shape=(4,), initializer=TABLE, read_only=True, address_space=space
    )
    made = unit("out[i] = t[i % 4]", "out f32 n", table)
    found = run(generate_cuda(made), tmp_path, out=np.zeros(SIZE, np.float32), n=SIZE)
    np.testing.assert_array_equal(found["out"], np.tile(TABLE, SIZE // 4))


def test_constant_arguments(tmp_path: Path) -> None:
    table = lp.ConstantArg("t", np.float32, shape=4)
    code = generate_cuda(unit("out[i] = t[i % 4]", "out f32 n", table))
    found = run(code, tmp_path, out=np.zeros(SIZE, np.float32), t=TABLE, n=SIZE)
    np.testing.assert_array_equal(found["out"], np.tile(TABLE, SIZE // 4))


@pytest.mark.parametrize(
    ("dtype", "kind"), [(np.float32, "f32"), (np.float64, "f64"), (np.int32, "i32")]
)
@pytest.mark.parametrize("operator", ["+", "*"])
def test_atomics(dtype: Any, kind: str, operator: str, tmp_path: Path) -> None:
    out = lp.GlobalArg("out", dtype, shape="3", for_atomic=True)
    body = f"out[i % 3] = out[i % 3] {operator} x[i] {{atomic}}"
    code = generate_cuda(unit(body, f"x {kind} n", out))
    if find_program("nvcc") is not None:
        assert compile_sources({"atomic": code.source})["atomic"].keys() == set(code.kernels)
    if operator == "+":
        x = np.arange(SIZE, dtype=dtype)
        found = run(code, tmp_path, x=x, out=np.zeros(3, dtype), n=SIZE)
        np.testing.assert_array_equal(found["out"], [x[k::3].sum() for k in range(3)])


def test_infinity_and_nan_have_names_for_nvrtc(tmp_path: Path) -> None:
    from pymbolic.primitives import NaN

    x, i = var("x"), var("i")
    made = unit(
        [
            lp.Assignment(var("out")[i], x[i] + np.float32(np.inf)),
            lp.Assignment(var("more")[i], x[i] + NaN(np.float32)),
        ],
        "x,out,more f32 n",
    )
    code = generate_cuda(made)
    zeros = np.zeros(SIZE, np.float32)
    found = run(code, tmp_path, x=vector(), out=zeros, more=zeros, n=SIZE)
    assert "#define INFINITY" in code.source
    assert np.isposinf(found["out"]).all()
    assert np.isnan(found["more"]).all()


@pytest.mark.skipif(COMPILER is None, reason="no g++")
def test_the_emulator_sees_writes_outside_and_barriers_that_not_all_reach(tmp_path: Path) -> None:
    head = 'extern "C" __global__ void'
    source = f"{head} half(int n) {{ if (threadIdx.x < n) __syncthreads(); }}"
    source += f"{head} write(float *a, int n) {{ a[n] = 1; }}"
    module, memory = EmulatedModule({"code": source}, tmp_path), Memory(16)
    for n, is_intact in ((3, True), (4, False)):
        module.launch("code", "write", (1,), (1,), [np.uint64(memory.address), np.int32(n)])
        assert memory.is_intact == is_intact
    module.launch("code", "half", (1,), (4,), [np.int32(4)])
    with pytest.raises(AssertionError, match="not all work items"):
        module.launch("code", "half", (1,), (4,), [np.int32(2)])
