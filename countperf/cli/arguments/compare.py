"""Arguments of ``countperf compare``."""

from __future__ import annotations

import argparse

from countperf.cli.common import natural


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.add_argument(
        "measurements",
        nargs="*",
        metavar="SLUG|FILE",
        help="devices with a shipped fit, or campaigns' files (.jsonl); by default all shipped",
    )
    command.add_argument(
        "--model",
        action="append",
        metavar="NAME[,NAME...]",
        help="only these models (several times); by default all",
    )
    command.add_argument(
        "--level",
        action="append",
        choices=("published", "scaled", "fitted"),
        help="only these levels of calibration (several times); fitting takes minutes",
    )
    command.add_argument(
        "--purpose",
        action="append",
        choices=("test", "application", "variant"),
        help="errors on kernels for this purpose (repeatable; default: test)",
    )
    command.add_argument(
        "--kernel",
        metavar="KERNEL",
        help="errors on a kernel of yours instead: path/file.py:function or"
        " package.module:function; by default on the device of --timing",
    )
    command.add_argument(
        "--timing",
        metavar="FILE",
        help="measured times of --kernel: what countperf time KERNEL n=... --save FILE wrote",
    )
    command.add_argument(
        "--registers", type=natural, metavar="N", help="registers of a work item of --kernel"
    )
    command.add_argument(
        "--every",
        type=natural,
        default=1,
        metavar="N",
        help="calibrate mechanistic models on one of N measurements, in less time (default: 1)",
    )
    command.add_argument("--output", metavar="FILE", help="also write the comparison as a document")
    command.add_argument(
        "--figure", metavar="FILE", help="also draw the errors (.svg, .png, .pdf; needs matplotlib)"
    )
