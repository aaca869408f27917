"""Fits of logarithms and with robust losses: known weights, SciPy as a judge, starts, failures."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from scipy.optimize import least_squares

from countperf.errors import FitError, FitNotConvergedError
from countperf.models.definition import CODE
from countperf.models.fitting.design import Estimate, Observation, build_design, problem_of
from countperf.models.fitting.fit_model import fit, observations_of
from countperf.models.fitting.solve import solve
from countperf.models.shipped import LINEAR
from countperf.models.weights import WeightSet
from tests.models.builders import sum_model
from tests.models.fitting.builders import estimate, made_case, measure, recipe_of
from tests.shipped import FITS, shipped_measurements

LOAD, ADD, LOCAL = "gmem.load.32.stride1", "flop.add.f32", "lmem.load.32"
MODEL = sum_model(
    {"launch": ["launches"], "memory": ["gmem.*.*.*"], "chip": ["flop.*.*", "lmem.*.*"]}
)
TRUTH = {"launches": 4e-6, LOAD: 1e-11, ADD: 3e-12, LOCAL: 2e-12}
ROBUST = {"residual": "log", "loss": "soft_l1", "loss_scale": 0.3}


def _cases(noise: float = 0.0, seed: int = 1) -> list[Observation]:
    random = np.random.default_rng(seed)
    cases: list[Observation] = []
    for i in range(60):
        loads, adds, local = (int(10 ** random.uniform(5, 8)) for _ in range(3))
        counts = {"launches": 1, LOAD: loads, ADD: 4 * adds, LOCAL: local}
        time_s = sum(TRUTH[name] * count for name, count in counts.items())
        off = float(np.exp(noise * random.normal()))
        cases.append(
            made_case(f"c{i}", counts, time_s * off, kernel=f"k{i % 12}", family=f"f{i % 6}")
        )
    return cases


def _values(fitted: Estimate) -> dict[str, float]:
    return dict(zip(fitted.function.keys, fitted.solution.coefficients.tolist(), strict=True))


@pytest.mark.parametrize("residual", ["relative", "log"])
def test_weights_are_recovered_from_exact_times(residual: str) -> None:
    fitted = estimate(_cases(), MODEL, recipe_of(MODEL, residual=residual))

    assert fitted.solution.converged
    assert fitted.diagnosis.rank == 4
    assert _values(fitted) == pytest.approx(TRUTH, rel=1e-5)


def test_standard_errors_equal_the_scatter_of_repeated_fits() -> None:
    recipe = recipe_of(MODEL, residual="log", starts=1)
    fits = [estimate(_cases(0.02, seed), MODEL, recipe).solution for seed in range(40)]

    logs = [np.log(solution.coefficients) for solution in fits]
    claimed = [
        np.sqrt(np.diag(solution.covariance)) / solution.coefficients
        for solution in fits
        if solution.covariance is not None
    ]
    # scatter of another set of kernels each time: 40 fits tell it to 11 %, so 3 of those
    assert len(claimed) == 40
    ratio = np.std(logs, axis=0) / np.mean(claimed, axis=0)
    assert np.all((ratio > 0.6) & (ratio < 1.6)), ratio


def test_a_robust_loss_is_hardly_moved_by_a_few_bad_cases() -> None:
    cases = _cases(0.01)
    bad = [replace(case, time_s=5 * case.time_s) for case in cases[:5]]
    robust = recipe_of(MODEL, residual="log", loss="soft_l1", loss_scale=0.02)

    moved = _values(estimate(bad + cases[5:], MODEL, robust))
    plain = _values(estimate(bad + cases[5:], MODEL, recipe_of(MODEL, residual="log")))

    assert moved == pytest.approx(TRUTH, rel=0.1)
    assert max(abs(plain[name] / value - 1) for name, value in TRUTH.items()) > 0.2


def test_the_jacobian_is_that_of_small_changes() -> None:
    for residual in ("relative", "log"):
        problem = problem_of(build_design(_cases(), MODEL), recipe_of(MODEL, residual=residual))
        at = next(problem.starts())
        jacobian = problem.jacobian(at)
        for i in range(at.size):
            step = 1e-6 * np.eye(at.size)[i] * max(1.0, abs(at[i]))
            change = problem.residuals(at + step) - problem.residuals(at - step)
            assert jacobian[:, i] == pytest.approx(change / (2 * step[i]), rel=1e-6, abs=1e-8)


def test_weights_that_nothing_tells_apart_share_in_proportion_and_are_named() -> None:
    store = "gmem.store.32.stride1"
    cases = [
        replace(case, counts={**case.counts, store: 2 * int(case.counts[LOAD])})
        for case in _cases()
    ]

    fitted = estimate(cases, MODEL, recipe_of(MODEL))

    (group,) = fitted.diagnosis.groups
    assert set(group.features) == {LOAD, store}
    # each of the two columns takes half of the 1e-11 per load
    values = _values(fitted)
    assert (values[LOAD], values[store]) == pytest.approx((5e-12, 2.5e-12), rel=1e-5)


def test_linear_models_end_where_scipy_ends() -> None:
    random = np.random.default_rng(3)
    model = sum_model({"cost": ["launches", "gmem.load.*.*", "flop.*.*", "lmem.*.*"]}, **ROBUST)
    cases = [
        made_case(
            f"c{i}",
            {"launches": 1, LOAD: int(a), ADD: int(b), LOCAL: int(c)},
            (1e-6 + 3e-11 * int(a) + 1e-11 * int(b)) * float(np.exp(random.standard_t(3) * 0.1)),
        )
        for i, (a, b, c) in enumerate(10 ** random.uniform(4, 8, (60, 3)))
    ]

    fitted = estimate(cases, model, recipe_of(model))

    problem = problem_of(build_design(cases, model), recipe_of(model))
    reference = least_squares(
        problem.residuals,
        np.full(4, 1.0),
        bounds=(0.0, np.inf),
        loss="soft_l1",
        f_scale=0.3,
        xtol=1e-12,
        ftol=1e-12,
    )
    assert fitted.solution.converged
    assert fitted.solution.coefficients * 1e7 == pytest.approx(
        reference.x / problem.scale * 1e7, rel=1e-3, abs=1e-6
    )


# {{{ the whole fit


def test_a_fit_that_stops_early_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = partial(recipe_of, max_evaluations=1)
    monkeypatch.setattr("countperf.models.fitting.fit_model.recipe_of", hasty)
    logs = LINEAR.model_copy(update={"residual": "log", "loss": "soft_l1"})
    with pytest.raises(FitNotConvergedError, match="stopped early"):
        fit(measure(noise=np.random.default_rng(3)), model=logs)


def test_a_term_without_a_finite_value_is_a_fit_error() -> None:
    model = sum_model(
        {"launch": {"charged": ["launches"], "scale": "pole"}},
        derived={"pole": "1/(launches - launches)"},
        residual="log",
    )

    with pytest.raises(FitError, match="no finite value"):
        fit(measure(), model=model)


def test_a_log_fit_of_a_sum_recovers_its_weights() -> None:
    model = LINEAR.model_copy(update={"residual": "log"})

    weights = fit(measure(), model=model, nonnegative=True).weights

    assert weights.definition.residual == "log"
    assert weights.by_feature["flop.add.f32"].value_s == pytest.approx(3e-12, rel=1e-5)


# }}}

# {{{ fits end at one point wherever they begin, with cases that cannot be among them

SAME = 1e-3
COSTS = {f"flop.{kind}.f{bits}": 10.0**-i for kind, bits, i in [
    ("add", 32, 11), ("mul", 32, 10), ("div", 32, 9), ("add", 64, 11), ("mul", 64, 12),
    ("div", 64, 8),
]}  # fmt: skip
FLOPS = sum_model({"cost": ["launches", "flop.*.*"]}, **ROBUST)


def _flops(impossible: int) -> list[Observation]:
    """Times of known weights, off by 5 %; some of the cases have 1e9 times the counts."""
    random = np.random.default_rng(7)
    cases: list[Observation] = []
    for i in range(400):
        counts = {
            name: int(10 ** random.uniform(-6.5, -3) / weight)
            for name, weight in COSTS.items()
            if random.random() < 0.5
        }
        time_s = 5e-6 + sum(COSTS[name] * count for name, count in counts.items())
        if i < impossible:
            counts = {name: 10**9 * count for name, count in counts.items()}
        off = float(np.exp(0.05 * random.normal()))
        cases.append(
            made_case(f"c{i}", {"launches": 1, **counts}, time_s * off, family=f"f{i % 20}")
        )
    return cases


@pytest.mark.parametrize(("impossible", "others", "exact"), [(0, 5, 0.03), (12, 0, 0.05)])
def test_known_weights_are_found_from_any_start(impossible: int, others: int, exact: float) -> None:
    design = build_design(_flops(impossible), FLOPS)
    problem = problem_of(design, recipe_of(FLOPS))
    truth = np.array([COSTS.get(name, 5e-6) for name in design.function.keys])
    random = np.random.default_rng(1)

    best = solve(problem)
    ends = [solve(problem, start / problem.scale) for start in problem.starts()]
    for _ in range(others):
        ends.append(solve(problem, truth * np.exp(random.normal(0, 2, truth.size))))

    assert len(best.ends) == 2  # it begins anew until two ends agree
    assert len(ends[0].ends) == 1
    for end in (best, *ends):
        assert end.converged
        assert end.coefficients == pytest.approx(truth, rel=exact)
        assert end.cost == pytest.approx(best.cost, rel=SAME)


@cache
def _read_on_zen3() -> tuple[tuple[Observation, ...], tuple[Observation, ...]]:
    """Return a quarter of the cases whose code was read, and those that it cannot have run."""
    measured = [
        line
        for line in shipped_measurements("pocl-epyc-zen3")
        if line.purpose == "measurement" and line.code is not None
    ]
    wrong = [m for m in measured if (m.code or {}).get(f"{CODE}all", 0) > 1e12 * m.time_s]
    cases = observations_of([*measured[::4], *wrong])
    return (
        tuple(case for case in cases if case.has_code),
        tuple(case for case in cases[-len(wrong) :] if not case.has_code),
    )


@pytest.mark.nightly
@pytest.mark.parametrize("with_impossible", [False, True])
def test_a_shipped_store_is_fitted_alike_from_any_start(with_impossible: bool) -> None:
    cases, impossible = _read_on_zen3()
    assert len(impossible) == 15
    model = WeightSet.read_file(FITS / "pocl-epyc-zen3" / "compiled.json").definition
    alone = solve(problem_of(build_design(cases, model), recipe_of(model)))
    every = cases + impossible if with_impossible else cases
    problem = problem_of(build_design(every, model), recipe_of(model))

    ends = [solve(problem, start / problem.scale) for start in problem.starts()]

    best = solve(problem)
    assert all(end.converged for end in (best, *ends))
    assert [end.cost for end in ends] == pytest.approx([best.cost] * len(ends), rel=SAME)
    off, without = (np.median(np.abs(e.residuals[: len(cases)])) for e in (best, alone))
    assert off == pytest.approx(without, rel=0.05)


# }}}
