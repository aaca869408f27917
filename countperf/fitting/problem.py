r"""Residuals of a fit and their derivatives, scaled unknowns, and places to begin.

Minimised is :math:`\sum_j \rho(r_j^2)` with residuals :math:`r_j = 1 - p_j / m_j` of predicted and
measured times, or :math:`\log(p_j / m_j)`, and SciPy's robust losses :math:`\rho`. Unknowns are
scaled by what they contribute.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np

from countperf.errors import FitError, ParameterError
from countperf.fitting.design import Design, row_weights
from countperf.fitting.solve import Matrix, Vector, bounded_least_squares
from countperf.models.definition import Loss, Residual

_FLOOR = 1e-4
"""Below this share of the measured time, the logarithm goes on as a straight line: a fit may pass
through times that are not positive, and not end there."""

_SEED = 20160713
_LIFT = 0.03
_SPREAD = 0.7


_LARGE = 0.9
_MOST_OF_LARGE = 1e5
"""No device does so many times more of anything in a second than in nine of ten cases that have it:
counts of such cases are wrong, and they do not say where a fit begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Options of a fit: residual, loss, bounds."""

    residual: Residual = "relative"  # as in `ModelDefinition`
    loss: Loss = "linear"
    loss_scale: float = 0.1
    starts: int = 5  # from how many places a fit that is not linear begins
    max_evaluations: int = 1000  # after how many evaluations from one place it gives up
    tolerance: float = 1e-9  # relative change of cost, unknowns and gradient that ends it
    model_error: float | None = None  # as for `countperf.fitting.design.row_weights`

    def __post_init__(self) -> None:
        for name, kinds in (("residual", Residual), ("loss", Loss)):
            found, known = getattr(self, name), get_args(kinds)
            if found not in known:
                message = f"{name} {found!r} is none of {', '.join(known)}"
                raise ParameterError(message, parameter=name)
        if not 0 < self.loss_scale < math.inf:
            raise ParameterError(
                f"loss_scale {self.loss_scale:g} is the size of no residual: give a number above 0,"
                " such as 0.1",
                parameter="loss_scale",
            )

    def cost(self, residuals: Vector) -> float:
        """Return half the sum of the losses of residuals."""
        squares = (residuals / self.loss_scale) ** 2
        if self.loss == "soft_l1":
            losses = 2.0 * (np.sqrt(1.0 + squares) - 1.0)
        elif self.loss == "huber":
            losses = np.where(squares <= 1.0, squares, 2.0 * np.sqrt(squares) - 1.0)
        else:
            losses = squares
        return float(0.5 * self.loss_scale**2 * np.sum(losses))

    def loss_weights(self, residuals: Vector) -> Vector:
        """Return the weight that the loss gives each residual."""
        squares = (residuals / self.loss_scale) ** 2
        if self.loss == "soft_l1":
            return 1.0 / np.sqrt(1.0 + squares)
        if self.loss == "huber":
            return np.where(squares <= 1.0, 1.0, 1.0 / np.sqrt(np.maximum(squares, 1.0)))
        return np.ones_like(residuals)


class Problem:
    """Residuals of a design and their derivatives, in scaled weights."""

    def __init__(self, design: Design, recipe: Recipe) -> None:
        self.recipe = recipe
        self.row_weights = row_weights(design, recipe.model_error)
        self.relative = design.relative  # predicted over measured times by weights
        if not np.all(np.isfinite(self.relative)):
            raise FitError(
                "a term has no finite value for some case: a derived feature divides by zero, or"
                " takes the logarithm of what is not positive"
            )
        self.scale = _typical_sizes(self.relative)  # one unit of each weight contributes alike
        self.matrix = self.relative / self.scale
        self.low, self.high = design.function.lower * self.scale, design.function.upper * self.scale

    def residuals(self, scaled: Vector) -> Vector:
        """Return the residuals, each times what its row counts for."""
        ratio = self.matrix @ scaled
        if self.recipe.residual == "relative":
            return self.row_weights * (1.0 - ratio)
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.row_weights * np.where(
                ratio >= _FLOOR,
                np.log(np.maximum(ratio, _FLOOR)),
                np.log(_FLOOR) + ratio / _FLOOR - 1.0,
            )

    def cost(self, scaled: Vector) -> float:
        """Return what a fit makes small: half the sum of the losses of the residuals."""
        return self.recipe.cost(self.residuals(scaled))

    def jacobian(self, scaled: Vector) -> Matrix:
        """Return the derivatives of the residuals, shape (n_cases, n_weights)."""
        if self.recipe.residual == "relative":
            return -self.matrix * self.row_weights[:, np.newaxis]
        factors = self.row_weights / np.maximum(self.matrix @ scaled, _FLOOR)
        return self.matrix * factors[:, np.newaxis]

    def starts(self) -> Iterator[Vector]:
        """Return where to begin, in scaled weights, the best guess first."""
        linear = self._linear_start()
        positive = linear[linear > 0]
        lift = _LIFT * float(np.median(positive)) if positive.size else _LIFT
        random = np.random.default_rng(_SEED)
        for i in range(self.recipe.starts):
            begin = np.where(np.abs(linear) < lift, lift, linear)
            if i > 0:
                begin *= np.exp(random.normal(0.0, _SPREAD, begin.size))
            yield _inside(begin, self.low, self.high)

    def _linear_start(self) -> Vector:
        """Fit relative residuals within the bounds, at least zero."""
        present = np.count_nonzero(self.matrix, axis=0)
        possible = np.all(np.abs(self.matrix) * np.sqrt(present) <= _MOST_OF_LARGE, axis=1)
        try:
            return bounded_least_squares(
                self.matrix[possible],
                np.ones(int(possible.sum())),
                np.maximum(self.low, 0.0),
                self.high,
            )
        except FitError:
            return np.ones_like(self.scale)


def _typical_sizes(matrix: Matrix) -> Vector:
    """Return the norm of each column, as if all its entries that are not zero were large ones.

    Single cases with counts that cannot be (1e9 times too many) would make the norm itself theirs:
    then the weight at which all others take their times is so large a number that the least damping
    and the penalty of `countperf.fitting.solve` keep fits from it, wherever they begin.
    """
    sizes = np.zeros(matrix.shape[1])
    for place, column in enumerate(np.abs(matrix).T):
        present = column[column > 0]
        if present.size:
            sizes[place] = np.quantile(present, _LARGE) * math.sqrt(present.size)
    return sizes


def _inside(begin: Vector, low: Vector, high: Vector) -> Vector:
    room = np.where(np.isfinite(high - low), high - low, np.inf)
    margin = np.minimum(1e-3 * np.maximum(np.abs(begin), 1e-3), 0.1 * room)
    return np.clip(begin, low + margin, high - margin)
