"""Calibration: weights of a device within minutes, from what is known of other devices."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from countperf import errors
from countperf.api.catalogue import read_code
from countperf.api.fits import why_no_code
from countperf.counting.count_properties import count_kernel
from countperf.counting.structure import memory_hierarchy as hierarchy
from countperf.devices.device import Device
from countperf.devices.discovery import find_device
from countperf.devices.identity import available_cores, choose_caches, memory_hierarchy_of
from countperf.errors import MeasurementError, option
from countperf.measuring import KernelCase, Measurement, MeasurementSet, size_choice
from countperf.measuring.campaign import measure, rewrite_file
from countperf.measuring.runner import CALIBRATION, PROBES, KernelRunner, MemoryState
from countperf.models import library
from countperf.models.fitting import prior
from countperf.models.fitting.fit_model import observations_of
from countperf.models.fitting.prior import rescale_weights
from countperf.models.library import OWN, check_own_name, user_fits_folder
from countperf.models.shipped import COMPILED, STRUCTURAL
from countperf.models.weights import WeightSet
from countperf.sizes import checks_keywords
from countperf.steps import report
from countperf.store import check_writable
from countperf.text import ShortRepr
from measurement_kernels.catalog import entry
from measurement_kernels.entry import CatalogEntry

LEAST_MINUTES, MOST_MINUTES = 1.0, 60.0

_MOST_UNSETTLED = 1 / 3  # share of cases from which on the machine counts as busy
_SLOW_MEMORY = 1.5  # times of copies over those of a fit from which on memory is not as usual
_FIRST_CASES, _HOPELESS = 12, 1 / 2  # of so many cases or more, a share that ends it early
_FEWEST_KERNELS = 8
_FIT_S = 5.0
CODE_S = 1.8
"""Processor time kept for reading a kernel's code, s: 1.3 (40 kernels, PoCL, Zen 3) and rounds."""

_SEARCH_SHARE = 0.35  # of the time, in which sizes are found on devices for which none ship
_MEMORY_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibrationTask(ShortRepr):
    """Task of a calibration."""

    device: Device  # the device
    runner: KernelRunner  # what runs kernels on it
    memory: hierarchy.MemoryHierarchy  # its caches
    caches: hierarchy.CountedCaches  # for which kernels are counted
    store: Path  # where measurements go
    reads_code: bool  # whether compiled code will be read
    deadline: float  # when all has to be done, by the monotonic clock
    minutes: float  # the budget


@checks_keywords
def calibrate(
    *,
    device: str | Device | None = None,
    minutes: float = 3.0,
    name: str | None = None,
    store: Path | str | None = None,
    busy: bool = False,
) -> prior.CalibrationResult:
    """Measure the kernels that tell most about a device, and fit its weights to them.

    What other devices' fits say is the prior: weights that the measured kernels do not determine
    stay there, with the uncertainty that other devices show. Where weights of the very device ship,
    they are rescaled instead (`countperf.models.fitting.prior`). Weights are stored among the
    user's own, for ``predict(..., weights="mine/NAME")``. Called again, it goes on with the next
    kernels.

    Parameters
    ----------
    device : str or Device, optional
        As for `measure`; by default the first GPU that works, else the first device.
    minutes : float
        Time for measuring and fitting together, 1 to 60 minutes.
    name, store : optional
        Name of the fit, ``mine/NAME``, by default the device's slug; file in which measurements are
        kept (``.jsonl``), by default in the user's data folder.
    busy : bool
        Use times that do not settle, too: other programs use the machine; intervals are wider.

    Raises
    ------
    ParameterError, DeviceError, MeasurementError
        The minutes or the name cannot be used; the device does not work; too few kernels could be
        measured, or their times do not settle.

    Examples
    --------
    >>> fitted = calibrate(minutes=3)  # doctest: +SKIP
    >>> predict("n-body/256x1/f32", n=4096, weights=fitted.name)  # doctest: +SKIP
    """
    began = time.monotonic()
    if not LEAST_MINUTES <= minutes <= MOST_MINUTES:
        message = f"{minutes:g} minutes are not between {LEAST_MINUTES:g} and {MOST_MINUTES:g}"
        raise errors.ParameterError(message, parameter="minutes")
    if name is not None:
        check_own_name(name)
    chosen = device if isinstance(device, Device) else find_device(device)
    plain = check_own_name(name or chosen.identity.slug)
    kept = Path(store or user_fits_folder().parent / "calibrations" / f"{plain}.jsonl")
    check_writable(user_fits_folder() / "weights.json", kept)
    devices = prior.load_shipped_devices()
    without_code = why_no_code(chosen)
    is_here = chosen.identity.device_type == "cpu"
    own = choose_caches(chosen.identity, is_here=is_here)
    task = CalibrationTask(
        device=chosen,
        runner=KernelRunner.open(chosen),
        memory=memory_hierarchy_of(chosen.identity, is_here=is_here),
        caches=own if devices.own_caches else hierarchy.DEFAULT_CACHES,
        store=kept,
        reads_code=not without_code,
        deadline=began + 60.0 * minutes,
        minutes=minutes,
    )
    shipped = _load_shipped(chosen, task.caches)
    if not busy:
        _require_usual_memory(task.runner, shipped)
        forget_unsettled(task.store)
    cases = _list_cases(task, prior.load_shipped_choice().kernels)
    measured = _measure(task, cases, busy=busy)
    unsettled = len(measured) - len(measured.select(_is_settled))
    if task.reads_code:
        try:
            measured = read_code(task.store, device=chosen.label)
        except (errors.DeviceError, errors.KernelSpecificationError, errors.DocumentError) as error:
            without_code = str(error)
    if not busy:
        measured = measured.select(_is_settled)
    stored, models = _fit_all(task, measured, devices, shipped, plain, busy=busy)
    near = [weights.device for weights in shipped.values()]
    near = near or [one.device for model in devices.models for one in model.devices]
    near.sort(key=lambda identity: not prior.is_alike(identity, chosen.identity))
    return prior.CalibrationResult(
        name=stored,
        device=chosen.identity,
        known=tuple(dict.fromkeys(identity.slug for identity in near)),
        is_kin=any(prior.is_alike(identity, chosen.identity) for identity in near),
        store=task.store,
        kernels=len({measurement.kernel for measurement in measured}),
        cases=len(measured),
        unsettled=unsettled,
        busy=busy,
        spent_s=time.monotonic() - began,
        models=models,
        without_code=without_code,
        is_complete={case.name for case in cases}
        <= {e.case for e in (*measured.measurements, *measured.failures)},
    )


