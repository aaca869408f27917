"""All pictures, drawn with matplotlib: ticks are plain numbers (0.6), axes name their units."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from countperf.devices.parameters import (
    DeviceParameters,
    advise_characterization,
    available_devices,
    load_device,
)
from countperf.errors import MissingExtraError, ParameterError
from countperf.measuring import TimedSize, Timing
from countperf.mechanistic.predict_all import ModelAnswers
from countperf.mechanistic.sweep import Sweep, SweepPoint
from countperf.models.explanation import Explanation
from countperf.models.library import short_name
from countperf.models.metrics import EvaluatedCase, Evaluation
from countperf.models.predictions import Prediction, breakdown_rows
from countperf.store import check_writable, write_atomically
from countperf.text import PREFIXES, format_quantity, interval_text, point_text
from countperf.tuning.result import Trial, TuningResult, fastest_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CYCLE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#000000"]
"""Colors that are told apart by color-blind readers, too (Okabe & Ito, 2008)."""
BLUE, ORANGE, GREEN, _, RED, SKY, *_ = CYCLE
GRAY = "#999999"


def check_figure_path(path: Path | str) -> None:
    """Refuse a file name that no figure can be written to."""
    supported = new_figure((1, 1)).canvas.get_supported_filetypes()
    ending = Path(path).suffix.lstrip(".").lower()
    if ending not in supported:
        said = f"a figure cannot be written as {ending or 'a file without an ending'!r}"
        mend = f"end its name in one of {', '.join(sorted(supported))}"
        raise ParameterError(f"{path}: {said}; {mend}", parameter="figure")


def check_outputs(figure: Path | str | None, *documents: Path | str | None) -> None:
    """Refuse files that a figure and documents cannot be written to, before the work."""
    if figure is not None:
        check_figure_path(figure)
    check_writable(figure, *documents)


def _render(figure: Figure, kind: str, **options: Any) -> bytes:
    content = BytesIO()
    figure.savefig(content, format=kind, **options)
    return content.getvalue()


def svg_text(figure: Figure) -> str:
    """Return a figure as an ``svg`` element whose words are text, to be put into a page."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "countperf"}):
        text = _render(figure, "svg", metadata={"Date": None}).decode()
    return text[text.index("<svg") :]


def new_figure(size: tuple[float, float]) -> Figure:
    """Return an empty figure that needs no screen, of a size in inches."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        said = "drawing needs matplotlib; install it with: pip install 'countperf[plot]'"
        raise MissingExtraError(said, extra="plot") from error
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    # notebooks show it although pyplot does not know it
    vars(figure)["_repr_png_"] = partial(_render, figure, "png", dpi=110)
    return figure


def plain_ticks(*axes: Any) -> None:
    """Label the ticks of axes with plain numbers, few of them where they are logarithmic."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in axes:
        axis.set_major_formatter(FuncFormatter(_format_plainly))
        if axis.get_scale() == "log":
            low, high = axis.get_view_interval()
            decades = math.log10(high / low) if low > 0 else 9.0
            subs = (1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)
            if decades < 1:
                subs = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
            axis.set_major_locator(LogLocator(subs=subs, numticks=12))
            axis.set_minor_formatter(NullFormatter())


def _label(
    figure: Figure, title: str, x: str, y: str, *, legend: Any = "outside lower center"
) -> None:
    """Title a figure of one panel, label its axes, and put the legend outside."""
    (panel,) = figure.axes
    panel.set(xlabel=x, ylabel=y)
    plain_ticks(panel.xaxis, panel.yaxis)
    figure.legend(loc=legend, ncols=1 if "right" in legend else 2, fontsize=9)
    figure.suptitle(title, fontsize=10)


def _format_plainly(value: float, _: int | None = None) -> str:
    return np.format_float_positional(float(f"{value:.4g}"), trim="-")


def scale_of(times_s: Sequence[float]) -> tuple[float, str]:
    """Return the SI prefix, and its value, under which the largest of some times is read well."""
    largest = max(map(abs, times_s))
    exponent = max(-12, min(0, 3 * math.floor(math.log10(largest) / 3))) if largest > 0 else 0
    return 10.0**exponent, PREFIXES[exponent]


