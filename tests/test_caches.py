"""Caches that cannot be used stop nothing; Ctrl-C waits for the end of a step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from countperf.caches import CACHE_HOME, OBJECTS, POCL, unwritable_caches
from countperf.steps import defer_interrupts, end_if_interrupted

_COUNTS_AND_GENERATES = """
import warnings
told = warnings.catch_warnings(record=True).__enter__()
warnings.simplefilter("always")
import countperf, loopy as lp
unit = lp.make_kernel("{[i]: 0 <= i < n}", "a[i] = 2*i", lang_version=(2018, 2))
unit = lp.add_dtypes(unit, {"a": "float32"})
print(sum(countperf.count_kernel(unit).evaluate(n=9).values()) > 9)
print(len(lp.generate_code_v2(unit).device_code()) > 50)
own = [str(w.message) for w in told if w.category.__name__ == "CacheWarning"]
print(len(own), *own)
"""


def _a_file(home: Path) -> None:
    home.write_text("")


def _damaged(home: Path) -> None:
    _run(home)
    files = [path for path in home.rglob("*.sqlite*") if path.is_file()]
    assert {path.parent.name for path in files} == {"pytools"}
    for path in files:
        path.write_bytes(b"nonsense" * 4096)


def _run(home: Path) -> list[str]:
    command = [sys.executable, "-c", _COUNTS_AND_GENERATES]
    environment = os.environ | {CACHE_HOME: str(home)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_a_file, ["code that Loopy generated", f"set {CACHE_HOME} to"]),
        (_damaged, ["not kept in", "is damaged: delete it"]),
    ],
)
def test_counting_and_generating_work_and_tell(
    spoil: Callable[[Path], None], said: list[str], tmp_path: Path
) -> None:
    home = tmp_path / "caches"
    spoil(home)
    counted, generated, told = _run(home)
    assert (counted, generated) == ("True", "True")
    assert all(words in told for words in said)
    assert str(home) in told


def test_each_cache_is_told_with_the_variable_that_names_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE_HOME, str(tmp_path))
    for variable in (OBJECTS, POCL):
        monkeypatch.delenv(variable, raising=False)
    assert unwritable_caches() == ()
    monkeypatch.setenv(OBJECTS, str(tmp_path / "file"))
    (said,) = unwritable_caches()
    assert said.startswith(f"object files of kernels: not kept in {tmp_path / 'file'} (")
    assert f"set {OBJECTS} to" in said
    monkeypatch.setenv(CACHE_HOME, str(tmp_path / "file"))
    _, *rest = unwritable_caches()
    assert [line.partition(":")[0] for line in rest] == [
        "code that Loopy generated",
        "kernels that PoCL compiled",
    ]
    assert all(f"set {CACHE_HOME} to" in line for line in rest)


def _press() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("steps", "taken"),
    [
        ([_press, end_if_interrupted], 1),  # after the step
        ([_press], 1),  # at the end of the block
        ([_press, _press], 1),  # at once
        ([end_if_interrupted, _press, end_if_interrupted], 2),
    ],
)
def test_an_interrupt_waits_for_the_end_of_a_step(
    steps: Sequence[Callable[[], None]], taken: int
) -> None:
    done: list[str] = []

    def work() -> None:
        with defer_interrupts():
            for step in steps:
                step()
                done.append("step")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert len(done) == taken
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    end_if_interrupted()  # nothing is left


def test_other_threads_change_nothing() -> None:
    seen: list[object] = []

    def work() -> None:
        with defer_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work)
    assert seen == [signal.default_int_handler]
