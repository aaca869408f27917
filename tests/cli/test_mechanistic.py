"""Mechanistic models on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from countperf.cli import main
from countperf.harness.nvcc import find_nvcc
from countperf.mechanistic.predict_all import model_names

MATMUL = ["matmul-tiled/square/16x16", "n=64", "m=64", "l=64"]
ON = ["--on", "nvidia-k620", "--registers", "32"]


def _json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_predict_prints_a_table_of_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *MATMUL, "--model", "volkov,roofline,tmm", *ON]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["model", "time", "bound", "ignores", "lacks"]
    assert [line.split()[0] for line in lines[2:4]] == ["volkov", "roofline"]
    assert lines[2].split()[2] == "µs"


@pytest.mark.parametrize("model", [["--model", "all"], []])
def test_all_models_answer_for_a_described_device(
    model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", *MATMUL, *model, *ON, "--json"]) == 0

    found = _json(capsys)
    assert list(found["models"]) == list(model_names())
    assert found["models"]["volkov"]["time_s"] > 0
    assert found["models"]["tmm"]["lacks"] == "device.latency_steps"


def test_several_sizes_are_several_tables(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["predict", MATMUL[0], "n=64,128", "m=64", "l=64", "--model", "roofline", *ON]

    assert main([*command, "--json"]) == 0

    times = [each["models"]["roofline"]["time_s"] for each in _json(capsys)["sizes"]]
    assert times[1] == pytest.approx(2 * times[0])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--model", "volkov,linear", *ON], "'linear' is no mechanistic model"),
        (["--model", "linear", *ON], "no mechanistic model is called 'linear'"),
        (["--model", "volkov", *ON, "--explain"], "--explain is for fitted weights"),
        (["--model", "volkov"], "--on SLUG"),
        (["--model", "volkov", "--on", "nvidia-voodoo"], "no description of a device"),
    ],
)
def test_what_cannot_be_asked_is_an_error_in_one_line(
    more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", *MATMUL, *more]) == 1
    assert said in capsys.readouterr().err


def test_occupancy_says_what_limits_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["occupancy", *MATMUL, "--on", "nvidia-gtx-970", "--registers", "40"]) == 0

    out = capsys.readouterr().out
    (now,) = [line.split() for line in out.splitlines() if "matmul_tiled  " in line]
    assert now[1:] == ["256", "40", "2048", "6", "48", "75", "%", "registers"]


def test_occupancy_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["occupancy", *MATMUL, "--on", "nvidia-gtx-970", "--registers", "40", "--json"]
    assert main(command) == 0

    (program,) = _json(capsys)["programs"]
    assert program["limited_by"] == "registers"
    assert program["groups"] == 6


@pytest.mark.extra("plot")
def test_a_sweep_prints_times_and_draws_curves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = tmp_path / "curves.svg"
    command = ["sweep", *MATMUL, "--model", "volkov,roofline", *ON]

    assert main([*command, "--figure", str(figure)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["occupancy", "sub-groups", "flop/byte", "volkov", "roofline"]
    assert [line.split()[:2] for line in lines[2:5]] == [["1", "8"], ["2", "16"], ["3", "24"]]
    assert figure.stat().st_size > 1000


@pytest.mark.extra("plot")
def test_predict_draws_the_roofline(tmp_path: Path) -> None:
    roof = tmp_path / "roof.svg"

    assert main(["predict", *MATMUL, "--model", "volkov", *ON, "--figure", str(roof)]) == 0

    assert roof.stat().st_size > 1000


def test_machine_code_is_for_mechanistic_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *MATMUL, "--analysis", "sass"]) == 1
    assert "--analysis is for mechanistic models" in capsys.readouterr().err


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc (the extra 'nvcc')")
def test_predict_takes_instructions_from_ptx(capsys: pytest.CaptureFixture[str]) -> None:
    command = [*MATMUL, "--model", "merpsys", "--on", "nvidia-t4", "--registers", "32"]

    assert main(["predict", *command, "--analysis", "ptx", "--json"]) == 0

    assert _json(capsys)["note"] == "instructions: PTX for compute capability 7.5"
