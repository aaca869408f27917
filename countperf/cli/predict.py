"""``countperf predict``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from countperf.cli.common import add_device, add_kernel, add_model, as_dict, print_json, size

if TYPE_CHECKING:
    from countperf.predictions import Prediction


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    command.add_argument(
        "--weights",
        metavar="SLUG|PATH",
        help="fitted weights: a device's slug or a file; by default those of --device",
    )
    add_model(command)
    add_device(command, "without it, the prediction is for the device of the weights")
    command.add_argument(
        "--force", action="store_true", help="use weights that do not match the device"
    )
    command.add_argument(
        "--incomplete",
        action="store_true",
        help="leave out properties without a weight, and mark the prediction incomplete",
    )
    command.add_argument(
        "--level",
        type=float,
        choices=(0.9, 0.95),
        default=0.95,
        help="in which share of cases the interval is to hold the time (default: 0.95)",
    )
    command.add_argument(
        "--anchor",
        action="append",
        type=anchor_run,
        metavar="SIZES:SECONDS",
        help="correct by a measured run of this kernel, such as n=1024:0.0021 (m and more sizes"
        " after commas); may be given several times",
    )
    against = command.add_mutually_exclusive_group()
    against.add_argument(
        "--against",
        metavar="SLUG|PATH",
        help="compare term by term with the same kernel under other weights",
    )
    against.add_argument(
        "--against-kernel",
        metavar="KERNEL",
        help="compare term by term with another kernel at the same sizes",
    )


def anchor_run(text: str) -> tuple[dict[str, int], float]:
    """Parse ``n=1024,m=64:0.0021``, for argparse."""
    sizes, sign, seconds = text.rpartition(":")
    try:
        time_s = float(seconds)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {seconds!r} is no time in s") from error
    if not sign:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form n=1024:0.0021")
    return dict(size(part) for part in sizes.split(",") if part), time_s


def run(options: argparse.Namespace) -> None:
    """Predict and print the time first, then where it goes."""
    from countperf.report import comparison_text, prediction_object, prediction_text
    from countperf.workflow import predict

    def predicted(kernel: str, weights: str | None) -> Prediction:
        return predict(
            kernel,
            as_dict(options.parameters),
            weights=weights,
            model=options.model,
            device=options.device if weights == options.weights else None,
            force=options.force,
            incomplete_ok=options.incomplete,
            level=options.level,
            anchors=options.anchor or (),
            statistics=as_dict(options.statistics) or None,
        )

    prediction = predicted(options.kernel, options.weights)
    other = None
    if options.against or options.against_kernel:
        other = predicted(
            options.against_kernel or options.kernel, options.against or options.weights
        )
    if options.json:
        content = prediction_object(prediction)
        print_json(content if other is None else {**content, "against": prediction_object(other)})
    elif other is not None:
        print(comparison_text(prediction, other))
    else:
        print(prediction_text(prediction))
