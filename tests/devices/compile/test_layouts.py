"""Compiled code of kernels with offsets, strides and split axes: read without asking for more."""

from __future__ import annotations

import pytest

from countperf.devices.compile.compiled_kernel import CompiledKernel, read_compiled
from countperf.devices.device import Device
from countperf.machine_code.tools import find_analyzer, find_objdump
from tests.devices.layout_kernels import LAID

pytestmark = pytest.mark.skipif(
    find_objdump() is None or find_analyzer() is None, reason="no objdump or no llvm-mca"
)
NAMES = [
    *("large offset", "offset by name", "automatic offset", "backwards"),
    *("pitch by name", "automatic strides", "split", "unknown shapes"),
]


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
