"""Long work says how far it is and how long it will take; an interruption says what is kept."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from countperf.api.evaluation import evaluate
from countperf.cli.commands import COMMANDS
from countperf.cli.common import Progress, say
from countperf.measuring import measurements_in
from countperf.models.metrics import Evaluation
from countperf.steps import listening, step_through
from tests.cli.conftest import Run
from tests.shipped import FITS

SLUG = "pocl-epyc-zen5"


@pytest.mark.parametrize(
    ("times", "total", "lines"),
    [
        ([0.0, 0.5, 1.0, 1.5], 3, []),  # work of less than two seconds is not shown
        # six seconds a step: a line where ten have passed since the last one
        (
            [0.0, 6.0, 12.0, 18.0, 24.0],
            20,
            ["1 of 20, about 1 min 54 s left", "3 of 20, about 1 min 42 s left"],
        ),
        ([0.0, 1.0, 12.0], None, ["2"]),
    ],
)
def test_long_work_has_lines_with_an_estimate_where_its_length_is_known(
    times: list[float], total: int | None, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(times)
    now = [0.0]
    progress = Progress(now=lambda: now[0])
    for done, now[0] in enumerate(clock):
        progress.step("counting kernels", done, total)
    assert capsys.readouterr().err.splitlines() == [f"counting kernels: {line}" for line in lines]


def test_what_controls_a_terminal_is_shown_as_an_escape(capsys: pytest.CaptureFixture[str]) -> None:
    say("a line\x1b[2J of the program")
    assert capsys.readouterr().err == "a line\\x1b[2J of the program\n"


def test_steps_within_steps_go_to_nobody() -> None:
    told: list[tuple[str, int, int | None]] = []
    with listening(lambda *step: told.append(step)):
        for _ in step_through([1, 2], "outer"):
            list(step_through("abc", "inner"))
        list(step_through(iter("ab"), "after"))
    assert told == [
        *(("outer", done, 2) for done in range(3)),
        *(("after", done, None) for done in range(3)),
    ]
    assert list(step_through([3], "unheard")) == [3]


def test_work_that_fails_leaves_nobody_listening() -> None:
    told: list[tuple[str, int, int | None]] = []

    def fail() -> None:
        with listening(lambda *step: told.append(step)):
            for _ in step_through([1, 2], "failing"):
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    list(step_through([1], "later"))
    assert [work for work, _, _ in told] == ["failing"]


def test_evaluating_tells_each_case() -> None:
    told: list[tuple[str, int, int | None]] = []
    with listening(lambda *step: told.append(step)):
        evaluation = evaluate(
            measurements_in(FITS / SLUG), weights=SLUG, model="linear", purposes=["test"]
        )
    assert isinstance(evaluation, Evaluation)
    done, total = [step[1:] for step in told if step[0] == "predicting cases"][-1]
    assert done == total
    assert done >= len(evaluation.cases)


_ANEW = "interrupted; nothing is kept: the same command begins anew"
_ON = "interrupted; what is finished is kept: the same command goes on from here"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("fit m.jsonl", _ANEW),
        ("time n-body n=256", _ANEW),
        ("compiled copy n=1", _ANEW),
        ("measure --store m.jsonl", _ON),
        ("compiled --store m.jsonl", _ON),
    ],
)
def test_an_interrupted_command_says_what_it_keeps(
    command: str, said: str, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    def interrupted(_: argparse.Namespace) -> None:
        raise KeyboardInterrupt

    name = command.split()[0]
    module = COMMANDS[name].module or name
    monkeypatch.setattr(f"countperf.cli.{module}.run_{name}", interrupted)
    assert run(command, status=130).err == f"countperf: {said}\n"


_PRESSED = """
import os, signal, sys
event, part = sys.argv.pop(1), sys.argv.pop(1)
sys.argv[0] = "countperf"
import countperf
seen = 0

def press(happened, arguments):
    global seen
    seen += event.isdigit() or (happened == event and part in str(arguments))
    if seen == (int(event) if event.isdigit() else 1):
        seen += 1
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(press)
from countperf.__main__ import run
run()
"""
_PREDICT = "predict short-launches/axpy/512x1/f32 n=65536 --model structural --weights"
_RANK = "rank matmul --points 2 --weights pocl-epyc-zen4"


@pytest.mark.parametrize(
    ("event", "part", "command", "said"),
    [
        ("import", "argparse", "weights", "interrupted; nothing has begun"),
        ("import", "pydantic", "weights", "interrupted; nothing has begun"),
        ("open", "weights.json", f"{_PREDICT} pocl-epyc-zen4", _ANEW),
        ("import", "loopy.schedule", f"{_PREDICT} pocl-epyc-zen4", "interrupted; "),
        ("subprocess.Popen", "", _RANK, _ANEW),
        *(
            pytest.param(str(number), "", command, "interrupted", marks=pytest.mark.nightly)
            for number in range(1, 12001, 211)
            for command in ("weights", f"{_PREDICT} pocl-epyc-zen4", _RANK)
        ),
    ],
)
def test_ctrl_c_ends_a_command_with_a_line_at_any_moment(
    event: str, part: str, command: str, said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PRESSED, event, part, *command.split()],
        capture_output=True,
        text=True,
        check=False,
    )
    if event.isdigit() and done.returncode == 0:
        return  # it was done before
    assert done.returncode == 130, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"countperf: {said}")
