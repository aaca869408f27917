"""``countperf compiled``."""

from __future__ import annotations

import argparse

from countperf.cli.common import as_dict, print_json, size


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.add_argument(
        "kernel", help="path/file.py:function, package.module:function, or a catalogue name"
    )
    command.add_argument(
        "parameters",
        nargs="*",
        type=size,
        metavar="name=value",
        help="sizes to launch the kernel at, once, with zeros: n=1024; PTX needs none",
    )
    command.add_argument(
        "--device", metavar="NAME", default="pocl:0", help="one of PoCL's (default: %(default)s)"
    )
    command.add_argument(
        "--ptx",
        metavar="CAPABILITY",
        help="read PTX from nvcc for an NVIDIA GPU instead, such as 9.0; no GPU is needed",
    )


def run(options: argparse.Namespace) -> None:
    """Print the shares, then instructions loop by loop."""
    from countperf.report.compiled import compiled_object, compiled_text
    from countperf.workflow import compiled

    codes = compiled(
        options.kernel,
        as_dict(options.parameters),
        device=options.device,
        capability=options.ptx,
    )
    if options.json:
        print_json(compiled_object(codes))
    else:
        print(compiled_text(codes))
