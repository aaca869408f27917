"""Results in interactive sessions, at most 25 lines each, and as JSON that programs rely on."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import countperf
from countperf.api.searching import load_space
from countperf.counting.vector import PropertyVector
from countperf.devices.discovery import doctor
from countperf.errors import ParameterError
from countperf.figures import draw
from countperf.mechanistic.comparison import Comparison
from countperf.models.fitting.fit_model import fit
from countperf.models.library import load_weights
from countperf.models.metrics import (
    EvaluatedCase,
    Evaluation,
    RankedSet,
    RankedVariant,
    RankingEvaluation,
)
from countperf.models.predictions import Prediction
from countperf.models.weights import WeightSet
from countperf.text import MOST_LINES, ShortRepr, plain, short_repr, shortened
from measurement_kernels.catalog import entry
from tests.models.builders import make_weights
from tests.models.fitting.builders import KERNELS, measure
from tests.printing import object_of, text_of
from tests.shipped import shipped_measurements

FITS = Path(__file__).resolve().parent.parent / "fits" / "pocl-epyc-zen5"
KERNEL = "matmul-skinny/16x16/f32"
SIZES = {"n": 256, "m": 256, "l": 256}
LARGER = {"n": 1024, "m": 1024, "l": 1024}


def _predicted(sizes: Mapping[str, int]) -> Prediction:
    return countperf.predict(
        KERNEL, sizes, incomplete_ok=True, weights=load_weights("pocl-epyc-zen5")
    )


RESULTS: Mapping[str, Callable[[], object]] = {
    "WeightSet": lambda: load_weights("pocl-epyc-zen5"),
    "WeightSet that reads code": lambda: load_weights("pocl-epyc-zen5", model="compiled"),
    "Prediction": lambda: countperf.predict(
        KERNEL, SIZES, weights="pocl-epyc-zen5", model="structural", incomplete_ok=True
    ),
    "PredictionPair": lambda: _predicted(SIZES).against(_predicted(LARGER)),
    "Explanation": lambda: countperf.explain(
        KERNEL, SIZES, weights="pocl-epyc-zen5", model="structural", incomplete_ok=True
    ),
    "PropertyVector": lambda: countperf.count_kernel(entry(KERNEL).build(), view="structure"),
    "KernelAnalysis": lambda: countperf.analyze_kernel(entry(KERNEL).build()),
    "MeasurementSet": lambda: shipped_measurements("pocl-epyc-zen5"),
    "Measurement": lambda: shipped_measurements("pocl-epyc-zen5").measurements[0],
    "FitResult": lambda: fit(measure(KERNELS)),
    "Evaluation": lambda: Evaluation.read_file(FITS / "evaluation.json"),
    "RankingEvaluation": lambda: RankingEvaluation.read_file(FITS / "ranking.json"),
    "Comparison": lambda: Comparison.read_file(FITS / "comparison.json"),
    "SearchSpace": lambda: load_space("matmul"),
    "Ranking": lambda: countperf.rank(
        "transpose", weights="pocl-epyc-zen5", incomplete_ok=True, points=4, workers=1
    ),
    "DoctorReport": doctor,
    "AvailableWeights": countperf.available_weights,
}


IN_WORDS = ("FitResult", "AvailableWeights", "Prediction", "PredictionPair", "Ranking")
"""Results that are shown as the command line prints them."""

NO_TABLE = ("KernelAnalysis", "Measurement", "SearchSpace", "DoctorReport")
DRAWN = ("Prediction", "Explanation", "Evaluation")


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_results_are_shown_in_at_most_25_lines_and_tables_as_frames(name: str) -> None:
    result: Any = RESULTS[name]()
    shown = repr(result)
    lines = shown.splitlines()
    assert 1 <= len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 200
    assert len(str(result)) <= 100_000  # a FitResult prints itself with all of its verdicts
    kind = name.partition(" ")[0]
    assert kind in IN_WORDS or shown.startswith(kind)
    if name not in NO_TABLE:
        frame, table = result.to_frame(), result._repr_html_()
        assert len(frame) > 0
        assert frame.columns.is_unique
        assert table.count("<table") == 1
        assert 1 < table.count("<tr") <= 30


def test_the_frame_of_a_prediction_sums_to_its_time() -> None:
    prediction: Any = RESULTS["Prediction"]()
    assert prediction.to_frame()["time_s"].sum() == pytest.approx(prediction.time_s)
    shown = prediction._repr_html_()
    assert shown.count(" %</td>") == shown.count("<tr>") - 1


@dataclasses.dataclass
class Everything(ShortRepr):
    text: str
    lines: str
    numbers: tuple[int, ...]
    nested: dict[str, object]
    secret: int = dataclasses.field(default=1, repr=False)


def test_long_values_many_fields_and_long_lines_are_cut_or_broken() -> None:
    value = Everything(
        text="x" * 10**6,
        lines="a\nb",
        numbers=tuple(range(10**5)),
        nested={str(k): [PropertyVector.from_mapping({"groups": 1})] * 9 for k in range(9)},
    )
    lines = repr(value).splitlines()
    assert len(lines) == 6
    assert max(map(len, lines)) <= 175
    assert lines[2:4] == ["  lines='a\\nb',", "  numbers=(0, 1, 2, ...),"]
    assert "secret" not in repr(value)
    kind = dataclasses.make_dataclass("Wide", [(f"f{k}", int) for k in range(60)], repr=False)
    lines = short_repr(kind(*range(60))).splitlines()
    assert len(lines) == MOST_LINES
    assert lines[-2] == "  ... 38 more fields"
    text = "  bound by " + "memory " * 60
    shown = shortened(text)
    assert " ".join(shown.split()) == " ".join(text.split())
    assert max(map(len, shown.splitlines())) <= 160


def test_a_comparison_ends_in_its_cause() -> None:
    first, second = _predicted(SIZES), _predicted(LARGER)
    pair: Any = first.against(second)
    assert pair.cause.startswith("cause: n = 1024, m = 1024, l = 1024 takes ")
    assert " ".join(repr(pair).split()).endswith(" ".join(pair.cause.split()))
    frame = pair.to_frame()
    difference = float(second.time_s) - float(first.time_s)
    assert float(frame["difference_s"].sum()) == pytest.approx(difference)
    assert html.escape(pair.cause) in pair._repr_html_()


def test_what_cannot_be_compared_is_refused() -> None:
    several = countperf.predict(
        KERNEL,
        {name: np.array([64, 128]) for name in SIZES},
        incomplete_ok=True,
        weights=load_weights("pocl-epyc-zen5"),
    )
    with pytest.raises(ParameterError, match="at one size each"):
        _predicted(SIZES).against(several)


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.extra("plot")
def test_words_of_figures_have_nine_points_at_least(name: str) -> None:
    from matplotlib.text import Text

    result: Any = RESULTS[name]()
    words: list[Any] = [
        text for text in draw(result).findobj(Text) if text.get_text() and text.get_visible()
    ]
    assert len(words) >= 4
    assert min(text.get_size() for text in words) >= 9


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
