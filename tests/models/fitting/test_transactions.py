"""Models that name transactions of sub-groups: fits, predictions, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import countperf
from countperf.api.evaluation import evaluate, evaluate_ranking, fit
from countperf.api.prediction import predict
from countperf.api.searching import rank
from countperf.counting.analysis import with_transactions
from countperf.counting.count_properties import count_kernel
from countperf.counting.vector import PropertyVector
from countperf.errors import DocumentError, FitError, PredictionError
from countperf.measuring import Measurement, MeasurementSet
from countperf.models.fitting.fit_model import FitResult
from countperf.models.fitting.fit_model import fit as fit_model
from countperf.models.weights import WeightSet
from measurement_kernels.catalog import entry
from measurement_kernels.variants import spaces
from tests.models.builders import sum_model
from tests.models.fitting.builders import measure

ROOT = "transactions.32x128"
MODEL = sum_model(
    {"launch": ["launches"], "work": ["groups", f"{ROOT}.load", f"{ROOT}.store"]},
    ignored=["flop.*", "iop.*", "gmem.*", "lmem.*", "barrier.*"],
)
TRUTH_S = {"groups": 3e-9, f"{ROOT}.load": 2e-11, f"{ROOT}.store": 5e-11}
LAUNCH_S = 4e-6
SIZES = {
    "transpose/tiled/16x16/f32": [(64, 96), (256, 320)],
    "transpose/stride1-reads/32x16/f32": [(64, 96), (256, 320)],
    "stride1/copy/128x1/f32": [(4096,), (2**17,)],
    "vector-scale-add/stride3/256x1/f32": [(4096,), (2**17,)],
    "stride2-filled/direct/128x1/f32": [(4096,), (2**17,)],
    "empty/16x16/f32": [(64, 96), (512, 640)],
}
JUDGED = "transpose/stride1-reads/32x16/f32"
"""Which the fit does not see."""


def _sizes(name: str, values: tuple[int, ...]) -> dict[str, int]:
    return dict(zip([size.name for size in entry(name).sizes], values, strict=True))


def _counted(name: str) -> PropertyVector:
    unit = entry(name).build()
    return with_transactions(count_kernel(unit), unit, [ROOT])


def _time_s(name: str, sizes: dict[str, int]) -> float:
    counts = _counted(name).evaluate(sizes)
    return LAUNCH_S + sum(value * counts[name] for name, value in TRUTH_S.items())


@cache
def measured() -> MeasurementSet:
    """Real kernels on a device whose time is that of groups and transactions."""
    lines: list[Measurement] = []
    for name, some in SIZES.items():
        vector = count_kernel(entry(name).build(), view="structure").to_document()
        for values in some:
            sizes = _sizes(name, values)
            case, times = entry(name).case_at(**sizes), [[_time_s(name, sizes)] * 3]
            line = Measurement.from_samples(case, times, dropped=1, properties=vector)
            purpose = "test" if name == JUDGED else "measurement"
            lines.append(line.model_copy(update={"purpose": purpose}))
    return replace(measure(), measurements=tuple(lines))


@cache
def fitted() -> FitResult:
    return fit(measured(), model=MODEL)


def test_they_are_found_for_kernels_of_the_catalogue_and_fitted() -> None:
    weights = fitted().weights
    values = {name: weight.value_s for name, weight in weights.by_feature.items()}
    assert values == pytest.approx({"launches": LAUNCH_S, **TRUTH_S}, rel=1e-6)
    assert weights.view == "source"
    assert next(v for v in fitted().verdicts if v.name == "cases").passed
    again = WeightSet.read_text(weights.write_text())
    judged = evaluate(measured(), weights=again)
    assert [case.predicted_s for case in judged.cases] == pytest.approx(
        [case.measured_s for case in judged.cases], rel=1e-6
    )
    assert len(judged.cases) == len(SIZES[JUDGED])


@pytest.mark.parametrize("how", ["kernel", "name", "vector", "counts by hand"])
def test_kernels_are_predicted_at_sizes_that_were_not_measured(how: str) -> None:
    weights, sizes = fitted().weights, _sizes(JUDGED, (800, 1008))
    expected = _time_s(JUDGED, sizes)
    vector = _counted(JUDGED)
    counted = vector.evaluate(sizes)
    if how == "kernel":
        prediction = countperf.predict(entry(JUDGED).build(), sizes, weights=weights)
    elif how == "name":
        prediction = predict(JUDGED, sizes, weights=weights)
    elif how == "vector":
        prediction = weights.predict(vector, sizes)
    else:
        prediction = weights.predict({name: int(count) for name, count in counted.items()})
    assert prediction.time_s == pytest.approx(expected, rel=1e-6)
    assert prediction.breakdown[f"{ROOT}.load"] == pytest.approx(
        TRUTH_S[f"{ROOT}.load"] * counted[f"{ROOT}.load"], rel=1e-6
    )


def test_arrays_of_sizes_are_predicted_one_by_one() -> None:
    sizes = np.array([320, 640])
    weights = fitted().weights
    times = countperf.predict(entry(JUDGED).build(), n=sizes, m=sizes, weights=weights).time_s
    expected = [_time_s(JUDGED, _sizes(JUDGED, (int(n), int(n)))) for n in sizes]
    assert times == pytest.approx(expected, rel=1e-6)


def test_variants_are_ranked_by_transactions_of_their_own() -> None:
    weights, sizes = fitted().weights, {"n": 256, "m": 256}
    ranking = rank("transpose", sizes, weights=weights, points=4, incomplete_ok=True, workers=1)
    assert len(ranking.best) > 2
    built = spaces()["transpose"]
    for point in ranking.best:
        unit = built.build(**point.choice)
        expected = countperf.predict(unit, sizes, incomplete_ok=True, weights=weights).time_s
        assert point.time_s == pytest.approx(expected, rel=1e-12)


def test_sets_of_variants_are_judged() -> None:
    variants = [line.model_copy(update={"purpose": "variant"}) for line in measured()]
    judged = replace(measured(), measurements=tuple(variants))
    sets = evaluate_ranking(judged, weights=fitted().weights).sets
    predicted = sorted(v.predicted_s or 0.0 for one in sets for v in one.variants)
    assert predicted == pytest.approx(sorted(line.time_s for line in measured()), rel=1e-6)


def test_a_policy_may_stand_beside_them() -> None:
    terms = {"launch": ["launches"], "work": list(TRUTH_S)}
    policy = {"width": 32, "along": "group"}
    model = sum_model(
        terms, policy=policy, ignored=["issue.*", "bytes.*", "segments.*", "barrier.*"]
    )
    weights = fit(measured(), model=model).weights
    sizes = _sizes(JUDGED, (800, 1008))
    time_s = predict(JUDGED, sizes, weights=weights, incomplete_ok=True).time_s
    assert time_s == pytest.approx(_time_s(JUDGED, sizes), rel=1e-6)


def test_what_does_not_say_them_is_refused() -> None:
    weights, kernel = fitted().weights, entry(JUDGED).build()
    with pytest.raises(PredictionError, match=rf"names {ROOT}, .*pass the kernel itself"):
        weights.predict(count_kernel(kernel), n=64, m=64)
    with pytest.raises(PredictionError, match="has no formula, and a cost function"):
        weights.compile(kernel)
    with pytest.raises(FitError, match="of no measured case transactions are known"):
        fit_model(measured(), model=MODEL)
    with pytest.raises(DocumentError, match="work items of a sub-group"):
        sum_model({"launch": ["launches"], "lines": ["transactions.*.load"]})


def test_a_vector_of_counts_by_hand_may_have_a_formula_of_them() -> None:
    by_hand = {"launches": 1, f"{ROOT}.load": "[n] -> { 3*n }", f"{ROOT}.store": "[n] -> { n }"}
    cost = fitted().weights.compile(PropertyVector.from_mapping(by_hand))
    expected = LAUNCH_S + 10 * (3 * TRUTH_S[f"{ROOT}.load"] + TRUTH_S[f"{ROOT}.store"])
    assert cost(n=10) == pytest.approx(expected, rel=1e-6)


def test_lines_keep_them_and_cases_without_them_are_left_out_and_named(tmp_path: Path) -> None:
    known = fitted().observations[0].kernel
    lines = [
        line.model_copy(update={"transactions": {f"{ROOT}.load": 5, f"{ROOT}.store": 7}})
        if line.kernel == known
        else line.model_copy(update={"kernel": f"mine.py:{line.kernel}"})
        for line in measured()
    ]
    replace(measured(), measurements=tuple(lines)).write_file(tmp_path / "lines.jsonl")
    text = (tmp_path / "lines.jsonl").read_text()
    assert text.count("transactions.32x128.load") == len(SIZES[known])
    stored = MeasurementSet.read_lines(text.splitlines())
    result = fit(stored, model=MODEL)
    assert {case.kernel for case in result.observations} == {known}
    verdict = next(v for v in result.verdicts if v.name == "cases")
    assert not verdict.passed
    assert "without what the model names, so not in the fit" in verdict.message
    vector = stored.measurements[0].property_vector()
    assert vector is not None
    assert vector.evaluate(stored.measurements[0].parameters)[f"{ROOT}.store"] == 7
