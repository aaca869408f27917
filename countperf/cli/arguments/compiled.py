"""Arguments of ``countperf compiled``."""

from __future__ import annotations

import argparse

from countperf.cli.common import size


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.add_argument(
        "kernel",
        nargs="?",
        help="path/file.py:function, package.module:function, or a catalogue name",
    )
    command.add_argument(
        "parameters",
        nargs="*",
        type=size,
        metavar="name=value",
        help="sizes to launch the kernel at, once, with zeros: n=1024; PTX needs none",
    )
    command.add_argument(
        "--device",
        metavar="NAME",
        help="one of PoCL's (default: pocl:0); with --store or --executed one of Intel's, too",
    )
    command.add_argument(
        "--store",
        metavar="FILE",
        help="instead of a kernel: a campaign's file of this device, in which what the code of each"
        " kernel executes is noted, for fit --model compiled",
    )
    command.add_argument(
        "--executed",
        action="store_true",
        help="what all groups execute at these sizes, by class, found by following the code of the"
        " group in the middle",
    )
    command.add_argument(
        "--every-group",
        action="store_true",
        help="with --executed --ptx: follow each group, where by default the one in the middle"
        " stands for those that seem to execute as much",
    )
    command.add_argument(
        "--ptx",
        metavar="CAPABILITY",
        help="read PTX from nvcc for an NVIDIA GPU instead, such as 9.0; with --executed, its"
        " machine code; no GPU is needed",
    )
