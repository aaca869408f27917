"""Pictures of accuracy: predicted against measured times, fits, and models beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from countperf.errors import ParameterError
from countperf.fitting.comparison import Comparison, ModelResult
from countperf.fitting.result import FitResult
from countperf.metrics import Evaluation
from countperf.models.library import short_name
from countperf.report.drawing import (
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    new_figure,
    plain_both,
    plain_ticks,
    share_labels,
)
from countperf.report.numbers import PURPOSES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_ACROSS = 4  # panels
_PURPOSE_MARKS = {"variant": (".", GRAY), "application": ("^", ORANGE), "test": ("o", BLUE)}
_REASON = 70  # letters of a reason in a figure
_REASON_LINE = 40
_COMPARISON_COLUMNS = 4
_LEVEL_MARKS = {"published": ("o", BLUE), "scaled": ("^", ORANGE), "fitted": ("s", GREEN)}
_NEAR = 1.6  # a factor between predicted and measured times


def evaluation_figure(evaluation: Evaluation) -> Figure:
    """Draw predicted over measured times against measured ones; see `evaluations_figure`."""
    return evaluations_figure([evaluation])


def evaluations_figure(evaluations: Sequence[Evaluation]) -> Figure:
    """Draw predicted over measured times against measured ones: a panel for each evaluation.

    Kernels are marked by their purpose. Lines stand at a factor of 1 and of 1.6 up and down.
    """
    shown = [each for each in evaluations if any(case.predicted_s > 0 for case in each.cases)]
    if not shown:
        raise ParameterError("nothing is predicted: nothing to draw", parameter="figure")
    across = min(_ACROSS, len(shown))
    down = -(-len(shown) // across)
    size = (7.0, 4.5) if len(shown) == 1 else (3.2 * across + 1, 2.6 * down + 0.8)
    figure = new_figure(size)
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    drawn: dict[str, Any] = {}
    for panel, evaluation in zip(panels.flat, shown, strict=False):
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
        _factor_lines(panel)
        panel.set_title(f"{evaluation.device}, {short_name(evaluation.model)}", fontsize=9)
    for panel in list(panels.flat)[len(shown) :]:
        panel.set_visible(False)
    share_labels(figure, "measured time, ms", "predicted / measured time")
    figure.legend(handles=list(drawn.values()), fontsize=9, loc="outside upper center", ncols=3)
    return figure


def fit_figure(fit: FitResult) -> Figure:
    """Draw the cases of a fit, each predicted without its family, over measured times."""
    held_out = {c.name: c.predicted_s for c in fit.held_out if c.predicted_s and c.predicted_s > 0}
    what = "left-out families" if held_out else "the fit's own cases"
    points = [
        (1e3 * time_s, predicted / time_s)
        for case, time_s, own in zip(
            fit.observations, fit.design.times_s, fit.predicted_s, strict=True
        )
        if (predicted := held_out.get(case.name) if held_out else float(own)) and predicted > 0
    ]
    if not points:
        raise ParameterError("no case is predicted: nothing to draw", parameter="fit")
    figure = new_figure((7, 4.5))
    panel = figure.subplots()
    panel.plot(*zip(*points, strict=True), "o", color=BLUE, markersize=3, label=what, gid="cases")
    _factor_lines(panel)
    panel.set(xlabel="measured time, ms", ylabel="predicted / measured time")
    panel.legend(fontsize=9)
    name = f"{short_name(fit.weights.model)} model of {fit.weights.device.slug}"
    panel.set_title(f"{name}, {len(points)} cases", fontsize=10)
    return figure


def _factor_lines(panel: Axes) -> None:
    for factor, style in ((1.0, "-"), (_NEAR, ":"), (1 / _NEAR, ":")):
        panel.axhline(factor, color="black", linewidth=0.6, linestyle=style)
    panel.set(xscale="log", yscale="log")
    plain_both(panel)


def comparisons_figure(comparisons: Sequence[Comparison]) -> Figure:
    """Draw the overall errors: a panel for each device, a row for each model, a mark per level.

    All panels have the same axis. Where a model predicts nothing, its row says why.
    """
    shown = [c for c in comparisons if any(m.cases for m in c.models)]
    if not shown:
        raise ParameterError("no model predicts anything: nothing to draw", parameter="figure")
    models = list(dict.fromkeys(m.model for c in shown for m in c.models))
    columns = min(len(shown), _COMPARISON_COLUMNS)
    rows = -(-len(shown) // columns)
    figure = new_figure((4.5 * columns + 2, 1.2 + (0.3 + 0.3 * len(models)) * rows))
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for unused in panels[len(shown) :]:
        unused.set_axis_off()
    drawn: dict[str, Any] = {}
    for panel, comparison in zip(panels[: len(shown)], shown, strict=True):
        for level, (marker, color) in _LEVEL_MARKS.items():
            points = [
                (100 * overall.value, models.index(m.model))
                for m in comparison.models
                if m.level == level and (overall := m.overall()) is not None
            ]
            if points:
                errors, places = zip(*points, strict=True)
                (line,) = panel.plot(
                    errors, places, marker, color=color, label=level, linestyle="none", gid=level
                )
                drawn.setdefault(level, line)
        panel.set_xscale("log")
        for row, name in enumerate(models):
            reason = _missing_reason([m for m in comparison.models if m.model == name])
            if reason:
                panel.text(
                    0.02,
                    row,
                    fill(reason, _REASON_LINE),
                    transform=panel.get_yaxis_transform(),
                    fontsize=9,
                    va="center",
                    color=GRAY,
                    in_layout=False,
                )
        panel.set_title(comparison.device, fontsize=10)
        panel.grid(visible=True, axis="x", alpha=0.3)
    plain_ticks(panels[0].xaxis)
    panels[0].set_yticks(range(len(models)), models)
    panels[0].set_ylim(len(models) - 0.5, -0.5)
    figure.supxlabel("error: geometric mean of relative errors over test kernels, %", fontsize=10)
    figure.legend(
        handles=list(drawn.values()), title="constants", loc="outside right upper", fontsize=9
    )
    return figure


def _missing_reason(results: Sequence[ModelResult]) -> str:
    """Say why a model has no mark on a device; empty if it has one."""
    if any(result.overall() is not None for result in results):
        return ""
    reasons = [each.lacking for each in results if each.lacking]
    reasons += [reason for each in results for reason in each.refusals.values()]
    text = " ".join((reasons or ["not asked"])[0].split())
    return text if len(text) <= _REASON else f"{text[: _REASON - 3]}..."
