"""``countperf occupancy``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_device, add_kernel, one_point, print_json
from countperf.cli.mechanistic import add_device_document, described, profile_options


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    add_device(command, "its description is taken")
    add_device_document(command, "device and resources")


def run(options: argparse.Namespace) -> None:
    """Print what is resident, what limits it, and what would make more resident."""
    from countperf.report.mechanistic import occupancy_object, occupancy_text
    from countperf.workflow.mechanistic import occupancy

    found = occupancy(
        options.kernel,
        described(options),
        one_point(options.parameters, "occupancy"),
        profile_options=profile_options(options),
    )
    if options.json:
        print_json(occupancy_object(found))
    else:
        print(occupancy_text(found))
