"""Exports are opened by the readers of those whose formats they are."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import countperf.tuning
from countperf.errors import KernelBuildError, MeasurementError, ParameterError, WrongResultError
from countperf.tuning.export import (
    builder_script,
    kernel_tuner_cache,
    t4_results,
    tuning_frame,
)
from countperf.tuning.result import Budget, TuningResult
from tests.tuning.test_search import LARGE, scripted, search

BROKEN = {
    "double/group=128,each=4,fetch=False": WrongResultError("wrong numbers"),
    "double/group=64,each=4,fetch=False": KernelBuildError("no registers left"),
    "double/group=32,each=4,fetch=False": MeasurementError("lost the device"),
}


@pytest.fixture(scope="module")
def result() -> TuningResult:
    return search(scripted(broken=BROKEN), Budget(measurements=12))


_SIMULATE = """
import json, sys
import kernel_tuner

content = json.load(open(sys.argv[1]))
known = set(content["cache"])
found, _ = kernel_tuner.tune_kernel(
    content["kernel_name"], "", content["problem_size"], [], content["tune_params"],
    restrictions=lambda config: ",".join(map(str, config.values())) in known,
    simulation_mode=True, cache=sys.argv[1], lang="OpenCL", quiet=True,
)
json.dump([{k: v for k, v in each.items() if k in content["tune_params"]}
           | {"time": str(each.get("__error__", each["time"]))} for each in found],
          open(sys.argv[2], "w"))
"""


NEEDS_KERNEL_TUNER = pytest.mark.extra("tuners")


@NEEDS_KERNEL_TUNER
def test_kernel_tuner_simulates_a_search_from_the_cache(
    result: TuningResult, tmp_path: Path
) -> None:
    cache, answer = tmp_path / "cache.json", tmp_path / "answer.json"
    cache.write_text(json.dumps(kernel_tuner_cache(result, LARGE)))
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(_SIMULATE)]

    done = subprocess.run(
        [*command, str(cache), str(answer)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    seen = {LARGE.label(each): each["time"] for each in json.loads(answer.read_text())}
    valid = {label: float(time) for label, time in seen.items() if not time.endswith("Config")}
    assert valid == {LARGE.label(t.choice): pytest.approx(t.time_s * 1e3) for t in result.tried}
    assert {time for time in seen.values() if time.endswith("Config")} <= {
        "CompilationFailedConfig",
        "RuntimeFailedConfig",
        "InvalidConfig",
    }


@NEEDS_KERNEL_TUNER
def test_t4_results_follow_the_published_schema(result: TuningResult) -> None:
    jsonschema: Any = import_module("jsonschema")  # a dependency of kernel-tuner
    check = (
        "import json, pathlib, kernel_tuner\n"
        "print(pathlib.Path(kernel_tuner.__file__).parent / 'schema/T4/1.0.0/results-schema.json')"
    )
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", check], capture_output=True, text=True, check=True
    )
    schema = json.loads(Path(shown.stdout.strip()).read_text())
    content = json.loads(json.dumps(t4_results(result)))

    jsonschema.validate(content, schema)

    assert len(content["results"]) == len(result.tried) + len(result.failed)
    assert {each["invalidity"] for each in content["results"]} == {
        "correct",
        "compile",
        "correctness",
        "runtime",
    }


def test_the_frame_has_a_row_for_each_that_ran_and_the_best_so_far(result: TuningResult) -> None:
    frame = countperf.tuning.tuning_frame(result)

    assert countperf.tuning.tuning_frame is tuning_frame
    assert list(frame["time_s"]) == [tried.time_s for tried in result.tried]
    assert frame["best_s"].is_monotonic_decreasing
    assert frame["best_s"].iloc[-1] == result.winner.time_s
    assert {"group", "each", "fetch", "predicted_s", "at_s"} <= set(frame.columns)


@pytest.mark.extra("plot")
def test_the_figure_shows_what_ran_the_winner_and_the_best_so_far(
    result: TuningResult, tmp_path: Path
) -> None:
    result.plot(tmp_path / "search.svg")

    drawn = (tmp_path / "search.svg").read_text()
    assert {"ran", "winner", "best-so-far"} <= set(re.findall(r'<g id="([a-z-]+)"', drawn))


@pytest.mark.extra("plot")
def test_a_figure_of_no_known_format_is_refused(result: TuningResult, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="cannot be written as 'doc'"):
        result.plot(tmp_path / "search.doc")


def test_the_script_builds_the_winner(result: TuningResult, tmp_path: Path) -> None:
    script = builder_script(result, "tests.tuning.test_search:LARGE")
    path = tmp_path / "winner.py"
    path.write_text(script)

    space: dict[str, Any] = runpy.run_path(str(path))

    assert f"{result.winner.time_s:.4g} s at n=4096" in (space["__doc__"] or "")
    assert space["kernel"] == LARGE.build(**result.winner.choice)
