"""``countperf rank`` and ``countperf tune``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import countperf
from countperf.devices.device import Device
from tests.cli.conftest import Run
from tests.models.builders import make_weights
from tests.tuning.spaces import build_double
from tests.tuning.test_ranking import WEIGHTS

SPACE = "tests.tuning.spaces:DOUBLE"


@pytest.fixture
def weights(tmp_path: Path) -> str:
    path = tmp_path / "weights.json"
    WEIGHTS.write_file(path)
    return str(path)


def test_rank_prints_the_best_and_why_others_are_none(weights: str, run: Run) -> None:
    out = run(f"rank {SPACE} n=1024 --weights {weights}").out.splitlines()
    titles = ["predicted", "from", "to", "(95", "%)", "group", "each", "fetch"]
    assert out[0].split() == titles
    assert out[1].split()[6:] == ["64", "8", "no"]
    assert out[16].startswith("double on pocl-testchip, n = 1024: 15 variants predicted in")
    assert out[17].startswith("refused (build): 3 of 3, such as")
    assert out[17].endswith("ValueError: no fetch of eight")
    assert out[18] == "--output FILE writes down every refused one with its reason"


def test_rank_without_a_prediction_is_an_error_with_the_reasons(
    weights: str, tmp_path: Path, run: Run
) -> None:
    file = tmp_path / "points.jsonl"
    printed = run(f"rank {SPACE} n=7 --weights {weights} --json --output {file}", status=1)
    assert printed.out == ""
    assert "no variant of 'double' has a prediction: 18 refused: " in printed.err
    assert "3 (build): ValueError: no fetch of eight" in printed.err
    assert "15 (sizes): kernel 'double_it' assumes" in printed.err
    assert len(file.read_text().splitlines()) == 18


def test_rank_as_json_and_every_point_as_a_line(weights: str, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "points.jsonl"
    command = f"rank {SPACE} --weights {weights} --output {file} --json"
    printed = run(command).json
    assert (printed["predicted"], printed["complete"]) == (15, True)
    best = printed["best"][0]
    assert best["choice"] == {"group": 64, "each": 8, "fetch": False}
    direct = countperf.predict(build_double(**best["choice"]), n=512, weights=WEIGHTS)
    assert (best["predicted_s"], best["interval_level"]) == (direct.time_s, direct.interval_level)
    assert direct.interval_s is not None
    assert best["interval_s"] == list(direct.interval_s)
    assert printed["refused"]["build"]["count"] == 3
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 18
    assert sum("stage" in line for line in lines) == 3
    predicted = [line for line in lines if "stage" not in line]
    assert all(e["interval_s"][0] < e["predicted_s"] < e["interval_s"][1] for e in predicted)


def test_rank_takes_the_statistics_that_it_asks_for(weights: str, run: Run) -> None:
    command = f"rank tests.tuning.spaces:CHOOSY --weights {weights} --incomplete --points 1"
    asked = run(command, status=1).err.strip().partition("; here: ")[2]
    assert asked.startswith("--statistics 'a[i] > ")
    assert run(command, *shlex.split(asked), "--json").json["predicted"] == 1


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (f"rank {SPACE} --points 0", 2, "points"),
        (f"rank {SPACE} q=4", 1, "space 'double' has no size q; there are n"),
        (f"tune {SPACE} --model=", 2, "--model: '' names nothing; leave the option out"),
        (f"tune {SPACE} n=-4 --device nowhere:7", 1, "n = -4; sizes are positive"),
    ],
)
def test_what_cannot_be_done_is_an_error_in_one_line(
    command: str, status: int, said: str, weights: str, run: Run
) -> None:
    assert said in run(f"{command} --weights {weights}", status=status).err


@pytest.mark.device
def test_tune_prints_the_winner_and_resumes(device: Device, tmp_path: Path, run: Run) -> None:
    path, store = tmp_path / "weights.json", tmp_path / "search.jsonl"
    make_weights({"launches": 1e-5}).write_file(path)
    command = f"tune {SPACE} n=65536 --measurements 2 --weights {path} --force --store {store}"
    command += f" --device {device.label}"  # the fastest may be another one each time
    first = run(f"{command} --json").json
    text = run(command).out
    assert len(first["tried"]) == 2
    assert first["winner"]["time_s"] == min(tried["time_s"] for tried in first["tried"])
    assert "numbers checked" in text
    assert "at 95 % confidence" in text
    assert "2 of 15 predicted variants ran" in text
