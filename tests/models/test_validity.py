"""When a prediction gets a caveat."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from countperf.models.function import FitQuality
from countperf.models.validity import (
    extrapolation_verdict,
    features_outside,
    indistinguishable_verdict,
    log_quantile,
    sign_verdict,
)
from tests.models.builders import TWO_TO_ONE, make_weight


@pytest.mark.parametrize(
    ("count", "passed"),
    [
        pytest.param(100.0, True, id="in the middle"),
        pytest.param(2000.0, True, id="twice the largest"),
        pytest.param(2001.0, False, id="above twice the largest"),
        pytest.param(1.0, True, id="below the smallest"),
        pytest.param(np.array([100.0, 2001.0]), False, id="one of several"),
    ],
)
def test_extrapolation_begins_at_a_factor_of_two(count: Any, passed: bool) -> None:
    weight = make_weight("flop.add.f32", 1.0, largest=1000.0)

    outside = features_outside([weight], {"flop.add.f32": count}, {"flop.add.f32": count})
    verdict = extrapolation_verdict(outside)

    assert verdict.passed is passed


def test_features_that_hardly_matter_do_not_extrapolate() -> None:
    weights = [make_weight("launches", 1.0), make_weight("groups", 1e-12, largest=10.0)]
    counts = {"launches": 1.0, "groups": 1e6}

    outside = features_outside(weights, counts, {"launches": 1.0, "groups": 1e-6})
    assert extrapolation_verdict(outside).passed


@pytest.mark.parametrize(
    ("loads", "stores", "passed"),
    [
        pytest.param(0.0, 0.0, True, id="neither"),
        pytest.param(2e9, 1e9, True, id="in proportion"),
        pytest.param(2e9, 1.001e9, False, id="nearly in proportion"),
        pytest.param(1.0, 0.0, False, id="one alone"),
        pytest.param(np.array([2.0, 4.0]), np.array([1.0, 2.0]), True, id="arrays"),
        pytest.param(np.array([2.0, 4.0]), np.array([1.0, 1.0]), False, id="one of several"),
    ],
)
def test_relations_of_inseparable_features_must_hold(loads: Any, stores: Any, passed: bool) -> None:
    counts = {"gmem.load.32.1of2": loads, "gmem.store.32.1of2": stores}

    assert indistinguishable_verdict([TWO_TO_ONE], counts).passed is passed


def test_a_time_of_zero_or_less_fails() -> None:
    assert sign_verdict(1.0).passed
    assert not sign_verdict(0.0).passed
    assert not sign_verdict(np.array([1.0, -1.0])).passed


@pytest.mark.parametrize(
    ("in_sample", "held_out", "scatter"),
    [(0.14, 0.03, 0.14), (0.1, 0.4, 0.4), (0.2, None, 0.2), (None, None, None)],
)
def test_without_calibration_the_larger_scatter_counts(
    in_sample: float | None, held_out: float | None, scatter: float | None
) -> None:
    """One family left out may fit by chance: the fit's own scatter is then the better guess."""
    quality = FitQuality(
        in_sample_error=0.1,
        held_out_error=None,
        in_sample_scatter=in_sample,
        held_out_scatter=held_out,
    )

    found = log_quantile(quality, 0.9)

    assert found == (None if scatter is None else pytest.approx(1.6449 * scatter, rel=1e-4))