_AXES = {"occupancy": "sub-groups resident on a compute unit", "group_size": "work items per group"}
_PER = 1000  # cycles, for throughput in handy numbers


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
    interval = interval_text(prediction.interval_s)
    return f"{title}\n{time}, {_level(prediction.interval_level)} {interval}"


def _level(level: float) -> str:
    return f"{100 * level:.0f} % interval"


_Time = tuple[float, float, float, float]
"""Place on the axis of sizes; time, and both ends of its bar, s."""


def times_figure(prediction: Prediction) -> Figure:
    """Draw predicted times over the first size that differs."""
    times = np.asarray(prediction.time_s, np.float64)
    names = [n for n, v in prediction.parameters.items() if np.ndim(v) and np.ptp(np.asarray(v))]
    if times.ndim != 1 or not names:
        said = "times are drawn over one size: pass arrays of one dimension, not all the same"
        raise ParameterError(said, parameter="prediction")
    sizes, ends = np.asarray(prediction.parameters[names[0]]), prediction.interval_s
    drawn = np.transpose(np.broadcast_arrays(sizes, times, *(ends or (times, times)))).tolist()
    label = f"predicted (bar: {_level(prediction.interval_level)})"
    return _over_size(f"size {names[0]}", prediction_title(prediction), {label: drawn})


def timing_figure(timing: Timing) -> Figure:
    """Draw measured times with their noise over the size, and predicted ones with intervals."""
    name, positions = _places(timing.sizes)
    predicted: list[_Time] = []
    measured: list[_Time] = []
    for at, size in zip(positions, timing.sizes, strict=True):
        if (time_s := size.predicted_s) is not None:
            predicted.append((at, time_s, *(size.interval_s or (time_s, time_s))))
        time_s, noise = size.measurement.time_s, size.measurement.noise
        measured.append((at, time_s, time_s * (1 - noise), time_s * (1 + noise)))
    is_foreign = timing.weights not in ("", timing.device.slug)
    by = f"predicted by {timing.weights}" if is_foreign else "predicted"
    label = f"{by} (bar: {_level(timing.interval_level)})"
    title = f"{timing.kernel} on {timing.device.slug}\n{timing.device.name}"
    drawn = {label: predicted, "measured, warm caches (bar: noise)": measured}
    return _over_size(name, title, drawn)


def _over_size(axis: str, title: str, series: Mapping[str, Sequence[_Time]]) -> Figure:
    """Draw times by their labels, those predicted as a line, with bars."""
    figure = new_figure((7, 4.5))
    panel = figure.subplots()
    every = [time for times in series.values() for time in times]
    scale, unit = scale_of([float(np.median([time_s for _, time_s, _, _ in every]))])
    for label, unsorted in series.items():
        if not unsorted:
            continue
        positions, times, low, high = np.array(sorted(unsorted)).T
        is_predicted = label.startswith("predicted")
        bars: Any = panel.errorbar(
            positions,
            times / scale,
            yerr=np.array([times - low, high - times]) / scale,
            fmt="o-" if is_predicted else "o",
            color=BLUE if is_predicted else RED,
            markersize=3 if is_predicted else 6,
            capsize=3,
            label=label,
        )
        bars.lines[0].set_gid("predicted" if is_predicted else "measured")
    sizes = sorted({position for position, *_ in every})
    if sizes[0] > 0 and sizes[-1] > 8 * sizes[0]:
        panel.set(xscale="log")
    if len(sizes) > 1:
        panel.set(yscale="log")
    else:
        panel.set_ylim(bottom=0)
    _label(figure, title, axis, f"time of one launch, {unit}s")
    if len(sizes) < 10:  # a tick at each
        from matplotlib.ticker import NullLocator

        panel.set_xticks(sizes)
        panel.xaxis.set_minor_locator(NullLocator())
    panel.grid(visible=True, which="major", alpha=0.3)
    return figure


