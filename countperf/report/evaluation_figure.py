"""How far predictions are off, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from countperf.errors import ParameterError
from countperf.report.accuracy import PURPOSES
from countperf.report.comparison import check_figure_path, new_figure, save_figure

if TYPE_CHECKING:
    from countperf.metrics import Evaluation

# shapes too, for who cannot tell the colors apart (Okabe & Ito 2008)
_MARKS = {
    "variant": (".", "#999999"),
    "application": ("^", "#e69f00"),
    "test": ("o", "#0072b2"),
}
_ACROSS = 4


def draw_evaluations(evaluations: Sequence[Evaluation], path: Path | str) -> None:
    """Draw predicted over measured times against measured ones: a panel for each evaluation.

    Kernels are marked by what they are for; lines stand at a factor of 1 and of 1.6 up and down.

    Parameters
    ----------
    evaluations : sequence of Evaluation
        At least one, with at least one case that has a prediction above zero.
    path : Path or str
        As for `countperf.report.comparison.comparison_figure`, as are the errors.
    """
    check_figure_path(path)
    shown = [each for each in evaluations if any(case.predicted_s > 0 for case in each.cases)]
    if not shown:
        raise ParameterError("nothing is predicted: nothing to draw", parameter="figure")
    across = min(_ACROSS, len(shown))
    figure = new_figure()
    down = -(-len(shown) // across)
    figure.set_size_inches(3 * across + 1, 2.6 * down + 0.6)
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for panel, evaluation in zip(panels.flat, shown, strict=False):
        for purpose, (marker, color) in _MARKS.items():
            cases = [
                case
                for case in evaluation.cases
                if case.purpose == purpose and case.predicted_s > 0
            ]
            panel.plot(
                [1e3 * case.measured_s for case in cases],
                [case.predicted_s / case.measured_s for case in cases],
                marker,
                color=color,
                markersize=3,
                label=PURPOSES[purpose],
                gid=purpose,
            )
        for factor, style in ((1.0, "-"), (1.6, ":"), (1 / 1.6, ":")):
            panel.axhline(factor, color="black", linewidth=0.6, linestyle=style)
        panel.set(xscale="log", yscale="log")
        panel.set_title(f"{evaluation.device}, {evaluation.model.split('-')[0]}", fontsize=8)
    for panel in list(panels.flat)[len(shown) :]:
        panel.set_visible(False)
    figure.supxlabel("measured, ms")
    figure.supylabel("predicted / measured")
    panels[0][0].legend(fontsize=6)
    save_figure(figure, path)
