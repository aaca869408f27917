"""Compiled code of kernels with offsets, strides and split axes: read without asking for more."""

from __future__ import annotations

from functools import cache

import pytest

from countperf.errors import DeviceError
from countperf.harness.compile.build import POCL
from countperf.harness.compile.compiled_kernel import CompiledKernel, read_compiled
from countperf.harness.device import Device
from countperf.harness.devices import find_device
from countperf.machine_code.object_file import find_objdump
from countperf.machine_code.throughput import find_analyzer
from tests.harness.layout_kernels import LAID

pytestmark = [
    pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed"),
    pytest.mark.skipif(find_analyzer() is None, reason="llvm-mca is not installed"),
]

NAMES = [
    "plain",
    "offset of the output",
    "large offset",
    "offset by name",
    "automatic offset",
    "backwards",
    "pitch by name",
    "automatic strides",
    "split",
    "unknown shapes",
]


@pytest.fixture
def pocl() -> Device:
    try:
        found = find_device("pocl:0")
    except DeviceError as error:
        pytest.skip(str(error))
    assert found.identity.platform == POCL
    return found


@cache
def _read(device: Device) -> dict[str, CompiledKernel]:
    units = [(LAID[name].build(), LAID[name].sizes) for name in NAMES]
    found: dict[str, CompiledKernel] = {}
    for name, each in zip(NAMES, read_compiled(units, device), strict=True):
        assert isinstance(each, CompiledKernel), f"{name}: {each}"
        found[name] = each
    return found


@pytest.mark.parametrize("name", NAMES)
def test_code_is_followed_at_sizes_alone(pocl: Device, name: str) -> None:
    laid = LAID[name]

    found = _read(pocl)[name].counts(laid.sizes)

    assert found["code.all"] > 0


def test_scalars_that_need_not_be_given_are_as_in_a_launch(pocl: Device) -> None:
    kernels = _read(pocl)

    offsets = kernels["automatic offset"].host.kernel.numbers({"n": 100})
    strides = kernels["automatic strides"].host.kernel.numbers({"n": 10, "m": 7})

    assert offsets == {"n": 100, "x_offset": 0, "z_offset": 0}
    assert strides == {"n": 10, "m": 7, "z_stride0": 7, "z_stride1": 1}
    assert (
        kernels["automatic offset"].host.kernel.numbers({"n": 100, "x_offset": 3})["x_offset"] == 3
    )
