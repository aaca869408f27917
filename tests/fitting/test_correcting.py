"""Corrections by similar kernels: what is learnt, when it ships, and what it is worth."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from countperf.errors import DocumentError
from countperf.execution.issue import ExecutionPolicy
from countperf.features import FeatureSpec
from countperf.fitting.correcting import LARGEST_LOG, NOISE, learn
from countperf.fitting.estimate import estimate, recipe_of
from countperf.fitting.fit import FitResult, fit
from countperf.fitting.leaving_out import corrected, leave_families_out
from countperf.models.correction import CORRECTION, as_points, profile, similarity
from countperf.models.library import load_weights
from countperf.models.shipped import LINEAR
from countperf.models.structural import structural
from countperf.models.weights import WeightSet
from countperf.properties.vector import PropertyVector
from tests.fitting.builders import KERNELS, MadeUpKernel, measure, observe_all
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
    found = {name: f"[n] -> {{ {256 * number} * n }}" for name, number in per_item.items()}
    return found | {"groups": "[n] -> { n }"}


def kernels(factor: float) -> list[MadeUpKernel]:
    """Kernels of six families, a device taking longer by a factor where sums prevail in them."""
    made: list[MadeUpKernel] = []
    for family in range(FAMILIES):
        for place in range(EACH):
            adds, loads, stores = (
                2 ** (place + 1) + family,
                1 + (family + place) % 4,
                1 + family % 3,
            )
            prevails = adds * WEIGHTS[ADD] > loads * WEIGHTS[LOAD] + stores * WEIGHTS[STORE]
            made.append(
                MadeUpKernel(
                    name=f"k{family}{place}",
                    family=f"f{family}",
                    counts=counts(adds, loads, stores),
                    view="structure",
                    off=factor if prevails else 1.0,
                )
            )
    return made


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


def test_what_is_learnt_is_a_gaussian_process_over_means_of_kernels() -> None:
    cases = [case for kernel in kernels(1.6) for case in kernel.observe(WEIGHTS, features=FEATURES)]
    found = estimate(cases, MODEL, recipe_of(MODEL))

    learnt = learn(found, cases)

    assert learnt is not None
    assert learnt.kernels == tuple(sorted({case.kernel for case in cases}))
    names = [case.kernel for case in cases]
    off = np.log(found.design.times_s / found.predicted_s)
    means = [np.mean(off[[name == k for name in names]]) for k in learnt.kernels]
    roots, logs = np.array(learnt.roots).T, np.array(learnt.logs).T
    points = as_points(roots, logs, learnt.scale).T
    apart = np.sqrt(((points[:, np.newaxis] - points) ** 2).sum(axis=2))
    covariance = np.exp(-apart)
    expected = np.linalg.solve(covariance + NOISE * np.eye(len(points)), means)
    assert learnt.coefficients == pytest.approx(expected, rel=1e-6)
    assert np.max(np.abs(means)) < LARGEST_LOG
    assert learnt.log_factor(roots, logs) == pytest.approx(
        covariance @ expected, rel=1e-6, abs=1e-7
    )


def test_few_kernels_say_nothing() -> None:
    cases = observe_all()
    found = estimate(cases, LINEAR, recipe_of(LINEAR))

    assert len({kernel.name for kernel in KERNELS}) < 20
    assert learn(found, cases) is None


def test_families_left_out_are_corrected_by_the_others_alone() -> None:
    cases = [case for kernel in kernels(1.6) for case in kernel.observe(WEIGHTS, features=FEATURES)]
    recipe = recipe_of(MODEL)
    held_out = leave_families_out(
        cases, estimate(cases, MODEL, recipe), recipe, with_correction=True
    )
    others = [case for case in cases if case.family != "f2"]
    without = leave_families_out(others, estimate(others, MODEL, recipe), recipe)

    (case,) = [case for case in held_out if case.name == f"k23/n={2**14}"]
    outside = [each for each in cases if each.family != "f2"]
    near = estimate(outside, MODEL, recipe_of(MODEL))
    whole = estimate(cases, MODEL, recipe_of(MODEL))
    learnt = learn(whole, cases)
    assert learnt is not None
    roots, logs = np.array(learnt.roots).T, np.array(learnt.logs).T
    points = as_points(roots, logs, learnt.scale).T
    others = [i for i, name in enumerate(learnt.kernels) if name[:2] != "k2"]
    off = [
        np.mean(
            [
                np.log(each.time_s / time_s)
                for each, time_s in zip(outside, near.predicted_s, strict=True)
                if each.kernel == learnt.kernels[i]
            ]
        )
        for i in others
    ]
    alike = similarity(points[others], points[others]) + NOISE * np.eye(len(others))
    (place,) = [i for i, each in enumerate(cases) if each.name == case.name]
    values = whole.design.counts.T
    unknowns = whole.solution.coefficients
    told = profile(whole.function.columns, values, whole.design.scaled.T, unknowns)
    point = as_points(told[0][:, [place]], told[1][:, [place]], learnt.scale).T
    log_factor = similarity(point, points[others])[0] @ np.linalg.solve(alike, off)
    assert case.predicted_s is not None
    assert case.corrected_s == pytest.approx(case.predicted_s * np.exp(log_factor), rel=1e-4)
    assert case.corrected_s != pytest.approx(case.predicted_s, rel=1e-3)
    assert [c.predicted_s for c in corrected(held_out)] == [c.corrected_s for c in held_out]
    assert all(each.corrected_s is None for each in without)


def test_a_correction_ships_where_families_left_out_are_predicted_better_so() -> None:
    correction = weights().correction

    assert correction is not None
    factors = [
        quality.held_out_factor
        for each in (weights(), fitted(1.6, correct=False).weights)
        if (quality := each.quality) is not None and quality.held_out_factor is not None
    ]
    assert factors[0] < factors[1]
    assert set(correction.kernels) == {kernel.name for kernel in kernels(1.6)}
    assert fitted(1.0).weights.correction is None  # nothing is off
    assert fitted(1.6, correct=False).weights.correction is None


def test_predictions_are_multiplied_and_say_so() -> None:
    found, plain = weights().predict(NEW, n=4096), uncorrected().predict(NEW, n=4096)

    of_item = 24 * WEIGHTS[ADD] + 2 * WEIGHTS[LOAD] + WEIGHTS[STORE]
    true_s = 1.6 * (WEIGHTS["launches"] + 4096 * (WEIGHTS["groups"] + 256 * of_item))
    assert abs(float(plain.time_s) / true_s - 1) > 0.05
    assert abs(float(found.time_s) / true_s - 1) < 0.02
    assert sum(found.breakdown.values()) == pytest.approx(found.time_s)
    assert found.breakdown[CORRECTION] == pytest.approx(float(found.time_s) - float(plain.time_s))
    assert CORRECTION not in plain.breakdown
    verdict = found.verdicts[-1]
    factor = float(found.time_s) / float(plain.time_s)
    assert (verdict.name, verdict.passed) == (CORRECTION, True)
    assert f"multiplied by {factor:.3g}" in verdict.message
    assert all(name in verdict.message for name in ("k14", "most alike"))
    assert text_of(found).splitlines()[-1] == f"correction: {verdict.message}"
    assert verdict.message in text_of(weights().explain(NEW, n=4096))
    assert "correction" not in text_of(plain)
    assert found.interval_s is not None
    assert float(found.interval_s[0]) < float(found.time_s) < float(found.interval_s[1])


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
    time_s = 1.25 * float(weights().predict(NEW, n=1024).time_s)

    anchored = weights().anchored(NEW, ({"n": 1024}, time_s))

    assert 1.0 < anchored.factor <= 1.25
    expected_s = anchored.predict(n=64).time_s
    assert anchored.compile()(n=64) == pytest.approx(expected_s, rel=1e-9)


def test_a_document_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "pocl-testchip" / "weights.json"
    weights().write_file(path)

    read = load_weights(path)

    assert read == weights()
    assert read.predict(NEW, n=999).time_s == weights().predict(NEW, n=999).time_s
    assert '"correction"' not in uncorrected().write_text()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"coefficients": (0.1,)}, "not all have roots"),
        ({"logs": ((1.0,),) * NUMBER}, "different numbers of weights"),
        ({"logs": ((1.0,),) * NUMBER, "roots": ((1.0,),) * NUMBER}, "not of 5 weights"),
    ],
    ids=["a coefficient for each kernel", "as many logs as roots", "of all weights"],
)
def test_damaged_corrections_are_refused(change: dict[str, object], complaint: str) -> None:
    content = weights().to_object()
    content["correction"] |= change

    with pytest.raises(DocumentError, match=complaint):
        WeightSet.from_object(content)
