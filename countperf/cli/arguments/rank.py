"""Arguments of ``countperf rank``."""

from __future__ import annotations

import argparse

from countperf.cli.arguments.mechanistic import add_device_document
from countperf.cli.common import (
    add_completeness,
    add_device,
    add_longest,
    add_model,
    add_weights,
    natural,
    size,
)


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_space(command)
    add_device(
        command, "its limits exclude variants; by default the device of the weights is assumed"
    )
    add_completeness(command)
    command.add_argument(
        "--top", type=natural, default=20, metavar="K", help="print the best K (default: 20)"
    )
    command.add_argument(
        "--points",
        type=natural,
        metavar="N",
        help="predict only N points, scattered over the space (default: all)",
    )
    command.add_argument(
        "--by-code",
        type=natural,
        metavar="N",
        help="compile the best N on --device (PoCL or Intel's runtime) and order them by their"
        " machine code; none is timed (default: 16 if no model is named, the device of the weights"
        " is here, and it has weights of the model compiled)",
    )
    command.add_argument(
        "--figure", metavar="FILE", help="draw the best by predicted time (.svg, .png, .pdf)"
    )
    command.add_argument(
        "--output", metavar="FILE", help="write each point to this file at once, as a line of JSON"
    )


def add_space(command: argparse.ArgumentParser, *, is_optional: bool = False) -> None:
    """Add the space, its sizes, weights and worker processes."""
    command.add_argument(
        "space",
        nargs="?" if is_optional else None,
        help="matmul, stencil, dg-differentiation, transpose, convolution, path/file.py:name or "
        "package.module:name of a SearchSpace",
    )
    command.add_argument(
        "parameters", nargs="*", type=size, metavar="name=value", help="size parameters: n=1024"
    )
    add_weights(command)
    add_model(command)
    add_device_document(command, "a mechanistic model (--model volkov)")
    command.add_argument(
        "--workers",
        type=natural,
        metavar="N",
        help="predicting processes (default: one per processor)",
    )
    add_longest(
        command,
        "work on a variant that takes longer than this to build, count or run (default: 60; in a"
        " search, a quarter of its budget if that is less)",
        default=None,
    )
