"""Pools whose processes may be lost, and which end with the caller; with real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from countperf.devices.workers import Pool, WorkerLostError
from countperf.errors import ParameterError
from tests.patience import LONGEST_S

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2) as started:
        yield started


def _until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + LONGEST_S
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.05)


def _run_python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options |= {"capture_output": True, "text": True, "check": False, "timeout": 2 * LONGEST_S}
    done = subprocess.run([sys.executable, *arguments], **options)
    assert done.returncode == 0, done.stderr
    return done


def fail_as_ours() -> None:
    raise ParameterError("there is none", parameter="n")


def test_errors_come_back_and_what_cannot_be_sent_is_refused(pool: Pool) -> None:
    with pytest.raises(ParameterError, match="there is none") as caught:
        pool.submit(fail_as_ours).result()
    assert caught.value.parameter == "n"
    for function, argument, kind, said in (
        (int, ["one"], ValueError, "invalid literal"),
        (repr, [threading.Lock()], TypeError, "cannot pickle"),
        (threading.Lock, [], TypeError, "cannot pickle"),
        (sys.exit, ["no more"], WorkerLostError, "it raised SystemExit: no more"),
    ):
        with pytest.raises(kind, match=said):
            pool.submit(function, *argument).result()


def _fill_folder(told: str) -> None:
    with tempfile.NamedTemporaryFile() as file:
        Path(told).write_text(file.name)
        time.sleep(1000)


def test_a_pool_that_is_ended_waits_for_nothing_and_leaves_no_files(tmp_path: Path) -> None:
    pool, told = Pool(1), tmp_path / "told"
    task, waiting = pool.submit(_fill_folder, str(told)), pool.submit(abs, -1)
    _until(lambda: told.exists() and told.read_text())
    file = Path(told.read_text())
    assert file.exists()
    pool.end()
    assert not file.parent.exists()
    error = task.exception()
    assert isinstance(error, WorkerLostError)
    assert not error.is_late
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(abs, -1)


def test_processes_are_where_the_caller_is_and_hold_no_pipe_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "mine"), *sys.path])
    with Pool(1) as pool:
        assert pool.submit(os.getcwd).result() == str(tmp_path)
        assert pool.submit(list, sys.path).result() == sys.path
        assert pool.submit(lambda: sys.path).result() == sys.path
        if sys.platform == "linux":
            files = [pool.submit(os.readlink, f"/proc/self/fd/{n}").result() for n in range(3)]
            assert files[:2] == [os.devnull] * 2
            assert files[2].startswith(tempfile.gettempdir())


_BUSY = """
import os, sys, time
from countperf.devices.workers import Pool

def hold_the_interpreter():
    say()
    sys.set_int_max_str_digits(0)
    str(7 ** (1 << 28))

def sleep_on():
    say()
    time.sleep(1000)

def say():
    open(f"began-{os.getpid()}", "x").close()

pool = Pool(4)
tasks = [pool.submit(hold_the_interpreter), pool.submit(sleep_on), pool.submit(os.getpid)]
tasks += [pool.submit(lambda: Pool(1).submit(sleep_on).result())]
time.sleep(1000)
"""


def _marked(folder: Path) -> list[int]:
    """Return the processes that were started with this folder as their mark."""
    mark = f"COUNTPERF_TEST={folder}".encode()
    marked: list[int] = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    marked.append(int(process.name))
    return marked


@LINUX
@pytest.mark.parametrize(
    ("number", "whole_group", "begun"),
    [(signal.SIGTERM, True, 3), (signal.SIGKILL, False, 3), (signal.SIGKILL, False, 0)],
    ids=["SIGTERM of all", "SIGKILL of the caller", "SIGKILL while they start"],
)
def test_busy_and_idle_processes_end_with_a_killed_caller(
    number: signal.Signals, whole_group: bool, begun: int, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _BUSY],
        env={**os.environ, "COUNTPERF_TEST": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as caller:
        if begun:
            _until(lambda: len(list(tmp_path.glob("began-*"))) >= begun)
            assert len(_marked(tmp_path)) == 6  # the caller, four workers, and one of a worker
        else:
            _until(lambda: len(_marked(tmp_path)) >= 3)
        (os.killpg if whole_group else os.kill)(caller.pid, number)
        caller.communicate(timeout=LONGEST_S)  # until nobody holds the pipe
    _until(lambda: not _marked(tmp_path))
    for process in (left := _marked(tmp_path)):
        os.kill(process, signal.SIGKILL)
    assert not left


_FORKED = """
import os, sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import countperf
from countperf.devices.discovery import find_device, try_device
from countperf.measuring.runner import KernelRunner
from countperf.devices.workers import Pool
from tests.devices.loopy_cases import double
from tests.devices.fakes import make_case

