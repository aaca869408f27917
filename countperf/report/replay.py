"""Replayed searches as text, rows and picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.report.drawing import BLUE, GRAY, GREEN, RED, new_figure, plain_ticks, scale_of
from countperf.report.numbers import format_quantity, point_text
from countperf.tuning.recorded_space import ReplayResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def replay_head(result: ReplayResult) -> list[str]:
    """Return what was searched, and how the best compares with the optimum."""
    failed = sum(each.time_s is None for each in result.trials)
    best = result.best
    choice = point_text(best.configuration)
    spent_s = result.trials[-1].spent_s
    cost = "" if np.isnan(spent_s) else f" in {format_quantity(spent_s, 's')} of recorded costs"
    return [
        f"{result.space} on {result.device}, replayed: {len(result.trials)} of"
        f" {result.configurations} configurations looked at{cost}, {failed} of which failed",
        f"best: {format_quantity(best.time_s or 0.0, 's')}, {result.over_optimum:.3g} times the"
        f" optimum of {format_quantity(result.optimum_s, 's')}",
        choice,
    ]


def replay_rows(result: ReplayResult) -> list[dict[str, Any]]:
    """Return one row for each configuration that was looked at, in order; times in s."""
    return [
        {
            **each.configuration,
            "time_s": each.time_s,
            "best_s": best_s,
            "spent_s": each.spent_s,
        }
        for each, best_s in zip(result.trials, result.best_so_far_s, strict=True)
    ]


def replay_figure(result: ReplayResult) -> Figure:
    """Draw the recorded times in the order of the search, the best so far, and the optimum."""
    figure = new_figure((7.0, 4.2))
    panel = figure.subplots()
    times = np.array([each.time_s or np.nan for each in result.trials])
    best = np.array(result.best_so_far_s)
    scale, unit = scale_of([float(np.nanmax(times))])
    places = np.arange(1, len(times) + 1)
    panel.plot(places, times / scale, "o", color=BLUE, markersize=4, label="measured")
    failed = places[np.isnan(times)]
    if failed.size:
        top = np.full(failed.size, np.nanmax(times) / scale)
        panel.plot(failed, top, "x", color=GRAY, label="failed (no time)")
    best = np.where(np.isfinite(best), best, np.nan) / scale
    panel.step(places, best, where="post", color=GREEN, label="best so far")
    panel.axhline(result.optimum_s / scale, color=RED, linewidth=0.8, label="optimum of the record")
    panel.set(yscale="log", xlabel="configurations looked at", ylabel=f"recorded time, {unit}s")
    plain_ticks(panel.yaxis)
    figure.legend(loc="outside lower center", ncols=4, fontsize=9)
    figure.suptitle(f"{result.space} on {result.device}", fontsize=10)
    return figure
