"""JSON shapes that programs rely on."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from countperf.counting.vector import PropertyVector
from countperf.models.fitting.fit_model import fit
from countperf.models.metrics import (
    EvaluatedCase,
    Evaluation,
    RankedSet,
    RankedVariant,
    RankingEvaluation,
)
from countperf.models.weights import WeightSet
from countperf.text import plain
from tests.models.builders import make_weights
from tests.models.fitting.builders import measure
from tests.printing import object_of, text_of

VECTOR = PropertyVector.from_mapping(
    {"launches": 1, "flop.add.f32": "[n] -> { n^2 : n > 0 }"}, kernel="squares"
)
WEIGHTS = make_weights({"launches": 1e-6, "flop.add.f32": 1e-9})


def _object(*result: Any) -> dict[str, Any]:
    content = object_of(*result)
    assert json.loads(json.dumps(content)) == content
    return content


def test_counts() -> None:
    content = _object(VECTOR)
    assert set(content) == {"kernel", "properties"}
    assert content["kernel"] == "squares"
    assert set(content["properties"]) == {"launches", "flop.add.f32"}
    assert content["properties"]["launches"] == {"symbolic": "{ 1 }", "exact": True}

    at_size = _object(VECTOR, VECTOR.evaluate(n=10**12))
    assert at_size["properties"]["flop.add.f32"]["value"] == 10**24


def test_prediction() -> None:
    content = _object(WEIGHTS.predict(VECTOR, n=100))

    assert set(content) == {
        *("kernel", "device", "weights", "model", "parameters"),
        *("time_s", "interval_s", "interval_level"),
        *("breakdown_s", "complete", "caches", "caveats"),
    }
    assert content["parameters"] == {"n": 100}
    assert content["time_s"] == pytest.approx(1.1e-5)
    assert list(content["breakdown_s"]) == ["flop.add.f32", "launches"]
    assert content["complete"] is True
    low, high = content["interval_s"]
    assert low < content["time_s"] < high


def test_prediction_at_arrays_and_without_an_interval() -> None:
    weights = make_weights({"launches": 1e-6, "flop.add.f32": 1e-9}, quality=None)

    content = _object(weights.predict(VECTOR, n=np.array([10, 100])))

    assert content["parameters"] == {"n": [10, 100]}
    assert content["time_s"] == pytest.approx([1.1e-6, 1.1e-5])
    assert content["interval_s"] is None


def test_evaluation() -> None:
    common: Any = {"kernel": "k", "parameters": {"n": 1}, "measured_s": 1.0, "predicted_s": 1.25}
    case = EvaluatedCase(**common, noise=0.2, interval_s=(0.5, 0.75))
    means = {
        "overall": pytest.approx(0.25),
        "by_kernel": {"k": pytest.approx(0.25)},
        "worst_factor": {"k": 1.25},
        "cases": 1,
        "zero_errors": 0,
    }
    printed = {"purpose": "test", "relative_error": 0.25, "noise": 0.2, "within_noise": True}

    assert _object(Evaluation(device="d", model="linear", cases=(case,))) == {
        "device": "d",
        "model": "linear",
        "remarks": [],
        "cases": [{**common, **printed, "interval_s": [0.5, 0.75], "complete": True}],
        "geometric_mean": means,
        "by_purpose": {"test": means},
        "coverage": {
            "level": 0.9,
            "covered": 0,
            "cases": 1,
            "median_factor": pytest.approx(1.5**0.5),
        },
    }


def _rank_variant(n: int, *predicted: float | None) -> RankedSet:
    variants = tuple(
        RankedVariant(variant=str(k), measured_s=k * 1e-3, predicted_s=p, complete=p != 0.5)
        for k, p in enumerate(predicted, start=1)
    )
    return RankedSet(family="variants-matmul", parameters={"n": n}, variants=variants)


def test_ranking_has_a_row_for_each_set_and_one_for_all() -> None:
    sets = (_rank_variant(64, 1.0, 2.0, None), _rank_variant(128, 0.5, 0.25))
    evaluation = RankingEvaluation(device="pocl-testchip", model="linear", sets=sets)

    lines = text_of(evaluation).splitlines()
    assert [line.split()[-3:] for line in lines[2:5]] == [
        ["1.00", "1.00", "1.00"],
        ["2.00", "1.00", "1.00"],
        ["1.41", "1.00", "1.00"],
    ]
    content = _object(evaluation)
    assert content["sets"][1] == {
        "family": "variants-matmul",
        "parameters": {"n": 128},
        **{"variants": 2, "refused": 0, "incomplete": 1, "fastest_s": 1e-3, "slowest_s": 2e-3},
        "kendall_tau": -1.0,
        "regret": {"1": 2.0, "3": 1.0, "5": 1.0},
    }
    assert content["mean"]["kendall_tau"] == 0.0


def test_fit_holds_the_weights_document() -> None:
    result = fit(measure())

    content = json.loads(json.dumps(object_of(result)))

    assert WeightSet.from_object(content["weights"]) == result.weights
    assert (content["device"], content["cases"], content["rank"]) == ("pocl-testchip", 17, 6)
    assert {verdict["name"] for verdict in content["verdicts"]} >= {"rank", "errors"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Fraction(1, 4), 0.25),
        (np.int64(7), 7),
        (np.array([[1, 2]]), [[1, 2]]),
        (np.array(3.0), 3.0),
        (np.array([Fraction(1, 2)], dtype=object), [0.5]),
        (2**80, 2**80),
    ],
)
def test_plain_values(value: object, expected: object) -> None:
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)
