from __future__ import annotations

from pathlib import Path

import pytest

from countperf.cli import main
from countperf.errors import ParameterError
from countperf.metrics import Evaluation
from countperf.report.evaluation_figure import draw_evaluations

pytest.importorskip("matplotlib", reason="figures need the extra 'plot'")
FITS = Path(__file__).resolve().parents[2] / "fits"


def _shipped(slug: str, name: str = "evaluation.json") -> Evaluation:
    return Evaluation.read_file(FITS / slug / name)


def test_each_evaluation_has_a_panel_and_each_case_a_mark(tmp_path: Path) -> None:
    drawn = [_shipped("pocl-epyc-zen5"), _shipped("pocl-epyc-zen5", "compiled-evaluation.json")]
    figure = tmp_path / "errors.svg"
    draw_evaluations(drawn, figure)

    text = figure.read_text(encoding="utf-8")
    for purpose in ("variant", "application", "test"):
        marks = sum(
            part.split("</g>\n")[0].count("<use ") for part in text.split(f'<g id="{purpose}">')[1:]
        )
        assert marks >= sum(case.purpose == purpose for each in drawn for case in each.cases)
    assert text.count('<g id="axes_') == 2


def test_nothing_and_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="nothing to draw"):
        draw_evaluations([], tmp_path / "errors.svg")
    with pytest.raises(ParameterError, match="cannot be written"):
        draw_evaluations([_shipped("pocl-epyc-zen5")], tmp_path / "errors.txt")


def test_the_command_draws_and_refuses_before_it_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slug = "pocl-epyc-zen5"
    command = ["evaluate", "--weights", slug, "--model", "linear", "--purpose", "test"]
    figure = tmp_path / "errors.png"
    assert main([*command, str(FITS / slug / "measurements.jsonl"), "--figure", str(figure)]) == 0
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert main([*command, str(tmp_path / "none.jsonl"), "--figure", "errors.unknown"]) == 1
    assert "cannot be written as 'unknown'" in capsys.readouterr().err
