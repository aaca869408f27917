"""``countperf measure``."""

from __future__ import annotations

import argparse
import sys

from countperf.cli.common import print_json
from countperf.cli.progress import show_event
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
        progress=show_event,
    )
    unstable = [m.case for m in found if not m.stable]
    failed = {f.case: f.reason for f in found.failures}
    if options.json:
        print_json(
            {
                "device": found.device.slug,
                "store": options.store,
                "measured": len(found),
                "unstable": unstable,
                "failed": failed,
            }
        )
        return
    print(f"{len(found)} cases measured on {found.device.slug} ({found.device.name})")
    print(f"  {options.store}")
    if unstable:
        print(f"  {len(unstable)} did not settle and are marked: {', '.join(unstable[:4])} ...")
    for case, reason in failed.items():
        print(f"  failed: {case}: {reason}")
