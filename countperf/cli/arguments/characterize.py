"""Arguments of ``countperf characterize``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_device, positive


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
        "--max-seconds", type=positive, metavar="S", help="begin no experiment after so long"
    )
