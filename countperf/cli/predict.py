"""``countperf predict``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.cli.common import (
    add_device,
    add_kernel,
    as_dict,
    one_point,
    points,
    print_json,
    size,
)
from countperf.cli.mechanistic import add_device_document, mechanistic_models, predict_by_models
from countperf.errors import ParameterError

if TYPE_CHECKING:
    from countperf.counting.access_analysis import AccessAnalysis
    from countperf.predictions import Prediction
    from countperf.report.explanation import Explained
    from countperf.workflow.prediction import DetailedPrediction


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    command.add_argument(
        "--weights",
        metavar="SLUG|PATH",
        help="fitted weights: a device's slug or a file; by default those of --device",
    )
    command.add_argument(
        "--model",
        metavar="NAME[,NAME...]",
        help="which of a device's weights: those of the model linear (the paper's), for example;"
        " by default those of the model chosen for the device; plain: these without a correction by"
        " similar measured kernels. Or mechanistic models, such as volkov,roofline,mwp-cwp; all:"
        " every one of them",
    )
    add_device(command, "without it, the prediction is for the device of the weights")
    add_device_document(command, "mechanistic models")
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
        "--figure",
        metavar="FILE",
        help="mechanistic models: draw the roofline with the kernel as each model predicts it"
        " (.svg, .png, .pdf; needs matplotlib)",
    )
    command.add_argument(
        "--timeline",
        metavar="FILE",
        help="mechanistic models: draw the simulated pipeline of a compute unit, with its stalls by"
        " cause",
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
    """Predict and print the time first, then what bounds it, then where it goes."""
    from countperf.report import prediction_object, prediction_text
    from countperf.report.explanation import explanation_object, explanation_text
    from countperf.sizes import combine_sizes, size_arrays
    from countperf.workflow.prediction import predict_in_detail

    if (models := mechanistic_models(options)) is not None:
        predict_by_models(options, models)
        return
    for name in ("figure", "timeline"):
        if getattr(options, name):
            raise ParameterError(
                f"--{name} is for mechanistic models; name them and a device, such as --model all"
                " --device-document nvidia-k620",
                parameter=name,
            )
    several = len(points(options.parameters)) > 1
    asked: list[_Asked] = []
    for kernel, sizes, weights, more in _asked(options):
        at = combine_sizes(sizes) if options.explain else [size_arrays(sizes)]
        asked += [(kernel, each, weights, more) for each in at]
    made = [
        predict_in_detail(kernel, sizes, weights=weights, anchors=options.anchor or (), **more)
        for kernel, sizes, weights, more in asked
    ]
    predictions = [each.prediction for each in made]
    _say_models(*predictions)
    if not options.explain and options.json:
        contents = [prediction_object(each) for each in predictions]
        print_json(contents[0] | ({"against": contents[1]} if len(contents) > 1 else {}))
        return
    if not options.explain and len(made) == 1:
        accesses = () if several else accesses_of(*_named(asked[0]), predictions[0])
        print(prediction_text(predictions[0], accesses))
        return
    explained = [
        _explained(each, named) for each, (_, _, named, _) in zip(made, asked, strict=True)
    ]
    if several:
        if options.json:
            print_json({"sizes": [explanation_object(*each) for each in explained]})
        else:
            print("\n\n".join(explanation_text(*each) for each in explained))
    elif options.json:
        contents = [explanation_object(*each) for each in explained]
        print_json(contents[0] | ({"against": contents[1]} if len(contents) > 1 else {}))
    elif len(explained) > 1:
        _compare(explained, with_all=options.explain)
    else:
        print(explanation_text(*explained[0], accesses_of(*_named(asked[0]), predictions[0])))


def _explained(made: DetailedPrediction, named: str | None) -> Explained:
    from countperf.models.explanation import explain
    from countperf.workflow.devices import known_device

    device = known_device(made.weights.device.slug, named)
    return explain(made.weights, made.vector, made.prediction), made.weights, device


def _compare(explained: Sequence[Explained], *, with_all: bool) -> None:
    """Print two predictions side by side, all parts if asked for, and the cause last."""
    from countperf.report.against import cause_text, comparison_text
    from countperf.report.explanation import difference_text

    (first, *_), (second, *_) = explained
    text = comparison_text(first.prediction, second.prediction, (first, second))
    if not with_all:
        print(text)
        return
    print("\n".join(text.splitlines()[:-1]))
    print(difference_text(explained[0], explained[1]))
    print(cause_text(first.prediction, second.prediction, (first, second)))


def _named(asked: _Asked) -> tuple[str, dict[str, int], dict[str, Any] | None]:
    kernel, sizes, _, more = asked
    return kernel, sizes, more["statistics"]


def accesses_of(
    kernel: str,
    sizes: Mapping[str, int],
    statistics: Mapping[str, Any] | None,
    prediction: Prediction,
) -> tuple[AccessAnalysis, ...]:
    """Return the accesses of a kernel, if how far apart they are bounds its time."""
    from countperf.errors import CountperfError
    from countperf.report.breakdown import goes_from_line_to_line
    from countperf.workflow.analyzing import analyzed

    if not goes_from_line_to_line(prediction):
        return ()
    try:
        return analyzed(kernel, statistics=statistics, sizes=sizes).accesses
    except CountperfError:  # a vector has no accesses, and some kernels no analysis
        return ()


def _say_models(*predictions: Prediction) -> None:
    """Say on standard error which models were chosen and why, each once."""
    for choice in dict.fromkeys(each.model_choice for each in predictions if each.model_choice):
        print(f"countperf: {choice}", file=sys.stderr)


_Asked = tuple[str, dict[str, Any], str | None, dict[str, Any]]


def _asked(options: argparse.Namespace) -> list[_Asked]:
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
