"""Tests of the examples: each runs and finds a variant."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("scipy", (), r"blocks of \d+ x \d+ x \d+: \d+\.\d+ s predicted"),
        ("optuna", ("10",), r"\d+\.\d+ ms predicted: items_i=\d+,"),
        (
            "strategies",
            ("8",),
            r"^random_sample: \d+\.\d+ ms: \w+=.*\ngreedy_local_search: \d+\.\d+ ms: \w+=.*\n$",
        ),
    ],
)
def test_an_example_finds_something(name: str, arguments: tuple[str, ...], said: str) -> None:
    if name == "optuna" and find_spec("optuna") is None:
        pytest.skip("needs the extra 'tuners'")
    command = [sys.executable, str(EXAMPLES / f"search_with_{name}.py"), *arguments]

    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=EXAMPLES.parent)

    assert done.returncode == 0, done.stderr
    assert re.search(said, done.stdout)
