"""Common parts of all figures: an empty figure, colors, plain ticks, files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.documents import write_atomically
from countperf.errors import MissingExtraError, ParameterError
from countperf.report.rows import si_prefix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PINK, RED, SKY, YELLOW, GRAY = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#999999"),
)
CYCLE = (BLUE, ORANGE, GREEN, PINK, RED, SKY, YELLOW, "#000000")
"""Colors that are told apart by color-blind readers, too (Okabe & Ito, 2008)."""


def check_figure_path(path: Path | str) -> None:
    """Refuse a file name that no figure can be written to."""
    supported = new_figure((1, 1)).canvas.get_supported_filetypes()
    ending = Path(path).suffix.lstrip(".").lower()
    if ending not in supported:
        raise ParameterError(
            f"{path}: a figure cannot be written as {ending or 'a file without an ending'!r}; end "
            f"its name in one of {', '.join(sorted(supported))}",
            parameter="figure",
        )


def save_figure(figure: Figure, path: Path | str) -> None:
    """Write a figure; the ending of the file's name chooses the format."""
    content = BytesIO()
    figure.savefig(content, format=Path(path).suffix.lstrip(".").lower())
    write_atomically(path, content.getvalue())


def svg_text(figure: Figure) -> str:
    """Return a figure as an ``svg`` element whose words are text, to be put into a page."""
    from matplotlib import rc_context

    content = BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "countperf"}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    text = content.getvalue().decode("utf-8")
    return text[text.index("<svg") :]


def new_figure(size: tuple[float, float]) -> Figure:
    """Return an empty figure that needs no screen, of a size in inches."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        figure_class = _figure_class()
    except ImportError as error:
        raise MissingExtraError(
            "drawing needs matplotlib; install it with: pip install 'countperf[plot]'",
            extra="plot",
        ) from error
    figure = figure_class(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


@cache
def _figure_class() -> type[Figure]:
    """Return the class of our figures; it is made here, since matplotlib is an optional extra."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """A figure that notebooks show although pyplot does not know it."""

        def _repr_png_(self) -> bytes:
            content = BytesIO()
            self.savefig(content, format="png", dpi=_NOTEBOOK_DPI)
            return content.getvalue()

    return ShownFigure


_NOTEBOOK_DPI = 110


def plain_ticks(axis: Any) -> None:
    """Label the ticks of an axis with plain numbers, few of them where it is logarithmic."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_formatter(FuncFormatter(_plain))
    if axis.get_scale() != "log":
        return
    low, high = axis.get_view_interval()
    decades = math.log10(high / low) if low > 0 else 9.0
    subs = (1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)
    if decades < 1:
        subs = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
    axis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axis.set_minor_formatter(NullFormatter())


def plain_both(panel: Axes) -> None:
    """Label the ticks of both axes of a panel with plain numbers."""
    plain_ticks(panel.xaxis)
    plain_ticks(panel.yaxis)


def _plain(value: float, _: int | None = None) -> str:
    """Write a number without an exponent."""
    rounded = float(f"{value:.4g}")
    return np.format_float_positional(rounded, trim="-")


def scale_of(times_s: Sequence[float]) -> tuple[float, str]:
    """Return the SI prefix, and its value, under which the largest of some times is read well."""
    largest = max(map(abs, times_s))
    exponent = max(-12, min(0, 3 * math.floor(math.log10(largest) / 3))) if largest > 0 else 0
    return 10.0**exponent, si_prefix(exponent)
