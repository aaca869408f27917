"""What a search saw and did, drawn."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from countperf.report.comparison import check_figure_path, new_figure, save_figure

if TYPE_CHECKING:
    from countperf.tuning.result import TuningResult

_TRIED, _CUT, _WINNER = "#0072b2", "#999999", "#d55e00"


def draw_tuning(result: TuningResult, path: Path | str) -> None:
    """Draw measured against predicted times, the winner marked, and the best so far against time.

    Parameters
    ----------
    result : TuningResult
        What was found.
    path : Path or str
        Where to write the figure; the ending chooses the format (.svg, .png, .pdf).

    Raises
    ------
    ParameterError
        The ending is of no format that matplotlib writes.
    MissingExtraError
        Matplotlib is not installed.
    """
    figure = new_figure()
    check_figure_path(path)
    figure.set_size_inches(9, 4)
    compared, progress = figure.subplots(1, 2)
    for cut_short, color, label in ((False, _TRIED, "ran"), (True, _CUT, "stopped early")):
        some = [tried for tried in result.tried if tried.cut_short == cut_short]
        if some:
            compared.plot(
                [1e3 * tried.predicted_s for tried in some],
                [1e3 * tried.time_s for tried in some],
                "o",
                color=color,
                label=label,
                gid=label.replace(" ", "-"),
            )
    winner = result.winner
    compared.plot(
        [1e3 * winner.predicted_s],
        [1e3 * winner.time_s],
        "*",
        color=_WINNER,
        markersize=14,
        label="winner",
        gid="winner",
    )
    compared.set(xscale="log", yscale="log", xlabel="predicted, ms", ylabel="measured, ms")
    compared.legend()
    progress.step(
        [tried.at_s for tried in result.tried],
        list(accumulate((1e3 * tried.time_s for tried in result.tried), min)),
        where="post",
        color=_TRIED,
        gid="best-so-far",
    )
    progress.axvspan(0, result.ranking_s, color=_CUT, alpha=0.3, label="predicting")
    progress.set(yscale="log", xlabel="time spent, s", ylabel="best so far, ms")
    progress.legend()
    figure.suptitle(f"{result.space} on {result.device}")
    save_figure(figure, path)
