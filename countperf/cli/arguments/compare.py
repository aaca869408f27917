"""Arguments of ``countperf compare``."""

from __future__ import annotations

import argparse


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
        metavar="NAME",
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
    command.add_argument("--output", metavar="FILE", help="also write the comparison as a document")
    command.add_argument(
        "--figure", metavar="FILE", help="also draw the errors (.svg, .png, .pdf; needs matplotlib)"
    )
