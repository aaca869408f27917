"""Processes end with the one that started them, however that one ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.patience import LONGEST_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

SCRIPTS = Path(__file__).parents[2] / "scripts"

_BUSY = """
import os, sys, time
from countperf.tuning.pools import process_pool

def hold_the_interpreter():
    say()
    sys.set_int_max_str_digits(0)
    str(7 ** (1 << 28))

def sleep_on():
    say()
    time.sleep(1000)

def say():
    open(f"began-{os.getpid()}", "x").close()

pool = process_pool(3)
tasks = [pool.submit(hold_the_interpreter), pool.submit(sleep_on), pool.submit(os.getpid)]
time.sleep(1000)
"""


def _marked(mark: str) -> list[int]:
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


@pytest.mark.parametrize("whole_group", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_busy_and_idle_processes_end_with_a_killed_caller(
    number: signal.Signals, whole_group: bool, tmp_path: Path
) -> None:
    mark = f"COUNTPERF_TEST={tmp_path}"
    with subprocess.Popen(
        [sys.executable, "-c", _BUSY],
        env={**os.environ, "COUNTPERF_TEST": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as caller:
        while len(list(tmp_path.glob("began-*"))) < 2:
            assert caller.poll() is None
            time.sleep(0.05)
        assert (
            len(_marked(mark)) >= 5
        )  # of the caller, of three others, and of what they are forked from
        if whole_group:
            os.killpg(caller.pid, number)
        else:
            caller.send_signal(number)
        caller.communicate(timeout=LONGEST_S)  # until nobody holds the pipe
    deadline_s = time.monotonic() + LONGEST_S
    while (left := _marked(mark)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert not left


@pytest.mark.long
@pytest.mark.device
def test_killed_searches_leave_nothing() -> None:
    command = [sys.executable, str(SCRIPTS / "kill_searches.py"), "--kills", "4", "--before", "8"]

    done = subprocess.run(
        [*command, "--after", str(LONGEST_S)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout
    assert "4 kills, 0 processes left" in done.stdout


_PRELOADS = """
import importlib, time
import countperf.tuning.pools
def imports(name):
    open("began", "w").close()
    time.sleep(1000)
importlib.import_module = imports
import countperf.tuning.preload
"""


def test_a_process_that_still_imports_ends_with_a_killed_caller(tmp_path: Path) -> None:
    mark = f"COUNTPERF_TEST={tmp_path}"
    with subprocess.Popen(
        ["/bin/sh", "-c", '"$0" -c "$1" & wait', sys.executable, _PRELOADS],
        cwd=tmp_path,
        env={**os.environ, "COUNTPERF_TEST": str(tmp_path)},
    ) as caller:
        began_s = time.monotonic()
        while not (tmp_path / "began").exists() and time.monotonic() - began_s < LONGEST_S:
            time.sleep(0.05)
        assert len(_marked(mark)) == 2
        caller.kill()
    killed_s = time.monotonic()
    while _marked(mark) and time.monotonic() - killed_s < LONGEST_S:
        time.sleep(0.05)
    left = _marked(mark)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert left == []


def test_a_process_whose_caller_ended_before_it_imports_ends(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as caller:  # has ended, and is no parent
        caller.wait()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PRELOADS],
        env={**os.environ, "COUNTPERF_POOL_OWNER": str(caller.pid)},
        cwd=tmp_path,
        capture_output=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, b"")
