"""Arguments of ``countperf measure``."""

from __future__ import annotations

import argparse
from os import environ

from countperf.cli.common import add_device

_PROFILES = ("quick", "broad", "trial")


def _default_profile() -> str:
    """Return the profile that the environment names, else the broad one."""
    named = environ.get("COUNTPERF_PROFILE", "")
    return named if named in _PROFILES else "broad"


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_device(command, "by default the working device with the highest copy bandwidth")
    command.add_argument(
        "--profile",
        choices=_PROFILES,
        default=_default_profile(),
        help="quick: the paper's kernels, two minutes; broad: extended classes and random shapes "
        "as well, for models of all kinds of kernels (default); trial: half a minute, to see that "
        "all works. The environment variable COUNTPERF_PROFILE can name the default",
    )
    command.add_argument(
        "--store",
        required=True,
        metavar="FILE",
        help="the campaign's file (.jsonl); the same command goes on where it stopped",
    )
    command.add_argument(
        "--family", action="append", default=[], help="only this family of kernels (repeatable)"
    )
    command.add_argument(
        "--purpose",
        action="append",
        default=[],
        choices=("measurement", "test", "application", "variant"),
        help="only kernels for this purpose (repeatable; default: measurement and test, or the "
        "named families); kernels for other purposes judge fits and are never fitted",
    )
    command.add_argument(
        "--collection",
        action="append",
        default=[],
        choices=("paper", "extended", "random", "published", "downstream"),
        help="only the paper's kernels, the extended classes, the families of random shapes, "
        "kernels of publications, or kernels of other projects, which judge fits with --purpose "
        "application (repeatable; default: the named families, or those of the profile)",
    )
    command.add_argument(
        "--element-type",
        action="append",
        choices=("f32", "f64"),
        help="the paper's kernels of this element type (repeatable; default: f32)",
    )
