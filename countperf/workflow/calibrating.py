"""Calibration: weights of a device within minutes, from what is known of other devices."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from countperf.documents import check_writable
from countperf.errors import (
    CountingError,
    DeviceError,
    DocumentError,
    FitError,
    KernelSpecificationError,
    MeasurementError,
    ParameterError,
)
from countperf.execution.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.fitting.design import Observation
from countperf.fitting.fit import observations_of
from countperf.fitting.leaving_out import held_out_figure
from countperf.fitting.transfer.calibrated import (
    TransferFit,
    fit_new_device,
    predicted_by,
)
from countperf.fitting.transfer.choice import KernelChoice, shipped_choice
from countperf.fitting.transfer.document import weights_document
from countperf.fitting.transfer.prior import (
    ExpectedErrors,
    KnownDevice,
    KnownDevices,
    is_alike,
    shipped_devices,
)
from countperf.fitting.transfer.result import (
    CalibratedModel,
    CalibrationResult,
)
from countperf.hardware.identity import DeviceIdentity
from countperf.hardware.memory import counted_caches_of, memory_hierarchy_of
from countperf.harness.campaign import measure
from countperf.harness.compile.compiled_kernel import GROUP_STATES
from countperf.harness.device import Device
from countperf.harness.devices import find_device
from countperf.harness.environment import available_cores
from countperf.harness.progress import Progress, ProgressEvent, silent
from countperf.harness.repeats import CALIBRATION
from countperf.harness.runner import KernelRunner
from countperf.harness.store import Rewriting
from countperf.machine_code import objdump, throughput
from countperf.machine_code.objdump import find_objdump
from countperf.machine_code.throughput import find_analyzer
from countperf.measurements import KernelCase, Measurement, MeasurementSet
from countperf.models.compiled import COMPILED
from countperf.models.library import (
    OWN,
    NamedFit,
    checked_own_name,
    find_fit,
    fits_for,
    short_name,
    store_own_fit,
    user_fits_folder,
)
from countperf.models.structural import STRUCTURAL
from countperf.models.weights import WeightSet
from countperf.properties.count_properties import count_kernel
from countperf.steps import report
from countperf.workflow.calibration_cases import CODE_S, CalibrationTask, cases_of
from countperf.workflow.compiled_code import read_code

LEAST_MINUTES, MOST_MINUTES = 1.0, 60.0

_MOST_UNSETTLED = 1 / 3
"""Share of cases that did not settle from which on the machine counts as busy."""

_FIRST_CASES = 12
"""Number of cases from which on a busy machine is noticed before the time is over."""

_FEWEST_KERNELS = 8

_LEAST_GAIN = 0.05
"""Part by which new weights have to be better than those that there are (logarithm of the factor
over measured kernels): on a machine that has not changed, new ones gain at most .01."""

_FIT_S = 5.0


def calibrate(
    *,
    device: str | Device | None = None,
    minutes: float = 3.0,
    name: str | None = None,
    store: Path | str | None = None,
    busy: bool = False,
    progress: Progress = silent,
    runner: KernelRunner | None = None,
    known: KnownDevices | None = None,
    choice: KernelChoice | None = None,
) -> CalibrationResult:
    """Measure the kernels that tell most about a device, and fit its weights to them.

    What other devices' fits say is the prior: weights that the measured kernels do not determine
    stay there, with the uncertainty that other devices show. Weights are stored among the user's
    own, for ``predict(..., weights="mine/NAME")``. Called again, it goes on with the next kernels.
    Weights of a fit of the same device that there is already are kept, model by model, unless new
    ones predict families of measured kernels that are left out notably better than they do.
    """
    began = time.monotonic()
    if not LEAST_MINUTES <= minutes <= MOST_MINUTES:
        message = f"{minutes:g} minutes are not between {LEAST_MINUTES:g} and {MOST_MINUTES:g}"
        raise ParameterError(message, parameter="minutes")
    if name is not None:
        checked_own_name(name)
    found = device if isinstance(device, Device) else find_device(device)
    plain = checked_own_name(name or found.identity.slug)
    check_writable(user_fits_folder() / "weights.json")
    devices = known or shipped_devices()
    without_code = _why_no_code(found)
    if without_code:
        message = f"no model will read compiled code, and errors are larger: {without_code}"
        progress(ProgressEvent(kind="limited", message=message))
    is_here = found.identity.device_type == "cpu"
    own = counted_caches_of(found.identity, is_here=is_here)
    task = CalibrationTask(
        device=found,
        runner=runner or KernelRunner.open(found),
        memory=memory_hierarchy_of(found.identity, is_here=is_here),
        caches=own if devices.own_caches else DEFAULT_CACHES,
        store=Path(store) if store is not None else _usual_store(plain),
        reads_code=not without_code,
        deadline=began + 60.0 * minutes,
        minutes=minutes,
    )
    task.store.parent.mkdir(parents=True, exist_ok=True)
    cases = cases_of(task, (choice or shipped_choice()).kernels, progress)
    if not busy:
        forget_unsettled(task.store)
    measured = _measure(task, cases, progress, busy=busy)
    unsettled = sum(each.settling != "settled" for each in measured)
    _require_settled(measured, task.store, busy=busy)
    if task.reads_code:
        measured, without_code = _with_code(task, measured)
    if not busy:
        measured = measured.select(_is_settled)
    models = _fit_all(task, measured, devices, plain, busy=busy)
    near = [each.device for each in _devices_of(devices)]
    near.sort(key=lambda each: not is_alike(each, found.identity))
    return CalibrationResult(
        name=f"{OWN}{models[0].path.parent.name}",
        device=found.identity,
        known=tuple(dict.fromkeys(each.slug for each in near)),
        is_kin=any(is_alike(each, found.identity) for each in near),
        store=task.store,
        kernels=len({each.kernel for each in measured}),
        cases=len(measured),
        unsettled=unsettled,
        busy=busy,
        spent_s=time.monotonic() - began,
        models=models,
        without_code=without_code,
        is_complete={case.name for case in cases}
        <= {e.case for e in (*measured.measurements, *measured.failures)},
    )


def _usual_store(name: str) -> Path:
    return user_fits_folder().parent / "calibrations" / f"{name}.jsonl"


def _devices_of(known: KnownDevices) -> list[KnownDevice]:
    return [device for model in known.models for device in model.devices]


def _why_no_code(device: Device) -> str:
    """Return why compiled code cannot be read on a device; nothing if it can."""
    if device.identity.platform not in GROUP_STATES:
        return f"{device.identity.platform} does not keep its machine code"
    if find_objdump() is None:
        return f"no objdump found: {objdump.INSTALL_ADVICE}"
    if find_analyzer() is None:
        return f"no llvm-mca found that is new enough: {throughput.INSTALL_ADVICE}"
    return ""


def _measure(
    task: CalibrationTask,
    cases: Sequence[KernelCase],
    progress: Progress,
    *,
    busy: bool,
) -> MeasurementSet:
    """Measure cases until the time for it is over, or too many of them do not settle."""
    kernels: set[str] = set()
    ends: Counter[str] = Counter()
    code_s = CODE_S / min(available_cores(), 2) if task.reads_code else 0.0

    def left_s() -> float:
        return task.deadline - _FIT_S - code_s * len(kernels) - time.monotonic()

    def is_over() -> bool:
        finished = ends["measured"] + ends["unstable"]
        is_hopeless = finished >= _FIRST_CASES and ends["unstable"] > _MOST_UNSETTLED * finished
        return left_s() <= CALIBRATION.separation_s or (is_hopeless and not busy)

    def told(event: ProgressEvent) -> None:
        ends[event.kind] += 1
        if event.case:
            kernels.add(event.case.rsplit("/", 1)[0])
        kind = "measured" if event.kind == "unstable" else event.kind  # told all together later
        progress(replace(event, kind=kind, remaining_s=max(left_s(), 0.0)))

    return measure(
        cases,
        store=task.store,
        protocol=CALIBRATION,
        count=partial(count_kernel, view="structure", caches=task.caches),
        progress=told,
        runner=task.runner,
        begin_no_more=is_over,
    )


def _is_settled(measurement: Measurement) -> bool:
    return measurement.settling == "settled"


def forget_unsettled(store: Path) -> None:
    """Drop times that did not settle from earlier measurements, so that they are taken again."""
    if store.exists():
        with Rewriting(store) as file:
            found = file.read()
            if len(settled := found.select(_is_settled)) < len(found):
                file.write(settled)


def _require_settled(measured: MeasurementSet, store: Path, *, busy: bool) -> None:
    """Refuse a fit to times that do not repeat."""
    unsettled = sum(not _is_settled(failure) for failure in measured)
    if unsettled > _MOST_UNSETTLED * len(measured) and not busy:
        raise MeasurementError(
            f"{unsettled} of {len(measured)} times did not settle: other programs use the machine;"
            f" nothing is stored but the {len(measured) - unsettled} that settled ({store}). End"
            " those programs and calibrate again, which goes on from there; or pass"
            " busy=True, which uses the others as well and makes intervals wider"
        )
    kernels = {failure.kernel for failure in measured if busy or _is_settled(failure)}
    if len(kernels) < _FEWEST_KERNELS:
        first = next((failure.reason for failure in measured.failures), "the time was over")
        raise MeasurementError(
            f"only {len(kernels)} kernels could be measured ({first}); give more (minutes=NUMBER);"
            f" what was measured is kept in {store}"
        )


def _with_code(task: CalibrationTask, measured: MeasurementSet) -> tuple[MeasurementSet, str]:
    """Read the compiled code of measured kernels; say why, if that fails."""
    try:
        return read_code(task.store, device=task.device.label), ""
    except (DeviceError, KernelSpecificationError, DocumentError) as error:
        return measured, str(error)


def _fit_all(
    task: CalibrationTask,
    measured: MeasurementSet,
    known: KnownDevices,
    name: str,
    *,
    busy: bool,
) -> tuple[CalibratedModel, ...]:
    """Fit each model and store its weights, that which reads code first."""
    observations = observations_of(measured)
    kernels = len({case.kernel for case in observations})
    name, before = _own_name(name, task.device.identity)
    others = [fit for fit in fits_for(task.device.identity) if fit.name != f"{OWN}{name}"]
    made: list[tuple[CalibratedModel, WeightSet]] = []
    for kind in (COMPILED, STRUCTURAL):
        model = known.of(kind)
        if model is None or (kind == COMPILED and not task.reads_code):
            continue
        try:
            report(f"fitting the {kind} model", 0)
            fit = fit_new_device(observations, model, task.device.identity, task.memory)
        except FitError:
            if kind == STRUCTURAL:
                raise
            continue
        is_kin = any(is_alike(each.device, task.device.identity) for each in model.devices)
        expected = model.errors_after(kernels) if is_kin else None
        weights = _document(task, measured, fit, observations, expected, busy=busy)
        old, factors = _compared(fit, kind, observations, others, task.caches)
        is_kept = old is not None and math.log(factors[0] / factors[1]) < _LEAST_GAIN
        calibrated = CalibratedModel(
            kind=kind,
            fit=fit,
            path=Path(),
            old="" if old is None else others[0].name,
            old_factor=factors[0],
            new_factor=factors[1],
            is_kept=is_kept,
            expected=None if is_kept else expected,
        )
        made.append((calibrated, old if is_kept and old is not None else weights))
    stored, _ = store_own_fit(*(weights for _, weights in made), name=name, replace=True)
    fit = find_fit(stored)
    assert fit is not None
    paths = [fit.models[short_name(weights.model)] for _, weights in made]
    for path in before:  # what an earlier calibration had and this one has not
        if path not in paths:
            path.unlink()
    models = [each for each, _ in made]
    return tuple(replace(each, path=path) for each, path in zip(models, paths, strict=True))


def _compared(
    fit: TransferFit,
    kind: str,
    observations: Sequence[Observation],
    others: Sequence[NamedFit],
    caches: CountedCaches,
) -> tuple[WeightSet | None, tuple[float, float]]:
    """Return weights of the device that there are, and the factors that they and a fit are off by.

    The factors are of the same cases; those of the fit are predicted without their families.
    """
    nothing = None, (math.inf, fit.held_out_factor)
    path = others[0].models.get(kind) if others else None
    if path is None:
        return nothing
    try:
        old = WeightSet.read_file(path)
        old.check_counting_rules()
    except (DocumentError, CountingError):
        return nothing
    if not old.counted_caches.counts_alike(caches, reads_code=kind == COMPILED):
        return nothing
    by_old = predicted_by(
        old,
        [observation for observation in observations if kind != COMPILED or observation.has_code],
    )
    shared = {case.name for case in by_old}
    by_new = [case for case in fit.held_out if case.name in shared]
    if 2 * len(by_new) < len(fit.held_out):
        return nothing
    return old, (held_out_figure(by_old).factor, held_out_figure(by_new).factor)


def _document(
    task: CalibrationTask,
    measured: MeasurementSet,
    fit: TransferFit,
    observations: Sequence[Observation],
    expected: ExpectedErrors | None,
    *,
    busy: bool,
) -> WeightSet:
    """Return the document of a fit's weights."""
    by_name = {case.name: case for case in observations}
    return weights_document(
        fit,
        [by_name[case.name] for case in fit.held_out],
        device=task.device.identity,
        protocol=CALIBRATION.name,
        recorded_at=measured.header.environment.recorded_at,
        expected=expected,
        caches=task.caches,
        noise=float(np.sqrt(np.mean([case.noise**2 for case in observations]))) if busy else 0.0,
    )


def _own_name(name: str, device: DeviceIdentity) -> tuple[str, tuple[Path, ...]]:
    """Return the name under which no fit is but earlier calibrations of a device, and their files.

    Those have weights that a calibration fitted, or kept from another fit of the device.
    """
    number = 1
    while True:
        plain = name if number == 1 else f"{name}-{number}"
        fit = find_fit(f"{OWN}{plain}")
        there = () if fit is None else tuple(fit.models.values())
        known = [
            WeightSet.read_file(path)
            for each in fits_for(device)
            if there and each.name != f"{OWN}{plain}"
            for path in each.models.values()
        ]
        if all(_is_calibrated(WeightSet.read_file(path), device, known) for path in there):
            return plain, there
        number += 1


def _is_calibrated(found: WeightSet, device: DeviceIdentity, known: Sequence[WeightSet]) -> bool:
    is_fitted = found.source is not None and found.source.protocol == CALIBRATION.name
    return found.device.matches(device) and (is_fitted or found in known)
