"""Bar charts: two predictions side by side, ranked variants, and weights as rates."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.errors import ParameterError
from countperf.hardware.library import available_devices, load_device
from countperf.models.library import short_name
from countperf.report.against import cause_text, compared_parts, names_apart
from countperf.report.breakdown import MOST_ROWS
from countperf.report.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    RED,
    SKY,
    label_bars,
    new_figure,
    plain_ticks,
    scale_of,
)
from countperf.report.names import plain_name
from countperf.report.numbers import choice_text, point_text
from countperf.report.plausibility import rate_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from countperf.hardware.parameters import DeviceParameters
    from countperf.models.weights import WeightSet
    from countperf.report.against import PredictionPair
    from countperf.tuning.ranking import Ranking

_LINE = 34
"""Characters of a label."""
_NO_BREAK = "\N{NO-BREAK SPACE}"
_LETTER = 0.07
"""Width of a character of a label, inches."""
_MOST_VARIANTS = 20
_MOST_RATES = 10
_WIDTH = 7.0
_COLORS = {"flop/s": BLUE, "byte/s": ORANGE}
_AXES = {"flop/s": (1e9, "arithmetic, Gflop/s"), "byte/s": (1e9, "memory, Gbyte/s")}
_IMPLIED = "rate that a weight implies, with its standard error"
_PEAK = "peak that the device's document states"
_OTHERS = (1e6, "other, million per second")


def pair_figure(pair: PredictionPair) -> Figure:
    """Draw what takes the time in two predictions, side by side; the cause stands below."""
    names = names_apart(pair.first, pair.second)
    parts = compared_parts(pair.first, pair.second)
    rows = [*parts[:MOST_ROWS]]
    rest = parts[MOST_ROWS:]
    if rest:
        rows.append((f"{len(rest)} more", sum(r[1] for r in rest), sum(r[2] for r in rest)))
    scale, unit = scale_of([max(first, second) for _, first, second in rows])
    figure = new_figure((_WIDTH, 1.9 + 0.46 * len(rows)))
    panel = figure.subplots()
    places = np.arange(len(rows))
    for side, (name, color) in enumerate(zip(names, (BLUE, ORANGE), strict=True)):
        panel.barh(
            places + 0.4 * (side - 0.5),
            [(second if side else first) / scale for _, first, second in rows],
            0.38,
            color=color,
            label=name,
            gid=f"bars-{side}",
        )
    label_bars(panel, [row[0] for row in rows])
    panel.set_xlabel(f"part of the predicted time, {unit}s")
    plain_ticks(panel.xaxis)
    panel.legend(fontsize=9)
    cause = cause_text(pair.first, pair.second, pair.explained)
    cause = cause.replace(" = ", f"{_NO_BREAK}={_NO_BREAK}")
    figure.suptitle(fill(cause, 86), fontsize=9)
    return figure


def ranking_figure(ranking: Ranking) -> Figure:
    """Draw the predicted times of the best variants, with their intervals."""
    best = ranking.best[:_MOST_VARIANTS]
    if not best:
        raise ParameterError("no variant has a prediction: nothing to draw", parameter="ranking")
    scale, unit = scale_of([point.time_s for point in best])
    labels = [choice_text(point.choice) for point in best]
    wider = _LETTER * max(0, max(map(len, labels)) - _LINE)
    figure = new_figure((_WIDTH + wider, 1.8 + 0.31 * len(best)))
    panel = figure.subplots()
    held = [(place, p.interval_s) for place, p in enumerate(best) if p.interval_s is not None]
    if held:
        panel.hlines(
            [place for place, _ in held],
            [low / scale for _, (low, _) in held],
            [high / scale for _, (_, high) in held],
            color=SKY,
            linewidth=4,
            label=f"{100 * best[0].interval_level:.0f} % interval",
            gid="intervals",
        )
    models = dict.fromkeys(point.model for point in best)
    for marker, color, model in zip("os", (BLUE, RED), models, strict=False):
        shown = [place for place, point in enumerate(best) if point.model == model]
        panel.plot(
            [best[place].time_s / scale for place in shown],
            shown,
            marker,
            color=color,
            markersize=5,
            label=f"predicted, model {model}" if model else "predicted",
            gid=f"predicted-{model}" if model else "predicted",
        )
    first = "first choice" if len(models) > 1 else "fastest"
    panel.plot([best[0].time_s / scale], [0], "*", color=RED, markersize=13, label=first)
    label_bars(panel, labels, width=10**6)
    panel.set_xscale("log")
    panel.set_xlabel(f"predicted time, {unit}s")
    panel.set_ylabel("variant, fastest first" if first == "fastest" else "variant, in order")
    plain_ticks(panel.xaxis)
    figure.legend(fontsize=9, loc="outside lower center", ncols=3)
    sizes = point_text(ranking.sizes)
    figure.suptitle(f"{ranking.space} on {ranking.device}{', ' if sizes else ''}{sizes}")
    return figure


def rates_figure(weights: WeightSet, device: DeviceParameters | None = None) -> Figure:
    """Draw weights as the rates that they amount to, beside the peaks of the device.

    A panel shows arithmetic, one memory, one all else. Weights that are not told from zero are no
    rates. Of many, those with the smallest relative errors are drawn.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if device is None and weights.device.slug in available_devices():
        device = load_device(weights.device.slug)
    found: dict[str, list[tuple[float, float, str]]] = {}
    for name, weight in weights.by_feature.items():
        rate = rate_of(weight, weights.definition)
        if rate is None or weight.standard_error_s is None:
            continue
        kind = rate[1] if rate[1] in _AXES else ""
        error = weight.standard_error_s / weight.value_s
        found.setdefault(kind, []).append((error, rate[0], plain_name(name).text))
    kinds = [kind for kind in (*_AXES, "") if kind in found]
    if not kinds:
        raise ParameterError("no weight is a rate: nothing to draw", parameter="weights")
    shown = {kind: sorted(found[kind])[:_MOST_RATES] for kind in kinds}
    heights = [len(shown[kind]) + 2.5 for kind in kinds]
    figure = new_figure((_WIDTH, 0.8 + 0.3 * sum(heights)))
    panels = figure.subplots(len(kinds), 1, squeeze=False, height_ratios=heights)[:, 0]
    limits = {
        "flop/s": None if device is None else device.peak_flops,
        "byte/s": None if device is None else device.bandwidth_byte_per_s,
    }
    for panel, kind in zip(panels, kinds, strict=True):
        _rates_panel(panel, kind, shown[kind], limits.get(kind))
    marks: list[Any] = [Patch(color=_COLORS.get(kinds[0], GREEN), label=_IMPLIED)]
    if any(limits.get(kind) is not None for kind in kinds):
        marks.append(Line2D([], [], color=RED, linestyle="--", label=_PEAK))
    figure.legend(handles=marks, fontsize=9, loc="outside lower center", ncols=2)
    total, drawn = (sum(map(len, each.values())) for each in (found, shown))
    some = "" if drawn == total else f"; the {drawn} best known of {total}"
    figure.suptitle(
        f"{short_name(weights.model)} model of {weights.device.slug}: weights as rates{some}",
        fontsize=10,
    )
    return figure


def _rates_panel(
    panel: Axes, kind: str, rates: Sequence[tuple[float, float, str]], limit: float | None
) -> None:
    scale, title = _AXES.get(kind, _OTHERS)
    rows = sorted(rates, key=lambda row: -row[1])
    values = [rate / scale for _, rate, _ in rows]
    panel.barh(
        range(len(rows)),
        values,
        xerr=[error * value for (error, *_), value in zip(rows, values, strict=True)],
        color=_COLORS.get(kind, GREEN),
        ecolor="#444444",
        capsize=2,
    )
    if limit is not None:
        panel.axvline(limit / scale, color=RED, linestyle="--", gid=f"limit-{kind}")
    label_bars(panel, [text for *_, text in rows], _LINE + 14)
    panel.set_xscale("log")
    panel.set_xlabel(title, fontsize=9)
    plain_ticks(panel.xaxis)
