"""``countperf rank``."""

from __future__ import annotations

import argparse
import json
import sys

from countperf.cli.common import as_dict, show
from countperf.cli.mechanistic import asked_cost
from countperf.documents import check_writable, write_atomically
from countperf.report.rows import plain
from countperf.report.tuning import point as point_row
from countperf.report.tuning import ranking as ranking_printed
from countperf.workflow.tuning import rank


def run(options: argparse.Namespace) -> None:
    """Predict all points and print the best."""
    check_writable(options.output)  # before the work, not after it
    lines: list[str] = []
    ranking = rank(
        options.space,
        as_dict(options.parameters),
        weights=asked_cost(options, options.device),
        device=options.device,
        force=options.force,
        incomplete_ok=options.incomplete,
        points=options.points,
        by_code=options.by_code,
        workers=options.workers,
        longest_s=options.longest,
        on_point=None
        if options.output is None
        else lambda point: lines.append(json.dumps(plain(point_row(point))) + "\n"),
    )
    if options.output is not None:
        write_atomically(options.output, "".join(lines))
    ranking.check_predicted()
    if ranking.model_choice:
        print(f"countperf: {ranking.model_choice}", file=sys.stderr)
    show(options, ranking_printed(ranking, written_to=options.output))
