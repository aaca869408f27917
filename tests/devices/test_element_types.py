"""Types of elements: those that devices run, and those for which Loopy generates no code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest
from loopy.symbolic import TypeCast
from pymbolic.primitives import Variable

from countperf.counting.count_properties import count_kernel
from countperf.counting.frontend.schedule import generate_code
from countperf.devices.device import Device
from countperf.devices.opencl import OpenCLSession
from countperf.errors import CountingError, KernelBuildError, UnsupportedExpressionError
from countperf.measuring import KernelCase
from countperf.measuring.runner import KernelRunner
from tests.kernels import made
from tests.oracles import llvm_ir, oclgrind

pytestmark = pytest.mark.filterwarnings("ignore")  # of Loopy, on structures of one size

STRUCTURE = np.dtype([("first", np.float32), ("second", np.int32)])
UNKNOWN: Mapping[str, tuple[Any, str]] = {
    "long double": (np.longdouble, "declare them as np.float64"),
    "complex long double": (np.clongdouble, "declare them as np.complex128"),
    "bytes": (np.dtype("S5"), "pass numbers"),
    "text": (np.dtype("U5"), "pass numbers"),
    "dates": (np.dtype("datetime64[s]"), "pass numbers"),
    "a structure": (STRUCTURE, "members of the structure in arrays of their own"),
}


def _kernel(dtype: Any, text: Any = "z[i] = a[i]") -> Any:
    arrays = lp.GlobalArg("a,z", dtype, shape="n")
    return made("i<n", [text], "n i32", arrays, name="copy", split="i:16")


@pytest.mark.parametrize("name", UNKNOWN)
def test_types_without_a_name_are_refused_with_one_that_has_it(name: str) -> None:
    dtype, mend = UNKNOWN[name]
    with pytest.raises(CountingError, match=r"no code for elements of type.*\('a', 'z'\)") as said:
        count_kernel(_kernel(dtype))
    assert mend in str(said.value)


@pytest.mark.device
def test_types_without_a_name_are_not_built(device: Device) -> None:
    with pytest.raises(KernelBuildError, match="no code for elements of type"):
        OpenCLSession(device).build_kernel(_kernel(STRUCTURE))


def test_arithmetic_of_long_doubles_is_refused() -> None:
    i = Variable("i")
    wide = TypeCast(np.dtype(np.longdouble), Variable("a")[i])
    kernel = _kernel(np.float64, lp.Assignment("z[i]", wide * wide))
    with pytest.raises(UnsupportedExpressionError, match=r"float128; compute in np\.float64"):
        count_kernel(kernel)


@pytest.mark.device
@pytest.mark.parametrize(
    "dtype", [np.dtype(kind).type for kind in ["?", "b", "B", "h", "H", "I", "L", "F", "D"]]
)
def test_other_types_run(device: Device, dtype: Any) -> None:
    text = "z[i] = a[i]" if dtype is np.bool_ else "z[i] = a[i] + a[i]"

    _check(device, dtype, text, lambda a: a if dtype is np.bool_ else (a + a).astype(dtype))


def _check(device: Device, dtype: Any, text: str, wanted: Callable[[Any], Any]) -> None:
    reference: Any = lambda inputs, _: {"z": wanted(inputs["a"])}  # noqa: E731
    kernel = _kernel(dtype, text)
    case = KernelCase(name="any", kernel=kernel, parameters={"n": 37}, reference=reference)
    KernelRunner.open(device).check(case)


@pytest.mark.device
def test_half_precision_runs_or_the_device_is_said_to_lack_it(device: Device) -> None:
    has_halfs = "cl_khr_fp16" in device.handle.extensions.split()
    said = r"cl_khr_fp16.*declare np\.float16 as"
    with nullcontext() if has_halfs else pytest.raises(KernelBuildError, match=said):
        _check(device, np.float16, "z[i] = a[i]*a[i] + a[i]", lambda a: a * a + a)


def test_half_precision_is_enabled_in_code() -> None:
    code = generate_code(_kernel(np.float16)).device_code()
    assert "#pragma OPENCL EXTENSION cl_khr_fp16 : enable" in code
    assert "__global half const *__restrict__ a" in code
    assert "cl_khr_fp16" not in generate_code(_kernel(np.float32)).device_code()


@pytest.mark.oclgrind
@pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed")
@pytest.mark.skipif(not llvm_ir.is_available(), reason="there is no opt of LLVM 14")
def test_counts_of_half_precision_are_those_of_llvm_code(tmp_path: Path) -> None:
    # Oclgrind does not compute in half precision, but has the code, which has no loop
    kernel = _kernel(np.float16, "z[i] = a[i]*a[i] + a[i]")
    with pytest.raises(AssertionError, match="Unsupported float size: 2 bytes"):
        oclgrind.run(kernel, {"n": 37}, tmp_path, passes=("-passes=verify",))
    code = (tmp_path / "kernel.ll").read_text()
    counts = count_kernel(kernel).evaluate(n=37)
    for name, instruction in (
        ("flop.mul.f16", "fmul half"),
        ("flop.add.f16", "fadd half"),
        ("gmem.load.16.stride1", "load half, half addrspace"),
        ("gmem.store.16.stride1", "store half %"),
    ):
        assert counts[name] == 37 * code.count(instruction) > 0
