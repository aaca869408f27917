"""Long work says how far it is and how long it will take; an interruption says what is kept."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from countperf import cli
from countperf.cli.commands import COMMANDS
from countperf.cli.progress import Progress
from countperf.measurements import measurements_in
from countperf.metrics import Evaluation
from countperf.steps import listening, stepped
from countperf.terminal import shown
from countperf.workflow.fitting import evaluate

FITS = Path(__file__).resolve().parents[2] / "fits" / "pocl-epyc-zen5"


def _shown(times: list[float], total: int | None) -> None:
    clock = iter(times)
    now = [0.0]
    progress = Progress(now=lambda: now[0])
    for done, now[0] in enumerate(clock):
        progress.step("counting kernels", done, total)


def test_work_of_less_than_ten_seconds_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    _shown([0.0, 3.0, 6.0, 9.0], total=3)

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("times", "total", "lines"),
    [
        # six seconds a step: a line where ten have passed since the last one
        (
            [0.0, 6.0, 12.0, 18.0, 24.0],
            20,
            [
                "counting kernels: 2 of 20, about 1 min 48 s left",
                "counting kernels: 4 of 20, about 1 min 36 s left",
            ],
        ),
        ([0.0, 6.0, 12.0], None, ["counting kernels: 2"]),
    ],
)
def test_long_work_has_lines_with_an_estimate_where_its_length_is_known(
    times: list[float], total: int | None, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    _shown(times, total)

    assert capsys.readouterr().err.splitlines() == lines


def test_what_controls_a_terminal_is_shown_as_an_escape(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with shown():
        sys.stdout.write("a line\x1b[2J of the program\n")
    assert capsys.readouterr().out == "a line\\x1b[2J of the program\n"


def test_steps_within_steps_go_to_nobody() -> None:
    told: list[tuple[str, int, int | None]] = []
    with listening(lambda *step: told.append(step)):
        for _ in stepped([1, 2], "outer"):
            list(stepped("abc", "inner"))
        list(stepped(iter("ab"), "after"))

    assert told == [
        *(("outer", done, 2) for done in range(3)),
        *(("after", done, None) for done in range(3)),
    ]
    assert list(stepped([3], "unheard")) == [3]


def test_work_that_fails_leaves_nobody_listening() -> None:
    told: list[tuple[str, int, int | None]] = []

    def fail() -> None:
        with listening(lambda *step: told.append(step)):
            for _ in stepped([1, 2], "failing"):
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    list(stepped([1], "later"))
    assert [work for work, _, _ in told] == ["failing"]


def test_evaluating_tells_each_case() -> None:
    told: list[tuple[str, int, int | None]] = []
    with listening(lambda *step: told.append(step)):
        found = evaluate(
            measurements_in(FITS), weights="pocl-epyc-zen5", model="linear", purposes=["test"]
        )

    assert isinstance(found, Evaluation)
    done, total = [step[1:] for step in told if step[0] == "predicting cases"][-1]
    assert done == total
    assert done >= len(found.cases)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fit", "m.jsonl"], "interrupted; nothing is kept: the same command begins anew"),
        (
            ["measure", "--store", "m.jsonl"],
            "interrupted; what is finished is kept: the same command goes on from here",
        ),
        (["time", "n-body", "n=256"], "interrupted; nothing is kept: the same command begins anew"),
        (["compiled", "copy", "n=1"], "interrupted; nothing is kept: the same command begins anew"),
        (
            ["compiled", "--store", "m.jsonl"],
            "interrupted; what is finished is kept: the same command goes on from here",
        ),
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

    module = COMMANDS[arguments[0]].module or arguments[0]
    monkeypatch.setattr(f"countperf.cli.{module}.run_{arguments[0]}", interrupted)

    assert cli.main(arguments) == 1
    assert capsys.readouterr().err == f"countperf: {said}\n"
