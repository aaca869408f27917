"""Shells complete commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from countperf.cli import COMMANDS, main


@pytest.mark.extra("completion")
def test_the_script_for_bash_knows_all_commands_and_is_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", "bash"])

    script = capsys.readouterr().out
    assert ended.value.code == 0
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    # what bash itself offers after "countperf re"
    offered = subprocess.run(
        ["bash", "-c", f"{script}\nCOMP_WORDS=(countperf re) COMP_CWORD=1\n"
         "_shtab_countperf; printf '%s\\n' \"${COMPREPLY[@]}\""],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert offered.stdout.split() == [name for name in COMMANDS if name.startswith("re")]


@pytest.mark.extra("completion")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["predict", "ker"], {"kernel.py"}),
        (["predict", "kernel.py:axpy", "--weights", "pocl-epyc-z"],
         {"pocl-epyc-zen3", "pocl-epyc-zen4", "pocl-epyc-zen5"}),
        (["report", "intel-x"], {"intel-xeon-model167"}),
        (["report", "ke"], {"kernel.py"}),
        (["rank", "matmul", "--wei"], {"--weights"}),
    ],
)  # fmt: skip
def test_files_fits_and_options_are_completed(
    words: list[str], expected: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--print-completion", "bash"])
    (tmp_path / "kernel.py").touch()
    offered = subprocess.run(
        ["bash", "-c", f"{capsys.readouterr().out}\nCOMP_WORDS=(countperf {' '.join(words)})"
         f" COMP_CWORD={len(words)}\n_shtab_countperf; printf '%s\\n' \"${{COMPREPLY[@]}}\""],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert set(offered.stdout.split()) == expected


@pytest.mark.extra("completion")
def test_unknown_shells_and_a_missing_library_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        main(["--print-completion", "cmd"])
    assert "no completion for cmd; shells are bash" in capsys.readouterr().err

    monkeypatch.delitem(sys.modules, "countperf.cli.completion")
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit):
        main(["--print-completion", "bash"])
    assert "pip install 'countperf[completion]'" in capsys.readouterr().err
