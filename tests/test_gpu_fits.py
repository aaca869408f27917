"""The fits to published times are what their page says, and predict by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import countperf
from countperf.api.prediction import predict
from countperf.devices.parameters import capability_device
from countperf.errors import UnmeasuredPropertyError
from countperf.mechanistic.occupancy import resident_groups
from countperf.models.definition import parse
from countperf.models.function import LAUNCH, SHORTEST_LAUNCH_S
from countperf.models.library import load_weights
from countperf.models.metrics import Evaluation
from fit_published_gpus import GPUS, Gpu, geometric_mean, model_of
from tests.kernels import made

ROOT = Path(__file__).parent.parent
AXPY = made(
    "i<n",
    "y[i] = 2*x[i] + y[i]",
    "x,y f32 n; n i32",
    name="axpy",
    split="i:256",
    assumptions="n>=1",
)


SLUGS = [gpu.slug for gpu in GPUS.values()]
PAGE = (ROOT / "docs" / "evidence" / "gpus.md").read_text()
ROWS = [
    line.split(" | ")
    for line in re.findall(r"^\| (?:GeForce|Quadro|Tesla)[^|]* \| (.*) \|$", PAGE, re.M)
]
"""Cells of the rows of the page's table, a row a GPU."""


def _percent(errors: Any) -> float:
    return round(100 * geometric_mean(errors), 1)


def test_the_page_has_errors_and_coverage_of_the_documents() -> None:
    means: list[float] = []
    held: list[int] = []
    for slug in SLUGS:
        cases = Evaluation.read_file(ROOT / "fits" / slug / "held-out.json").cases
        means.append(_percent([abs(case.predicted_s / case.measured_s - 1) for case in cases]))
        held.append(round(100 * sum(bool(case.is_covered) for case in cases) / len(cases)))
    assert sorted(float(row[0]) for row in ROWS) == sorted(means)
    assert sorted(int(row[3]) for row in ROWS) == sorted(held)


@pytest.mark.parametrize("slug", SLUGS)
def test_weights_are_of_the_model_and_say_where_times_come_from(slug: str) -> None:
    weights = load_weights(slug)
    assert weights.definition == model_of(slug)
    assert weights.source is not None
    assert "CC-BY 4.0" in weights.source.protocol
    assert not list((ROOT / "fits" / slug).glob("measurements.jsonl*"))


@pytest.mark.parametrize(
    ("slug", "kernel", "sizes", "predicted_ms", "measured_ms"),
    [
        ("nvidia-k40c", "finite-differences", {"n": 16384}, 27.5, 37.34),
        ("nvidia-titan-x", "finite-differences", {"n": 16384}, 13.8, 15.33),
        ("nvidia-k40c", "convolution", {"n": 1024, "images": 3}, 9.3, 13.30),
        ("nvidia-titan-x", "convolution", {"n": 2048, "images": 3}, 14.5, 19.32),
        ("nvidia-k40c", "matmul-skinny", {"n": 512, "m": 4096, "l": 512}, 7.6, 9.62),
        ("nvidia-titan-x", "matmul-skinny", {"n": 1024, "m": 8192, "l": 1024}, 22.6, 27.23),
    ],
)
def test_kernels_that_the_paper_timed_are_predicted(
    slug: str, kernel: str, sizes: dict[str, int], predicted_ms: float, measured_ms: float
) -> None:
    found = predict(f"{kernel}/16x16/f32", sizes, weights=slug)
    assert found.time_s == pytest.approx(1e-3 * predicted_ms, abs=0.05e-3)
    assert found.interval_s is not None
    low, high = found.interval_s
    assert low <= 1e-3 * measured_ms <= high


@pytest.mark.parametrize("slug", SLUGS)
def test_no_time_is_below_the_shortest_launch_and_others_stay(slug: str) -> None:
    weights, shortest_s = load_weights(slug), SHORTEST_LAUNCH_S["gpu"]
    sizes = [1, 1000, 10**8]
    times_s = np.asarray(countperf.predict(AXPY, n=np.array(sizes), weights=weights).time_s)
    for n, time_s in zip(sizes, times_s.tolist(), strict=True):
        one = countperf.predict(AXPY, n=n, weights=weights)
        assert one.time_s == time_s
        assert one.time_s == pytest.approx(sum(one.breakdown.values()))
        model_s = sum(part for name, part in one.breakdown.items() if name != LAUNCH)
        assert one.time_s == pytest.approx(max(model_s, shortest_s))
        caveats = {verdict.name for verdict in one.caveats}
        assert ("launch" in caveats) is (model_s < shortest_s) is (LAUNCH in one.breakdown)
        assert ("extrapolation" in caveats) is (n < 10**8)
    run = {"n": 10**7}, float(countperf.predict(AXPY, n=10**7, weights=weights).time_s) / 4
    assert countperf.predict(AXPY, n=1, weights=weights, anchors=[run]).time_s == shortest_s


@pytest.mark.parametrize("slug", ["nvidia-k40c", "nvidia-titan-x"])
def test_what_has_no_weight_is_named_and_not_guessed(slug: str) -> None:
    with pytest.raises(UnmeasuredPropertyError, match=r"flop\.special\.f32\.rsqrt"):
        predict("n-body/256x1/f32", {"n": 8192}, weights=slug)
    assert predict("finite-differences/16x16/f32", {"n": 4096}, weights=slug).complete
    assert predict("convolution/16x16/f32", {"n": 512, "images": 3}, weights=slug).complete


def test_the_page_has_the_errors_of_what_was_left_out_and_why_some_are_not_predicted() -> None:
    table = pd.read_csv(ROOT / "docs" / "evidence" / "gpu_left_out.csv")
    known = table.dropna(subset="error_percent")
    known = known.assign(error=known["error_percent"] / 100)
    by_gpu = known.groupby(["left_out", "gpu"])["error"].apply(_percent)
    by_kernel = known[known["left_out"] == "kernel"].groupby("name")["error"]
    sentence = PAGE.partition("others: geometric means ")[2].partition("\n\n")[0]
    cells = re.findall(r"(\d+\.\d)(?: %)?\s+\(", sentence)
    assert sorted(float(row[1]) for row in ROWS) == sorted(by_gpu["tile width"])
    assert sorted(float(row[2]) for row in ROWS) == sorted(by_gpu["kernel"])
    assert sorted(map(float, cells)) == sorted(by_kernel.apply(_percent))
    unknown = table[table["error_percent"].isna()]
    assert set(map(type, unknown["without_weight"])) == {str}
    assert set(unknown["name"]) == {"published-dot-product", "published-matmul/tiled"}


@pytest.mark.parametrize("width", [4, 8, 12, 16, 20, 24, 28, 32])
@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.slug)
def test_the_formula_of_resident_groups_is_the_occupancy_of_a_tiled_product(
    gpu: Gpu, width: int
) -> None:
    found = resident_groups(
        capability_device(gpu.capability),
        work_items_per_group=width * width,
        registers_per_work_item=27,  # the most that a kernel of the data has
        local_bytes_per_group=8 * width * width,
    )
    sub_groups = -(-width * width // 32)
    formula = parse(model_of(gpu.slug).derived["resident"])
    value = formula({"groups": 100.0, "subgroups_32_launched": 100.0 * sub_groups})
    assert value == found.active_groups
