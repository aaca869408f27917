"""Arguments of ``countperf calibrate``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_device, positive, size


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_device(command, "by default the working device with the highest copy bandwidth")
    command.add_argument(
        "--minutes",
        type=positive,
        default=3.0,
        metavar="NUMBER",
        help="time for building, measuring, reading code and fitting together; 1 to 60"
        " (default: 3). The same command again measures further kernels",
    )
    command.add_argument(
        "--name",
        metavar="NAME",
        help="name of the fit among your own, for --weights mine/NAME (default: the device's slug)",
    )
    command.add_argument(
        "--for",
        dest="serve",
        action="append",
        default=[],
        metavar="FILE.py:NAME",
        help="first measure kernels that are informative about this one, at the given sizes"
        " (repeatable)",
    )
    command.add_argument(
        "sizes", nargs="*", type=size, metavar="name=value", help="sizes of the kernels of --for"
    )
    command.add_argument(
        "--store",
        metavar="FILE",
        help="where measurements are kept (.jsonl; default: in the user's data folder)",
    )
    command.add_argument(
        "--busy",
        action="store_true",
        help="go on although other programs use the machine: times that do not settle are used as"
        " well, and intervals are wider",
    )
