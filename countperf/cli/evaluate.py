"""``countperf evaluate``: errors, and how well variants of a kernel are ranked."""

from __future__ import annotations

import argparse

from countperf.cli.common import print_json
from countperf.documents import check_writable
from countperf.measurements import MeasurementSet
from countperf.report.accuracy import evaluation as evaluation_printed
from countperf.report.accuracy import ranking_evaluation
from countperf.report.curves import check_figure_path
from countperf.workflow.fitting import evaluate, evaluate_ranking


def run(options: argparse.Namespace) -> None:
    """Evaluate and print predicted against measured times, and the order of variants."""
    if options.figure:
        check_figure_path(options.figure)
    check_writable(options.output, options.figure)  # before the work, not after it
    measurements = MeasurementSet.read_file(options.measurements)
    evaluation = evaluate(
        measurements,
        weights=options.weights,
        model=options.model,
        force=options.force,
        purposes=options.purpose,
    )
    ranking = evaluate_ranking(
        measurements, weights=options.weights, model=options.model, force=options.force
    )
    shown = evaluation_printed(evaluation)
    is_ranked = bool(ranking.sets) and "variant" in (options.purpose or ["variant"])
    ranked = ranking_evaluation(ranking) if is_ranked else None
    if options.json:
        print_json(shown.object() | ({} if ranked is None else {"ranking": ranked.object()}))
    else:
        print(shown.text() + ("" if ranked is None else f"\n\n{ranked.text()}"))
    if options.output:
        evaluation.write_file(options.output)
    if options.figure:
        evaluation.plot(options.figure)
