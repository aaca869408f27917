"""Commands on weights: ``measure``, ``fit``, ``calibrate``, ``evaluate``, ``compare``."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from datetime import date

from countperf.api.calibration import calibrate
from countperf.api.catalogue import measure_catalogue
from countperf.api.evaluation import (
    compare,
    evaluate,
    evaluate_ranking,
    fit,
    list_measured_devices,
    measurements_of_table,
)
from countperf.cli.common import pick_options, say, show, show_all
from countperf.cli.mechanistic import profile_options
from countperf.devices.identity import DeviceIdentity
from countperf.errors import FitError, ParameterError
from countperf.figures import check_outputs, draw
from countperf.measuring import MeasurementSet
from countperf.models import library
from countperf.models.fitting.fit_model import FitResult
from countperf.models.metrics import Evaluation
from countperf.store import check_writable, read_content
from countperf.text import Printed

_CAMPAIGN = (".jsonl", ".jsonl.gz")


def run_fit(options: argparse.Namespace) -> None:
    """Fit, save and print the weights with what was checked."""
    if options.name is not None:
        library.check_own_name(options.name)  # before the work
        if options.output is not None:
            message = "a fit is written to a file, or under a name: --output or --name, not both"
            raise ParameterError(message, parameter="name")
    check_writable(options.output or library.user_fits_folder() / "weights.json")  # before the work
    results = _fit_models(options, _read_measurements(options))
    result = results[0]
    if options.output is not None:
        name = output = options.output
        result.weights.write_file(output)
    else:
        name = options.name or f"{result.weights.device.slug}-{date.today().isoformat()}"
        name, output = library.store_own_fit(*(each.weights for each in results), name=name)
    models = [library.short_name(each.weights.model) for each in results]
    notes = [
        *(f"also fitted: {model}; to use it: --model {model}" for model in models[1:]),
        f"written to {output}; to use it: --weights {shlex.quote(str(name))}",
        *_say_default(result.weights.device),
    ]
    facts = {"written": output, "name": name, "models": models}
    shown = result.lay_out()
    show(options, replace(shown, notes=[*shown.notes, *notes], facts={**shown.facts, **facts}))


def _say_default(device: DeviceIdentity) -> list[str]:
    """Say which weights predict for a device where none are named, and why these."""
    said, own = f"default for {device.slug}, where no weights are named:", "the newest of your own"
    fits = library.fits_for(device)[:1]
    return [f"{said} {fit.name} ({own if fit.is_own else 'it ships'})" for fit in fits]


def _fit_models(options: argparse.Namespace, measurements: MeasurementSet) -> list[FitResult]:
    """Fit the model that is named, else those that a campaign suffices for, the default first."""
    models = [options.model or "linear"]
    chosen = pick_options(options, "objective", "nonnegative") | {"collections": options.collection}
    if not (options.model or options.output or options.device or any(chosen.values())):
        has_code = any(measurement.code for measurement in measurements)
        models = ["structural", *(["compiled"] if has_code else []), "linear"]
    fitted: list[FitResult] = []
    for model in models:
        try:
            fitted += [fit(measurements, model=model, **chosen)]
        except FitError as error:
            if model == models[-1] and not fitted:
                raise
            say(f"countperf: no {model} model: {error}")
    return fitted


def _read_measurements(options: argparse.Namespace) -> MeasurementSet:
    """Read a campaign's file, or a table."""
    is_campaign = read_content(options.measurements)[:1000].lstrip().startswith(b'{"format"')
    if is_campaign or (options.device is None and options.measurements.endswith(_CAMPAIGN)):
        if options.kernels is not None or options.device is not None:
            said = "a campaign's file names its kernels and device; leave out --kernels, --device"
            raise ParameterError(said, parameter="kernels")
        return MeasurementSet.read_file(options.measurements)
    if options.device is None:
        message = "a table does not say what was measured: add --device, such as nvidia-titan-x"
        raise ParameterError(message, parameter="device")
    return measurements_of_table(options.measurements, **pick_options(options, "kernels", "device"))


