r"""What kernels like one at hand were off by when they were measured: a correction of its time.

A model of terms that people can read misses what compilers and caches do to single kernels, and
misses alike for kernels that resemble each other. The logarithm of measured over predicted time of
each measured kernel is taken as a Gaussian process over what the model makes of it,

.. math::

   \hat r(x) = \sum_i \alpha_i k(x, x_i), \quad
   \alpha = (K + \tau^2 I)^{-1} r, \quad
   k(x, x') = \exp\Bigl(-\sqrt{|\rho - \rho'|^2 + |\lambda - \lambda'|^2 / (4 m)}\Bigr)

with the square roots :math:`\rho` of the shares of the predicted time that the weights take (their
distance is Hellinger's), the logarithms :math:`\lambda_c = \log(1 + x_c / g)` of what the model
charges, for each of :math:`g` groups, and the median :math:`m` of :math:`|\lambda - \lambda'|^2`
over pairs of measured kernels. Predictions are multiplied by :math:`e^{\hat r}`, which is about one
where nothing alike was measured. Each kernel counts once, with the means over its sizes.

The kernel is the exponential one, the length scales and :math:`\tau^2` are constants
(`countperf.fitting.correcting`). Whether a fit has a correction is decided by leaving out families.

Source: Rasmussen, Williams (2006), "Gaussian Processes for Machine Learning", equations 2.25
(prediction) and 4.18 (the exponential kernel).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from countperf.documents import Part
from countperf.models.function import Column, ModelFunction
from countperf.models.records import FitQuality, Support
from countperf.predictions import Quantity, Verdict

CORRECTION = "correction"
"""Part of a predicted time that is none of the model's: what the correction adds or takes away."""

PLAIN = "plain"
"""Instead of a model's name: the one chosen for a device, without its correction."""

_COUNT_SHARE = 4.0
"""How much farther apart counts are, in median distances, than shares, to be as unlike."""

_BLOCK = 256
"""Sizes that are corrected in one go: memory for as many distances to all kernels."""

_NAMED = 3

Array = NDArray[np.float64]


class Correction(Part):
    r"""Measured kernels, and what each says of kernels like it.

    Attributes
    ----------
    kernels : tuple of str
        Their names.
    places : tuple of tuple of int
        For each kernel, which weights charge something of it, by position.
    roots, logs : tuple of tuple of float
        For each of these weights, the square root of its share of the predicted time, and the
        logarithm of one and what it charges for a group.
    coefficients : tuple of float
        For each kernel, :math:`\alpha_i`, natural logarithms.
    columns : int
        How many weights there are.
    scale : float
        Median squared distance of `logs` over pairs of kernels.
    factor, plain_factor : float
        By which factor families of kernels are typically off that were left out, with the
        correction and without it: geometric mean over families.
    without : FitQuality
        How well the model fits without the correction; the support of its intervals is left out,
        since it is that of the fit.
    """

    kernels: tuple[str, ...] = Field(min_length=1)
    places: tuple[tuple[int, ...], ...]
    roots: tuple[tuple[float, ...], ...]
    logs: tuple[tuple[float, ...], ...]
    coefficients: tuple[float, ...]
    columns: int = Field(gt=0)
    scale: float = Field(gt=0)
    factor: float = Field(ge=1)
    plain_factor: float = Field(ge=1)
    without: FitQuality

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        number = len(self.kernels)
        each = (self.places, self.roots, self.logs)
        if {len(self.coefficients), *map(len, each)} != {number}:
            raise ValueError(f"of {number} kernels, not all have places, roots, logs, coefficients")
        if any(len(set(map(len, row))) > 1 for row in zip(*each, strict=True)):
            raise ValueError("a kernel has not as many roots and logs as places")
        if any(not 0 <= place < self.columns for places in self.places for place in places):
            raise ValueError(f"a place is none of {self.columns} weights")
        return self

    @cached_property
    def corrector(self) -> Corrector:
        """What corrects predictions, from profiles over all weights."""
        roots, logs = np.zeros((2, len(self.kernels), self.columns))
        for row, places in enumerate(self.places):
            roots[row, list(places)] = self.roots[row]
            logs[row, list(places)] = self.logs[row]
        axes = as_points(roots.T, logs.T, self.scale)
        return Corrector.over(axes, np.array(self.coefficients, np.float64), self.scale)

    def verdict(self, log_factor: Quantity, told: tuple[Array, Array]) -> Verdict:
        """Say by what a prediction was multiplied, and after which measured kernels.

        Parameters
        ----------
        log_factor : float or ndarray
            What `Corrector.log_factor` returned.
        told : pair of ndarray
            The profile, as there.
        """
        nearest = [self.kernels[place] for place in self.corrector.nearest(*told)]
        factor = np.exp(np.atleast_1d(log_factor))
        low, high = float(factor.min()), float(factor.max())
        by = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
        return Verdict(
            name=CORRECTION,
            passed=True,
            message=f"multiplied by {by}, as kernels like it were off; most alike:"
            f" {', '.join(nearest)}",
        )


_NO_SUPPORT = Support(families=(), largest=(), profiles={})


def without_support(quality: FitQuality) -> FitQuality:
    """Return a fit's quality without the support of its intervals."""
    return with_support(quality, _NO_SUPPORT)


