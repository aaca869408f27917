"""Weight sets of expressions: breakdowns, intervals, refusals, old documents."""

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
from countperf.models.definition import ModelDefinition
from countperf.models.linear import LINEAR
from countperf.models.records import Calibration, FitQuality, FittedParameter, Range
from countperf.models.standard import from_expression
from countperf.models.weights import WeightSet
from countperf.properties.taxonomy import COUNTING_RULES_VERSION
from countperf.properties.vector import PropertyVector
from tests.models.builders import make_device, make_weight, make_weights

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


def _parameter(name: str, value: float) -> FittedParameter:
    return FittedParameter(
        name=name, value=value, standard_error=None, lower=0.0, upper=None, at_bound=False
    )


def _weights(expression: str, **changes: Any) -> WeightSet:
    model = changes.pop("model", None) or from_expression(expression)
    values = {"launches": 1e-6, LOAD: 5e-9, ADD: 2e-10, "flop.special.f32": 1e-9}
    weights = tuple(
        make_weight(feature, value, term=term)
        for term, spec in model.term_features.items()
        for feature, value in values.items()
        if spec.feature_of(feature) == feature
    )
    numbers = {"w_group": 1e-9, "sharpness": 3.0}
    parameters = tuple(_parameter(name, numbers[name]) for name in model.all_parameters)
    size = len(weights) + len(parameters)
    fields: dict[str, Any] = {
        "model": model.name,
        "definition": model,
        "device": make_device(),
        "counting_rules": COUNTING_RULES_VERSION,
        "weights": weights,
        "parameters": parameters,
        "ranges": {name: Range(smallest=1.0, largest=1e6) for name in model.variables},
        "covariance_s2": tuple((0.0,) * size for _ in range(size)),
        "quality": QUALITY,
    }
    return WeightSet(**(fields | changes))


OVERLAP = "launch + w_group*groups + overlap(global_memory, on_chip)"


def test_the_breakdown_is_weight_times_derivative_and_sums_to_the_time() -> None:
    prediction = _weights(OVERLAP).predict(KERNEL, n=1000)

    memory, chip = 5e-6, 6e-6 + 1e-6
    overlap = (memory**3 + chip**3) ** (1 / 3)
    assert prediction.time_s == pytest.approx(1e-6 + 1e-6 + overlap, rel=1e-14)
    assert prediction.breakdown == pytest.approx(
        {
            "launches": 1e-6,
            "w_group": 1e-6,
            LOAD: memory * (memory / overlap) ** 2,
            ADD: 6e-6 * (chip / overlap) ** 2,
            "flop.special.f32": 1e-6 * (chip / overlap) ** 2,
        },
        rel=1e-12,
    )
    assert sum(prediction.breakdown.values()) == pytest.approx(prediction.time_s, rel=1e-12)


def test_what_no_weight_accounts_for_is_a_part_of_its_own() -> None:
    expression = "launch + 3e-6 + global_memory**2*1e5 + 0*on_chip"
    prediction = _weights(expression, **_without_groups(expression)).predict(KERNEL, n=1000)

    # the square counts twice by its derivative
    assert prediction.time_s == pytest.approx(1e-6 + 3e-6 + 2.5e-6)
    assert prediction.breakdown["remainder"] == pytest.approx(3e-6 - 2.5e-6)
    assert sum(prediction.breakdown.values()) == pytest.approx(prediction.time_s)


@pytest.mark.parametrize(
    "expression",
    [
        OVERLAP,
        "launch + global_memory + on_chip",
        "launch*ceil(groups/8)/groups + max(global_memory, on_chip)",
    ],
)
def test_compiled_functions_give_the_predicted_times(expression: str) -> None:
    weights = _weights(expression, **_without_groups(expression))
    cost = pickle.loads(pickle.dumps(weights.compile(KERNEL)))
    sizes = np.array([[1, 2], [30, 4000]])

    times = weights.predict(KERNEL, n=sizes).time_s

    assert cost(n=sizes) == pytest.approx(times, rel=1e-12)
    assert cost(n=30) == pytest.approx(np.asarray(times)[1, 0], rel=1e-12)


def _without_groups(expression: str) -> dict[str, Any]:
    if "groups" in expression:
        return {}
    fields = from_expression(expression).to_object()
    return {
        "model": ModelDefinition.from_object({**fields, "ignored": [*fields["ignored"], "groups"]})
    }


DERIVED = ModelDefinition.from_object(
    {
        "format": "countperf-model",
        "version": 1,
        "name": "derived",
        "expression": "cost*waves/groups",
        "derived": {
            "bytes": "4*gmem_load_32_stride1",
            "waves": "ceil(groups/4)",
        },
        "terms": {"cost": ["bytes", "launches", "flop.*.*"]},
        "ignored": ["iop.*"],
    }
)


def test_derived_features_have_weights_and_enter_the_expression() -> None:
    weights = _weights("", model=DERIVED)
    column = make_weight("launches", 2e-9).model_copy(update={"feature": "bytes"})
    weights = weights.model_copy(
        update={"weights": (*weights.weights, column), "covariance_s2": None}
    )
    weights = WeightSet.model_validate(weights.model_dump())
    cost = weights.compile(KERNEL)

    expected = (1e-6 + 6e-6 + 1e-6 + 2e-9 * 4000) * 250 / 1000
    assert weights.predict(KERNEL, n=1000).time_s == pytest.approx(expected)
    assert cost(n=1000) == pytest.approx(expected)
    assert cost(n=np.array([10, 1000]))[1] == pytest.approx(expected)  # pyright: ignore[reportIndexIssue] - arrays
    assert weights.predict(KERNEL, n=1000).ignored == ("iop.add.i32",)


