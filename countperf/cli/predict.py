"""Commands on the counts of a kernel: ``count``, ``predict``."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from countperf.api.fits import look_up_device
from countperf.api.kernels import Kernel
from countperf.api.prediction import explain_prediction, predict
from countperf.cli.common import as_dict, one_point, pick_options, say_choice, show, show_all
from countperf.counting.analysis import analyze_kernel
from countperf.errors import ParameterError
from countperf.models.predictions import MOST_ROWS
from countperf.sizes import combine_sizes, size_arrays
from countperf.text import Printed


def run_count(options: argparse.Namespace) -> None:
    """Count and print the symbolic properties, and their values where sizes are given."""
    if options.analysis:
        _analyze(options)
        return
    sizes = as_dict(options.parameters)
    at = combine_sizes(sizes)
    statistics = as_dict(options.statistics) or None
    kernel = Kernel.of(options.kernel, {}, statistics, options.instruction_counts)
    tables = at if kernel.depends_on_sizes else [size_arrays(sizes)]  # formulas may depend, too
    shown: list[Printed] = []
    for table in tables:
        vector = kernel.at(table).count(options.view)
        values = vector.evaluate(table) if sizes or not vector.parameters else None
        shown.append(vector.lay_out(values, () if tables[1:] else at))
    show_all(options, shown)


def _analyze(options: argparse.Namespace) -> None:
    """Print the structure of a kernel."""
    if options.instruction_counts:
        said = "--analysis reads each instruction: leave --instruction-counts out"
        raise ParameterError(said, parameter="instruction_counts")
    sizes = one_point(options.parameters, "--analysis")
    kernel = Kernel.of(options.kernel, sizes, as_dict(options.statistics) or None)
    unit = kernel.unit_with("structure to analyze")
    kernel_analysis = analyze_kernel(unit, statistics=kernel.statistics)
    parameters = sizes if sizes or not kernel_analysis.sizes.names else None
    show(options, kernel_analysis.lay_out(parameters))


def run_predict(options: argparse.Namespace) -> None:
    """Predict and print the time first, then what bounds it, then where it goes."""
    if options.model or options.document:
        from countperf.cli.mechanistic import predict_by_models  # start-up

        if predict_by_models(options):
            return
    for name in ("figure", "metrics", "analysis", "sass", "registers_per_work_item"):
        if getattr(options, name):
            mend = "name them and a device, such as --model all --on nvidia-k620"
            said = f"{options.flags[name]} is for mechanistic models; {mend}"
            raise ParameterError(said, parameter=name)
    asked, compares = _list_predictions(options)
    made = [predict(kernel, sizes, **named) for kernel, sizes, named in asked]
    say_choice(*(result.model_choice for result in made))
    if compares and not options.json:
        show(options, made[0].against(made[1]).lay_out(1000 if options.explain else MOST_ROWS))
        return
    shown = [result.lay_out() for result in made]
    if options.explain:
        shown = [
            explain_prediction(it).lay_out(look_up_device(it.device, options.weights))
            for it in made
        ]
    if compares:
        facts = {**shown[0].facts, "against": shown[1].object()}
        shown = [replace(shown[0], facts=facts)]
    show_all(options, shown)


def _list_predictions(
    options: argparse.Namespace,
) -> tuple[list[tuple[str, dict[str, Any], dict[str, Any]]], bool]:
    """Return kernel, sizes and options of what is to be predicted, and whether two are compared."""
    named = {
        **pick_options(options, "weights", "model", "device", "force", "level"),
        **pick_options(options, "instruction_counts", "incomplete_ok"),
        "anchors": options.anchor or (),
        "statistics": as_dict(options.statistics) or None,
    }
    if not (options.against or options.against_kernel or options.against_size):
        sizes = as_dict(options.parameters)
        every = combine_sizes(sizes) if options.explain else [size_arrays(sizes)]
        return [(options.kernel, point, named) for point in every], False
    if options.anchor and (options.against or options.against_kernel):
        other = "--against-kernel" if options.against_kernel else "--against"
        said = f"--anchor corrects one kernel by one device's weights: leave it or {other} out"
        raise ParameterError(said, parameter="anchor")
    sizes, other = one_point(options.parameters, "a comparison"), as_dict(options.against_size)
    against = {"weights": options.against, "device": None} if options.against else {}
    second = other if options.against_kernel and other else sizes | other
    first = (options.kernel, sizes, named)
    return [first, (options.against_kernel or options.kernel, second, named | against)], True
