"""Calibration: weights of a device within minutes, from what is known of other devices."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from countperf.documents import check_writable
from countperf.errors import (
    DeviceError,
    DocumentError,
    FitError,
    KernelSpecificationError,
    ParameterError,
    UnstableMeasurementError,
)
from countperf.execution.memory_hierarchy import DEFAULT_CACHES
from countperf.fitting.design import Observation
from countperf.fitting.fit import observations_of
from countperf.fitting.transfer.calibrated import TransferFit, fit_new_device
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
    unlearnt_features,
)
from countperf.hardware.memory import counted_caches_of, memory_hierarchy_of
from countperf.harness.campaign import measure
from countperf.harness.compile.compiled_kernel import GROUP_STATES
from countperf.harness.device import Device
from countperf.harness.devices import find_device
from countperf.harness.environment import available_cores
from countperf.harness.progress import Progress, ProgressEvent, silent
from countperf.harness.protocols import CALIBRATION
from countperf.harness.runner import KernelRunner
from countperf.machine_code import objdump, throughput
from countperf.machine_code.objdump import find_objdump
from countperf.machine_code.throughput import find_analyzer
from countperf.measurements import KernelCase, MeasurementSet
from countperf.models.compiled import COMPILED
from countperf.models.library import (
    OWN,
    checked_own_name,
    find_fit,
    store_own_fit,
    user_fits_folder,
)
from countperf.models.structural import STRUCTURAL
from countperf.models.weights import WeightSet
from countperf.properties.count_properties import count_kernel
from countperf.steps import report
from countperf.workflow.calibration_cases import CODE_S, CalibrationTask, cases_of, serving
from countperf.workflow.compiled_code import read_code

LEAST_MINUTES, MOST_MINUTES = 1.0, 60.0

_MOST_UNSETTLED = 0.5
"""Share of cases that did not settle from which on nothing is stored."""

_FEWEST_KERNELS = 8

_FIT_S = 5.0
_LATER_S = 300.0


def calibrate(
    *,
    device: str | Device | None = None,
    minutes: float = 3.0,
    name: str | None = None,
    serve: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
    store: Path | str | None = None,
    progress: Progress = silent,
    runner: KernelRunner | None = None,
    known: KnownDevices | None = None,
    choice: KernelChoice | None = None,
) -> CalibrationResult:
    """Measure the kernels that tell most about a device, and fit its weights to them.

    What other devices' fits say is the prior: weights that the measured kernels do not determine
    stay there, with the uncertainty that other devices show. Weights are stored among the user's
    own, for ``predict(..., weights="mine/NAME")``. Called again, it goes on with the next kernels.

    Parameters
    ----------
    device : str or Device, optional
        As for `measure_catalogue`.
    minutes : float, optional
        Time for all, building, reading code and fitting included: 1 to 60.
    name : str, optional
        Of the fit among the user's own; by default the device's slug.
    serve : sequence of str, optional
        Kernels, as `load_kernel` takes them, that the choice is to serve.
    sizes : Mapping from str to int, optional
        At which these are to be predicted; needed with `serve`.
    store : Path or str, optional
        Where measurements are kept; by default in the platform's place for data, by `name`.
    progress : callable, optional
        Is told of everything that happens; ``case`` says which error is expected so far.
    runner : KernelRunner, optional
        What runs kernels; by default one on `device`.
    known : KnownDevices, optional
        What is known of other devices; by default what ships.
    choice : KernelChoice, optional
        The kernels in their order; by default those that ship.

    Returns
    -------
    CalibrationResult

    Raises
    ------
    ParameterError
        The budget is out of range, a size of a kernel to be served is missing, or a name is none.
    UnstableMeasurementError
        Most cases did not settle; their measurements are kept.
    DeviceError, IncompatibleMeasurementsError, DocumentError, MeasurementError
        As for `measure_catalogue`.
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
        _warn_of_no_code(without_code, devices, progress)
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
    kernels = (choice or shipped_choice()).kernels
    if serve:
        kernels = serving(choice or shipped_choice(), devices, task, serve, sizes or {})
    task.store.parent.mkdir(parents=True, exist_ok=True)
    cases = cases_of(task, kernels, progress)
    measured = _measure(task, cases, devices, progress)
    _require_settled(measured, task.store)
    if task.reads_code:
        measured, without_code = _with_code(task, measured)
    models = _fit_all(task, measured, devices, plain, spent_s=time.monotonic() - began)
    structural = next(each for each in models if each.kind == STRUCTURAL)
    stored = find_fit(f"{OWN}{structural.path.parent.name}")
    near = [each.device for each in _devices_of(devices)]
    near.sort(key=lambda each: not is_alike(each, found.identity))
    return CalibrationResult(
        name=f"{OWN}{structural.path.parent.name}" if stored is None else stored.name,
        device=found.identity,
        known=tuple(dict.fromkeys(each.slug for each in near)),
        is_kin=any(is_alike(each, found.identity) for each in near),
        store=task.store,
        kernels=len({each.kernel for each in measured}),
        cases=len(measured),
        unsettled=sum(each.settling != "settled" for each in measured),
        spent_s=time.monotonic() - began,
        models=models,
        without_code=without_code,
        is_complete={case.name for case, _ in cases}
        <= {e.case for e in (*measured.measurements, *measured.failures)},
    )


def _usual_store(name: str) -> Path:
    return user_fits_folder().parent / "calibrations" / f"{name}.jsonl"


