"""Arguments of ``countperf occupancy``."""

from __future__ import annotations

import argparse

from countperf.cli.arguments.mechanistic import add_device_document
from countperf.cli.common import add_device, add_kernel


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    add_device(command, "its description is taken")
    add_device_document(command, "device and resources")