def _places(sizes: Sequence[TimedSize]) -> tuple[str, list[float]]:
    """Return the first parameter that tells all sizes apart, and its values; else numbers."""
    points = [size.measurement.parameters for size in sizes]
    for name in points[0]:
        if len({point[name] for point in points}) == len(points):
            return f"size {name}", [float(point[name]) for point in points]
    return "number of the size in the table, from 1", [float(n + 1) for n in range(len(points))]


def roofline_figure(explanation: Explanation, device: DeviceParameters | None = None) -> Figure:
    """Draw a kernel below the ceilings of a device: arithmetic rate over operational intensity."""
    prediction = explanation.prediction
    whole = float(prediction.time_s)
    if not (explanation.flops > 0 and explanation.global_bytes > 0 and whole > 0):
        said = "a roofline shows kernels that compute and access global memory; this one does not"
        raise ParameterError(said, parameter="explanation")
    figure = new_figure((7, 5.5))
    label = f"{prediction.kernel}: {format_quantity(explanation.flops / whole, 'flop/s')}"
    point = _RoofPoint(label, "kernel", whole, explanation.flops, {"L1": explanation.global_bytes})
    _draw_roofs(figure.subplots(), [point], device, prediction.device)
    figure.supxlabel("operational intensity of what the kernel asks for, flop/byte", fontsize=10)
    figure.supylabel("arithmetic rate, Gflop/s", fontsize=10)
    figure.suptitle(prediction_title(prediction), fontsize=10)
    return figure


@dataclass(frozen=True, slots=True)
class _RoofPoint:
    """A kernel's time, s, its operations, and its bytes by where they come from."""

    label: str
    gid: str
    time_s: float
    flops: float
    moved: Mapping[str, float]


_WIDE = 34  # letters of a label that takes a line of its own
_LEVELS = {"L1": SKY, "L2": GREEN, "memory": ORANGE}  # colors of roofs


def list_roofs(device: DeviceParameters | None, slug: str = "") -> tuple[dict[str, float], str]:
    """Return the roofs of a device, byte/s and flop/s, and which it lacks, with how to get them."""
    names: dict[str, str] = {
        "L1": "l1_bandwidth_byte_per_s",
        "L2": "l2_bandwidth_byte_per_s",
        "memory": "bandwidth_byte_per_s",
        "arithmetic": "peak_flops",
    }
    slug = slug if device is None else device.slug
    roofs = {roof: rate for roof, name in names.items() if (rate := getattr(device, name, None))}
    if device is not None and "memory" in roofs:
        roofs["memory"] *= device.achievable_bandwidth_share or 1.0
    lacks = [roof for roof in names if roof not in roofs]
    if device is not None and device.l2_bytes == 0:
        lacks = [roof for roof in lacks if roof not in ("L1", "L2")]
    if not lacks:
        return roofs, ""
    said = f"no roof of {', '.join(lacks)}: {slug} states no {', '.join(names[of] for of in lacks)}"
    if not {"memory", "arithmetic"}.isdisjoint(lacks):
        said += f"; {advise_characterization(slug)}"
    return roofs, said


