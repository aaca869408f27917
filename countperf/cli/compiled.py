"""``countperf compiled``."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from countperf.cli.common import as_dict, print_json
from countperf.errors import ParameterError
from countperf.models.definition import CODE, MISS, SPILL
from countperf.terminal import say
from countperf.workflow.compiled_code import executed_on_gpu, read_code
from countperf.workflow.prediction import with_compiled_code


def run(options: argparse.Namespace) -> None:
    """Print the instructions that a kernel's code executes, by class."""
    if (options.kernel is None) == (options.store is None):
        raise ParameterError("name a kernel, or a campaign's file with --store", parameter="kernel")
    if options.store is not None:
        _store(options)
        return
    if options.ptx:
        _executed_on_gpu(options)
        return
    if options.every_group:
        raise ParameterError(
            "--every-group is of --ptx CAPABILITY; pass that too, or leave it out",
            parameter="every_group",
        )
    _executed(options)


def _store(options: argparse.Namespace) -> None:
    """Read the code of measured kernels, and say of how many cases it is known."""
    found = read_code(
        options.store,
        device=options.device,
        progress=say,
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
    sizes = as_dict(options.parameters)
    vector = with_compiled_code(options.kernel, sizes, device=options.device)
    counts = {
        name: number
        for name, number in vector.evaluate(sizes).items()
        if name.startswith((CODE, MISS, SPILL))
    }
    if options.json:
        print_json(counts)
        return
    print("of all work groups, if each executes what the one in the middle does")
    width = max(map(len, counts), default=0)
    for name, count in counts.items():
        print(f"{name:{width}}  {count}")


def _executed_on_gpu(options: argparse.Namespace) -> None:
    """Print what a kernel's machine code for an NVIDIA GPU executes."""
    sizes = as_dict(options.parameters)
    counts = executed_on_gpu(
        options.kernel, sizes, capability=options.ptx, every_group=options.every_group
    )
    if options.json:
        print_json(asdict(counts))
        return
    print(f"{counts.sub_groups} sub-groups; instructions of sub-groups and of lanes")
    if counts.assumed_groups:
        print(
            f"{counts.assumed_groups} work groups are taken to execute what the middle one does;"
            " --every-group follows them all"
        )
    width = max(map(len, counts.instructions))
    for name, count in counts.instructions.items():
        print(f"{name:{width}}  {count}  {counts.lanes.get(name, 0)}")
