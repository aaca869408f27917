"""Fits of logarithms and with robust losses: known weights, SciPy as a judge, failures."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from countperf.errors import FitError, FitNotConvergedError
from countperf.fitting.design import Observation, build_design
from countperf.fitting.estimate import Estimate, estimate, problem_of, recipe_of
from countperf.fitting.fit import fit
from countperf.models.definition import ModelDefinition
from countperf.models.shipped import LINEAR
from tests.fitting.builders import measure
from tests.models.builders import sum_model

LOAD, ADD, LOCAL = "gmem.load.32.stride1", "flop.add.f32", "lmem.load.32"


LOGS = LINEAR.model_copy(update={"residual": "log", "loss": "soft_l1"})

# {{{ known weights

MODEL = sum_model(
    {"launch": ["launches"], "memory": ["gmem.*.*.*"], "chip": ["flop.*.*", "lmem.*.*"]}
)
TRUTH = {"launches": 4e-6, LOAD: 1e-11, ADD: 3e-12, LOCAL: 2e-12}


def _cases(noise: float = 0.0, seed: int = 1) -> list[Observation]:
    random = np.random.default_rng(seed)
    cases: list[Observation] = []
    for i in range(60):
        loads, adds, local = (int(10 ** random.uniform(5, 8)) for _ in range(3))
        memory = TRUTH[LOAD] * loads
        chip = TRUTH[ADD] * 4 * adds + TRUTH[LOCAL] * local
        time_s = TRUTH["launches"] + memory + chip
        cases.append(
            Observation(
                name=f"c{i}",
                kernel=f"k{i % 12}",
                family=f"f{i % 6}",
                counts={"launches": 1, LOAD: loads, ADD: 4 * adds, LOCAL: local},
                time_s=time_s * float(np.exp(noise * random.normal())),
            )
        )
    return cases


def _values(found: Estimate) -> dict[str, float]:
    return dict(zip(found.function.keys, found.solution.coefficients.tolist(), strict=True))


@pytest.mark.parametrize("residual", ["relative", "log"])
def test_weights_are_recovered_from_exact_times(residual: str) -> None:
    found = estimate(_cases(), MODEL, recipe_of(MODEL, residual=residual))

    assert found.converged
    assert found.diagnosis.rank == 4
    assert _values(found) == pytest.approx(TRUTH, rel=1e-5)


def test_standard_errors_equal_the_scatter_of_repeated_fits() -> None:
    recipe = recipe_of(MODEL, residual="log", starts=1)
    fits = [estimate(_cases(0.02, seed), MODEL, recipe) for seed in range(40)]

    logs = [np.log(found.solution.coefficients) for found in fits]
    claimed = [
        np.sqrt(np.diag(found.solution.covariance)) / found.solution.coefficients
        for found in fits
        if found.solution.covariance is not None
    ]
    # scatter of another set of kernels each time: 40 fits tell it to 11 %, so 3 of those
    assert len(claimed) == 40
    ratio = np.std(logs, axis=0) / np.mean(claimed, axis=0)
    assert np.all((ratio > 0.6) & (ratio < 1.6)), ratio


@pytest.mark.parametrize("loss", ["soft_l1", "huber"])
def test_a_robust_loss_is_hardly_moved_by_a_few_bad_cases(loss: str) -> None:
    cases = _cases(0.01)
    bad = [
        Observation(
            name=c.name, kernel=c.kernel, family=c.family, counts=c.counts, time_s=5 * c.time_s
        )
        for c in cases[:5]
    ]
    robust = recipe_of(MODEL, residual="log", loss=loss, loss_scale=0.02)

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
    cases = [
        Observation(
            name=c.name,
            kernel=c.kernel,
            family=c.family,
            counts={**c.counts, "gmem.store.32.stride1": 2 * int(c.counts[LOAD])},
            time_s=c.time_s,
        )
        for c in _cases()
    ]

    found = estimate(cases, MODEL, recipe_of(MODEL))

    (group,) = found.diagnosis.groups
    assert set(group.features) == {LOAD, "gmem.store.32.stride1"}
    # each of the two columns takes half of the 1e-11 per load
    values = _values(found)
    assert values[LOAD] == pytest.approx(5e-12, rel=1e-5)
    assert values["gmem.store.32.stride1"] == pytest.approx(2.5e-12, rel=1e-5)


# }}}

# {{{ the whole fit


def test_a_fit_that_stops_early_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = partial(recipe_of, max_evaluations=1)
    monkeypatch.setattr("countperf.fitting.fit.recipe_of", hasty)
    with pytest.raises(FitNotConvergedError, match="stopped early"):
        fit(measure(noise=np.random.default_rng(3)), model=LOGS)


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

    result = fit(measure(), model=model, nonnegative=True)

    assert result.weights.definition.residual == "log"
    assert result.weights.by_feature["flop.add.f32"].value_s == pytest.approx(3e-12, rel=1e-5)


# }}}


def test_linear_models_end_where_scipy_ends() -> None:
    from scipy.optimize import least_squares

    random = np.random.default_rng(3)
    model = ModelDefinition.from_object(
        {
            "format": "countperf-model",
            "version": 3,
            "name": "many",
            "residual": "log",
            "loss": "soft_l1",
            "loss_scale": 0.3,
            "terms": {"cost": ["launches", "gmem.load.*.*", "flop.*.*", "lmem.*.*"]},
        }
    )
    counts = [
        {"launches": 1, LOAD: int(a), ADD: int(b), LOCAL: int(c)}
        for a, b, c in 10 ** random.uniform(4, 8, (60, 3))
    ]
    cases = [
        Observation(
            name=f"c{i}",
            kernel="k",
            family="f",
            counts=each,
            time_s=(1e-6 + 3e-11 * each[LOAD] + 1e-11 * each[ADD])
            * float(np.exp(random.standard_t(3) * 0.1)),
        )
        for i, each in enumerate(counts)
    ]

    found = estimate(cases, model, recipe_of(model))

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
    ours = found.solution.coefficients
    scaled = dict(zip(found.function.keys, reference.x / problem.scale, strict=True))
    assert found.converged
    for key, value in zip(found.function.keys, ours, strict=True):
        assert value * 1e7 == pytest.approx(scaled[key] * 1e7, rel=1e-3, abs=1e-6)
