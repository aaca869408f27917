"""Regions of PTX, against the instructions that a work item executes."""

from __future__ import annotations

from collections import Counter

import pytest

from countperf.harness.compile.ptx import compile_with_nvcc
from countperf.harness.nvcc import find_nvcc
from measurement_kernels import catalog
from tests.harness.loopy_cases import row_sums, two_launches

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc (the extra 'nvcc')")


@needs_nvcc
def test_loops_and_instructions_of_a_tiled_product() -> None:
    code = compile_with_nvcc(catalog.entry("matmul-tiled/square/16x16").build())["matmul_tiled"]

    # tiles in a loop, elements of a tile in a loop within
    assert [region.name for region in code.regions] == ["body", "1", "1.1"]
    inner = Counter(code.regions[2].counts)
    assert (inner["flop.fma.f32.1"], inner["load.shared.32"]) == (1, 0)
    assert inner["load.local.32"] == 2
    assert code.regions[1].counts["barrier"] == 2
    assert code.registers is not None
    assert code.registers > 8
    assert code.spill_bytes == 0
    assert code.shares().packed == 0


@needs_nvcc
def test_each_launch_has_its_code() -> None:
    assert list(compile_with_nvcc(two_launches(), "8.0")) == ["two_launches", "two_launches_0"]


@needs_nvcc
def test_arithmetic_of_a_loop_is_that_of_the_source() -> None:
    body, loop = compile_with_nvcc(row_sums())["row_sums"].regions

    assert (loop.name, loop.is_innermost, body.is_innermost) == ("1", True, False)
    assert loop.counts["flop.fma.f32.1"] == loop.counts["load.global.32"] == 1
    assert body.counts["store.global.32"] == 1
