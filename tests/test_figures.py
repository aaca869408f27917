"""Pictures: what is in them, plain ticks, one legend, and refusals."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import countperf
from countperf.cli import main
from countperf.errors import MissingExtraError, ParameterError
from countperf.figures import check_figure_path, draw, evaluations_figure, roofline_figure, svg_text
from countperf.measuring import measurements_in
from countperf.models.metrics import Evaluation
from countperf.models.predictions import Prediction
from tests.models.test_explanation import DEVICE, VECTOR, make_summed
from tests.shipped import FITS

pytest.importorskip("matplotlib", reason="figures need the extra 'plot'")


def _shipped(name: str = "evaluation.json") -> Evaluation:
    return Evaluation.read_file(FITS / "pocl-epyc-zen5" / name)


def _prediction(**more: Any) -> Prediction:
    return make_summed().predict(VECTOR, **more)


def _figures() -> dict[str, Any]:
    explained = countperf.explain(VECTOR, n=1000, weights=make_summed())
    several = _prediction(n=np.array([100, 1000, 10000]))
    return {
        "prediction": draw(_prediction(n=1000)),
        "times": draw(several),
        "explanation": draw(explained),
        "roofline": roofline_figure(explained, DEVICE),
        "evaluation": draw(_shipped()),
    }


def test_figures_have_named_axes_plain_ticks_and_one_legend() -> None:
    for name, figure in _figures().items():
        figure.canvas.draw()
        panels = [panel for panel in figure.axes if panel.get_visible()]
        legends = [*figure.legends, *filter(None, (panel.get_legend() for panel in figure.axes))]
        ticks = [
            label.get_text()
            for panel in panels
            for label in (*panel.get_xticklabels(), *panel.get_yticklabels())
        ]
        assert len(legends) <= 1, name
        assert not any(re.search(r"\$|\^|e[-+]\d", tick) for tick in ticks), (name, ticks)
        assert all(panel.get_xlabel() or figure.get_supxlabel() for panel in panels), name
        assert any([*(panel.get_title() for panel in panels), figure.get_suptitle()]), name


def test_bars_sum_to_the_time() -> None:
    panel = draw(_prediction(n=1000)).axes[0]
    bars: list[Any] = list(panel.patches)
    # 2.5 µs, drawn in µs
    assert sum(bar.get_width() for bar in bars) == pytest.approx(2.5, rel=5e-3)
    assert panel.get_xlabel() == "time, µs"


def test_the_point_of_a_roofline_is_the_kernels_rate_at_its_intensity() -> None:
    # 1000 additions and 8000 bytes in 2.5 µs
    (panel,) = roofline_figure(
        countperf.explain(VECTOR, n=1000, weights=make_summed()), DEVICE
    ).axes
    points = {line.get_gid(): np.asarray(line.get_xydata())[0] for line in panel.lines}
    assert points["kernel"] == pytest.approx([1000 / 8000, 1000 / 2.5e-6 / 1e9])
    x, y = points["memory-ceiling"]
    assert y == pytest.approx(20 * x)  # 20 Gbyte/s


def test_each_case_of_an_evaluation_has_a_mark(tmp_path: Path) -> None:
    drawn = _shipped("compiled-evaluation.json")
    draw(drawn, tmp_path / "errors.svg")
    text = (tmp_path / "errors.svg").read_text(encoding="utf-8")
    for purpose in ("variant", "application", "test"):
        marks = sum(
            part.split("</g>\n")[0].count("<use ") for part in text.split(f'<g id="{purpose}">')[1:]
        )
        assert marks >= sum(case.purpose == purpose for case in drawn.cases)
    assert svg_text(evaluations_figure([drawn])).startswith("<svg")


def test_a_missing_plotting_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MissingExtraError, match=r"countperf\[plot\]") as caught:
        draw(_shipped())
    assert caught.value.extra == "plot"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: evaluations_figure([]), "nothing to draw"),
        (lambda: draw(_shipped(), "errors.txt"), "cannot be written"),
        (lambda: draw({}), "no picture of a dict; pictures are of Prediction"),
        (lambda: check_figure_path("errors"), "a file without an ending"),
    ],
)
def test_nothing_and_unknown_formats_are_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        call()


def test_the_command_draws_and_refuses_before_it_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slug = "pocl-epyc-zen5"
    command = ["evaluate", "--weights", slug, "--model", "linear", "--purpose", "test"]
    figure = tmp_path / "errors.png"
    assert main([*command, str(measurements_in(FITS / slug)), "--figure", str(figure)]) == 0
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert main([*command, str(tmp_path / "none.jsonl"), "--figure", "errors.unknown"]) == 1
    assert "cannot be written as 'unknown'" in capsys.readouterr().err
