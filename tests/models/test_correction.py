"""Corrections: the quick way to one is the long way."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from countperf.models.correction import Corrector, as_points, roots_of

COLUMNS, KERNELS, SCALE = 5, 2100, 3.0

Array = NDArray[np.float64]

CHARGED_AND_SHARES = (
    ((17.0, 0.0, 400.0), (0.5, 0.375, 0.125)),
    ((0.0, 0.0, 400.0), (0.5, 0.5, 0.0)),
    ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0)),
)


def measured(number: int = KERNELS, seed: int = 3) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    roots = roots_of(random.uniform(size=(COLUMNS, number)))
    return roots, random.uniform(0.0, 9.0, (COLUMNS, number))


def corrector(roots: Array, logs: Array) -> Corrector:
    alpha = np.random.default_rng(7).normal(size=roots.shape[1])
    return Corrector.over(as_points(roots, logs, SCALE), alpha, SCALE)


def covariance_by_differences(one: Array, others: Array) -> Array:
    return np.exp(-np.sqrt(((others - one[:, np.newaxis]) ** 2).sum(axis=0)))


def test_sizes_are_corrected_alike_in_arrays_and_one_by_one() -> None:
    found = corrector(*measured())
    roots, logs = measured(150, seed=4)

    together = found.log_factor(roots, logs)

    points, axes = as_points(roots, logs, SCALE), as_points(*measured(), SCALE)
    expected = [covariance_by_differences(point, axes) @ found.alpha for point in points.T]
    assert together == pytest.approx(np.array(expected), rel=1e-9, abs=1e-12)
    single = [found.log_factor(roots[:, i], logs[:, i]) for i in range(150)]
    assert single == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_few_numbers_give_the_correction_of_the_profile_that_follows_from_them() -> None:
    # the first two weights charge the same and take 1 and 3 parts of a share, the third charges
    # five units in every group, the last costs nothing
    rows = np.zeros((3, COLUMNS))
    rows[0, :2], rows[1, 2], rows[2, 3] = (0.5, np.sqrt(0.75)), 1.0, 1.0
    logs = np.zeros((3, COLUMNS))
    logs[0, :2], logs[1, 3], logs[2, 4] = 1.0, 1.0, 1.0
    fixed = np.array([0.0, 0.0, np.log1p(5.0), 0.0, 0.0])
    found = corrector(*measured())

    quick = found.projected(roots=rows, logs=logs, fixed=fixed)

    for charged, shares in CHARGED_AND_SHARES:
        expected = found.log_factor(np.sqrt(shares) @ rows, np.log1p(charged) @ logs + fixed)
        told = quick.log_factor([*charged, 1.0, 1.0, *shares])
        assert isinstance(told, float)
        assert told == pytest.approx(expected, rel=1e-6)
    assert len(quick.blocks) > 1
    assert quick.blocks[0].size < 9216  # OpenBLAS has one thread for these


def test_a_measured_kernel_is_as_far_from_itself_as_rounding_allows() -> None:
    roots, logs = measured()
    found = corrector(roots, logs)
    everything = np.eye(COLUMNS)
    quick = found.projected(roots=everything, logs=everything, fixed=np.zeros(COLUMNS))

    told = [
        quick.log_factor([*np.expm1(logs[:, i]), 1.0, 1.0, *roots[:, i] ** 2]) for i in range(99)
    ]

    axes = as_points(roots, logs, SCALE)
    expected = [covariance_by_differences(axes[:, i], axes) @ found.alpha for i in range(99)]
    # distances are roots of what rounding leaves of nothing
    left = np.sqrt(np.finfo(np.float64).eps * found.squares.max()) * np.abs(found.alpha).max()
    assert told == pytest.approx(expected, abs=float(left))
