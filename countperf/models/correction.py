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

The kernel is the exponential one, the length scales and :math:`\tau^2` are constants. Whether a fit
has a correction is decided by leaving out families (`countperf.models.fitting.leaving_out`).
Documents have kernels and numbers as base64 of what zlib makes of their JSON; lists are read, too.

Source: Rasmussen, Williams (2006), "Gaussian Processes for Machine Learning", equations 2.25
(prediction) and 4.18 (the exponential kernel).
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainSerializer, Strict, model_validator
from pydantic_core import from_json

from countperf.documents import Part
from countperf.models.breakdown import CORRECTION
from countperf.models.definition import Unread
from countperf.models.function import ColumnKey
from countperf.models.predictions import Quantity, Verdict

_COUNT_SHARE = 4.0
"""Scale of the distance of counts relative to the distance of shares, in median distances."""

_AT_ONCE = 256
_CLOSE = 1e-4
_NAMED = 3
_MOST_BYTES = 1 << 28

Array = NDArray[np.float64]
_LogFactor = Callable[[Array, Array], Quantity]


def pack(content: Any) -> str:
    """Return lists of numbers or names as text; `unpack` returns the same."""
    text = json.dumps(content, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")


def unpack(content: Any) -> Any:
    """Return what a text has; `ValueError` if it is damaged."""
    if not isinstance(content, str):
        return content
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(base64.b64decode(content, validate=True), _MOST_BYTES)
        if not unpacker.eof:
            raise ValueError("they are cut off")
        return from_json(text, allow_inf_nan=False)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise ValueError(f"packed numbers of a damaged document: {error}") from error


_LISTS = Strict(strict=False)  # are tuples, too
_READ = BeforeValidator(unpack)
_WRITTEN = PlainSerializer(pack, return_type=str, when_used="json")
Names = Annotated[tuple[str, ...], _LISTS, _READ, _WRITTEN]
Floats = Annotated[tuple[float, ...], _LISTS, _READ, _WRITTEN]
FloatRows = Annotated[tuple[Annotated[tuple[float, ...], _LISTS], ...], _LISTS, _READ, _WRITTEN]


class Correction(Part):
    r"""Measured kernels, and what each says of kernels like it."""

    kernels: Names = Field(min_length=1)  # their names
    roots: FloatRows  # for each kernel and weight
    logs: FloatRows
    coefficients: Floats  # for each kernel, :math:`\alpha_i`, natural logarithms
    scale: float = Field(gt=0)  # median squared distance of `logs` over pairs of kernels
    factor: Unread = Field(default=(), exclude=True)
    uncorrected_factor: Unread = Field(default=(), exclude=True)

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

    def of_columns(self, columns: Sequence[int] | NDArray[np.intp]) -> _LogFactor:
        """Return the logarithm of the correction as a function of what a kernel has in columns."""
        width = len(self._axes) // 2
        positions = [*columns, *(width + column for column in columns)]
        axes, alpha = self._axes[positions], np.array(self.coefficients)
        rest = (np.delete(self._axes, positions, axis=0) ** 2).sum(axis=0)
        squares = (axes**2).sum(axis=0)

        def log_factor(roots: Array, logs: Array) -> Quantity:
            points = as_points(roots, logs, self.scale)
            if points.ndim == 1:  # not by BLAS, whose threads would wait for each other
                products = np.einsum("i,ij->j", points, axes)
                apart = _square_distances(points, axes, squares, products) + rest
                return float(np.exp(-np.sqrt(apart)) @ alpha)
            rows = points.reshape(len(points), math.prod(points.shape[1:])).T
            log_factors = [
                np.exp(-np.sqrt(_square_distances(some, axes, squares, some @ axes) + rest)) @ alpha
                for some in np.split(rows, range(_AT_ONCE, len(rows), _AT_ONCE))
            ]
            return np.concatenate(log_factors).reshape(points.shape[1:])

        return log_factor

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
    columns: Sequence[ColumnKey], values: Array, scaled: Array, unknowns: Sequence[float] | Array
) -> tuple[Array, Array]:
    """Return a measure of likeness: roots of shares of time, and logarithms of counts."""
    sizes = np.abs((np.asarray(unknowns, np.float64) * scaled.T).T)
    whole = sizes.sum(axis=0)
    # the weight of groups, by whose number counts are divided
    groups = next((i for i, (_, feature) in enumerate(columns) if feature == "groups"), None)
    number = 1.0 if groups is None else np.maximum(values[groups], 1.0)
    roots = np.sqrt(sizes / np.where(whole > 0, whole, 1.0))
    return roots, np.log1p(np.maximum(values, 0.0) / number)


def as_points(roots: Array, logs: Array, scale: float) -> Array:
    """Put both parts of profiles into one space, shape (2 * n_columns, *shape)."""
    return np.concatenate([roots, logs / np.sqrt(_COUNT_SHARE * scale)])


def similarity(points: Array, others: Array) -> Array:
    """Return the covariance of kernels, shape (n_points, n_others), from points as rows."""
    squares = (others**2).sum(axis=1)
    return np.exp(-np.sqrt(_square_distances(points, others.T, squares, points @ others.T)))


def _square_distances(points: Array, others: Array, squares: Array, products: Array) -> Array:
    """Return the squared distances of points, shape (..., n_axes), from others, as columns."""
    squared_distances = squares - 2.0 * products
    squared_distances += np.einsum("...i,...i->...", points, points)[..., np.newaxis]
    close = np.nonzero(
        squared_distances < _CLOSE * squares
    )  # where little is left of large numbers
    squared_distances[close] = ((points[close[:-1]] - others.T[close[-1]]) ** 2).sum(axis=-1)
    return squared_distances
