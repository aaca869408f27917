"""Arguments of ``countperf devices``."""

from __future__ import annotations

import argparse


def configure(command: argparse.ArgumentParser) -> None:
    """Add no further arguments."""
    del command
