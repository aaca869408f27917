"""``countperf sweep``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_device, add_kernel, natural, one_point, print_json
from countperf.cli.mechanistic import (
    add_device_document,
    check_figures,
    described,
    mechanistic_models,
    profile_options,
)


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    command.add_argument(
        "--over",
        choices=("occupancy", "group_size", "intensity", "ilp", "mlp"),
        default="occupancy",
        help="the axis: groups resident on a compute unit (default), work items of a group, how"
        " often each operation is executed, work items whose computations (ilp) or memory"
        " instructions (mlp) one work item overlaps",
    )
    command.add_argument(
        "--values", type=_values, metavar="N,N,...", help="values on it (default: those that fit)"
    )
    command.add_argument(
        "--model",
        metavar="NAME[,NAME...]",
        default="all",
        help="mechanistic models (default: all)",
    )
    add_device(command, "its description is taken")
    add_device_document(command, "device and resources")
    command.add_argument(
        "--figure",
        metavar="FILE",
        help="draw the curves with the roofs (.svg, .png, .pdf; needs matplotlib)",
    )


def _values(text: str) -> tuple[int, ...]:
    return tuple(natural(part) for part in text.split(","))


def run(options: argparse.Namespace) -> None:
    """Print a table of times, and draw the curves."""
    from countperf.report.sweeps import sweep_object, sweep_text
    from countperf.workflow.mechanistic import sweep

    check_figures(options.figure)
    found = sweep(
        options.kernel,
        described(options),
        one_point(options.parameters, "a sweep"),
        over=options.over,
        values=options.values,
        models=mechanistic_models(options) or options.model,
        profile_options=profile_options(options),
    )
    if options.json:
        print_json(sweep_object(found))
    else:
        print(sweep_text(found))
    if options.figure:
        found.plot(options.figure)
