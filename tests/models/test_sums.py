"""Weight sets of sums with scales and derived features: times, parts, intervals, refusals."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from countperf.errors import (
    DocumentError,
    ModelNotApplicableError,
    ParameterError,
    UnmeasuredPropertyError,
)
from countperf.models.function import Calibration, FitQuality, Range
from countperf.models.weights import WeightSet
from countperf.properties.taxonomy import COUNTING_RULES_VERSION
from countperf.properties.vector import PropertyVector
from tests.models.builders import make_device, make_weight, sum_model

FITS = Path(__file__).resolve().parents[2] / "fits"
LOAD, ADD = "gmem.load.32.stride1", "flop.add.f32"
KERNEL = PropertyVector.from_mapping(
    {
        ADD: "[n] -> { 30 * n : n > 0 }",
        LOAD: "[n] -> { n : n > 0 }",
        "flop.special.f32.exp": "[n] -> { n : n > 0 }",
        "groups": "[n] -> { n : n > 0 }",
        "launches": 1,
        "iop.add.i32": "[n] -> { n : n > 0 }",
    },
    kernel="axpy",
)
QUALITY = FitQuality(
    in_sample_error=0.1,
    held_out_error=0.3,
    in_sample_scatter=0.1,
    held_out_scatter=0.4,
    calibration=Calibration(
        log_errors_90=0.5,
        log_errors_95=0.7,
        between_kernels=0.4,
        within_kernels=0.1,
        families=9,
        cases=200,
    ),
)
SCALED = sum_model(
    {
        "launch": ["launches"],
        "work": {"charged": ["bytes", "flop.*.*"], "scale": "rounds"},
    },
    derived={"bytes": "4*gmem_load_32_stride1", "rounds": "4*ceil(groups/4)/groups"},
    ignored=["iop.*"],
)
VALUES = {"launches": 1e-6, "bytes": 2e-9, ADD: 2e-10, "flop.special.f32": 1e-9}


def _weights(model: Any = SCALED, *, without: str = "", **changes: Any) -> WeightSet:
    weights = tuple(
        make_weight("launches", value, term=term).model_copy(update={"feature": feature})
        for term, spec in model.term_features.items()
        for feature, value in VALUES.items()
        if feature != without
        and (feature in model.terms[term].charged or spec.feature_of(feature) == feature)
    )
    fields: dict[str, Any] = {
        "model": model.name,
        "definition": model,
        "device": make_device(),
        "counting_rules": COUNTING_RULES_VERSION,
        "weights": weights,
        "ranges": {name: Range(largest=2.0) for name in model.scales},
        "quality": QUALITY,
    }
    return WeightSet(**(fields | changes))


def test_parts_are_weights_times_features_times_scales_and_sum_to_the_time() -> None:
    prediction = _weights().predict(KERNEL, n=1001)

    rounds = 1004 / 1001
    parts = {
        "launches": 1e-6,
        "bytes": 2e-9 * 4004 * rounds,
        ADD: 2e-10 * 30030 * rounds,
        "flop.special.f32": 1e-9 * 1001 * rounds,
    }
    assert prediction.breakdown == pytest.approx(parts, rel=1e-12)
    assert prediction.time_s == pytest.approx(sum(parts.values()), rel=1e-12)
    assert prediction.ignored == ("iop.add.i32",)
    assert SCALED.expression == "launch + rounds*(work)"


def test_compiled_functions_give_the_predicted_times() -> None:
    weights = _weights()
    cost = pickle.loads(pickle.dumps(weights.compile(KERNEL)))
    sizes = np.array([[1, 2], [30, 4001]])

    times = weights.predict(KERNEL, n=sizes).time_s

    assert cost(n=sizes) == pytest.approx(times, rel=1e-12)
    assert cost(n=4001) == pytest.approx(np.asarray(times)[1, 1], rel=1e-12)


@pytest.mark.parametrize(
    ("weights", "missing"),
    [
        pytest.param(_weights(without="bytes"), {"bytes"}, id="a derived feature"),
        pytest.param(_weights(ranges={}), {"rounds"}, id="a scale that no case had"),
        pytest.param(
            _weights(sum_model({"launch": ["launches"], "work": ["groups"]})),
            {ADD, LOAD, "flop.special.f32.exp", "groups", "iop.add.i32"},
            id="properties without a rule",
        ),
    ],
)
def test_what_has_no_weight_is_never_dropped(weights: WeightSet, missing: set[str]) -> None:
    with pytest.raises(UnmeasuredPropertyError) as caught:
        weights.predict(KERNEL, n=10)
    assert set(caught.value.properties) == missing
    with pytest.raises(UnmeasuredPropertyError):
        weights.compile(KERNEL)(n=10)


def test_a_division_by_zero_is_said_and_no_time() -> None:
    model = sum_model(
        {"launch": {"charged": ["launches"], "scale": "pole"}, "rest": ["flop.*.*"]},
        derived={"pole": "1/(groups - 5)"},
        ignored=["iop.*", "gmem.*"],
    )
    weights = _weights(model)

    for call in (weights.compile(KERNEL), lambda n: weights.predict(KERNEL, n=n)):
        for n in (5, np.array([5, 6])):
            with pytest.raises(ModelNotApplicableError, match="no finite time"):
                call(n=n)


def test_intervals_are_of_the_calibrated_quantile_at_the_level_asked_for() -> None:
    weights = _weights(ranges={"rounds": Range(largest=1e3)})

    for level, quantile in ((0.9, 0.5), (0.95, 0.7)):
        found = weights.predict(KERNEL, n=1000, level=level)
        assert found.interval_level == level
        assert found.interval_s == pytest.approx(
            (found.time_s * np.exp(-quantile), found.time_s * np.exp(quantile))
        )
    with pytest.raises(ParameterError, match="intervals are of"):
        weights.predict(KERNEL, n=1000, level=0.5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"ranges": {"n": Range(largest=2)}}, "no term has", id="range"),
        pytest.param(
            {"weights": (make_weight("launches", 1.0, term="x"),)}, "no term x", id="a term"
        ),
    ],
)
def test_a_weight_set_has_to_fit_its_model(changes: dict[str, Any], said: str) -> None:
    content = _weights().model_copy(update=changes)

    with pytest.raises(DocumentError, match=said):
        WeightSet.read_text(json.dumps(content.to_object()))


def test_documents_of_older_versions_are_refused_with_the_command_that_refits() -> None:
    content = {**_weights().to_object(), "version": 3}

    with pytest.raises(DocumentError, match="countperf fit STORE --name NAME") as caught:
        WeightSet.from_object(content)
    assert caught.value.field == "$.version"


@pytest.mark.parametrize("slug", ["pocl-epyc-zen5", "intel-epyc-zen5"])
def test_weights_in_the_repository_predict_what_their_numbers_say(slug: str) -> None:
    path = FITS / slug / "linear.json"
    raw = {w["feature"]: w["value_s"] for w in json.loads(path.read_text())["weights"]}
    counts = {ADD: 1000, LOAD: 500, "groups": 4, "launches": 1, "gmem.min.32.stride1": 7}

    prediction = WeightSet.read_file(path).predict(counts)

    assert prediction.time_s == pytest.approx(sum(raw[n] * c for n, c in counts.items()), rel=1e-14)
