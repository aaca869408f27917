"""Arrays with offsets, strides and split axes on the CUDA backend, run on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from countperf.harness.binding import bind_arguments
from countperf.harness.cuda.backend import CudaBackend
from countperf.harness.runner import KernelRunner
from tests.harness.cuda.emulator import COMPILER
from tests.harness.cuda.fake_cupy import FakeCupy, FakeNvml
from tests.harness.layout_kernels import LAID

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++")


@pytest.mark.parametrize("name", [name for name in LAID if "vectors" not in name])
def test_every_element_is_written_in_its_place_and_nothing_else(tmp_path: Path, name: str) -> None:
    laid = LAID[name]
    cupy = FakeCupy(tmp_path)
    (device,) = CudaBackend(lambda: cupy.driver(FakeNvml())).discover().devices
    session = KernelRunner.open(device).session
    kernel = session.build_kernel(laid.build())
    random = np.random.default_rng(5)
    given = np.asarray(random.random(laid.shape), kernel.arrays[0].dtype, order=laid.order)

    bound = bind_arguments(session, kernel, laid.sizes, {"x": given, **laid.given})
    kernel.launch(bound.arguments)
    session.finish()  # which fails if something is written outside of a buffer

    np.testing.assert_array_equal(bound.read("z"), 2 * given)
    wanted: dict[str, dict[int, Any]] = {}
    for index in np.ndindex(laid.shape):
        buffer, element = laid.places(*index)
        wanted.setdefault(buffer, {})[element] = 2 * given[index]
    for buffer, elements in wanted.items():
        count = bound.bindings.placements[buffer].count
        flat = session.download(bound.arguments[buffer], given.dtype, count)
        expected = np.zeros_like(flat)
        expected[list(elements)] = list(elements.values())
        np.testing.assert_array_equal(flat, expected)
