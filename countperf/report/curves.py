"""Pictures over a size or an intensity: times, curves of mechanistic models, rooflines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.errors import ParameterError
from countperf.report.drawing import (
    BLUE,
    CYCLE,
    GRAY,
    ORANGE,
    RED,
    check_figure_path,
    new_figure,
    plain_both,
    save_figure,
    scale_of,
)
from countperf.report.numbers import format_quantity, interval_text, point_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from countperf.hardware.parameters import DeviceParameters
    from countperf.measurements import TimedSize, TimingDocument
    from countperf.mechanistic.answers import ModelAnswers
    from countperf.mechanistic.sweep import Sweep, SweepPoint
    from countperf.models.explanation import Explanation
    from countperf.predictions import Prediction

_LOGARITHMIC_FROM = 8
"""Sizes are on a logarithmic axis where the largest is more than so many times the smallest."""
_FEW_SIZES = 9
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


# --- times over a size


def prediction_title(prediction: Prediction) -> str:
    """Name a kernel, its sizes and device; of a single size, its time with the interval too."""
    given = {n: v for n, v in prediction.parameters.items() if not isinstance(v, np.ndarray)}
    what = ", ".join(filter(None, [prediction.kernel, point_text(given)]))
    title = f"{what} on {prediction.device}"
    if isinstance(prediction.time_s, np.ndarray):
        return title
    time = format_quantity(float(prediction.time_s), "s")
    if prediction.interval_s is None:
        return f"{title}: {time}"
    level = f"{100 * prediction.interval_level:.0f} %"
    return f"{title}\n{time}, {level} interval {interval_text(prediction.interval_s)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """Times over a size, s."""

    sizes: Any  # in ascending order
    times_s: Any
    ends_s: Any = None  # low and high ends of intervals; or noise, relative
    label: str


def times_figure(
    prediction: Prediction, measured: Sequence[tuple[Mapping[str, int], float]] = ()
) -> Figure:
    """Draw predicted times over the first size that differs, and measured ones beside them."""
    times = np.asarray(prediction.time_s, np.float64)
    names = [n for n, v in prediction.parameters.items() if np.ndim(v) and np.ptp(np.asarray(v))]
    if times.ndim != 1 or not names:
        raise ParameterError(
            "times are drawn over one size: pass arrays of one dimension, not all the same",
            parameter="prediction",
        )
    name = names[0]
    sizes = np.broadcast_to(np.asarray(prediction.parameters[name], np.float64), times.shape)
    order = np.argsort(sizes)
    ends = prediction.interval_s and [
        np.broadcast_to(np.asarray(end), times.shape)[order] for end in prediction.interval_s
    ]
    points = sorted((float(at[name]), seconds) for at, seconds in measured)
    return _over_size(
        f"size {name}",
        prediction_title(prediction),
        _Times(sizes=sizes[order], times_s=times[order], ends_s=ends, label="predicted"),
        _Times(sizes=[n for n, _ in points], times_s=[s for _, s in points], label="measured"),
        prediction.interval_level,
    )


def timing_figure(timing: TimingDocument, path: Path | str | None = None) -> Figure:
    """Draw measured times with their noise over the size, and predicted ones with intervals."""
    if path is not None:
        check_figure_path(path)
    name, unsorted = _places(timing.sizes)
    pairs = sorted(zip(unsorted, timing.sizes, strict=True), key=lambda entry: entry[0])
    known = [(place, each) for place, each in pairs if each.predicted_s is not None]
    nan = (math.nan, math.nan)
    ends = np.array([each.interval_s or nan for _, each in known]).T
    is_foreign = timing.weights not in ("", timing.device.slug)
    figure = _over_size(
        name,
        f"{timing.kernel} on {timing.device.slug}\n{timing.device.name}",
        _Times(
            sizes=[place for place, _ in known],
            times_s=[each.predicted_s or math.nan for _, each in known],
            ends_s=list(ends) if np.isfinite(ends).any() else None,
            label=f"predicted for {timing.weights}" if is_foreign else "predicted",
        ),
        _Times(
            sizes=[place for place, _ in pairs],
            times_s=[each.measurement.time_s for _, each in pairs],
            ends_s=[each.measurement.noise for _, each in pairs],
            label="measured, warm caches (bar: noise)",
        ),
        timing.interval_level,
    )
    if path is not None:
        save_figure(figure, path)
    return figure


def _over_size(axis: str, title: str, predicted: _Times, measured: _Times, level: float) -> Figure:
    """Draw predicted times, a line and a band of intervals or a bar at one size, and measured."""
    figure = new_figure((7, 4.5))
    panel = figure.subplots()
    sizes = sorted({*map(float, predicted.sizes), *map(float, measured.sizes)})
    scale, unit = scale_of([float(np.median([*predicted.times_s, *measured.times_s]))])
    several = len(predicted.sizes) > 1
    if predicted.ends_s is not None:
        low, high = (np.asarray(each) / scale for each in predicted.ends_s)
        label = f"{100 * level:.0f} % interval"
        if several:
            panel.fill_between(predicted.sizes, low, high, color=BLUE, alpha=0.2, lw=0, label=label)
        else:
            panel.vlines(
                predicted.sizes, low, high, color=BLUE, alpha=0.3, linewidth=8, label=label
            )
    if len(predicted.sizes):
        style: dict[str, Any] = {"marker": "o" if several else "_"}
        style["markersize"] = 3 if several else 30
        times = np.asarray(predicted.times_s) / scale
        panel.plot(
            predicted.sizes, times, color=BLUE, label=predicted.label, gid="predicted", **style
        )
    if len(measured.sizes):
        times = np.asarray(measured.times_s) / scale
        noise = None if measured.ends_s is None else np.asarray(measured.ends_s) * times
        look: dict[str, Any] = {"fmt": "o", "color": RED, "capsize": 3, "label": measured.label}
        bars: Any = panel.errorbar(measured.sizes, times, yerr=noise, **look)
        bars.lines[0].set_gid("measured")
    if sizes[0] > 0 and sizes[-1] > _LOGARITHMIC_FROM * sizes[0]:
        panel.set(xscale="log")
    if len(sizes) > 1:
        panel.set(yscale="log")
    else:
        panel.set_ylim(bottom=0)
    plain_both(panel)
    if len(sizes) <= _FEW_SIZES:
        from matplotlib.ticker import NullLocator

        panel.set_xticks(sizes)
        panel.xaxis.set_minor_locator(NullLocator())
    panel.set(xlabel=axis, ylabel=f"time of one launch, {unit}s")
    panel.grid(visible=True, which="major", alpha=0.3)
    panel.set_title(title, fontsize=10)
    figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    return figure


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
            remarks = [*(fixed if differing else []), *([f"{others} differs too"] * bool(others))]
            return f"size {name}" + (f" ({', '.join(remarks)})" if remarks else ""), places
    return "number of the size in the table, from 1", [float(n + 1) for n in range(len(points))]


# --- rooflines


def roofline_figure(explanation: Explanation, device: DeviceParameters | None = None) -> Figure:
    """Draw a kernel below the ceilings of a device: arithmetic rate over operational intensity."""
    prediction = explanation.prediction
    whole = float(prediction.time_s)
    if not (explanation.flops > 0 and explanation.global_bytes > 0 and whole > 0):
        message = (
            "a roofline shows kernels that compute and access global memory; this one does not"
        )
        raise ParameterError(message, parameter="explanation")
    name = f"{prediction.kernel}: {format_quantity(explanation.flops / whole, 'flop/s')}"
    points = {name: ("kernel", explanation.flops / whole)}
    intensity = explanation.flops / explanation.global_bytes
    return _roofline(points, intensity, device, prediction_title(prediction))


def model_roofline_figure(answers: ModelAnswers) -> Figure:
    """Draw the roofline of a device, and a kernel on it as each model predicts it."""
    device = answers.described
    if device.peak_flops is None or device.bandwidth_byte_per_s is None:
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
    points = {
        f"{name}: {format_quantity(float(each.time_s), 's')}": (
            name,
            answers.total_flops / float(each.time_s),
        )
        for name, each in answers.predictions.items()
    }
    title = f"{answers.kernel} on {answers.device}, {point_text(answers.parameters)}"
    return _roofline(points, answers.total_flops / answers.total_bytes, device, title)


def _roofline(
    points: Mapping[str, tuple[str, float]],
    intensity: float,
    device: DeviceParameters | None,
    title: str,
) -> Figure:
    """Draw rates, flop/s, by labels, at an intensity, below what is known of a device."""
    figure = new_figure((8, 5) if len(points) > 1 else (6.5, 4.5))
    panel = figure.subplots()
    bandwidth = None if device is None else device.bandwidth_byte_per_s
    peak = None if device is None else device.peak_flops
    ridge = peak / bandwidth if peak and bandwidth else 1.0
    around = np.geomspace(min(intensity, ridge) / 8, max(intensity, ridge) * 8, 200)
    if bandwidth is not None:
        roof = np.minimum(bandwidth * around, math.inf if peak is None else peak) / 1e9
        label = f"memory: {format_quantity(bandwidth, 'byte/s')}"
        panel.plot(around, roof, color=ORANGE, label=label, gid="memory-ceiling")
    elif device is not None:
        label = "memory: peak not known (countperf characterize measures it)"
        panel.plot([], [], " ", label=label)
    if peak is not None:
        label = f"arithmetic: {format_quantity(peak, 'flop/s')}"
        panel.axhline(peak / 1e9, color=BLUE, linestyle="--", label=label, gid="compute-ceiling")
    for place, (label, (gid, rate)) in enumerate(points.items()):
        panel.plot(
            [intensity],
            [rate / 1e9],
            "*" if len(points) == 1 else "osD^v"[place // len(CYCLE) % 5],
            color=RED if len(points) == 1 else CYCLE[place % len(CYCLE)],
            markersize=13 if len(points) == 1 else 6,
            label=label,
            gid=gid,
        )
    panel.set(xscale="log", yscale="log", ylabel="arithmetic rate, Gflop/s")
    panel.set_xlabel("operational intensity of what the kernel asks for, flop/byte")
    plain_both(panel)
    if len(points) > 1:
        figure.legend(loc="outside right upper", fontsize=9)
    else:
        panel.legend(fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure


# --- curves of mechanistic models


def sweep_figure(found: Sweep) -> Figure:
    """Draw the throughput of all models over the axis, with the roofs of the subsystems.

    Over operational intensity, both axes are logarithmic and the throughput is in flop/s.
    """
    over_intensity = found.over == "intensity"
    figure = new_figure((8, 5))
    panel = figure.subplots()
    for place, name in enumerate(found.models):
        across, up = _curve(found, [(p, found.throughput(p, name)) for p in found.points])
        if across:
            color, style = CYCLE[place % len(CYCLE)], _STYLES[place // len(CYCLE) % len(_STYLES)]
            panel.plot(across, up, marker=".", color=color, linestyle=style, label=name)
    if not panel.lines:
        message = f"no model predicts {found.kernel} on {found.device}; to_frame() says why"
        raise ParameterError(message, parameter="models")
    _draw_roofs(panel, found)
    unit = "Gflop/s" if over_intensity else f"sub-groups per {_PER} cycles of a compute unit"
    panel.set(xlabel=_LABELS[found.over], ylabel=f"throughput, {unit}")
    if over_intensity:
        panel.set(xscale="log", yscale="log")
    else:
        panel.set_ylim(bottom=0)
    if found.over == "group_size":
        panel.set_xscale("log", base=2)
    plain_both(panel)
    figure.legend(loc="outside right upper", fontsize=9)
    panel.set_title(f"{found.kernel} on {found.device} over {found.over}", fontsize=10)
    return figure


def _draw_roofs(panel: Axes, found: Sweep) -> None:
    """Draw what each subsystem allows, as far as it comes near the lowest roof somewhere."""
    for name in dict.fromkeys(name for point in found.points for name in point.roofs):
        points = [point for point in found.points if name in point.roofs]
        above = [point.roofs[name] / min(point.roofs.values()) for point in points]
        across, up = _curve(found, [(point, point.roofs[name]) for point in points])
        if min(above) > _NEAR or len(up) < len(points):
            continue
        panel.plot(across, up, color=GRAY, linewidth=2.5, alpha=0.5, zorder=0, gid=f"roof-{name}")
        place = above.index(min(above))
        panel.annotate(f"roof: {name}", (across[place], up[place]), fontsize=9, va="bottom")


def _curve(
    found: Sweep, throughputs: Sequence[tuple[SweepPoint, float | None]]
) -> tuple[list[float], list[float]]:
    """Return where points lie: throughput, or flop/s over an intensity; unknown ones do not."""
    device = found.described
    across: list[float] = []
    up: list[float] = []
    for point, throughput in throughputs:
        value = None if throughput is None else _PER * throughput
        if found.over == "intensity" and throughput is not None:
            known = [point.flops, device.num_compute_units, device.clock_hz]
            factors = [factor for factor in known if factor is not None]
            whole = len(factors) == len(known)
            value = throughput / point.work * math.prod(factors) / 1e9 if whole else None
        if value is not None:
            x = {"occupancy": point.occupancy, "intensity": point.intensity}.get(found.over)
            across.append(point.value if x is None else x)
            up.append(value)
    return across, up
