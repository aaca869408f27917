"""Executors of Dask and MPI, each with a real cluster of processes on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from countperf.tuning.points import PredictionTask
from countperf.tuning.ranker import rank_points
from countperf.tuning.result import Budget
from countperf.tuning.search import tune_space
from tests.patience import LONGEST_S
from tests.tuning.spaces import N
from tests.tuning.test_ranking import Inline
from tests.tuning.test_search import WEIGHTS, scripted
from tests.tuning.with_executor import SPACE

PROGRAM = "tests.tuning.with_executor"
MPIEXEC = Path(sys.executable).parent / "mpiexec"


@pytest.mark.extra("cluster")
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("dask", [sys.executable, "-m", PROGRAM, "dask"]),
        (
            "mpi",
            [str(MPIEXEC), "-n", "3", sys.executable, "-m", "mpi4py.futures", "-m", PROGRAM, "mpi"],
        ),
    ],
)
def test_a_cluster_ranks_and_tunes_like_one_process(name: str, command: list[str]) -> None:
    if name == "mpi" and not MPIEXEC.exists():
        pytest.skip("needs the extra 'cluster'")
    question = PredictionTask(space=SPACE, weights=WEIGHTS, sizes={"n": N})
    ranking = rank_points(question, executor=Inline())
    tuned = tune_space(question, scripted(), Budget(measurements=4), executor=Inline())

    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["order"] == [[SPACE.label(p.choice), p.time_s] for p in ranking.best]
    assert found["refused"] == ranking.refused
    assert found["elsewhere"]
    assert found["winner"] == SPACE.label(tuned.winner.choice)
