"""CUDA code of a sixth of the catalogue, and of arrays with odd layouts, run on the host."""

from __future__ import annotations

from typing import Any

import pytest

from countperf.devices.cuda import CudaBackend
from countperf.measuring.runner import KernelRunner
from measurement_kernels.catalog import entries
from tests.devices.cuda.emulator import COMPILER
from tests.devices.cuda.fake_cupy import compiled_at_once
from tests.devices.layout_kernels import LAID

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++")
CHECKED = entries(element_type=None, purpose=None)[::6]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> KernelRunner:
    """Return a runner of the CUDA backend for which all kernels are compiled already."""
    units = {entry.name: entry.build() for entry in CHECKED}
    cupy = compiled_at_once(units, tmp_path_factory.mktemp("numbers"))
    (device,) = CudaBackend(cupy.driver).discover().devices
    return KernelRunner.open(device)


def test_every_kernel_computes_what_its_reference_says(runner: KernelRunner) -> None:
    for entry in CHECKED:
        exponent = entry.exponents[0] + entry.exponent_steps[0]
        runner.check(entry.case(exponent))


NAMES = [name for name in LAID if "vectors" not in name]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Any:
    # the fake's memory tells if something is written outside of a buffer
    cupy = compiled_at_once(
        {name: LAID[name].build() for name in NAMES}, tmp_path_factory.mktemp("layouts")
    )
    (device,) = CudaBackend(lambda: cupy.driver()).discover().devices
    return KernelRunner.open(device).session


@pytest.mark.parametrize("name", NAMES)
def test_every_element_is_written_in_its_place_and_nothing_else(session: Any, name: str) -> None:
    LAID[name].assert_doubled(session)
