"""``countperf compiled``."""

from __future__ import annotations

import argparse

from countperf.cli.common import as_dict, print_json, size
from countperf.errors import ParameterError


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
        help="what all groups execute at these sizes, by class, found by following the code",
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

    if (options.kernel is None) == (options.store is None):
        raise ParameterError("name a kernel, or a campaign's file with --store", parameter="kernel")
    if options.store is not None:
        _store(options)
        return
    if options.executed:
        _executed(options)
        return
    codes = compiled(
        options.kernel,
        as_dict(options.parameters),
        device=options.device or "pocl:0",
        capability=options.ptx,
    )
    if options.json:
        print_json(compiled_object(codes))
    else:
        print(compiled_text(codes))


def _store(options: argparse.Namespace) -> None:
    """Read the code of measured kernels, and say of how many cases it is known."""
    import sys

    from countperf.workflow import read_code

    found = read_code(
        options.store,
        device=options.device,
        progress=lambda text: print(text, file=sys.stderr),
    )
    counts = {
        "cases": len(found.measurements),
        "with_code": sum(each.code is not None for each in found),
    }
    if options.json:
        print_json(counts)
    else:
        print(f"{counts['with_code']} of {counts['cases']} cases have their instructions")


def _executed(options: argparse.Namespace) -> None:
    """Print what a kernel's code executes."""
    from countperf.models.definition import CODE, LATE
    from countperf.predicting import with_compiled_code

    sizes = as_dict(options.parameters)
    vector = with_compiled_code(options.kernel, sizes, device=options.device)
    counts = {
        name: number
        for name, number in vector.evaluate(sizes).items()
        if name.startswith((CODE, LATE))
    }
    if options.json:
        print_json(counts)
        return
    width = max(map(len, counts), default=0)
    for name, count in counts.items():
        print(f"{name:{width}}  {count}")
