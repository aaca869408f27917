"""``countperf coverage``."""

from __future__ import annotations

import argparse

from countperf.cli.common import as_dict, points, show, show_all
from countperf.report.accuracy import coverage as coverage_printed
from countperf.workflow.analyzing import coverage
from countperf.workflow.prediction import Target


def run(options: argparse.Namespace) -> None:
    """Print the verdict first, then a row for each feature; one size after another."""
    at = points(options.parameters)
    named = Target(weights=options.weights, device=options.device, model=options.model)
    weights = named.loaded()
    found = [
        coverage_printed(
            coverage(
                options.kernel,
                point,
                weights=weights,
                device=options.device,
                force=options.force,
                statistics=as_dict(options.statistics) or None,
            )
        )
        for point in at
    ]
    if len(found) == 1:
        show(options, found[0])
    else:
        show_all(options, found)
