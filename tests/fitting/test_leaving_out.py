"""Figures of left-out families, and intervals from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from countperf.fitting.fit import fit
from countperf.fitting.leaving_out import (
    LARGEST_FACTOR,
    HeldOutCase,
    conformal_quantile,
    coverage_without_own_family,
    held_out_factor,
    interval_calibration,
    scatter_of_kernels,
)
from countperf.measurements import PURPOSES
from tests.fitting.builders import KERNELS, TEST_KERNEL, MadeUpKernel, measure


def _held_out(family: str, ratio: float | None, *, name: str = "c", **more: bool) -> HeldOutCase:
    return HeldOutCase(
        name=name,
        kernel=name,
        family=family,
        measured_s=1.0,
        predicted_s=ratio,
        **more,
    )


def test_families_count_the_same_whatever_their_size() -> None:
    cases = [_held_out("a", 1.1)] * 9 + [_held_out("b", 1.9)]

    assert held_out_factor(cases) == pytest.approx((1.1 * 1.9) ** 0.5)


def test_factors_are_the_same_both_ways_and_count_up_to_a_limit() -> None:
    for ratio in (4.0, 0.25):
        assert held_out_factor([_held_out("a", ratio)]) == pytest.approx(4.0)
    for ratio in (1e9, 1e-9, -1.0):
        assert held_out_factor([_held_out("a", ratio)]) == pytest.approx(LARGEST_FACTOR)


def test_kernels_that_only_launch_do_not_count() -> None:
    empty = _held_out("empty", 1e-9, overhead_only=True)
    cases = [_held_out(family, 1.1) for family in "abc"]

    assert held_out_factor([*cases, empty]) == held_out_factor(cases)
    assert interval_calibration([*cases, empty]) == interval_calibration(cases)


def test_kernels_that_judge_fits_are_never_looked_at() -> None:
    noise = np.random.default_rng(11)
    twins = tuple(
        MadeUpKernel(
            name=f"{each.name}-b", family=f"{each.family}-b", counts=each.counts, sizes=each.sizes
        )
        for each in KERNELS
    )
    alone = measure((*KERNELS, *twins), noise=noise)
    baits = tuple(
        replace(TEST_KERNEL, name=f"{TEST_KERNEL.name}-{purpose}", purpose=purpose)
        for purpose in PURPOSES
        if purpose != "measurement"
    )
    bait = measure(baits, weights=dict.fromkeys(_charged(), 1.0))
    both = type(alone)(header=alone.header, measurements=(*alone.measurements, *bait.measurements))
    assert {m.purpose for m in both} == {"measurement", "test", "application", "variant"}

    assert fit(both).weights == fit(alone).weights


def _charged() -> set[str]:
    return {"gmem.load.32.stride1", "gmem.store.32.stride1", "flop.add.f32", "launches"}


def test_the_catalogue_of_made_up_kernels_marks_those_that_only_launch() -> None:
    result = fit(measure())

    assert {c.family for c in result.held_out if c.overhead_only} == {"empty"}
    assert any(kernel.name == "empty" for kernel in KERNELS)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        pytest.param(0.5, 10.0, id="half of 19, one more"),
        pytest.param(0.9, 18.0, id="nine tenths"),
        pytest.param(0.95, 19.0, id="the largest"),
        pytest.param(0.99, 19.0, id="more than can be said"),
    ],
)
def test_the_quantile_is_that_of_split_conformal_prediction(level: float, expected: float) -> None:
    values = np.random.default_rng(0).permutation(np.arange(1.0, 20.0))

    # the k-th smallest of n with k = ceil(level (n + 1))
    assert conformal_quantile(values, np.full(19, 1 / 19), level, units=19) == expected


def test_the_quantile_of_few_families_is_that_of_as_few_values() -> None:
    values = np.repeat(np.arange(1.0, 10.0), 100)  # the cases of a family are the same

    for level, expected in ((0.8, 8.0), (0.9, 9.0)):
        assert conformal_quantile(values, np.full(900, 1 / 900), level, units=9) == expected
    assert conformal_quantile(values, np.full(900, 1 / 900), 0.8, units=900) == 8.0


def test_intervals_cover_new_families_as_often_as_they_say() -> None:
    random = np.random.default_rng(4)
    covered: dict[str, list[bool]] = {"0.9": [], "0.95": []}
    for _ in range(150):
        shared = random.standard_t(3, 41) * 0.2
        cases = [
            _held_out(f"f{k}", float(np.exp(shared[k] + random.normal(0, 0.1))))
            for k in range(40)
            for _ in range(3 + k % 5)
        ]
        calibration = interval_calibration(cases)
        assert calibration is not None
        new = abs(shared[40] + random.normal(0, 0.1))
        covered["0.9"].append(new <= calibration.log_errors_90)
        covered["0.95"].append(new <= calibration.log_errors_95)

    # 150 trials: a share of 0.9 is known to 0.024, one of 0.95 to 0.018
    assert np.mean(covered["0.9"]) == pytest.approx(0.9, abs=0.07)
    assert np.mean(covered["0.95"]) == pytest.approx(0.95, abs=0.055)


def test_coverage_is_judged_by_the_other_families() -> None:
    cases = [_held_out(f"f{k}", float(np.exp(0.1 * k))) for k in range(1, 5)]

    # the largest of the others holds every family but the one that is off most
    found = coverage_without_own_family(cases)
    assert found is not None
    assert (found.share_90, found.share_95, found.families) == (0.75, 0.75, 4)
    assert found.median_factor_90 == pytest.approx(np.exp(0.4))
    assert coverage_without_own_family(cases[:3]) is None
    assert coverage_without_own_family([]) is None


def test_two_families_say_too_little() -> None:
    assert interval_calibration([_held_out("a", 1.1), _held_out("b", 1.2)]) is None


def test_scatter_splits_into_between_and_within_kernels() -> None:
    random = np.random.default_rng(9)
    shared = random.normal(0, 0.5, 400)
    logs = np.concatenate([each + random.normal(0, 0.1, 4) for each in shared])

    between, within = scatter_of_kernels(logs, [f"k{i // 4}" for i in range(logs.size)])

    # 400 kernels tell a standard deviation to 3.5 %, 1200 degrees of freedom to 2 %
    assert between == pytest.approx(0.5, rel=0.12)
    assert within == pytest.approx(0.1, rel=0.07)
    assert scatter_of_kernels(np.array([0.3]), ["k"]) == (pytest.approx(0.3), 0.0)
