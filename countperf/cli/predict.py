"""``countperf predict``."""

from __future__ import annotations

import argparse

from countperf.cli.common import add_device, add_kernel, as_dict, print_json


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    command.add_argument(
        "--weights",
        metavar="SLUG|PATH",
        help="fitted weights: a device's slug or a file; by default those of --device",
    )
    add_device(command, "without it, the prediction is for the device of the weights")
    command.add_argument(
        "--force", action="store_true", help="use weights that do not match the device"
    )
    command.add_argument(
        "--incomplete",
        action="store_true",
        help="leave out properties without a weight, and mark the prediction incomplete",
    )


def run(options: argparse.Namespace) -> None:
    """Predict and print the time first, then where it goes."""
    from countperf.report import prediction_object, prediction_text
    from countperf.workflow import predict

    prediction = predict(
        options.kernel,
        as_dict(options.parameters),
        weights=options.weights,
        device=options.device,
        force=options.force,
        incomplete_ok=options.incomplete,
        statistics=as_dict(options.statistics) or None,
    )
    if options.json:
        print_json(prediction_object(prediction))
    else:
        print(prediction_text(prediction))
