"""Models as documents, selection, anchors and comparisons from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from countperf.cli import main
from tests.fitting.builders import KERNELS, MadeUpKernel, measure

MODEL = """
format = "countperf-model"
version = 3
name = "mine"
ignored = ["flop.special.*"]

[terms]
launch = ["launches"]
work = { charged = ["gmem.*.*.*", "flop.add.f32"], scale = "once" }

[derived]
once = "launches"
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "measured.jsonl"
    twins = tuple(
        MadeUpKernel(name=f"{k.name}-b", family=f"{k.family}-b", counts=k.counts, sizes=k.sizes)
        for k in KERNELS
    )
    measure((*KERNELS, *twins), noise=np.random.default_rng(8)).write_file(path)
    return path


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    path = tmp_path / "copy.json"
    path.write_text(json.dumps(KERNELS[0].vector.to_document()))
    return str(path)


def _json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_model_file_is_fitted_and_predicts(
    store: Path, kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, weights = tmp_path / "mine.toml", tmp_path / "mine.json"
    model.write_text(MODEL)

    assert main(["fit", str(store), "--model", str(model), "--output", str(weights)]) == 0
    printed = capsys.readouterr().out
    assert "mine model on pocl-testchip" in printed
    assert "time_s = launch + once*(work)" in printed
    assert "flop.add.f32" in printed

    assert main(["predict", kernel, "n=4096", "--weights", str(weights), "--json"]) == 0
    found = _json(capsys)
    # 4 us, and 4096 loads and stores of 10 and 15 ps
    assert found["time_s"] == pytest.approx(4e-6 + 4096 * 25e-12, rel=0.1)
    assert sum(found["breakdown_s"].values()) == pytest.approx(found["time_s"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--model", "cubic"], "there is linear, structural", id="unknown model"),
        pytest.param(["--model", "no/such.toml"], "cannot be read", id="no file"),
    ],
)
def test_what_is_no_model_is_an_error_in_one_line(
    store: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", str(store), *arguments]) == 1
    assert said in capsys.readouterr().err


def test_anchors_levels_and_comparisons(
    store: Path, kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "w.json"
    assert (
        main(["fit", str(store), "--model", "linear", "--nonnegative", "--output", str(weights)])
        == 0
    )
    capsys.readouterr()
    common = ["predict", kernel, "n=262144", "--weights", str(weights)]

    assert main([*common, "--json"]) == 0
    plain = _json(capsys)
    assert main([*common, "--level", "0.9", "--json"]) == 0
    narrower = _json(capsys)["interval_s"]
    assert plain["interval_s"][0] <= narrower[0] < narrower[1] <= plain["interval_s"][1]

    assert main([*common, "--anchor", f"n=262144:{2 * plain['time_s']}", "--json"]) == 0
    assert plain["time_s"] < _json(capsys)["time_s"] <= 2 * plain["time_s"]

    other = tmp_path / "sum-four.json"
    other.write_text(json.dumps(KERNELS[1].vector.to_document()))
    assert main([*common, "--against-kernel", str(other)]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].startswith("sum-four: ")
    assert "difference" in printed

    assert main([*common, "--against", str(weights), "--json"]) == 0
    assert _json(capsys)["against"]["time_s"] == plain["time_s"]


@pytest.mark.parametrize("text", ["n=5", "n=x:1.0", "n=5:soon"])
def test_a_bad_anchor_is_wrong_usage(
    kernel: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["predict", kernel, "n=5", "--anchor", text])
    assert caught.value.code == 2
    assert "--anchor" in capsys.readouterr().err
