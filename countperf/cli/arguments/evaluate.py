"""Arguments of ``countperf evaluate``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_model


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.add_argument("measurements", help="a campaign's file (.jsonl) with kernels that judge")
    command.add_argument(
        "--weights", required=True, metavar="SLUG|PATH", help="fitted weights of the same device"
    )
    command.add_argument(
        "--purpose",
        action="append",
        default=[],
        choices=("test", "application", "variant"),
        help="only kernels for this purpose (repeatable; default: all that fits have not seen)",
    )
    add_model(command)
    command.add_argument("--force", action="store_true", help="evaluate weights of another device")
    command.add_argument("--output", metavar="FILE", help="also write the evaluation as a document")
    command.add_argument(
        "--figure", metavar="FILE", help="also draw the errors (.svg, .png, .pdf; needs matplotlib)"
    )
