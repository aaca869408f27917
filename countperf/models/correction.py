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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, Field, model_validator

from countperf.display import ShortRepr
from countperf.documents import Part
from countperf.models.function import Column, ModelFunction
from countperf.models.packing import FloatRows, Floats, IntegerRows, Names
from countperf.models.records import FitQuality, Support
from countperf.predictions import Quantity, Verdict

CORRECTION = "correction"
"""Part of a predicted time that is none of the model's: what the correction adds or takes away."""

_COUNT_SHARE = 4.0
"""Scale of the distance of counts relative to the distance of shares, in median distances."""

_BLOCK = 32
"""Sizes that are corrected in one go: few, so that distances to all kernels stay in the cache."""

_VECTOR_UNTHREADED, _MATRIX_UNTHREADED = 9216, 2**18
"""Products of a vector with fewer numbers than these, and of matrices with no more multiplications,
are single-threaded in OpenBLAS: its threads would wait for each other where many processes predict.
"""

_UNCORRECTED_FACTOR = AliasChoices("uncorrected_factor", "plain_factor")
"""Name of a field, and that in documents of before version 0.2.0."""

_NAMED = 3

Array = NDArray[np.float64]


class Correction(Part):
    r"""Measured kernels, and what each says of kernels like it."""

    kernels: Names = Field(min_length=1)  # their names
    places: IntegerRows  # for each kernel, which weights charge something of it, by position
    roots: FloatRows
    logs: FloatRows
    coefficients: Floats  # for each kernel, :math:`\alpha_i`, natural logarithms
    columns: int = Field(gt=0)  # how many weights there are
    scale: float = Field(gt=0)  # median squared distance of `logs` over pairs of kernels
    factor: float = Field(ge=1)
    uncorrected_factor: float = Field(ge=1, validation_alias=_UNCORRECTED_FACTOR)
    without: FitQuality  # how well the model fits without the correction

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
        """Function from profiles over all weights to corrections."""
        roots, logs = np.zeros((2, len(self.kernels), self.columns))
        for row, places in enumerate(self.places):
            roots[row, list(places)] = self.roots[row]
            logs[row, list(places)] = self.logs[row]
        axes = as_points(roots.T, logs.T, self.scale)
        return Corrector.over(axes, np.array(self.coefficients, np.float64), self.scale)

    def verdict(self, log_factor: Quantity, told: tuple[Array, Array]) -> Verdict:
        """Say by what a prediction was multiplied, and after which measured kernels."""
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
    """Return a measure of likeness: roots of shares of time, and logarithms of counts."""
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
    """Return covariances from the sum of both points' squares and from their inner products.

    The products are overwritten.
    """
    products *= -2.0
    products += squares
    return _falling(np.maximum(products, 0.0, out=products))


def _falling(squares: Array) -> Array:
    """Turn squared distances into covariances, in place."""
    np.sqrt(squares, out=squares)
    np.negative(squares, out=squares)
    return np.exp(squares, out=squares)


