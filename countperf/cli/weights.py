"""``countperf weights``."""

from __future__ import annotations

import argparse

from countperf.cli.common import print_json
from countperf.report.doctor import checks_text, weights_table
from countperf.workflow.available_fits import available_weights
from countperf.workflow.probing import check_here


def run(options: argparse.Namespace) -> None:
    """List the fitted weights that there are."""
    if options.check:
        checks = check_here()
        if options.json:
            print_json([check.to_object() for check in checks])
        else:
            print(checks_text(checks))
        return
    found = available_weights()
    if options.json:
        print_json(found.to_objects())
    else:
        print(weights_table(found).text())
