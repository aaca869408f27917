"""Arrays with offsets, strides and split axes on the CUDA backend, run on the host."""

from __future__ import annotations

from typing import Any

import pytest

from countperf.devices.cuda import CudaBackend
from countperf.measuring.runner import KernelRunner
from tests.devices.cuda.emulator import COMPILER
from tests.devices.cuda.fake_cupy import compiled_at_once
from tests.devices.layout_kernels import LAID

NAMES = [name for name in LAID if "vectors" not in name]
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++")


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
