"""``countperf weights``."""

from __future__ import annotations

import argparse

from countperf.cli.common import print_json


def configure(command: argparse.ArgumentParser) -> None:
    """Add no further arguments."""
    del command


def run(options: argparse.Namespace) -> None:
    """List the fitted weights that there are."""
    from countperf.available import available_weights
    from countperf.report.weights_table import weights_table_text

    found = available_weights()
    if options.json:
        print_json(found.to_objects())
    else:
        print(weights_table_text(found))
