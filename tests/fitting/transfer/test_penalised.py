"""Fits with a prior: what they minimise, and what becomes of weights that no case tells of."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from countperf.fitting.design import Design, build_design
from countperf.fitting.estimate import estimate_design
from countperf.fitting.solve import LogPrior
from countperf.fitting.transfer.calibrated import TransferFit, prior_recipe
from tests.fitting.transfer.builders import COLUMNS, MODEL, WEIGHTS, case, random_cases

TRUE = np.log([WEIGHTS[feature] for _, feature in COLUMNS])


def _prior(spread: float = 0.5, off: float = 0.3) -> LogPrior:
    covariance = np.diag(np.full(4, spread**2)) + 0.04
    return LogPrior(mean=TRUE + off * np.array([1.0, -1.0, 1.0, -1.0]), covariance=covariance)


LOSS_SCALE = 0.3


def fit_with_prior(design: Design, prior: LogPrior, *, error: float) -> TransferFit:
    found = estimate_design(design, prior_recipe(error), prior=prior)
    return TransferFit(estimate=found, prior=prior, error=error)


def test_the_minimum_is_that_of_a_general_optimizer() -> None:
    design = build_design(random_cases(12, noise=0.4), MODEL)
    prior, error = _prior(), 0.2

    def objective(logs: np.ndarray) -> float:
        total = 0.0
        for counts, time_s in zip(design.counts, design.times_s, strict=True):
            residual = float(np.log(counts @ np.exp(logs) / time_s))
            total += 2 * LOSS_SCALE**2 * (np.sqrt(1 + (residual / LOSS_SCALE) ** 2) - 1)
        away = logs - prior.mean
        return total / error**2 + float(away @ np.linalg.solve(prior.covariance, away))

    fitted = fit_with_prior(design, prior, error=error)
    wanted = minimize(
        objective,
        prior.mean,
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-10, "maxiter": 20000},
    )

    cost = fitted.estimate.solution.cost * 2 / error**2
    assert cost == pytest.approx(float(wanted.fun), rel=1e-6)
    assert fitted.logs == pytest.approx(wanted.x, abs=1e-3)


def test_a_weight_that_no_case_has_stays_at_its_prior() -> None:
    prior = LogPrior(mean=TRUE + 1.0, covariance=np.diag(np.full(4, 0.25)))
    cases = [case(f"a/{n}", {"flop.add.f32": 10_000 * n}) for n in (1, 10, 100)]
    one = case("b/1", {"flop.mul.f32": 1, "gmem.load.32.stride1": 1})
    design = build_design([*cases, one], MODEL)

    fitted = fit_with_prior(design, prior, error=0.1)

    assert fitted.logs[1] == pytest.approx(TRUE[1], abs=0.2)
    assert fitted.logs[2:] == pytest.approx(prior.mean[2:], abs=1e-3)


@pytest.mark.parametrize("number", [1, 2, 3, 40])
def test_a_fit_ends_with_any_number_of_cases(number: int) -> None:
    far = LogPrior(mean=TRUE + 12.0, covariance=np.diag(np.full(4, 9.0)))

    fitted = fit_with_prior(build_design(random_cases(number), MODEL), far, error=0.2)

    assert np.all(np.isfinite(fitted.logs))
    assert np.median(np.abs(fitted.estimate.solution.residuals)) < 0.3


def test_noisy_cases_count_for_less() -> None:
    from dataclasses import replace

    right = [case(f"a/{n}", {"flop.add.f32": 10_000 * n}) for n in (10, 20)]
    wrong = replace(case("b/1", {"flop.add.f32": 150_000}, off=3.0), noise=5.0)
    other = case("c/1", {"flop.mul.f32": 1, "gmem.load.32.stride1": 1})
    design = build_design([*right, wrong, other], MODEL)
    prior = LogPrior(mean=TRUE, covariance=np.diag(np.full(4, 1.0)))

    fitted = fit_with_prior(design, prior, error=0.1)

    assert fitted.logs[1] == pytest.approx(TRUE[1], abs=0.02)


def test_the_covariance_is_the_inverse_curvature() -> None:
    design = build_design(random_cases(30, noise=0.0), MODEL)
    prior = LogPrior(mean=TRUE, covariance=np.diag(np.full(4, 0.3)))

    fitted = fit_with_prior(design, prior, error=0.2)

    slopes = design.counts * np.exp(TRUE)
    slopes = slopes / slopes.sum(axis=1, keepdims=True)
    wanted = np.linalg.inv(slopes.T @ slopes / 0.2**2 + np.linalg.inv(prior.covariance))
    assert fitted.logs == pytest.approx(TRUE, abs=1e-6)
    solution = fitted.estimate.solution
    assert solution.covariance is not None
    of_logs = solution.covariance / np.outer(solution.coefficients, solution.coefficients)
    assert of_logs == pytest.approx(wanted, abs=1e-6)
