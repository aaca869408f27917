"""Corrections of sizes, in arrays and one by one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from countperf.models.correction import Correction, as_points

COLUMNS, KERNELS, SCALE = 5, 2100, 3.0

Array = NDArray[np.float64]


def measured(number: int = KERNELS, seed: int = 3) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.ones(COLUMNS), number).T
    return np.sqrt(shares), random.uniform(0.0, 9.0, (COLUMNS, number))


def test_sizes_are_corrected_alike_in_arrays_and_one_by_one() -> None:
    alpha = np.random.default_rng(7).normal(size=KERNELS)
    own = measured()
    found = Correction(
        kernels=tuple(f"k{i}" for i in range(KERNELS)),
        roots=tuple(map(tuple, own[0].T.tolist())),
        logs=tuple(map(tuple, own[1].T.tolist())),
        coefficients=tuple(alpha.tolist()),
        scale=SCALE,
    )
    roots, logs = measured(300, seed=4)

    together = found.log_factor(roots, logs)

    points, axes = as_points(roots, logs, SCALE), as_points(*own, SCALE)
    expected = [
        np.exp(-np.sqrt(((axes - point[:, np.newaxis]) ** 2).sum(axis=0))) @ alpha
        for point in points.T
    ]
    assert together == pytest.approx(np.array(expected), rel=1e-9, abs=1e-12)
    single = [found.log_factor(roots[:, i], logs[:, i]) for i in range(300)]
    assert single == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert isinstance(single[0], float)
