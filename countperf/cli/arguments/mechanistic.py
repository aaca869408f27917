"""Arguments of commands that ask mechanistic models."""

from __future__ import annotations

import argparse

from countperf.cli.common import natural, positive


def add_device_document(parser: argparse.ArgumentParser, title: str) -> None:
    """Add ``--device-document`` and what Loopy does not know of a kernel, in a group of a title."""
    command = parser.add_argument_group(title)
    command.add_argument(
        "--device-document",
        "--on",
        metavar="SLUG|FILE",
        help="described device for mechanistic models: a slug of the catalogue, such as"
        " nvidia-gtx-970, a TOML file, or the output of characterize --parameters",
    )
    command.add_argument(
        "--registers",
        type=natural,
        metavar="N",
        help="registers of a work item (default: from nvcc, if it is installed)",
    )
    command.add_argument(
        "--active-groups",
        type=natural,
        metavar="N",
        help="groups resident on a compute unit (default: as many as the resources allow)",
    )
    command.add_argument(
        "--occupancy",
        type=positive,
        metavar="N",
        help="sub-groups resident on a compute unit (default: as many as the resources allow)",
    )
