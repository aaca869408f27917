r"""Correction of a prediction by the errors of similar measured kernels.

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

from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from countperf.documents import Part
from countperf.models.function import Column, ModelFunction
from countperf.models.packing import FloatRows, Floats, Names
from countperf.predictions import Quantity, Verdict

CORRECTION = "correction"
"""Part of a predicted time that is none of the model's: what the correction adds or takes away."""

_COUNT_SHARE = 4.0
"""Scale of the distance of counts relative to the distance of shares, in median distances."""

_AT_ONCE = 256
_NAMED = 3

Array = NDArray[np.float64]


class Correction(Part):
    r"""Measured kernels, and what each says of kernels like it."""

    kernels: Names = Field(min_length=1)  # their names
    roots: FloatRows  # for each kernel and weight
    logs: FloatRows
    coefficients: Floats  # for each kernel, :math:`\alpha_i`, natural logarithms
    scale: float = Field(gt=0)  # median squared distance of `logs` over pairs of kernels
    # by what left-out families are off, with the correction and without
    factor: float = Field(ge=1)
    uncorrected_factor: float = Field(ge=1)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        number = len(self.kernels)
        if {len(self.coefficients), len(self.roots), len(self.logs)} != {number}:
            raise ValueError(f"of {number} kernels, not all have roots, logs and coefficients")
        if len({len(row) for row in (*self.roots, *self.logs)}) != 1:
            raise ValueError("kernels have roots and logs of different numbers of weights")
        return self

    @cached_property
    def _axes(self) -> Array:
        """The measured kernels as points, axis by axis."""
        axes = as_points(np.array(self.roots).T, np.array(self.logs).T, self.scale)
        return np.ascontiguousarray(axes)

    @cached_property
    def _alpha(self) -> tuple[Array, Array]:
        """The coefficients, and the squares of the kernels' distances from the origin."""
        return np.array(self.coefficients), (self._axes**2).sum(axis=0)

    def log_factor(self, roots: Array, logs: Array) -> Quantity:
        """Return the logarithm by which times are corrected."""
        points = as_points(roots, logs, self.scale)
        alpha, squares = self._alpha
        shape = points.shape[1:]
        if not shape:  # not by BLAS, whose threads would wait for each other
            there = np.flatnonzero(points)
            products = np.einsum("i,ij->j", points[there], self._axes[there])
            apart = np.maximum(squares + points @ points - 2.0 * products, 0.0)
            return float(np.exp(-np.sqrt(apart)) @ alpha)
        rows = points.reshape(len(points), -1).T
        found = [
            similarity(rows[first : first + _AT_ONCE], self._axes.T) @ alpha
            for first in range(0, len(rows), _AT_ONCE)
        ]
        return np.concatenate(found).reshape(shape)

    def verdict(self, log_factor: Quantity, told: tuple[Array, Array]) -> Verdict:
        """Say by what a prediction was multiplied, and after which measured kernels."""
        points = as_points(*told, self.scale)
        alike = similarity(points.reshape(len(points), -1)[:, :1].T, self._axes.T)[0]
        nearest = [self.kernels[i] for i in np.argsort(-alike, kind="stable")[:_NAMED]]
        factor = np.exp(np.atleast_1d(log_factor))
        low, high = float(factor.min()), float(factor.max())
        by = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
        return Verdict(
            name=CORRECTION,
            passed=True,
            message=f"multiplied by {by}, as kernels like it were off; most alike:"
            f" {', '.join(nearest)}",
        )


def profile(
    function: ModelFunction, values: Array, scaled: Array, unknowns: tuple[float, ...] | Array
) -> tuple[Array, Array]:
    """Return a measure of likeness: roots of shares of time, and logarithms of counts."""
    sizes = np.abs((np.asarray(unknowns, np.float64) * scaled.T).T)
    whole = sizes.sum(axis=0)
    groups = _groups_column(function.columns)
    number = 1.0 if groups is None else np.maximum(values[groups], 1.0)
    roots = np.sqrt(sizes / np.where(whole > 0, whole, 1.0))
    return roots, np.log1p(np.maximum(values, 0.0) / number)


def _groups_column(columns: tuple[Column, ...]) -> int | None:
    """Return the position of the weight of groups, by whose number counts are divided."""
    return next((i for i, (_, feature) in enumerate(columns) if feature == "groups"), None)


def as_points(roots: Array, logs: Array, scale: float) -> Array:
    """Put both parts of profiles into one space, shape (2 * n_columns, *shape)."""
    return np.concatenate([roots, logs / np.sqrt(_COUNT_SHARE * scale)])


def similarity(points: Array, others: Array) -> Array:
    """Return the covariance of kernels, shape (n_points, n_others), from points as rows."""
    squares = (points**2).sum(axis=1)[:, np.newaxis] + (others**2).sum(axis=1)
    return np.exp(-np.sqrt(np.maximum(squares - 2.0 * points @ others.T, 0.0)))
