r"""Fit the free constants of mechanistic models to measured times, so that a comparison is fair.

Three levels: *published* (nothing is fitted), *scaled* (one factor on all times, the median ratio)
and *fitted* (every constant of the device that the model's times depend on). Constants minimize
:math:`\sum_i (1 - p_i/m_i)^2` over the same measurements, the objective of the fitted linear model
(Stevens & Klöckner 2016, section 3), with a loss that grows linearly beyond errors of a tenth,
since a model that cannot describe some kernels at all is to describe the others.

Constants are positive, so that what is fitted is the logarithm of each, within a factor of
`LARGEST_CHANGE` of where it starts. Mechanistic models are not smooth (maxima, whole groups), and
constants may be indistinguishable; a weak pull towards the starting values (`_PULL`) decides
between equal fits. Which constants a model depends on is found by changing each of them, not
declared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from countperf.errors import (
    DeviceParameterError,
    FitError,
    ModelNotApplicableError,
    ParameterError,
)
from countperf.hardware.parameters import (
    UNITS,
    DeviceParameters,
    InstructionClass,
    InstructionKind,
)
from countperf.mechanistic.classes import BARRIER, without_excess
from countperf.mechanistic.model import MechanisticModel
from countperf.mechanistic.profile import ProfiledKernel

LARGEST_CHANGE = 1e4
"""A fitted constant stays within this factor of where it starts."""

_PULL = 1e-3
"""Weight of the squared logarithm of a change beside the squared relative errors."""

_CHANGE = 1.3
"""The factor by which a constant is changed to see whether times depend on it."""

_FIXED = frozenset(
    {
        "num_compute_units",
        "sub_group_size",
        "cache_line_bytes",
        "cores_per_compute_unit",
        "schedulers_per_compute_unit",
        "clock_hz",
    }
)
"""Facts of the device. (The clock only scales what cycles per instruction scale as well.)"""

_FREE = tuple(
    name
    for name in UNITS
    if name not in _FIXED
    and not name.startswith(("max_", "registers_", "local_", "register_", "sub_group_", "bus_"))
)

ModelMaker = Callable[[DeviceParameters], MechanisticModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One measured launch."""

    kernel: ProfiledKernel  # profile and launch
    measured_s: float  # its time, s


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A calibrated model."""

    model: str  # name of the model
    device: DeviceParameters  # with the fitted constants, their source ``calibrated``
    factor: float  # on the times of the model (1 where constants were fitted)
    # each fitted constant: where it started, and its value
    constants: Mapping[str, tuple[float, float]]
    used: int  # measurements that the model covers, and those that it does not
    refused: int
    residual: float  # root mean square of ``1 - predicted/measured`` over those used
    converged: bool  # whether the optimiser ended by its own tolerances


# --- constants of a device by name


def constants_of(device: DeviceParameters) -> dict[str, float]:
    """Return the constants of a device that a calibration may change, by name.

    Costs of instructions are called ``classes.<class>.cpi`` and ``classes.<class>.latency``.
    Absent constants and those that are zero are left out.
    """
    found = {name: float(value) for name in _FREE if (value := getattr(device, name))}
    for name, each in device.classes.items():
        found[f"classes.{name}.cpi"] = each.cpi
        if each.latency:
            found[f"classes.{name}.latency"] = each.latency
    return found


def with_constants(device: DeviceParameters, values: Mapping[str, float]) -> DeviceParameters:
    """Return a device with other values of some constants, named as in `constants_of`."""
    fields: dict[str, Any] = {}
    classes = dict(device.classes)
    for name, value in values.items():
        if name.startswith("classes."):
            class_name, _, constant = name.removeprefix("classes.").rpartition(".")
            if class_name not in classes or constant not in ("cpi", "latency"):
                raise DeviceParameterError(f"there is no constant {name!r}", field=name)
            classes[class_name] = replace(
                classes[class_name], **{constant: value}, source="calibrated"
            )
        elif name in _FREE:
            fields[name] = value
        else:
            raise DeviceParameterError(
                f"{name!r} is no constant that a calibration may change", field=name
            )
    sources = {**device.sources, **dict.fromkeys(fields, "calibrated")}
    return device.replaced(**fields, classes=classes, sources=sources)


def times_of(
    model: MechanisticModel, kernels: Iterable[ProfiledKernel], *, incomplete_ok: bool = False
) -> NDArray[np.float64]:
    """Return the predicted times of kernels, s; NaN where the model gives no finite one."""
    times: list[float] = []
    for kernel in kernels:
        try:
            time_s = float(model.predict(kernel).time_s)
            times.append(time_s if math.isfinite(time_s) else math.nan)
        except DeviceParameterError:
            if not incomplete_ok:
                raise
            times.append(math.nan)
        except (ModelNotApplicableError, ParameterError):
            times.append(math.nan)
    return np.array(times, dtype=np.float64)


def free_constants(
    make: ModelMaker, device: DeviceParameters, kernels: Sequence[ProfiledKernel]
) -> tuple[str, ...]:
    """Find the constants of a device on which a model's times of some kernels depend."""
    reference = times_of(make(device), kernels)
    found: list[str] = []
    for name, value in constants_of(device).items():
        for factor in (_CHANGE, 1 / _CHANGE):
            try:
                changed = times_of(make(with_constants(device, {name: value * factor})), kernels)
            except DeviceParameterError:  # of a whole number, or beyond its limit
                continue
            if not np.array_equal(changed, reference, equal_nan=True):
                found.append(name)
                break
    return tuple(found)


