"""``countperf compiled``."""

from __future__ import annotations

import argparse
from typing import Any

from countperf.cli.common import as_dict, show
from countperf.errors import ParameterError
from countperf.models.definition import CODE, MISS
from countperf.report.rows import Printed, plain
from countperf.terminal import say
from countperf.workflow.compiled_code import executed_on_gpu, read_code
from countperf.workflow.prediction import with_compiled_code


def run(options: argparse.Namespace) -> None:
    """Print the instructions that a kernel's code executes, by class."""
    if (options.kernel is None) == (options.store is None):
        raise ParameterError("name a kernel, or a campaign's file with --store", parameter="kernel")
    if options.store is not None:
        shown = _store(options)
    elif options.ptx:
        shown = _executed_on_gpu(options)
    else:
        shown = _executed(options)
    show(options, shown)


def _store(options: argparse.Namespace) -> Printed:
    """Read the code of measured kernels, and say of how many cases it is known."""
    store = read_code(options.store, device=options.device, progress=say)
    known = sum(each.code is not None for each in store)
    return Printed(
        head=[f"{known} of {len(store)} cases have their instructions"],
        facts={"cases": len(store), "with_code": known},
    )


def _executed(options: argparse.Namespace) -> Printed:
    """Give what a kernel's code executes."""
    sizes = as_dict(options.parameters)
    vector = with_compiled_code(
        options.kernel, sizes, device=options.device, every_group=options.every_group
    )
    counts = {
        name: number
        for name, number in vector.evaluate(sizes).items()
        if name.startswith((CODE, MISS))
    }
    return Printed(
        head=[
            "of all work groups, each followed"
            if options.every_group
            else "of all work groups, if each executes what the one in the middle does;"
            " --every-group follows them all"
        ],
        rows=[{"instructions": name, "executed": number} for name, number in counts.items()],
        facts=counts,
    )


def _executed_on_gpu(options: argparse.Namespace) -> Printed:
    """Give what a kernel's machine code for an NVIDIA GPU executes."""
    counts = executed_on_gpu(
        options.kernel,
        as_dict(options.parameters),
        capability=options.ptx,
        every_group=options.every_group,
    )
    assumed = (
        f"{counts.assumed_groups} work groups are taken to execute what the middle one does;"
        " --every-group follows them all"
    )
    rows: list[dict[str, Any]] = [
        {"instructions": name, "sub-groups": count, "lanes": counts.lanes.get(name, 0)}
        for name, count in counts.instructions.items()
    ]
    return Printed(
        head=[f"{counts.sub_groups} sub-groups", *([assumed] if counts.assumed_groups else [])],
        rows=rows,
        facts=plain(counts),
    )
