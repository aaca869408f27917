"""Arguments of ``countperf report``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_device, add_model, size, statistic


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.add_argument(
        "what",
        metavar="FIT|KERNEL|SEARCH|LAUNCHES",
        help="a fit by name or its file (.json), a kernel as for countperf predict, the file of"
        " a search (.jsonl, from countperf tune --store), or of recorded launches (.json, from"
        " COUNTPERF_RECORD)",
    )
    command.add_argument(
        "parameters", nargs="*", type=size, metavar="name=value", help="sizes of a kernel: n=1024"
    )
    command.add_argument(
        "--output", required=True, metavar="FILE", help="the page (.html); it needs no other file"
    )
    command.add_argument(
        "--measurements",
        metavar="FILE",
        help="of a fit: evaluate it on the kernels of this campaign that it has not seen; by"
        " default what was stored beside the fit is shown",
    )
    command.add_argument(
        "--weights", metavar="SLUG|PATH", help="of a kernel: fitted weights, as for predict"
    )
    add_model(command)
    add_device(command, "of a kernel: without it, that of the weights")
    command.add_argument(
        "--statistics",
        action="append",
        type=statistic,
        metavar="NAME=VALUE",
        help="of a kernel: what depends on data, as for predict",
    )
