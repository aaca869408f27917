"""``countperf occupancy``."""

from __future__ import annotations

import argparse

from countperf.cli.common import one_point, show
from countperf.cli.mechanistic import described, profile_options
from countperf.report.mechanistic import occupancy as occupancy_printed
from countperf.workflow.mechanistic import occupancy


def run(options: argparse.Namespace) -> None:
    """Print what is resident, what limits it, and what would make more resident."""
    found = occupancy(
        options.kernel,
        described(options),
        one_point(options.parameters, "occupancy"),
        profile_options=profile_options(options),
    )
    show(options, occupancy_printed(found))