def _require_usual_memory(runner: KernelRunner, shipped: Mapping[str, WeightSet]) -> None:
    """Refuse to calibrate while memory is far slower than when the weights that ship were made."""
    now_s = runner.probe_memory(PROBES)
    for weights in shipped.values():
        usual = MemoryState(weights.source.memory_s if weights.source else ())
        if (slowness := usual.slowness(now_s)) > _SLOW_MEMORY:
            raise MeasurementError(
                f"memory is {slowness:.1f} times slower than when the weights that ship,"
                f" {weights.name}, were measured: other programs or machines use it; wait and"
                f" calibrate again, or pass {option('busy', 'True')}"
            )


def _measure(task: CalibrationTask, cases: Sequence[KernelCase], *, busy: bool) -> MeasurementSet:
    """Measure cases until the time for it is over; refuse if too many do not settle."""
    code_s = CODE_S / min(available_cores(), 2) if task.reads_code else 0.0

    def is_over(kernels: Collection[str], measured: Sequence[Measurement]) -> bool:
        left_s = task.deadline - _FIT_S - code_s * len(kernels) - time.monotonic()
        if len(measured) >= _FIRST_CASES and not busy:
            _refuse_unsettled(measured, task.store, _HOPELESS)
        return left_s <= CALIBRATION.separation_s

    measured = measure(
        cases,
        store=task.store,
        protocol=CALIBRATION,
        count=partial(count_kernel, view="structure", caches=task.caches),
        runner=task.runner,
        begin_no_more=is_over,
    )
    if not busy:
        _refuse_unsettled(measured.measurements, task.store, _MOST_UNSETTLED)
    kernels = {each.kernel for each in measured if busy or _is_settled(each)}
    if len(kernels) < _FEWEST_KERNELS:
        first = next((failure.reason for failure in measured.failures), "the time was over")
        raise MeasurementError(
            f"only {len(kernels)} kernels could be measured ({first}); give more"
            f" ({option('minutes', 'NUMBER')}); what was measured is kept in {task.store}"
        )
    return measured


def _is_settled(measurement: Measurement) -> bool:
    return measurement.settling == "settled"


def forget_unsettled(store: Path) -> None:
    """Drop times that did not settle from earlier measurements, so that they are taken again."""
    if store.exists():
        with rewrite_file(store) as write:
            measured = MeasurementSet.read_file(store)
            if len(settled := measured.select(_is_settled)) < len(measured):
                write(settled)


def _refuse_unsettled(measured: Collection[Measurement], store: Path, most: float) -> None:
    """Refuse to go on if a larger share of the times than that did not settle."""
    unsettled = sum(not _is_settled(measurement) for measurement in measured)
    if unsettled > most * len(measured):
        raise MeasurementError(
            f"{unsettled} of {len(measured)} times did not settle: other programs use the machine;"
            f" nothing is stored but the {len(measured) - unsettled} that settled ({store}). End"
            " those programs and calibrate again, which goes on from there; or pass"
            f" {option('busy', 'True')}, which uses the others as well and makes intervals wider"
        )


