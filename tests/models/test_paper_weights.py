"""The weights that the paper printed load, and predict its column from the library's kernels."""

from __future__ import annotations

from typing import Any

import pytest

import countperf
from countperf import __version__
from countperf.devices.parameters import load_device
from countperf.models.library import load_weights
from measurement_kernels.catalog import entry
from tests.counting.test_stevens2016_table2 import (
    KERNELS,
    count_powers_as_written,
    paper_counts,
    printed_rows,
)
from write_paper_weights import paper_weights

NAME = "amd-r9-fury-stevens2016"


def test_what_ships_is_what_the_paper_printed() -> None:
    weights, known = load_weights(NAME), load_device("amd-r9-fury")
    assert weights.model_copy(update={"written_by": __version__, "name": ""}) == paper_weights()
    assert len(weights.weights) == 16
    assert (weights.device.slug, weights.device.compute_units) == (known.slug, 56)
    assert weights.quality is None


@pytest.mark.parametrize(
    ("kernel", "n", "predicted_ms"),
    [
        (row["kernel"], int(row["n"]), float(row["predicted_ms"]))
        for row in printed_rows("stevens2016_table1_r9fury.csv")
    ],
)
def test_they_predict_the_papers_column(kernel: str, n: int, predicted_ms: float) -> None:
    name, sizes = KERNELS[kernel]
    unit = entry(name).build()
    counts: dict[str, Any] = paper_counts(count_powers_as_written(unit), unit, sizes(n))
    weights = load_weights(NAME)
    named = tuple(weight.feature for weight in weights.weights)
    prediction = weights.predict({n: count for n, count in counts.items() if n.startswith(named)})
    # weights and times have two or three digits
    assert prediction.time_s * 1e3 == pytest.approx(predicted_ms, rel=0.02, abs=0.006)


def test_kernels_are_predicted_by_what_a_device_executes() -> None:
    # the skinny product's tiles are whole work groups: both conventions agree but for fetches
    prediction = countperf.predict(
        "matmul-skinny/16x16/f32", {"n": 512, "m": 4096, "l": 512}, weights=load_weights(NAME)
    )
    assert prediction.time_s == pytest.approx(sum(prediction.breakdown.values()))
    assert prediction.breakdown["launches"] == pytest.approx(1.29e-4)
    # 2 n m l loads from local memory
    assert prediction.breakdown["lmem.load.32"] == pytest.approx(-1.76e-12 * 2 * 512 * 4096 * 512)
