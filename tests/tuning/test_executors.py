"""Executors of Dask and MPI, each with a real cluster of processes on this machine.

``python -m tests.tuning.test_executors dask`` ranks and tunes with one: both start processes that
import the main module again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from countperf.tuning.ranker import PredictionTask, rank_points
from countperf.tuning.result import Budget
from countperf.tuning.search import tune_space
from tests.patience import LONGEST_S
from tests.tuning.spaces import DOUBLE, build_double
from tests.tuning.test_ranking import WEIGHTS, Inline
from tests.tuning.test_search import scripted

PROGRAM = "tests.tuning.test_executors"
MPIEXEC = Path(sys.executable).parent / "mpiexec"


def build_and_tell(group: int, each: int, fetch: bool) -> Any:
    """Refuse one variant with the process that was asked to build it."""
    if group == 16 and each == 1:
        raise ValueError(f"process {os.getpid()}")
    return build_double(group, each, fetch)


SPACE = replace(DOUBLE, build=build_and_tell)


def answers(executor: Any) -> dict[str, Any]:
    """Rank and tune with an executor."""
    question = PredictionTask(space=SPACE, weights=WEIGHTS, sizes={})
    ranking = rank_points(question, executor=executor)
    tuned = tune_space(question, scripted(), Budget(measurements=4), executor=executor)
    reasons = [r.example.reason for found in ranking.refusals.values() for r in found.reasons]
    return {
        "order": [[SPACE.label(p.choice), p.time_s] for p in ranking.best],
        "refused": ranking.refused,
        "elsewhere": any("process" in reason for reason in reasons)
        and f"ValueError: process {os.getpid()}" not in reasons,
        "winner": SPACE.label(tuned.winner.choice),
    }


@pytest.mark.extra("cluster")
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("dask", [sys.executable]),
        ("mpi", [str(MPIEXEC), "-n", "3", sys.executable, "-m", "mpi4py.futures"]),
    ],
)
def test_a_cluster_ranks_and_tunes_like_one_process(name: str, command: list[str]) -> None:
    if name == "mpi" and not MPIEXEC.exists():
        pytest.skip("needs the extra 'cluster'")
    done = subprocess.run(
        [*command, "-m", PROGRAM, name],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {**answers(Inline()), "elsewhere": True}


def main(name: str) -> None:
    with ExitStack() as stack:
        if name == "dask":
            distributed: Any = import_module("dask.distributed")
            cluster = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
                )
            )
            executor = stack.enter_context(distributed.Client(cluster)).get_executor()
        else:
            futures: Any = import_module("mpi4py.futures")
            executor = stack.enter_context(futures.MPIPoolExecutor())
        sys.stdout.write(f"{json.dumps(answers(executor))}\n")


if __name__ == "__main__":
    main(sys.argv[1])