def _fit_all(
    task: CalibrationTask,
    measured: MeasurementSet,
    known: prior.KnownDevices,
    shipped: Mapping[str, WeightSet],
    name: str,
    *,
    busy: bool,
) -> tuple[str, tuple[prior.CalibratedModel, ...]]:
    """Fit and store each model, unless weights that ship are better; return the name of these."""
    observations = observations_of(measured)
    noise = float(np.sqrt(np.mean([case.noise**2 for case in observations]))) if busy else 0.0
    kernels = len({case.kernel for case in observations})
    made: list[tuple[prior.KnownModel, WeightSet]] = []
    for kind in (COMPILED, STRUCTURAL):
        model = known.of(kind)
        if model is None or (kind == COMPILED and not task.reads_code):
            continue
        report(f"fitting the {kind} model", 0)
        try:
            if kind in shipped:
                weights = rescale_weights(shipped[kind], observations, measured.header, noise=noise)
            else:
                known_here: Any = {"memory": task.memory, "caches": task.caches, "noise": noise}
                fitted = prior.fit_with_prior(observations, model, measured.header, **known_here)
                weights = fitted.weights
        except errors.FitError:
            if kind == STRUCTURAL:
                raise
        else:
            made.append((model, weights))

    def is_calibrated(path: Path) -> bool:  # an earlier calibration's, which this one replaces
        source = WeightSet.read_file(path).source
        return source is not None and source.protocol == CALIBRATION.name

    usual = {
        model.kind: prior.find_error(shipped[model.kind], observations)
        for model, _ in made
        if model.kind in shipped
    }
    first, weights = made[0]
    own_error = weights.quality and weights.quality.held_out_error
    known_error = usual.get(first.kind)
    is_better = known_error is None or own_error is None or own_error < known_error
    paths: Mapping[str, Path] = {}
    if not is_better:
        stored = shipped[first.kind].name
    else:
        stored, _ = library.store_own_fit(*(w for _, w in made), name=name, replace=is_calibrated)
        fit = library.find_fit(stored)
        assert fit is not None
        paths = fit.models
    models: list[prior.CalibratedModel] = []
    for model, weights in made:
        # beside calibrations of other devices after as many kernels
        expected = model.find_errors_on(task.device.identity, kernels)
        error = None if weights.quality is None else weights.quality.held_out_error
        factor = 1.0 if expected is None else prior.widening(error, expected)
        models.append(
            prior.CalibratedModel(
                model=weights.model,
                weights=weights,
                path=paths.get(model.kind),
                held_out_error=error,
                shipped_error=usual.get(model.kind),
                factor=factor,
                expected_error=expected and factor * expected.typical_error,
            )
        )
    return stored, tuple(models)


def _load_shipped(device: Device, caches: hierarchy.CountedCaches) -> dict[str, WeightSet]:
    """Return the weights that ship for the very device, by model."""
    weights = {
        kind: library.load_weights(fit.name, model=kind)
        for fit in library.fits_for(device.identity)
        if not fit.name.startswith(OWN)
        for kind in (COMPILED, STRUCTURAL)
        if kind in fit.models
    }
    return {kind: w for kind, w in weights.items() if w.counted_caches.counts_alike(caches)}


def _list_cases(task: CalibrationTask, kernels: Sequence[prior.ChosenKernel]) -> list[KernelCase]:
    """Return the cases to measure, in their order."""
    limits = task.device.limits
    fitting = [
        (kernel, entry(kernel.name))
        for kernel in kernels
        if int(np.prod(entry(kernel.name).group_shape)) <= limits.max_group_size
    ]
    most_bytes = min(_MEMORY_SHARE * limits.global_memory_bytes, limits.max_allocation_bytes)
    if task.device.identity.device_type == "cpu":
        cases = (
            known.case_at(**size.parameters) for kernel, known in fitting for size in kernel.sizes
        )
        return [case for case in cases if case.global_memory_bytes <= most_bytes]
    return size_here(task, [known for _, known in fitting])


def size_here(task: CalibrationTask, entries: Sequence[CatalogEntry]) -> list[KernelCase]:
    """Find sizes on a device of another kind than those that the choice has sizes for."""
    limits = size_choice.measure_limits(
        task.runner.session, overhead_factor=15.0, max_run_s=0.02, max_setup_s=0.6
    )
    path = task.store.with_suffix(".sizes.json")
    until = time.monotonic() + _SEARCH_SHARE * 60.0 * task.minutes
    chosen, number = None, 0
    while chosen is None or (number < len(entries) and time.monotonic() <= until):
        number += 8
        chosen = size_choice.calibrate(entries[:number], task.runner, limits, store=path)
    cases = (chosen.cases([tried]) for tried in entries[:number])
    return [case for of in cases for case in ((of[0], of[-1]) if len(of) > 1 else of)]
