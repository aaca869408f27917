"""Pools of processes that stand still, with real processes."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path

import pytest

from countperf.tuning.pools import moving, process_pool


def steps(path: str, count: int) -> None:
    """Write one line for each step of a task."""
    for number in range(count):
        with moving():
            time.sleep(0.01)
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(f"{os.getpid()} {number}\n")


def step_without_end() -> None:
    with moving():
        time.sleep(1000)


def _lines(*paths: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths if path.exists())


def _is_idle(*tasks: Future[None]) -> bool:
    return all(task.done() for task in tasks)


def test_processes_stand_still_in_the_midst_of_their_tasks_and_go_on(tmp_path: Path) -> None:
    paths = tmp_path / "one", tmp_path / "other"
    with process_pool(2) as pool:
        tasks = [pool.submit(steps, str(path), 60) for path in paths]
        while not all(path.exists() for path in paths):
            time.sleep(0.005)
        for _ in range(2):
            with pool.standstill.reached(lambda: _is_idle(*tasks)):
                before = _lines(*paths)
                time.sleep(0.1)
                assert _lines(*paths) == before < 120
                assert not any(task.done() for task in tasks)
        for task in tasks:
            task.result()

    assert [_lines(path) for path in paths] == [60, 60]


def test_processes_without_a_task_stand_still_at_once() -> None:
    with process_pool(2) as pool, pool.standstill.reached(lambda: False):
        pass


def test_a_process_that_ended_in_a_step_is_not_waited_for() -> None:
    with process_pool(1) as pool:
        pid = pool.submit(os.getpid).result()
        task = pool.submit(step_without_end)
        while not task.running():
            time.sleep(0.005)
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)

        with pool.standstill.reached(lambda: _is_idle(task)):
            pass

        with pytest.raises(BrokenExecutor):
            task.result()


def test_steps_elsewhere_wait_for_nothing() -> None:
    with moving(), moving():
        pass
