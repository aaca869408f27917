"""``countperf count``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_kernel, as_dict, print_json


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    command.add_argument(
        "--view",
        choices=("source", "compiled"),
        help="count what Loopy emits (source, the default), or what an optimizing compiler leaves",
    )


def run(options: argparse.Namespace) -> None:
    """Count and print the symbolic properties, and their values where sizes are given."""
    from countperf.report import count_object, count_text
    from countperf.workflow import counted

    vector = counted(
        options.kernel, statistics=as_dict(options.statistics) or None, view=options.view
    )
    sizes = as_dict(options.parameters)
    values = vector.evaluate(sizes) if sizes or not vector.parameters else None
    if options.json:
        print_json(count_object(vector, values))
    else:
        print(count_text(vector, values))
