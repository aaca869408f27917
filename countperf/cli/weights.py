"""``countperf weights``."""

from __future__ import annotations

import argparse

from countperf.cli.common import print_json
from countperf.report.weights import available
from countperf.workflow.fits import available_weights


def run_weights(options: argparse.Namespace) -> None:
    """List the fitted weights that there are."""
    fits = available_weights()
    shown = available(fits)
    if options.json:
        print_json(shown.object()["fits"])
    else:
        print(shown.text())
