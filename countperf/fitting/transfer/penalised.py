r"""Least squares with a prior on the logarithms of the unknowns, for fits to few cases.

With :math:`u` the logarithms of weights and parameters, :math:`T_i(u)` the time of case :math:`i`
and :math:`t_i` the measured one, the fit makes small

.. math::

   \sum_i \rho\bigl(w_i (\log T_i(u) - \log t_i)\bigr) / \sigma^2
     + (u - m)^T K^{-1} (u - m),

with the prior's mean :math:`m` and covariance :math:`K`
(`countperf.fitting.transfer.prior`), the size :math:`\sigma` of the model's own errors, weights
:math:`w_i = \sigma / \sqrt{\sigma^2 + n_i^2}` for cases of noise :math:`n_i`, and the robust
:math:`\rho(r) = 2 c^2 (\sqrt{1 + (r/c)^2} - 1)`. Each step solves the linear problem about the last
point (Levenberg-Marquardt); :math:`K^{-1}` is positive definite, so that there is always one, and a
step is taken only if it makes the sum smaller. What the cases do not tell stays at its prior.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.fitting.design import Design
from countperf.fitting.solve import Matrix, Vector
from countperf.models.function import ModelFunction

LOSS_SCALE = 0.3
"""Residuals from which on the loss grows slower than squares, as of the structural models."""

_MOST_STEPS = 200
_LONGEST_STEP = 2.0
"""No step changes a weight by more than a factor of exp(2)."""

_TOLERANCE = 1e-7
_DAMPING_FACTOR = 4.0
_MOST_DAMPING = 1e8
_TINY_S = 1e-15


@dataclass(frozen=True, kw_only=True, eq=False)
class LogPrior(ShortRepr):
    """A normal distribution of the logarithms of a model's unknowns."""

    mean: Vector  # of the logarithms of weights (s per unit), then parameters
    covariance: Matrix  # positive definite

    @cached_property
    def precision(self) -> Matrix:
        """The inverse of the covariance."""
        inverse = np.linalg.inv(self.covariance)
        return 0.5 * (inverse + inverse.T)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PenalisedFit(ShortRepr):
    """The end of a fit."""

    logs: Vector  # logarithms of weights and parameters
    covariance: Matrix  # of the logarithms, by the curvature at the end
    # share of the prior's variance that the cases took away: 0 for what stays at its prior
    learnt: Vector
    residuals: Vector  # log(predicted / measured)
    cost: float  # what was made small
    steps: int  # how many steps it took


class Times:
    """Times of cases, and their derivatives, by the logarithms of weights."""

    def __init__(self, design: Design) -> None:
        self._slopes = design.scaled

    def __call__(self, logs: Vector) -> tuple[Vector, Matrix]:
        """Return times, s, and derivatives of their logarithms, shape (n_cases, n_weights)."""
        parts = self._slopes * np.exp(logs)
        times = parts.sum(axis=1) + _TINY_S
        return times, parts / times[:, np.newaxis]


def fit_with_prior(
    design: Design, prior: LogPrior, *, error: float, start: Vector | None = None
) -> PenalisedFit:
    """Fit the unknowns of a design's function, with a prior."""
    times_of = Times(design)
    wanted = np.log(design.times_s)
    weights = error / np.hypot(error, design.noise)
    low, high = _bounds(design.function)
    precision = prior.precision

    def value(logs: Vector) -> tuple[float, Vector, Matrix]:
        times, slopes = times_of(logs)
        residuals = np.log(times) - wanted
        away = logs - prior.mean
        loss = _loss(weights * residuals) / error**2
        return float(loss.sum() + away @ precision @ away), residuals, slopes

    logs = np.clip(prior.mean if start is None else start, low, high)
    cost, residuals, slopes = value(logs)
    damping, steps = 0.0, 0
    while steps < _MOST_STEPS and damping <= _MOST_DAMPING:
        steps += 1
        row = weights**2 * _loss_weights(weights * residuals) / error**2
        curvature = (slopes * row[:, np.newaxis]).T @ slopes + precision
        downhill = -(slopes.T @ (row * residuals) + precision @ (logs - prior.mean))
        damped = curvature + np.diag(damping * np.diag(curvature))
        step = np.clip(np.linalg.solve(damped, downhill), -_LONGEST_STEP, _LONGEST_STEP)
        ahead = np.clip(logs + step, low, high)
        new_cost, new_residuals, new_slopes = value(ahead)
        if not new_cost < cost:
            damping = max(damping * _DAMPING_FACTOR, 1e-3)
            continue
        gain = cost - new_cost
        logs, cost, residuals, slopes = ahead, new_cost, new_residuals, new_slopes
        damping = damping / _DAMPING_FACTOR if damping > 1e-3 else 0.0
        if gain <= _TOLERANCE * cost:
            break
    row = weights**2 * _loss_weights(weights * residuals) / error**2
    curvature = (slopes * row[:, np.newaxis]).T @ slopes + precision
    covariance = np.linalg.inv(curvature)
    return PenalisedFit(
        logs=logs,
        covariance=0.5 * (covariance + covariance.T),
        learnt=1.0 - np.diag(covariance) / np.diag(prior.covariance),
        residuals=residuals,
        cost=cost,
        steps=steps,
    )


def _bounds(function: ModelFunction) -> tuple[Vector, Vector]:
    """Return bounds of the logarithms."""
    with np.errstate(divide="ignore"):
        low, high = np.log(np.maximum(function.lower, 0.0)), np.log(function.upper)
    return low, high


def _loss(residuals: Vector) -> Vector:
    return 2.0 * LOSS_SCALE**2 * (np.sqrt(1.0 + (residuals / LOSS_SCALE) ** 2) - 1.0)


def _loss_weights(residuals: Vector) -> NDArray[np.float64]:
    return 1.0 / np.sqrt(1.0 + (residuals / LOSS_SCALE) ** 2)
