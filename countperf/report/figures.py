"""All pictures, drawn with matplotlib, of six kinds.

Predicted over measured times, times over a size, rooflines, curves, the progress of a search, and
where a time goes. Ticks are plain numbers (0.6), axes name their units,
and each figure has one legend. Colors and marks are told apart by color-blind readers, too (Okabe &
Ito, 2008).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.devices.parameters import available_devices, load_device
from countperf.errors import ParameterError
from countperf.measuring import TimingDocument
from countperf.mechanistic.predict_all import ModelAnswers
from countperf.mechanistic.sweep import Sweep
from countperf.models.library import short_name
from countperf.models.metrics import Evaluation
from countperf.models.predictions import Prediction
from countperf.models.validity import Explanation
from countperf.report.breakdown import breakdown_rows
from countperf.report.curves import (
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    RED,
    SKY,
    check_figure_path,
    model_roofline_figure,
    new_figure,
    plain_both,
    plain_ticks,
    prediction_title,
    roofline_figure,
    save_figure,
    scale_of,
    sweep_figure,
    times_figure,
    timing_figure,
)
from countperf.report.rows import PURPOSES
from countperf.tuning.result import Trial, TuningResult, fastest_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure_of(result: object, path: Path | str | None = None, **options: Any) -> Figure:
    """Draw a result, and write the picture if a path is given."""
    if path is not None:
        check_figure_path(path)
    for kind, draw in _DRAWERS.items():
        if isinstance(result, kind):
            figure = draw(result, **options)
            break
    else:
        named = ", ".join(kind.__name__ for kind in _DRAWERS)
        raise ParameterError(
            f"there is no picture of a {type(result).__name__}; pictures are of {named}",
            parameter="result",
        )
    if path is not None:
        save_figure(figure, path)
    return figure


def prediction_figure(prediction: Prediction) -> Figure:
    """Draw where a time goes; at several sizes, the times with their interval over the size."""
    if isinstance(prediction.time_s, np.ndarray):
        return times_figure(prediction)
    rows = breakdown_rows(prediction)
    if not rows:
        raise ParameterError("nothing takes time: nothing to draw", parameter="prediction")
    figure = new_figure((7.0, 1.8 + 0.36 * len(rows)))
    panel = figure.subplots()
    scale, unit = scale_of([row.time_s for row in rows])
    for position, row in enumerate(rows):
        panel.barh(position, row.time_s / scale, color=BLUE, gid=f"bar-{position}")
        panel.annotate(
            row.share,
            (max(0.0, row.time_s / scale), position),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    labels = [fill(f"{row.group}: {row.text}", 34) for row in rows]
    panel.set_yticks(range(len(rows)), labels, fontsize=9)
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.margins(x=0.12)
    panel.set_xlabel(f"time, {unit}s")
    plain_ticks(panel.xaxis)
    figure.suptitle(prediction_title(prediction), fontsize=10)
    return figure


def _explanation_figure(explanation: Explanation) -> Figure:
    """Draw the kernel below the ceilings of its device."""
    slug = explanation.prediction.device
    return roofline_figure(explanation, load_device(slug) if slug in available_devices() else None)


def tuning_figure(result: TuningResult) -> Figure:
    """Draw measured against predicted times, and the best over the search."""
    return variants_figure(result.tried, f"{result.space} on {result.device}", result.ranking_s)


def variants_figure(tried: Sequence[Trial], title: str, ranking_s: float | None = None) -> Figure:
    """Draw measured against predicted times of variants, and the best time over the search."""
    figure = new_figure((5.2, 7.5))
    compared, progress = figure.subplots(2, 1)
    times = [trial.time_s for trial in tried]
    scale, unit = scale_of(times)
    ends = [min(*times, *(trial.predicted_s for trial in tried)) / scale, max(times) / scale]
    drawn: list[Any] = []
    for label, some, color, marker, size in (
        ("ran", [trial for trial in tried if not trial.cut_short], BLUE, "o", 4),
        ("stopped early", [trial for trial in tried if trial.cut_short], GRAY, "o", 4),
        ("winner", [fastest_of(tried)], RED, "*", 14),
    ):
        if some:
            x, y = ([getattr(e, name) / scale for e in some] for name in ("predicted_s", "time_s"))
            look: dict[str, Any] = {"color": color, "markersize": size, "label": label}
            drawn += compared.plot(x, y, marker, gid=label.replace(" ", "-"), **look)
    drawn += compared.plot(ends, ends, color="black", linewidth=0.6, label="as predicted")
    compared.set(xscale="log", yscale="log")
    compared.set(xlabel=f"predicted time, {unit}s", ylabel=f"measured time, {unit}s")
    plain_both(compared)
    best = [time_s / scale for time_s in accumulate(times, min)]
    at = [trial.at_s for trial in tried]
    look = {"color": GREEN, "label": "best so far", "gid": "best-so-far"}
    drawn += progress.step(at, best, where="post", **look)
    if ranking_s:
        drawn.append(progress.axvspan(0, ranking_s, color=SKY, alpha=0.3, label="predicting"))
    progress.set(yscale="log", xlabel="time spent, s", ylabel=f"best time so far, {unit}s")
    plain_ticks(progress.yaxis)
    figure.legend(handles=drawn, loc="outside lower center", ncols=3, fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure


_PURPOSE_MARKS = {"variant": (".", GRAY), "application": ("^", ORANGE), "test": ("o", BLUE)}
_ACROSS = 4  # panels
_NEAR = 1.6  # a factor between predicted and measured times


def evaluations_figure(evaluations: Sequence[Evaluation]) -> Figure:
    """Draw predicted over measured times against measured ones: a panel for each evaluation.

    Kernels are marked by their purpose. Lines stand at a factor of 1 and of 1.6 up and down.
    """
    shown = [of for of in evaluations if any(case.predicted_s > 0 for case in of.cases)]
    if not shown:
        raise ParameterError("nothing is predicted: nothing to draw", parameter="figure")
    across = min(_ACROSS, len(shown))
    down = -(-len(shown) // across)
    figure = new_figure((7.0, 4.5) if down * across == 1 else (3.2 * across + 1, 2.6 * down + 0.8))
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    drawn: dict[str, Any] = {}
    for panel, evaluation in zip(panels, shown, strict=False):
        for purpose, (marker, color) in _PURPOSE_MARKS.items():
            cases = [c for c in evaluation.cases if c.purpose == purpose and c.predicted_s > 0]
            (line,) = panel.plot(
                [1e3 * case.measured_s for case in cases],
                [case.predicted_s / case.measured_s for case in cases],
                marker,
                color=color,
                markersize=3,
                label=PURPOSES[purpose],
                gid=purpose,
            )
            if cases:
                drawn.setdefault(purpose, line)
        for factor, style in ((1.0, "-"), (_NEAR, ":"), (1 / _NEAR, ":")):
            panel.axhline(factor, color="black", linewidth=0.6, linestyle=style)
        panel.set(xscale="log", yscale="log")
        plain_both(panel)
        panel.set_title(f"{evaluation.device}, {short_name(evaluation.model)}", fontsize=9)
    for panel in panels[len(shown) :]:
        panel.set_visible(False)
    figure.supxlabel("measured time, ms", fontsize=10)
    figure.supylabel("predicted / measured time", fontsize=10)
    figure.legend(handles=list(drawn.values()), fontsize=9, loc="outside upper center", ncols=3)
    return figure


_DRAWERS: Mapping[type, Callable[..., Figure]] = {
    Prediction: prediction_figure,
    Explanation: _explanation_figure,
    Evaluation: lambda evaluation: evaluations_figure([evaluation]),
    TuningResult: tuning_figure,
    ModelAnswers: model_roofline_figure,
    Sweep: sweep_figure,
    TimingDocument: timing_figure,
}
