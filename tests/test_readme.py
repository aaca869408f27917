from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from countperf.errors import DeviceError
from countperf.harness.devices import find_device

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

NOT_RUN: Mapping[str, str] = {
    "scripts/run": "makes an environment; .ci/run runs it, with the profile trial",
    "scripts/test": "runs this test; .ci/run runs it",
    "countperf calibrate": "takes minutes; tests/workflow/test_calibrating.py calibrates a device",
}
"""Beginnings of commands that are not run here, and why."""

SHORTER: Mapping[str, str] = {
    "--points 200": "--points 10",
    "--profile broad": "--profile trial",
}
"""Options of the README that take less here."""


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str

    @property
    def file_name(self) -> str | None:
        """Name of the file that the reader is to save the block as, if it has one."""
        found = re.match(r"# (\w+\.py)\n", self.text)
        return found[1] if found else None

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands of a shell block; one whose quotes stay open goes on in the next line."""
        found: list[str] = []
        for line in self.text.splitlines():
            if found and found[-1].count('"') % 2:
                found[-1] += f"\n{line}"
            elif line.strip():
                found.append(line)
        return tuple(found)


BLOCKS = tuple(
    Block(language, text)
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.DOTALL | re.M)
)


def _reason(command: str) -> str | None:
    return next((why for start, why in NOT_RUN.items() if command.startswith(start)), None)


def _environment(folder: Path) -> dict[str, str]:
    """Return what a reader has who installed the package: `countperf` is a command.

    The current folder is not on its path of modules (``-P``), as of an installed one. Campaigns are
    short, and neither counts nor own fits of the machine are used.
    """
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


def _shorter(command: str) -> str:
    for option, less in SHORTER.items():
        command = command.replace(option, less)
    return command


def _programs(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Give all that the README has to run, in its order: the text, and how to run it."""
    for block in BLOCKS:
        if block.language == "python":
            name = block.file_name or "block.py"
            (folder / name).write_text(block.text, encoding="utf-8")
            yield block.text, [sys.executable, name]
        else:
            yield from ((command, ["sh", "-c", _shorter(command)]) for command in block.commands)


def test_every_block_of_code_is_run_or_left_out_for_a_reason() -> None:
    assert {block.language for block in BLOCKS} == {"python", "sh"}
    outside = re.sub(r"^```(\w+)\n(.*?)^```$", "", README, flags=re.DOTALL | re.M)
    assert "```" not in outside
    assert not re.findall(r"^    (?:countperf|scripts/|import|pip) ?.*$", outside, flags=re.M)
    commands = [c for block in BLOCKS if block.language == "sh" for c in block.commands]
    assert all(any(option in command for command in commands) for option in SHORTER)
    for start in NOT_RUN:
        assert any(command.startswith(start) for command in commands), start
    assert sum(_reason(command) is None for command in commands) >= len(commands) - len(NOT_RUN)
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    scripts = [start for start in NOT_RUN if start.startswith("scripts/")]
    as_typed = r"^step as_reader (COUNTPERF_PROFILE=trial )?"
    assert all(re.search(rf"{as_typed}{start}\b", ci, flags=re.M) for start in scripts)
    named = [found[0] for why in NOT_RUN.values() if (found := re.search(r"tests/\S+\.py", why))]
    assert named
    assert all((ROOT / path).is_file() for path in named)


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
    (counts,) = [out for text, out in printed.items() if "countperf.count_kernel(axpy)" in text]
    first, second = counts.splitlines()
    assert first == "[n] -> { 2 * n }"
    assert float(second.split()[0]) > 0
    (timed,) = [out for text, out in printed.items() if text.startswith("countperf time")]
    assert len(re.findall(r"^ +(?:65536|262144|1048576|4194304) ", timed, flags=re.M)) == 4
    (listed,) = [out for text, out in printed.items() if text.startswith("countperf weights")]
    assert re.search(r"^mine/first ", listed, flags=re.M)
    (found,) = [out for text, out in printed.items() if text.startswith("countperf tune")]
    assert "numbers checked" in found


PAGES = ["docs/accuracy.md", "fits/README.md", "fits/variants.md", "fits/searches.md"]


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_those_of_what_is_committed(page: str) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "update_readme"))
    assert list(script["TABLES"]) == PAGES
    text = (ROOT / page).read_text(encoding="utf-8")
    assert script["updated"](text, script["TABLES"][page]) == text
