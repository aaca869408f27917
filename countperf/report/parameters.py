"""Pictures of which parameters of a search matter: importance, and parallel coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.report.drawing import BLUE, RED, new_figure, plain_ticks, scale_of
from countperf.tuning.importance import parameter_importance
from countperf.tuning.result import TuningResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LINES = 300  # configurations that are drawn, the fastest of all


def parameters_figure(result: TuningResult) -> Figure:
    """Draw how much each parameter matters, and the variants that ran as lines over parameters."""
    ran = [each.choice for each in result.tried]
    times = [each.time_s for each in result.tried]
    shares = parameter_importance(ran, times)
    figure = new_figure((10, 4.2))
    bars, lines = figure.subplots(1, 2, width_ratios=(1, 2))
    bars.barh(range(len(shares)), [100 * share for share in shares.values()], color=BLUE)
    bars.set_yticks(range(len(shares)), list(shares))
    bars.invert_yaxis()
    bars.set(xlabel="variance of log time explained, %", xlim=(0, 100))
    _draw_lines(figure, lines, result, list(shares))
    figure.suptitle(f"{result.space} on {result.device}: {len(ran)} variants", fontsize=10)
    return figure


def _draw_lines(figure: Figure, panel: Axes, result: TuningResult, names: list[str]) -> None:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm

    slowest_first = sorted(result.tried, key=lambda each: -each.time_s)[-_MOST_LINES:]
    scale, unit = scale_of([each.time_s for each in slowest_first])
    times = np.array([each.time_s for each in slowest_first]) / scale
    norm = LogNorm(times.min(), times.max() if times.max() > times.min() else 1.01 * times.min())
    colors = colormaps["viridis_r"]
    places = {name: _places([each.choice[name] for each in slowest_first]) for name in names}
    for number, time in enumerate(times):
        heights = [places[name][1][number] for name in names]
        is_winner = number == len(times) - 1
        panel.plot(
            range(len(names)),
            heights,
            color=RED if is_winner else colors(norm(time)),
            linewidth=2.2 if is_winner else 0.8,
            alpha=1.0 if is_winner else 0.6,
            label="fastest" if is_winner else None,
            gid="fastest" if is_winner else None,
        )
    for column, name in enumerate(names):
        for value, height in places[name][0].items():
            panel.annotate(
                str(value), (column, height), xytext=(4, 0), textcoords="offset points", fontsize=9
            )
    panel.set_xticks(range(len(names)), names)
    panel.set(yticks=[], ylabel="value of the parameter, ordered", xlim=(-0.2, len(names) - 0.5))
    panel.legend(loc="upper right", fontsize=9)
    bar = figure.colorbar(ScalarMappable(norm, colors), ax=panel, label=f"measured time, {unit}s")
    plain_ticks(bar.ax.yaxis)


def _places(values: list[Any]) -> tuple[dict[Any, float], list[float]]:
    """Return the height of each distinct value, in order where they are numbers, and of all."""
    distinct = list(dict.fromkeys(values))
    if all(isinstance(value, int | float) for value in distinct):
        distinct.sort()
    heights = {value: place / max(1, len(distinct) - 1) for place, value in enumerate(distinct)}
    return heights, [heights[value] for value in values]
