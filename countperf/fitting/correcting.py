r"""Learning what measured kernels say of those like them (`countperf.models.correction`).

The length scales and `NOISE` were settled on the measurement kernels of two devices (PoCL and
Intel's runtime on Zen 5), left out by families and one by one: with counts half as far apart, with
all distances 1.5 and 2 times as large, and with .05 instead of .1, left-out families are off by
factors within half a percent of each other. Randomized trees on shares and counts helped kernels
that were left out one by one, and not families.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countperf.fitting.design import Observation
from countperf.fitting.estimate import Estimate
from countperf.fitting.solve import Matrix, Vector
from countperf.models.correction import Correction, Corrector, as_points, profile, similarity
from countperf.models.records import FitQuality

NOISE = 0.1
"""Variance of what a kernel's logarithm has of its own, as a share of what similar ones share."""

LARGEST_LOG = 1.5
"""Kernels that are off by more say no more than that."""

FEWEST_KERNELS = 20

_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Learnt:
    """Correction learnt from the cases of a fit.

    Attributes
    ----------
    kernels : tuple of str
        The measured kernels.
    roots, logs : ndarray, shape (n_kernels, n_columns)
        Their profiles, means over their cases.
    alpha : ndarray, shape (n_kernels,)
        Their coefficients.
    scale : float
        Median squared distance of `logs`.
    """

    kernels: tuple[str, ...]
    roots: Matrix
    logs: Matrix
    alpha: Vector
    scale: float

    def corrector(self) -> Corrector:
        """Return what corrects predictions."""
        axes = as_points(self.roots.T, self.logs.T, self.scale)
        return Corrector.over(axes, self.alpha, self.scale)

    def document(self, *, factor: float, plain_factor: float, without: FitQuality) -> Correction:
        """Return it as a part of a document; arguments as the attributes of `Correction`."""
        places = [np.flatnonzero(row) for row in (self.roots != 0) | (self.logs != 0)]
        return Correction(
            kernels=self.kernels,
            places=tuple(tuple(each.tolist()) for each in places),
            roots=_rows(self.roots, places),
            logs=_rows(self.logs, places),
            coefficients=tuple(self.alpha.tolist()),
            columns=self.logs.shape[1],
            scale=self.scale,
            factor=factor,
            plain_factor=plain_factor,
            without=without,
        )


def learn(fitted: Estimate, observations: Sequence[Observation]) -> Learnt | None:
    """Learn from the cases of a fit; None if they are of too few kernels.

    Parameters
    ----------
    fitted : Estimate
        The fit.
    observations : sequence of Observation
        Its cases, in its order.
    """
    from scipy.linalg import cho_factor, cho_solve

    design = fitted.design
    names, members = np.unique([case.kernel for case in observations], return_inverse=True)
    if names.size < FEWEST_KERNELS or np.any(fitted.predicted_s <= 0):
        return None
    values, unknowns = design.counts.T, fitted.solution.coefficients
    gradient = fitted.function.gradient(values, design.variables, unknowns)
    roots, logs = (
        np.round(_means(rows.T, members), _DIGITS)
        for rows in profile(fitted.function, values, gradient, unknowns)
    )
    ratios = np.log(design.times_s / fitted.predicted_s)
    off = np.clip(_means(ratios[:, np.newaxis], members)[:, 0], -LARGEST_LOG, LARGEST_LOG)
    scale = _median_distance(logs)
    points = as_points(roots.T, logs.T, scale).T
    covariance = similarity(points, points)
    covariance[np.diag_indices_from(covariance)] = 1.0 + NOISE
    return Learnt(
        kernels=tuple(names.tolist()),
        roots=roots,
        logs=logs,
        alpha=np.asarray(cho_solve(cho_factor(covariance), off), np.float64),
        scale=scale,
    )


def _means(rows: Matrix, members: NDArray[np.intp]) -> Matrix:
    """Return means over the cases of each kernel, shape (n_kernels, n)."""
    sums = np.zeros((int(members.max()) + 1, rows.shape[1]))
    np.add.at(sums, members, rows)
    return sums / np.bincount(members)[:, np.newaxis]


def _median_distance(rows: Matrix) -> float:
    squares = (rows**2).sum(axis=1)
    apart = squares[:, np.newaxis] + squares - 2.0 * rows @ rows.T
    found = float(np.median(apart[np.triu_indices_from(apart, 1)]))
    return found if found > 0 else 1.0


def _rows(matrix: Matrix, places: Sequence[NDArray[np.intp]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row[each].tolist()) for row, each in zip(matrix, places, strict=True))
