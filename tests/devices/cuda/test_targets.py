"""Loopy's CUDA code: launches, what is shared, atomics; functions with NumPy's numbers."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import loopy as lp
import numpy as np
import pytest
from numpy.typing import NDArray
from pymbolic import var

from countperf.devices.nvcc import find_program
from countperf.devices.targets import GeneratedCode, cuda_functions, generate_cuda, retarget
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
    return run_module(EmulatedModule({"code": code.source}, folder), "code", code, arguments)


def run_module(
    module: EmulatedModule, source: str, code: GeneratedCode, arguments: dict[str, Any]
) -> dict[str, NDArray[Any]]:
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
        lambda kernel, grid, group, values: module.launch(source, kernel, grid, group, values),
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


def test_types_inferred_for_opencl_are_inferred_anew_and_preprocessing_is_refused() -> None:
    typed = lp.infer_unknown_types(unit("out[i] = rsqrt(x[i]) + pow(x[i], 2.5)", "x,out f32 n"))
    source = generate_cuda(typed).source
    assert "powf(" in source
    assert "rsqrtf(" in source
    with pytest.raises(KernelBuildError, match="as it was before"):
        generate_cuda(lp.preprocess_program(typed))
    made = retarget(typed)
    assert retarget(made) is made


TABLE = np.array([0.5, 1.5, 2.5, 3.5], np.float32)


def _table(space: Any) -> Any:
    given: Any = {"initializer": TABLE, "read_only": True, "address_space": space}
    return lp.TemporaryVariable("t", np.float32, shape=(4,), **given)


@pytest.mark.parametrize(
    ("table", "given"),
    [
        (_table(lp.AddressSpace.GLOBAL), {}),
        (_table(lp.AddressSpace.PRIVATE), {}),
        (lp.ConstantArg("t", np.float32, shape=4), {"t": TABLE}),
    ],
    ids=["global", "private", "an argument"],
)
def test_tables_and_constant_arguments(table: Any, given: Any, tmp_path: Path) -> None:
    code = generate_cuda(unit("out[i] = t[i % 4]", "out f32 n", table))
    found = run(code, tmp_path, out=np.zeros(SIZE, np.float32), n=SIZE, **given)
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
    infinite = lp.Assignment(var("out")[i], x[i] + np.float32(np.inf))
    no_number = lp.Assignment(var("more")[i], x[i] + NaN(np.float32))
    code = generate_cuda(unit([infinite, no_number], "x,out,more f32 n"))
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


def _call(name: str, number: int) -> Any:
    return var(name)(*(var(array)[var("i")] for array in "xyz"[:number]))


def _power(exponent: Any) -> Any:
    return var("x")[var("i")] ** exponent


class Case(NamedTuple):
    """An expression in ``x[i]``, ``y[i]``, ``z[i]``, and NumPy's word for it."""

    expression: Any
    dtype: str
    wanted: Any = np.exp
    arity: int = 1
    result: str = ""
    scale: tuple[float, float] = (0.1, 0.9)


def _clamp(x: Any, low: Any, high: Any) -> NDArray[Any]:
    return np.where(x < low, low, np.minimum(x, high))


def _product(x: Any, y: Any, z: Any) -> NDArray[Any]:
    return x * y + z


