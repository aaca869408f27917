"""``countperf weights``."""

from __future__ import annotations

import argparse

from countperf.cli.common import print_json


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.add_argument(
        "--check",
        action="store_true",
        help="measure bandwidth and clock of this machine (about a second), and say whether the"
        " weights for its devices fit them",
    )


def run(options: argparse.Namespace) -> None:
    """List the fitted weights that there are."""
    from countperf.report.weights_table import checks_text, weights_table_text

    if options.check:
        from countperf.workflow.probing import check_here

        checks = check_here()
        if options.json:
            print_json([check.to_object() for check in checks])
        else:
            print(checks_text(checks))
        return
    from countperf.workflow.available_fits import available_weights

    found = available_weights()
    if options.json:
        print_json(found.to_objects())
    else:
        print(weights_table_text(found))
