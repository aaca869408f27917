r"""The solver of all fits: bounded least squares of residuals, with a prior or without.

Minimised is :math:`\sum_j \rho(r_j^2)` with residuals :math:`r_j = 1 - p_j / m_j` of predicted and
measured times, or :math:`\log(p_j / m_j)`, and SciPy's robust losses :math:`\rho`. A prior adds
:math:`\sigma^2 (u - m)^T K^{-1} (u - m)` for the logarithms :math:`u` of the weights, which are
then the unknowns.

The method is that of Levenberg and Marquardt within bounds; each step is solved by an active-set
method, so that weights that the measurements drive to zero are exactly zero after one step. (In
logarithms of weights, `scipy.optimize.least_squares` takes eight times as long on the shipped
structural model, and ends above the minimum, because such weights only approach zero.)

Source: Marquardt (1963), doi:10.1137/0111030; weights of robust losses: Holland and Welsch (1977),
doi:10.1080/03610927708827533.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from countperf.errors import FitError, FitNotConvergedError
from countperf.models.definition import Loss, Residual
from countperf.text import ShortRepr

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

RANK_TOLERANCE = 1e-10
"""Singular values below this share of the largest one count as zero; true ones are near 1e-16."""

_PENALTY = 1e-7
_NNLS_STEPS = 30
_FLOOR = 1e-4  # below this share of the measured time, the logarithm goes on as a straight line

_SEED = 20160713
_LIFT = 0.03
_SPREAD = 0.7
_LARGE = 0.9
_MOST_OF_LARGE = 1e5
"""Cases with so many times more of anything in a second than others do not say where fits begin."""

_AT_BOUND = 1e-7
_INSIDE = 1e-3
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
_LONGEST = 2.0  # no step changes the logarithm of a weight by more


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Options of a fit."""

    residual: Residual = "relative"  # as in `ModelDefinition`
    loss: Loss = "linear"
    loss_scale: float = 0.1
    starts: int = 5  # from how many places a fit that is not linear begins
    max_evaluations: int = 1000  # after how many evaluations from one place it gives up
    tolerance: float = 1e-9  # relative change of cost, unknowns and gradient that ends it
    model_error: float | None = None  # a row counts for less the more noise its case has beside it


