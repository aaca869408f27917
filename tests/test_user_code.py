from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import loopy as lp
import pytest

from countperf.api.kernels import load_kernel
from countperf.api.searching import load_space
from countperf.cli import main
from countperf.errors import KernelSpecificationError, SearchSpaceError

MAKE = """
import loopy as lp
import numpy as np

def make(name):
    return lp.make_kernel(
        "{ [i] : 0 <= i < n }", "z[i] = 2*x[i]",
        [lp.GlobalArg("x,z", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        name=name, assumptions="n >= 1", lang_version=(2018, 2))
"""


def _folder(path: Path, *, name: str) -> Path:
    """Write a kernel file that imports what lies beside it, at once and when it is called."""
    path.mkdir()
    (path / "beside.py").write_text(MAKE + f"NAME = {name!r}\n")
    package = path / "inner"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "late.py").write_text(f"NAME = {'late_' + name!r}\n")
    file = path / "kernels.py"
    file.write_text(
        "from dataclasses import dataclass\n"
        "from beside import NAME, make\n"
        "@dataclass\nclass Shape:\n    n: 'int'\n"
        "unit = make(NAME)\n"
        "def built():\n    return make(NAME)\n"
        "def late():\n    from inner.late import NAME\n    return make(NAME)\n"
        "number = 3\n"
    )
    return file


def _name(specification: str) -> str:
    unit = load_kernel(specification)
    assert isinstance(unit, lp.TranslationUnit)
    return unit.default_entrypoint.name


def test_kernels_are_objects_or_functions_of_files_with_imports_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _folder(tmp_path / "first", name="one")
    second = _folder(tmp_path / "second", name="two")
    path = list(sys.path)
    assert _name(f"{first}:unit") == _name(f"{first}:built") == "one"
    assert _name(f"{first}:late") == "late_one"
    assert _name(f"{second}:unit") == "two"  # not the first folder's beside.py
    assert _name(f"{second}:late") == "late_two"
    assert sys.path == path
    assert not {"beside", "inner", "inner.late"} & set(sys.modules)
    monkeypatch.chdir(first.parent)
    assert _name("kernels:unit") == "one"


FOREIGN = ("statistics", "random", "json", "numpy", "scipy", "pydantic", "loopy")
"""Modules of the standard library and of packages, which commands import early or late."""

SPACE = (
    MAKE
    + """
import countperf

def space():
    return countperf.SearchSpace(
        name="mine", parameters={"group": [16, 32]}, sizes={"n": 4096},
        build=lambda group: lp.split_iname(
            make("z"), "i", group, outer_tag="g.0", inner_tag="l.0"))

unit = make("unit")
"""
)


@pytest.mark.long
@pytest.mark.parametrize(
    "command", ["count my:unit n=64", "rank my.py:space --weights pocl-epyc-zen5 --incomplete"]
)
def test_files_beside_a_kernel_take_the_place_of_no_module(tmp_path: Path, command: str) -> None:
    trace = tmp_path / "trace"
    for name in FOREIGN:
        (tmp_path / f"{name}.py").write_text(f"open({str(trace)!r}, 'a').write({name!r})\n")
    (tmp_path / "my.py").write_text(SPACE)
    words = [sys.executable, "-m", "countperf", *command.split()]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, trace.exists()) == (0, False), done.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (":number", "no function of the name 'number' (there: Shape, unit, built, late)"),
        (":nothing", "(there: Shape, unit, built, late)"),
        ("", "kernels.py:axpy"),
    ],
)
def test_what_is_no_kernel_is_told_with_what_there_is(tmp_path: Path, name: str, said: str) -> None:
    file = _folder(tmp_path / "first", name="one")
    with pytest.raises(KernelSpecificationError, match=re.escape(said)):
        load_kernel(f"{file}{name}")


NOISY = (
    MAKE
    + """
import os
import subprocess
import sys

print("printed while it is imported")
os.write(1, b"written to the descriptor\\n")
subprocess.run([sys.executable, "-c", "print('printed by a process')"], check=True)

def noisy():
    print("printed while it is built")
    return make("noisy")

unit = make("unit")
"""
)


def test_what_kernel_files_print_goes_to_standard_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "noisy.py"
    file.write_text(NOISY)
    assert main(["count", f"{file}:noisy", "n=64", "--json"]) == 0
    printed = capfd.readouterr()
    assert json.loads(printed.out)["kernel"] == "noisy"
    for text in ("imported", "built", "descriptor", "by a process"):
        assert text in printed.err


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("sys.exit(0)", "SystemExit(0)"),
        ("sys.exit()", "SystemExit()"),
        ("sys.exit('no luck')", "SystemExit('no luck')"),
        ("raise RecursionError('deep')", "RecursionError: deep"),
        ("raise BaseException('rare')", "BaseException: rare"),
        ("raise OSError('gone')", "OSError: gone"),
    ],
)
@pytest.mark.parametrize("template", ["import sys\n{}\n", "import sys\ndef kernel():\n    {}\n"])
def test_files_that_exit_or_fail_are_errors_that_name_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], statement: str, said: str, template: str
) -> None:
    file = tmp_path / "ends.py"
    file.write_text(template.format(statement))
    for command in (["count"], ["predict", "--weights", "pocl-epyc-zen5"]):
        assert main([*command, f"{file}:kernel", "n=64", "--json"]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        (line,) = printed.err.splitlines()
        assert str(file) in line
        assert said in line
        if "exit" not in statement:
            number = 1 + template.split("{}")[0].count("\n")
            assert f"({file}, line {number})" in line
    with pytest.raises(SearchSpaceError, match=re.escape(said)):
        load_space(f"{file}:kernel")


def test_an_interrupt_is_no_error_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ends.py"
    file.write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_kernel(f"{file}:kernel")
