"""Arguments of a wrong type or name are refused by errors of ours that say what to pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import countperf
from countperf.errors import ParameterError
from countperf.workflow.kernels import load_kernel
from countperf.workflow.measuring import measure_catalogue, measure_variants

KERNEL = "matmul-naive/16x16/f32"
WEIGHTS = "pocl-epyc-zen5"
SIZED: dict[str, Callable[[Any], object]] = {
    "predict": lambda sizes: countperf.predict(KERNEL, sizes, weights=WEIGHTS),
    "weights.predict": lambda sizes: countperf.load_weights(WEIGHTS).predict(KERNEL, sizes),
    "explain": lambda sizes: countperf.explain(KERNEL, sizes, weights=WEIGHTS),
    "time_kernel": lambda sizes: countperf.time_kernel(load_kernel(KERNEL), sizes),
    "predict_all": lambda sizes: countperf.predict_all(KERNEL, "nvidia-gtx-970", sizes),
    "occupancy": lambda sizes: countperf.occupancy(KERNEL, "nvidia-gtx-970", sizes),
    "rank": lambda sizes: countperf.rank("matmul", sizes, weights=WEIGHTS),
}


@pytest.mark.parametrize("name", sorted(SIZED))
def test_sizes_without_names_are_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="sizes are given by name, and 1024 has none"):
        SIZED[name](1024)


@pytest.mark.parametrize("measure", [measure_catalogue, measure_variants])
def test_a_profile_that_is_none_is_refused(measure: Any, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="no profile 'frob'; pass one of 'quick'"):
        measure(store=tmp_path / "m.jsonl", profile="frob")


def test_a_view_that_is_none_is_refused() -> None:
    with pytest.raises(ParameterError, match="no view 'frob'; pass one of 'source', "):
        countperf.count_kernel(load_kernel(KERNEL), view="frob")  # pyright: ignore[reportArgumentType] - refused


def test_weights_that_are_a_number_are_refused() -> None:
    with pytest.raises(ParameterError, match="weights are a name, a path or"):
        countperf.predict(KERNEL, {"n": 64, "m": 64, "l": 64}, weights=3)  # pyright: ignore[reportArgumentType] - refused


def test_a_prediction_is_compared_with_a_prediction_alone() -> None:
    found = countperf.load_weights(WEIGHTS).predict(
        KERNEL, {"n": 64, "m": 64, "l": 64}, incomplete_ok=True
    )
    with pytest.raises(ParameterError, match="compared with another one, not with 3"):
        found.against(3)  # pyright: ignore[reportArgumentType] - refused
