"""Arguments of ``countperf coverage``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_device, add_kernel, add_model


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    command.add_argument(
        "--weights",
        metavar="SLUG|PATH",
        help="fitted weights: a device's slug or a file; by default those of --device",
    )
    command.add_argument(
        "--measurements",
        metavar="FILE",
        help="what the weights were fitted to (.jsonl), for weights that do not record which "
        "measurements exercise what",
    )
    add_model(command)
    add_device(command, "without it, the weights' device is meant")
    command.add_argument(
        "--force", action="store_true", help="use weights that do not match the device"
    )
