"""Left-out families: predictions, figures, intervals from them; evaluation on test kernels."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import countperf
from countperf.api import evaluation as fitting
from countperf.counting.structure.issue import ExecutionPolicy
from countperf.counting.vector import PropertyVector
from countperf.errors import DocumentError, FitError, FitNotConvergedError
from countperf.measuring import PURPOSES
from countperf.models.correction import as_points, profile, similarity
from countperf.models.definition import FeatureSpec
from countperf.models.fitting.design import Estimate, Observation
from countperf.models.fitting.fit_model import FitResult, fit
from countperf.models.fitting.leaving_out import (
    LARGEST_FACTOR,
    LARGEST_LOG,
    NOISE,
    HeldOutCase,
    conformal_quantile,
    coverage_without_own_family,
    find_held_out_factor,
    interval_calibration,
    learn_correction,
    leave_families_out,
    log_scatter,
    scatter_of_kernels,
    take_corrections,
)
from countperf.models.library import load_weights
from countperf.models.metrics import Evaluation, evaluate
from countperf.models.predictions import CORRECTION
from countperf.models.shipped import LINEAR, load_fitted_model, make_structural_model
from countperf.models.weights import WeightSet
from tests.models.fitting.builders import (
    KERNELS,
    TEST_KERNEL,
    TRUE_WEIGHTS,
    MadeUpKernel,
    estimate,
    measure,
    observe_all,
    recipe_of,
)
from tests.printing import text_of


def _held_out(family: str, ratio: float, *, name: str = "c", **more: bool) -> HeldOutCase:
    return HeldOutCase(
        name=name, kernel=name, family=family, measured_s=1.0, predicted_s=ratio, **more
    )


def test_families_count_the_same_whatever_their_size() -> None:
    cases = [_held_out("a", 1.1)] * 9 + [_held_out("b", 1.9)]
    assert find_held_out_factor(cases) == pytest.approx((1.1 * 1.9) ** 0.5)


def test_factors_are_the_same_both_ways_and_count_up_to_a_limit() -> None:
    for ratio in (4.0, 0.25):
        assert find_held_out_factor([_held_out("a", ratio)]) == pytest.approx(4.0)
    for ratio in (1e9, 1e-9, -1.0):
        assert find_held_out_factor([_held_out("a", ratio)]) == pytest.approx(LARGEST_FACTOR)


def test_kernels_that_only_launch_do_not_count() -> None:
    empty = _held_out("empty", 1e-9, overhead_only=True)
    cases = [_held_out(family, 1.1) for family in "abc"]
    assert find_held_out_factor([*cases, empty]) == find_held_out_factor(cases)
    assert interval_calibration([*cases, empty]) == interval_calibration(cases)


def test_kernels_that_judge_fits_are_never_looked_at() -> None:
    noise = np.random.default_rng(11)
    twins = [replace(k, name=f"{k.name}-b", family=f"{k.family}-b") for k in KERNELS]
    alone = measure((*KERNELS, *twins), noise=noise)
    baits = [
        replace(TEST_KERNEL, name=f"{TEST_KERNEL.name}-{purpose}", purpose=purpose)
        for purpose in PURPOSES
        if purpose != "measurement"
    ]
    bait = measure(baits, weights=dict.fromkeys(TRUE_WEIGHTS, 1.0))
    both = replace(alone, measurements=(*alone.measurements, *bait.measurements))
    assert {m.purpose for m in both} == {"measurement", "test", "application", "variant"}
    assert fit(both).weights == fit(alone).weights


@pytest.mark.parametrize(("level", "expected"), [(0.5, 10.0), (0.9, 18.0), (0.95, 19.0)])
def test_the_quantile_is_that_of_split_conformal_prediction(level: float, expected: float) -> None:
    values = np.random.default_rng(0).permutation(np.arange(1.0, 20.0))
    # the k-th smallest of n with k = ceil(level (n + 1))
    assert conformal_quantile(values, np.full(19, 1 / 19), level, units=19) == expected


def test_the_quantile_of_few_families_is_that_of_as_few_values() -> None:
    values = np.repeat(np.arange(1.0, 10.0), 100)  # the cases of a family are the same
    for level, expected in ((0.8, 8.0), (0.9, 9.0)):
        assert conformal_quantile(values, np.full(900, 1 / 900), level, units=9) == expected
    assert conformal_quantile(values, np.full(900, 1 / 900), 0.8, units=900) == 8.0


@pytest.mark.parametrize("families", [3, 8, 40])
def test_intervals_cover_new_families_as_often_as_they_say(families: int) -> None:
    random = np.random.default_rng(4)
    covered: dict[str, list[bool]] = {"0.9": [], "0.95": []}
    for _ in range(150):
        shared = random.standard_t(3, families + 1) * 0.2
        cases = [
            _held_out(f"f{k}", float(np.exp(shared[k] + random.normal(0, 0.1))))
            for k in range(families)
            for _ in range(3 + k % 5)
        ]
        calibration = interval_calibration(cases)
        assert calibration is not None
        new = abs(shared[-1] + random.normal(0, 0.1))
        covered["0.9"].append(new <= calibration.log_errors_90)
        covered["0.95"].append(new <= calibration.log_errors_95)
    # 150 trials: a share of 0.9 is known to 0.024, one of 0.95 to 0.018
    assert np.mean(covered["0.9"]) == pytest.approx(0.9, abs=0.07)
    assert np.mean(covered["0.95"]) == pytest.approx(0.95, abs=0.055)


def test_coverage_is_judged_by_the_other_families() -> None:
    cases = [_held_out(f"f{k}", float(np.exp(0.1 * k))) for k in range(1, 5)]
    coverage = coverage_without_own_family(cases)
    assert coverage is not None
    assert (coverage.share_90, coverage.share_95, coverage.families) == (1.0, 1.0, 4)
    # without the first: Student's quantile of three degrees of freedom, 2.3534, and so on
    rms = [((0.3 - 0.01 * k**2) / 3) ** 0.5 for k in range(1, 5)]
    median_log = np.log(coverage.median_factor_90)
    assert median_log == pytest.approx(2.3534 * np.median(rms), rel=2e-3)  # the series' accuracy
    assert coverage_without_own_family(cases[:3]) is None
    assert coverage_without_own_family([]) is None
    assert interval_calibration([_held_out("a", 1.1), _held_out("b", 1.2)]) is None


def test_scatter_splits_into_between_and_within_kernels() -> None:
    random = np.random.default_rng(9)
    shared = random.normal(0, 0.5, 400)
    logs = np.concatenate([own + random.normal(0, 0.1, 4) for own in shared])
    between, within = scatter_of_kernels(logs, [f"k{i // 4}" for i in range(logs.size)])
    # 400 kernels tell a standard deviation to 3.5 %, 1200 degrees of freedom to 2 %
    assert between == pytest.approx(0.5, rel=0.12)
    assert within == pytest.approx(0.1, rel=0.07)
    assert scatter_of_kernels(np.array([0.3]), ["k"]) == (pytest.approx(0.3), 0.0)


def _describe_left_out(cases: Sequence[Observation]) -> tuple[HeldOutCase, ...]:
    recipe = recipe_of(LINEAR)
    return leave_families_out(cases, estimate(cases, LINEAR, recipe), recipe)


def test_a_family_is_predicted_from_the_others_where_they_determine_it() -> None:
    held_out = {case.name: case for case in _describe_left_out(observe_all())}
    # loads at stride 1 occur nowhere else; "pairs" has the only loads at stride 2
    undetermined = {case.family for case in held_out.values() if np.isnan(case.predicted_s)}
    assert undetermined == {"stride1", "stride2", "arithmetic"}
    assert [held_out[f"empty/n={n}"].predicted_s for n in (1, 2)] == pytest.approx([4e-6, 4e-6])
    assert len(held_out) == 17
    alone = _describe_left_out(KERNELS[0].observe())  # a single family
    assert np.isnan([case.predicted_s for case in alone]).tolist() == [True] * 3


def test_kernels_that_only_launch_are_known_where_machine_code_is_counted() -> None:
    code = {"code.all": 12, "code.other": 12, "spill.all.load": 1}
    cases = [replace(case, counts={**case.counts, **code}) for case in observe_all()]
    held_out = _describe_left_out(cases)
    assert {case.family for case in held_out if case.overhead_only} == {"empty"}


def test_a_fit_that_stops_early_says_so() -> None:
    cases = [replace(c, time_s=c.time_s * (1 + n % 3)) for n, c in enumerate(observe_all())]
    model = load_fitted_model("linear").model_copy(update={"residual": "log", "loss": "soft_l1"})
    whole = estimate(cases, model, recipe_of(model))
    hasty = recipe_of(model, max_evaluations=1)
    with pytest.raises(FitNotConvergedError, match="without the class"):
        leave_families_out(cases, whole, hasty)


def test_a_family_that_needs_weights_apart_is_not_predicted() -> None:
    per_item = {"both": (2, 1), "one": (1, 0), "same": (20, 10)}
    cases = [
        case
        for family, (adds, loads) in per_item.items()
        for case in MadeUpKernel(
            name=family,
            family=family,
            counts={
                "flop.add.f32": f"[n] -> {{ {adds}n }}",
                "gmem.load.32.stride1": f"[n] -> {{ {loads}n }}",
            },
        ).observe()
    ]
    held_out = _describe_left_out(cases)
    assert [np.isnan(case.predicted_s) for case in held_out if case.family == "one"] == [True] * 3
    assert all(
        case.relative_error == pytest.approx(0, abs=1e-9)
        for case in held_out
        if case.family == "both"
    )


def test_scatter_is_the_standard_deviation_of_normal_logarithms() -> None:
    logs = np.random.default_rng(7).normal(0, 0.3, 20001)
    scatter = log_scatter(np.exp(logs).tolist(), [1.0] * logs.size)
    # the median of 20001 absolute values is known to 1 %
    assert scatter == pytest.approx(0.3, rel=0.03)


def test_scatter_takes_impossible_times_for_bad_ones_and_needs_one() -> None:
    assert log_scatter([-1.0, 0.0, 1e9], [1.0, 1.0, 1.0]) == pytest.approx(
        np.log(1000) / 0.6744897501960817
    )
    assert log_scatter([], []) is None


def test_what_judges_fits_is_never_fitted_and_evaluated_by_purpose(tmp_path: Path) -> None:
    slow = {name: 3 * weight for name, weight in TRUE_WEIGHTS.items()}
    unseen = MadeUpKernel(
        name="unseen", family="unseen", purpose="application", counts=TEST_KERNEL.counts
    )
    known = measure((*KERNELS, TEST_KERNEL))
    both = replace(known, measurements=(*measure((unseen,), weights=slow), *known.measurements))
    weights = fit(known).weights
    assert fit(both).weights.weights == weights.weights
    evaluation = fitting.evaluate(both, weights=weights)
    parts = evaluation.by_purpose()
    assert list(parts) == ["test", "application"]
    assert evaluation.device == "pocl-testchip"
    assert [case.parameters["n"] for case in parts["test"].cases] == list(TEST_KERNEL.sizes)
    assert all(case.complete for case in evaluation.cases)
    assert parts["test"].overall().value == pytest.approx(0, abs=1e-9)
    assert parts["application"].worst_factors() == {"unseen": pytest.approx(3)}
    assert parts["application"].overall().value == pytest.approx(2 / 3)
    only = fitting.evaluate(both, weights=weights, purposes=["test"])
    assert only.cases == parts["test"].cases
    path = tmp_path / "evaluation.json"
    evaluation.write_file(path)
    assert Evaluation.read_file(path) == evaluation


def test_an_evaluation_marks_what_has_no_weight_and_needs_counts() -> None:
    kernel = MadeUpKernel(
        name="divides", family="test", purpose="test", counts={"flop.div.f32": "[n] -> { n }"}
    )
    weights = fit(measure()).weights
    measured = measure((kernel,), weights={"launches": 4e-6, "flop.div.f32": 1e-10})
    assert [case.complete for case in evaluate(weights, measured).cases] == [False] * 3
    with pytest.raises(FitError, match="no counted measurement"):
        evaluate(weights, measure((TEST_KERNEL,), uncounted=["stencil"]))


ADD = "site.free.flat.256x1.flop.add.f32"
LOAD = "site.free.flat.256x1.gmem.load.32.next"
STORE = "site.free.flat.256x1.gmem.store.32.next"
FEATURES = FeatureSpec(charged=(ADD, LOAD, STORE, "groups", "launches"))
WEIGHTS = {ADD: 4e-11, LOAD: 3e-11, STORE: 6e-11, "groups": 1e-8, "launches": 4e-6}
MODEL = make_structural_model(ExecutionPolicy(width=8, vectorized="flat"))
FAMILIES, EACH = 6, 5
NUMBER = FAMILIES * EACH


def counts(adds: int, loads: int, stores: int) -> dict[str, str]:
    per_item = {ADD: adds, LOAD: loads, STORE: stores}
    of_items = {name: f"[n] -> {{ {256 * number} * n }}" for name, number in per_item.items()}
    return of_items | {"groups": "[n] -> { n }"}


def kernels(factor: float) -> list[MadeUpKernel]:
    """Kernels of six families, a device taking longer by a factor where sums prevail in them."""
    made: list[MadeUpKernel] = []
    for family, number in product(range(FAMILIES), range(EACH)):
        adds, loads, stores = 2 ** (number + 1) + family, 1 + (family + number) % 4, 1 + family % 3
        prevails = adds * WEIGHTS[ADD] > loads * WEIGHTS[LOAD] + stores * WEIGHTS[STORE]
        off = factor if prevails else 1.0
        fields: dict[str, Any] = {"counts": counts(adds, loads, stores), "view": "structure"}
        made.append(MadeUpKernel(name=f"k{family}{number}", family=f"f{family}", off=off, **fields))
    return made


def observed() -> list[Observation]:
    return [case for kernel in kernels(1.6) for case in kernel.observe(WEIGHTS, features=FEATURES)]


@cache
def fitted(factor: float, *, correct: bool = True) -> FitResult:
    measured = measure(kernels(factor), weights=WEIGHTS, features=FEATURES)
    return fit(measured, model=MODEL, correct=correct)


def weights(factor: float = 1.6) -> WeightSet:
    return fitted(factor).weights


def uncorrected() -> WeightSet:
    return weights().model_copy(update={"correction": None})


NEW = PropertyVector.from_mapping(
    {"launches": 1, **counts(24, 2, 1)}, kernel="new", view="structure"
)


def means_of(fitted: Estimate, cases: list[Observation], names: Sequence[str]) -> list[float]:
    """Return by what kernels take longer than predicted, logarithms."""
    off = np.log(fitted.design.times_s / fitted.predicted_s)
    kernels = [case.kernel for case in cases]
    return [float(np.mean(off[[kernel == name for kernel in kernels]])) for name in names]


def test_what_is_learnt_is_a_gaussian_process_over_means_of_kernels() -> None:
    cases = observed()
    fitted = estimate(cases, MODEL, recipe_of(MODEL))
    learnt = learn_correction(fitted, cases)
    assert learnt is not None
    assert learnt.kernels == tuple(sorted({case.kernel for case in cases}))
    means = means_of(fitted, cases, learnt.kernels)
    roots, logs = np.array(learnt.roots), np.array(learnt.logs)
    points = as_points(roots, logs, learnt.scale)
    apart = np.sqrt(((points[:, np.newaxis] - points) ** 2).sum(axis=2))
    covariance = np.exp(-apart)
    expected = np.linalg.solve(covariance + NOISE * np.eye(len(points)), means)
    assert learnt.coefficients == pytest.approx(expected, rel=1e-6)
    assert np.max(np.abs(means)) < LARGEST_LOG
    assert learnt.find_log_factors(roots, logs) == pytest.approx(
        covariance @ expected, rel=1e-6, abs=1e-7
    )


def test_few_kernels_say_nothing() -> None:
    cases = observe_all()
    assert len({kernel.name for kernel in KERNELS}) < 20
    assert learn_correction(estimate(cases, LINEAR, recipe_of(LINEAR)), cases) is None


def test_families_left_out_are_corrected_by_the_others_alone() -> None:
    cases = observed()
    recipe = recipe_of(MODEL)
    held_out = leave_families_out(
        cases, estimate(cases, MODEL, recipe), recipe, with_correction=True
    )
    others = [case for case in cases if case.family != "f2"]
    without = leave_families_out(others, estimate(others, MODEL, recipe), recipe)
    (case,) = [case for case in held_out if case.name == f"k23/n={2**14}"]
    near = estimate(others, MODEL, recipe)
    whole = estimate(cases, MODEL, recipe)
    learnt = learn_correction(whole, cases)
    assert learnt is not None
    roots, logs = np.array(learnt.roots), np.array(learnt.logs)
    points = as_points(roots, logs, learnt.scale)
    far = [i for i, name in enumerate(learnt.kernels) if name[:2] != "k2"]
    off = means_of(near, others, [learnt.kernels[i] for i in far])
    alike = similarity(points[far], points[far]) + NOISE * np.eye(len(far))
    (index,) = [i for i, one in enumerate(cases) if one.name == case.name]
    design, unknowns = whole.design, whole.solution.coefficients
    told = profile(whole.function.columns, design.counts, design.scaled, unknowns)
    point = as_points(told[0][[index]], told[1][[index]], learnt.scale)
    log_factor = similarity(point, points[far])[0] @ np.linalg.solve(alike, off)
    assert case.corrected_s == pytest.approx(case.predicted_s * np.exp(log_factor), rel=1e-4)
    assert case.corrected_s != pytest.approx(case.predicted_s, rel=1e-3)
    assert [c.predicted_s for c in take_corrections(held_out)] == [c.corrected_s for c in held_out]
    assert all(np.isnan(case.corrected_s) for case in without)


def test_a_correction_ships_where_families_left_out_are_predicted_better_so() -> None:
    correction = weights().correction
    assert correction is not None
    qualities = weights().quality, fitted(1.6, correct=False).weights.quality
    better, worse = ((q and q.held_out_factor) or 0.0 for q in qualities)
    assert 1.0 < better < worse
    assert set(correction.kernels) == {kernel.name for kernel in kernels(1.6)}
    assert fitted(1.0).weights.correction is None  # nothing is off
    assert fitted(1.6, correct=False).weights.correction is None


def test_predictions_are_multiplied_and_say_so() -> None:
    corrected, plain = (w.predict(NEW, n=4096) for w in (weights(), uncorrected()))
    corrected_s, plain_s = float(corrected.time_s), float(plain.time_s)
    of_item = 24 * WEIGHTS[ADD] + 2 * WEIGHTS[LOAD] + WEIGHTS[STORE]
    true_s = 1.6 * (WEIGHTS["launches"] + 4096 * (WEIGHTS["groups"] + 256 * of_item))
    assert abs(plain_s / true_s - 1) > 0.05
    assert abs(corrected_s / true_s - 1) < 0.02
    assert sum(corrected.breakdown.values()) == pytest.approx(corrected.time_s)
    assert corrected.breakdown[CORRECTION] == pytest.approx(corrected_s - plain_s)
    assert CORRECTION not in plain.breakdown
    verdict = corrected.verdicts[-1]
    assert (verdict.name, verdict.passed) == (CORRECTION, True)
    assert f"multiplied by {corrected_s / plain_s:.3g}" in verdict.message
    assert all(name in verdict.message for name in ("k14", "most similar"))
    assert text_of(corrected).splitlines()[-1] == f"correction: {verdict.message}"
    assert verdict.message in text_of(countperf.explain(NEW, n=4096, weights=weights()))
    assert "correction" not in text_of(plain)
    low_s, high_s = corrected.interval_s or (1.0, 0.0)
    assert low_s < corrected_s < high_s


def test_arrays_and_compiled_functions_give_the_same_times() -> None:
    sizes = np.array([[64, 256, 1024], [4096, 2**14, 2**16]])
    cost = weights().compile(NEW)
    times = weights().predict(NEW, n=sizes).time_s
    single = [[float(weights().predict(NEW, n=int(n)).time_s) for n in row] for row in sizes]
    assert np.array_equal(times, single)
    assert np.array_equal(cost(n=sizes), single)
    assert cost(n=4096) == single[1][0]
    assert pickle.loads(pickle.dumps(cost))(n=4096) == cost(n=4096)


def test_anchors_correct_what_is_left() -> None:
    made = weights().predict(NEW, n=64)
    time_s = 1.25 * float(weights().predict(NEW, n=1024).time_s)
    assert 1.0 < made.anchor(({"n": 1024}, time_s)).time_s / made.time_s <= 1.25


def test_a_document_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "pocl-testchip" / "weights.json"
    weights().write_file(path)
    read = load_weights(path)
    assert read.model_copy(update={"name": ""}) == weights()
    assert read.predict(NEW, n=999).time_s == weights().predict(NEW, n=999).time_s


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"coefficients": (0.1,)}, "not all have roots"),
        ({"logs": ((1.0,),) * NUMBER}, "different numbers of weights"),
        ({"logs": ((1.0,),) * NUMBER, "roots": ((1.0,),) * NUMBER}, "not of 5 weights"),
    ],
)
def test_damaged_corrections_are_refused(change: dict[str, object], complaint: str) -> None:
    content = weights().to_object()
    content["correction"] |= change
    with pytest.raises(DocumentError, match=complaint):
        WeightSet.from_object(content)
