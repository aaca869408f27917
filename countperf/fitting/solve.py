r"""Linear least squares for columns of very different size.

Columns are divided by their Euclidean norm before solving, so that rank and condition do not depend
on the units of the properties. Where the matrix has no full rank, the answer is the one of smallest
norm in those scaled columns: it shares the cost among properties that always occur together, in
proportion to their columns. With coefficients kept within bounds, the same choice is approached by
a penalty of `_PENALTY` times the largest singular value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.errors import FitError, FitNotConvergedError

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

RANK_TOLERANCE = 1e-10
"""Singular values below this share of the largest one count as zero: counts are exact integers,
so that true dependences come out near 1e-16, and nothing measured enters the columns but a factor
per row."""

_PENALTY = 1e-7
_NNLS_STEPS = 30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution(ShortRepr):
    """A least-squares solution."""

    coefficients: Vector  # the minimiser
    covariance: Matrix | None  # of the coefficients, from the scatter of the residuals
    residuals: Vector  # target minus fit
    rank: int  # of the columns that are not at a bound
    degrees_of_freedom: int
    at_bound: NDArray[np.bool_]  # coefficients held at a bound

    @property
    def residual_deviation(self) -> float | None:
        """Standard deviation of the residuals; None without degrees of freedom."""
        if self.degrees_of_freedom == 0:
            return None
        return float(np.sqrt(self.residuals @ self.residuals / self.degrees_of_freedom))


def column_norms(matrix: Matrix) -> Vector:
    """Return the Euclidean norm of each column; raise `FitError` if one is zero or not finite."""
    # dividing by the largest entry first keeps squares of counts near 1e200 from overflowing
    largest = np.abs(matrix).max(axis=0, initial=0.0)
    if not np.all(np.isfinite(largest)) or np.any(largest == 0):
        raise FitError("a column of the design matrix is zero or not finite")
    return largest * np.linalg.norm(matrix / largest, axis=0)


def least_squares(
    matrix: Matrix,
    target: Vector,
    *,
    nonnegative: bool = False,
    lower: Vector | None = None,
    upper: Vector | None = None,
) -> Solution:
    """Minimise the Euclidean norm of ``target - matrix @ coefficients``."""
    if matrix.shape[1] == 0:
        raise FitError("the design matrix has no columns")
    scale = column_norms(matrix)
    scaled = matrix / scale
    low = np.full(scale.size, -np.inf) if lower is None else lower * scale
    if nonnegative:
        low = np.maximum(low, 0.0)
    high = np.full(scale.size, np.inf) if upper is None else upper * scale
    if np.any(np.isfinite(low) | np.isfinite(high)):
        solved = _bounded(scaled, target, low, high)
        at_bound = (solved == low) | (solved == high)
    else:
        inverse, _ = _pseudo_inverse(scaled)
        solved = inverse @ target
        solved += inverse @ (target - scaled @ solved)  # one step of refinement
        at_bound = np.zeros(scale.size, dtype=np.bool_)
    residuals = target - scaled @ solved
    free = np.flatnonzero(~at_bound)
    inverse, rank = _pseudo_inverse(scaled[:, free])
    freedom = max(target.size - rank, 0)
    covariance = None
    if freedom > 0:
        covariance = np.zeros((scale.size, scale.size))
        variance = float(residuals @ residuals) / freedom
        covariance[np.ix_(free, free)] = variance * (inverse @ inverse.T)
        covariance /= np.outer(scale, scale)
    return Solution(
        coefficients=solved / scale,
        covariance=covariance,
        residuals=residuals,
        rank=rank,
        degrees_of_freedom=freedom,
        at_bound=at_bound,
    )


def triangular(matrix: Matrix, target: Vector) -> tuple[Matrix, Vector]:
    """Reduce a tall least-squares problem to one with as many rows as columns.

    ``|matrix @ x - target|`` and ``|triangle @ x - reduced|`` differ by a constant in their
    squares, whatever ``x`` is, so that both have the same solution within any bounds.
    """
    rows, columns = matrix.shape
    if rows <= columns:
        return matrix, target
    factor = np.asarray(np.linalg.qr(np.column_stack([matrix, target]), mode="r"), np.float64)
    return factor[:columns, :columns], factor[:columns, columns]


def bounded_least_squares(matrix: Matrix, target: Vector, low: Vector, high: Vector) -> Vector:
    """Minimise the norm of ``target - matrix @ coefficients`` within bounds, quickly.

    Columns have to be of about the same size already. A tall matrix is reduced to its triangular
    factor first. Where all coefficients have a lower bound and none exceeds its upper one, that is
    the active-set method of Lawson and Hanson (`scipy.optimize.nnls`).
    """
    from scipy.optimize import nnls

    matrix, target = triangular(matrix, target)
    if not np.all(np.isfinite(low)):
        return _bounded(matrix, target, low, high)
    columns = matrix.shape[1]
    penalty = _PENALTY * float(np.linalg.norm(matrix)) * np.eye(columns)
    try:
        found = (
            low
            + nnls(
                np.vstack([matrix, penalty]),
                np.concatenate([target - matrix @ low, np.zeros(columns)]),
                maxiter=_NNLS_STEPS * columns,
            )[0]
        )
    except RuntimeError as error:
        raise FitNotConvergedError(f"nonnegative least squares gave up: {error}") from error
    return found if np.all(found <= high) else _bounded(matrix, target, low, high)


def right_singular_vectors(matrix: Matrix) -> tuple[Vector, Matrix]:
    """Return the singular values of a matrix, and all its right singular vectors, row by row.

    Of a tall matrix they are those of its triangular factor, which takes far less time.
    """
    if matrix.shape[0] > matrix.shape[1]:
        matrix = np.asarray(np.linalg.qr(matrix, mode="r"), np.float64)
    _, values, right = np.linalg.svd(matrix, full_matrices=True)
    return values, right


def _pseudo_inverse(scaled: Matrix) -> tuple[Matrix, int]:
    """Return the pseudo-inverse and the numerical rank."""
    left, values, right = np.linalg.svd(scaled, full_matrices=False)
    rank = int(np.count_nonzero(values > RANK_TOLERANCE * values.max(initial=0.0)))
    inverse: Matrix = (right[:rank].T / values[:rank]) @ left[:, :rank].T
    return inverse, rank


def _bounded(scaled: Matrix, target: Vector, low: Vector, high: Vector) -> Vector:
    from scipy.optimize import lsq_linear

    scaled, target = triangular(scaled, target)
    columns = scaled.shape[1]
    matrix, wanted = scaled, target
    if _pseudo_inverse(scaled)[1] < columns:
        penalty = _PENALTY * np.linalg.norm(scaled, 2) * np.eye(columns)
        matrix, wanted = np.vstack([scaled, penalty]), np.concatenate([target, np.zeros(columns)])
    found = lsq_linear(
        matrix, wanted, bounds=(low, high), method="bvls", tol=1e-14, max_iter=20 * columns
    )
    if not found.success:
        message = f"bounded least squares gave up: {found.message}; fit without the bounds"
        raise FitNotConvergedError(message)
    return np.where(found.active_mask == 0, found.x, np.where(found.active_mask < 0, low, high))