def run_calibrate(options: argparse.Namespace) -> None:
    """Calibrate, and say what was reached."""
    result = calibrate(**pick_options(options, "device", "minutes", "name", "store", "busy"))
    shown = result.lay_out()
    show(options, replace(shown, notes=[*shown.notes, *_say_default(result.device)]))


def run_measure(options: argparse.Namespace) -> None:
    """Run the campaign and summarize it."""
    measured = measure_catalogue(
        **pick_options(options, "store", "device", "profile", "protocol"),
        families=options.family,
        purposes=options.purpose,
        collections=options.collection,
    )
    unstable = [m.case for m in measured if not m.stable]
    failed = {f.case: f.reason for f in measured.failures}
    device, facts = measured.device, {"store": options.store, "measured": len(measured)}
    where = f"on {device.slug} ({device.name}), {len(unstable)} of which did not settle"
    shown = Printed(
        head=[f"{len(measured)} cases measured {where}: {options.store}"],
        notes=[f"failed: {case}: {reason}" for case, reason in failed.items()],
        facts={"device": device.slug, **facts, "unstable": unstable, "failed": failed},
    )
    show(options, shown)


def run_evaluate(options: argparse.Namespace) -> None:
    """Evaluate and print predicted against measured times, and the order of variants."""
    check_outputs(options.figure, options.output)
    measurements = MeasurementSet.read_file(options.measurements)
    weights = pick_options(options, "weights", "model", "force")
    chosen = {"purposes": options.purpose, "collections": options.collection}
    evaluation = evaluate(measurements, **chosen, **weights)
    shown = evaluation.lay_out()
    shown = replace(shown, notes=[*shown.notes, *_judge_default(options, measurements, evaluation)])
    is_whole = not options.collection and "variant" in (options.purpose or ["variant"])
    if is_whole and (ranking := evaluate_ranking(measurements, **weights)).sets:
        ranked = ranking.lay_out()
        facts = {**shown.facts, "ranking": ranked.object()}
        shown = replace(shown, facts=facts, notes=[*shown.notes, "", ranked.text()])
    show(options, shown)
    if options.output:
        evaluation.write_file(options.output)
    if options.figure:
        draw(evaluation, options.figure)


def _judge_default(
    options: argparse.Namespace, measurements: MeasurementSet, own: Evaluation
) -> list[str]:
    """Say how far off the default weights are on the same kernels, where a user's own judge."""
    fit = library.find_fit(str(options.weights))
    first = next(iter(library.fits_for(measurements.device)), None)
    if fit is None or first is None or not fit.is_own or fit.name == first.name:
        return []
    chosen = {"purposes": options.purpose, "collections": options.collection}
    usual = evaluate(measurements, weights=first.name, **chosen)
    factors = {fit.name: own.mean_factor(), first.name: usual.mean_factor()}
    off = " and ".join(f"{name} a factor of {factor:.2f}" for name, factor in factors.items())
    better = shlex.quote(min(factors, key=factors.__getitem__))
    said = f"{off} in the mean; better on these kernels: --weights {better}"
    return [f"{first.name}, by default: {usual.summary}", said]


def run_compare(options: argparse.Namespace) -> None:
    """Compare all models and print their errors."""
    is_own = options.kernel is not None or options.timing is not None
    devices = options.measurements or ([None] if is_own else list(list_measured_devices()))
    if not devices:
        mend = "name a campaign's file, such as runs/mine.jsonl"
        message = f"no measurements of any device came with this installation; {mend}"
        raise ParameterError(message, parameter="measurements")
    if options.output and len(devices) != 1:
        there = ", ".join(map(str, devices))
        said = f"--output writes one device's comparison; name one of {there}"
        raise ParameterError(said, parameter="output")
    check_writable(options.output)  # before the work, not after it
    names = [name for part in options.model or () for name in part.split(",") if name]
    models = () if "all" in names else tuple(names)
    comparisons = [
        compare(
            device,
            device=options.document,
            models=models,
            kernel=options.kernel,
            timing=options.timing,
            profile_options=profile_options(options),
            levels=tuple(options.level or ("published", "scaled")),
            purposes=tuple(options.purpose or ("test",)),
        )
        for device in devices
    ]
    show_all(options, [compared.lay_out() for compared in comparisons], "comparisons")
    if options.output:
        comparisons[0].write_file(options.output)
