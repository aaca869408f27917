"""Corrections of sizes, in arrays and one by one, and their numbers as text in documents."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

import countperf
from countperf.api.prediction import explain_prediction
from countperf.counting.vector import PropertyVector
from countperf.errors import ParameterError, PredictionError
from countperf.models.correction import Correction, as_points, pack, shrink_errors, unpack
from countperf.models.weights import WeightSet
from tests.models.builders import calibrated, make_device, make_weights

COLUMNS, KERNELS, SCALE = 5, 2100, 3.0

Array = NDArray[np.float64]


def measured(number: int = KERNELS, seed: int = 3) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.ones(COLUMNS), number).T
    return np.sqrt(shares).T, random.uniform(0.0, 9.0, (COLUMNS, number)).T


def test_sizes_are_corrected_alike_in_arrays_and_one_by_one() -> None:
    alpha = np.random.default_rng(7).normal(size=KERNELS)
    own = measured()
    correction = Correction(
        kernels=tuple(f"k{i}" for i in range(KERNELS)),
        roots=tuple(map(tuple, own[0].tolist())),
        logs=tuple(map(tuple, own[1].tolist())),
        coefficients=tuple(alpha.tolist()),
        scale=SCALE,
    )
    roots, logs = measured(300, seed=4)
    points, axes = as_points(roots, logs, SCALE), as_points(*own, SCALE).T
    expected = [
        np.exp(-np.sqrt(((axes - point[:, np.newaxis]) ** 2).sum(axis=0))) @ alpha
        for point in points
    ]
    together = correction.find_log_factors(roots, logs)
    assert together == pytest.approx(np.array(expected), rel=1e-9, abs=1e-12)
    assert together.tolist() == [correction.find_log_factors(roots[i], logs[i]) for i in range(300)]


@pytest.mark.parametrize(
    "content",
    [[], [[]], [[1.0, -2.5], [], [255.0]], [[math.pi, 1e-60, 2.0**-90]], ["copy", "größe"]],
)
def test_packed_content_comes_back_as_it_was(content: object) -> None:
    assert unpack(pack(content)) == unpack(content) == content


@pytest.mark.parametrize("packed", [pack, list])
def test_rows_become_tuples_of_numbers(packed: Callable[[Any], Any]) -> None:
    fields = {"kernels": ["k"], "roots": [[0.5]], "logs": [[1.5]], "coefficients": [2.0]}
    plain = {"scale": 1.0, **{name: packed(rows) for name, rows in fields.items()}}
    correction = Correction.model_validate_json(json.dumps(plain))
    assert (correction.roots, correction.coefficients) == (((0.5,),), (2.0,))
    for bad in ([["a"]], [[True]], [0.5], {"a": 1}):
        with pytest.raises(ValidationError, match="logs"):
            Correction.model_validate_json(json.dumps(plain | {"logs": bad}))


def _packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


@pytest.mark.parametrize(
    "text",
    ["numbers!", "AAAA", _packed(b"[1, 2"), _packed(bytes(range(200)))[:80], _packed(b"[NaN]")],
    ids=["no base64", "no zlib", "no JSON", "cut off", "not finite"],
)
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="damaged"):
        unpack(text)


KERNEL = PropertyVector.from_mapping(
    {"flop.add.f32": "[n] -> { 3 * n : n > 0 }", "launches": 1}, kernel="axpy"
)
QUALITY = calibrated(between=0.5, within=0.1)
WEIGHTS = make_weights({"flop.add.f32": 2e-9, "launches": 1e-6}, quality=QUALITY)


SHRINK = ((1 / 104 + 0.01) / 0.26) ** 0.5
"""Of one run, with variances of 0.25 between and 0.01 within kernels."""


def _time_s(n: int) -> float:
    return float(WEIGHTS.predict(KERNEL, n=n).time_s)


def test_one_run_moves_predictions_nearly_all_the_way() -> None:
    anchored = WEIGHTS.predict(KERNEL, n=77).anchor(({"n": 1000}, 2 * _time_s(1000)))
    # 0.25 / (0.25 + 0.01) of the logarithm
    assert anchored.time_s == pytest.approx(2 ** (0.25 / 0.26) * _time_s(77))


def test_more_runs_move_further_and_narrow_the_interval() -> None:
    assert QUALITY.calibration is not None
    few, many = (shrink_errors(QUALITY.calibration, [np.log(2)] * number) for number in (1, 3))
    assert few[0] < many[0] < 2
    assert few[1] == pytest.approx(SHRINK)
    # (1 / (1/0.25 + n/0.01) + 0.01) / 0.26
    assert many[1] == pytest.approx(((1 / 304 + 0.01) / 0.26) ** 0.5)


def test_interval_and_breakdown_follow() -> None:
    plain = WEIGHTS.predict(KERNEL, n=1000, level=0.9)
    prediction = plain.anchor(({"n": 1000}, 2 * float(plain.time_s)))
    ends, plain_ends = np.array(prediction.interval_s), np.array(plain.interval_s)
    assert np.log(ends / prediction.time_s) == pytest.approx(
        SHRINK * np.log(plain_ends / plain.time_s)
    )
    assert sum(prediction.breakdown.values()) == pytest.approx(prediction.time_s)
    assert (prediction.interval_level, prediction.model) == (0.9, "linear, anchored")


def test_options_of_predictions_hold_for_anchored_ones() -> None:
    lacking = {"launches": 1, "flop.div.f32": 1, "flop.add.f32": "[n] -> { n }"}
    elsewhere = make_device(slug="pocl-other", name="other")
    options: dict[str, Any] = {"device": elsewhere, "force": True, "incomplete_ok": True}
    plain = countperf.predict(lacking, {"n": 1000}, weights=WEIGHTS, level=0.9, **options)
    anchored = plain.anchor(({"n": 1000}, 2 * float(plain.time_s)))
    assert (anchored.device, anchored.missing) == ("pocl-other", ("flop.div.f32",))
    assert (anchored.interval_level, anchored.interval_s) == (0.9, None)
    assert {caveat.name for caveat in anchored.caveats} == {"complete", "device"}
    again = anchored.anchor(({"n": 1000}, 2 * float(plain.time_s)))
    assert (again.time_s, again.caveats) == (anchored.time_s, anchored.caveats)


def test_explained_parts_of_anchored_predictions_are_counts_times_weights() -> None:
    plain = WEIGHTS.predict(KERNEL, n=1000)
    anchored = plain.anchor(({"n": 1000}, 80 * float(plain.time_s)))
    parts = explain_prediction(anchored).parts
    assert sum(part.part_s for part in parts) == pytest.approx(anchored.time_s)
    weighed = [(part.count, part.weight, part.part_s) for part in parts if part.weight]
    assert len(weighed) == 2
    for count, weight, part_s in weighed:
        assert count is not None
        assert part_s == pytest.approx(count * weight.value_s)


def test_arrays_are_corrected_too() -> None:
    runs = ({"n": 10}, 1e-5), ({"n": 20}, 1e-5)
    times: Any = WEIGHTS.predict(KERNEL, n=np.array([5, 50])).anchor(*runs).time_s
    assert times[1] == pytest.approx(WEIGHTS.predict(KERNEL, n=50).anchor(*runs).time_s)


def test_a_kernel_with_its_own_factor_is_found_within_the_stated_scatter() -> None:
    assert QUALITY.calibration is not None
    random = np.random.default_rng(6)
    errors: list[float] = []
    draws = 1000
    predicted = {n: _time_s(n) for n in (100, 1000)}
    for _ in range(draws):
        own = random.normal(0, 0.5)
        run, new = (time_s * np.exp(own + random.normal(0, 0.1)) for time_s in predicted.values())
        factor, _ = shrink_errors(QUALITY.calibration, [float(np.log(run / predicted[100]))])
        errors.append(float(np.log(new / (factor * predicted[1000]))))
    # three standard errors, of a standard deviation and of a mean
    stated = (1 / 104 + 0.01) ** 0.5
    assert np.std(errors) == pytest.approx(stated, rel=3 / (2 * draws) ** 0.5)
    assert np.mean(errors) == pytest.approx(0, abs=3 * stated / draws**0.5)


UNCALIBRATED = make_weights({"flop.add.f32": 1e-9, "launches": 1e-6})
NEGATIVE = make_weights({"flop.add.f32": -1e-9, "launches": 1e-12}, quality=QUALITY)


@pytest.mark.parametrize(
    ("weights", "runs", "error", "said"),
    [
        (WEIGHTS, [], ParameterError, "needs a measured run"),
        (WEIGHTS, [({"n": 1}, 0.0)], ParameterError, "positive"),
        (WEIGHTS, [({"n": 1}, np.nan)], ParameterError, "positive"),
        (UNCALIBRATED, [({"n": 1}, 1.0)], PredictionError, "fit them anew"),
        (NEGATIVE, [({"n": 1}, 1.0)], PredictionError, "no factor corrects"),
    ],
)
def test_refusals(weights: WeightSet, runs: list[Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        weights.predict_counts(KERNEL, {"n": 7}).anchor(*runs)