@dataclass(frozen=True, kw_only=True, eq=False)
class LogPrior(ShortRepr):
    """A normal distribution of the logarithms of a model's weights."""

    mean: Vector  # of the logarithms of weights, s per unit
    covariance: Matrix  # positive definite

    @cached_property
    def root(self) -> Matrix:
        """A matrix whose square is the inverse of the covariance."""
        return np.asarray(np.linalg.inv(np.linalg.cholesky(self.covariance)), np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution(ShortRepr):
    """The end of a fit."""

    coefficients: Vector  # the weights
    covariance: Matrix | None  # of the weights; from the scatter of the residuals, or the prior
    residuals: Vector  # as minimised, without those of the prior
    rank: int  # of the columns that are not at a bound
    degrees_of_freedom: int
    at_bound: NDArray[np.bool_]  # weights held at a bound
    converged: bool  # whether the solver met its tolerances
    message: str  # what it says
    cost: float  # half the sum of the losses
    ends: tuple[float, ...]  # the cost from each start, best first


class Problem:
    """Residuals and their derivatives, in scaled weights or, with a prior, in their logarithms."""

    def __init__(
        self,
        relative: Matrix,  # predicted over measured times by weights
        recipe: Recipe,
        *,
        row_weights: Vector | float = 1.0,
        lower: Vector | float = -np.inf,
        prior: LogPrior | None = None,
    ) -> None:
        if not np.all(np.isfinite(relative)):
            raise FitError(
                "a term has no finite value for some case: a derived feature divides by zero, or"
                " takes the logarithm of what is not positive"
            )
        self.recipe, self.prior, self.relative = recipe, prior, relative
        self.row_weights = np.broadcast_to(np.asarray(row_weights, np.float64), len(relative))
        self.scale = np.ones(relative.shape[1])
        self._floor, self._error, self._root = _FLOOR, 1.0, np.zeros((0, len(self.scale)))
        if prior is None:  # one unit of each weight contributes alike
            for position, column in enumerate(np.abs(relative).T):
                if (present := column[column > 0]).size:  # the norm, as if all were large ones
                    large = np.quantile(present, _LARGE)
                    self.scale[position] = large * math.sqrt(present.size)
        self.matrix = relative / self.scale
        self.low = np.broadcast_to(lower, self.scale.shape) * self.scale
        if prior is not None:
            self._floor, self._error, self._root = 1e-300, recipe.model_error or 1.0, prior.root
            with np.errstate(divide="ignore"):
                self.low = np.log(np.maximum(self.low, 0.0))

    def weights(self, unknowns: Vector) -> Vector:
        """Return the weights of unknowns."""
        return unknowns / self.scale if self.prior is None else np.exp(unknowns)

    def unknowns(self, weights: Vector) -> Vector:
        """Return the unknowns of weights."""
        if self.prior is None:
            return weights * self.scale
        with np.errstate(divide="ignore"):
            return np.where(weights > 0, np.log(weights), self.prior.mean)

    def residuals(self, unknowns: Vector) -> Vector:
        """Return the residuals, each times what its row counts for; those of a prior are last."""
        ratio = self.matrix @ (unknowns if self.prior is None else np.exp(unknowns))
        if self.recipe.residual == "relative":
            return self.row_weights * (1.0 - ratio)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            low = self._floor
            line = np.log(low) + ratio / low - 1.0
            logs = np.where(ratio >= low, np.log(np.maximum(ratio, low)), line)
        away = unknowns - (0.0 if self.prior is None else self.prior.mean)
        return np.concatenate([self.row_weights * logs, self._error * (self._root @ away)])

    def jacobian(self, unknowns: Vector) -> Matrix:
        """Return the derivatives of the residuals, shape (n_residuals, n_weights)."""
        if self.recipe.residual == "relative":
            return -self.matrix * self.row_weights[:, np.newaxis]
        slopes = self.matrix if self.prior is None else self.matrix * np.exp(unknowns)
        ratio = self.matrix @ unknowns if self.prior is None else slopes.sum(axis=1)
        rows = slopes * (self.row_weights / np.maximum(ratio, self._floor))[:, np.newaxis]
        return np.concatenate([rows, self._error * self._root])

    def cost(self, residuals: Vector) -> float:
        """Return half the sum of the losses of residuals; those of a prior are squares."""
        number, scale = len(self.matrix), self.recipe.loss_scale
        squares = (residuals[:number] / scale) ** 2
        if self.recipe.loss == "soft_l1":
            squares = 2.0 * (np.sqrt(1.0 + squares) - 1.0)
        own = float(0.5 * scale**2 * np.sum(squares))
        return own + 0.5 * float(np.sum(residuals[number:] ** 2))

    def loss_weights(self, residuals: Vector) -> Vector:
        """Return the weight that the loss gives each residual."""
        weights = np.ones_like(residuals)
        if self.recipe.loss == "soft_l1":
            number = len(self.matrix)
            away = residuals[:number] / self.recipe.loss_scale
            weights[:number] = 1.0 / np.sqrt(1.0 + away**2)
        return weights

    def step(self, triangle: Matrix, target: Vector, unknowns: Vector) -> Vector:
        """Return the unknowns that a linear problem leads to, within the bounds."""
        if self.prior is None:
            step = minimize_within_bounds(triangle, target, self.low)
        else:
            ahead = np.asarray(np.linalg.lstsq(triangle, target, rcond=None)[0], np.float64)
            step = np.clip(ahead, unknowns - _LONGEST, unknowns + _LONGEST)
        return np.maximum(step, self.low)

    def starts(self) -> Iterator[Vector]:
        """Return where to begin, the best guess first."""
        if self.prior is not None:
            yield np.maximum(self.prior.mean, self.low)
            return
        present = np.count_nonzero(self.matrix, axis=0)
        possible = np.all(np.abs(self.matrix) * np.sqrt(present) <= _MOST_OF_LARGE, axis=1)
        try:  # relative residuals, weights of at least zero
            ones = np.ones(int(possible.sum()))
            linear = minimize_within_bounds(self.matrix[possible], ones, np.maximum(self.low, 0.0))
        except FitError:
            linear = np.ones_like(self.scale)
        positive = linear[linear > 0]
        lift = _LIFT * float(np.median(positive)) if positive.size else _LIFT
        random = np.random.default_rng(_SEED)
        for i in range(self.recipe.starts):
            begin = np.where(np.abs(linear) < lift, lift, linear)
            if i > 0:
                begin *= np.exp(random.normal(0.0, _SPREAD, begin.size))
            yield np.maximum(begin, self.low + _INSIDE * np.maximum(np.abs(begin), _INSIDE))


def solve(problem: Problem, near: Vector | None = None) -> Solution:
    """Fit from several starts, or from weights near the solution alone; return the best end."""
    starts: Iterable[Vector] = problem.starts()
    if near is not None:
        starts = (np.maximum(problem.unknowns(near), problem.low),)
    ends: list[_End] = []
    for start in starts:
        ends.append(_minimise_from(problem, start))
        ends.sort(key=lambda end: end.cost)
        if len(ends) > 1 and ends[1].cost <= ends[0].cost * (1 + _AGREEING):
            break
    as_good = [end for end in ends if end.converged and end.cost <= ends[0].cost * (1 + _AS_GOOD)]
    best = as_good[0] if as_good else ends[0]
    return replace(_solution(problem, best), ends=tuple(end.cost for end in ends))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _End:
    unknowns: Vector
    cost: float
    converged: bool
    message: str


def _minimise_from(problem: Problem, start: Vector) -> _End:
    recipe = problem.recipe
    solved, residuals = start, problem.residuals(start)
    cost = problem.cost(residuals)
    damping, small_gains = 0.0, 0
    message, converged = f"it took all its {recipe.max_evaluations} steps", False
    for _ in range(recipe.max_evaluations):
        weights = np.sqrt(problem.loss_weights(residuals))
        matrix = problem.jacobian(solved) * weights[:, np.newaxis]
        if not np.all(np.isfinite(matrix)):
            message = "the derivatives are not finite"
            break
        linear = triangular(matrix, matrix @ solved - weights * residuals)
        try:
            ahead = _find_damped_step(problem, linear, solved, cost, damping)
        except FitNotConvergedError as error:
            message = str(error)
            break
        if ahead is None:
            message, converged = "no step makes the cost smaller", True
            break
        before = cost
        solved, residuals, cost, damped = ahead
        damping = damped / _DAMPING_FACTOR
        damping = 0.0 if damping < _LEAST_DAMPING else damping
        if before - cost > recipe.tolerance * cost:
            small_gains = 0
            continue
        small_gains, damping = small_gains + 1, 0.0
        if damped == 0 or small_gains == _SMALL_GAINS:
            message, converged = "the cost changes by less than the tolerance", True
            break
    return _End(unknowns=solved, cost=cost, converged=converged, message=message)


def _find_damped_step(
    problem: Problem, linear: tuple[Matrix, Vector], solved: Vector, cost: float, damping: float
) -> tuple[Vector, Vector, float, float] | None:
    """Find unknowns, residuals, cost and damping of the least damped step to a smaller cost."""
    triangle, target = linear
    sizes = np.linalg.norm(triangle, axis=0)
    sizes = np.maximum(sizes, _LEAST_SIZE * sizes.max())
    while damping <= _MOST_DAMPING:
        matrix, wanted = triangle, target
        if damping:
            rows = math.sqrt(damping) * sizes
            matrix = np.vstack([triangle, np.diag(rows)])
            wanted = np.concatenate([target, rows * solved])
        damped_step = problem.step(matrix, wanted, solved)
        residuals = problem.residuals(damped_step)
        ahead = problem.cost(residuals)
        if ahead <= cost:
            return damped_step, residuals, ahead, damping
        damping = max(damping * _DAMPING_FACTOR, _LEAST_DAMPING)
    return None


def _solution(problem: Problem, end: _End) -> Solution:
    """Return the fit with its covariance :math:`s^2 (J^T W J)^+` over the unknowns at no bound.

    :math:`W` are the weights of the loss, :math:`s^2` the weighted sum of squares over the degrees
    of freedom; with a prior, :math:`s` is the size of the model's own errors.
    """
    unknowns, low = end.unknowns, problem.low
    at_bound = unknowns <= low
    if problem.prior is None:  # the solver stays inside of bounds that weights press against
        residuals = problem.residuals(unknowns)
        gradient = problem.jacobian(unknowns).T @ (problem.loss_weights(residuals) * residuals)
        near = _AT_BOUND * max(float(np.abs(unknowns).max(initial=0.0)), 1e-30)
        at_bound = (unknowns - low <= near) & (gradient >= 0)
        unknowns = np.where(at_bound, low, unknowns)
    residuals = problem.residuals(unknowns)
    weights = problem.loss_weights(residuals)
    number = len(problem.matrix)
    free = np.flatnonzero(~at_bound)
    weighted = problem.jacobian(unknowns)[:, free] * np.sqrt(weights)[:, np.newaxis]
    norms = np.linalg.norm(weighted, axis=0)
    seen = norms > 0
    values, right = right_singular_vectors(weighted[:, seen] / norms[seen])
    right = right[: values.size]
    kept = values > RANK_TOLERANCE * values.max(initial=0.0)
    rank = int(np.count_nonzero(kept))
    freedom = max(number - rank, 0)
    variance = (problem.recipe.model_error or 1.0) ** 2
    if problem.prior is None and freedom:
        variance = float(np.sum(weights * residuals**2)) / freedom
    solution = problem.weights(unknowns)
    covariance = None
    if freedom or problem.prior is not None:
        inverse = (right[kept].T / values[kept] ** 2) @ right[kept]
        covariance = np.zeros((unknowns.size, unknowns.size))
        members = free[seen]
        outer = np.outer(norms[seen], norms[seen])
        covariance[np.ix_(members, members)] = variance * inverse / outer
        slopes = 1.0 / problem.scale if problem.prior is None else solution
        covariance *= np.outer(slopes, slopes)
    return Solution(
        coefficients=solution,
        covariance=covariance,
        residuals=residuals[:number],
        rank=rank,
        degrees_of_freedom=freedom,
        at_bound=at_bound,
        converged=end.converged,
        message=end.message,
        cost=end.cost,
        ends=(),
    )


def column_norms(matrix: Matrix) -> Vector:
    """Return the Euclidean norm of each column; raise `FitError` if one is zero or not finite."""
    # dividing by the largest entry first keeps squares of counts near 1e200 from overflowing
    largest = np.abs(matrix).max(axis=0, initial=0.0)
    if not np.all(np.isfinite(largest)) or np.any(largest == 0):
        raise FitError("a column of the design matrix is zero or not finite")
    return largest * np.linalg.norm(matrix / largest, axis=0)


def triangular(matrix: Matrix, target: Vector) -> tuple[Matrix, Vector]:
    """Reduce a tall least-squares problem to one with as many rows as columns."""
    rows, columns = matrix.shape
    if rows <= columns:
        return matrix, target
    factor = np.asarray(np.linalg.qr(np.column_stack([matrix, target]), mode="r"), np.float64)
    return factor[:columns, :columns], factor[:columns, columns]


def minimize_within_bounds(matrix: Matrix, target: Vector, low: Vector) -> Vector:
    """Minimise the norm of ``target - matrix @ coefficients`` within lower bounds, quickly.

    Where all coefficients have one, by the active-set method of Lawson and Hanson.
    """
    from scipy.optimize import lsq_linear, nnls

    matrix, target = triangular(matrix, target)
    columns = matrix.shape[1]
    nothing = np.zeros(columns)
    if np.all(np.isfinite(low)):
        penalty = _PENALTY * float(np.linalg.norm(matrix)) * np.eye(columns)
        wanted = np.concatenate([target - matrix @ low, nothing])
        try:
            above = nnls(np.vstack([matrix, penalty]), wanted, maxiter=_NNLS_STEPS * columns)[0]
        except RuntimeError as error:
            raise FitNotConvergedError(f"nonnegative least squares gave up: {error}") from error
        return low + above
    values = np.linalg.svd(matrix, compute_uv=False)
    if np.count_nonzero(values > RANK_TOLERANCE * values.max(initial=0.0)) < columns:
        penalty = _PENALTY * np.linalg.norm(matrix, 2) * np.eye(columns)
        matrix, target = np.vstack([matrix, penalty]), np.concatenate([target, nothing])
    bounded = lsq_linear(
        matrix, target, bounds=(low, np.inf), method="bvls", tol=1e-14, max_iter=20 * columns
    )
    if not bounded.success:
        raise FitNotConvergedError(f"bounded least squares gave up: {bounded.message}")
    return np.where(bounded.active_mask == 0, bounded.x, low)


def right_singular_vectors(matrix: Matrix) -> tuple[Vector, Matrix]:
    """Return the singular values of a matrix, and all its right singular vectors, row by row."""
    if matrix.shape[0] > matrix.shape[1]:
        matrix = np.asarray(np.linalg.qr(matrix, mode="r"), np.float64)
    _, values, right = np.linalg.svd(matrix, full_matrices=True)
    return values, right
