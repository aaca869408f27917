"""``countperf measure``."""

from __future__ import annotations

import argparse
import sys

from countperf.cli.common import add_device, print_json
from countperf.cli.progress import ProgressBar


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_device(command, "by default the working device with the highest copy bandwidth")
    command.add_argument(
        "--profile",
        choices=("quick", "paper", "rental", "broad"),
        default="paper",
        help="quick: two minutes, two work-group shapes; rental: for a GPU that is paid by the "
        "minute; paper: the full protocol (default); broad: extended classes and random shapes as "
        "well, for models that are to predict unlike kernels",
    )
    command.add_argument(
        "--store",
        required=True,
        metavar="FILE",
        help="the campaign's file (.jsonl); the same command goes on where it stopped",
    )
    command.add_argument(
        "--family", action="append", default=[], help="only this family of kernels (repeatable)"
    )
    command.add_argument(
        "--purpose",
        action="append",
        default=[],
        choices=("measurement", "test", "application", "variant"),
        help="only kernels for this purpose (repeatable; default: measurement and test, or the "
        "named families); what is not for measurement judges fits and is never fitted",
    )
    command.add_argument(
        "--collection",
        action="append",
        default=[],
        choices=("paper", "extended", "random"),
        help="only the paper's kernels, the extended classes, or the families of random shapes "
        "(repeatable; default: the named families, or what the profile says)",
    )
    command.add_argument(
        "--element-type",
        action="append",
        choices=("f32", "f64"),
        help="the paper's kernels of this element type (repeatable; default: f32)",
    )


_COSTS = {
    "quick": "2 to 4 minutes on two cores",
    "paper": "about 15 minutes on two cores",
    "rental": "about 8 minutes on a GPU",
    "broad": "40 to 55 minutes on two cores",
}
"""Durations of the profiles, measured on processors of two cores (docs/guides/fitting.md)."""


def run(options: argparse.Namespace) -> None:
    """Run the campaign and summarize it."""
    from countperf.workflow.measuring import measure_catalogue

    cost = _COSTS[options.profile]
    print(
        f"countperf: profile {options.profile}: {cost}, on an idle machine; what is finished is"
        " kept if you interrupt it",
        file=sys.stderr,
    )
    with ProgressBar() as progress:
        found = measure_catalogue(
            store=options.store,
            device=options.device,
            profile=options.profile,
            families=options.family,
            element_types=options.element_type or ("f32",),
            purposes=options.purpose,
            collections=options.collection,
            progress=progress,
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
