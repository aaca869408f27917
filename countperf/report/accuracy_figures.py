"""Pictures of accuracy: predicted against measured times, fits, and models beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
)
from countperf.report.numbers import PURPOSES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_ACROSS = 4  # panels
_PURPOSE_MARKS = {"variant": (".", GRAY), "application": ("^", ORANGE), "test": ("o", BLUE)}
_REASON = 70  # letters of a reason in a figure
_REASON_LINE = 40
_COMPARISON_COLUMNS = 4
_LEVEL_MARKS = {"published": ("o", BLUE), "scaled": ("^", ORANGE), "fitted": ("s", GREEN)}
_NEAR = 1.6  # a factor between predicted and measured times


Points = Sequence[tuple[float, float]]


def evaluations_figure(evaluations: Sequence[Evaluation]) -> Figure:
    """Draw predicted over measured times against measured ones: a panel for each evaluation.

    Kernels are marked by their purpose. Lines stand at a factor of 1 and of 1.6 up and down.
    """
    shown = [each for each in evaluations if any(case.predicted_s > 0 for case in each.cases)]
    return _ratios_figure([(f"{e.device}, {short_name(e.model)}", _by_purpose(e)) for e in shown])


def _by_purpose(evaluation: Evaluation) -> dict[str, Points]:
    return {
        purpose: [
            (1e3 * case.measured_s, case.predicted_s / case.measured_s)
            for case in evaluation.cases
            if case.purpose == purpose and case.predicted_s > 0
        ]
        for purpose in _PURPOSE_MARKS
    }


def fit_figure(fit: FitResult) -> Figure:
    """Draw the cases of a fit, each predicted without its family, over measured times."""
    held_out = {c.name: c.predicted_s for c in fit.held_out if c.predicted_s and c.predicted_s > 0}
    points = [
        (1e3 * time_s, predicted / time_s)
        for case, time_s, own in zip(
            fit.observations, fit.design.times_s, fit.predicted_s, strict=True
        )
        if (predicted := held_out.get(case.name) if held_out else float(own)) and predicted > 0
    ]
    name = f"{short_name(fit.weights.model)} model of {fit.weights.device.slug}"
    kind = "left-out families" if held_out else "the fit's own cases"
    return _ratios_figure([(f"{name}, {len(points)} cases", {kind: points})] if points else [])


def _ratios_figure(panels_shown: Sequence[tuple[str, Mapping[str, Points]]]) -> Figure:
    """Draw ratios over times, ms: a panel for each title, points by their kind."""
    if not panels_shown:
        raise ParameterError("nothing is predicted: nothing to draw", parameter="figure")
    across = min(_ACROSS, len(panels_shown))
    down = -(-len(panels_shown) // across)
    size = (7.0, 4.5) if len(panels_shown) == 1 else (3.2 * across + 1, 2.6 * down + 0.8)
    figure = new_figure(size)
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    drawn: dict[str, Any] = {}
    for panel, (title, kinds) in zip(panels, panels_shown, strict=False):
        for kind, points in kinds.items():
            marker, color = _PURPOSE_MARKS.get(kind, ("o", BLUE))
            (line,) = panel.plot(
                [time for time, _ in points],
                [ratio for _, ratio in points],
                marker,
                color=color,
                markersize=3,
                label=PURPOSES.get(kind, kind),
                gid=kind,
            )
            if points:
                drawn.setdefault(kind, line)
        for factor, style in ((1.0, "-"), (_NEAR, ":"), (1 / _NEAR, ":")):
            panel.axhline(factor, color="black", linewidth=0.6, linestyle=style)
        panel.set(xscale="log", yscale="log")
        plain_both(panel)
        panel.set_title(title, fontsize=9)
    for panel in panels[len(panels_shown) :]:
        panel.set_visible(False)
    figure.supxlabel("measured time, ms", fontsize=10)
    figure.supylabel("predicted / measured time", fontsize=10)
    figure.legend(handles=list(drawn.values()), fontsize=9, loc="outside upper center", ncols=3)
    return figure


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
                said = panel.text(0.02, row, fill(reason, _REASON_LINE), fontsize=9, color=GRAY)
                said.set(transform=panel.get_yaxis_transform(), va="center", in_layout=False)
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
