"""``countperf characterize``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_device, print_json
from countperf.cli.progress import ProgressBar


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_device(command, "by default the working device with the highest copy bandwidth")
    command.add_argument(
        "--store",
        required=True,
        metavar="FILE",
        help="the document of all findings (.json); the same command goes on where it stopped",
    )
    command.add_argument(
        "--parameters",
        metavar="FILE",
        help="write the device document alone, which the mechanistic models read (.json)",
    )
    command.add_argument("--quick", action="store_true", help="less effort, larger spreads")
    command.add_argument(
        "--max-seconds", type=float, metavar="S", help="begin no experiment after so long"
    )


def run(options: argparse.Namespace) -> None:
    """Run the microbenchmarks and print what they found."""
    from countperf.report.characterization import characterization_text
    from countperf.workflow.characterizing import characterize

    with ProgressBar() as progress:
        found = characterize(
            store=options.store,
            device=options.device,
            parameters=options.parameters,
            quick=options.quick,
            max_seconds=options.max_seconds,
            progress=progress,
        )
    if options.json:
        print_json(found.to_object())
        return
    print(characterization_text(found.device.name, found.findings, found.left_out))
