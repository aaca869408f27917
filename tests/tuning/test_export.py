"""Exports are opened by the readers of those whose formats they are."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from countperf.cli.tune import builder_script
from countperf.errors import ParameterError
from countperf.tuning.result import Budget, TuningResult
from tests.tuning.test_search import LARGE, scripted, search


@pytest.fixture(scope="module")
def result() -> TuningResult:
    return search(scripted(), Budget(measurements=12))


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
