"""Time over size, drawn: measured points, and the predicted line with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.report.drawing import check_figure_path, new_figure, save_figure
from countperf.report.numbers import si_prefix

if TYPE_CHECKING:
    from countperf.measurements import TimedSize, TimingDocument

# Okabe and Ito (2008): told apart by everybody
_MEASURED, _PREDICTED = "#d55e00", "#0072b2"
_LOGARITHMIC_FROM = 8
"""Sizes are on a logarithmic axis where the largest is more than so many times the smallest."""


def timing_figure(timing: TimingDocument, path: Path | str | None = None) -> Any:
    """Draw time over size."""
    if path is not None:
        check_figure_path(path)
    figure = new_figure((6.4, 4.2))
    axes = figure.subplots()
    name, places = _places(timing.sizes)
    some = sorted(zip(places, timing.sizes, strict=True), key=lambda entry: entry[0])
    prefix, scale = _unit([each.measurement.time_s for each in timing.sizes])
    _draw_prediction(axes, [e for e in some if e[1].predicted_s is not None], timing, scale)
    axes.errorbar(
        [place for place, _ in some],
        [each.measurement.time_s * scale for _, each in some],
        yerr=[each.measurement.time_s * each.measurement.noise * scale for _, each in some],
        fmt="o",
        color=_MEASURED,
        capsize=3,
        label=f"measured, {timing.caches} (bar: noise)",
    ).lines[0].set_gid("measured")
    low, high = min(places), max(places)
    if low > 0 and high > _LOGARITHMIC_FROM * low:
        axes.set(xscale="log")
    if low < high:
        axes.set(yscale="log")
    else:
        axes.set_ylim(bottom=0)
    _label_ticks(axes, sorted(set(places)))
    axes.set(xlabel=name, ylabel=f"time of one launch, {prefix}s")
    axes.set_title(f"{timing.kernel} on {timing.device.slug}\n{timing.device.name}", fontsize=10)
    axes.grid(visible=True, which="major", alpha=0.3)
    columns = 2 if _is_foreign(timing) else 3
    figure.legend(loc="outside lower center", ncols=columns, fontsize=9)
    if path is not None:
        save_figure(figure, path)
    return figure


def _draw_prediction(
    axes: Any, some: Sequence[tuple[float, TimedSize]], timing: TimingDocument, scale: float
) -> None:
    if not some:
        return
    axes.plot(
        [place for place, _ in some],
        [(each.predicted_s or math.nan) * scale for _, each in some],
        "-" if len(some) > 1 else "_",
        color=_PREDICTED,
        markersize=30,
        markeredgewidth=2,
        label="predicted" + (f" for {timing.weights}" if _is_foreign(timing) else ""),
        gid="predicted",
    )
    held = [(place, each.interval_s) for place, each in some if each.interval_s is not None]
    if not held:
        return
    label = f"{100 * timing.interval_level:.0f} % interval"
    x = [place for place, _ in held]
    lows, highs = ([ends[end] * scale for _, ends in held] for end in (0, 1))
    if len(held) > 1:
        axes.fill_between(x, lows, highs, color=_PREDICTED, alpha=0.2, lw=0, label=label)
    else:
        axes.vlines(x, lows, highs, color=_PREDICTED, alpha=0.3, linewidth=8, label=label)


def _is_foreign(timing: TimingDocument) -> bool:
    """Return whether weights of another device predicted."""
    return timing.weights not in ("", timing.device.slug)


def _places(sizes: Sequence[TimedSize]) -> tuple[str, list[float]]:
    """Return the name of the axis of sizes, and where each one lies on it.

    The axis is the first parameter that differs; the others are named beside it. Where none does,
    or several sizes would lie at one place, the sizes are numbered.
    """
    points = [each.measurement.parameters for each in sizes]
    names = list(points[0])
    differing = [name for name in names if len({point[name] for point in points}) > 1]
    fixed = [f"{name} = {points[0][name]}" for name in names if name not in differing]
    for name in differing or names[:1]:
        places = [float(point[name]) for point in points]
        if len(set(places)) == len(points):
            others = ", ".join(other for other in differing if other != name)
            remarks = [
                *(fixed if differing else []),
                *([f"{others} differs too"] if others else []),
            ]
            return f"size {name}" + (f" ({', '.join(remarks)})" if remarks else ""), places
    return "number of the size in the table, from 1", [float(n + 1) for n in range(len(points))]


def _unit(times_s: Sequence[float]) -> tuple[str, float]:
    """Return the SI prefix of the axis of times, and what to multiply seconds with."""
    middle = sorted(times_s)[len(times_s) // 2]
    exponent = max(-9, min(0, 3 * math.floor(math.log10(middle) / 3)))
    return si_prefix(exponent), 10.0**-exponent


def _label_ticks(axes: Any, places: Sequence[float]) -> None:
    """Write plain numbers at ticks, such as 0.6; mark the sizes themselves where there are few."""
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    plain = FuncFormatter(lambda value, _: f"{value:.12g}" if abs(value) >= 1e-9 else "0")
    axes.yaxis.set_major_formatter(plain)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(plain)
    axes.xaxis.set_minor_formatter(NullFormatter())
    if len(places) <= _FEW_SIZES:
        axes.set_xticks(places)
        axes.xaxis.set_minor_locator(NullLocator())
    if axes.get_yscale() == "log":
        _more_time_ticks(axes)


def _more_time_ticks(axes: Any) -> None:
    """Label 1, 2 and 5 of each decade of times where there are few decades."""
    from matplotlib.ticker import LogLocator

    low, high = axes.get_ylim()
    if high / low < _FEW_DECADES:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))


_FEW_SIZES = 9
_FEW_DECADES = 1e3
