"""Long work says how far it is and how long it will take; an interruption says what is kept."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from countperf import cli
from countperf.cli.progress import Progress
from countperf.measurements import measurements_in
from countperf.metrics import Evaluation
from countperf.steps import Step, listening, stepped
from countperf.terminal import shown
from countperf.workflow.evaluating import evaluate

FITS = Path(__file__).resolve().parents[2] / "fits" / "pocl-epyc-zen5"


class Clock:
    def __init__(self, times: Iterator[float]) -> None:
        self._times = times

    def __call__(self) -> float:
        return next(self._times)


def _shown(times: list[float], total: int | None) -> Progress:
    progress = Progress(now=Clock(iter([0.0, *times])))
    for done in range(len(times)):
        progress.step(Step(work="counting kernels", done=done, total=total))
    return progress


def test_work_of_less_than_two_seconds_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    _shown([0.0, 0.4, 0.8, 1.2], total=3)

    assert capsys.readouterr().err == ""


def test_elsewhere_than_on_a_terminal_long_work_has_plain_lines_with_an_estimate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # ten seconds a step: lines at once, and 20 s after the last one
    _shown([0.0, 10.0, 20.0, 30.0, 40.0], total=20)

    assert capsys.readouterr().err.splitlines() == [
        "counting kernels: 1 of 20, about 3 min 10 s left",
        "counting kernels: 3 of 20, about 2 min 50 s left",
    ]


def test_work_of_unknown_length_has_lines_without_an_estimate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _shown([0.0, 1.0, 3.0], total=None)

    assert capsys.readouterr().err == "counting kernels: 2\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _lines(text: str) -> list[str]:
    """Show what a terminal of endless width has in the end, line by line."""
    return [line.rpartition("\x1b[2K")[2] for line in text.split("\n")]


def test_a_terminal_has_a_bar_on_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "100")
    with shown():
        _shown([0.0, 10.0, 20.0], total=20)
        bar = "counting kernels |##                      | 2 of 20, about 3 min 00 s left"
        assert _lines(terminal.getvalue()) == [bar]
        sys.stdout.write("a line\x1b[2J of the program\n")
        assert _lines(terminal.getvalue()) == [r"a line\x1b[2J of the program", ""]
        _shown([0.0, 10.0, 20.0], total=20)
    assert _lines(terminal.getvalue()) == [r"a line\x1b[2J of the program", ""]


def test_work_in_silence_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress(now=Clock(iter([0.0, 1.0, 8.0, 9.0, 28.0])))
    progress.step(Step(work="fitting", done=0, total=None))
    for silence_s in (7.0, 1.0, 20.0):
        monkeypatch.setattr("countperf.cli.progress.silence_s", lambda silent=silence_s: silent)
        progress.wait()
    said = capsys.readouterr().err.splitlines()
    assert said == ["fitting: 7 s so far", "fitting: 27 s so far"]


def test_steps_within_steps_go_to_nobody() -> None:
    told: list[Step] = []
    with listening(told.append):
        for _ in stepped([1, 2], "outer"):
            list(stepped("abc", "inner"))
        list(stepped(iter("ab"), "after"))

    assert [(step.work, step.done, step.total) for step in told] == [
        *(("outer", done, 2) for done in range(3)),
        *(("after", done, None) for done in range(3)),
    ]
    assert list(stepped([3], "unheard")) == [3]


def test_work_that_fails_leaves_nobody_listening() -> None:
    told: list[Step] = []

    def fail() -> None:
        with listening(told.append):
            for _ in stepped([1, 2], "failing"):
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    list(stepped([1], "later"))
    assert [step.work for step in told] == ["failing"]


def test_evaluating_tells_each_case() -> None:
    told: list[Step] = []
    with listening(told.append):
        found = evaluate(
            measurements_in(FITS), weights="pocl-epyc-zen5", model="linear", purposes=["test"]
        )

    assert isinstance(found, Evaluation)
    last = [step for step in told if step.work == "predicting cases"][-1]
    assert last.done == last.total
    assert last.done >= len(found.cases)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fit", "m.jsonl"], "interrupted; nothing is kept: the same command begins anew"),
        (
            ["measure", "--store", "m.jsonl"],
            "interrupted; what is finished is kept: the same command goes on from here",
        ),
        (["compiled", "copy", "n=1"], "interrupted; nothing is kept: the same command begins anew"),
        (
            ["compiled", "--store", "m.jsonl"],
            "interrupted; m.jsonl keeps what was last written: the same command goes on from there",
        ),
        (["weights"], "interrupted; there was nothing to keep"),
    ],
)
def test_an_interrupted_command_says_what_it_keeps(
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(_: argparse.Namespace) -> None:
        raise KeyboardInterrupt

    module = __import__(f"countperf.cli.{arguments[0]}", fromlist=["run"])
    monkeypatch.setattr(module, "run", interrupted)

    assert cli.main(arguments) == 1
    assert capsys.readouterr().err == f"countperf: {said}\n"
