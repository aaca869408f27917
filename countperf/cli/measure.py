"""``countperf measure``."""

from __future__ import annotations

import argparse
import sys

from countperf.cli.common import show
from countperf.report.rows import Printed
from countperf.workflow.measuring import measure_catalogue

_COSTS = {
    "quick": "2 to 4 minutes on two cores",
    "broad": "20 to 28 minutes on two cores",
    "trial": "about half a minute, too little for a fit to be relied on",
}
"""Durations of the profiles, measured on processors of two cores (docs/guides/fitting.md)."""


def run(options: argparse.Namespace) -> None:
    """Run the campaign and summarize it."""
    cost = _COSTS[options.profile]
    print(
        f"countperf: profile {options.profile}: {cost}, on an idle machine; what is finished is"
        " kept if you interrupt it (weights in three minutes: countperf calibrate)",
        file=sys.stderr,
    )
    found = measure_catalogue(
        store=options.store,
        device=options.device,
        profile=options.profile,
        families=options.family,
        element_types=options.element_type or ("f32",),
        purposes=options.purpose,
        collections=options.collection,
    )
    unstable = [m.case for m in found if not m.stable]
    failed = {f.case: f.reason for f in found.failures}
    where = f"on {found.device.slug} ({found.device.name}), {len(unstable)} of which did not settle"
    shown = Printed(
        head=[f"{len(found)} cases measured {where}: {options.store}"],
        notes=[f"failed: {case}: {reason}" for case, reason in failed.items()],
        facts={
            "device": found.device.slug,
            "store": options.store,
            "measured": len(found),
            "unstable": unstable,
            "failed": failed,
        },
    )
    show(options, shown)
