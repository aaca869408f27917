"""Tests of the examples: each runs and finds a variant."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from countperf.devices.discovery import find_device
from countperf.errors import DeviceError

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("scipy", (), r"blocks of \d+ x \d+ x \d+: \d+\.\d+ s predicted"),
        ("optuna", ("10",), r"\d+\.\d+ ms predicted: items_i=\d+,"),
        (
            "strategies",
            ("8",),
            r"^random_sample: \d+\.\d+ ms: \w+=.*\ngreedy_local_search: \d+\.\d+ ms: \w+=.*\n$",
        ),
    ],
)
def test_an_example_finds_something(
    name: str,
    arguments: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if name == "optuna" and find_spec("optuna") is None:
        pytest.skip("needs the extra 'tuners'")
    path = str(EXAMPLES / f"search_with_{name}.py")
    monkeypatch.setattr(sys, "argv", [path, *arguments])
    runpy.run_path(path, run_name="__main__")
    assert re.search(said, capsys.readouterr().out)


def test_points_of_the_shortest_paths_follow_equation_7() -> None:
    point = runpy.run_path(str(EXAMPLES / "shortest_paths_steps.py"))["point"](16, 32)
    # 8 groups of 32 items on 32 cores; tiles of 16 take a transaction for each of their two rows
    transactions = 8192**3 / 128 + 8192**2 / 16
    waves = -(-(512**2) // (8 * 15))
    steps = transactions * 16384 / (8 * 480) * waves * 8 * 15 / 512**2
    assert (point.groups, point.resident, point.per_core) == (512**2, 8, 8)
    assert point.time_s == pytest.approx(13 * steps / 1.401e9, rel=1e-12)


def test_the_example_kernel_by_every_variant_and_its_profile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(EXAMPLES / "example_kernel_cycles.py")
    monkeypatch.setattr(sys, "argv", [path, "4"])
    runpy.run_path(path, run_name="__main__")
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[-4:] == ["1", "2", "3", "4"]
    found = {row[:36].strip(): row[36:].split() for row in rows[:15]}
    assert found["wfg-first_fix"] == ["24.0", "18.7", "20.0", "24.0"]
    assert found["pipeline-gto"] == ["25.0", "27.0", "29.0", "31.0"]
    assert rows[-3] == "31 cycles, overlap 19%"
    assert rows[-1].split()[2] == "........00112233...00112233...."


@pytest.mark.extra("cluster")
def test_processes_of_a_cluster_count_while_one_per_device_times() -> None:
    try:
        pocl = find_device("pocl:0").label
    except DeviceError as error:
        pytest.skip(str(error))
    command = [sys.executable, str(EXAMPLES / "search_on_a_cluster.py"), pocl, pocl]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=EXAMPLES.parent)
    assert done.returncode == 0, done.stderr
    *found, counted = done.stdout.splitlines()
    said = re.compile(r"pocl:\d+, process (\d+): rows=\d+,columns=\d+, \d+\.\d+ ms")
    timing = {match[1] for line in found if (match := said.fullmatch(line))}
    assert len(timing) == 2
    tasks = [int(number) for number in counted.partition(": ")[2].split(", ")]
    assert len(tasks) == 2
    assert sum(tasks) >= 2  # each search sends at least one
