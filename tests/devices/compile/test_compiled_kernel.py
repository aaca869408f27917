"""Loops whose trip counts are data, and compiled code of arrays with odd layouts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from countperf.devices.compile.compiled_kernel import (
    CompiledKernel,
    contents_for,
    data_loops_of,
    read_compiled,
)
from countperf.devices.device import Device
from countperf.errors import CountingError
from countperf.machine_code.tools import find_analyzer, find_objdump
from tests.devices.layout_kernels import LAID
from tests.kernels import made

MEANS = (Fraction(3), Fraction(5, 2), Fraction(1, 3), Fraction(0))


def kernel(domain: str, bounds: str) -> Any:
    body = f"for i\n{bounds}\nout[i] = sum(j, a[j])\nend"
    arguments = "a f32 q; out f32 n; first,second i64 n+2; table i64 n,2; n,q i32"
    return made(["i<n", domain], body, arguments, assumptions="").default_entrypoint


CASES = {
    "lengths": ("{[j]: 0<=j<m}", "<> m = first[i]", lambda a, i: a["first"](i)),
    "lengths and one more": ("{[j]: 0<=j<=m}", "<> m = first[i]", lambda a, i: a["first"](i) + 1),
    "one more than lengths": (
        *("{[j]: 0<=j<m}", "<> m = first[i] + 1"),
        lambda a, i: a["first"](i) + 1,
    ),
    "row pointers": (
        *("{[j]: s<=j<e}", "<> s = first[i]\n<> e = first[i+1]"),
        lambda a, i: a["first"](i + 1) - a["first"](i),
    ),
    "a difference": (
        *("{[j]: 0<=j<m}", "<> m = first[i+2] - first[i]"),
        lambda a, i: a["first"](i + 2) - a["first"](i),
    ),
    "begin and end": (
        *("{[j]: s<=j<e}", "<> s = first[i]\n<> e = second[i]"),
        lambda a, i: a["second"](i) - a["first"](i),
    ),
}


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("name", CASES)
def test_contents_have_the_mean(name: str, mean: Fraction) -> None:
    domain, bounds, trips = CASES[name]
    if "one more" in name:
        mean += 1
    loops = data_loops_of(kernel(domain, bounds))
    assert [loop.iname for loop in loops] == ["j"]
    arrays = {name: data.value for name, data in contents_for(loops, {"j": mean}).items()}
    rows = 60
    counted = [trips(arrays, row) for row in range(rows)]
    assert all(mean - 1 <= count <= mean + 1 for count in counted)
    assert abs(Fraction(sum(counted), rows) - mean) <= Fraction(1, rows)


def test_other_bounds_are_refused() -> None:
    loops = data_loops_of(kernel("{[j]: 0<=j<m}", "<> m = table[i,0]*table[i,1]"))
    with pytest.raises(CountingError, match="'j', m, is neither an element"):
        contents_for(loops, {"j": 4})
    with pytest.raises(CountingError, match=r"statistics={'j': 12.5}"):
        contents_for(loops, {})


def test_loops_that_sizes_bound_are_no_data() -> None:
    assert data_loops_of(kernel("{[j]: 0<=j<q}", "")) == ()


NAMES = [
    *("large offset", "offset by name", "automatic offset", "backwards"),
    *("pitch by name", "automatic strides", "split", "unknown shapes"),
]


@pytest.mark.skipif(
    find_objdump() is None or find_analyzer() is None, reason="no objdump or no llvm-mca"
)
def test_code_is_followed_at_sizes_alone(pocl: Device) -> None:
    units = [(LAID[name].build(), LAID[name].sizes) for name in NAMES]
    kernels = dict(zip(NAMES, read_compiled(units, pocl), strict=True))
    for name, kernel in kernels.items():
        assert isinstance(kernel, CompiledKernel), f"{name}: {kernel}"
        assert kernel.counts(LAID[name].sizes)["code.all"] > 0

    def numbers(name: str, **sizes: int) -> dict[str, int]:
        kernel = kernels[name]
        assert isinstance(kernel, CompiledKernel)
        return kernel.host.kernel.numbers(sizes)

    # scalars that need not be given are as in a launch
    assert numbers("automatic offset", n=100) == {"n": 100, "x_offset": 0, "z_offset": 0}
    assert numbers("automatic offset", n=100, x_offset=3)["x_offset"] == 3
    strides = {"n": 10, "m": 7, "z_stride0": 7, "z_stride1": 1}
    assert numbers("automatic strides", n=10, m=7) == strides
