"""Arguments of ``countperf sweep``."""

from __future__ import annotations

import argparse

from countperf.cli.arguments.mechanistic import add_device_document
from countperf.cli.common import add_device, add_kernel, natural


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    command.add_argument(
        "--over",
        choices=("occupancy", "group_size", "intensity", "ilp", "mlp"),
        default="occupancy",
        help="the axis: groups resident on a compute unit (default), work items of a group, how"
        " often each operation is executed, work items whose computations (ilp) or memory"
        " instructions (mlp) one work item overlaps",
    )
    command.add_argument(
        "--values", type=_values, metavar="N,N,...", help="values on it (default: those that fit)"
    )
    command.add_argument(
        "--model",
        metavar="NAME[,NAME...]",
        default="all",
        help="mechanistic models (default: all)",
    )
    add_device(command, "its description is taken")
    add_device_document(command, "device and resources")
    command.add_argument(
        "--figure",
        metavar="FILE",
        help="draw the curves with the roofs (.svg, .png, .pdf; needs matplotlib)",
    )


def _values(text: str) -> tuple[int, ...]:
    return tuple(natural(part) for part in text.split(","))
