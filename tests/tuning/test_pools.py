"""Pools of processes that stand still, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor
from pathlib import Path

import pytest

from countperf.tuning.exclusive_timing import can_stop
from countperf.tuning.pools import process_pool
from tests.patience import LONGEST_S

pytestmark = pytest.mark.skipif(not can_stop(), reason="processes cannot be stopped here")

_WRITER = """
import pathlib, sys, time
path, end = map(pathlib.Path, sys.argv[1:])
count = 0
while not end.exists():
    time.sleep(0.01)
    with path.open("a") as file:
        file.write("line\\n")
    count += 1
print(count)
"""


def steps(path: str, end: str) -> int:
    """Have a process of its own write one line after the other until there is a file."""
    done = subprocess.run(
        [sys.executable, "-c", _WRITER, path, end], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_processes_stand_still_with_those_that_they_began_and_go_on(tmp_path: Path) -> None:
    paths, end = [tmp_path / "one", tmp_path / "other"], tmp_path / "end"
    before = [0, 0]
    with process_pool(2) as pool:
        assert pool.standstill is not None
        tasks = [pool.submit(steps, str(path), str(end)) for path in paths]
        try:
            for _ in range(2):
                while any(_lines(path) <= count for path, count in zip(paths, before, strict=True)):
                    assert not any(task.done() for task in tasks)
                    time.sleep(0.005)
                with pool.standstill.reached():
                    time.sleep(0.05)  # signals take their time
                    before = [_lines(path) for path in paths]
                    time.sleep(0.1)
                    assert [_lines(path) for path in paths] == before
        finally:
            end.touch()
        counts = [task.result() for task in tasks]

    assert [_lines(path) for path in paths] == counts


def test_pools_without_processes_stand_still_at_once() -> None:
    with process_pool(2) as pool:
        assert pool.standstill is not None
        with pool.standstill.reached():
            pass
        pool.shutdown()
        with pool.standstill.reached():
            pass


def test_a_process_that_ended_is_left_alone() -> None:
    with process_pool(1) as pool:
        assert pool.standstill is not None
        pid = pool.submit(os.getpid).result()
        task = pool.submit(time.sleep, 1000)
        while not task.running():
            time.sleep(0.005)
        with pool.standstill.reached():
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(BrokenExecutor):
                task.result()


def test_what_waits_for_a_process_that_stands_still_goes_on_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("countperf.tuning.exclusive_timing._LONGEST_S", 0.1)
    with process_pool(1) as pool:
        assert pool.standstill is not None
        pool.submit(os.getpid).result()
        with pool.standstill.reached():
            assert pool.submit(os.getpid).result(timeout=LONGEST_S) != os.getpid()


_ABANDONED = """
import os, time
from countperf.tuning.pools import process_pool

if __name__ == "__main__":
    pool = process_pool(1)
    print(pool.submit(os.getpid).result(), flush=True)
    with pool.standstill.reached():
        time.sleep(1000)
"""


def test_processes_do_not_stand_still_for_a_search_that_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "abandoned.py"
    script.write_text(_ABANDONED)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as search:
        assert search.stdout is not None
        number = int(search.stdout.readline())
        time.sleep(0.1)
        search.kill()
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline and _state(number) not in (None, "Z"):
        time.sleep(0.05)
    assert _state(number) in (None, "Z")


def _state(number: int) -> str | None:
    """Return the state of a process by ps; None if there is none."""
    found = subprocess.run(
        ["ps", "-o", "state=", "-p", str(number)], capture_output=True, text=True, check=False
    )
    return found.stdout.strip()[:1] or None


_INTERRUPTED = """
import os, signal, sys, time
import countperf.interrupts
os.kill(os.getpid(), signal.SIGINT)
time.sleep(0.1)
print("goes on")
"""


def test_the_process_that_others_are_forked_from_ignores_interrupts() -> None:
    command = [sys.executable, "-c", _INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")