def with_support(quality: FitQuality, support: Support) -> FitQuality:
    """Return a fit's quality with the support of its intervals, if they are local."""
    calibration = quality.calibration
    if calibration is None or calibration.local is None:
        return quality
    local = calibration.local.model_copy(update={"support": support})
    local = calibration.model_copy(update={"local": local})
    return quality.model_copy(update={"calibration": local})


def profile(
    function: ModelFunction, values: Array, gradient: Array, unknowns: tuple[float, ...] | Array
) -> tuple[Array, Array]:
    """Return what tells how alike kernels are: roots of shares of time, and logarithms of counts.

    Parameters
    ----------
    function : ModelFunction
        The model over its weights.
    values : ndarray, shape (n_columns, *shape)
        Feature values.
    gradient : ndarray, shape (n_unknowns, *shape)
        Derivatives of the time.
    unknowns : sequence of float
        Weights, then parameters.

    Returns
    -------
    ndarray, shape (n_columns, *shape)
        Square roots of the shares of the time that the weights take.
    ndarray, shape (n_columns, *shape)
        Natural logarithms of one and what each weight charges for a group.
    """
    weights = np.asarray(unknowns, np.float64)[: len(values)]
    parts = (weights * gradient[: len(values)].T).T
    return roots_of(parts), logs_of(values, groups_column(function.columns))


def groups_column(columns: tuple[Column, ...]) -> int | None:
    """Return the position of the weight of groups, by whose number counts are divided."""
    return next((i for i, (_, feature) in enumerate(columns) if feature == "groups"), None)


def roots_of(parts: Array) -> Array:
    """Return square roots of the shares that parts take of their sum, all by amount."""
    sizes = np.abs(parts)
    whole = sizes.sum(axis=0)
    return np.sqrt(sizes / np.where(whole > 0, whole, 1.0))


def logs_of(values: Array, groups: int | None) -> Array:
    """Return logarithms of one and feature values for a group; of all where none are counted."""
    number = 1.0 if groups is None else np.maximum(values[groups], 1.0)
    return np.log1p(np.maximum(values, 0.0) / number)


def as_points(roots: Array, logs: Array, scale: float) -> Array:
    """Put both parts of profiles into one space, shape (2 * n_columns, *shape)."""
    return np.concatenate([roots, logs / np.sqrt(_COUNT_SHARE * scale)])


def similarity(points: Array, others: Array) -> Array:
    """Return the covariance of kernels, shape (n_points, n_others), from points as rows."""
    return _covariance(
        (points**2).sum(axis=1)[:, np.newaxis] + (others**2).sum(axis=1), points @ others.T
    )


def _covariance(squares: Array, products: Array) -> Array:
    """Return covariances from the sum of both points' squares and from their inner products."""
    return np.exp(-np.sqrt(np.maximum(squares - 2.0 * products, 0.0)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Corrector:
    """A correction over weights, ready to be asked.

    Attributes
    ----------
    axes : ndarray, shape (2 * n_columns, n_kernels)
        The measured kernels as points, axis by axis.
    squares : ndarray, shape (n_kernels,)
        Squares of their distances from the origin, also along axes that are left out.
    alpha : ndarray, shape (n_kernels,)
        Their coefficients.
    scale : float
        As in `Correction`.
    """

    axes: Array
    squares: Array
    alpha: Array
    scale: float

    @classmethod
    def over(cls, axes: Array, alpha: Array, scale: float) -> Self:
        """Make it from all there is of each kernel."""
        axes = np.ascontiguousarray(axes)
        return cls(axes=axes, squares=(axes**2).sum(axis=0), alpha=alpha, scale=scale)

    def restricted(self, columns: Sequence[int]) -> Self:
        """Return it for kernels of which no other weight charges anything."""
        number = len(self.axes) // 2
        return replace(self, axes=self.axes[[*columns, *(number + column for column in columns)]])

    def log_factor(self, roots: Array, logs: Array) -> Quantity:
        """Return the logarithm by which times are corrected.

        Parameters
        ----------
        roots, logs : ndarray, shape (n_columns, *shape)
            What `profile` returns.
        """
        points = as_points(roots, logs, self.scale)
        shape = points.shape[1:]
        if not shape:
            return float(self._alike(points) @ self.alpha)
        rows = points.reshape(len(points), -1).T
        blocks = [rows[first : first + _BLOCK] for first in range(0, len(rows), _BLOCK)]
        found = [
            _covariance((block**2).sum(axis=1)[:, np.newaxis] + self.squares, block @ self.axes)
            @ self.alpha
            for block in blocks
        ]
        return np.concatenate([*found, np.empty(0)]).reshape(shape)

    def _alike(self, point: Array) -> Array:
        """Return the covariances of one kernel, shape (n_kernels,).

        Not by BLAS, whose threads would wait for each other where many processes predict; what is
        zero is left out.
        """
        places = np.flatnonzero(point)
        there = point[places]
        products = np.einsum("i,ij->j", there, self.axes[places])
        return _covariance(self.squares + np.sum(there**2), products)

    def nearest(self, roots: Array, logs: Array) -> list[int]:
        """Return the measured kernels that are most alike, by position, at the first size."""
        points = as_points(roots, logs, self.scale)
        alike = self._alike(points.reshape(len(points), -1)[:, 0])
        return np.argsort(-alike, kind="stable")[:_NAMED].tolist()
