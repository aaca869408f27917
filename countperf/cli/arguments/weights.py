"""Arguments of ``countperf weights``."""

from __future__ import annotations

import argparse


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.add_argument(
        "--check",
        action="store_true",
        help="measure bandwidth and clock of this machine (about a second), and say whether the"
        " weights for its devices fit them",
    )
