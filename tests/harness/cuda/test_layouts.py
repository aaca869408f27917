"""Arrays with offsets, strides and split axes on the CUDA backend, run on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.harness.cuda.backend import CudaBackend
from countperf.harness.runner import KernelRunner
from tests.harness.cuda.emulator import COMPILER
from tests.harness.cuda.fake_cupy import FakeCupy, FakeNvml
from tests.harness.layout_kernels import LAID


@pytest.mark.skipif(COMPILER is None, reason="no g++")
@pytest.mark.parametrize("name", [name for name in LAID if "vectors" not in name])
def test_every_element_is_written_in_its_place_and_nothing_else(tmp_path: Path, name: str) -> None:
    cupy = FakeCupy(tmp_path)  # whose memory tells if something is written outside of a buffer
    (device,) = CudaBackend(lambda: cupy.driver(FakeNvml())).discover().devices

    LAID[name].assert_doubled(KernelRunner.open(device).session)
