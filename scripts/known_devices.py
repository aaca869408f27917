"""Weights of many devices fitted together: each with a prior from the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from countperf.devices.identity import DeviceIdentity
from countperf.models.fitting.design import Design, on_one_thread, problem_of
from countperf.models.fitting.prior import (
    KnownDevice,
    KnownModel,
    ModelKind,
    guesses,
    prior_for,
    prior_recipe,
)
from countperf.models.fitting.solve import LogPrior, Matrix, Solution, Vector, solve

_ROUNDS = 2
"""Times that each device is fitted with a prior from the others, after a first fit of its own."""

_FIRST_VARIANCE = 20.0
_FARTHEST = 1.0
"""Logarithm by which an estimate without its prior may differ from that with it: what the data
hardly tell is far off without one."""

_NOTHING = 60.0
_MOST_OFF = 1.5
"""Largest logarithm of a fit's error on a kernel that is carried to other devices; beyond it, the
count or the time is wrong."""

_DIGITS = 4
_TINY_S = 1e-15


def shares_of(design: Design, logs: Sequence[float | None]) -> Matrix:
    """Return the shares of their times that cases spend on each unknown, shape (n, n_unknowns)."""
    known = np.array([-_NOTHING if log is None else log for log in logs])
    parts = design.scaled * np.exp(known)
    return parts / (parts.sum(axis=1, keepdims=True) + _TINY_S)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredDevice:
    """A device with its measured cases."""

    device: DeviceIdentity  # the device
    design: Design  # its cases
    # the kernel of each case; empty where no residuals by kernel are wanted
    kernels: tuple[str, ...] = ()


@on_one_thread
def fit_devices(
    kind: ModelKind,
    devices: Sequence[MeasuredDevice],
    *,
    error: float,
    is_kin: Callable[[DeviceIdentity, DeviceIdentity], bool] | None = None,
) -> KnownModel:
    """Fit the weights of devices, each with what the others say."""
    columns = tuple(sorted({c for each in devices for c in each.design.function.columns}))
    designs = [each.design.with_columns(columns) for each in devices]
    known = tuple(
        _first(each, design, error) for each, design in zip(devices, designs, strict=True)
    )
    model = KnownModel(kind=kind, columns=columns, error=error, devices=known)
    for _ in range(_ROUNDS):
        fitted = tuple(
            _refined(model, each, old, design, is_kin)
            for each, old, design in zip(devices, model.devices, designs, strict=True)
        )
        model = model.model_copy(update={"devices": fitted})
    return _with_residuals(model, devices, designs)


def _with_residuals(
    model: KnownModel, devices: Sequence[MeasuredDevice], designs: Sequence[Design]
) -> KnownModel:
    """Add the residuals of each device's fit by kernel, where kernels are known."""
    kernels = tuple(dict.fromkeys(kernel for each in devices for kernel in each.kernels))
    if not kernels:
        return model
    known: list[KnownDevice] = []
    for device, each, design in zip(model.devices, devices, designs, strict=True):
        logs = np.array([-_NOTHING if log is None else log for log in device.logs])
        off = np.log(design.times_s / (design.scaled @ np.exp(logs)))
        found: dict[str, list[float]] = {}
        for kernel, one in zip(each.kernels, off.tolist(), strict=True):
            found.setdefault(kernel, []).append(one)
        means = {kernel: float(np.mean(each)) for kernel, each in found.items()}
        residuals = tuple(
            round(float(np.clip(means[kernel], -_MOST_OFF, _MOST_OFF)), 3)
            if kernel in means
            else None
            for kernel in kernels
        )
        known.append(device.model_copy(update={"residuals": residuals}))
    return model.model_copy(update={"devices": tuple(known), "kernels": kernels})


def _first(each: MeasuredDevice, design: Design, error: float) -> KnownDevice:
    """Fit a device by itself."""
    guess = guesses(design)
    found = [guess(column) for column in design.function.columns]
    mean = np.array([-30.0 if value is None else value for value in found])
    prior = LogPrior(mean=mean, covariance=np.diag(np.full(mean.size, _FIRST_VARIANCE)))
    fitted = solve(problem_of(design, prior_recipe(error), prior))
    return _known(each, design, *_logs(fitted))


def _refined(
    model: KnownModel,
    each: MeasuredDevice,
    old: KnownDevice,
    design: Design,
    is_kin: Callable[[DeviceIdentity, DeviceIdentity], bool] | None,
) -> KnownDevice:
    """Fit a device with a prior from the others, and return what its data alone say."""

    def without(other: DeviceIdentity) -> bool:
        return other == each.device or (is_kin is not None and is_kin(other, each.device))

    guess = guesses(design)
    columns = design.function.columns
    prior = prior_for(model.without(without), each.device, columns, guess)
    pairs = dict(zip(model.columns, old.logs, strict=True))
    logs = [pairs[column] for column in columns]
    start = np.array([m if log is None else log for m, log in zip(prior.mean, logs, strict=True)])
    problem = problem_of(design, prior_recipe(model.error), prior)
    logs, variances = _by_data_alone(prior, solve(problem, np.exp(start)))
    return _known(each, design, logs, variances)


def _logs(fitted: Solution) -> tuple[Vector, Vector]:
    """Return logarithms of weights and their variances."""
    assert fitted.covariance is not None
    return np.log(fitted.coefficients), np.diag(fitted.covariance) / fitted.coefficients**2


def _by_data_alone(prior: LogPrior, fitted: Solution) -> tuple[Vector, Vector]:
    """Take a prior out of a fit, weight by weight."""
    logs, after = _logs(fitted)
    before = np.diag(prior.covariance)
    information = np.maximum(1.0 / after - 1.0 / before, 1e-6)
    alone = (logs / after - prior.mean / before) / information
    alone = np.clip(alone, logs - _FARTHEST, logs + _FARTHEST)
    return alone, 1.0 / information


def _known(each: MeasuredDevice, design: Design, logs: Vector, variances: Vector) -> KnownDevice:
    """Return a device's weights; None for what no case of its has."""
    present = np.any(design.counts != 0, axis=0).tolist()

    def listed(values: Vector) -> tuple[float | None, ...]:
        pairs = zip(values.tolist(), present, strict=True)
        return tuple(
            float(f"{value:.{_DIGITS}g}") if is_there else None for value, is_there in pairs
        )

    return KnownDevice(device=each.device, logs=listed(logs), variances=listed(variances))
