"""The fits to published times are what their page says, and predict by name."""

from __future__ import annotations

import csv
import re
from math import exp, log
from pathlib import Path

import pytest

from countperf.metrics import Evaluation
from countperf.models.library import load_weights
from countperf.workflow.prediction import predict
from fit_published_gpus import COMPUTE_UNITS, MODEL

ROOT = Path(__file__).parent.parent


def _error(slug: str) -> float:
    cases = Evaluation.read_file(ROOT / "fits" / slug / "held-out.json").cases
    errors = [max(1e-3, abs(case.predicted_s / case.measured_s - 1)) for case in cases]
    return 100 * exp(sum(map(log, errors)) / len(errors))


def test_the_page_has_the_errors_of_the_documents() -> None:
    page = (ROOT / "docs" / "gpu-fits.md").read_text()
    printed = re.findall(r"^\| (?:GeForce|Quadro|Tesla) [^|]* \| ([0-9.]+) \|", page, re.M)
    assert sorted(map(float, printed)) == sorted(round(_error(slug), 1) for slug in COMPUTE_UNITS)


@pytest.mark.parametrize("slug", COMPUTE_UNITS)
def test_weights_are_of_the_one_model_and_say_where_times_come_from(slug: str) -> None:
    weights = load_weights(slug)
    assert weights.definition == MODEL
    assert weights.source is not None
    assert "CC-BY 4.0" in weights.source.protocol
    assert not list((ROOT / "fits" / slug).glob("measurements.jsonl*"))


def test_kernels_of_the_catalogue_are_predicted() -> None:
    sizes = {"n": 512, "m": 4096, "l": 512}  # a size that the paper timed: 9.6 ms on its K40c
    found = predict("matmul-skinny/16x16/f32", sizes, weights="nvidia-k40c")
    assert found.time_s == pytest.approx(8.1e-3, abs=0.05e-3)


def test_intervals_hold_as_often_as_the_page_says() -> None:
    def held(slug: str) -> int:
        cases = Evaluation.read_file(ROOT / "fits" / slug / "held-out.json").cases
        return round(100 * sum(bool(case.is_covered) for case in cases) / len(cases))

    shares = {slug: held(slug) for slug in COMPUTE_UNITS}

    assert (shares.pop("nvidia-gtx-970"), shares.pop("nvidia-titan-x")) == (79, 82)
    assert (min(shares.values()), max(shares.values())) == (86, 99)


def test_the_page_has_the_errors_of_kernels_that_were_left_out() -> None:
    page = (ROOT / "docs" / "gpu-fits.md").read_text()
    rows = re.findall(r"^\| nvidia-[^|]* \| (.*) \|$", page, re.M)
    printed = [float(cell) for row in rows for cell in row.split(" | ")[:-1]]
    with (ROOT / "docs" / "gpu_left_out.csv").open() as file:
        errors = [row["error_percent"] for row in csv.DictReader(file)]
    assert sorted(printed) == sorted(float(error) for error in errors if error)
