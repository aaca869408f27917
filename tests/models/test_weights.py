"""Weight sets: predictions, refusals, and the document."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from countperf.errors import (
    DeviceMismatchError,
    DocumentError,
    ModelNotApplicableError,
    ParameterError,
    PredictionError,
    UnmeasuredPropertyError,
)
from countperf.models.definition import ModelDefinition, Term
from countperf.models.library import load_weights
from countperf.models.weights import WeightSet
from countperf.properties.taxonomy import COUNTING_RULES_VERSION
from countperf.properties.vector import PropertyVector
from tests.models.builders import TWO_TO_ONE, make_device, make_weight, make_weights

WEIGHTS = make_weights({"flop.add.f32": 2e-9, "gmem.load.32.stride1": 5e-9, "launches": 1e-6})
KERNEL = PropertyVector.from_mapping(
    {
        "flop.add.f32": "[n] -> { 3 * n : n > 0 }",
        "gmem.load.32.stride1": "[n] -> { n : n > 0 }",
        "launches": 1,
    },
    kernel="axpy",
)


def _failed(prediction: Any) -> set[str]:
    return {verdict.name for verdict in prediction.caveats}


def test_time_is_the_weighted_sum_and_the_breakdown_its_terms_largest_first() -> None:
    prediction = WEIGHTS.predict(KERNEL, n=1000)

    assert prediction.time_s == pytest.approx(6e-6 + 5e-6 + 1e-6, rel=1e-15)
    assert list(prediction.breakdown) == ["flop.add.f32", "gmem.load.32.stride1", "launches"]
    assert prediction.breakdown == pytest.approx(
        {"flop.add.f32": 6e-6, "gmem.load.32.stride1": 5e-6, "launches": 1e-6}
    )
    assert prediction.complete
    assert prediction.caveats == ()
    assert (prediction.kernel, prediction.device) == ("axpy", "pocl-testchip")
    assert prediction.parameters == {"n": 1000}


def test_arrays_in_arrays_out() -> None:
    sizes = np.array([[10], [1000]])

    prediction = WEIGHTS.predict(KERNEL, n=sizes)

    assert np.shape(prediction.time_s) == (2, 1)
    assert prediction.time_s == pytest.approx(
        np.array([[WEIGHTS.predict(KERNEL, n=int(n)).time_s] for n in sizes.ravel()])
    )
    assert prediction.interval_s is not None
    low, high = prediction.interval_s
    assert np.all(low < prediction.time_s)
    assert np.all(high > prediction.time_s)
    alone = WEIGHTS.predict(KERNEL, n=1000).interval_s
    assert alone is not None
    assert [low[1, 0], high[1, 0]] == pytest.approx(alone)  # pyright: ignore[reportIndexIssue] - arrays


def test_parameters_may_come_as_a_mapping() -> None:
    assert WEIGHTS.predict(KERNEL, {"n": 7}).time_s == WEIGHTS.predict(KERNEL, n=7).time_s


def test_a_parameter_that_is_missing_is_named() -> None:
    with pytest.raises(ParameterError, match="n"):
        WEIGHTS.predict(KERNEL)


def test_counts_written_by_hand_are_a_kernel() -> None:
    assert WEIGHTS.predict({"launches": 2}).time_s == pytest.approx(2e-6)


def test_the_interval_follows_the_scatter_of_the_model() -> None:
    prediction = WEIGHTS.predict({"launches": 2})

    assert prediction.interval_s is not None
    reach = np.exp(1.959963984540054 * 0.1)  # the factor scatters by 0.1
    assert prediction.interval_s == pytest.approx((2e-6 / reach, 2e-6 * reach), rel=1e-12)


@pytest.mark.parametrize(
    ("weights", "kernel"),
    [
        pytest.param(make_weights({"launches": 1e-6}, quality=None), {"launches": 1}, id="quality"),
        pytest.param(
            make_weights({"launches": 1e-6}), {"launches": 1, "flop.div.f32": 2}, id="incomplete"
        ),
    ],
)
def test_no_interval_where_it_is_not_known(weights: WeightSet, kernel: dict[str, int]) -> None:
    assert weights.predict(kernel, incomplete_ok=True).interval_s is None


@pytest.mark.parametrize("count", ["[n] -> { n : n > 0 }", "[n] -> { n - 3 : n > 0 }"])
def test_no_prediction_is_negative(count: str) -> None:
    weights = make_weights({"launches": 1e-6, "groups": -1e-6})
    vector = PropertyVector.from_mapping({"launches": 1, "groups": count}, kernel="few")
    cost = weights.compile(vector)

    assert cost(n=1) == weights.predict(vector, n=1).time_s >= 0.0
    for size in (5, np.array([1, 5])):
        for give in (lambda n: cost(n=n), lambda n: weights.predict(vector, n=n)):
            with pytest.raises(ModelNotApplicableError, match="negative weights outweigh"):
                give(size)


def test_weights_below_the_bound_of_their_model_are_refused() -> None:
    content = load_weights("pocl-epyc-zen5", model="structural").to_object()
    content["weights"][0]["value_s"] = -1e-12

    with pytest.raises(DocumentError, match=r"is -1e-12, below the bound of its model, 0\.0"):
        WeightSet.from_object(content)


def test_a_property_without_a_weight_is_an_error_that_names_it_and_its_supplier() -> None:
    weights = make_weights(
        {"launches": 1e-6}, exercising_kernels={"flop.special.f32": ("arith/rsqrt",)}
    )
    kernel = PropertyVector.from_mapping(
        {"launches": 1, "flop.special.f32.rsqrt": 9, "flop.div.f64": 3}, kernel="n-body"
    )

    with pytest.raises(UnmeasuredPropertyError) as caught:
        weights.predict(kernel)

    assert set(caught.value.properties) == {"flop.special.f32", "flop.div.f64"}
    assert caught.value.exercising_kernels == {
        "flop.special.f32": ("arith/rsqrt",),
        "flop.div.f64": (),
    }
    message = str(caught.value)
    assert "'n-body' needs" in message
    assert "flop.special.f32: measure arith/rsqrt" in message
    assert "flop.div.f64: measure kernels that have it (countperf measure --" in message
    assert "pocl-testchip" in message


def test_a_property_without_a_weight_does_not_matter_where_it_is_zero() -> None:
    kernel = PropertyVector.from_mapping(
        {"launches": 1, "flop.div.f32": "[n] -> { n - 1 : n > 0 }"}
    )

    assert WEIGHTS.predict(kernel, n=1).complete
    with pytest.raises(UnmeasuredPropertyError):
        WEIGHTS.predict(kernel, n=2)
    with pytest.raises(UnmeasuredPropertyError):
        WEIGHTS.predict(kernel, n=np.array([1, 2]))


def test_on_request_a_prediction_is_incomplete_and_says_of_what() -> None:
    prediction = WEIGHTS.predict({"launches": 1, "flop.div.f32": 2}, incomplete_ok=True)

    assert prediction.time_s == pytest.approx(1e-6)
    assert not prediction.complete
    assert prediction.missing == ("flop.div.f32",)
    assert _failed(prediction) == {"complete"}


def test_a_property_that_the_model_has_no_rule_for_is_never_dropped() -> None:
    weights = make_weights(
        {"launches": 1e-6},
        definition=ModelDefinition(
            name="linear",
            ignored=("iop.*",),
            terms={"cost": Term(charged=("launches",))},
        ),
    )

    with pytest.raises(UnmeasuredPropertyError) as caught:
        weights.predict({"launches": 1, "barrier.local": 2})
    assert caught.value.properties == ("barrier.local",)


def test_what_the_model_ignores_by_definition_is_listed() -> None:
    prediction = WEIGHTS.predict({"launches": 1, "lmem.store.32": 5, "iop.add.i32": 3})

    assert prediction.ignored == ("iop.add.i32", "lmem.store.32")
    assert prediction.complete


def test_weights_of_another_device_are_refused_unless_forced() -> None:
    other = make_device(slug="intel-otherchip", compute_units=64)

    with pytest.raises(DeviceMismatchError, match="pocl-testchip") as caught:
        WEIGHTS.predict({"launches": 1}, device=other)
    assert (caught.value.expected, caught.value.found) == ("pocl-testchip", "intel-otherchip")

    forced = WEIGHTS.predict({"launches": 1}, device=other, force=True)
    assert forced.device == "intel-otherchip"
    assert _failed(forced) == {"device"}


def test_a_matching_device_is_accepted_and_a_new_driver_is_a_caveat() -> None:
    same = WEIGHTS.predict({"launches": 1}, device=make_device())
    newer = WEIGHTS.predict({"launches": 1}, device=make_device(driver_version="4.0"))

    assert _failed(same) == set()
    assert _failed(newer) == {"device"}


def test_weights_of_other_counting_rules_are_refused() -> None:
    old = make_weights({"launches": 1e-6}, counting_rules=COUNTING_RULES_VERSION - 1)

    with pytest.raises(PredictionError, match="refit from measurements"):
        old.predict({"launches": 1})
    with pytest.raises(PredictionError, match="refit from measurements"):
        old.compile({"launches": 1})


def test_a_kernel_that_needs_inseparable_weights_apart_is_refused_or_flagged() -> None:
    weights = make_weights(
        {"gmem.load.32.1of2": 1e-9, "gmem.store.32.1of2": 1e-9}, indistinguishable=(TWO_TO_ONE,)
    )

    together = weights.predict({"gmem.load.32.1of2": 200, "gmem.store.32.1of2": 100})
    counts = {"gmem.load.32.1of2": 200, "gmem.store.32.1of2": 101}
    with pytest.raises(PredictionError, match=r"is a guess; .*\(incomplete_ok=True\)"):
        weights.predict(counts)
    apart = weights.predict(counts, incomplete_ok=True)

    assert _failed(together) == set()
    assert _failed(apart) == {"indistinguishable"}
    assert "gmem.load.32.1of2, gmem.store.32.1of2" in apart.caveats[0].message
    assert apart.interval_s is None


def test_the_document_can_be_written_and_read_back() -> None:
    weights = make_weights(
        {"gmem.load.32.1of2": 0.1 + 0.2, "gmem.store.32.1of2": 1 / 3},
        indistinguishable=(TWO_TO_ONE,),
        exercising_kernels={"flop.add.f32": ("a", "b")},
    )

    assert WeightSet.read_text(weights.write_text()) == weights


@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        pytest.param(("weights", 0, "value_s"), "x", "$.weights[0].value_s", id="text"),
        pytest.param(("weights",), [], "$.weights", id="no weights"),
        pytest.param(("device", "slug"), "A B", "$.device.slug", id="nested document"),
        pytest.param(
            ("weights", 1, "feature"), "flop.add.f32", "$", id="two weights for a feature"
        ),
        pytest.param(
            ("indistinguishable",),
            [{"features": ["groups"], "relations": [{"groups": 1}]}],
            "$",
            id="a group without weights",
        ),
    ],
)
def test_a_damaged_document_is_refused_with_its_field(
    place: tuple[str | int, ...], value: object, field: str
) -> None:
    content = json.loads(WEIGHTS.write_text())
    inner = content
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value

    with pytest.raises(DocumentError) as caught:
        WeightSet.from_object(content)

    assert caught.value.field == field


def test_weights_are_looked_up_by_feature() -> None:
    assert WEIGHTS.by_feature["launches"] == make_weight("launches", 1e-6)


def test_a_weight_set_is_a_time_model() -> None:
    model = WEIGHTS

    assert (model.model, model.predict({"launches": 1}).model) == ("linear", "linear")