_UNARY = (
    *("acos", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan", "tanh"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "ceil", "floor"),
    *("trunc", "rint", "round", "fabs", "abs"),
)
_BINARY = ("atan2", "copysign", "fmax", "fmin", "fmod", "hypot", "pow")
FUNCTIONS: dict[str, tuple[Any, int]] = {
    **{name: (getattr(np, name), 1) for name in _UNARY},
    **{name: (getattr(np, name), 2) for name in _BINARY},
    **{"max": (np.maximum, 2), "min": (np.minimum, 2)},
    **{"rsqrt": (lambda x: 1 / np.sqrt(x), 1)},
    **{"fma": (_product, 3), "mad": (_product, 3), "clamp": (_clamp, 3)},
}
POWERS = {
    **{n: (partial(lambda n, x: x.astype(np.float64) ** n, n), 1) for n in (2, 3, 5, 11, -2)},
    0.5: (np.sqrt, 1),
    var("y")[var("i")]: (np.power, 2),
}


@cache
def cases() -> dict[str, Case]:
    found: list[Case] = []
    for dtype in ("float32", "float64"):
        found += [Case(_call(name, how[1]), dtype, *how) for name, how in FUNCTIONS.items()]
        found += [Case(_power(exponent), dtype, *how) for exponent, how in POWERS.items()]
        found.append(Case(_call("acosh", 1), dtype, np.arccosh, scale=(1.1, 3.0)))
        found.append(Case(_call("isnan", 1), dtype, np.isnan, result="int32"))
    for dtype in ("int16", "int32", "int64", "uint32"):
        unsigned, wide = f"u{dtype.removeprefix('u')}", (-90, 90)
        for name in ("max", "min", "clamp"):
            wanted, arity = FUNCTIONS[name]
            found.append(Case(_call(name, arity), dtype, wanted, arity, scale=wide))
        found.append(Case(_call("abs", 1), dtype, np.abs, result=unsigned, scale=wide))
        found.append(Case(_call("isnan", 1), dtype, np.isnan, result="int32"))
        found.append(Case(_power(3), dtype, *POWERS[3], scale=(-9, 9)))
        found.append(Case(_call("sqrt", 1), dtype, np.sqrt, result="float32", scale=(1, 90)))
    return {f"{case.expression}-{case.dtype}": case for case in found}


def _unit(case: Case) -> Any:
    dtype, result = np.dtype(case.dtype), np.dtype(case.result or case.dtype)
    assignment = lp.Assignment(var("out")[var("i")], case.expression)
    arrays = lp.GlobalArg("x,y,z", dtype, shape="n"), lp.GlobalArg("out", result, shape="n")
    options: Any = {"assumptions": "", "name": "function", "split": "i:16"}
    return made("i<n", [assignment], "n i32", *arrays, **options)


@cache
def codes() -> dict[str, GeneratedCode]:
    return {name: generate_cuda(_unit(case)) for name, case in cases().items()}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> EmulatedModule:
    if COMPILER is None:
        pytest.skip("no g++")
    sources = {name: code.source for name, code in codes().items()}
    return EmulatedModule(sources, tmp_path_factory.mktemp("functions"))


@pytest.mark.parametrize("name", cases())
def test_the_numbers_are_numpys(name: str, module: EmulatedModule) -> None:
    case = cases()[name]
    dtype = np.dtype(case.dtype)
    random = np.random.default_rng(3)
    low, high = case.scale
    if dtype.kind == "u":
        low = max(low, 0)
    inputs = {array: random.uniform(low, high, SIZE).astype(dtype) for array in "xyz"}
    if case.result == "int32" and dtype.kind == "f":
        inputs["x"][::3] = np.nan
    result = np.dtype(case.result or dtype)
    arguments = {**inputs, "out": np.zeros(SIZE, result), "n": SIZE}
    got = run_module(module, name, codes()[name], arguments)["out"]
    wanted = case.wanted(*(inputs[array] for array in "xyz"[: case.arity]))
    if result.kind == "f":
        tolerance = 64 * np.finfo(result).eps
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got, wanted.astype(result))


@pytest.mark.skipif(find_program("nvcc") is None, reason="no nvcc (the extra 'nvcc')")
def test_nvcc_takes_all_of_them() -> None:
    found = compile_sources({name: code.source for name, code in codes().items()}, "7.5")
    assert all(resources.keys() == {"function"} for resources in found.values())


_NOT_IN_NUMPY = ("erf", "erfc", "exp10", "lgamma", "tgamma")


def test_every_function_is_tried() -> None:
    tried = {str(case.expression).partition("(")[0] for case in cases().values()}
    assert set(cuda_functions()) - tried == set(_NOT_IN_NUMPY)


@pytest.mark.parametrize("name", _NOT_IN_NUMPY)
@pytest.mark.parametrize(("dtype", "suffix"), [("float32", "f"), ("float64", "")])
def test_functions_that_numpy_has_not(name: str, dtype: str, suffix: str) -> None:
    assert f"{name}{suffix}(x[" in generate_cuda(_unit(Case(_call(name, 1), dtype))).source


@pytest.mark.parametrize(
    ("expression", "dtype", "said"),
    [
        (_call("fmax", 3), "float32", "takes 2 argument"),
        (_call("hypot", 2), "int32", "does not support type int32"),
        (_call("max", 2), "bool", "does not support type bool"),
    ],
)
def test_what_is_refused(expression: Any, dtype: str, said: str) -> None:
    with pytest.raises(KernelBuildError, match=said):
        generate_cuda(_unit(Case(expression, dtype)))
