"""Counts and statistics on the command line, as messages print them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from countperf.cli import main

pytestmark = pytest.mark.filterwarnings("ignore")  # Loopy and pymbolic warn of what is written

KERNELS = """
import loopy as lp
import numpy as np

raw = lp.make_kernel(
    "{[i]: 0<=i<n}",
    [lp.CInstruction("i", "z[i] = x[i] + 1;", id="raw", assignees=("z[i]",),
                     read_variables=frozenset(["x"]))],
    [lp.GlobalArg("x,z", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
    assumptions="n >= 1", lang_version=(2018, 2),
)
gated = lp.make_kernel(
    "{[i]: 0<=i<n}",
    "z[i] = 2*x[i] {if=x[i] > 0}",
    [lp.GlobalArg("x,z", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
    assumptions="n >= 1", lang_version=(2018, 2),
)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "kernels.py"
    place.write_text(KERNELS)
    return place


@pytest.mark.parametrize("command", ["count", "predict"])
def test_counts_of_instructions_are_taken_as_messages_print_them(
    file: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    weights = ["--weights", "pocl-epyc-zen5", "--model", "structural"]
    asked = [command, f"{file}:raw", "n=100", *(weights if command == "predict" else [])]
    assert main(asked) == 1
    found = re.search(r"instruction_counts=({.*}})", capsys.readouterr().err)
    assert found is not None

    assert main([*asked, "--instruction-counts", found[1], "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    if command == "count":
        assert printed["properties"]["flop.add.f32"]["value"] == 100
    else:
        assert printed["time_s"] > 0


@pytest.mark.parametrize("text", ["", "[1]", "{'raw': 1}", "{'raw': {'flop.add.f32': 'x'}}", "{"])
def test_other_counts_are_wrong_usage(file: Path, text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["count", f"{file}:raw", "--instruction-counts", text])
    assert ended.value.code == 2


def test_statistics_are_said_as_options_that_work(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["count", f"{file}:gated", "n=100"]) == 1
    said = capsys.readouterr().err
    options = shlex.split(said.rpartition("; here: ")[2])
    assert options == ["--statistics", "x[i] > 0=0.5"]

    assert main(["count", f"{file}:gated", "n=100", *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["flop.mul.f32"]["value"] == 50


def test_analyses_and_mechanistic_models_take_no_counts(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = ["--instruction-counts", "{'raw': {'flop.add.f32': 1}}"]
    assert main(["count", f"{file}:raw", "--analysis", *counts]) == 1
    assert "leave one of them out" in capsys.readouterr().err
