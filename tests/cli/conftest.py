"""Runs the command line as a user does, and says what it printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from countperf.cli import main

KERNELS = """
import loopy as lp
import numpy as np

ARGUMENTS = [lp.GlobalArg("x,z", np.float32, shape="n"), lp.ValueArg("n", np.int32)]

def made(instructions):
    return lp.make_kernel("{ [i] : 0 <= i < n }", instructions, ARGUMENTS, name="scale",
                          assumptions="n >= 1", lang_version=(2018, 2))

def scale():
    return lp.split_iname(made("z[i] = 2*x[i]"), "i", 64, outer_tag="g.0", inner_tag="l.0")

gated = made("z[i] = 2*x[i] {if=x[i] > 0}")
raw = made([lp.CInstruction("i", "z[i] = x[i] + 1;", id="raw", assignees=("z[i]",),
                            read_variables=frozenset(["x"]))])

def wrong():
    return 3

def broken():
    raise RuntimeError("no luck")
"""


@dataclass(frozen=True)
class Printed:
    """Output and error output of a command."""

    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Printed]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command line, which has to end with a status."""

    def run(command: str, *more: str, status: int = 0) -> Printed:
        try:
            ended: object = main([*command.split(), *more])
        except SystemExit as error:  # wrong usage
            ended = error.code
        printed = capsys.readouterr()
        assert ended == status, printed.err
        return Printed(printed.out, printed.err)

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path
