"""``countperf sweep``."""

from __future__ import annotations

import argparse

from countperf.cli.common import one_point, print_json
from countperf.cli.mechanistic import check_figures, described, mechanistic_models, profile_options
from countperf.report.mechanistic import sweep_object, sweep_text
from countperf.workflow.mechanistic import sweep


def run(options: argparse.Namespace) -> None:
    """Print a table of times, and draw the curves."""
    check_figures(options.figure)
    found = sweep(
        options.kernel,
        described(options),
        one_point(options.parameters, "a sweep"),
        over=options.over,
        values=options.values,
        models=mechanistic_models(options) or options.model,
        profile_options=profile_options(options),
    )
    if options.json:
        print_json(sweep_object(found))
    else:
        print(sweep_text(found))
    if options.figure:
        found.plot(options.figure)
