"""``countperf coverage`` from fits recorded, and from older ones with their measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from countperf.cli import main
from tests.fitting.builders import KERNELS, measure

KERNEL = """
import loopy as lp
import numpy as np

def scale():
    kernel = lp.make_kernel(
        "{ [i] : 0 <= i < n }", "z[i] = x[i] + exp(y[i])",
        [lp.GlobalArg("x,y,z", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1", lang_version=(2018, 2))
    return lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")
"""


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    path = tmp_path / "kernels.py"
    path.write_text(KERNEL)
    return f"{path}:scale"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("coverage")
    measure(KERNELS).write_file(folder / "measured.jsonl")
    arguments = ["fit", str(folder / "measured.jsonl"), "--output", str(folder / "w.json")]
    assert main(arguments) == 0
    return folder


def _json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_the_verdict_comes_first_then_features(
    kernel: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["coverage", kernel, "n=100000000", "--weights", str(folder / "w.json")]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("not covered: never measured: ")
    assert "gmem.min.32.stride1" in lines[0]  # no measured kernel of this made-up device has it
    assert "countperf measure --family" in lines[1]
    (added,) = [line for line in lines if line.startswith("  flop.add.f32")]
    assert "times the largest" not in added

    assert main([*command, "--json"]) == 0
    found = _json(capsys)
    assert found["correction"] is None
    assert (found["grade"], found["verdict"]["passed"]) == ("not covered", False)
    features = {feature["name"]: feature for feature in found["features"]}
    loads = features["gmem.load.32.stride1"]
    assert (loads["status"], loads["value"]) == ("extrapolated", 2 * 10**8)
    assert loads["beyond"] == pytest.approx(2 * 10**8 / (4 * 2**18))


def test_a_prediction_is_explained_and_compared(
    kernel: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, signed = folder / "mine.toml", str(folder / "mine.json")
    model.write_text(
        'format = "countperf-model"\nversion = 3\nname = "mine"\n'
        'ignored = ["barrier.*", "lmem.*"]\n'
        '[terms]\nlaunch = ["launches", "groups"]\nmemory = ["gmem.*.*.*"]\nchip = ["flop.*.*"]\n'
    )
    fitting = ["fit", str(folder / "measured.jsonl"), "--model", str(model), "--output", signed]
    assert main(fitting) == 0
    capsys.readouterr()
    command = ["predict", kernel, "n=65536", "--weights", signed, "--incomplete", "--explain"]

    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "time_s = launch + memory + chip" in printed
    assert "byte/s of global memory (peak unknown)" in printed

    assert main([*command, "--json"]) == 0
    found = _json(capsys)
    parts = found["explanation"]["parts"]
    assert sum(part["time_s"] for part in parts) == pytest.approx(found["time_s"])

    linear = str(folder / "w.json")
    assert main([*command, "--against", linear, "--against-size", "n=131072"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("  global loads 32 stride1")]
    assert line.endswith("s")
    assert main([*command, "--against-size", "n=131072", "--json"]) == 0
    assert _json(capsys)["against"]["parameters"] == {"n": 131072}