def test_a_derived_feature_without_a_weight_is_missing() -> None:
    weights = _weights("", model=DERIVED)

    with pytest.raises(UnmeasuredPropertyError) as caught:
        weights.predict(KERNEL, n=10)
    assert caught.value.properties == ("bytes",)
    with pytest.raises(UnmeasuredPropertyError):
        weights.compile(KERNEL)(n=10)


def test_a_name_that_the_measurements_never_had_is_missing() -> None:
    weights = _weights(OVERLAP, ranges={})

    with pytest.raises(UnmeasuredPropertyError) as caught:
        weights.predict(KERNEL, n=10)
    assert caught.value.properties == ("groups",)
    with pytest.raises(UnmeasuredPropertyError):
        weights.compile(KERNEL)(n=10)


def test_an_unknown_property_is_never_dropped() -> None:
    weights = _weights("launch + w_group*groups + global_memory")

    with pytest.raises(UnmeasuredPropertyError) as caught:
        weights.predict(KERNEL, n=10)
    assert set(caught.value.properties) == {ADD, "flop.special.f32.exp"}
    with pytest.raises(UnmeasuredPropertyError):
        weights.compile(KERNEL)(n=10)


def test_a_division_by_zero_is_said_and_no_time() -> None:
    weights = _weights("launch/(groups - 5) + global_memory + on_chip")

    for call in (weights.compile(KERNEL), lambda n: weights.predict(KERNEL, n=n)):
        with pytest.raises(ModelNotApplicableError, match="no finite time"):
            call(n=5)
        with pytest.raises(ModelNotApplicableError, match="no finite time"):
            call(n=np.array([4, 5]))


def test_intervals_are_of_the_calibrated_quantile_at_the_level_asked_for() -> None:
    weights = _weights(OVERLAP)

    for level, quantile in ((0.9, 0.5), (0.95, 0.7)):
        found = weights.predict(KERNEL, n=1000, level=level)
        assert found.interval_level == level
        assert found.interval_s == pytest.approx(
            (found.time_s * np.exp(-quantile), found.time_s * np.exp(quantile))
        )
    with pytest.raises(ParameterError, match="intervals are of"):
        weights.predict(KERNEL, n=1000, level=0.5)


def test_intervals_widen_outside_the_measured_range_and_that_is_said() -> None:
    found = _weights(OVERLAP).predict(KERNEL, n=10**7)

    (caveat,) = found.caveats
    assert caveat.name == "extrapolation"
    assert "groups" in caveat.message
    assert "widened" in caveat.message
    assert found.interval_s is not None
    assert found.interval_s[1] == pytest.approx(found.time_s * np.exp(1.5 * 0.7))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"parameters": ()}, "parameters of the expression", id="no parameters"),
        pytest.param({"ranges": {"n": Range(smallest=1, largest=2)}}, "no name n", id="range"),
        pytest.param(
            {"weights": (make_weight("launches", 1.0, term="x"),)}, "no term x", id="a term"
        ),
    ],
)
def test_a_weight_set_has_to_fit_its_model(changes: dict[str, Any], said: str) -> None:
    content = _weights(OVERLAP, covariance_s2=None).model_copy(update=changes)

    with pytest.raises(DocumentError, match=said):
        WeightSet.read_text(json.dumps(content.to_object()))


def test_a_bad_expression_in_a_document_is_named_by_its_path() -> None:
    content = _weights(OVERLAP).to_object()
    content["definition"]["expression"] = "launch + __import__('os')"

    with pytest.raises(DocumentError, match="a character that no formula has") as caught:
        WeightSet.from_object(content)
    assert caught.value.field == "$.definition.expression"


VERSION_1: dict[str, Any] = {
    "format": "countperf-weights",
    "version": 1,
    "model": "linear",
    "expression": "time_s = sum over features of weight_s * value",
    "counting_rules": COUNTING_RULES_VERSION,
    "features": {"charged": ["flop.add.*", "launches"], "ignored": ["iop.*"]},
}


def test_a_document_of_version_1_is_read_and_written_as_one_of_now() -> None:
    now = make_weights({ADD: 2e-9, "launches": 1e-6}).to_object()
    old = {k: v for k, v in now.items() if k not in ("definition", "parameters", "ranges")}
    old |= VERSION_1
    del old["candidates"], old["exercising_kernels"]
    for weight in old["weights"]:
        del weight["term"]

    weights = WeightSet.from_object(old)

    assert weights.version == 3
    assert weights.features.charged == ("flop.add.*", "launches")
    assert weights.expression == "cost"
    assert weights.predict({ADD: 10, "launches": 1}).time_s == pytest.approx(1.02e-6)
    assert WeightSet.read_text(weights.write_text()) == weights
    assert LINEAR.expression == "cost"


@pytest.mark.parametrize("slug", ["pocl-epyc-zen5", "intel-epyc-zen5"])
def test_weights_in_the_repository_predict_what_their_numbers_say(slug: str) -> None:
    path = FITS / slug / "linear.json"
    raw = {w["feature"]: w["value_s"] for w in json.loads(path.read_text())["weights"]}
    counts = {ADD: 1000, LOAD: 500, "groups": 4, "launches": 1, "gmem.min.32.stride1": 7}

    prediction = WeightSet.read_file(path).predict(counts)

    assert prediction.time_s == pytest.approx(sum(raw[n] * c for n, c in counts.items()), rel=1e-14)
