"""Curves of mechanistic models as text, rows and figures, and a roofline with a kernel on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.errors import ParameterError
from countperf.mechanistic.answers import ModelAnswers, lacking_input
from countperf.mechanistic.model import MechanisticPrediction
from countperf.mechanistic.sweep import Sweep, SweepPoint
from countperf.report.drawing import (
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SKY,
    YELLOW,
    new_figure,
    plain_both,
)
from countperf.report.numbers import format_quantity, point_text
from countperf.report.objects import picked
from countperf.report.rows import table_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = (BLUE, ORANGE, GREEN, PINK, RED, SKY, YELLOW, "#000000")
_STYLES = ("-", "--", ":")
_LABELS = {
    "occupancy": "sub-groups resident on a compute unit",
    "group_size": "work items per group",
    "intensity": "operational intensity, flop/byte",
    "ilp": "work items whose computations one work item overlaps",
    "mlp": "work items whose memory instructions one work item overlaps",
}
_NEAR = 2.0  # times the lowest roof: others are left out
_PER = 1000  # cycles, for throughput in handy numbers


def sweep_head(found: Sweep) -> str:
    """Return what was swept, in a line."""
    return f"{found.kernel} on {found.device} over {found.over}"


def sweep_rows(found: Sweep) -> list[dict[str, Any]]:
    """Return a row per value and model: time, bound, throughput, roof, or what the model lacks."""
    rows: list[dict[str, Any]] = []
    for point in found.points:
        for name, answer in point.answers.items():
            is_prediction = isinstance(answer, MechanisticPrediction)
            rows.append(
                {
                    found.over: point.value,
                    "sub_groups": point.occupancy,
                    "flop_per_byte": point.intensity,
                    "model": name,
                    "time_s": float(answer.time_s) if is_prediction else None,
                    "bound": answer.bound if is_prediction else None,
                    "sub_groups_per_cycle": found.throughput(point, name),
                    "roof_sub_groups_per_cycle": min(point.roofs.values(), default=None),
                    "lacks": "" if is_prediction else lacking_input(answer),
                }
            )
    return rows


def sweep_text(found: Sweep) -> str:
    """Write a row per value and a column per model, with the time where it predicts one."""
    rows = [
        {
            found.over: point.value,
            "sub-groups": point.occupancy,
            "flop/byte": point.intensity,
            **{f"{name}_s": _time_s(point.answers[name]) for name in found.models},
        }
        for point in found.points
    ]
    table = table_of(rows)
    lacking = {
        f"{name} lacks {lacking_input(answer)}": None
        for point in found.points
        for name, answer in point.answers.items()
        if not isinstance(answer, MechanisticPrediction)
    }
    return "\n".join([sweep_head(found), *table.lines(), *lacking])


def _time_s(answer: object) -> float | None:
    return float(answer.time_s) if isinstance(answer, MechanisticPrediction) else None


def sweep_object(found: Sweep) -> dict[str, Any]:
    """Return ``{"kernel", "device", "over", "points": [rows of `sweep_rows`]}``."""
    return {**picked(found, "kernel", "device", "over"), "points": sweep_rows(found)}


def sweep_figure(found: Sweep) -> Figure:
    """Draw the throughput of all models over the axis, with the roofs of the subsystems.

    Over operational intensity, both axes are logarithmic and the throughput is in flop/s.
    """
    over_intensity = found.over == "intensity"
    figure = new_figure((8, 5))
    panel = figure.subplots()
    drawn = 0
    for place, name in enumerate(found.models):
        points = [
            (_abscissa(found, each), value)
            for each in found.points
            if (value := _ordinate(found, each, found.throughput(each, name))) is not None
        ]
        if not points:
            continue
        drawn += 1
        panel.plot(
            *zip(*points, strict=True),
            marker=".",
            color=_COLORS[place % len(_COLORS)],
            linestyle=_STYLES[place // len(_COLORS) % len(_STYLES)],
            label=name,
        )
    if not drawn:
        message = f"no model predicts {found.kernel} on {found.device}; to_frame() says why"
        raise ParameterError(message, parameter="models")
    _draw_roofs(panel, found)
    panel.set_xlabel(_LABELS[found.over])
    unit = "Gflop/s" if over_intensity else f"sub-groups per {_PER} cycles of a compute unit"
    panel.set_ylabel(f"throughput, {unit}")
    if over_intensity:
        panel.set(xscale="log", yscale="log")
    else:
        panel.set_ylim(bottom=0)
    if found.over == "group_size":
        panel.set_xscale("log", base=2)
    plain_both(panel)
    figure.legend(loc="outside right upper", fontsize=9)
    panel.set_title(sweep_head(found), fontsize=10)
    return figure


def _draw_roofs(panel: Axes, found: Sweep) -> None:
    """Draw what each subsystem allows, as far as it comes near the lowest roof somewhere."""
    names = dict.fromkeys(name for point in found.points for name in point.roofs)
    for name in names:
        points = [point for point in found.points if name in point.roofs]
        if all(point.roofs[name] > _NEAR * min(point.roofs.values()) for point in points):
            continue
        ordinates = [_ordinate(found, point, point.roofs[name]) for point in points]
        values = [value for value in ordinates if value is not None]
        if len(values) < len(points):
            continue
        across = [_abscissa(found, point) for point in points]
        panel.plot(
            across, values, color=GRAY, linewidth=2.5, alpha=0.5, zorder=0, gid=f"roof-{name}"
        )
        near = min(points, key=lambda point: point.roofs[name] / min(point.roofs.values()))
        place = points.index(near)
        panel.annotate(
            f"roof: {name}", (across[place], values[place]), fontsize=9, va="bottom", ha="left"
        )


def _abscissa(found: Sweep, point: SweepPoint) -> float:
    if found.over == "occupancy" and point.occupancy is not None:
        return point.occupancy
    if found.over == "intensity" and point.intensity is not None:
        return point.intensity
    return point.value


def _ordinate(found: Sweep, point: SweepPoint, wpc: float | None) -> float | None:
    if wpc is None:
        return None
    if found.over != "intensity":
        return _PER * wpc
    device = found.described
    if point.flops is None or device.num_compute_units is None or device.clock_hz is None:
        return None
    return point.flops / point.work * wpc * device.num_compute_units * device.clock_hz / 1e9


def model_roofline_figure(answers: ModelAnswers) -> Figure:
    """Draw the roofline of a device, and a kernel on it as each model predicts it."""
    device = answers.described
    peak, bandwidth = device.peak_flops, device.bandwidth_byte_per_s
    if peak is None or bandwidth is None:
        message = f"device {device.slug!r} states no peak_flops or no bandwidth_byte_per_s"
        raise ParameterError(message, parameter="device")
    if not answers.total_flops or not answers.total_bytes:
        message = (
            f"kernel {answers.kernel!r} has no floating-point operations or moves no data, so that"
            " it has no place on a roofline"
        )
        raise ParameterError(message, parameter="kernel")
    if not answers.predictions:
        message = f"no model predicts {answers.kernel} on {answers.device}; to_frame() says why"
        raise ParameterError(message, parameter="models")
    intensity = answers.total_flops / answers.total_bytes
    ridge = peak / bandwidth
    figure = new_figure((8, 5))
    panel = figure.subplots()
    xs = np.geomspace(min(intensity, ridge) / 8, max(intensity, ridge) * 8, 200)
    panel.plot(xs, np.minimum(peak, bandwidth * xs) / 1e9, color=GRAY, linewidth=2.5, label="roof")
    panel.axvline(intensity, color=GRAY, linewidth=0.6)
    for place, (name, prediction) in enumerate(answers.predictions.items()):
        panel.plot(
            [intensity],
            [answers.total_flops / float(prediction.time_s) / 1e9],
            "osD^v"[place // len(_COLORS) % 5],
            color=_COLORS[place % len(_COLORS)],
            label=f"{name}: {format_quantity(float(prediction.time_s), 's')}",
        )
    panel.set(xscale="log", yscale="log", xlabel=_LABELS["intensity"], ylabel="Gflop/s")
    plain_both(panel)
    figure.legend(loc="outside right upper", fontsize=9)
    sizes = point_text(answers.parameters)
    panel.set_title(f"{answers.kernel} on {answers.device}, {sizes}", fontsize=10)
    return figure
