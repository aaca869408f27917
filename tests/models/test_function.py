"""When a prediction gets a caveat."""

from __future__ import annotations

import gzip
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit

from countperf.models import function
from countperf.models.function import SHORTEST_LAUNCH_S, describe_range, features_outside, interval
from countperf.models.library import load_weights
from tests.models.builders import TWO_TO_ONE, make_weight

FITS = Path(__file__).parents[2] / "fits"
ADD, LARGEST = "flop.add.f32", 1000.0


@pytest.mark.parametrize(
    ("count", "passed"),
    [(100.0, True), (2000.0, True), (2001.0, False), (1.0, True), (np.array([1.0, 2001]), False)],
)
def test_extrapolation_begins_at_a_factor_of_two(count: Any, passed: bool) -> None:
    weight = make_weight(ADD, 1.0, largest=LARGEST)
    above, below = features_outside({ADD: weight}, [count], {ADD: count})
    assert (describe_range(above, below) == "") is passed


def test_features_that_hardly_matter_do_not_extrapolate() -> None:
    groups = make_weight("groups", 1e-12, largest=10.0)
    weights = {"launches": make_weight("launches", 1.0), "groups": groups}
    counts = {"launches": 1.0, "groups": 1e6}
    assert features_outside(weights, counts.values(), {"launches": 1.0, "groups": 1e-6}) == ({}, {})


@pytest.mark.parametrize(
    ("count", "smallest", "passed"),
    [(9.0, 10.0, False), (10.0, 10.0, True), (0.0, 10.0, True), (9.0, None, True)],
)
def test_range_begins_at_the_smallest(
    count: float, smallest: float | None, *, passed: bool
) -> None:
    added = make_weight(ADD, 1.0, smallest=smallest)
    weights = {"launches": make_weight("launches", 1.0), ADD: added}
    counts = {"launches": 1.0, ADD: count}
    # launches take nearly all of the time, and do not hide it
    said = describe_range(*features_outside(weights, counts.values(), {"launches": 1e9, ADD: 1.0}))
    widened = f"below the smallest value measured: {ADD}"
    assert said == ("" if passed else widened)


def test_the_shortest_launches_are_those_of_fits_and_measurements() -> None:
    times: list[float] = []
    for path in FITS.glob("*/measurements.jsonl.gz"):
        times += map(
            float, re.findall(rb'"time_s": ?([0-9.e-]+)', gzip.decompress(path.read_bytes()))
        )
    assert SHORTEST_LAUNCH_S["cpu"] == pytest.approx(min(times), rel=1e-12)
    launches = [load_weights(p.name).by_feature["launches"] for p in FITS.glob("nvidia-*")]
    known = [w.value_s for w in launches if w.value_s > 3 * (w.standard_error_s or math.inf)]
    assert 0 <= min(known) - SHORTEST_LAUNCH_S["gpu"] < 0.01e-6


@pytest.mark.parametrize(
    ("loads", "stores", "passed"),
    [
        (0.0, 0.0, True),
        (2e9, 1e9, True),
        (2e9, 1.001e9, False),
        (1.0, 0.0, False),
        (np.array([2.0, 4.0]), np.array([1.0, 2.0]), True),
        (np.array([2.0, 4.0]), np.array([1.0, 1.0]), False),
    ],
)
def test_relations_of_inseparable_features_must_hold(loads: Any, stores: Any, passed: bool) -> None:
    counts = {"gmem.load.32.1of2": loads, "gmem.store.32.1of2": stores}
    assert (function.describe_guess([TWO_TO_ONE], counts) == "") is passed


def test_a_time_of_zero_or_less_has_no_interval() -> None:
    times = (1.0, 0.0, np.array([1.0, -1.0]))
    ends: list[Any] = [interval(time_s, 0.1) for time_s in times]
    assert [None if end is None else np.isnan(end[0]).tolist() for end in ends] == [
        False,
        None,
        [False, True],
    ]


@pytest.mark.parametrize("reach", [np.inf, np.nan, np.log(10.0)])
def test_no_interval_reaches_a_factor_of_a_thousand(reach: float) -> None:
    assert interval(1.0, reach) is None
    ends: Any = interval(np.array([1.0, 2.0]), np.array([reach, 1.0]))
    assert np.array(ends) == pytest.approx(
        np.array([[np.nan, 2 / np.e], [np.nan, 2 * np.e]]), nan_ok=True
    )
    assert (function.describe_interval(reach) == "") is bool(np.isnan(reach))


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_quantiles_of_few_degrees_of_freedom_are_students(level: float) -> None:
    freedom = np.array([*range(1, 40), 1000])
    found = [function.student_quantile(level, int(number)) for number in freedom]
    assert found == pytest.approx(stdtrit(freedom, (1 + level) / 2), rel=2e-3)


@pytest.mark.parametrize(
    ("in_sample", "held_out", "error", "freedom", "quantile"),
    [
        # Student's quantiles at .95 of 1, 2, 9 and 1000 degrees of freedom, from printed tables:
        # 6.314, 2.920, 1.833, 1.646
        (0.14, 0.03, 0.0, 1000, 1.646 * 0.14),
        (0.14, 0.03, 0.0, 9, 1.833 * 0.14),
        (0.14, 0.03, 0.0, 1, 6.314 * 0.14),
        (0.03, None, 0.04, 9, 1.833 * 0.05),
        (0.1, 0.4, 0.0, 1000, 2.920 * 0.4),  # of two families at most
        (1e-6, None, 0.0, 1, 6.314 * 0.01),  # no time is known better than to a percent
        (0.2, None, 0.0, 0, np.inf),
        (None, None, 0.0, 9, np.inf),
    ],
)
def test_without_calibration_intervals_are_those_of_few_cases(
    in_sample: float | None, held_out: float | None, error: float, freedom: int, quantile: float
) -> None:
    """One family left out may fit by chance: the fit's own scatter is then the better guess."""
    quality = function.FitQuality(
        in_sample_error=0.1,
        held_out_error=None,
        in_sample_scatter=in_sample,
        held_out_scatter=held_out,
    )
    found = function.log_quantile(quality, 0.9, freedom=freedom, error=error)
    assert found == pytest.approx(quantile, rel=1e-3)
