"""Arguments of ``countperf time``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_device, add_instruction_counts, add_kernel, add_model, natural


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    add_instruction_counts(command)
    add_device(command, "by default the working device with the highest copy bandwidth")
    command.add_argument(
        "--weights",
        metavar="SLUG|PATH",
        help="fitted weights that predict: a device's slug or a file; by default those of the"
        " device, if there are any",
    )
    add_model(command)
    command.add_argument(
        "--force", action="store_true", help="use weights that do not match the device"
    )
    command.add_argument(
        "--incomplete",
        action="store_true",
        help="leave properties without a weight out of predictions, and say so",
    )
    command.add_argument(
        "--level",
        type=float,
        choices=(0.9, 0.95),
        default=0.95,
        help="in which share of cases the interval is to hold the time (default: 0.95)",
    )
    command.add_argument(
        "--arguments",
        metavar="FILE:FUNCTION",
        help="a function that takes a random generator and a dictionary of the sizes, and returns"
        " the kernel's inputs by name; by default inputs are made from the kernel's own arguments",
    )
    command.add_argument(
        "--cold", action="store_true", help="flush the caches before each run (default: warm)"
    )
    command.add_argument(
        "--rounds", type=natural, metavar="N", help="rounds of each size, at least (default: 3)"
    )
    command.add_argument(
        "--save", metavar="FILE", help="keep the times as a document, for predict --anchor FILE"
    )
    command.add_argument(
        "--figure", metavar="FILE", help="also draw time over size (.svg, .png, .pdf)"
    )
