"""``countperf evaluate``."""

from __future__ import annotations

import argparse

from countperf.cli.common import print_json


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.add_argument("measurements", help="a campaign's file (.jsonl) with kernels that judge")
    command.add_argument(
        "--weights", required=True, metavar="SLUG|PATH", help="fitted weights of the same device"
    )
    command.add_argument(
        "--purpose",
        action="append",
        default=[],
        choices=("test", "application", "variant"),
        help="only kernels for this purpose (repeatable; default: all that fits have not seen)",
    )
    command.add_argument("--force", action="store_true", help="evaluate weights of another device")
    command.add_argument("--output", metavar="FILE", help="also write the evaluation as a document")


def run(options: argparse.Namespace) -> None:
    """Evaluate and print predicted against measured times."""
    from countperf.report import evaluation_object, evaluation_text
    from countperf.workflow import evaluate

    evaluation = evaluate(
        options.measurements,
        weights=options.weights,
        force=options.force,
        purposes=options.purpose,
    )
    if options.output:
        evaluation.write_file(options.output)
    if options.json:
        print_json(evaluation_object(evaluation))
    else:
        print(evaluation_text(evaluation))
