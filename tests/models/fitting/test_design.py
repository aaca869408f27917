"""The design matrix, and the names of what it cannot tell apart."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import least_squares

from countperf.errors import FitError, FitNotConvergedError
from countperf.models.fitting import design as designs
from countperf.models.fitting.design import Observation, build_design, diagnose, problem_of
from countperf.models.fitting.fit_model import fit, observations_of
from countperf.models.fitting.solve import solve
from countperf.models.function import IndistinguishableGroup
from countperf.models.shipped import LINEAR
from countperf.models.weights import WeightSet
from tests.models.builders import sum_model
from tests.models.fitting.builders import estimate, made_case, measure, observe_all, recipe_of
from tests.shipped import FITS, shipped_measurements

LOAD, STORE, MINIMUM = "gmem.load.32.1of2", "gmem.store.32.1of2", "gmem.min.32.1of2"


def _case(counts: dict[str, int], time_s: float = 1.0) -> Observation:
    return made_case("c", counts, time_s)


def test_rows_are_divided_by_their_times_and_unexercised_features_left_out() -> None:
    design = build_design(
        [
            _case({"launches": 1, "groups": 8, "flop.div.f32": 0, "iop.add.i32": 1}, 2.0),
            _case({"launches": 1, "barrier.local": 0, "lmem.store.32": 3}, 0.5),
        ],
        LINEAR,
    )
    assert design.function.keys == ("groups", "launches")
    assert design.relative.tolist() == [[4.0, 0.5], [0.0, 2.0]]
    assert design.unexercised == ("flop.div.f32", "barrier.local")


@pytest.mark.parametrize(
    ("observations", "said"),
    [([], "no measurement to fit"), ([_case({"iop.add.i32": 1})], "no measured kernel has")],
)
def test_what_cannot_be_fitted_is_refused(observations: list[Observation], said: str) -> None:
    with pytest.raises(FitError, match=said):
        build_design(observations, LINEAR)


def _diagnose(cases: list[Observation]) -> tuple[int, tuple[IndistinguishableGroup, ...]]:
    return diagnose(build_design(cases, LINEAR))[:2]


def test_a_design_of_full_rank_has_no_groups() -> None:
    rank, groups = _diagnose(observe_all())
    assert (rank, groups) == (6, ())


def test_columns_always_in_ratio_2_1_1_are_one_group_with_their_relations() -> None:
    sizes = (64, 192, 1000)
    cases = [_case({LOAD: 2 * n, STORE: n, MINIMUM: n, "launches": 1}, 1.0 + n) for n in sizes]
    rank, groups = _diagnose(cases)
    assert rank == 2
    (group,) = groups
    assert set(group.features) == {LOAD, STORE, MINIMUM}
    assert len(group.relations) == 2
    for relation in group.relations:
        assert sum(c * {LOAD: 2, STORE: 1, MINIMUM: 1}[name] for name, c in relation.items()) == 0


def test_relations_are_in_whole_numbers_where_counts_are() -> None:
    cases = [
        _case({"groups": n // 192, "gmem.load.32.stride1": n, "launches": 1}, float(n))
        for n in (192, 1920, 192000)
    ]
    _, (group,) = _diagnose(cases)
    assert group == IndistinguishableGroup(
        features=("gmem.load.32.stride1", "groups"),
        relations=({"gmem.load.32.stride1": 1.0, "groups": -192.0},),
    )


def test_separate_dependences_are_separate_groups() -> None:
    cases = [
        _case({LOAD: 2 * n, STORE: n, "groups": 5 * m, "barrier.local": m, "launches": 1}, 1.0)
        for n, m in ((1, 7), (4, 4), (9, 2), (3, 3))
    ]
    _, groups = _diagnose(cases)
    assert [set(group.features) for group in groups] == [{LOAD, STORE}, {"barrier.local", "groups"}]


def test_a_dependence_of_three_that_no_pair_shows() -> None:
    cases = [
        _case({"flop.add.f32": a + b, "flop.mul.f32": a, "flop.div.f32": b, "launches": 1}, 1.0)
        for a, b in ((1, 5), (2, 2), (7, 1), (3, 8))
    ]
    _, (group,) = _diagnose(cases)
    assert group.relations == ({"flop.add.f32": -1.0, "flop.mul.f32": 1.0, "flop.div.f32": 1.0},)


def test_fewer_cases_than_features_leave_relations() -> None:
    rank, groups = _diagnose([_case({"launches": 1, "groups": 4, "barrier.local": 8})])
    assert rank == 1
    assert [len(group.relations) for group in groups] == [2]


@given(st.permutations(range(17)), st.floats(1e-9, 1e9))
def test_what_is_told_apart_depends_on_no_order_nor_unit_of_time(
    order: list[int], unit: float
) -> None:
    cases = observe_all() + [
        _case({LOAD: 2 * n, STORE: n, "launches": 1}, 1e-3 * n) for n in (3, 50)
    ]
    assert len(cases) == 19
    shuffled = [
        replace(c, time_s=c.time_s * unit) for c in (*(cases[i] for i in order), *cases[17:])
    ]
    plain, changed = _diagnose(cases), _diagnose(shuffled)
    assert changed == plain


NEXT, ADD, LOCAL = "gmem.load.32.stride1", "flop.add.f32", "lmem.load.32"
MODEL = sum_model(
    {"launch": ["launches"], "memory": ["gmem.*.*.*"], "chip": ["flop.*.*", "lmem.*.*"]}
)
TRUTH = {"launches": 4e-6, NEXT: 1e-11, ADD: 3e-12, LOCAL: 2e-12}
ROBUST = {"residual": "log", "loss": "soft_l1", "loss_scale": 0.3}


def _cases(noise: float = 0.0, seed: int = 1) -> list[Observation]:
    random = np.random.default_rng(seed)
    cases: list[Observation] = []
    for i in range(60):
        loads, adds, local = (int(10 ** random.uniform(5, 8)) for _ in range(3))
        counts = {"launches": 1, NEXT: loads, ADD: 4 * adds, LOCAL: local}
        time_s = sum(TRUTH[name] * count for name, count in counts.items())
        off = float(np.exp(noise * random.normal()))
        cases.append(
            made_case(f"c{i}", counts, time_s * off, kernel=f"k{i % 12}", family=f"f{i % 6}")
        )
    return cases


def _values(fitted: designs.Estimate) -> dict[str, float]:
    return dict(zip(fitted.function.keys, fitted.solution.coefficients.tolist(), strict=True))


@pytest.mark.parametrize("residual", ["relative", "log"])
def test_weights_are_recovered_from_exact_times(residual: str) -> None:
    fitted = estimate(_cases(), MODEL, recipe_of(MODEL, residual=residual))
    assert fitted.solution.converged
    assert fitted.rank == 4
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
    cases = [replace(c, counts={**c.counts, store: 2 * int(c.counts[NEXT])}) for c in _cases()]
    fitted = estimate(cases, MODEL, recipe_of(MODEL))
    (group,) = fitted.groups
    assert set(group.features) == {NEXT, store}
    # each of the two columns takes half of the 1e-11 per load
    values = _values(fitted)
    assert (values[NEXT], values[store]) == pytest.approx((5e-12, 2.5e-12), rel=1e-5)


def test_linear_models_end_where_scipy_ends() -> None:
    random = np.random.default_rng(3)
    model = sum_model({"cost": ["launches", "gmem.load.*.*", "flop.*.*", "lmem.*.*"]}, **ROBUST)
    cases = [
        made_case(
            f"c{i}",
            {"launches": 1, NEXT: int(a), ADD: int(b), LOCAL: int(c)},
            (1e-6 + 3e-11 * int(a) + 1e-11 * int(b)) * float(np.exp(random.standard_t(3) * 0.1)),
        )
        for i, (a, b, c) in enumerate(10 ** random.uniform(4, 8, (60, 3)))
    ]
    fitted = estimate(cases, model, recipe_of(model))
    problem = problem_of(build_design(cases, model), recipe_of(model))
    options: dict[str, Any] = {"loss": "soft_l1", "f_scale": 0.3, "xtol": 1e-12, "ftol": 1e-12}
    start = np.full(4, 1.0)
    reference = least_squares(problem.residuals, start, bounds=(0.0, np.inf), **options)
    assert fitted.solution.converged
    assert fitted.solution.coefficients * 1e7 == pytest.approx(
        reference.x / problem.scale * 1e7, rel=1e-3, abs=1e-6
    )


def test_a_fit_that_stops_early_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = partial(recipe_of, max_evaluations=1)
    monkeypatch.setattr("countperf.models.fitting.design.recipe_of", hasty)
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


@pytest.mark.nightly
def test_a_shipped_store_is_fitted_alike_from_any_start() -> None:
    lines = shipped_measurements("pocl-epyc-zen3")
    read = [line for line in lines if line.purpose == "measurement" and line.code is not None]
    cases = [case for case in observations_of(read[::4]) if case.has_code]
    assert len(cases) > 500
    model = WeightSet.read_file(FITS / "pocl-epyc-zen3" / "compiled.json").definition
    problem = problem_of(build_design(cases, model), recipe_of(model))
    ends = [solve(problem, start / problem.scale) for start in problem.starts()]
    best = solve(problem)
    assert all(end.converged for end in (best, *ends))
    assert [end.cost for end in ends] == pytest.approx([best.cost] * len(ends), rel=SAME)
