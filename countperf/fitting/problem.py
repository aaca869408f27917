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
from countperf.models.terms import Parameter

_FLOOR = 1e-4
"""Below this share of the measured time, the logarithm goes on as a straight line: a fit may pass
through times that are not positive, and not end there."""

_SEED = 20160713
_LIFT = 0.03
_SPREAD = 0.7
_STEEPER = (1.0, 0.5, 3.0)


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
    """Residuals of a design and their derivatives, in scaled unknowns."""

    def __init__(self, design: Design, recipe: Recipe) -> None:
        self.design = design
        self.recipe = recipe
        self.function = design.function
        self.values = design.counts.T
        self.row_weights = row_weights(design, recipe.model_error)
        self.neutral = self._neutral()
        self.scale = self._scale()

    @property
    def _declared(self) -> list[Parameter]:
        return list(self.function.model.all_parameters.values())

    def residuals(self, scaled: Vector) -> Vector:
        """Return the residuals, each times what its row counts for."""
        ratio = self._times(scaled / self.scale) / self.design.times_s
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
        """Return the derivatives of the residuals, shape (n_cases, n_unknowns)."""
        relative = self.relative_gradient(scaled / self.scale) / self.scale
        relative = relative * self.row_weights[:, np.newaxis]
        if self.recipe.residual == "relative":
            return -relative
        ratio = self._times(scaled / self.scale) / self.design.times_s
        return relative / np.maximum(ratio, _FLOOR)[:, np.newaxis]

    def relative_gradient(self, unknowns: Vector) -> Matrix:
        """Return derivatives of predicted over measured times, shape (n_cases, n_unknowns)."""
        gradient = self.function.gradient(self.values, self.design.variables, unknowns)
        return (gradient / self.design.times_s).T

    def _times(self, unknowns: Vector) -> Vector:
        return self.function.times(self.values, self.design.variables, unknowns)

    def _neutral(self) -> Vector:
        """Return unknowns at which an overlap hides nothing: its sharpness at its bound."""
        values: list[float] = [0.0] * len(self.function.columns)
        for name, parameter in self.function.model.all_parameters.items():
            if name in self.function.model.formula.shapes and parameter.lower is not None:
                values.append(parameter.lower)
            else:
                values.append(parameter.start or 0.0)
        return np.array(values, np.float64)

    def _scale(self) -> Vector:
        """Return what makes one unit of each unknown contribute alike."""
        size = _typical_sizes(self.relative_gradient(self.neutral))
        usable = np.isfinite(size) & (size > 0) & ~self.function.shapes
        declared = [parameter.start or 0.0 for parameter in self._declared]
        starts = np.abs([0.0] * len(self.function.columns) + declared)
        typical = np.where(starts > 0, 1.0 / np.where(starts > 0, starts, 1.0), 1.0)
        return np.where(usable, size, typical)

    def starts(self) -> Iterator[Vector]:
        """Return where to begin, in scaled unknowns, the best guess first."""
        low, high = self.function.lower * self.scale, self.function.upper * self.scale
        linear = self._linear_start()
        declared = [parameter.start for parameter in self._declared]
        columns = len(self.function.columns)
        costs = ~self.function.shapes
        positive = linear[costs & (linear > 0)]
        lift = _LIFT * float(np.median(positive)) if positive.size else _LIFT
        random = np.random.default_rng(_SEED)
        for i in range(self.recipe.starts):
            begin = np.where(costs & (np.abs(linear) < lift), lift, linear)
            for place, start in enumerate(declared, columns):
                if start is None:
                    continue
                factor = _STEEPER[i % len(_STEEPER)] if self.function.shapes[place] else 1.0
                begin[place] = start * factor * self.scale[place]
            if i >= len(_STEEPER) or (i > 0 and not np.any(self.function.shapes)):
                begin[costs] *= np.exp(random.normal(0.0, _SPREAD, int(costs.sum())))
            yield _inside(begin, low, high)

    def _linear_start(self) -> Vector:
        """Fit the linearisation about the neutral point, within the bounds, at least zero."""
        gradient = self.relative_gradient(self.neutral)
        costs = np.flatnonzero(~self.function.shapes)
        usable = [
            i for i in costs if np.all(np.isfinite(gradient[:, i])) and np.any(gradient[:, i] != 0)
        ]
        found = self.neutral * self.scale
        if not usable:
            return found
        offset = self._times(self.neutral) / self.design.times_s
        offset = offset - gradient[:, usable] @ self.neutral[usable]
        target = 1.0 - np.where(np.isfinite(offset), offset, 0.0)
        scale = self.scale[usable]
        matrix = gradient[:, usable] / scale
        present = np.count_nonzero(matrix, axis=0)
        possible = np.all(np.abs(matrix) * np.sqrt(present) <= _MOST_OF_LARGE, axis=1)
        try:
            found[usable] = bounded_least_squares(
                matrix[possible],
                target[possible],
                np.maximum(self.function.lower[usable], 0.0) * scale,
                self.function.upper[usable] * scale,
            )
        except FitError:
            found[usable] = 1.0
        return found


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