LABEL = sys.argv[1]

def predict():
    return countperf.predict(double(64), n=4096, device=LABEL).time_s

def measure():
    return countperf.time_kernel(double(64), n=4096, device=LABEL).sizes[0].measurement.time_s > 0

def refuse(function, *given):
    try:
        function(*given)
    except countperf.CountperfError as error:
        return str(error).replace(str(os.getppid()), "PARENT")

device = find_device(LABEL)
runner, pool = KernelRunner.open(device), Pool(1)
assert pool.submit(abs, -1).result() == 1

def forked():
    return (
        predict(),
        measure(),
        try_device(device).works,
        refuse(KernelRunner.open, device),
        refuse(runner.check, make_case()),
        refuse(pool.submit, abs, -1),
    )

here = predict()
with ProcessPoolExecutor(1, mp_context=get_context("fork")) as children, pool:
    there = children.submit(forked).result()
    print(there[0] == here, *there[1:], sep="\\n")
"""


@LINUX
@pytest.mark.long
@pytest.mark.device
def test_a_forked_process_uses_no_driver_that_its_parent_opened(device: Any) -> None:
    done = _run_python("-W", "ignore", "-c", _FORKED, device.label, cwd=Path(__file__).parents[2])
    *worked, opened, kept, pooled = done.stdout.splitlines()
    assert worked == ["True"] * 3
    said = "was opened by process PARENT, from which this one was forked"
    assert all(said in each and "get_context('spawn')" in each for each in (opened, kept, pooled))


_SCRIPT = """
print("run", flush=True)
import loopy as lp, numpy as np
import countperf
from helper_beside_the_script import FACTOR

def doubled(group):
    unit = lp.make_kernel(
        "{[i]: 0<=i<n}",
        f"out[i] = {FACTOR}*a[i]",
        [lp.GlobalArg("a,out", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    return lp.split_iname(unit, "i", group, outer_tag="g.0", inner_tag="l.0")

space = countperf.SearchSpace(
    name="mine",
    parameters={"group": [16, 32, 64]},
    build=lambda group: doubled(group),
    sizes={"n": 4096},
    make_arguments=lambda random, sizes: {"a": random.random(sizes["n"], dtype=np.float32)},
    reference=lambda arguments, sizes: {"out": 2 * arguments["a"]},
)
ranking = countperf.rank(space, weights="pocl-epyc-zen4")
print(ranking.predicted, ranking.refused)
"""
_SEARCH = """
result = countperf.tune(space, measurements=2, device={label!r}, force=True)
print(len(result.tried), len(result.failed))
"""


@pytest.fixture
def _helper(tmp_path: Path) -> None:
    (tmp_path / "helper_beside_the_script.py").write_text("FACTOR = 2\n")


@pytest.mark.device
@pytest.mark.usefixtures("_helper")
@pytest.mark.parametrize("way", ["script", "input"])
def test_spaces_of_the_main_module_are_ranked_and_searched(
    way: str, tmp_path: Path, device: Any
) -> None:
    code = _SCRIPT + (_SEARCH.format(label=device.label) if way == "script" else "")
    (tmp_path / "script.py").write_text(code)
    program, text = ("script.py", None) if way == "script" else ("-", code)
    done = _run_python(program, cwd=tmp_path, input=text)
    assert done.stdout.split() == ["run", "3", "0", *(["2", "0"] if way == "script" else [])]


@pytest.mark.extra("docs")
@pytest.mark.usefixtures("_helper")
def test_spaces_of_notebooks_are_ranked(tmp_path: Path) -> None:
    import nbclient
    import nbformat

    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(_SCRIPT)]
    nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    said = "".join(output["text"] for output in notebook.cells[0].outputs if "text" in output)
    assert said.split("\n") == ["run", "3 0", ""]
