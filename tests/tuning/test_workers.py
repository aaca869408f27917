"""Pools whose processes may be lost, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from countperf.errors import KernelSpecificationError
from countperf.tuning.pools import Pool, WorkerLostError, process_pool
from tests.patience import LONGEST_S

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs signals of POSIX")


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with process_pool(2) as found:
        yield found


def leave() -> None:
    os._exit(3)


def step_out() -> None:
    sys.exit("no more")


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def sleep_on() -> None:
    time.sleep(1000)


def hold_the_interpreter() -> None:
    """Take a very long time in one call, while which no other thread gets a turn."""
    len(str(7 ** (1 << 26)))


@POSIX
@pytest.mark.parametrize(
    ("task", "reason", "is_late"),
    [
        (leave, "it ended with status 3", False),
        (step_out, "it raised SystemExit: no more", False),
        (crash, "it was ended by SIGSEGV", False),
        (sleep_on, "it took longer than 0.5 s", True),
        (hold_the_interpreter, "it took longer than 0.5 s", True),
    ],
)
def test_a_task_that_loses_its_process_fails_alone(
    pool: Pool, task: Callable[[], None], reason: str, is_late: bool
) -> None:
    sys.set_int_max_str_digits(0)
    lost = pool.submit_within(0.5 if is_late else LONGEST_S, task)
    others = [pool.submit(abs, -number) for number in range(20)]

    error = lost.exception()

    assert isinstance(error, WorkerLostError)
    assert (error.reason, error.is_late) == (reason, is_late)
    assert [other.result() for other in others] == list(range(20))


@POSIX
@POSIX
def test_what_is_dropped_is_not_blamed(pool: Pool) -> None:
    task = pool.submit(time.sleep, 1000)
    while not task.running():
        time.sleep(0.01)

    pool.drop([task])

    error = task.exception()
    assert isinstance(error, WorkerLostError)
    assert not error.is_late


def fail_as_ours() -> None:
    raise KernelSpecificationError("there is none", specification="nothing")


def test_errors_come_back_and_what_cannot_be_sent_is_refused(pool: Pool) -> None:
    with pytest.raises(KernelSpecificationError, match="there is none") as caught:
        pool.submit(fail_as_ours).result()
    assert caught.value.specification == "nothing"
    with pytest.raises(ValueError, match="invalid literal"):
        pool.submit(int, "one").result()
    with pytest.raises(TypeError, match="cannot pickle"):
        pool.submit(repr, threading.Lock()).result()
    with pytest.raises(TypeError, match="cannot pickle"):
        pool.submit(threading.Lock).result()


def test_functions_within_functions_are_sent(pool: Pool) -> None:
    numbers = [3, 4]

    assert pool.submit(lambda: sum(numbers)).result() == 7


def test_a_pool_that_is_ended_waits_for_nothing() -> None:
    pool = process_pool(1)
    task, waiting = pool.submit(time.sleep, 1000), pool.submit(abs, -1)
    while not task.running():
        time.sleep(0.01)

    pool.end()

    assert isinstance(task.exception(), WorkerLostError)
    assert isinstance(waiting.exception(), WorkerLostError)
    with pytest.raises(RuntimeError, match="not active"):
        pool.submit(abs, -1)


def test_processes_are_where_the_caller_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "mine"), *sys.path])
    with process_pool(1) as pool:
        assert pool.submit(os.getcwd).result() == str(tmp_path)
        assert pool.submit(list, sys.path).result() == sys.path
        assert pool.submit(_path).result() == sys.path


def _path() -> list[str]:
    return sys.path


_UNGUARDED = """
print("run", flush=True)
from countperf.tuning.pools import process_pool
class Own:
    def __init__(self, value): self.value = value
def halved(own): return Own(own.value / factor)
factor = 2
pool = process_pool(2)
found = [pool.submit(halved, Own(number)).result() for number in (2, 4)]
assert all(isinstance(each, Own) for each in found)
print([each.value for each in found])
"""


@pytest.mark.parametrize("way", ["script", "text", "input"])
def test_no_script_is_run_again(way: str, tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(_UNGUARDED)
    command = [sys.executable, *{"script": [str(file)], "text": ["-c", _UNGUARDED]}.get(way, ["-"])]

    done = subprocess.run(
        command,
        input=_UNGUARDED if way == "input" else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["run", "[1.0, 2.0]", ""]


def test_processes_hold_no_pipe_of_the_caller(pool: Pool) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    files: list[Any] = [pool.submit(os.readlink, f"/proc/self/fd/{n}").result() for n in range(3)]

    assert files == [os.devnull] * 3


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