_STARTS: Mapping[str, float] = {
    "clock_hz": 1e9,  # cycles are nanoseconds: only their product with the costs matters
    "issue_cycles": 1.0,
    "mem_ld_cycles": 100.0,
    "departure_del_coal_cycles": 4.0,
    "departure_del_uncoal_cycles": 10.0,
    "cpi_mem_instr": 1.0,
    "bandwidth_byte_per_s": 1e10,
    "peak_flops": 1e10,
    "mem_clock_hz": 1e9,
    "bus_width_bits": 64,
    "data_rate": 2.0,
    "latency_steps": 100.0,
    "chunk": 16.0,
}
"""Starting values of constants that the device's document does not have."""

_CLASS_STARTS: Mapping[InstructionKind, tuple[float, float]] = {
    "compute": (1.0, 4.0),
    "memory": (10.0, 100.0),
    "barrier": (10.0, 10.0),
}
"""The same for costs of instructions: cycles between two of them, and until the result."""


def starting_device(
    make: ModelMaker, device: DeviceParameters, observations: Sequence[Observation]
) -> DeviceParameters:
    """Complete a device by constants to start from, so that a model can be fitted there.

    A CPU device has no published costs of instructions at all. What the model asks for and the
    document does not have gets a starting value; classes of instructions of one kind then share a
    subsystem. The launch overhead starts at the shortest measured time. Facts, such as the
    number of lanes, are not invented.
    """
    if not observations:
        raise FitError(f"there is no measurement of {device.slug} to calibrate a model on")
    if device.launch_overhead_s is None:
        device = device.replaced(launch_overhead_s=min(each.measured_s for each in observations))
    kernels = [each.kernel for each in observations]
    if any(BARRIER in kernel.profile.alpha for kernel in kernels) and BARRIER not in device.classes:
        device = device.replaced(classes={**device.classes, BARRIER: _class(BARRIER)})
    while True:
        try:
            times_of(make(device), kernels)
        except DeviceParameterError as error:
            field = error.field or ""
            if getattr(device, field, None) is None and field in _STARTS:
                device = device.replaced(**{field: _STARTS[field]})
            elif (name := _class_of(field)) and name not in device.classes:
                device = device.replaced(classes={**device.classes, name: _class(name)})
            else:
                raise
        else:
            return device


def _class_of(field: str) -> str:
    name = field.removeprefix("classes.")
    return "" if name == field else without_excess(name)[0]


def _class(name: str) -> InstructionClass:
    kind = kind_of(name)
    cpi, latency = _CLASS_STARTS[kind]
    return InstructionClass(
        name=name,
        subsystem=kind,
        cpi=cpi,
        latency=latency,
        kind=kind,
        source="start of a calibration",
    )


def kind_of(name: str) -> InstructionKind:
    """Return the kind of an instruction class that a profile of a Loopy kernel has, by its name."""
    if name.startswith("barrier"):
        return "barrier"
    return "memory" if name.startswith(("load", "store", "gmem")) else "compute"


