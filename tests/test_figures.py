"""Pictures: what is in them, plain ticks, one legend, and refusals."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import countperf
from countperf.cli import main
from countperf.devices.parameters import load_device
from countperf.errors import MissingExtraError, ParameterError
from countperf.figures import (
    check_figure_path,
    draw,
    evaluation_figure,
    list_roofs,
    roofline_figure,
    svg_text,
)
from countperf.measuring import measurements_in
from countperf.models.metrics import Evaluation
from countperf.models.predictions import Prediction
from countperf.text import format_quantity
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
    points = {
        line.get_gid(): np.asarray(line.get_xydata())[0] for line in panel.lines if line.get_gid()
    }
    assert points["kernel-L1"] == pytest.approx([1000 / 8000, 1000 / 2.5e-6 / 1e9])
    x, y = points["memory-ceiling"]
    assert y == pytest.approx(20 * x)  # 20 Gbyte/s


_H100 = load_device("nvidia-h100").with_values(l1_bandwidth_byte_per_s=3e13)
_OPTIONS = {"registers_per_work_item": 32}


def _answer(device: Any, kernel: str = "vector-scale-add/stride1/256x1", **sizes: int) -> Any:
    sizes = sizes or {"n": 1 << 24}
    models = ["roofline", "volkov"]
    return countperf.predict_all(kernel, device, sizes, models=models, profile_options=_OPTIONS)


def _read_legend(panel: Any) -> str:
    return " ".join(panel.get_legend().get_title().get_text().split())


def _lines_of(panel: Any) -> dict[str, list[Any]]:
    lines: dict[str, list[Any]] = {}
    for line in panel.lines:
        lines.setdefault(line.get_gid(), []).append(np.asarray(line.get_xydata()))
    return lines


def test_roofs_have_the_rates_of_their_devices_side_by_side() -> None:
    a100, fury = load_device("nvidia-a100"), load_device("amd-r9-fury")
    sizes = dict.fromkeys("nml", 256)
    product = _answer(a100, "matmul-tiled/square/16x16", **sizes)
    figure = draw([_answer(_H100), _answer(a100), product, _answer(fury)])
    assert [panel.get_title() for panel in figure.axes] == ["nvidia-h100", "nvidia-a100", fury.slug]
    expected = {
        "nvidia-h100": {"memory": 3.352e12, "L2": 9.8e12, "L1": 3e13, "compute": 6.69e13},
        "nvidia-a100": {"memory": 0.844 * 1.555e12, "L2": 5.4e12, "compute": 1.95e13},
        "amd-r9-fury": {"memory": 5.12e11, "compute": 7.168e12},
    }
    for panel in figure.axes:
        rates = expected[panel.get_title()]
        lines, peak = _lines_of(panel), rates["compute"]
        assert {gid for gid in lines if "ceiling" in str(gid)} == {f"{n}-ceiling" for n in rates}
        for roof, rate in rates.items():
            ((_, low), (end, top)) = lines[f"{roof}-ceiling"][0]
            if roof == "compute":
                assert low == top == pytest.approx(peak / 1e9)
            else:
                assert (end, top) == pytest.approx((peak / rate, peak / 1e9))
            named = f"{'arithmetic' if roof == 'compute' else roof}: {format_quantity(rate, '')}"
            assert any(text.get_text().startswith(named) for text in panel.texts)
    # three operations and 12 bytes an element; 2 * 256 operations and 12 bytes
    points = [line[0] for line in _lines_of(figure.axes[1])["roofline-memory"]]
    assert [x for x, _ in points] == pytest.approx([3 / 12, 2 * 256 / 12])
    assert points[0][1] == pytest.approx(0.25 * expected["nvidia-a100"]["memory"] / 1e9, rel=1e-3)
    assert points[1][1] == pytest.approx(2 * 256**3 / product["roofline"].time_s / 1e9)
    assert len(_lines_of(figure.axes[0])["volkov-L1"]) == 1
    lacking = [_read_legend(panel) for panel in figure.axes]
    assert lacking[0] == ""
    assert lacking[1] == "no roof of L1: nvidia-a100 states no l1_bandwidth_byte_per_s"
    assert lacking[2].startswith("no roof of L1, L2: amd-r9-fury states no")


def test_texts_of_a_roofline_lie_beside_each_other() -> None:
    figure = draw([_answer(_H100), _answer("nvidia-a100"), _answer("nvidia-b300")])
    figure.canvas.draw()
    renderer: Any = figure.canvas
    for panel in figure.axes:
        drawn: list[Any] = [*panel.texts, panel.get_legend(), panel.xaxis]
        boxes = [each.get_window_extent(renderer.get_renderer()) for each in drawn]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


@pytest.mark.parametrize("slug", ["pocl-epyc-zen3", "intel-xeon-model167"])
def test_a_roofline_without_bandwidth_says_how_to_get_it(slug: str) -> None:
    answers = _answer(slug)
    assert not answers.predictions
    (panel,) = draw(answers).axes
    shown = _read_legend(panel)
    roofs, said = list_roofs(answers.described)
    assert (list(roofs), shown) == (["arithmetic"], said)
    command = (
        f"countperf characterize --store runs/{slug}.json --output runs/{slug}-parameters.json"
    )
    assert command in said


def test_each_case_of_an_evaluation_has_a_mark(tmp_path: Path) -> None:
    drawn = _shipped("compiled-evaluation.json")
    draw(drawn, tmp_path / "errors.svg")
    text = (tmp_path / "errors.svg").read_text(encoding="utf-8")
    for purpose in ("variant", "application", "test"):
        marks = sum(
            part.split("</g>\n")[0].count("<use ") for part in text.split(f'<g id="{purpose}">')[1:]
        )
        assert marks >= sum(case.purpose == purpose for case in drawn.cases)
    kernels = {case.kernel for case in drawn.cases if case.purpose != "variant"}
    assert all(f"<!-- {kernel} -->" in text for kernel in kernels)
    assert svg_text(evaluation_figure(drawn)).startswith("<svg")


def test_a_missing_plotting_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MissingExtraError, match=r"countperf\[plot\]") as caught:
        draw(_shipped())
    assert caught.value.extra == "plot"


@pytest.mark.parametrize(
    ("call", "said"),
    [
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
