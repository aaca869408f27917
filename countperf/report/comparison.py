"""A comparison of models as text, as a JSON-able object and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.documents import write_atomically
from countperf.errors import MissingExtraError, ParameterError
from countperf.report.numbers import format_percent, format_table

if TYPE_CHECKING:
    from countperf.fitting.comparison import Comparison, ModelResult


def comparison_text(comparison: Comparison) -> str:
    """Write one row per model and level: errors overall and by test kernel, then what is lacking.

    Errors are geometric means of relative errors over the sizes of each test kernel; MAPE is the
    arithmetic mean; MAPE_shape that of the shape of throughput over occupancy, a mean over the
    families of measurement kernels that were measured at three or more occupancies. A dash: the
    model does not predict the kernel.
    """
    kernels = list(dict.fromkeys(c.kernel for m in comparison.models for c in m.cases))
    heads = ["model", "constants", "overall", "MAPE", "in sample", "MAPE_shape"]
    rows = [[*heads, *map(_short, kernels)]]
    for result in comparison.models:
        overall = result.overall()
        mape = result.mape()
        by_kernel = result.by_kernel()
        shapes = list(result.shape_errors.values())
        if overall is None:
            continue
        rows.append(
            [
                result.model,
                result.level,
                format_percent(overall.value),
                "-" if mape is None else format_percent(mape / 100),
                "-" if result.in_sample is None else format_percent(result.in_sample),
                format_percent(sum(shapes) / len(shapes) / 100) if shapes else "-",
                *(format_percent(by_kernel[k].value) if k in by_kernel else "-" for k in kernels),
            ]
        )
    parts = [
        f"{comparison.device}: {comparison.test_cases} cases of test kernels, calibrated on "
        f"{comparison.measurement_cases} cases of measurement kernels",
        format_table(rows, right=tuple(range(2, len(rows[0])))),
    ]
    parts += _gaps(comparison)
    return "\n".join(parts)


def _gaps(comparison: Comparison) -> list[str]:
    """Say once for each reason which models and kernels have no prediction."""
    found: dict[str, dict[str, None]] = {}
    for m in comparison.models:
        if m.lacking:
            found.setdefault(m.lacking, {})[f"{m.model} ({m.level})"] = None
    lines = [f"no predictions of {', '.join(who)}: {reason}" for reason, who in found.items()]
    found = {}
    for m in comparison.models:
        for kernel, reason in m.refusals.items():
            found.setdefault(f"of {_short(kernel)}: {reason}", {})[f"{m.model} ({m.level})"] = None
    lines += [f"{', '.join(who)}: no prediction {what}" for what, who in found.items()]
    found = {}
    for kernel, reason in comparison.unprofiled.items():
        found.setdefault(reason, {})[kernel] = None
    lines += [f"no profile of {', '.join(which)}: {reason}" for reason, which in found.items()]
    return lines


def _short(kernel: str) -> str:
    return kernel.split("/")[0]


def comparison_object(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return ``{"comparisons": [...]}``: each device's document, with the means of each model."""
    return {
        "comparisons": [
            {
                **comparison.to_object(),
                "geometric_mean": [
                    {
                        "model": result.model,
                        "level": result.level,
                        "overall": _value(result),
                        "mape_percent": result.mape(),
                        "by_kernel": {k: e.value for k, e in result.by_kernel().items()},
                    }
                    for result in comparison.models
                ],
            }
            for comparison in comparisons
        ]
    }


def _value(result: ModelResult) -> float | None:
    overall = result.overall()
    return None if overall is None else overall.value


def comparison_figure(comparisons: Sequence[Comparison], path: Path | str) -> None:
    """Draw the overall errors: a panel for each device, a row for each model, a mark per level.

    Parameters
    ----------
    comparisons : sequence of Comparison
        At least one.
    path : Path or str
        Where to write the figure; the ending chooses the format (.svg, .png, .pdf).

    Raises
    ------
    ParameterError
        There is nothing to draw, or the ending is of no format that matplotlib writes.
    MissingExtraError
        Matplotlib is not installed.
    """
    figure = new_figure()
    check_figure_path(path)
    shown = [c for c in comparisons if any(m.cases for m in c.models)]
    if not shown:
        raise ParameterError("no model predicts anything: nothing to draw", parameter="figure")
    models = list(dict.fromkeys(m.model for c in shown for m in c.models if m.cases))
    figure.set_size_inches(4.5 * len(shown) + 2, 1.5 + 0.3 * len(models))
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for panel, comparison in zip(panels, shown, strict=True):
        for level, (marker, color) in _MARKS.items():
            points = [
                (100 * overall.value, models.index(m.model))
                for m in comparison.models
                if m.level == level and (overall := m.overall()) is not None
            ]
            if points:
                errors, rows = zip(*points, strict=True)
                panel.plot(
                    errors, rows, marker, color=color, label=level, linestyle="none", gid=level
                )
        panel.set_xscale("log")
        panel.set_xlabel("geometric mean of relative errors, test kernels, %")
        panel.set_title(comparison.device)
        panel.grid(visible=True, axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(models)), models)
    panels[0].invert_yaxis()
    panels[-1].legend(title="constants")
    save_figure(figure, path)


def check_figure_path(path: Path | str) -> None:
    """Refuse a file name that no figure can be written to; errors as in `comparison_figure`."""
    supported = new_figure().canvas.get_supported_filetypes()
    ending = Path(path).suffix.lstrip(".").lower()
    if ending not in supported:
        raise ParameterError(
            f"{path}: a figure cannot be written as {ending or 'a file without an ending'!r}; end "
            f"its name in one of {', '.join(sorted(supported))}",
            parameter="figure",
        )


def save_figure(figure: Any, path: Path | str) -> None:
    """Write a figure; the ending of the file's name chooses the format.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    content = BytesIO()
    figure.savefig(content, format=Path(path).suffix.lstrip(".").lower())
    write_atomically(path, content.getvalue())


def new_figure() -> Any:
    """Return an empty figure that needs no screen.

    Raises
    ------
    MissingExtraError
        Matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            "drawing needs matplotlib; install it with: pip install 'countperf[plot]'",
            extra="plot",
        ) from error
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    return figure


# shapes too, for who cannot tell the colors apart (Okabe & Ito 2008)
_MARKS = {"published": ("o", "#0072b2"), "scaled": ("^", "#e69f00"), "fitted": ("s", "#009e73")}
