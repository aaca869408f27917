"""Variants that bring down or hold up their process cost themselves alone; with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from countperf.devices.workers import Pool
from countperf.errors import ParameterError, TuningError
from countperf.tuning.ranker import Point, PredictionTask, rank_points
from countperf.tuning.refusals import Refused
from countperf.tuning.result import Budget
from countperf.tuning.search import tune_space
from tests.patience import LONGEST_S
from tests.tuning.spaces import FAILING
from tests.tuning.test_ranking import WEIGHTS, Inline
from tests.tuning.test_search import scripted

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals of POSIX")

TASK = PredictionTask(space=FAILING, weights=WEIGHTS, sizes={})
REASONS = {
    "end": "it ended with status 7",
    "leave": "SystemExit: no more",
    "crash": "it was ended by SIGSEGV",
    "sleep": "it took longer than 8 s; longest_s=SECONDS gives it more",
    "hold": "it took longer than 8 s; longest_s=SECONDS gives it more",
}


def test_all_other_points_are_ranked() -> None:
    points: list[Point] = []
    with Pool(2) as pool:
        ranking = rank_points(TASK, executor=pool, longest_s=8.0, on_point=points.append)
    assert ranking.complete
    assert (ranking.predicted, ranking.refused) == (13, 5)
    refused = {p.choice["how"]: p for p in points if isinstance(p, Refused)}
    assert {(p.choice["group"], p.stage) for p in refused.values()} == {(32, "build")}
    lost = "the process that built and counted it was lost: "
    assert {how: p.reason for how, p in refused.items()} == {
        how: lost * (how != "leave") + reason for how, reason in REASONS.items()
    }


def test_a_limit_is_positive() -> None:
    with pytest.raises(ParameterError, match="longest_s is 0"):
        rank_points(TASK, executor=Inline(), longest_s=0)


def test_a_search_of_what_hangs_ends() -> None:
    space = replace(FAILING, parameters={"group": [32], "how": ["sleep", "hold", "end"]})
    with pytest.raises(TuningError, match="has a prediction: 3 refused"):
        tune_space(replace(TASK, space=space), scripted(), Budget(seconds=8), longest_s=1.0)


@pytest.mark.long
@pytest.mark.device
def test_ctrl_c_shows_the_result_and_leaves_a_search_that_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "search.jsonl"
    command = [sys.executable, "-m", "countperf", "tune", "matmul", "n=64", "m=64", "l=64"]
    command += ["--budget", "60", "--store", str(store), "--model", "structural"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as search:
        while not (store.exists() and store.read_text().count('"kind": "tried"') >= 2):
            assert search.poll() is None
            time.sleep(0.1)
        os.killpg(search.pid, signal.SIGINT)  # as a terminal does
        out, err = search.communicate(timeout=LONGEST_S)
    lines = [json.loads(line) for line in store.read_text().splitlines()]
    ran = len({json.dumps(e["choice"]) for e in lines if e.get("kind") == "tried"})
    assert search.returncode == 130
    assert "it was interrupted" in out
    failed = store.read_text().count('"kind": "refused"')  # too slow to build, on a busy machine
    assert f"{ran} ran, {failed} failed; kept in {store}: the same call goes on" in err
    assert f"{ran} of " in out
