"""``countperf coverage``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_device, add_kernel, add_model, as_dict, points, print_json


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    command.add_argument(
        "--weights",
        metavar="SLUG|PATH",
        help="fitted weights: a device's slug or a file; by default those of --device",
    )
    command.add_argument(
        "--measurements",
        metavar="FILE",
        help="what the weights were fitted to (.jsonl), for weights that do not record which "
        "measurements exercise what",
    )
    add_model(command)
    add_device(command, "without it, the weights' device is meant")
    command.add_argument(
        "--force", action="store_true", help="use weights that do not match the device"
    )


def run(options: argparse.Namespace) -> None:
    """Print the verdict first, then a row for each feature; one size after another."""
    from countperf.report.coverage import coverage_object, coverage_text
    from countperf.report.text import point_text
    from countperf.workflow.analyzing import coverage
    from countperf.workflow.prediction import weights_for

    at = points(options.parameters)
    weights = weights_for(options.weights, options.device, model=options.model)
    found = [
        coverage(
            options.kernel,
            point,
            weights=weights,
            measurements=options.measurements,
            device=options.device,
            force=options.force,
            statistics=as_dict(options.statistics) or None,
        )
        for point in at
    ]
    if options.json:
        objects = [coverage_object(each) for each in found]
        print_json(objects[0] if len(objects) == 1 else {"sizes": objects})
        return
    texts = [coverage_text(each) for each in found]
    if len(texts) > 1:
        texts = [f"{point_text(point)}\n{text}" for point, text in zip(at, texts, strict=True)]
    print("\n\n".join(texts))
