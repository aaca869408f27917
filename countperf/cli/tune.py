"""``countperf tune`` and ``countperf rank``."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from countperf.api.searching import rank, tune
from countperf.cli.common import as_dict, given, say, show
from countperf.figures import check_outputs, draw
from countperf.store import check_writable, write_atomically
from countperf.text import plain
from countperf.tuning.ranker import lay_out_point
from countperf.tuning.result import SearchInterrupt

if TYPE_CHECKING:
    from countperf.tuning.result import TuningResult


def run_tune(options: argparse.Namespace) -> None:
    """Search and print the winner, and how sure it is."""
    check_outputs(options.figure, options.store)
    seconds = options.budget
    if seconds is None and options.measurements is None:
        seconds = 60.0
    try:
        result = tune(
            options.space,
            as_dict(options.parameters),
            seconds=seconds,
            statistics=as_dict(options.statistics) or None,
            progress=say,
            **given(options, "measurements", "device", "weights", "model", "force", "store"),
            **given(options, "longest_s"),
        )
    except SearchInterrupt as error:
        if error.result is not None:
            _show(options, error.result)
        raise
    _show(options, result)


def _show(options: argparse.Namespace, result: TuningResult) -> None:
    show(options, result.lay_out())
    if options.figure is not None:
        draw(result, options.figure)


def run_rank(options: argparse.Namespace) -> None:
    """Predict all points and print the best."""
    check_writable(options.output)  # before the work, not after it
    lines: list[str] = []
    ranking = rank(
        options.space,
        as_dict(options.parameters),
        statistics=as_dict(options.statistics) or None,
        **given(options, "device", "weights", "model", "force", "points"),
        **given(options, "incomplete_ok", "longest_s"),
        on_point=None
        if options.output is None
        else lambda point: lines.append(json.dumps(plain(lay_out_point(point))) + "\n"),
    )
    if options.output is not None:
        write_atomically(options.output, "".join(lines))
    ranking.check_predicted()
    kept = f"{options.output} has" if options.output else "--output FILE writes down"
    show(options, ranking.lay_out(kept=kept))
