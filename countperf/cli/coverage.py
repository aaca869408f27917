"""``countperf coverage``."""

from __future__ import annotations

import argparse

from countperf.cli.common import as_dict, in_options, points, print_json
from countperf.report.coverage import coverage_object, coverage_text
from countperf.report.numbers import point_text
from countperf.workflow.analyzing import coverage
from countperf.workflow.target import Target


def run(options: argparse.Namespace) -> None:
    """Print the verdict first, then a row for each feature; one size after another."""
    at = points(options.parameters)
    named = Target(weights=options.weights, device=options.device, model=options.model)
    weights = named.loaded()
    found = [
        coverage(
            options.kernel,
            point,
            weights=weights,
            measurements=options.measurements,
            device=options.device,
            force=options.force,
            statistics=as_dict(options.statistics) or None,
        )
        for point in at
    ]
    if options.json:
        objects = [coverage_object(each) for each in found]
        print_json(objects[0] if len(objects) == 1 else {"sizes": objects})
        return
    texts = [coverage_text(each) for each in found]
    if len(texts) > 1:
        texts = [f"{point_text(point)}\n{text}" for point, text in zip(at, texts, strict=True)]
    print(in_options("\n\n".join(texts), options))
