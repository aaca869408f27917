"""``countperf fit``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from countperf.cli.common import natural, positive, print_json
from countperf.errors import ParameterError

if TYPE_CHECKING:
    from countperf.measurements import MeasurementSet


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.add_argument(
        "measurements",
        help="a campaign's file (.jsonl); or a table of times measured elsewhere (.csv), a cache"
        " file of Kernel Tuner or T4 results (.json)",
    )
    command.add_argument(
        "--kernels",
        metavar="FILE.py[:NAME]",
        help="for a table: where the kernels are that its column kernel names (default: the"
        " catalogue); with a name, the kernel of a table without that column",
    )
    command.add_argument(
        "--device",
        metavar="SLUG|FILE",
        help="for a table: what was measured, a device of the catalogue or an identity (.json)",
    )
    which = command.add_mutually_exclusive_group()
    which.add_argument(
        "--model",
        default="linear",
        metavar="NAME|FILE",
        help="name of a model (linear, bounded, bounded-log, overlap, overlap3), a model document"
        " (.toml); or auto: choose by leaving out families of kernels, structural: among execution"
        " policies alone, compiled: among those that read compiled code, which countperf compiled"
        " --store has noted (default: linear)",
    )
    which.add_argument(
        "--expression",
        metavar="FORMULA",
        help='the time as a formula, such as "launch + w_group*groups + overlap(global_memory,'
        ' on_chip)"',
    )
    command.add_argument(
        "--policy",
        metavar="SLUG|FILE",
        help="for an --expression of what the device issues (run_vector_gmem_load_next,"
        " bytes_group_load_dense, load_beyond2 ...; terms compute, accesses, chains, traffic ...):"
        " the execution policy, as that of a fit or of a model document",
    )
    command.add_argument(
        "--residual", choices=("relative", "log"), help="what to make small (default: the model's)"
    )
    command.add_argument(
        "--loss",
        choices=("linear", "soft_l1", "huber"),
        help="how residuals are summed (default: the model's)",
    )
    command.add_argument(
        "--loss-scale",
        type=positive,
        metavar="NUMBER",
        help="size of the residuals from which on a robust loss counts them for less",
    )
    command.add_argument(
        "--nonnegative",
        action="store_true",
        help="keep weights at least zero (the paper's are free)",
    )
    command.add_argument(
        "--ignore-noise",
        action="store_true",
        help="count all cases the same, as the paper does, also those whose times do not repeat",
    )
    command.add_argument(
        "--workers",
        type=natural,
        metavar="N",
        help="processes that fit without some of the families each (default: one a processor, if"
        " there are many cases)",
    )
    command.add_argument(
        "--name",
        metavar="NAME",
        help="name of the fit among your own, for --weights mine/NAME (default: device and date);"
        " it takes the place of no other one",
    )
    command.add_argument(
        "--replace",
        action="store_true",
        help="overwrite the fit of that name and model",
    )
    command.add_argument(
        "--output", metavar="FILE", help="write the weights to this file instead, under no name"
    )


_CHOOSING = ("auto", "structural", "compiled")
"""Models that are chosen among candidates, which takes minutes with thousands of cases."""


def run(options: argparse.Namespace) -> None:
    """Fit, save and print the weights with what was checked."""
    from countperf.documents import check_writable
    from countperf.errors import OutputError
    from countperf.models.library import checked_own_name, store_own_fit, user_fits_folder
    from countperf.report import fit_object, fit_text
    from countperf.report.weights_table import compared_fits_text
    from countperf.tuning.pools import processors
    from countperf.workflow.devices import known_device
    from countperf.workflow.fitting import fit
    from countperf.workflow.own_fits import compared_with_shipped

    if options.name is not None:
        checked_own_name(options.name)  # before the work
        if options.output is not None:
            message = "a fit is written to a file, or under a name: --output or --name, not both"
            raise ParameterError(message, parameter="name")
    check_writable(options.output or user_fits_folder() / "weights.json")  # before the work
    measurements = _measurements(options)
    if options.model in _CHOOSING and options.expression is None:
        print(
            f"countperf: choosing a model for {len(measurements)} cases: each candidate is fitted"
            " with each family of kernels left out; nothing is kept if you interrupt it",
            file=sys.stderr,
        )
    result = fit(
        measurements,
        model=options.model,
        expression=options.expression,
        policy=options.policy,
        nonnegative=options.nonnegative,
        residual=options.residual,
        loss=options.loss,
        loss_scale=options.loss_scale,
        weigh_noise=not options.ignore_noise,
        workers=options.workers or processors(),
    )
    name: str | None = options.output
    output: Path | str | None = options.output
    failed: OutputError | None = None
    try:
        if options.output is not None:
            result.weights.write_file(options.output, rescue=True)
        else:
            usual = f"{result.weights.device.slug}-{date.today().isoformat()}"
            name, output = store_own_fit(
                result.weights, name=options.name or usual, replace=options.replace
            )
    except OutputError as error:  # the fit is printed all the same
        name = output = error.rescued
        failed = error
    compared = compared_with_shipped(result.weights, measurements)
    if options.json:
        shipped = None if compared is None else asdict(compared)
        written = {
            "written": None if output is None else str(output),
            "name": name,
            "compared": shipped,
        }
        print_json({**fit_object(result), **written})
    else:
        print(fit_text(result, known_device(result.weights.device.slug, options.measurements)))
        if output is not None:
            print(f"written to {output}; to use it: --weights {name}")
        print(compared_fits_text(result.weights, compared))
    if failed is not None:
        raise failed


def _measurements(options: argparse.Namespace) -> MeasurementSet:
    """Read a campaign's file, or a table."""
    from countperf.measurements import MeasurementSet
    from countperf.workflow.tables import measurements_of_table

    if not options.measurements.endswith((".csv", ".csv.gz", ".json", ".json.gz")):
        if options.kernels is not None or options.device is not None:
            message = (
                "a campaign's file names its kernels and device; leave out --kernels, --device"
            )
            raise ParameterError(message, parameter="kernels")
        return MeasurementSet.read_file(options.measurements)
    if options.device is None:
        message = "a table does not say what was measured: add --device, such as nvidia-titan-x"
        raise ParameterError(message, parameter="device")
    return measurements_of_table(
        options.measurements, kernels=options.kernels, device=options.device
    )
