#!/usr/bin/env python3
"""Fit the calibrations that were measured for real, and judge them beside the full fit.

``fits/DEVICE/calibration`` holds what `countperf calibrate` measured in five minutes of an idle
machine, and times of the kernels that judge fits, measured next. What is known of the same
processor is left out of the prior. The first minute is that of the measurements' own clock.

    scripts/judge_calibration.py            # the table, as in docs/guides/calibration.md
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ablate_models import FITS
from calibration_data import processor_of
from countperf.fitting.design import common_caches
from countperf.fitting.fit import observations_of
from countperf.fitting.transfer.calibrated import fit_new_device
from countperf.fitting.transfer.document import weights_document
from countperf.fitting.transfer.prior import shipped_devices
from countperf.fitting.validation import evaluate
from countperf.hardware.memory import memory_hierarchy_of
from countperf.harness.protocols import CALIBRATION
from countperf.measurements import MeasurementSet
from countperf.metrics import mean_error
from countperf.models.weights import WeightSet
from simulate_calibration import JUDGES, LEAST_ERROR


def first_session(measured: MeasurementSet) -> MeasurementSet:
    """Return what was measured before the campaign went on: by ``calibrate --minutes 1``."""
    resumed = min(each.environment.recorded_at for each in measured.resumptions)
    return measured.select(lambda each: each.recorded_at < resumed)


def calibrated(measured: MeasurementSet) -> Iterator[tuple[str, int, WeightSet]]:
    """Return kind, number of kernels and weights of each model that some measurements fit."""
    device = measured.device
    observations = observations_of(measured)
    by_name = {case.name: case for case in observations}
    kernels = len({case.kernel for case in observations})
    for known in shipped_devices().models:
        model = known.without(lambda each: processor_of(each.slug) == processor_of(device.slug))
        fit = fit_new_device(observations, model, device, memory_hierarchy_of(device))
        weights = weights_document(
            fit,
            [by_name[case.name] for case in fit.held_out],
            device=device,
            protocol=CALIBRATION.name,
            recorded_at=measured.header.environment.recorded_at,
            expected=model.errors_after(kernels),
            caches=common_caches(measured),
        )
        yield model.kind, kernels, weights


def line(judges: MeasurementSet, weights: WeightSet) -> str:
    """Return geometric means of relative errors, and how many intervals hold, as cells."""
    evaluation = evaluate(weights, judges)
    by_purpose = evaluation.by_purpose()
    errors = [
        mean_error([c.relative_error for c in by_purpose[purpose].cases], floor=LEAST_ERROR).value
        for purpose in JUDGES
    ]
    held, known = evaluation.coverage()
    return " | ".join(
        [*(f"{100 * error:.1f} %" for error in errors), f"{100 * held / known:.0f} %"]
    )


def main() -> None:
    """Print the table, and write the weights of all measurements beside them."""
    print("| device | model | kernels | test kernels | applications | variants | 90 % hold |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for folder in sorted(FITS.glob("*/calibration")):
        measured = MeasurementSet.read_file(folder / "measurements.jsonl.gz")
        judges = MeasurementSet.read_file(folder / "judges.jsonl.gz")
        slug = folder.parent.name
        for some in (first_session(measured), measured):
            for kind, kernels, weights in calibrated(some):
                print(f"| {slug} | {kind} | {kernels} | {line(judges, weights)} |", flush=True)
                if some is measured:
                    weights.write_file(folder / f"{kind}.json")
        _print_full(slug, folder.parent, judges)


def _print_full(slug: str, folder: Path, judges: MeasurementSet) -> None:
    full = WeightSet.read_file(folder / "weights.json")
    print(f"| {slug} | full fit, structural | | {line(judges, full)} |", flush=True)


if __name__ == "__main__":
    main()