def calibrate_factor(
    make: ModelMaker, device: DeviceParameters, observations: Sequence[Observation]
) -> Calibration:
    """Fit one factor on all times of a model: the median ratio of measured to predicted times.

    It minimizes the sum of the absolute logarithms of the errors. (The sum of squared relative
    errors would be of no use here: where some predictions are far too long, its factor is next to
    zero, and every time is wrong by 100 %.)

    Measurements of kernels for which the device lacks a constant are left out.
    """
    model = make(device)
    times, measured = _covered(model, device, observations, incomplete_ok=True)
    covered = ~np.isnan(times)
    factor = math.exp(float(np.median(np.log(measured[covered] / times[covered]))))
    return Calibration(
        model=model.model,
        device=device,
        factor=factor,
        constants={},
        used=int(covered.sum()),
        refused=int((~covered).sum()),
        residual=_root_mean_square(1 - factor * times[covered] / measured[covered]),
        converged=True,
    )


def calibrate_fully(
    make: ModelMaker,
    device: DeviceParameters,
    observations: Sequence[Observation],
    *,
    constants: Sequence[str] | None = None,
    evaluations: int = 15,
) -> Calibration:
    """Fit the constants of a device that a model depends on."""
    model = make(device)
    times, measured = _covered(model, device, observations)
    covered = ~np.isnan(times)
    kernels = [each.kernel for each, keep in zip(observations, covered, strict=True) if keep]
    target = measured[covered]
    names = tuple(constants) if constants is not None else free_constants(make, device, kernels)
    if not names:
        raise FitError(f"the times of {model.model} depend on no constant of {device.slug}")
    start = {name: constants_of(device)[name] for name in names}
    off = times[covered] / target
    scale = float(off.sum() / (off @ off))  # that of the least sum of squared relative errors
    pull = math.sqrt(_PULL)

    def device_at(logarithms: NDArray[np.float64]) -> DeviceParameters:
        changes = zip(names, logarithms, strict=True)
        return with_constants(
            device, {name: start[name] * math.exp(change) for name, change in changes}
        )

    def ratios(logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
        predicted = times_of(make(device_at(logarithms)), kernels)
        return np.where(np.isnan(predicted), target / LARGEST_CHANGE, predicted) / target

    def pulled(logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
        return pull * (logarithms - shift)

    def log_residuals(logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([np.log(ratios(logarithms)), pulled(logarithms)])

    def residuals(logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([1 - ratios(logarithms), pulled(logarithms)])

    # the scale first: from far away the maxima in the models hide most of the constants
    shift = np.array([math.log(scale) * _direction(name) for name in names])
    limit = math.log(LARGEST_CHANGE)
    shift = np.clip(shift, -limit / 2, limit / 2)
    options: dict[str, Any] = {
        "bounds": (-limit, limit),
        "diff_step": 1e-2,
        "max_nfev": evaluations,
    }
    # logarithms of ratios lead there from far away, too; then what is to be minimized
    near = least_squares(log_residuals, shift, loss="soft_l1", f_scale=0.3, **options)
    best = least_squares(residuals, near.x, loss="soft_l1", f_scale=0.1, **options)
    fitted = device_at(best.x)
    predicted = times_of(make(fitted), kernels)
    return Calibration(
        model=model.model,
        device=fitted,
        factor=1.0,
        constants={
            name: (start[name], start[name] * math.exp(change))
            for name, change in zip(names, best.x, strict=True)
        },
        used=len(kernels),
        refused=len(observations) - len(kernels),
        residual=_root_mean_square(1 - predicted / target),
        converged=best.status > 0,
    )


def _direction(name: str) -> float:
    """Return the power of a constant that times go with: rates shorten them, costs lengthen."""
    rates = ("bandwidth", "peak_", "issue_limit", "mem_clock", "data_rate", "chunk")
    if name.startswith(rates):
        return -1.0
    return 1.0


def _covered(
    model: MechanisticModel,
    device: DeviceParameters,
    observations: Sequence[Observation],
    *,
    incomplete_ok: bool = False,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    kernels = [each.kernel for each in observations]
    times = times_of(model, kernels, incomplete_ok=incomplete_ok)
    if np.all(np.isnan(times)):
        times_of(model, kernels)  # says what the device lacks, if that is the reason
        raise FitError(
            f"{model.model} covers none of the {len(observations)} measurements of {device.slug}"
        )
    return times, np.array([each.measured_s for each in observations])


def _root_mean_square(errors: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(errors * errors)))
