#!/usr/bin/env python3
"""Judge models by kernels of other projects, with and without measurement classes like them.

Kernels of collection ``downstream`` and published ones judge. Models are fitted to the device's
measurements without the classes that are like them (`LIKE_OTHERS`) and with them: the model that
reads code by a calibration or in full, or the structural model with the policy of the weights that
ship. No fit sees what judges it.

    scripts/judge_others.py fits/DEVICE
    scripts/judge_others.py fits/DEVICE --calibration
    scripts/judge_others.py fits/DEVICE --structural
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from countperf.errors import PredictionError
from countperf.fitting.design import common_caches
from countperf.fitting.fit import observations_of
from countperf.fitting.transfer.calibrated import fit_new_device
from countperf.fitting.transfer.document import weights_document
from countperf.fitting.transfer.prior import shipped_devices
from countperf.hardware.memory import memory_hierarchy_of
from countperf.harness.protocols import CALIBRATION
from countperf.measurements import MeasurementSet
from countperf.metrics import mean_error
from countperf.models.compiled import COMPILED
from countperf.models.structural import structural
from countperf.models.weights import WeightSet
from countperf.workflow.fitting import fit
from simulate_calibration import LEAST_ERROR

LIKE_OTHERS = frozenset({"one-group", "element-einsums", "register-blocks", "around-caches"})
"""Measurement classes that are like kernels of other projects."""
FAR = 1.6
LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A case that judges: logarithm of predicted by measured, and whether the interval holds it."""

    kernel: str
    is_one_group: bool
    log: float | None
    inside: bool | None


def calibrated(measured: MeasurementSet) -> WeightSet:
    """Return weights that read code, by what is known of other processors and measurements."""
    (known,) = (each for each in shipped_devices().models if each.kind == COMPILED)
    observations = observations_of(measured)
    own = measured.device.processor
    model = known.without(lambda each: each.processor == own)
    device = measured.device
    found = fit_new_device(observations, model, device, memory_hierarchy_of(device))
    by_name = {case.name: case for case in observations}
    return weights_document(
        found,
        [by_name[case.name] for case in found.held_out],
        device=device,
        protocol=CALIBRATION.name,
        recorded_at=measured.header.environment.recorded_at,
        expected=model.errors_after(len({case.kernel for case in observations})),
        caches=common_caches(measured),
    )


def in_full(measured: MeasurementSet) -> WeightSet:
    """Return weights that read code, by measurements alone."""
    return fit(measured, model=COMPILED).weights


def by_default(measured: MeasurementSet, shipped: WeightSet) -> WeightSet:
    """Return structural weights, with the policy and the memory of those that ship."""
    definition = shipped.definition
    assert definition.policy is not None
    return fit(measured, model=structural(definition.policy, memory=definition.memory)).weights


def judge(weights: WeightSet, judges: MeasurementSet) -> Iterator[Judged]:
    """Predict all cases that judge."""
    for each in judges:
        vector = each.property_vector()
        has_code = vector is not None and vector.knows("code")
        if vector is None or (weights.definition.reads_code and not has_code):
            yield Judged(kernel=each.kernel, is_one_group=False, log=None, inside=None)
            continue
        counts = vector.evaluate(each.parameters)
        one = counts["groups"] == counts["launches"]
        try:
            found = weights.predict_counts(vector, each.parameters, incomplete_ok=True, level=LEVEL)
        except PredictionError:
            yield Judged(kernel=each.kernel, is_one_group=one, log=None, inside=None)
            continue
        log = float(np.log(float(found.time_s) / each.time_s))
        inside = None
        if found.interval_s is not None:
            low, high = map(float, found.interval_s)
            inside = low <= each.time_s <= high
        yield Judged(kernel=each.kernel, is_one_group=one, log=log, inside=inside)


def line(cases: Sequence[Judged]) -> str:
    """Return how well cases are predicted, as cells of a table."""
    logs = np.array([case.log for case in cases if case.log is not None])
    if not len(logs):
        return f"{len(cases)} | | | | | | "
    error = mean_error(np.abs(np.expm1(logs)), floor=LEAST_ERROR).value
    known = [case.inside for case in cases if case.inside is not None]
    cells = (
        f"{len(cases)}",
        f"{len(cases) - len(logs)}",
        f"{100 * error:.1f} %",
        f"{np.exp(np.median(np.abs(logs))):.2f}",
        f"{np.exp(np.mean(logs)):.2f}",
        f"{100 * np.mean(np.abs(logs) > np.log(FAR)):.0f} %",
        f"{100 * np.mean(known):.0f} %" if known else "",
    )
    return " | ".join(cells)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="measurements and weights of the device")
    parser.add_argument("--calibration", action="store_true", help="fit few kernels with a prior")
    parser.add_argument("--structural", action="store_true", help="fit the model without code")
    parser.add_argument("--cases", action="store_true", help="print each case, too")
    options = parser.parse_args()
    folder: Path = options.folder
    full = MeasurementSet.read_file(folder / "measurements.jsonl.gz")
    like_others = full.select(lambda each: each.family in LIKE_OTHERS)
    own = full.select(lambda each: each.family not in LIKE_OTHERS)
    if options.calibration:
        own = MeasurementSet.read_file(folder / "calibration" / "measurements.jsonl.gz")
    judges = MeasurementSet.read_file(folder / "others-judges.jsonl.gz")
    both = replace(own, measurements=(*own.measurements, *like_others.measurements))
    make = calibrated if options.calibration else in_full
    if options.structural:
        make = partial(by_default, shipped=WeightSet.read_file(folder / "weights.json"))
    print("| fit | cases | refused | error | median factor | bias | beyond 1.6 | 95 % hold |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, measured in (("without", own), ("with", both)):
        found = list(judge(make(measured), judges))
        for kind, some in (
            ("one group", [case for case in found if case.is_one_group]),
            ("several groups", [case for case in found if not case.is_one_group]),
            ("all", found),
        ):
            print(f"| {name} these classes, {kind} | {line(some)} |", flush=True)
        if options.cases:
            for case in found:
                print(
                    name, case.kernel, case.log if case.log is None else round(np.exp(case.log), 2)
                )


if __name__ == "__main__":
    main()
