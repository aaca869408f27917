"""The structure of kernels against an interpreter that records what each work item does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import loopy as lp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.counting.access_analysis import lines_moved
from countperf.counting.analysis import analyze_kernel
from countperf.errors import CountperfError
from measurement_kernels.catalog import entry
from tests.counting import applications, structure_kernels
from tests.counting.random_kernels import DISTINCT
from tests.counting.structure import (
    conflict_mistakes,
    footprint_mistakes,
    slot_mistakes,
    step_mistakes,
    stride_mistakes,
    transaction_mistakes,
)
from tests.oracles.interpreter import NotInterpretedError
from tests.oracles.lanes import LaneRecorder
from tests.strategies import LOOPY_REFUSALS, KernelCase, generated, kernels, staged_tiles

EXAMPLES = DISTINCT * 3 // 5
LINES = ((16, 4), (32, 8), (128, 32), (12, 3))
"""Bytes of a line, and items of a sub-group."""

BANKS = ((4, 4, 4), (8, 4, 8), (32, 4, 32), (3, 2, 5), (4, 8, 16))
"""Banks, bytes of a word, and items of a sub-group."""


def mistakes_at(analysis: Any, recorder: LaneRecorder, sizes: Mapping[str, int]) -> list[str]:
    """Compare everything at given sizes."""
    recorded = recorder.record(sizes)
    found, _ = stride_mistakes(analysis, recorded, sizes)
    found += step_mistakes(analysis, recorder, sizes)
    found += slot_mistakes(analysis, recorded, sizes)
    found += footprint_mistakes(analysis, recorded, sizes)
    for line_bytes, size in LINES:
        found += transaction_mistakes(
            analysis, recorded, sizes, line_bytes=line_bytes, sub_group_size=size
        )
    for banks, width, size in BANKS:
        found += conflict_mistakes(
            analysis, recorded, sizes, banks=banks, width=width, sub_group_size=size
        )
    return found


@pytest.mark.parametrize(
    ("build", "sizes"),
    [
        (partial(structure_kernels.tiled_matmul, 2), [{"n": 2}, {"n": 6}]),
        (partial(structure_kernels.register_blocked_matmul, 2), [{"n": 8}]),
        (partial(structure_kernels.stencil, 4), [{"n": 4}, {"n": 12}]),
        (partial(structure_kernels.transpose, 4), [{"m": 3}]),
        (partial(structure_kernels.transpose, 4, 1), [{"m": 3}]),
        (structure_kernels.naive_transpose, [{"n": 9, "m": 8}, {"n": 16, "m": 19}]),
        (structure_kernels.tiled_layout, [{"n": 8}, {"n": 20}]),
        (structure_kernels.late_loops, [{"n": 8}, {"n": 13}]),
        (structure_kernels.guarded, [{"n": 8, "m": 3}, {"n": 11, "m": 5}]),
        (structure_kernels.small_elements, [{"n": 1}, {"n": 7}]),
        (applications.trmm, [{"n": 9, "m": 6}, {"n": 12, "m": 7}]),
        (applications.syrk, [{"n": 9, "m": 3}]),
        (applications.conv2d, [{"n": 8, "m": 4}]),
        (applications.fdtd_2d, [{"n": 9, "m": 6}]),
        (applications.covariance, [{"n": 6, "m": 9}]),
    ],
)
def test_structure_is_what_work_items_do(
    build: Callable[[], Any], sizes: list[dict[str, int]]
) -> None:
    recorder = LaneRecorder(build())
    analysis = analyze_kernel(recorder.scheduled)
    for parameters in sizes:
        assert mistakes_at(analysis, recorder, parameters) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Loopy on newer islpy
def test_structure_of_generated_kernels_is_what_work_items_do() -> None:
    compared: set[KernelCase] = set()
    refused: set[KernelCase] = set()

    @generated(EXAMPLES)
    @given(st.one_of(kernels(), staged_tiles()))
    def check(case: KernelCase) -> None:
        with lp.CacheMode(False), suppress(NotInterpretedError):
            try:
                t_unit = case.build()
                recorder = LaneRecorder(t_unit)
                sizes = min(case.parameters(t_unit), key=lambda p: sum(p.values()))
                recorder.record(sizes)
            except LOOPY_REFUSALS:
                return
            try:
                analysis = analyze_kernel(recorder.scheduled)
            except CountperfError:
                refused.add(case)
                return
            assert mistakes_at(analysis, recorder, sizes) == []
            compared.add(case)

    check()
    assert len(compared) >= EXAMPLES // 2
    assert len(refused) <= len(compared) // 20


@pytest.mark.parametrize(
    ("build", "sizes"),
    [
        (partial(structure_kernels.tiled_matmul, 2), {"n": 6}),
        (partial(structure_kernels.stencil, 4), {"n": 12}),
        (structure_kernels.naive_transpose, {"n": 16, "m": 19}),
        (structure_kernels.guarded, {"n": 11, "m": 5}),
        (structure_kernels.late_loops, {"n": 13}),
        (applications.trmm, {"n": 12, "m": 7}),
    ],
)
def test_full_groups_split_off_leave_everything_as_it_is(
    build: Callable[[], Any], sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("countperf.counting.lanes._SPLIT_FROM", 0)
    recorder = LaneRecorder(build())
    assert mistakes_at(analyze_kernel(recorder.scheduled), recorder, sizes) == []


def test_transactions_of_many_groups_are_not_listed_one_by_one() -> None:
    analysis = analyze_kernel(entry("vector-scale-add/stride1/256x1").build())
    n = 2**28 + 256
    found = lines_moved(analysis.accesses, {"n": n}, line_bytes=64, sub_group_size=16)
    assert found == {"load": 2 * n // 16, "store": n // 16}
