"""Results in interactive sessions, at most 25 lines each."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Mapping
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
from countperf.models.metrics import Evaluation, RankingEvaluation
from countperf.models.predictions import Prediction
from countperf.text import MOST_LINES, ShortRepr, short_repr, shorten_text
from measurement_kernels.catalog import entry
from tests.models.fitting.builders import KERNELS, measure
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
    shown = shorten_text(text)
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
