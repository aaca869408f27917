"""``countperf predict``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.cli.common import (
    add_device,
    add_kernel,
    add_model,
    as_dict,
    one_point,
    points,
    print_json,
    size,
)

if TYPE_CHECKING:
    from countperf.hardware.parameters import DeviceParameters
    from countperf.models.explanation import Explanation
    from countperf.models.weights import WeightSet
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
    how = command.add_mutually_exclusive_group()
    how.add_argument(
        "--anchor",
        action="append",
        type=anchor_run,
        metavar="FILE|SIZES:SECONDS",
        help="correct by measured runs of this kernel: a file of countperf time --save FILE, or one"
        " run as in n=1024:0.0021 (m and more sizes after commas); may be given several times",
    )
    how.add_argument(
        "--explain",
        action="store_true",
        help="also what each term takes by itself and what overlaps leave of it, the rate that each"
        " weight implies, and whether the device can reach it; in comparisons, what the difference"
        " is due to",
    )
    command.add_argument(
        "--against",
        "--against-weights",
        metavar="SLUG|PATH",
        help="compare term by term with other weights: another device, or another model",
    )
    command.add_argument(
        "--against-kernel",
        metavar="KERNEL",
        help="compare term by term with another kernel, at the same sizes",
    )
    command.add_argument(
        "--against-size",
        action="append",
        type=size,
        metavar="NAME=VALUE",
        help="compare term by term at another size; for another kernel, its sizes in place of the"
        " same ones (repeatable)",
    )


def anchor_run(text: str) -> tuple[dict[str, int], float] | Path:
    """Parse ``n=1024,m=64:0.0021``, or a file of ``countperf time --save``, for argparse."""
    if "=" not in text or Path(text).is_file():
        return Path(text)
    sizes, sign, seconds = text.rpartition(":")
    try:
        time_s = float(seconds)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {seconds!r} is no time in s") from error
    if not sign:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form n=1024:0.0021, and no file of countperf time --save"
        )
    return dict(size(part) for part in sizes.split(",") if part), time_s


def run(options: argparse.Namespace) -> None:
    """Predict and print the time first, then where it goes."""
    if options.explain:
        _explain(options)
        return
    from countperf.report import comparison_text, prediction_object, prediction_text
    from countperf.sizes import size_arrays
    from countperf.workflow.prediction import predict

    prediction, *others = [
        predict(kernel, size_arrays(sizes), weights=weights, anchors=options.anchor or (), **more)
        for kernel, sizes, weights, more in _asked(options)
    ]
    _say_models(prediction, *others)
    if options.json:
        content = prediction_object(prediction)
        against = {"against": prediction_object(others[0])} if others else {}
        print_json(content | against)
    elif others:
        print(comparison_text(prediction, others[0]))
    else:
        print(prediction_text(prediction))


def _explain(options: argparse.Namespace) -> None:
    """Predict, and print what is behind it too."""
    from countperf.models.explanation import explain
    from countperf.report import comparison_text
    from countperf.report.explanation import difference_text, explanation_object, explanation_text
    from countperf.sizes import combine_sizes
    from countperf.workflow.devices import known_device
    from countperf.workflow.prediction import predict_in_detail

    found: list[tuple[Explanation, WeightSet, DeviceParameters | None]] = []
    for kernel, sizes, named, more in _asked(options):
        for point in combine_sizes(sizes):
            made = predict_in_detail(kernel, point, weights=named, **more)
            device = known_device(made.weights.device.slug, named)
            explanation = explain(made.weights, made.vector, made.prediction)
            found.append((explanation, made.weights, device))
    first, *others = found
    _say_models(*(explanation.prediction for explanation, _, _ in found))
    if len(points(options.parameters)) > 1:
        if options.json:
            print_json({"sizes": [explanation_object(*each) for each in found]})
        else:
            print("\n\n".join(explanation_text(*each) for each in found))
        return
    if options.json:
        content = explanation_object(*first)
        against = {"against": explanation_object(*others[0])} if others else {}
        print_json(content | against)
    elif others:
        print(comparison_text(first[0].prediction, others[0][0].prediction))
        print(difference_text(first, others[0]))
    else:
        print(explanation_text(*first))


def _say_models(*predictions: Prediction) -> None:
    """Say on standard error which models were chosen and why, each once."""
    for choice in dict.fromkeys(each.model_choice for each in predictions if each.model_choice):
        print(f"countperf: {choice}", file=sys.stderr)


def _asked(
    options: argparse.Namespace,
) -> list[tuple[str, dict[str, Any], str | None, dict[str, Any]]]:
    """Return kernel, sizes, weights and the rest of what is to be predicted: one, or two."""
    other = as_dict(options.against_size)
    compares = bool(options.against or options.against_kernel or other)
    parameters = options.parameters
    sizes = one_point(parameters, "a comparison") if compares else as_dict(parameters)
    more = {
        "model": options.model,
        "device": options.device,
        "force": options.force,
        "incomplete_ok": options.incomplete,
        "level": options.level,
        "statistics": as_dict(options.statistics) or None,
    }
    asked = [(options.kernel, sizes, options.weights, more)]
    if compares:
        second = (
            options.against_kernel or options.kernel,
            other if options.against_kernel and other else sizes | other,
            options.against or options.weights,
            more | ({"device": None} if options.against else {}),
        )
        asked.append(second)
    return asked
