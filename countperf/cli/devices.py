"""``countperf devices``."""

from __future__ import annotations

import argparse

from countperf.cli.common import print_json
from countperf.report.numbers import format_table
from countperf.workflow.devices import absences, devices


def run(options: argparse.Namespace) -> None:
    """List the devices."""
    found = devices()
    if options.json:
        print_json(
            [{"device": d.label, "slug": d.identity.slug, "name": d.identity.name} for d in found]
        )
        return
    rows = [[d.label, d.identity.slug, d.identity.name] for d in found]
    print(format_table(rows) if rows else "no device; 'countperf doctor' says what to do")
    for absence in absences():
        print(f"no {absence.label_prefix} device: {absence.problem}; {absence.advice}")
