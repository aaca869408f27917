"""Arguments of ``countperf tune``."""

from __future__ import annotations

import argparse

from countperf.cli.arguments.rank import add_space
from countperf.cli.common import natural, positive


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_space(command, is_optional=True)
    command.add_argument(
        "--device",
        metavar="DEVICE",
        help="pocl:0, cuda:0, or part of a name; by default the working device with the highest"
        " copy bandwidth",
    )
    command.add_argument(
        "--budget",
        type=positive,
        metavar="SECONDS",
        help="time to spend, predictions included (default: 60, unless --measurements is given)",
    )
    command.add_argument(
        "--measurements", type=natural, metavar="N", help="variants to build and run at most"
    )
    command.add_argument(
        "--store",
        metavar="FILE",
        help="the search's file (.jsonl); the same command goes on where it stopped",
    )
    command.add_argument(
        "--confidence",
        type=float,
        default=0.95,
        help="confidence at which the search stops (default: 0.95)",
    )
    command.add_argument(
        "--tolerance",
        type=float,
        default=0.02,
        metavar="FRACTION",
        help="do not search for gains below this (default: 0.02)",
    )
    command.add_argument(
        "--complete",
        action="store_true",
        help="leave out variants that have properties without a weight",
    )
    _add_replay(command)
    _add_outcome(command)


def _add_replay(command: argparse.ArgumentParser) -> None:
    """Add the search of recorded times."""
    command.add_argument(
        "--replay",
        metavar="FILE",
        help="instead of a space: search the recorded times in a file of Kernel Tuner, T4 or KTT"
        " (.json, .json.gz), without a device",
    )
    command.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="with --replay: only configurations with this value; several times for several",
    )
    command.add_argument(
        "--prior",
        metavar="FILE",
        help="with --replay: a file with times of the same configurations on another device, which"
        " rank them beforehand",
    )


def _add_outcome(command: argparse.ArgumentParser) -> None:
    """Add the files that are written."""
    command.add_argument(
        "--kernel-tuner-cache",
        metavar="FILE",
        help="write measured variants as a Kernel Tuner cache",
    )
    command.add_argument(
        "--figure",
        metavar="FILE",
        help="draw measured against predicted times, and the best so far (.svg, .png, .pdf)",
    )
    command.add_argument(
        "--export", metavar="FILE", help="write a Python script (.py) that builds the winner"
    )
    command.add_argument("--t4", metavar="FILE", help="write measured variants as T4 results")
