"""Arguments of ``countperf fit``."""

from __future__ import annotations

import argparse

from countperf.cli.common import natural, positive


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.add_argument(
        "measurements",
        help="a campaign's file (.jsonl); or times measured elsewhere: a table (.csv), Extra-P's"
        " text format, a cache file of Kernel Tuner, T4 results or the output of KTT (.json)",
    )
    command.add_argument(
        "--kernels",
        metavar="FILE.py[:NAME]",
        help="for a table: the file of the kernels that its column kernel names (default: the"
        " catalogue); with a name, that kernel alone, also of a table without that column",
    )
    command.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="COLUMN",
        help="for a table: a column that is neither a size nor a choice; may be given several"
        " times",
    )
    command.add_argument(
        "--device",
        metavar="SLUG|FILE",
        help="for a table: the measured device, of the catalogue or an identity (.json)",
    )
    command.add_argument(
        "--model",
        metavar="NAME|FILE",
        help="the paper's model (linear) or a model document (.toml); or auto: choose by leaving"
        " out families of kernels, structural: among execution policies alone, compiled: among"
        " those that read compiled code, which countperf compiled --store has noted (default: of a"
        " campaign's file structural, linear, and compiled if code is noted, all under one name; of"
        " a table, and for --output, linear)",
    )
    _add_solver(command)
    _add_outcome(command)


def _add_solver(command: argparse.ArgumentParser) -> None:
    """Add how the fit is made."""
    command.add_argument(
        "--residual",
        choices=("relative", "log"),
        help="residuals to minimize (default: the model's)",
    )
    command.add_argument(
        "--loss",
        choices=("linear", "soft_l1", "huber"),
        help="how residuals are summed (default: the model's)",
    )
    command.add_argument(
        "--loss-scale",
        type=positive,
        metavar="NUMBER",
        help="size from which on a robust loss gives residuals less weight",
    )
    command.add_argument(
        "--nonnegative",
        action="store_true",
        help="keep weights at least zero (the paper's may be negative)",
    )
    command.add_argument(
        "--ignore-noise",
        action="store_true",
        help="give all cases the same weight, as the paper does, also noisy ones",
    )
    command.add_argument(
        "--workers",
        type=natural,
        metavar="N",
        help="processes for the fits that leave out families (default: one per processor, if there"
        " are many cases)",
    )


def _add_outcome(command: argparse.ArgumentParser) -> None:
    """Add where the weights go."""
    command.add_argument(
        "--name",
        metavar="NAME",
        help="name of the fit among your own, for --weights mine/NAME (default: device and date);"
        " it never replaces another fit",
    )
    command.add_argument(
        "--replace",
        action="store_true",
        help="overwrite the fit of that name and model",
    )
    command.add_argument(
        "--output", metavar="FILE", help="write the weights to this file instead, under no name"
    )
