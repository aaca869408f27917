"""``countperf characterize``."""

from __future__ import annotations

import argparse

from countperf.cli.common import show
from countperf.documents import check_writable
from countperf.harness.characterization.suite import characterize
from countperf.harness.devices import find_device, open_session
from countperf.report.weights import characterization


def run(options: argparse.Namespace) -> None:
    """Run the microbenchmarks and print what they found."""
    check_writable(options.store, options.parameters)
    session = open_session(find_device(options.device))
    found = characterize(session, store=options.store)
    if options.parameters is not None:
        found.parameters.write_file(options.parameters)
    show(options, characterization(found))
