"""``countperf predict``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from countperf.cli.common import as_dict, one_point, points, print_json, show_all
from countperf.errors import ParameterError
from countperf.models.explanation import explain
from countperf.report.predictions import compared, explanation, prediction
from countperf.sizes import combine_sizes, size_arrays
from countperf.workflow.devices import known_device
from countperf.workflow.prediction import Target, predict_in_detail

if TYPE_CHECKING:
    from countperf.predictions import Prediction
    from countperf.report.predictions import Explained
    from countperf.workflow.prediction import DetailedPrediction


def run(options: argparse.Namespace) -> None:
    """Predict and print the time first, then what bounds it, then where it goes."""
    if (options.model or options.device_document) and _predicts_by_models(options):
        return
    for name in ("figure", "metrics", "analysis"):
        if getattr(options, name):
            raise ParameterError(
                f"--{name} is for mechanistic models; name them and a device, such as --model all"
                " --on nvidia-k620",
                parameter=name,
            )
    several = len(points(options.parameters)) > 1
    asked: list[_Asked] = []
    for kernel, sizes, target in _asked(options):
        every = combine_sizes(sizes) if options.explain else [size_arrays(sizes)]
        asked += [(kernel, each, target) for each in every]
    statistics = as_dict(options.statistics) or None
    made = [
        predict_in_detail(
            *each,
            anchors=options.anchor or (),
            statistics=statistics,
            instruction_counts=options.instruction_counts,
        )
        for each in asked
    ]
    predictions = [each.prediction for each in made]
    _say_models(*predictions)
    explained: list[Explained] = []
    if not options.explain and (options.json or len(made) == 1):
        shown = [prediction(each) for each in predictions]
    else:
        explained = [
            _explained(each, target) for each, (*_, target) in zip(made, asked, strict=True)
        ]
        shown = [explanation(*each) for each in explained]
    if several and options.explain:
        show_all(options, shown)
    elif options.json:
        print_json(shown[0].object() | ({"against": shown[1].object()} if shown[1:] else {}))
    elif len(shown) > 1:
        (first, *_), (second, *_) = explained
        most = {"most": 1000} if options.explain else {}
        print(compared(first.prediction, second.prediction, (first, second), **most).text())
    else:
        print(shown[0].text())


def _predicts_by_models(options: argparse.Namespace) -> bool:
    """Predict by the mechanistic models that are asked for, if any are."""
    from countperf.cli.mechanistic import mechanistic_models, predict_by_models

    models = mechanistic_models(options)
    if models is None:
        return False
    if options.instruction_counts:
        raise ParameterError(
            "--instruction-counts is for fitted models; mechanistic ones read each instruction",
            parameter="instruction_counts",
        )
    predict_by_models(options, models)
    return True


def _explained(made: DetailedPrediction, target: Target) -> Explained:
    named = target.weights if isinstance(target.weights, str) else None
    device = known_device(made.weights.device.slug, named)
    return explain(made.weights, made.vector, made.prediction), made.weights, device


def _say_models(*predictions: Prediction) -> None:
    """Say on standard error which models were chosen and why, each once."""
    for choice in dict.fromkeys(known.model_choice for known in predictions if known.model_choice):
        print(f"countperf: {choice}", file=sys.stderr)


_Asked = tuple[str, dict[str, Any], Target]


def _asked(options: argparse.Namespace) -> list[_Asked]:
    """Return kernel, sizes and target of what is to be predicted: one, or two to compare."""
    other = as_dict(options.against_size)
    compares = bool(options.against or options.against_kernel or other)
    parameters = options.parameters
    sizes = one_point(parameters, "a comparison") if compares else as_dict(parameters)
    target = Target(
        weights=options.weights,
        model=options.model,
        device=options.device,
        force=options.force,
        incomplete_ok=options.incomplete,
        level=options.level,
    )
    asked = [(options.kernel, sizes, target)]
    if compares:
        second = (
            options.against_kernel or options.kernel,
            other if options.against_kernel and other else sizes | other,
            replace(target, weights=options.against, device=None) if options.against else target,
        )
        asked.append(second)
    return asked
