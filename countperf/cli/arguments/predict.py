"""Arguments of ``countperf predict``."""

from __future__ import annotations

import argparse
from pathlib import Path

from countperf.cli.arguments.mechanistic import add_device_document
from countperf.cli.common import (
    add_completeness,
    add_device,
    add_instruction_counts,
    add_kernel,
    add_level,
    add_weights,
    positive,
    size,
)


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    add_instruction_counts(command)
    add_weights(command)
    command.add_argument(
        "--model",
        metavar="NAME[,NAME...]",
        help="model whose weights predict, such as linear (the paper's); by default the one that"
        " reads compiled code wherever device and compiler are here, else the structural one;"
        " uncorrected: that without its correction by similar kernels."
        " Or mechanistic models, such as volkov,roofline,mwp-cwp; all: all mechanistic models",
    )
    add_device(command, "without it, the prediction is for the device of the weights")
    add_device_document(command, "mechanistic models")
    add_completeness(command)
    add_level(command)
    command.add_argument(
        "--metrics",
        metavar="FILE",
        help="mechanistic models: metrics of this kernel at these sizes, from ncu --csv or nvprof"
        " --csv, which replace counts",
    )
    command.add_argument(
        "--analysis",
        choices=("sass", "ptx"),
        help="mechanistic models: take instructions from the machine code (sass) or the PTX that"
        " nvcc makes of the kernel, without a GPU; PTX where there is no machine code",
    )
    command.add_argument(
        "--figure",
        metavar="FILE",
        help="mechanistic models: draw the roofline with the kernel as each model predicts it"
        " (.svg, .png, .pdf; needs matplotlib)",
    )
    command.add_argument(
        "--timeline",
        metavar="FILE",
        help="mechanistic models: draw the simulated pipeline of a compute unit, with its stalls by"
        " cause",
    )
    _add_detail(command)
    _add_comparison(command)


def _add_detail(command: argparse.ArgumentParser) -> None:
    """Add what corrects a prediction, and what explains it."""
    how = command.add_mutually_exclusive_group()
    how.add_argument(
        "--anchor",
        action="append",
        type=anchor_run,
        metavar="FILE|SIZES:SECONDS",
        help="correct by measured runs of this kernel: a file of countperf time --save FILE, or one"
        " run as in n=1024:0.0021 (m and more sizes after commas); may be given several times",
    )
    how.add_argument(
        "--explain",
        action="store_true",
        help="also print the time of each term alone and with overlaps, the rate that each weight"
        " implies, and whether the device can reach it; in comparisons, the parts that make the"
        " difference",
    )


def _add_comparison(command: argparse.ArgumentParser) -> None:
    """Add what a prediction is compared with."""
    command.add_argument(
        "--against",
        "--against-weights",
        metavar="SLUG|PATH",
        help="compare term by term with other weights: another device, or another model",
    )
    command.add_argument(
        "--against-kernel",
        metavar="KERNEL",
        help="compare term by term with another kernel, at the same sizes",
    )
    command.add_argument(
        "--against-size",
        action="append",
        type=size,
        metavar="NAME=VALUE",
        help="compare term by term at another size; for another kernel, its sizes in place of the"
        " same ones (repeatable)",
    )


def anchor_run(text: str) -> tuple[dict[str, int], float] | Path:
    """Parse ``n=1024,m=64:0.0021``, or a file of ``countperf time --save``, for argparse."""
    if "=" not in text or Path(text).is_file():
        return Path(text)
    sizes, sign, seconds = text.rpartition(":")
    try:
        time_s = positive(seconds)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {seconds!r} is no time in s") from error
    if not sign:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form n=1024:0.0021, and no file of countperf time --save"
        )
    pairs = [size(part) for part in sizes.split(",") if part]
    if len(dict(pairs)) < len(pairs):
        raise argparse.ArgumentTypeError(f"{text!r} gives a size twice; give it once")
    return dict(pairs), time_s
