"""Arguments of ``countperf application``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_longest, natural


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.add_argument(
        "application",
        help="file with a step in each line: h2d BYTES, d2h BYTES, kernel KERNEL n=1024; each may"
        " have stream=NAME, device=NUMBER, name=NAME, after=NAME,NAME",
    )
    command.add_argument(
        "--on",
        "--device-document",
        dest="device_documents",
        action="append",
        metavar="SLUG|FILE",
        default=[],
        help="described device, such as nvidia-gtx-970; several times for devices 0, 1, ...",
    )
    command.add_argument(
        "--model", metavar="NAME", default="merpsys", help="model of kernels (default: merpsys)"
    )
    command.add_argument(
        "--registers", type=natural, metavar="N", help="registers of a work item, of all kernels"
    )
    command.add_argument(
        "--device",
        metavar="NAME",
        help="also measure the steps on this device, one by one and together: pocl:0, intel:0,"
        " cuda:0, or a part of a name",
    )
    add_longest(command, "what is measured together after so long (default: 300)")
    command.add_argument(
        "--figure", metavar="FILE", help="draw the schedules (.svg, .png, .pdf; needs matplotlib)"
    )
