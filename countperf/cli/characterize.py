"""``countperf characterize``."""

from __future__ import annotations

import argparse

from countperf.cli.common import print_json
from countperf.cli.progress import show_event
from countperf.report.doctor import characterization_text
from countperf.workflow.characterizing import characterize


def run(options: argparse.Namespace) -> None:
    """Run the microbenchmarks and print what they found."""
    found = characterize(
        store=options.store,
        device=options.device,
        parameters=options.parameters,
        quick=options.quick,
        max_seconds=options.max_seconds,
        progress=show_event,
    )
    if options.json:
        print_json(found.to_object())
        return
    print(characterization_text(found))