def _in_blocks(rows: Array, width: int) -> Array:
    """Cut columns into blocks, shape (n_blocks, n_rows, width), filled up with zeros."""
    number = -(-rows.shape[1] // width)
    filled = np.pad(rows, [(0, 0), (0, number * width - rows.shape[1])])
    blocks = filled.reshape(len(rows), number, width).transpose(1, 0, 2)
    return np.ascontiguousarray(blocks)


@dataclass(frozen=True, kw_only=True, eq=False)
class Corrector(ShortRepr):
    """A correction over weights, ready to be asked."""

    axes: Array  # the measured kernels as points, axis by axis
    squares: Array  # squares of their distances from the origin, also along axes that are left out
    alpha: Array  # their coefficients
    scale: float  # as in `Correction`

    @classmethod
    def over(cls, axes: Array, alpha: Array, scale: float) -> Self:
        """Make it from all there is of each kernel."""
        axes = np.ascontiguousarray(axes)
        return cls(axes=axes, squares=(axes**2).sum(axis=0), alpha=alpha, scale=scale)

    def restricted(self, columns: Sequence[int]) -> Self:
        """Return it for kernels of which no other weight charges anything."""
        number = len(self.axes) // 2
        return replace(self, axes=self.axes[[*columns, *(number + column for column in columns)]])

    def projected(self, *, roots: Array, logs: Array, fixed: Array) -> ProjectedCorrector:
        """Return it for kernels whose profiles follow from few numbers, one size at a time."""
        of_roots, of_logs = np.split(self.axes, 2)
        of_logs = of_logs / np.sqrt(_COUNT_SHARE * self.scale)
        constant = np.sum(fixed**2) / (_COUNT_SHARE * self.scale)
        squares = self.squares + constant - 2.0 * (fixed @ of_logs)
        rows = np.concatenate(
            [-2.0 * (logs @ of_logs), [squares], [np.ones_like(squares)], -2.0 * (roots @ of_roots)]
        )
        width = max(_VECTOR_UNTHREADED // len(rows) - 1, 1)
        alpha = _in_blocks(self.alpha[np.newaxis], width).reshape(-1)
        per_log = logs.sum(axis=1) / (_COUNT_SHARE * self.scale)
        return ProjectedCorrector(
            blocks=_in_blocks(rows, width),
            alpha=alpha,
            per_log=per_log,
        )

    def log_factor(self, roots: Array, logs: Array) -> Quantity:
        """Return the logarithm by which times are corrected."""
        points = as_points(roots, logs, self.scale)
        shape = points.shape[1:]
        if not shape:
            return float(self._alike(points) @ self.alpha)
        rows = points.reshape(len(points), -1).T
        found = np.empty(len(rows))
        width = max(_MATRIX_UNTHREADED // (_BLOCK * max(len(points), 1)), 1)
        axes = _in_blocks(self.axes, width)
        squares = _in_blocks(self.squares[np.newaxis], width)
        alpha = _in_blocks(self.alpha[np.newaxis], width).transpose(0, 2, 1)
        for first in range(0, len(rows), _BLOCK):
            block = rows[first : first + _BLOCK]
            apart = squares + (block**2).sum(axis=1)[:, np.newaxis]
            alike = _covariance(apart, np.matmul(block, axes))
            found[first : first + _BLOCK] = np.matmul(alike, alpha).sum(axis=0)[:, 0]
        return found.reshape(shape)

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


@dataclass(frozen=True, kw_only=True, eq=False)
class ProjectedCorrector(ShortRepr):
    r"""A correction of one kernel at one size, from the few numbers that its profile follows from.

    With a row of :math:`-2 x_i` for each number, one of :math:`|x_i|^2` and one of ones, a single
    product gives all squared distances :math:`|x_i|^2 - 2 x_i \cdot x + |x|^2`.
    """

    blocks: NDArray[np.float64]  # the rows, for some measured kernels after the other
    alpha: NDArray[np.float64]  # their coefficients
    # what the square of each logarithm adds to the squared distance from the origin
    per_log: NDArray[np.float64]

    def log_factor(self, numbers: Sequence[float]) -> float:
        """Return the logarithm by which a time is corrected."""
        number = len(self.per_log)
        point = np.array(numbers, np.float64)
        logs, shares = point[:number], point[number + 2 :]
        np.log1p(logs, logs)
        np.sqrt(shares, shares)
        point[number + 1] += (logs * logs) @ self.per_log
        first, last = 0, len(numbers)
        while not numbers[first]:
            first += 1
        while not numbers[last - 1]:
            last -= 1
        squares = np.matmul(point[first:last], self.blocks[:, first:last]).reshape(-1)
        np.abs(squares, squares)  # rounding may leave one of zero below it
        return float(_falling(squares) @ self.alpha)
