r"""Fits of logarithms of ratios, or with a robust loss.

The method is that of Levenberg and Marquardt within bounds. Each step is a linear least-squares
problem within the bounds: the residuals' linearisation by the analytic Jacobian, each row times the
root of the weight that the loss gives it. It is reduced to its triangular factor and solved by an
active-set method, so that weights that the measurements drive to zero are exactly zero after one
step. (In logarithms of weights, `scipy.optimize.least_squares` takes eight times as long on the
shipped structural model, and ends above the minimum, because such weights only approach zero.)
Where a step would increase the cost, it is damped until the cost falls; a stationary point is where
no damped step does. A fit begins at the bounded linear fit of relative residuals and at seeded
random multiples of it, until the two best ends agree.

Source: Marquardt (1963), doi:10.1137/0111030; weights of robust losses: Holland and Welsch (1977),
doi:10.1080/03610927708827533.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countperf.errors import FitNotConvergedError
from countperf.fitting.problem import Problem
from countperf.fitting.solve import (
    RANK_TOLERANCE,
    Matrix,
    Solution,
    Vector,
    bounded_least_squares,
    right_singular_vectors,
    triangular,
)

_AT_BOUND = 1e-7
_DAMPING_FACTOR = 10.0
_LEAST_DAMPING, _MOST_DAMPING = 1e-6, 1e6
"""Damping rows are so many times the squared norm of their column; less than the least is none."""
_SMALL_GAINS = 3
"""After so many damped steps in a row that gain less than the tolerance, the fit has converged."""
_LEAST_SIZE = 1e-3
"""Columns that are smaller, relative to the largest, are damped as if they were that large."""
_AGREEING = 1e-4
_AS_GOOD = 1e-6
"""Costs that differ by less are the same, and then an end that converged is preferred."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NonlinearSolution:
    """The end of a fit."""

    solution: Solution  # weights and parameters, residuals as minimised
    converged: bool  # whether the solver met its tolerances
    message: str  # what it says
    cost: float  # half the sum of the losses
    ends: tuple[float, ...]  # the cost from each start, best first


def minimise(problem: Problem, near: Vector | None = None) -> NonlinearSolution:
    """Fit from several starts, or from weights near the solution alone; return the best end."""
    low, high = problem.low, problem.high
    starts: Iterable[Vector] = problem.starts()
    if near is not None:
        starts = (np.clip(near * problem.scale, low, high),)
    ends: list[_End] = []
    for start in starts:
        ends.append(_minimise_from(problem, start, low, high))
        if _agree(ends):
            break
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
    cost = recipe.cost(residuals)
    damping, small_gains = 0.0, 0
    message, converged = f"it took all its {recipe.max_evaluations} steps", False
    for _ in range(recipe.max_evaluations):
        weights = np.sqrt(recipe.loss_weights(residuals))
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
    gradient = problem.jacobian(solved).T @ (recipe.loss_weights(residuals) * residuals)
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
        ahead = problem.recipe.cost(residuals)
        if ahead <= cost:
            return _Step(unknowns=wanted, residuals=residuals, cost=ahead, damping=damping)
        damping = max(damping * _DAMPING_FACTOR, _LEAST_DAMPING)
    return None


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
    weights = problem.recipe.loss_weights(residuals)
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