def _draw_roofs(
    panel: Any, points: Sequence[_RoofPoint], device: DeviceParameters | None, slug: str
) -> None:
    """Draw the roofs of a device with their numbers, and below these points with their times."""
    roofs, lacking = list_roofs(device, slug)
    peak, places = roofs.get("arithmetic", math.inf), list[float]()
    bandwidths = {level: roofs[level] for level in _LEVELS if level in roofs}
    for position, point in enumerate(points):
        rate, mark = point.flops / point.time_s / 1e9, "*osD^vPX"[position % 8]
        at = {
            level: point.flops / moved
            for level, moved in point.moved.items()
            if moved and (level in roofs or level == "memory" or len(point.moved) == 1)
        }
        places += at.values()
        panel.plot([*at.values()], [rate] * len(at), color=GRAY, linewidth=0.8)
        hollow: Any = {"markerfacecolor": "none"} if position > 7 else {}
        for level, x in at.items():
            marked = hollow | {"color": _LEVELS[level] if level in roofs else RED}
            panel.plot(x, rate, mark, markersize=9, gid=f"{point.gid}-{level}", **marked)
        panel.plot([], [], mark, color="black", markersize=7, label=point.label, **hollow)
    places += [peak / bandwidth for bandwidth in bandwidths.values() if peak < math.inf]
    places = places or [1.0]
    low, high = min(places) / 8, max(places) * 4
    shares = [0.03, 0.28, 0.53]  # of the lines, where texts begin: far from points and each other
    for level in reversed(bandwidths):
        end = min(high, peak / bandwidths[level])
        ends = np.array([low, end])
        line = bandwidths[level] * ends / 1e9
        panel.plot(ends, line, color=_LEVELS[level], gid=f"{level}-ceiling")
        starts = {share: low * (end / low) ** share for share in shares}
        far = {of: min(abs(math.log(2 * x / p)) for p in places) for of, x in starts.items()}
        shares.remove(share := max(shares, key=far.__getitem__))
        x = starts[share]
        above = 1.15 * bandwidths[level] * x / 1e9  # the text follows the line through here
        angle = math.degrees(math.atan2(above, x))
        said = f"{level}: {format_quantity(bandwidths[level], 'byte/s')}"
        along: Any = {"rotation_mode": "anchor", "transform_rotates_text": True, "clip_on": True}
        panel.text(x, above, said, fontsize=9, rotation=angle, **along)
    if peak < math.inf:
        start = min((peak / of for of in bandwidths.values()), default=low)
        panel.plot([start, high], [peak / 1e9] * 2, color=BLUE, gid="compute-ceiling")
        said = f"arithmetic: {format_quantity(peak, 'flop/s')}"
        panel.text(high, 1.1 * peak / 1e9, said, fontsize=9, ha="right")
    panel.set(xscale="log", yscale="log", title=slug)
    panel.margins(x=0, y=0.1)
    plain_ticks(panel.xaxis, panel.yaxis)
    columns = 1 if any(len(point.label) > _WIDE for point in points) else 2
    below: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.08), "frameon": False}
    below |= {"title": fill(lacking, 60, break_on_hyphens=False), "title_fontsize": 9}
    handles, labels = panel.get_legend_handles_labels()
    panel.legend(handles, labels, fontsize=9, ncols=columns, **below)


