"""Pools of processes that stand still, with real processes."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import BrokenExecutor
from pathlib import Path

import pytest

from countperf.tuning.pools import moving, process_pool


def steps(path: str, end: str) -> int:
    """Write one line for each step of a task, until there is a file that ends it."""
    count = 0
    while not Path(end).exists():
        with moving():
            time.sleep(0.01)
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(f"{os.getpid()}\n")
        count += 1
    return count


def step_without_end() -> None:
    with moving():
        time.sleep(1000)


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_processes_stand_still_in_the_midst_of_their_tasks_and_go_on(tmp_path: Path) -> None:
    paths, end = [tmp_path / "one", tmp_path / "other"], tmp_path / "end"
    before = [0, 0]
    with process_pool(2) as pool:
        tasks = [pool.submit(steps, str(path), str(end)) for path in paths]
        try:
            for _ in range(2):
                while any(_lines(path) <= count for path, count in zip(paths, before, strict=True)):
                    assert not any(task.done() for task in tasks)
                    time.sleep(0.005)
                with pool.standstill.reached(lambda: all(task.done() for task in tasks)):
                    before = [_lines(path) for path in paths]
                    time.sleep(0.1)
                    assert [_lines(path) for path in paths] == before
        finally:
            end.touch()
        counts = [task.result() for task in tasks]

    assert [_lines(path) for path in paths] == counts


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

        with pool.standstill.reached(task.done):
            pass

        with pytest.raises(BrokenExecutor):
            task.result()


def test_steps_elsewhere_wait_for_nothing() -> None:
    with moving(), moving():
        pass
