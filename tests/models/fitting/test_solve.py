"""The least-squares solver: NIST's certified problems, rational arithmetic, rank, bounds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy.optimize import lsq_linear, nnls

from countperf.models.fitting.solve import Problem as FitProblem
from countperf.models.fitting.solve import (
    Recipe,
    Solution,
    column_norms,
    minimize_within_bounds,
    solve,
    triangular,
)
from tests.models.fitting.nist import PROBLEMS, Problem
from tests.oracles.exact_least_squares import exact_least_squares


def least_squares(
    matrix: NDArray[np.float64], target: NDArray[np.float64], *, nonnegative: bool = False
) -> Solution:
    """Fit with absolute residuals: rows are divided by their target, and count for as much."""
    lower = 0.0 if nonnegative else -np.inf
    relative = matrix / target[:, np.newaxis]
    return solve(FitProblem(relative, Recipe(), row_weights=target, lower=lower))


def _arrays(problem: Problem) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows = [[float(entry) for entry in row] for row in problem.rows]
    return np.array(rows), np.array([float(entry) for entry in problem.target])


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_certified_values_follow_from_the_data_in_rational_arithmetic(problem: Problem) -> None:
    rows = [[Fraction(entry) for entry in row] for row in problem.rows]
    exact = exact_least_squares(rows, [Fraction(entry) for entry in problem.target])
    # 15 certified digits
    assert [float(c) for c in exact.coefficients] == pytest.approx(problem.coefficients, rel=1e-14)
    assert exact.standard_errors == pytest.approx(problem.standard_errors, rel=1e-14)
    assert exact.residual_deviation == pytest.approx(problem.residual_deviation, rel=1e-14)


# Loss of digits is bounded by the condition of the scaled columns: 1e5 (Longley), 1e6 (Wampler),
# squared times the relative size of the residuals (Wampler5).
@pytest.mark.parametrize(
    ("problem", "digits"),
    list(zip(PROBLEMS, (12, 10, 9, 11, 9, 7, 5), strict=True)),
    ids=[problem.name for problem in PROBLEMS],
)
def test_what_is_found_reaches_the_certified_values(problem: Problem, digits: int) -> None:
    solution = least_squares(*_arrays(problem))
    assert solution.rank == len(problem.coefficients)
    assert solution.coefficients == pytest.approx(problem.coefficients, rel=10.0**-digits)
    assert solution.covariance is not None
    if problem.residual_deviation == 0:
        return
    assert np.sqrt(np.diag(solution.covariance)) == pytest.approx(problem.standard_errors, rel=1e-9)
    deviation = np.sqrt(np.sum(solution.residuals**2) / solution.degrees_of_freedom)
    assert deviation == pytest.approx(problem.residual_deviation, rel=1e-11)


_SMALL_INTEGERS = hnp.arrays(np.int64, (7, 3), elements=st.integers(-5, 5))


@given(_SMALL_INTEGERS, hnp.arrays(np.int64, 7, elements=st.integers(-9, 9).filter(bool)))
def test_random_problems_of_full_rank_agree_with_rational_arithmetic(
    matrix: NDArray[np.int64], target: NDArray[np.int64]
) -> None:
    assume(np.linalg.matrix_rank(matrix) == 3)
    solution = least_squares(matrix.astype(float), target.astype(float))
    exact = exact_least_squares(
        [[Fraction(int(entry)) for entry in row] for row in matrix],
        [Fraction(int(entry)) for entry in target],
    )
    assert solution.coefficients == pytest.approx(
        [float(c) for c in exact.coefficients], rel=1e-9, abs=1e-9
    )
    assert solution.covariance is not None
    assert np.sqrt(np.diag(solution.covariance)) == pytest.approx(
        exact.standard_errors, rel=1e-9, abs=1e-9
    )


@given(_SMALL_INTEGERS, st.lists(st.integers(-12, 12), min_size=3, max_size=3))
def test_units_of_columns_change_no_more(matrix: NDArray[np.int64], exponents: list[int]) -> None:
    assume(np.linalg.matrix_rank(matrix) == 3)
    units = 10.0 ** np.array(exponents)
    target = np.arange(1.0, 8.0)
    plain = least_squares(matrix.astype(float), target)
    scaled = least_squares(matrix * units, target)
    assert scaled.rank == plain.rank
    assert scaled.coefficients * units == pytest.approx(plain.coefficients, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_cost_of_inseparable_columns_is_shared_in_proportion(nonnegative: bool) -> None:
    # columns 2 : 1 : 1, and an independent one
    base = np.array([1.0, 2.0, 3.0, 4.0])
    matrix = np.column_stack([2 * base, base, base, np.ones(4)])
    solution = least_squares(matrix, 6 * base + 5, nonnegative=nonnegative)
    assert solution.rank == 2
    # each of the three takes 2 of the 6, whatever its unit
    assert solution.coefficients == pytest.approx([1, 2, 2, 5], rel=1e-6)


def test_few_rows_have_no_covariance_and_the_solution_of_smallest_norm() -> None:
    square, wide = (least_squares(m, m.sum(axis=1)) for m in (np.eye(3), np.ones((1, 2))))
    assert (square.degrees_of_freedom, square.covariance) == (0, None)
    assert (wide.rank, wide.coefficients.tolist()) == (1, pytest.approx([1.0, 1.0]))


@given(
    hnp.arrays(np.float64, (8, 4), elements=st.floats(0.0625, 4, width=16)),
    hnp.arrays(np.float64, 8, elements=st.floats(0.125, 4, width=16)),
)
@example(
    np.full((8, 4), 1.0625) - np.diag([-0.9375, 0, 0.0625, 0.0625], 0)[[0, 2, 3] + 5 * [1]],
    np.full(8, 2.0),
)
@settings(deadline=None)
def test_bounds_agree_with_nnls(matrix: NDArray[np.float64], target: NDArray[np.float64]) -> None:
    condition = np.linalg.cond(matrix)
    assume(condition < 1e3)
    solution = least_squares(matrix, target, nonnegative=True)
    _, residual = nnls(matrix, target)
    # the penalty p = 1e-7 |A|_F leaves p^2 / s_min^2 of the target, and |A|_F <= 2 s_max
    penalized = 4e-14 * condition**2 * np.linalg.norm(target)
    assert np.all(solution.coefficients >= 0)
    assert np.linalg.norm(solution.residuals) == pytest.approx(residual, rel=1e-9, abs=penalized)


@pytest.mark.parametrize("rows", [3, 5, 40], ids=["wide", "square", "tall"])
@pytest.mark.parametrize("lower", [0.0, -0.25, (-np.inf, 0.125, 0.0, -np.inf, 0.5)])
def test_quick_bounds_agree_with_lsq_linear(rows: int, lower: float | tuple[float, ...]) -> None:
    random = np.random.default_rng(rows)
    matrix, target = random.normal(size=(rows, 5)), random.normal(size=rows)
    low = np.broadcast_to(lower, 5)
    solution = minimize_within_bounds(matrix, target, low)
    expected = lsq_linear(matrix, target, bounds=(low, np.inf), method="trf", tol=1e-14)
    assert np.all(solution >= low)
    assert np.linalg.norm(matrix @ solution - target) == pytest.approx(
        np.linalg.norm(matrix @ expected.x - target), abs=1e-6
    )


def test_a_triangle_has_the_squares_of_the_whole_but_for_a_constant() -> None:
    random = np.random.default_rng(2)
    matrix, target = random.normal(size=(30, 4)), random.normal(size=30)
    triangle, reduced = triangular(matrix, target)
    assert triangle.shape == (4, 4)
    whole, small = (
        [np.sum((a @ x - b) ** 2) for x in ([0.0, 0, 0, 0], [1, -2, 3, 0.5])]
        for a, b in ((matrix, target), (triangle, reduced))
    )
    assert whole[1] - whole[0] == pytest.approx(small[1] - small[0], rel=1e-12)


def test_a_coefficient_at_its_bound_says_so_and_has_no_variance() -> None:
    matrix = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    solution = least_squares(matrix, np.array([1.1, -1.0, 0.9]), nonnegative=True)
    assert solution.at_bound.tolist() == [False, True]
    assert solution.coefficients == pytest.approx([1.0, 0.0])
    assert solution.covariance is not None
    assert solution.covariance[1].tolist() == [0.0, 0.0]
    assert solution.covariance[0, 0] > 0


def test_norms_of_huge_columns_do_not_overflow() -> None:
    assert column_norms(np.array([[3e200], [4e200]])) == pytest.approx([5e200])