def model_roofline_figure(answers: Sequence[ModelAnswers]) -> Figure:
    """Draw a panel for each device: its roofs, and kernels on it as each model predicts them.

    A kernel stands at its operations over the bytes that each roof stands for: those that
    sub-groups ask for (L1), those that reach L2, and those that reach memory. Its height is its
    rate.
    """
    by_device: dict[str, list[ModelAnswers]] = {}
    for each in answers:
        if not (each.total_flops and each.total_bytes):
            reason = "the kernel has no floating-point operations or moves no data"
            message = f"no roofline of {each.kernel} on {each.device}: {reason}"
            raise ParameterError(message, parameter="figure")
        by_device.setdefault(each.device, []).append(each)
    across = min(3, len(by_device))
    down = -(-len(by_device) // across)
    most = max(len(of.predictions) for of in answers) * len(answers) / len(by_device)
    figure = new_figure((max(7, 5.2 * across), (5 + 0.17 * most) * down))
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    kernels = [*dict.fromkeys(each.kernel for each in answers)]
    sizes = [{**each.parameters} for each in answers]
    same = {k: v for k, v in sizes[0].items() if all(k in at and at[k] == v for at in sizes)}
    for panel, (slug, some) in zip(panels, by_device.items(), strict=False):
        points = [
            _RoofPoint(
                ", ".join(filter(None, [*([of.kernel] if kernels[1:] else []), differing, said])),
                *(name, float(made.time_s), of.total_flops, of.moved),
            )
            for of in some
            for name, made in of.predictions.items()
            for said in [f"{name}: {format_quantity(float(made.time_s), 's')}"]
            for differing in [point_text({k: v for k, v in of.parameters.items() if k not in same})]
        ]
        _draw_roofs(panel, points, some[0].described, slug)
    for panel in panels[len(by_device) :]:
        panel.set_visible(False)
    figure.supxlabel("operational intensity at each roof, flop/byte", fontsize=10)
    figure.supylabel("arithmetic rate, Gflop/s", fontsize=10)
    title = ", ".join(filter(None, [*([] if kernels[1:] else kernels), point_text(same)]))
    figure.suptitle(title, fontsize=10)
    return figure


def sweep_figure(swept: Sweep) -> Figure:
    """Draw the throughput of all models over the axis."""
    figure = new_figure((8, 5))
    panel = figure.subplots()
    rates: dict[str, Callable[[SweepPoint], float | None]] = {
        name: partial(swept.throughput, model=name) for name in swept.models
    }
    rates["measured"] = swept.throughput
    for position, (name, rate) in enumerate(rates.items()):
        known = [(p, throughput) for p in swept.points if (throughput := rate(p)) is not None]
        if known:
            panel.plot(
                [(swept.over == "occupancy" and p.occupancy) or p.value for p, _ in known],
                [_PER * throughput for _, throughput in known],
                marker=".",
                color=CYCLE[position % len(CYCLE)],
                linestyle=("-", "--", ":")[position // len(CYCLE) % 3],
                linewidth=4 if name == "measured" else None,
                label=name,
            )
    if not panel.lines:
        message = f"no model predicts {swept.kernel} on {swept.device}; to_frame() says why"
        raise ParameterError(message, parameter="models")
    panel.set_ylim(bottom=0)
    if swept.over == "group_size":
        panel.set_xscale("log", base=2)
    y = f"throughput, sub-groups per {_PER} cycles of a compute unit"
    title = f"{swept.kernel} on {swept.device} over {swept.over}"
    _label(figure, title, _AXES[swept.over], y, legend="outside right upper")
    return figure


def draw(result: object, path: Path | str | None = None) -> Figure:
    """Draw a result, and write the picture if a path is given.

    Parameters
    ----------
    result : Prediction, Explanation, Evaluation, TuningResult, ModelAnswers, Sweep or Timing
        A prediction at several sizes is drawn over the size, an explanation as a roofline. Of
        several kernels or devices, a list of ModelAnswers is drawn: a panel for each device.
    path : Path or str, optional
        A file to write; its ending names the format, such as ``.png`` or ``.svg``.

    Raises
    ------
    ParameterError, OutputError, MissingExtraError
        Of this result there is no picture; the file cannot be written; Matplotlib is missing.

    Examples
    --------
    Draw a kernel below the ceilings of its device::

        explanation = countperf.explain("matmul-naive/16x16/f32", n=1024, m=1024, l=1024)
        countperf.draw(explanation, "roofline.svg")
    """
    if path is not None:
        check_figure_path(path)
    several = cast("list[object]", result) if isinstance(result, list) else []
    are_answers = bool(several) and all(isinstance(each, ModelAnswers) for each in several)
    first = several[0] if are_answers else result
    drawer = next((draw for kind, draw in _DRAWERS.items() if isinstance(first, kind)), None)
    if drawer is None:
        named = ", ".join(kind.__name__ for kind in _DRAWERS)
        said = f"there is no picture of a {type(result).__name__}; pictures are of {named}"
        raise ParameterError(said, parameter="result")
    figure = drawer(result)
    if path is not None:
        write_atomically(path, _render(figure, Path(path).suffix.lstrip(".").lower()))
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
    bars = panel.barh(range(len(rows)), [row.time_s / scale for row in rows], color=BLUE)
    panel.bar_label(bars, [row.share for row in rows], padding=3, fontsize=9)
    labels = [fill(f"{row.group}: {row.text}", 34) for row in rows]
    panel.set_yticks(range(len(rows)), labels, fontsize=9)
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.margins(x=0.2)
    panel.set_xlabel(f"time, {unit}s")
    plain_ticks(panel.xaxis)
    figure.suptitle(prediction_title(prediction), fontsize=10)
    return figure


def _draw_explanation(explanation: Explanation) -> Figure:
    slug = explanation.prediction.device
    return roofline_figure(explanation, load_device(slug) if slug in available_devices() else None)


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
        ("cut short", [trial for trial in tried if trial.cut_short], GRAY, "o", 4),
        ("winner", [fastest_of(tried)], RED, "*", 14),
    ):
        if some:
            x, y = np.transpose([(each.predicted_s, each.time_s) for each in some]) / scale
            drawn += compared.plot(x, y, marker, color=color, markersize=size, label=label)
    drawn += compared.plot(ends, ends, color="black", linewidth=0.6, label="as predicted")
    compared.set(xscale="log", yscale="log")
    compared.set(xlabel=f"predicted time, {unit}s", ylabel=f"measured time, {unit}s")
    plain_ticks(compared.xaxis, compared.yaxis)
    best = [time_s / scale for time_s in accumulate(times, min)]
    at = [trial.at_s for trial in tried]
    drawn += progress.step(at, best, where="post", color=GREEN, label="best so far")
    if ranking_s:
        drawn.append(progress.axvspan(0, ranking_s, color=SKY, alpha=0.3, label="predicting"))
    progress.set(yscale="log", xlabel="time spent, s", ylabel=f"best time so far, {unit}s")
    plain_ticks(progress.yaxis)
    figure.legend(handles=drawn, loc="outside lower center", ncols=3, fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure


PURPOSE_MARKS = {"variant": (".", GRAY), "application": ("^", ORANGE), "test": ("o", BLUE)}


def evaluation_figure(evaluation: Evaluation) -> Figure:
    """Draw predicted over measured times with their intervals: a row a kernel, or its variants."""
    rows: dict[str, list[EvaluatedCase]] = {}
    for case in evaluation.cases:
        if case.predicted_s > 0:
            name = case.kernel.split("/")[0] if case.purpose == "variant" else case.kernel
            rows.setdefault(name, []).append(case)
    if not rows:
        raise ParameterError("nothing is predicted: nothing to draw", parameter="figure")
    figure = new_figure((7.0, 1.7 + 0.32 * len(rows)))
    panel = figure.subplots()
    panel.axvline(1.0, color="black", linewidth=0.8)
    marks: dict[str, list[tuple[float, float]]] = {}
    for row, cases in enumerate(rows.values()):
        for number, case in enumerate(sorted(cases, key=lambda case: case.measured_s)):
            place = row + 0.7 * ((number + 0.5) / len(cases) - 0.5)
            if case.interval_s is not None:
                ends = [end / case.measured_s for end in case.interval_s]
                color = PURPOSE_MARKS[case.purpose][1]
                panel.plot(ends, [place, place], color=color, alpha=0.4, linewidth=2)
            marks.setdefault(case.purpose, []).append((case.predicted_s / case.measured_s, place))
    for purpose, places in marks.items():
        marker, color = PURPOSE_MARKS[purpose]
        panel.plot(*zip(*places, strict=True), marker, color=color, markersize=4, gid=purpose)
    panel.set_xscale("log")
    plain_ticks(panel.xaxis)
    panel.set_yticks(range(len(rows)), list(rows), fontsize=9)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.grid(visible=True, axis="x", which="major", alpha=0.3)
    panel.set_xlabel("predicted / measured time (bar: 90 % interval)")
    title = f"{short_name(evaluation.model)} model on {evaluation.device}"
    figure.suptitle(f"{title}\n{fill(evaluation.summary, 60)}", fontsize=10)
    return figure


_DRAWERS: Mapping[type, Callable[..., Figure]] = {
    Prediction: prediction_figure,
    Explanation: _draw_explanation,
    Evaluation: evaluation_figure,
    TuningResult: lambda result: variants_figure(
        result.tried, f"{result.space} on {result.device}", result.ranking_s
    ),
    ModelAnswers: lambda of: model_roofline_figure(of if isinstance(of, list) else [of]),
    Sweep: sweep_figure,
    Timing: timing_figure,
}
