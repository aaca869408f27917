"""Cases that are left out of fits to published times: predicted, or named as without a weight."""

from __future__ import annotations

import pytest

from countperf.fitting.design import Observation
from countperf.models.definition import ModelDefinition
from published_left_out import (
    FitsWithout,
    geometric_mean,
    with_labels,
)

MODEL = ModelDefinition.from_object(
    {
        "format": "countperf-model",
        "version": 3,
        "name": "small",
        "residual": "log",
        "ignored": ["gmem.*"],
        "terms": {"work": ["distinct.load", "subgroups.32.barrier"]},
    }
)


def _cases(kernel: str, barriers: int, factor: float = 1.0) -> list[Observation]:
    """Return five sizes of a kernel that takes 2 ns a byte and 3 ns a barrier, times a factor."""
    return [
        Observation(
            name=f"{kernel} n={size}",
            kernel=kernel,
            family="all",
            counts={"distinct.load": size, "subgroups.32.barrier": barriers * size},
            time_s=factor * (2e-9 * size + 3e-9 * barriers * size),
        )
        for size in (1, 2, 4, 8, 16)
    ]


TILED_8, TILED_16 = "published-matmul/tiled/8x8/f32", "published-matmul/tiled/16x16/f32"
SUM = "published-matrix-sum/rows/8x8/f32"


def test_a_kernel_is_predicted_from_others_that_have_its_features() -> None:
    cases = [*_cases(TILED_8, 1), *_cases(TILED_16, 2), *_cases(SUM, 0, factor=1.25)]

    found = {part.name: part for part in FitsWithout.of(cases, MODEL).kernels()}

    left_out = found["published-matrix-sum/rows"]
    assert left_out.error == pytest.approx(0.2)  # 2 ns a byte instead of 2.5
    assert not left_out.without_weight


def test_a_kernel_with_a_feature_of_its_own_is_named_and_not_predicted() -> None:
    cases = [*_cases(TILED_8, 1), *_cases(TILED_16, 2), *_cases(SUM, 0)]

    found = {part.name: part for part in FitsWithout.of(cases, MODEL).kernels()}

    assert found["published-matmul/tiled"].error is None
    assert found["published-matmul/tiled"].without_weight == ("subgroups.32.barrier",)


def test_widths_are_left_out_of_the_tiled_product_alone() -> None:
    cases = [*_cases(TILED_8, 1), *_cases(TILED_16, 2, factor=1.5), *_cases(SUM, 0)]

    found = {part.name: part.error for part in FitsWithout.of(cases, MODEL).tile_widths()}

    assert found.keys() == {TILED_8, TILED_16}
    assert found[TILED_16] == pytest.approx(1 / 3)  # 8 ns instead of 12


def test_the_larger_sizes_of_each_kernel_have_a_label_of_their_own() -> None:
    labels = [case.family for case in with_labels([*_cases(TILED_8, 1), *_cases(SUM, 0)])]

    assert labels == [
        *[TILED_8] * 3,
        *[f"{TILED_8} larger"] * 2,
        *[SUM] * 3,
        *[f"{SUM} larger"] * 2,
    ]


def test_errors_below_a_tenth_of_a_percent_count_as_that() -> None:
    assert geometric_mean([0.0, 0.1]) == pytest.approx(0.01)
