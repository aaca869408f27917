"""How hard predictions are, and intervals that follow it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from countperf.errors import DocumentError
from countperf.fitting.fit import fit
from countperf.fitting.result import FitResult
from countperf.models.conformal import (
    EXTRAPOLATION,
    LEAST,
    MOST_UNCERTAIN,
    difficulty,
    overshoot,
    relative_standard_error,
    support_of,
)
from countperf.models.weights import WeightSet
from countperf.predictions import Prediction
from countperf.properties.vector import PropertyVector
from tests.fitting.builders import KERNELS, MadeUpKernel, measure

# three features, of which families use the first, the first two, and the third alone
SHARES = np.array([[1.0, 0.5, 0.0, 0.02], [0.0, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.98]])
FAMILIES = ["a", "b", "c", "c"]
LARGEST = np.array([100.0, 100.0, 100.0])
SUPPORT = support_of(SHARES, LARGEST, FAMILIES)
HALF = np.array([0.5, 0.5, 0.0])
SMALL = np.array([10.0, 10.0, 0.0])


def test_support_counts_families_and_keeps_kernels_that_differ() -> None:
    assert SUPPORT.families == (2, 1, 1)
    assert [len(each) for each in SUPPORT.profiles.values()] == [1, 1, 1]


def test_the_formula_by_hand() -> None:
    # 0.5/3 + 0.5/2 for rare features; 0 from family b and 0.5 from a
    assert difficulty(SUPPORT, HALF, SMALL, 0.1) == pytest.approx(
        LEAST + 0.1 + 0.5 / 3 + 0.5 / 2 + 0.25
    )


def test_each_part_makes_it_harder() -> None:
    plain = difficulty(SUPPORT, HALF, SMALL, 0.1)

    assert difficulty(SUPPORT, HALF, SMALL * [100, 1, 1], 0.1) == pytest.approx(
        plain + EXTRAPOLATION * 0.5 * np.log(10)
    )
    assert difficulty(SUPPORT, HALF, SMALL, 0.1, np.log(2)) == pytest.approx(
        plain + EXTRAPOLATION * np.log(2)
    )
    assert difficulty(SUPPORT, HALF, SMALL, 99.0) == pytest.approx(plain + MOST_UNCERTAIN - 0.1)
    unknown = difficulty(SUPPORT, HALF, SMALL, float("nan"))
    assert unknown == difficulty(SUPPORT, HALF, SMALL, 99.0)
    mixed = np.array([0.5, 0.0, 0.5])
    assert difficulty(SUPPORT, mixed, SMALL, 0.1) > plain


def test_arrays_are_as_their_elements() -> None:
    shares, values = np.stack([HALF, HALF[::-1]], axis=1), np.stack([SMALL, 50 * SMALL], axis=1)
    errors = np.array([0.1, 0.3])

    found = difficulty(SUPPORT, shares, values, errors)

    assert found == pytest.approx(
        [difficulty(SUPPORT, shares[:, k], values[:, k], errors[k]) for k in range(2)]
    )


def test_the_standard_error_is_that_of_a_sum() -> None:
    covariance = np.diag([0.04, 0.01])

    found = relative_standard_error(10.0, np.array([3.0, 4.0]), covariance)

    assert found == pytest.approx((9 * 0.04 + 16 * 0.01) ** 0.5 / 10)
    assert np.isnan(relative_standard_error(10.0, np.array([3.0, 4.0]), None))


def test_names_of_an_expression_overshoot_their_largest_value() -> None:
    assert overshoot({"groups": 40.0, "other": 1.0}, {"groups": 10.0}) == pytest.approx(np.log(4))
    assert overshoot({"groups": 4.0}, {"groups": 10.0}) == 0.0


def _ends(prediction: Prediction) -> NDArray[np.float64]:
    assert prediction.interval_s is not None
    return np.array(prediction.interval_s, np.float64)


@pytest.fixture(scope="module")
def result() -> FitResult:
    twins = tuple(
        MadeUpKernel(name=f"{k.name}-b", family=f"{k.family}-b", counts=k.counts, sizes=k.sizes)
        for k in KERNELS
    )
    return fit(measure((*KERNELS, *twins), noise=np.random.default_rng(2)))


def test_a_fit_read_elsewhere_gives_the_same_intervals(result: FitResult, tmp_path: Path) -> None:
    result.weights.write_file(tmp_path / "weights.json")
    read = WeightSet.read_file(tmp_path / "weights.json")
    sizes = np.array([2**10, 2**16])

    for kernel in KERNELS[:3]:
        one, other = (_ends(w.predict(kernel.vector, n=sizes)) for w in (result.weights, read))
        assert np.array_equal(one, other)
    assert (tmp_path / "weights.json").stat().st_size < 200_000


def test_intervals_widen_outside_the_measured_range_and_where_little_was_measured(
    result: FitResult,
) -> None:
    def factor(vector: PropertyVector, n: int) -> float:
        found = result.weights.predict(vector, n=n, level=0.9)
        low, high = _ends(found)
        assert high / found.time_s == pytest.approx(found.time_s / low)
        return float(high / found.time_s)

    copy = KERNELS[0].vector
    mixed = PropertyVector.from_mapping(
        {"flop.special.f32.exp": "[n] -> { 40 * n }", "gmem.load.32.1of2": "[n] -> { 40*n }"}
    )

    assert factor(copy, 2**18) < factor(copy, 2**24) < factor(copy, 2**26)
    assert factor(copy, 2**18) < factor(mixed, 2**18)
    caveats = result.weights.predict(copy, n=2**26).caveats
    assert any("interval is widened" in each.message for each in caveats)


def test_a_support_of_other_weights_is_refused(result: FitResult) -> None:
    content = result.weights.to_object()
    content["quality"]["calibration"]["local"]["support"]["largest"].append(1.0)

    with pytest.raises(DocumentError, match="support of the intervals"):
        WeightSet.from_object(content)


def test_anchoring_narrows_hard_kernels_and_never_below_what_is_left(result: FitResult) -> None:
    copy = KERNELS[0].vector
    plain = result.weights.predict(copy, n=2**14, level=0.9)
    anchored = result.weights.anchored(copy, ({"n": 2**14}, float(plain.time_s)))

    found = anchored.predict(None, {"n": 2**14}, level=0.9)

    reach, before = (np.log(_ends(each)[1] / each.time_s) for each in (found, plain))
    assert min(before, 1.6449 * anchored.scatter) <= reach * 1.0001
    assert reach <= before