def _devices_of(known: KnownDevices) -> list[KnownDevice]:
    return [each for model in known.models for each in model.devices]


def _why_no_code(device: Device) -> str:
    """Return why compiled code cannot be read on a device; nothing if it can."""
    if device.identity.platform not in GROUP_STATES:
        return f"{device.identity.platform} does not keep its machine code"
    if find_objdump() is None:
        return f"no objdump found: {objdump.INSTALL_ADVICE}"
    if find_analyzer() is None:
        return f"no llvm-mca found that is new enough: {throughput.INSTALL_ADVICE}"
    return ""


def _warn_of_no_code(reason: str, known: KnownDevices, progress: Progress) -> None:
    """Say, before anything is measured, that no model will read code, and the cost of that."""
    models = [known.of(kind) for kind in (STRUCTURAL, COMPILED)]
    errors = [f"{each.errors[-1].typical_error:.0%}" for each in models if each and each.errors]
    cost = " instead of ".join(errors) if len(errors) == len(models) else "further"
    message = f"no model will read compiled code ({reason}): usual kernels are off by {cost}"
    progress(ProgressEvent(kind="limited", message=message))


def _measure(
    task: CalibrationTask,
    cases: Sequence[tuple[KernelCase, float]],
    known: KnownDevices,
    progress: Progress,
) -> MeasurementSet:
    """Measure cases until the time for it is over."""
    kernels: set[str] = set()
    old = MeasurementSet.read_file(task.store).measurements if task.store.exists() else ()
    before = {each.kernel for each in old}
    kind = COMPILED if task.reads_code else STRUCTURAL
    model = known.of(kind)
    code_s = CODE_S / min(available_cores(), 2) if task.reads_code else 0.0
    began = time.monotonic()

    def left_s() -> float:
        return task.deadline - _FIT_S - code_s * len(kernels) - time.monotonic()

    def is_over() -> bool:
        return left_s() <= CALIBRATION.separation_s

    def told(event: ProgressEvent) -> None:
        if event.case:
            kernels.add(event.case.rsplit("/", 1)[0])
        errors = None if model is None else model.errors_after(len(kernels | before))
        said = "" if errors is None else f"expected error {errors.typical_error:.0%}"
        share = (time.monotonic() - began) / max(time.monotonic() - began + left_s(), 1e-3)
        total = round(event.done / share) if event.done and share > 0 else event.total
        shown = said if event.kind == "round" else event.case
        kind = "measured" if event.kind == "unstable" else event.kind  # told all together later
        progress(replace(event, kind=kind, case=shown, total=total, remaining_s=max(left_s(), 0.0)))

    return measure(
        [case for case, _ in cases],
        store=task.store,
        protocol=CALIBRATION,
        count=partial(count_kernel, view="structure", caches=task.caches),
        progress=told,
        runner=task.runner,
        expected_run_s={case.name: run_s for case, run_s in cases},
        begin_no_more=is_over,
    )


def _require_settled(measured: MeasurementSet, store: Path) -> None:
    """Refuse a fit to times that do not repeat."""
    kernels = {each.kernel for each in measured}
    if len(kernels) < _FEWEST_KERNELS:
        first = next((each.reason for each in measured.failures), "the time was over")
        raise UnstableMeasurementError(
            f"only {len(kernels)} kernels could be measured ({first}); give more (minutes=NUMBER);"
            f" what was measured is kept in {store}"
        )
    unsettled = sum(each.settling != "settled" for each in measured)
    if unsettled > _MOST_UNSETTLED * len(measured):
        raise UnstableMeasurementError(
            f"{unsettled} of {len(measured)} times did not settle: other programs use the machine."
            " No weights are stored, for they would be wrong. End those programs, remove"
            f" {store}, and calibrate again; until then these measurements are kept there"
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
    spent_s: float,
) -> tuple[CalibratedModel, ...]:
    """Fit each model and store its weights, that which reads code first."""
    observations = observations_of(measured)
    kernels = len({case.kernel for case in observations})
    rate = kernels / max(spent_s, 1.0)
    found: list[CalibratedModel] = []
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
        later = model.errors_after(kernels + round(rate * _LATER_S)) if is_kin else None
        path = _store(task, measured, fit, observations, name, expected)
        found.append(
            CalibratedModel(
                kind=kind,
                fit=fit,
                path=path,
                expected=expected,
                later=later,
                unlearnt=unlearnt_features(
                    fit, dict(zip(model.columns, model.shares, strict=False))
                ),
            )
        )
    return tuple(found)


def _store(
    task: CalibrationTask,
    measured: MeasurementSet,
    fit: TransferFit,
    observations: Sequence[Observation],
    name: str,
    expected: ExpectedErrors | None,
) -> Path:
    """Store the weights of a fit; those of an earlier calibration of the name are replaced."""
    by_name = {case.name: case for case in observations}
    weights = weights_document(
        fit,
        [by_name[case.name] for case in fit.held_out],
        device=task.device.identity,
        protocol=CALIBRATION.name,
        recorded_at=measured.header.environment.recorded_at,
        expected=expected,
        caches=task.caches,
    )
    return store_own_fit(weights, name=name, replace=_is_calibration)[1]


def _is_calibration(path: Path) -> bool:
    """Tell whether a fit of the user's is of an earlier calibration, which may be replaced."""
    source = WeightSet.read_file(path).source
    return source is not None and source.protocol == CALIBRATION.name
