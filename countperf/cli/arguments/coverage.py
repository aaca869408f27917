"""Arguments of ``countperf coverage``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_device, add_kernel, add_model, add_weights


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    add_weights(command)
    command.add_argument(
        "--measurements",
        metavar="FILE",
        help="what the weights were fitted to (.jsonl), for weights that do not record which "
        "measurements exercise what",
    )
    add_model(command)
    add_device(command, "without it, the weights' device is meant")
