"""Fits that are not linear: certified problems, known weights, robust losses, failures."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from countperf.errors import FitError, FitNotConvergedError
from countperf.fitting.design import Observation, build_design
from countperf.fitting.estimate import Estimate, estimate, recipe_of
from countperf.fitting.fit import fit
from countperf.fitting.nonlinear import minimise
from countperf.fitting.problem import Problem, Recipe
from countperf.fitting.result import FitResult
from countperf.models.definition import ModelDefinition
from countperf.models.evaluation import scalar_function
from countperf.models.expressions import parse
from countperf.models.standard import from_expression
from countperf.models.weights import WeightSet
from tests.fitting.builders import KERNELS, measure
from tests.fitting.nist_nonlinear import NONLINEAR_PROBLEMS, NonlinearProblem

LOAD, ADD, LOCAL = "gmem.load.32.stride1", "flop.add.f32", "lmem.load.32"


# {{{ certified problems


@pytest.mark.parametrize("problem", NONLINEAR_PROBLEMS, ids=lambda p: p.name)
def test_certified_squares_follow_from_data_and_certified_parameters(
    problem: NonlinearProblem,
) -> None:
    function = scalar_function(parse(problem.formula))
    named = {f"b{i}": value for i, value in enumerate(problem.parameters, 1)}

    squares = sum((y - function({**named, "x": float(x)})) ** 2 for x, y in problem.points)

    assert squares == pytest.approx(problem.squares, rel=2e-10)


def _nist(problem: NonlinearProblem, start: tuple[float, ...]) -> Estimate:
    """Fit y by absolute residuals: one minus the time of ``1 + f(x) - y`` where 1 was measured."""
    formula = re.sub(r"\bx\b", "groups", problem.formula)
    model = ModelDefinition.from_object(
        {
            "format": "countperf-model",
            "version": 1,
            "name": "nist",
            "expression": f"1 + {formula} - launches",
            "parameters": {
                f"b{i}": {"start": value, "lower": None, "shape": True}
                for i, value in enumerate(start, 1)
            },
        }
    )
    cases = [
        Observation(
            name=f"{x}", kernel="k", family="f", counts={"groups": x, "launches": y}, time_s=1.0
        )
        for x, y in problem.points
    ]
    return estimate(cases, model, Recipe(starts=1, tolerance=1e-15))


@pytest.mark.parametrize(
    ("problem", "start"),
    [
        pytest.param(problem, start, id=f"{problem.name}-{i}")
        for problem in NONLINEAR_PROBLEMS
        for i, start in enumerate(problem.starts)
    ],
)
def test_parameters_and_standard_errors_reach_the_certified_ones(
    problem: NonlinearProblem, start: tuple[float, ...]
) -> None:
    found = _nist(problem, start)

    assert found.converged
    assert found.solution.coefficients == pytest.approx(problem.parameters, rel=1e-6)
    assert found.solution.covariance is not None
    errors = np.sqrt(np.diag(found.solution.covariance))
    assert errors == pytest.approx(problem.standard_errors, rel=1e-5)
    assert float(found.solution.residuals @ found.solution.residuals) == pytest.approx(
        problem.squares, rel=1e-9
    )


# }}}

# {{{ known weights

MODEL = from_expression("launch + overlap(global_memory, on_chip)")
TRUTH = {"launches": 4e-6, LOAD: 1e-11, ADD: 3e-12, LOCAL: 2e-12}


def _cases(sharpness: float, noise: float = 0.0, seed: int = 1) -> list[Observation]:
    random = np.random.default_rng(seed)
    cases: list[Observation] = []
    for i in range(60):
        loads, adds, local = (int(10 ** random.uniform(5, 8)) for _ in range(3))
        memory = TRUTH[LOAD] * loads
        chip = TRUTH[ADD] * 4 * adds + TRUTH[LOCAL] * local
        time_s = TRUTH["launches"] + (memory**sharpness + chip**sharpness) ** (1 / sharpness)
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
@pytest.mark.parametrize("sharpness", [1.5, 3.0, 7.0])
def test_weights_and_sharpness_are_recovered_from_exact_times(
    sharpness: float, residual: str
) -> None:
    found = estimate(_cases(sharpness), MODEL, recipe_of(MODEL, residual=residual))

    assert found.converged
    assert found.diagnosis.rank == 5
    assert _values(found) == pytest.approx({**TRUTH, "sharpness": sharpness}, rel=1e-5)


def test_standard_errors_equal_the_scatter_of_repeated_fits() -> None:
    recipe = recipe_of(MODEL, residual="log", starts=1)
    fits = [estimate(_cases(3.0, 0.02, seed), MODEL, recipe) for seed in range(40)]

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
    cases = _cases(3.0, 0.01)
    bad = [
        Observation(
            name=c.name, kernel=c.kernel, family=c.family, counts=c.counts, time_s=5 * c.time_s
        )
        for c in cases[:5]
    ]
    robust = recipe_of(MODEL, residual="log", loss=loss, loss_scale=0.02)

    moved = _values(estimate(bad + cases[5:], MODEL, robust))
    plain = _values(estimate(bad + cases[5:], MODEL, recipe_of(MODEL, residual="log")))

    assert moved == pytest.approx({**TRUTH, "sharpness": 3.0}, rel=0.1)
    assert max(abs(plain[name] / value - 1) for name, value in TRUTH.items()) > 0.2


def test_the_jacobian_is_that_of_small_changes() -> None:
    for residual in ("relative", "log"):
        problem = Problem(build_design(_cases(3.0), MODEL), recipe_of(MODEL, residual=residual))
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
        for c in _cases(3.0)
    ]

    found = estimate(cases, MODEL, recipe_of(MODEL))

    (group,) = found.diagnosis.groups
    assert set(group.features) == {LOAD, "gmem.store.32.stride1"}
    # each of the two columns takes half of the 1e-11 per load
    values = _values(found)
    assert values[LOAD] == pytest.approx(5e-12, rel=1e-5)
    assert values["gmem.store.32.stride1"] == pytest.approx(2.5e-12, rel=1e-5)


def test_a_weight_that_changes_no_time_is_left_out_and_named() -> None:
    model = from_expression("launch + global_memory + arithmetic*barrier_local")
    hidden = [
        Observation(
            name=f"c{n}",
            kernel="k",
            family=f"f{n}",
            counts={"launches": 1, LOAD: 10**n, ADD: 1},
            time_s=4e-6 + 1e-11 * 10**n,
        )
        for n in range(5, 9)
    ]

    found = estimate(hidden, model, recipe_of(model, residual="log"))

    assert found.unseen == (ADD,)
    assert ADD not in found.function.keys
    assert found.predict(hidden[0]) is None


# }}}

# {{{ the whole fit


def test_a_fit_stores_its_expression_and_predicts_elsewhere() -> None:
    result = fit(measure(), model=from_expression("launch + overlap(global_memory, on_chip)"))

    read = WeightSet.read_text(result.weights.write_text())

    assert read == result.weights
    assert read.expression == "launch + overlap(global_memory, on_chip)"
    assert [p.name for p in read.parameters] == ["sharpness"]
    case = result.observations[3]
    kernel = next(k for k in KERNELS if k.name == case.kernel).vector
    n = int(case.name.rsplit("=")[-1])
    prediction = read.predict(kernel, {"n": n})
    assert prediction.time_s == pytest.approx(float(result.predicted_s[3]), rel=1e-12)
    assert sum(prediction.breakdown.values()) == pytest.approx(prediction.time_s, rel=1e-9)
    assert read.compile(kernel)(n=n) == pytest.approx(prediction.time_s, rel=1e-12)


def test_a_fit_that_stops_early_is_an_error_that_carries_it() -> None:
    with pytest.raises(FitNotConvergedError, match="stopped early") as caught:
        fit(measure(noise=np.random.default_rng(3)), model="overlap", max_evaluations=1)

    result: Any = caught.value.result
    assert isinstance(result, FitResult)
    assert "convergence" in {verdict.name for verdict in result.caveats}


def test_an_expression_without_a_finite_value_is_a_fit_error() -> None:
    model = from_expression("launch/(barrier_local - barrier_local)")

    with pytest.raises(FitError, match="no finite value"):
        fit(measure(), model=model)


def test_a_log_fit_of_a_sum_recovers_its_weights() -> None:
    result = fit(measure(), model="bounded", residual="log")

    assert result.weights.definition.residual == "log"
    assert result.weights.by_feature["flop.add.f32"].value_s == pytest.approx(3e-12, rel=1e-5)


# }}}


def test_linear_models_end_where_scipy_ends() -> None:
    from scipy.optimize import least_squares

    random = np.random.default_rng(3)
    model = ModelDefinition.from_object(
        {
            "format": "countperf-model",
            "version": 1,
            "name": "many",
            "residual": "log",
            "loss": "soft_l1",
            "loss_scale": 0.3,
            "terms": {"cost": ["launches", "gmem.load.*.*", "flop.*.*", "lmem.*.*"]},
            "expression": "cost",
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

    problem = Problem(build_design(cases, model), recipe_of(model))
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
    scaled = dict(zip(problem.function.keys, reference.x / problem.scale, strict=True))
    assert found.converged
    for key, value in zip(found.function.keys, ours, strict=True):
        assert value * 1e7 == pytest.approx(scaled[key] * 1e7, rel=1e-3, abs=1e-6)


def test_overlaps_of_many_weights_end_no_higher_than_scipy_does() -> None:
    from scipy.optimize import least_squares

    model = from_expression("launch + overlap(global_memory, on_chip)")
    model = model.model_copy(update={"residual": "log", "loss": "soft_l1", "loss_scale": 0.3})
    columns = [
        *(
            f"gmem.{way}.{bits}.stride{k}"
            for way in ("load", "store")
            for bits in (32, 64)
            for k in (1, 2)
        ),
        *(f"flop.{kind}.{bits}" for kind in ("add", "mul", "div") for bits in ("f32", "f64")),
        *(f"lmem.{way}.{bits}" for way in ("load", "store") for bits in (32, 64)),
    ]
    random = np.random.default_rng(11)
    cases: list[Observation] = []
    for i in range(150):
        has = np.flatnonzero(random.random(len(columns)) < 0.4)
        counts = {columns[k]: int(10 ** random.uniform(5, 8)) for k in has}
        memory = sum(1e-11 * n for name, n in counts.items() if name.startswith("gmem.load"))
        chip = sum(4e-12 * n for name, n in counts.items() if "f32" in name)  # others are free
        time_s = (2e-6 + np.hypot(memory, chip)) * float(np.exp(random.standard_t(3) * 0.1))
        cases.append(
            Observation(
                name=f"c{i}",
                kernel="k",
                family="f",
                counts={"launches": 1, **counts},
                time_s=time_s,
            )
        )
    problem = Problem(build_design(cases, model), recipe_of(model, starts=1))

    found = minimise(problem)

    expected = least_squares(
        problem.residuals,
        next(problem.starts()),
        jac=problem.jacobian,  # pyright: ignore[reportArgumentType] - stubs want a text
        bounds=(problem.function.lower * problem.scale, problem.function.upper * problem.scale),
        loss="soft_l1",
        f_scale=0.3,
        xtol=1e-12,
        ftol=1e-12,
        gtol=1e-12,
    )
    assert found.converged
    assert found.cost <= expected.cost * (1 + 1e-6)


def test_steps_that_are_too_long_are_damped() -> None:
    model = ModelDefinition.from_object(
        {
            "format": "countperf-model",
            "version": 1,
            "name": "steep",
            "terms": {"launch": {"charged": ["launches"], "lower": 1e-9, "upper": 1e-8}},
            "expression": "launch*exp(steep**3)",
            "parameters": {"steep": {"start": 0.05, "lower": 0.01, "upper": 40.0, "shape": True}},
        }
    )
    cases = [
        Observation(name=name, kernel="k", family="f", counts={"launches": 1}, time_s=1e-6)
        for name in "abc"
    ]

    found = minimise(Problem(build_design(cases, model), recipe_of(model, starts=1)))

    # the slope at the start is next to nothing, so that an undamped step ends where exp overflows
    assert found.converged
    assert found.cost == pytest.approx(0.0, abs=1e-12)
    assert math.log(100) <= found.solution.coefficients[1] ** 3 <= math.log(1000)
