"""Corrections by similar kernels: what is learnt, when it ships, and what it is worth."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import countperf
from countperf.counting.structure.issue import ExecutionPolicy
from countperf.counting.vector import PropertyVector
from countperf.errors import DocumentError
from countperf.models.correction import CORRECTION, as_points, profile, similarity
from countperf.models.definition import FeatureSpec
from countperf.models.fitting.design import Estimate, Observation
from countperf.models.fitting.fit_model import FitResult, fit
from countperf.models.fitting.leaving_out import (
    LARGEST_LOG,
    NOISE,
    corrected,
    learn,
    leave_families_out,
)
from countperf.models.library import load_weights
from countperf.models.shipped import LINEAR, structural
from countperf.models.weights import WeightSet
from tests.models.fitting.builders import (
    KERNELS,
    MadeUpKernel,
    estimate,
    measure,
    observe_all,
    recipe_of,
)
from tests.printing import text_of

ADD = "site.free.flat.256x1.flop.add.f32"
LOAD = "site.free.flat.256x1.gmem.load.32.next"
STORE = "site.free.flat.256x1.gmem.store.32.next"
FEATURES = FeatureSpec(charged=(ADD, LOAD, STORE, "groups", "launches"))
WEIGHTS = {ADD: 4e-11, LOAD: 3e-11, STORE: 6e-11, "groups": 1e-8, "launches": 4e-6}
MODEL = structural(ExecutionPolicy(width=8, vectorized="flat"))
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
        made.append(
            MadeUpKernel(
                name=f"k{family}{number}",
                family=f"f{family}",
                counts=counts(adds, loads, stores),
                view="structure",
                off=factor if prevails else 1.0,
            )
        )
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

    learnt = learn(fitted, cases)

    assert learnt is not None
    assert learnt.kernels == tuple(sorted({case.kernel for case in cases}))
    means = means_of(fitted, cases, learnt.kernels)
    roots, logs = np.array(learnt.roots).T, np.array(learnt.logs).T
    points = as_points(roots, logs, learnt.scale).T
    apart = np.sqrt(((points[:, np.newaxis] - points) ** 2).sum(axis=2))
    covariance = np.exp(-apart)
    expected = np.linalg.solve(covariance + NOISE * np.eye(len(points)), means)
    assert learnt.coefficients == pytest.approx(expected, rel=1e-6)
    assert np.max(np.abs(means)) < LARGEST_LOG
    assert learnt.of_columns(range(len(roots)))(roots, logs) == pytest.approx(
        covariance @ expected, rel=1e-6, abs=1e-7
    )


def test_few_kernels_say_nothing() -> None:
    cases = observe_all()
    assert len({kernel.name for kernel in KERNELS}) < 20
    assert learn(estimate(cases, LINEAR, recipe_of(LINEAR)), cases) is None


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
    learnt = learn(whole, cases)
    assert learnt is not None
    roots, logs = np.array(learnt.roots).T, np.array(learnt.logs).T
    points = as_points(roots, logs, learnt.scale).T
    far = [i for i, name in enumerate(learnt.kernels) if name[:2] != "k2"]
    off = means_of(near, others, [learnt.kernels[i] for i in far])
    alike = similarity(points[far], points[far]) + NOISE * np.eye(len(far))
    (index,) = [i for i, one in enumerate(cases) if one.name == case.name]
    values = whole.design.counts.T
    unknowns = whole.solution.coefficients
    told = profile(whole.function.columns, values, whole.design.scaled.T, unknowns)
    point = as_points(told[0][:, [index]], told[1][:, [index]], learnt.scale).T
    log_factor = similarity(point, points[far])[0] @ np.linalg.solve(alike, off)
    assert case.predicted_s is not None
    assert case.corrected_s == pytest.approx(case.predicted_s * np.exp(log_factor), rel=1e-4)
    assert case.corrected_s != pytest.approx(case.predicted_s, rel=1e-3)
    assert [c.predicted_s for c in corrected(held_out)] == [c.corrected_s for c in held_out]
    assert all(case.corrected_s is None for case in without)


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
    assert all(name in verdict.message for name in ("k14", "most alike"))
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
    assert times == pytest.approx(np.array(single), rel=1e-12)
    assert cost(n=sizes) == pytest.approx(np.array(single), rel=1e-9)
    assert cost(n=4096) == pytest.approx(single[1][0], rel=1e-9)
    assert pickle.loads(pickle.dumps(cost))(n=4096) == cost(n=4096)


def test_anchors_correct_what_is_left() -> None:
    made = weights().predict(NEW, n=64)
    time_s = 1.25 * float(weights().predict(NEW, n=1024).time_s)

    assert 1.0 < made.anchored(({"n": 1024}, time_s)).time_s / made.time_s <= 1.25


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
