"""``countperf sweep``."""

from __future__ import annotations

import argparse

from countperf.cli.common import one_point, show
from countperf.cli.mechanistic import check_figures, described, mechanistic_models, profile_options
from countperf.report.mechanistic import sweep as sweep_printed
from countperf.workflow.mechanistic import sweep


def run(options: argparse.Namespace) -> None:
    """Print a table of times, and draw the curves."""
    check_figures(options.figure)
    found = sweep(
        options.kernel,
        described(options),
        one_point(options.parameters, "a sweep"),
        over=options.over,
        models=mechanistic_models(options) or options.model,
        profile_options=profile_options(options),
    )
    show(options, sweep_printed(found))
    if options.figure:
        found.plot(options.figure)
