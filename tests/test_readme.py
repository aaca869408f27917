from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from countperf.devices.discovery import find_device
from countperf.errors import DeviceError

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

NOT_RUN: Mapping[str, str] = {
    "scripts/run": "makes an environment; .ci/run runs it, with the profile trial",
    "scripts/test": "runs this test; .ci/run runs it",
    "countperf calibrate": "takes minutes; tests/api/test_calibration.py calibrates a device",
}
"""Beginnings of commands that are not run here, and why."""

SHORTER: Mapping[str, str] = {
    "--points 200": "--points 10",
    "tune matmul n=1024 m=1024 l=1024 --budget 30": "tune matmul n=128 m=128 l=128 --budget 8",
    "n=65536:4194304:4:log": "n=16384:262144:2:log",
    "--profile broad": "--profile trial",
}
"""Options of the README that take less here."""


def _commands(text: str) -> list[str]:
    """List the commands of a shell block; one whose quotes stay open goes on in the next line."""
    commands: list[str] = []
    for line in text.splitlines():
        if commands and commands[-1].count('"') % 2:
            commands[-1] += f"\n{line}"
        elif line.strip():
            commands.append(line)
    return commands


_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.M)
BLOCKS: list[tuple[str, str]] = _BLOCK.findall(README)


def _reason(command: str) -> str | None:
    return next((why for start, why in NOT_RUN.items() if command.startswith(start)), None)


def _environment(folder: Path) -> dict[str, str]:
    """Return what a reader has who installed the package; campaigns are short."""
    programs = folder / "bin"
    programs.mkdir()
    command = programs / "countperf"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m countperf "$@"\n')
    command.chmod(0o755)
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "XDG_DATA_HOME": str(folder / "data"),
        "COUNTPERF_PROFILE": "trial",
    }


def _programs(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Give all that the README has to run, in its order: the text, and how to run it."""
    for language, text in BLOCKS:
        if language == "python":
            named = re.match(r"# (\w+\.py)\n", text)  # as the reader is to save it
            name = named[1] if named else "block.py"
            (folder / name).write_text(text, encoding="utf-8")
            yield text, [sys.executable, name]
            continue
        for command in _commands(text):
            shorter = command
            for option, less in SHORTER.items():
                shorter = shorter.replace(option, less)
            yield command, ["sh", "-c", shorter]


def test_every_block_of_code_is_run_or_left_out_for_a_reason() -> None:
    assert {language for language, _ in BLOCKS} == {"python", "sh"}
    outside = _BLOCK.sub("", README)
    assert "```" not in outside
    assert not re.findall(r"^    (?:countperf|scripts/|import|pip) ?.*$", outside, flags=re.M)
    commands = [c for language, text in BLOCKS if language == "sh" for c in _commands(text)]
    assert all(any(option in command for command in commands) for option in SHORTER)
    assert all(any(command.startswith(start) for command in commands) for start in NOT_RUN)
    assert sum(_reason(command) is None for command in commands) >= len(commands) - len(NOT_RUN)
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for start in (start for start in NOT_RUN if start.startswith("scripts/")):
        assert re.search(rf"^step as_reader (COUNTPERF_PROFILE=trial )?{start}\b", ci, flags=re.M)


@pytest.mark.long
@pytest.mark.device
def test_the_blocks_run_one_after_the_other_as_a_reader_runs_them(tmp_path: Path) -> None:
    try:
        find_device()
    except DeviceError as error:
        pytest.skip(str(error))
    environment = _environment(tmp_path)
    printed: dict[str, str] = {}
    for text, command in _programs(tmp_path):
        if _reason(text) is not None:
            continue
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        printed[text] = done.stdout

    def of(start: str) -> str:
        (out,) = [out for text, out in printed.items() if start in text]
        return out

    first, second = of("countperf.count_kernel(axpy)").splitlines()
    assert first == "[n] -> { 2 * n }"
    assert float(second.split()[0]) > 0
    times = re.findall(r"^ +(?:16384|262144) ", of("countperf time"), flags=re.M)
    assert len(times) == 2
    assert re.search(r"^mine/first ", of("countperf weights"), flags=re.M)
    assert "numbers checked" in of("countperf tune")


PAGES = ["README.md", "docs/evidence/accuracy.md", "fits/README.md", "fits/variants.md"]


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_those_of_what_is_committed(page: str) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "update_readme"))
    assert list(script["TABLES"]) == PAGES
    text = (ROOT / page).read_text(encoding="utf-8")
    assert script["updated"](text, script["TABLES"][page]) == text


def test_documents_stay_short_and_their_history_in_one_section() -> None:
    docs = ROOT / "docs"
    pages = [ROOT / "README.md", *(p for p in docs.rglob("*.md") if "_build" not in p.parts)]
    words = {
        page: sum(
            len(line.split())
            for line in page.read_text(encoding="utf-8").splitlines()
            if not line.startswith("|")  # tables of figures
        )
        for page in pages
    }
    assert sum(words.values()) <= 12_500
    assert sum(n for page, n in words.items() if page.is_relative_to(docs / "evidence")) <= 3_000
