"""What messages advise, followed literally by the route on which they came."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import countperf
from countperf.cli import main
from countperf.cli.commands import COMMANDS
from countperf.cli.common import _OPTIONS  # pyright: ignore[reportPrivateUsage]
from countperf.cli.options import OPTIONS
from countperf.models.library import load_weights
from tests.test_tables import MY_KERNELS

_TABLE = "kernel,items,n,seconds,GFLOPS\n" + "\n".join(
    f"scale,{items},{n},{4e-6 + 2e-9 * (n // items)},1.5"
    for items in (32, 64)
    for n in (2**k for k in range(10, 15))
)
_MODEL = """format = "countperf-model"
version = 3
name = "mine"
ignored = ["flop.*", "iop.*", "gmem.*"]
[terms]
launch = ["launches", "groups"]
"""
_FIT = "fit {file} --kernels my.py --output out.json --model mine.toml"
_RANK = "rank transpose n=64 m=64 --weights pocl-epyc-zen5 "
_VOLKOV = "predict matmul-tiled/square/16x16 n=64 m=64 l=64 --model volkov --on nvidia-k620"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "my.py").write_text(MY_KERNELS)
    (tmp_path / "mine.toml").write_text(_MODEL)
    (tmp_path / "extra.csv").write_text(_TABLE)
    (tmp_path / "app.txt").write_text("h2d 4e6\nd2h 4e6\n")
    (tmp_path / "timing.json").write_text('{"format": "countperf-timing", "version": 1}')
    return tmp_path


@pytest.mark.parametrize(
    ("command", "said", "followed"),
    [
        (
            _FIT.format(file="extra.csv") + " --device nvidia-titan-x",
            "'GFLOPS' is no size of any of the kernels; drop it, or name it in --ignore",
            _FIT.format(file="extra.csv") + " --device nvidia-titan-x --ignore GFLOPS",
        ),
        (
            "application app.txt --on nvidia-h100",
            "take a device that has one: nvidia-gtx-1070, nvidia-gtx-970",
            "application app.txt --on nvidia-gtx-1070",
        ),
        (
            _VOLKOV,
            "the nvcc of CUDA 12 finds them, where it is installed; state them (--registers N)",
            _VOLKOV + " --registers 16",
        ),
        (
            _RANK + "--model compiled",
            "take weights of such a model, --model structural",
            _RANK + "--model structural --points 2 --workers 1 --incomplete",
        ),
        pytest.param(
            "report timing.json --output page.html",
            "countperf report KERNEL SIZES makes one of the kernel",
            "report my.py:scale n=1024 --weights pocl-epyc-zen5 --output page.html",
            marks=pytest.mark.extra("report"),
        ),
    ],
)
@pytest.mark.usefixtures("folder")
def test_advice_of_the_command_line_works(
    command: str, said: str, followed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(shlex.split(command))
    shown = capsys.readouterr()
    assert said in " ".join((shown.out + shown.err).split())
    assert main(shlex.split(followed)) == 0
    assert "state them" not in capsys.readouterr().out


def test_messages_list_the_models_that_a_fit_has() -> None:
    with pytest.raises(countperf.CountperfError, match="there are: compiled, linear, structural"):
        load_weights("pocl-epyc-zen5", model="compiled-items")
    assert load_weights("pocl-epyc-zen5", model="compiled").model == "compiled"


def test_devices_that_are_named_alike_differ_in_what_is_said() -> None:
    one = load_weights("pocl-epyc-zen5").device
    other = one.model_copy(update={"compute_units": one.compute_units + 1})
    text = f"compute_units ({one.compute_units}, {one.compute_units + 1})"
    assert one.differences_text(other) == text


def test_every_parameter_that_messages_name_has_its_option() -> None:
    assert {*_OPTIONS.values()} <= {*OPTIONS}
    taken = [name for command in COMMANDS.values() for name in command.arguments]
    assert {*taken} == {*OPTIONS}
    flags = {"--help", "--json", "--debug", "--version"}
    assert len(flags | {name for name in OPTIONS if name.startswith("--")}) <= 60


_FOREIGN = re.compile(
    r"countperf [a-z]+|docker|nvcc|ncu|nvprof|pip|--family|--element-type"
    r"|--(disassemble|gpu-architecture|no-show|std|version)"
)
_NO_COMMAND = {"document", "finds", "reads", "does", "needs", "wrote"}
"""Words of sentences after the package's name."""


def _texts() -> Iterator[tuple[Path, str]]:
    """Give all texts of the package that are no docstrings, with X for what is put in."""
    root = Path(countperf.__file__).parent
    for path in root.rglob("*.py"):
        tree = ast.parse(path.read_text())
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
            values = [part.value if isinstance(part, ast.Constant) else "X" for part in parts]
            if isinstance(node, ast.JoinedStr | ast.Constant) and isinstance(values[0], str):
                yield path.relative_to(root), "".join(map(str, values))


def test_commands_that_messages_name_exist_and_take_their_options() -> None:
    seen = 0
    for path, text in _texts():
        for name, rest in re.findall(r"countperf ([a-z]+)\b((?: (?!countperf)[^\s;:,']+)*)", text):
            if name not in _NO_COMMAND:
                seen += 1
                assert name in COMMANDS, (path, text)
                assert {*re.findall(r"--[a-z-]+", rest)} <= {*COMMANDS[name].arguments}, (
                    path,
                    text,
                )
        if path.parts[0] not in ("cli", "report") and re.search(r"(?<![\w-])--[a-z]{3,}", text):
            assert " " not in text or _FOREIGN.search(text), (path, text)
    assert seen > 20
