"""Command ``predict``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from countperf.api.prediction import explained, predict
from countperf.cli.common import as_dict, given, one_point, print_json, show, show_all
from countperf.errors import ParameterError
from countperf.models.predictions import MOST_ROWS
from countperf.sizes import combine_sizes, size_arrays

if TYPE_CHECKING:
    from countperf.models.predictions import Prediction
    from countperf.text import Printed


def run_predict(options: argparse.Namespace) -> None:
    """Predict and print the time first, then what bounds it, then where it goes."""
    if (options.model or options.document) and _predicts_by_models(options):
        return
    for name in ("figure", "metrics", "analysis", "sass", "registers_per_work_item"):
        if getattr(options, name):
            raise ParameterError(
                f"{options.flags[name]} is for mechanistic models; name them and a device, such as"
                " --model all --on nvidia-k620",
                parameter=name,
            )
    asked = _asked(options)
    made = [predict(kernel, sizes, **named) for kernel, sizes, named in asked]
    for choice in dict.fromkeys(result.model_choice for result in made if result.model_choice):
        print(f"countperf: {choice}", file=sys.stderr)
    shown = [_lay_out_prediction(result, options) for result in made]
    if not _compares(options):
        show_all(options, shown) if shown[1:] else show(options, shown[0])
    elif options.json:
        print_json(shown[0].object() | {"against": shown[1].object()})
    else:
        most = 1000 if options.explain else MOST_ROWS
        print(made[0].against(made[1]).lay_out(most).text())


def _lay_out_prediction(made: Prediction, options: argparse.Namespace) -> Printed:
    if not options.explain:
        return made.lay_out()
    from countperf.api.fits import known_device

    return explained(made).lay_out(known_device(made.device, options.weights))


def _predicts_by_models(options: argparse.Namespace) -> bool:
    """Predict by the mechanistic models that are asked for, if any are."""
    from countperf.cli.mechanistic import mechanistic_models, predict_by_models, predict_on_devices

    if "," in (options.document or ""):
        predict_on_devices(options)
        return True
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


def _compares(options: argparse.Namespace) -> bool:
    return bool(options.against or options.against_kernel or options.against_size)


def _asked(options: argparse.Namespace) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return kernel, sizes and options of what is to be predicted; two to compare are two."""
    named = {
        **given(options, "weights", "model", "device", "force", "level", "instruction_counts"),
        **given(options, "incomplete_ok"),
        "anchors": options.anchor or (),
        "statistics": as_dict(options.statistics) or None,
    }
    if not _compares(options):
        sizes = as_dict(options.parameters)
        every = combine_sizes(sizes) if options.explain else [size_arrays(sizes)]
        return [(options.kernel, point, named) for point in every]
    if options.anchor and (options.against or options.against_kernel):
        other = "--against-kernel" if options.against_kernel else "--against"
        raise ParameterError(
            f"--anchor corrects one kernel by one device's weights, and {other} names another one;"
            " leave one of them out",
            parameter="anchor",
        )
    sizes, other = one_point(options.parameters, "a comparison"), as_dict(options.against_size)
    against = {"weights": options.against, "device": None} if options.against else {}
    second = other if options.against_kernel and other else sizes | other
    return [
        (options.kernel, sizes, named),
        (options.against_kernel or options.kernel, second, named | against),
    ]
