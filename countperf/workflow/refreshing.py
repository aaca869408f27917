"""Refreshing a fit: some kernels are run again, and groups of weights scaled to their times."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from countperf.documents.model_names import UNCORRECTED
from countperf.errors import ParameterError, UnstableMeasurementError
from countperf.execution.memory_hierarchy import CountedCaches
from countperf.fitting.design import Observation
from countperf.fitting.fit import observations_of
from countperf.fitting.transfer.calibrated import TransferFit
from countperf.fitting.transfer.choice import ChosenKernel, KernelChoice, shipped_choice
from countperf.fitting.transfer.penalised import Times
from countperf.fitting.transfer.refreshing import (
    change_prior,
    changes,
    refreshed,
    relative_to_old,
    scaled,
)
from countperf.fitting.transfer.result import Refreshed
from countperf.harness.campaign import measure
from countperf.harness.device import Device
from countperf.harness.devices import find_device
from countperf.harness.progress import Progress, silent
from countperf.harness.protocols import CALIBRATION
from countperf.harness.runner import CaseRunner, KernelRunner
from countperf.measurements import MeasurementSet
from countperf.metrics import mean_error
from countperf.models.function import model_inputs
from countperf.models.library import (
    NamedFit,
    checked_own_name,
    find_fit,
    load_weights,
    store_own_fit,
    user_fits_folder,
)
from countperf.models.weights import WeightSet
from countperf.properties.count_properties import count_kernel
from countperf.workflow.calibration_cases import cost_s
from countperf.workflow.compiled_code import read_code
from measurement_kernels.catalog import entry

MEASURE_S = 15.0
"""Time in which kernels are run, s; the rest of half a minute counts, reads code and fits."""
_KERNELS = 24
_FEWEST_CASES = 6
_FEWEST_MEASURED = 12
_MOST_UNSETTLED = 0.5
_LEAST_ERROR = 1e-3


def refresh(
    fit: str,
    *,
    device: str | Device | None = None,
    name: str | None = None,
    progress: Progress = silent,
    runner: CaseRunner | None = None,
    choice: KernelChoice | None = None,
) -> Refreshed:
    """Scale the weights of a fit to what its device is now, in about half a minute.

    Kernels of work on chip and of each level of memory are run. Weights change in groups: launches,
    work on chip, memory beyond each cache, address translation. The old weights are kept.

    Parameters
    ----------
    fit : str
        Name of the fit, shipped or ``mine/NAME``.
    device : str or Device, optional
        The device; by default that of the fit.
    name : str, optional
        Of the new fit; by default that of the old one and ``-refreshed``.
    progress, runner, choice
        As for `countperf.workflow.calibrating.calibrate`.

    Raises
    ------
    ParameterError
        There is no such fit, or its models are none that can be refreshed.
    DeviceMismatchError
        The device is not that of the fit.
    UnstableMeasurementError
        Times do not settle.
    """
    began = time.monotonic()
    old = find_fit(fit)
    if old is None:
        raise ParameterError(
            f"no fit is named {fit!r}; 'countperf weights' lists those there are", parameter="fit"
        )
    documents = _models(fit, old.models)
    first = next(iter(documents.values()))
    found = device if isinstance(device, Device) else find_device(device or first.device.slug)
    first.check_device(found.identity)
    usual = f"{fit.rpartition('/')[2]}-refreshed"
    plain = checked_own_name(name or usual)
    with tempfile.TemporaryDirectory(prefix="countperf-refresh-") as folder:
        kernels, old_s = _choose(old, choice or shipped_choice())
        measured = _measure(
            runner or KernelRunner.open(found),
            kernels,
            Path(folder) / "refresh.jsonl",
            first.counted_caches,
            progress,
        )
        if any(each.definition.reads_code for each in documents.values()):
            measured = read_code(Path(folder) / "refresh.jsonl", device=found.label)
    observations = observations_of(measured)
    factors: dict[str, dict[str, float]] = {}
    errors: dict[str, tuple[float, float]] = {}
    stored = ""
    for model, weights in documents.items():
        own = relative_to_old(weights, _known_to(weights, observations), old_s)
        outcome = refreshed(weights, own)
        factors[model] = dict(changes(outcome, outcome.design.function.columns))
        errors[model] = _before_and_after(outcome)
        stored, _ = store_own_fit(scaled(weights, outcome), name=plain, replace=True)
    return Refreshed(
        name=stored,
        old=fit,
        factors=factors,
        errors=errors,
        kernels=len({each.kernel for each in measured}),
        spent_s=time.monotonic() - began,
    )


def _models(fit: str, there: Iterable[str]) -> dict[str, WeightSet]:
    """Return the documents of a fit that have positive weights, without corrections."""
    names = [name for name in there if name != UNCORRECTED]
    found = {name: load_weights(fit, model=name) for name in names}
    usable = {
        name: weights.uncorrected
        for name, weights in found.items()
        if weights.definition.policy is not None and min(weights.unknowns) >= 0
    }
    caches = [weights.counted_caches for weights in usable.values()]
    if any(each != caches[0] for each in caches):
        raise ParameterError(
            f"the models of {fit} are for kernels that were counted for different caches; calibrate"
            " the device anew (countperf calibrate)",
            parameter="fit",
        )
    if not usable:
        raise ParameterError(
            f"{fit} has no weights of a structural or compiled model, which could be refreshed;"
            " calibrate the device (countperf calibrate)",
            parameter="fit",
        )
    return usable


def _choose(
    fit: NamedFit, choice: KernelChoice
) -> tuple[tuple[ChosenKernel, ...], dict[str, float]]:
    """Return kernels that differ in what bounds them, and the old times of their cases, s.

    Kernels that were measured for the fit come before others.
    """
    cases = {
        entry(each.name).case_at(**size.parameters).name: each.name
        for each in choice.kernels
        for size in each.sizes
    }
    old_s = _old_times(fit, set(cases))
    measured = {cases[case] for case in old_s}
    if len(measured) >= _FEWEST_MEASURED:
        kept = tuple(each for each in choice.kernels if each.name in measured)
        choice = choice.model_copy(update={"kernels": kept})
    costs = {
        each.name: cost_s([size.run_s for size in each.sizes], reads_code=True)
        for each in choice.kernels
    }
    prior = change_prior(choice.columns)
    kernels = choice.serving(choice.rows(choice.kernels), prior, costs, budget_s=MEASURE_S)
    return kernels[:_KERNELS], old_s


def _old_times(fit: NamedFit, cases: set[str]) -> dict[str, float]:
    """Return the times of cases that were measured for a fit, as far as they are kept, s."""
    folders = (user_fits_folder().parent / "calibrations", fit.folder)
    names = (f"{fit.folder.name}.jsonl", "measurements.jsonl")
    found: dict[str, float] = {}
    for path in (folder / name for folder, name in zip(folders, names, strict=True)):
        if not path.is_file():
            continue
        for each in MeasurementSet.read_file(path):
            if each.case in cases and each.settling == "settled":
                found.setdefault(each.case, each.time_s)
    return found


def _measure(
    runner: CaseRunner,
    kernels: Sequence[ChosenKernel],
    store: Path,
    caches: CountedCaches,
    progress: Progress,
) -> MeasurementSet:
    """Run kernels once more."""
    until = time.monotonic() + MEASURE_S
    cases = [entry(each.name).case_at(**size.parameters) for each in kernels for size in each.sizes]
    found = measure(
        cases,
        store=store,
        protocol=CALIBRATION.changed(separation_s=1.0),
        count=partial(count_kernel, view="structure", caches=caches),
        progress=progress,
        runner=runner,
        begin_no_more=lambda: time.monotonic() > until,
    )
    unsettled = sum(each.settling != "settled" for each in found)
    if len(found) < _FEWEST_CASES or unsettled > _MOST_UNSETTLED * len(found):
        raise UnstableMeasurementError(
            f"{unsettled} of {len(found)} times did not settle, or too few could be taken: end"
            " other programs, and refresh again; the old weights are as they were"
        )
    return found


def _known_to(weights: WeightSet, observations: tuple[Observation, ...]) -> list[Observation]:
    """Return the cases that weights can predict."""
    return [
        case
        for case in observations
        if not weights.missing(model_inputs(weights.definition, case.counts))
    ]


def _before_and_after(fit: TransferFit) -> tuple[float, float]:
    """Return the mean errors with the old and with the new weights."""
    old = Times(fit.design.function, fit.design)(fit.prior.mean)[0] / fit.design.times_s
    before = mean_error(np.abs(old - 1.0), floor=_LEAST_ERROR).value
    after = mean_error(np.abs(np.expm1(fit.fitted.residuals)), floor=_LEAST_ERROR).value
    return before, after
