"""Kernel Tuner runs our strategy on a recorded space, in its simulation mode."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from countperf.errors import ParameterError, PredictionError
from countperf.integrations import predict_times
from countperf.integrations.kernel_tuner import PosteriorStrategy

NEEDS_KERNEL_TUNER = pytest.mark.extra("tuners")
VALUES = {"block_size_x": [16, 32, 64, 128, 256], "tile": list(range(1, 9)), "pad": [0, 1]}

_TUNE = """
import json, sys
import kernel_tuner
from kernel_tuner.strategies.wrapper import OptAlgWrapper
from countperf.integrations.kernel_tuner import PosteriorStrategy

def cost(configuration):
    return 1.0 + abs(configuration["tile"] - 6)

content = json.load(open(sys.argv[1]))
strategy = PosteriorStrategy(cost if sys.argv[3] == "cost" else None, seed=1)
found, _ = kernel_tuner.tune_kernel(
    content["kernel_name"], "", content["problem_size"], [], content["tune_params"],
    strategy=OptAlgWrapper(strategy), strategy_options={"max_fevals": int(sys.argv[4])},
    simulation_mode=True, cache=sys.argv[1], lang="CUDA", quiet=True,
)
json.dump([{k: v for k, v in each.items() if k in content["tune_params"]}
           | {"time": str(each.get("__error__", each["time"]))} for each in found],
          open(sys.argv[2], "w"))
"""


def time_ms(x: int, tile: int, pad: int) -> float:
    return (1 + abs(tile - 5) / 4) * (1.5 if x in (16, 256) else 1.0) * (1.0 if pad else 1.1)


def write_cache(path: Path) -> None:
    cache: dict[str, Any] = {}
    never = dict.fromkeys(("verification_time", "strategy_time", "framework_time"), 0)
    always = {"compile_time": 100.0, "benchmark_time": 10.0, "timestamp": "2024-01-01 00:00:00"}
    for x, tile, pad in product(*VALUES.values()):
        cache[f"{x},{tile},{pad}"] = {
            **dict(zip(VALUES, (x, tile, pad), strict=True)),
            "time": time_ms(x, tile, pad),
            "times": [time_ms(x, tile, pad)],
            **{**never, **always},
        }
        if x == 256 and tile > 6:
            failed = dict.fromkeys(("time", "__error__"), "RuntimeFailedConfig")
            cache[f"{x},{tile},{pad}"] |= {**failed, "times": []}
    content = {
        "device_name": "gpu",
        "kernel_name": "toy",
        "problem_size": [64],
        "tune_params_keys": list(VALUES),
        "tune_params": VALUES,
        "objective": "time",
        "cache": cache,
    }
    path.write_text(json.dumps(content))


@NEEDS_KERNEL_TUNER
@pytest.mark.parametrize("model", ["none", "cost"])
def test_strategy_finds_the_optimum_within_a_quarter_of_the_space(
    model: str, tmp_path: Path
) -> None:
    cache, answer = tmp_path / "cache.json", tmp_path / "answer.json"
    write_cache(cache)
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(_TUNE)]
    words = [*command, str(cache), str(answer), model, "20"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(answer.read_text())
    assert len(found) <= 20
    ran = [each for each in found if not each["time"].endswith("Config")]
    best = min(ran, key=lambda each: float(each["time"]))
    assert float(best["time"]) == pytest.approx(1.0)
    assert (best["tile"], best["pad"]) == (5, 1)
    if model == "cost":
        assert found[0]["tile"] == 6


class Recorder:
    """Stand-in for Kernel Tuner's cost function and space, with an objective to be maximised."""

    def __init__(self) -> None:
        self.results: list[dict[str, Any]] = []
        self.tune_params = {"x": [1, 2, 4, 8, 16]}
        self.list = [(1,), (2,), (4,), (8,), (16,)]

    def __call__(self, values: tuple[int, ...]) -> float:
        self.results.append({"compile_time": 5.0})
        return -100.0 / (1 + abs(values[0] - 8))


def test_negative_objectives_are_searched_by_their_reciprocal() -> None:
    recorder = Recorder()
    best, objective = PosteriorStrategy(first=2)(recorder, recorder)
    assert best == (8,)
    assert objective == -100.0
    assert len(recorder.results) == 5


def test_several_objectives_are_refused() -> None:
    recorder = Recorder()
    with pytest.raises(ParameterError, match="by one objective: pass objective=, not objectives="):
        PosteriorStrategy()(lambda _: [1.0, 2.0], recorder)


def test_costs_are_checked() -> None:
    def refuses(_: dict[str, Any]) -> float:
        raise PredictionError("no weight for tan")

    with pytest.raises(
        ParameterError, match="predicts none of 1 configurations: no weight for tan"
    ):
        predict_times(refuses, [{"x": 1}])
    with pytest.raises(ParameterError, match="it has to return seconds"):
        predict_times(lambda _: 0.0, [{"x": 1}])
