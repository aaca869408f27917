"""Arguments of ``countperf time``."""

from __future__ import annotations

import argparse

from countperf.cli.common import (
    add_completeness,
    add_device,
    add_instruction_counts,
    add_kernel,
    add_level,
    add_longest,
    add_model,
    add_weights,
    natural,
)


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    add_instruction_counts(command)
    add_device(command, "by default the working device with the highest copy bandwidth")
    add_weights(command)
    add_model(command)
    add_completeness(command)
    add_level(command)
    command.add_argument(
        "--arguments",
        metavar="FILE:FUNCTION",
        help="a function that takes a random generator and a dictionary of the sizes, and returns"
        " the kernel's inputs by name; by default inputs are made from the kernel's own arguments",
    )
    command.add_argument(
        "--rounds", type=natural, metavar="N", help="rounds of each size, at least (default: 3)"
    )
    add_longest(
        command,
        "a kernel that takes longer than this to build and check, or for one round of runs"
        " (default: 300)",
    )
    command.add_argument(
        "--save", metavar="FILE", help="keep the times as a document, for predict --anchor FILE"
    )
    command.add_argument(
        "--figure", metavar="FILE", help="also draw time over size (.svg, .png, .pdf)"
    )
