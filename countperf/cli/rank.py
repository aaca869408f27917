"""``countperf rank``."""

from __future__ import annotations

import argparse
import json
import sys

from countperf.cli.common import as_dict, in_options, print_json
from countperf.cli.mechanistic import asked_cost
from countperf.documents import LineFile, check_writable
from countperf.report.drawing import check_figure_path
from countperf.report.tuning import point_object, ranking_object, ranking_text
from countperf.workflow.tuning import rank


def run(options: argparse.Namespace) -> None:
    """Predict all points and print the best."""
    if options.figure is not None:
        check_figure_path(options.figure)
    check_writable(options.figure)
    with LineFile(options.output) as file:
        ranking = rank(
            options.space,
            as_dict(options.parameters),
            weights=asked_cost(options, options.device),
            device=options.device,
            force=options.force,
            incomplete_ok=options.incomplete,
            keep=options.top,
            points=options.points,
            by_code=options.by_code,
            workers=options.workers,
            longest_s=60.0 if options.longest is None else options.longest,
            on_point=None
            if options.output is None
            else lambda point: file.write(json.dumps(point_object(point))),
        )
    ranking.check_predicted()
    if ranking.model_choice:
        print(f"countperf: {ranking.model_choice}", file=sys.stderr)
    if options.json:
        print_json(ranking_object(ranking))
    else:
        print(in_options(ranking_text(ranking, written_to=options.output), options))
    if options.figure is not None:
        ranking.plot(options.figure)
    if file.failure is not None:
        raise file.failure
