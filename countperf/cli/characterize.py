"""``countperf characterize``."""

from __future__ import annotations

import argparse

from countperf.cli.common import show
from countperf.cli.progress import show_event
from countperf.report.weights import characterization
from countperf.workflow.characterizing import characterize


def run(options: argparse.Namespace) -> None:
    """Run the microbenchmarks and print what they found."""
    found = characterize(
        store=options.store,
        device=options.device,
        parameters=options.parameters,
        progress=show_event,
    )
    show(options, characterization(found))
