"""``countperf devices``."""

from __future__ import annotations

import argparse

from countperf.cli.common import print_json
from countperf.report.rows import Printed
from countperf.workflow.devices import absences, devices


def run(options: argparse.Namespace) -> None:
    """List the devices."""
    rows = [
        {"device": device.label, "slug": device.identity.slug, "name": device.identity.name}
        for device in devices()
    ]
    notes = [
        f"no {absence.label_prefix} device: {absence.problem}; {absence.advice}"
        for absence in absences()
    ]
    if options.json:
        print_json(rows)
    else:
        none = [] if rows else ["no device; 'countperf doctor' says what to do"]
        print(Printed(head=none, rows=rows, notes=notes).text())
