"""``countperf fit``."""

from __future__ import annotations

import argparse
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from countperf.cli.common import in_options, print_json
from countperf.documents import check_writable, read_content
from countperf.errors import FitError, OutputError, ParameterError
from countperf.measurements import MeasurementSet
from countperf.models.library import (
    checked_own_name,
    find_fit,
    short_name,
    store_own_fit,
    user_fits_folder,
)
from countperf.report.rows import format_percent
from countperf.report.weights import fit as fit_printed
from countperf.workflow.fitting import fit as fit_measurements
from countperf.workflow.measured import measurements_of_table

if TYPE_CHECKING:
    from countperf.fitting.fit import FitResult
    from countperf.measurements import MeasurementSet

_CAMPAIGN = (".jsonl", ".jsonl.gz")


def run(options: argparse.Namespace) -> None:
    """Fit, save and print the weights with what was checked."""
    if options.name is not None:
        checked_own_name(options.name)  # before the work
        if options.output is not None:
            message = "a fit is written to a file, or under a name: --output or --name, not both"
            raise ParameterError(message, parameter="name")
    check_writable(options.output or user_fits_folder() / "weights.json")  # before the work
    measurements = _measurements(options)
    results = _fitted(options, measurements)
    result = results[0]
    name: str | None = options.output
    output: Path | str | None = options.output
    failed: OutputError | None = None
    try:
        if options.output is not None:
            result.weights.write_file(options.output)
        else:
            usual = f"{result.weights.device.slug}-{date.today().isoformat()}"
            name, output = store_own_fit(
                *(each.weights for each in results),
                name=options.name or usual,
                replace=options.replace,
            )
    except OutputError as error:  # the fit is printed all the same
        name = output = None
        failed = error
    if options.json:
        written = {
            "written": None if output is None else str(output),
            "name": name,
            "models": [short_name(each.weights.model) for each in results],
        }
        print_json({**fit_printed(result).object(), **written})
    else:
        print(in_options(fit_printed(result).text(), options))
        for each in results[1:]:
            model, quality = short_name(each.weights.model), each.weights.quality
            error = None if quality is None else quality.held_out_error
            said = "" if error is None else f", families left out {format_percent(error)}"
            print(f"also fitted: {model}{said}; to use it: --model {model}")
        if output is not None:
            print(f"written to {output}; to use it: --weights {name}")
        slug = result.weights.device.slug
        fit = find_fit(slug)
        print(
            f"nothing ships for {slug}: the newest of your own fits for it is the default"
            if fit is None or fit.is_own
            else f"to compare: countperf evaluate {options.measurements} --weights {slug}; {slug},"
            " which ships, stays the default"
        )
    if failed is not None:
        raise failed


def _fitted(options: argparse.Namespace, measurements: MeasurementSet) -> list[FitResult]:
    """Fit the model that is named, else those that a campaign suffices for, the default first."""
    models = [options.model or "linear"]
    if not (options.model or options.output or options.device or options.nonnegative):
        has_code = any(measurement.code for measurement in measurements)
        models = ["structural", *(["compiled"] if has_code else []), "linear"]
    fitted: list[FitResult] = []
    for model in models:
        try:
            result = fit_measurements(
                measurements,
                model=model,
                nonnegative=options.nonnegative,
            )
        except FitError as error:
            if model == models[-1] and not fitted:
                raise
            print(f"countperf: no {model} model: {error}", file=sys.stderr)
            continue
        fitted.append(result)
    return fitted


def _measurements(options: argparse.Namespace) -> MeasurementSet:
    """Read a campaign's file, or a table."""
    is_campaign = read_content(options.measurements)[:1000].lstrip().startswith(b'{"format"')
    if is_campaign or (options.device is None and options.measurements.endswith(_CAMPAIGN)):
        if options.kernels is not None or options.device is not None or options.ignore:
            message = (
                "a campaign's file names its kernels and device; leave out --kernels, --device,"
                " --ignore"
            )
            raise ParameterError(message, parameter="kernels")
        return MeasurementSet.read_file(options.measurements)
    if options.device is None:
        message = "a table does not say what was measured: add --device, such as nvidia-titan-x"
        raise ParameterError(message, parameter="device")
    return measurements_of_table(
        options.measurements,
        kernels=options.kernels,
        device=options.device,
        ignore=options.ignore,
    )
