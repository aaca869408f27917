r"""Fit of the correction by similar kernels (`countperf.models.correction`).

The length scales and `NOISE` were settled on the measurement kernels of two devices (PoCL and
Intel's runtime on Zen 5), left out by families and one by one: with counts half as far apart, with
all distances 1.5 and 2 times as large, and with .05 instead of .1, left-out families are off by
factors within half a percent of each other. Randomized trees on shares and counts helped kernels
that were left out one by one, and not families.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countperf.fitting.design import Observation
from countperf.fitting.estimate import Estimate
from countperf.fitting.solve import Matrix, Vector
from countperf.models.correction import Correction, as_points, profile, similarity

NOISE = 0.1
"""Variance of what a kernel's logarithm has of its own, as a share of what similar ones share."""

LARGEST_LOG = 1.5
"""Kernels that are off by more say no more than that."""

FEWEST_KERNELS = 20

_DIGITS = 2, 1
"""Decimals of roots and logs: a kernel's fit into a byte each, and left-out families are off by the
same factors."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeftOut:
    """Families predicted by a fit of the others."""

    times_s: Vector  # predicted times, s; NaN where they are not known
    outside: NDArray[np.bool_]  # the cases of the fit
    predicted_s: Vector  # times that the fit gives its own cases, s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Profiles:
    """Profiles of the kernels of a fit, and of its cases."""

    kernels: tuple[str, ...]
    members: NDArray[np.intp]
    roots: Matrix
    logs: Matrix
    scale: float
    of_cases: Matrix

    @classmethod
    def of(cls, fitted: Estimate, observations: Sequence[Observation]) -> _Profiles | None:
        """Return them; None if there are too few kernels, or a time is not positive."""
        design = fitted.design
        names, members = np.unique([case.kernel for case in observations], return_inverse=True)
        if names.size < FEWEST_KERNELS or np.any(fitted.predicted_s <= 0):
            return None
        values, unknowns = design.counts.T, fitted.solution.coefficients
        told = profile(fitted.function.columns, values, design.scaled.T, unknowns)
        roots, logs = (
            np.round(_means(rows.T, members), digits)
            for rows, digits in zip(told, _DIGITS, strict=True)
        )
        scale = _median_distance(logs)
        return cls(
            kernels=tuple(names.tolist()),
            members=members,
            roots=roots,
            logs=logs,
            scale=scale,
            of_cases=as_points(*told, scale).T,
        )

    @property
    def points(self) -> Matrix:
        """The kernels as points, row by row."""
        return as_points(self.roots.T, self.logs.T, self.scale).T

    @property
    def covariance(self) -> Matrix:
        """Covariance of what kernels are off by, with what each has of its own."""
        covariance = similarity(self.points, self.points)
        covariance[np.diag_indices_from(covariance)] = 1.0 + NOISE
        return covariance


def learn(fitted: Estimate, observations: Sequence[Observation]) -> Correction | None:
    """Learn from the cases of a fit; None if they are of too few kernels."""
    from scipy.linalg import cho_factor, cho_solve

    profiles = _Profiles.of(fitted, observations)
    if profiles is None:
        return None
    off = _off(profiles, fitted.design.times_s, fitted.predicted_s)
    alpha = np.asarray(cho_solve(cho_factor(profiles.covariance), off), np.float32)
    return Correction(
        kernels=profiles.kernels,
        roots=tuple(map(tuple, profiles.roots.tolist())),
        logs=tuple(map(tuple, profiles.logs.tolist())),
        coefficients=tuple(alpha.tolist()),
        scale=profiles.scale,
    )


def left_out_corrections(
    fitted: Estimate,
    observations: Sequence[Observation],
    left_out: Mapping[tuple[str, ...], LeftOut],
) -> Vector | None:
    r"""Return by what cases would be corrected if their families had not been measured.

    Kernels are compared by their profiles in the fit of all cases, which change little without a
    family; what they are off by is that of the fit without it. With the inverse :math:`P` of the
    covariance of all kernels, that of the others :math:`o` follows without another inversion:
    :math:`K_{oo}^{-1} = P_{oo} - P_{ob} P_{bb}^{-1} P_{bo}` for the kernels :math:`b` left out.
    """
    from scipy.linalg import cho_factor, cho_solve

    profiles = _Profiles.of(fitted, observations)
    if profiles is None:
        return None
    inverse = np.asarray(
        cho_solve(cho_factor(profiles.covariance), np.eye(len(profiles.kernels))), np.float64
    )
    alike = similarity(profiles.of_cases, profiles.points)
    found = np.zeros(len(observations))
    times_s = fitted.design.times_s
    for each in left_out.values():
        members = profiles.members[each.outside]
        number = len(profiles.kernels)
        inside = np.bincount(members, minlength=number) == 0
        if np.all(inside) or np.any(each.predicted_s <= 0):
            continue
        off = _mean_logs(np.log(times_s[each.outside] / each.predicted_s), members, number)
        alpha = inverse @ off  # zero where a kernel is left out
        own = inverse[np.ix_(inside, inside)]
        alpha -= inverse[:, inside] @ np.linalg.solve(own, alpha[inside])
        alpha[inside] = 0.0
        found[~each.outside] = alike[~each.outside] @ alpha
    return found


def _off(profiles: _Profiles, times_s: Vector, predicted_s: Vector) -> Vector:
    """Return logarithms of what kernels are off by, means over their cases."""
    return _mean_logs(np.log(times_s / predicted_s), profiles.members, len(profiles.kernels))


def _mean_logs(ratios: Vector, members: NDArray[np.intp], number: int) -> Vector:
    sums = np.bincount(members, ratios, minlength=number)
    cases = np.maximum(np.bincount(members, minlength=number), 1)
    return np.clip(sums / cases, -LARGEST_LOG, LARGEST_LOG)


def _means(rows: Matrix, members: NDArray[np.intp]) -> Matrix:
    """Return means over the cases of each kernel, shape (n_kernels, n)."""
    sums = np.zeros((int(members.max()) + 1, rows.shape[1]))
    np.add.at(sums, members, rows)
    return sums / np.bincount(members)[:, np.newaxis]


def _median_distance(rows: Matrix) -> float:
    squares = (rows**2).sum(axis=1)
    apart = squares[:, np.newaxis] + squares - 2.0 * rows @ rows.T
    median_distance = float(np.median(apart[np.triu_indices_from(apart, 1)]))
    return median_distance if median_distance > 0 else 1.0
