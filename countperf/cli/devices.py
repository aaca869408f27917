"""``countperf devices``."""

from __future__ import annotations

import argparse

from countperf.cli.common import print_json
from countperf.report.rows import Printed
from countperf.workflow.devices import absences, devices


def run(options: argparse.Namespace) -> None:
    """List the devices."""
    rows = [
        {"device": found.label, "slug": found.identity.slug, "name": found.identity.name}
        for found in devices()
    ]
    notes = [f"no {each.label_prefix} device: {each.problem}; {each.advice}" for each in absences()]
    if options.json:
        print_json(rows)
    else:
        none = [] if rows else ["no device; 'countperf doctor' says what to do"]
        print(Printed(head=none, rows=rows, notes=notes).text())
