"""Advice of messages is followed literally; see `tests.advice` for the tables of rows."""

from __future__ import annotations

import argparse
import ast
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import countperf
from countperf.cli.commands import COMMANDS, configure
from countperf.cli.options import OPTIONS
from tests.advice import NOT_FOLLOWED, Row, follow, read_rows
from tests.advice.builders import names, write_files

ROWS = read_rows()


def _mark(name: str, *of: str) -> Any:
    if name == "needs":
        return pytest.mark.skipif(not all(map(shutil.which, of)), reason=f"no {', '.join(of)}")
    return getattr(pytest.mark, name)(*of)


def _marked(row: Row) -> Any:
    marks = [_mark(*text.split()) for text in row.marks]
    return pytest.param(row, id=f"{row.table}: {row.said[0][:50]}", marks=marks)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", [_marked(row) for row in ROWS])
def test_advice_works(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    known = names()
    known |= {"setenv": monkeypatch.setenv, "patch": monkeypatch.setattr}
    write_files()
    for line in row.prepared:
        exec(line, known)
    _, text = follow(row.refused, known)
    for said in row.said:
        assert said in text
    for line in row.advised:
        works, text = follow(line, known)
        assert works, text
        assert not any(said in text for said in row.said), text


# --- no advice is left out

_UNKNOWN = "…"
_PUT_IN = re.compile(r"…|\{\}")
_VERBS = """
add allocate allow annotate anchor apply ask assign avoid begin bind bring build call calibrate
cast choose close compare compile compute convert count declare delete divide do draw drop end
enumerate export fetch fit fix follow force free give have import inline install keep leave let
limit make map mark measure merge move multiply name narrow open order pass point predict prefer
put raise read reduce refit register reinstall remove rename repeat replace restart restore rewrite
round run see select set split start state stop tag take tell time try unset update upgrade use
wait widen write
"""
_CLAUSE = re.compile(
    rf"(?:^|[;:,.] (?:or |and |then )*|\()((?:{'|'.join(_VERBS.split())})(?: |=)[^;]*?)"
    r"(?=$|;|, or |: | \((?!\))|\. )",
    re.IGNORECASE,
)
_NO_MESSAGES = {"cli/options.py", "cli/commands.py", "devices/workers.py"}


@cache
def _texts() -> list[tuple[str, str]]:
    """Return all texts of the package that are no docstrings, with … for what is put in."""
    texts: list[tuple[str, str]] = []
    root = Path(countperf.__file__).parent
    for path in root.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        outer = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        ]
        inner = {id(part) for node in outer for part in ast.walk(node)}
        inner -= {id(node) for node in outer}
        for node in ast.walk(tree):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            if id(node) in inner or isinstance(node, ast.Expr):
                continue
            values = [part.value if isinstance(part, ast.Constant) else _UNKNOWN for part in parts]
            if isinstance(node, ast.JoinedStr | ast.Constant) and isinstance(values[0], str):
                texts.append((str(path.relative_to(root)), "".join(map(str, values))))
    return texts


def clauses() -> dict[str, str]:
    """Return what messages advise, each with a file that says it."""
    return {
        match[1].removesuffix(")") if match[1].count(")") > match[1].count("(") else match[1]: path
        for path, text in _texts()
        if path not in _NO_MESSAGES and " " in text
        for match in _CLAUSE.finditer(" ".join(text.split()))
    }


def test_all_advice_is_followed() -> None:
    said = "\n".join(text for row in ROWS for text in row.said)
    left = {text for texts in NOT_FOLLOWED.values() for text in texts}
    advised = clauses()
    assert left <= advised.keys()
    missing = {
        text: path
        for text, path in advised.items()
        if text not in left
        and not re.search(".*".join(re.escape(part.strip()) for part in _PUT_IN.split(text)), said)
    }
    assert missing == {}


# --- what messages name exists

_FOREIGN = re.compile(
    r"countperf [a-z]+|docker|nvcc|ncu|nvprof|pip|--family"
    r"|--(disassemble|gpu-architecture|no-show|std|version)"
)
_NO_COMMAND = {"document", "finds", "reads", "does", "needs", "wrote"}
"""Words of sentences after the package's name."""


def test_every_parameter_that_messages_name_has_its_option() -> None:
    sources = [path.read_text() for path in Path(countperf.__file__).parent.rglob("*.py")]
    named = {name for text in sources for name in re.findall(r"\boption\(['\"](\w+)", text)}
    known: set[str] = set()
    for command in COMMANDS.values():
        parser = argparse.ArgumentParser()
        configure(parser, command)
        known |= parser.get_default("flags").keys()
    assert len(named) > 10
    assert named <= known
    taken = [name for command in COMMANDS.values() for name in command.arguments.split()]
    assert {*taken} == {*OPTIONS}
    flags = {"--help", "--json", "--debug", "--version"}
    assert len(flags | {name for name in OPTIONS if name.startswith("--")}) <= 60


def test_commands_that_messages_name_exist_and_take_their_options() -> None:
    seen = 0
    for path, text in _texts():
        for name, rest in re.findall(r"countperf ([a-z]+)\b((?: (?!countperf)[^\s;:,']+)*)", text):
            if name not in _NO_COMMAND:
                seen += 1
                assert name in COMMANDS, (path, text)
                taken = {*COMMANDS[name].arguments.split()}
                assert {*re.findall(r"--[a-z-]+", rest)} <= taken, (path, text)
        is_of_python = not path.startswith("cli/")
        if is_of_python and re.search(r"(?<![\w-])--[a-z]{3,}", text):
            assert " " not in text or _FOREIGN.search(text), (path, text)
    assert seen > 20
