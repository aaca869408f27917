"""``countperf occupancy``."""

from __future__ import annotations

import argparse

from countperf.cli.common import in_options, one_point, print_json
from countperf.cli.mechanistic import described, profile_options
from countperf.report.mechanistic import occupancy_object, occupancy_text
from countperf.workflow.mechanistic import occupancy


def run(options: argparse.Namespace) -> None:
    """Print what is resident, what limits it, and what would make more resident."""
    found = occupancy(
        options.kernel,
        described(options),
        one_point(options.parameters, "occupancy"),
        profile_options=profile_options(options),
    )
    if options.json:
        print_json(occupancy_object(found))
    else:
        print(in_options(occupancy_text(found), options))
