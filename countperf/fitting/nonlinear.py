r"""Fits of models that are not linear in their unknowns, or that have a robust loss or bounds.

Minimised is :math:`\sum_j \rho(r_j^2)` with residuals :math:`r_j = 1 - p_j / m_j` of predicted and
measured times, or :math:`\log(p_j / m_j)`, and SciPy's robust losses :math:`\rho`. Unknowns are
scaled by what they contribute.

The method is that of Levenberg and Marquardt within bounds. Each step is a linear least-squares
problem within the bounds: the residuals' linearisation by the analytic Jacobian, each row times the
root of the weight that the loss gives it. It is reduced to its triangular factor and solved by an
active-set method, so that weights that the measurements drive to zero are exactly zero after one
step. (In logarithms of weights, `scipy.optimize.least_squares` takes eight times as long on the
shipped structural model, and ends above the minimum, because such weights only approach zero.)
Where a step would increase the cost, it is damped until the cost falls; a stationary point is where
no damped step does. Models that are not linear in the unknowns begin at several places, of which
the best end counts: the bounded linear fit of the model's linearisation, with several values of the
shapes, and seeded random multiples of it.

Source: Marquardt (1963), doi:10.1137/0111030; weights of robust losses: Holland and Welsch (1977),
doi:10.1080/03610927708827533.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from countperf.errors import FitError, FitNotConvergedError, ParameterError
from countperf.fitting.design import Design, row_weights
from countperf.fitting.solve import (
    RANK_TOLERANCE,
    Matrix,
    Solution,
    Vector,
    bounded_least_squares,
    right_singular_vectors,
    triangular,
)
from countperf.models.definition import Loss, Residual
from countperf.models.terms import Parameter

_FLOOR = 1e-4
"""Below this share of the measured time, the logarithm goes on as a straight line: a fit may pass
through times that are not positive, and not end there."""

_SEED = 20160713
_LIFT = 0.03
_SPREAD = 0.7
_STEEPER = (1.0, 0.5, 3.0)
_AT_BOUND = 1e-7
_DAMPING_FACTOR = 10.0
_LEAST_DAMPING, _MOST_DAMPING = 1e-6, 1e6
"""Damping rows are so many times the squared norm of their column; less than the least is none."""
_SMALL_GAINS = 3
"""After so many damped steps in a row that gain less than the tolerance, the fit has converged."""
_LEAST_SIZE = 1e-3
"""Columns that are smaller, relative to the largest, are damped as if they were that large."""
_AGREEING = 1e-4
_LARGE = 0.9
_MOST_OF_LARGE = 1e5
"""No device does so many times more of anything in a second than in nine of ten cases that have it:
counts of such cases are wrong, and they do not say where a fit begins."""
_AS_GOOD = 1e-6
"""Costs that differ by less are the same, and then an end that converged is preferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Options of a fit: residual, loss, bounds.

    Attributes
    ----------
    residual, loss, loss_scale
        As in `ModelDefinition`.
    starts : int
        From how many places a fit that is not linear begins.
    max_evaluations : int
        After how many evaluations from one place it gives up.
    tolerance : float
        Relative change of cost, unknowns and gradient that ends it.
    model_error : float or None
        As for `countperf.fitting.design.row_weights`.

    Raises
    ------
    ParameterError
        There is no such residual or loss, or the loss scale is not positive and finite.
    """

    residual: Residual = "relative"
    loss: Loss = "linear"
    loss_scale: float = 0.1
    starts: int = 5
    max_evaluations: int = 1000
    tolerance: float = 1e-9
    model_error: float | None = None

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NonlinearSolution:
    """The end of a fit.

    Attributes
    ----------
    solution : Solution
        Weights and parameters, residuals as minimised.
    converged : bool
        Whether the solver met its tolerances.
    message : str
        What it says.
    cost : float
        Half the sum of the losses.
    ends : tuple of float
        The cost from each start, best first.
    """

    solution: Solution
    converged: bool
    message: str
    cost: float
    ends: tuple[float, ...]


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
        return _cost(self.residuals(scaled), self.recipe)

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


def minimise(problem: Problem, near: Vector | None = None) -> NonlinearSolution:
    """Fit from several starts, and return the best end.

    Robust and logarithmic fits of sums rarely end anywhere but at the best place, so that they
    begin anew only until the two best ends agree.

    Parameters
    ----------
    problem : Problem
        What to fit.
    near : ndarray, shape (n_unknowns,), optional
        Unknowns close to the solution: the only start.

    Raises
    ------
    FitError
        The model has no finite value at any start.
    """
    low = problem.function.lower * problem.scale
    high = problem.function.upper * problem.scale
    starts: Iterable[Vector] = problem.starts()
    if near is not None:
        starts = (np.clip(near * problem.scale, low, high),)
    ends: list[_End] = []
    for start in starts:
        if np.all(np.isfinite(problem.residuals(start))) and np.all(
            np.isfinite(problem.jacobian(start))
        ):
            ends.append(_minimise_from(problem, start, low, high))
        if problem.function.is_linear and _agree(ends):
            break
    if not ends:
        raise no_finite_value(problem.function.model.expression)
    return _end(problem, ends, low, high)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _End:
    """End of the steps from one start."""

    unknowns: Vector
    cost: float
    gradient: Vector
    converged: bool
    message: str


def _minimise_from(problem: Problem, start: Vector, low: Vector, high: Vector) -> _End:
    """Minimise by bounded linear fits from one start."""
    recipe = problem.recipe
    solved, residuals = start, problem.residuals(start)
    cost = _cost(residuals, recipe)
    damping, small_gains = 0.0, 0
    message, converged = f"it took all its {recipe.max_evaluations} steps", False
    for _ in range(recipe.max_evaluations):
        weights = np.sqrt(_loss_weights(residuals, recipe))
        matrix = problem.jacobian(solved) * weights[:, np.newaxis]
        if not np.all(np.isfinite(matrix)):
            message = "the derivatives are not finite"
            break
        linear = triangular(matrix, matrix @ solved - weights * residuals)
        try:
            ahead = _damped_step(problem, linear, solved, cost, damping, low, high)
        except FitNotConvergedError as error:
            message = str(error)
            break
        if ahead is None:
            message, converged = "no step makes the cost smaller", True
            break
        gain = cost - ahead.cost
        solved, residuals, cost = ahead.unknowns, ahead.residuals, ahead.cost
        damping = ahead.damping / _DAMPING_FACTOR
        damping = 0.0 if damping < _LEAST_DAMPING else damping
        if gain > recipe.tolerance * cost:
            small_gains = 0
            continue
        small_gains, damping = small_gains + 1, 0.0
        if ahead.damping == 0 or small_gains == _SMALL_GAINS:
            message, converged = "the cost changes by less than the tolerance", True
            break
    gradient = problem.jacobian(solved).T @ (_loss_weights(residuals, recipe) * residuals)
    return _End(unknowns=solved, cost=cost, gradient=gradient, converged=converged, message=message)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Step:
    """Unknowns at which the cost is smaller, and how the step to them was damped."""

    unknowns: Vector
    residuals: Vector
    cost: float
    damping: float


def _damped_step(
    problem: Problem,
    linear: tuple[Matrix, Vector],
    solved: Vector,
    cost: float,
    damping: float,
    low: Vector,
    high: Vector,
) -> _Step | None:
    """Find a step that makes the cost smaller, the least damped one; None if there is none."""
    triangle, target = linear
    sizes = np.linalg.norm(triangle, axis=0)
    sizes = np.maximum(sizes, _LEAST_SIZE * sizes.max())
    while damping <= _MOST_DAMPING:
        if damping:
            rows = math.sqrt(damping) * sizes
            matrix = np.vstack([triangle, np.diag(rows)])
            wanted = bounded_least_squares(
                matrix, np.concatenate([target, rows * solved]), low, high
            )
        else:
            wanted = bounded_least_squares(triangle, target, low, high)
        wanted = np.clip(wanted, low, high)
        residuals = problem.residuals(wanted)
        ahead = _cost(residuals, problem.recipe)
        if ahead <= cost:
            return _Step(unknowns=wanted, residuals=residuals, cost=ahead, damping=damping)
        damping = max(damping * _DAMPING_FACTOR, _LEAST_DAMPING)
    return None


def _cost(residuals: Vector, recipe: Recipe) -> float:
    """Return half the sum of the losses."""
    scale = recipe.loss_scale
    squares = (residuals / scale) ** 2
    if recipe.loss == "soft_l1":
        losses = 2.0 * (np.sqrt(1.0 + squares) - 1.0)
    elif recipe.loss == "huber":
        losses = np.where(squares <= 1.0, squares, 2.0 * np.sqrt(squares) - 1.0)
    else:
        losses = squares
    return float(0.5 * scale**2 * np.sum(losses))


def _agree(ends: list[_End]) -> bool:
    """Tell whether the two best of several ends are the same."""
    best = sorted(ends, key=lambda end: end.cost)[:2]
    return len(best) == 2 and best[1].cost <= best[0].cost * (1 + _AGREEING)


def _end(problem: Problem, ends: list[_End], low: Vector, high: Vector) -> NonlinearSolution:
    """Return the best of several ends."""
    ends.sort(key=lambda end: end.cost)
    as_good = [end for end in ends if end.converged and end.cost <= ends[0].cost * (1 + _AS_GOOD)]
    best = as_good[0] if as_good else ends[0]
    snapped, at_bound = _snapped(best.unknowns, best.gradient, low, high)
    return NonlinearSolution(
        solution=_solution(problem, snapped, at_bound),
        converged=best.converged,
        message=best.message,
        cost=best.cost,
        ends=tuple(end.cost for end in ends),
    )


def no_finite_value(expression: str) -> FitError:
    """Return the error about an expression that the cases give no time."""
    return FitError(
        f"the expression {expression!r} has no finite value for some case, wherever the fit could"
        " begin: a division by zero, or the logarithm of what is not positive?"
    )


def _inside(begin: Vector, low: Vector, high: Vector) -> Vector:
    room = np.where(np.isfinite(high - low), high - low, np.inf)
    margin = np.minimum(1e-3 * np.maximum(np.abs(begin), 1e-3), 0.1 * room)
    return np.clip(begin, low + margin, high - margin)


def _snapped(
    solved: Vector, gradient: Vector, low: Vector, high: Vector
) -> tuple[Vector, NDArray[np.bool_]]:
    """Put unknowns that press against a bound on it: the solver stays inside."""
    near = _AT_BOUND * max(float(np.abs(solved).max(initial=0.0)), 1e-30)
    at_low = (solved - low <= near) & (gradient >= 0)
    at_high = (high - solved <= near) & (gradient <= 0)
    return np.where(at_low, low, np.where(at_high, high, solved)), at_low | at_high


def _solution(problem: Problem, scaled: Vector, at_bound: NDArray[np.bool_]) -> Solution:
    r"""Return the fit with its covariance.

    :math:`s^2 (J^T W J)^+` over the unknowns that are not at a bound, with the weights :math:`W`
    that the loss gives each residual, and :math:`s^2` the weighted sum of squares over the degrees
    of freedom: as if residuals beyond the loss scale were of lesser weight.
    """
    residuals = problem.residuals(scaled)
    jacobian = problem.jacobian(scaled)
    weights = _loss_weights(residuals, problem.recipe)
    free = np.flatnonzero(~at_bound)
    weighted = jacobian[:, free] * np.sqrt(weights)[:, np.newaxis]
    norms = np.linalg.norm(weighted, axis=0)
    seen = norms > 0
    values, right = right_singular_vectors(weighted[:, seen] / norms[seen])
    right = right[: values.size]
    kept = values > RANK_TOLERANCE * values.max(initial=0.0)
    rank = int(np.count_nonzero(kept))
    freedom = max(residuals.size - rank, 0)
    covariance = None
    if freedom:
        inverse = (right[kept].T / values[kept] ** 2) @ right[kept]
        variance = float(np.sum(weights * residuals**2)) / freedom
        covariance = np.zeros((scaled.size, scaled.size))
        members = free[seen]
        outer = np.outer(norms[seen], norms[seen])
        covariance[np.ix_(members, members)] = variance * inverse / outer
        covariance /= np.outer(problem.scale, problem.scale)
    return Solution(
        coefficients=scaled / problem.scale,
        covariance=covariance,
        residuals=residuals,
        rank=rank,
        degrees_of_freedom=freedom,
        at_bound=at_bound,
    )


def _loss_weights(residuals: Vector, recipe: Recipe) -> Vector:
    squares = (residuals / recipe.loss_scale) ** 2
    if recipe.loss == "soft_l1":
        return 1.0 / np.sqrt(1.0 + squares)
    if recipe.loss == "huber":
        return np.where(squares <= 1.0, 1.0, 1.0 / np.sqrt(np.maximum(squares, 1.0)))
    return np.ones_like(residuals)
