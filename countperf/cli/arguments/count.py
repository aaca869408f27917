"""Arguments of ``countperf count``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_instruction_counts, add_kernel, natural


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    add_instruction_counts(command)
    command.add_argument(
        "--view",
        choices=("source", "compiled"),
        help="count what Loopy emits (source, the default), or what an optimizing compiler leaves",
    )
    command.add_argument(
        "--analysis",
        action="store_true",
        help="print the structure of the kernel instead: barrier regions, loops, slots, chains, "
        "strides, footprints; at given sizes also transactions and bank conflicts",
    )
    for name, default, text in (
        ("sub-group-size", 32, "work items that access memory together"),
        ("line-bytes", 32, "bytes of a line or sector of global memory"),
        ("banks", 32, "banks of local memory"),
        ("bank-width-bytes", 4, "bytes of a word of a bank"),
    ):
        command.add_argument(
            f"--{name}",
            type=natural,
            default=default,
            metavar="NUMBER",
            help=f"for --analysis: {text} (default: %(default)s)",
        )
