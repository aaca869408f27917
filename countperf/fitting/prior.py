r"""Prior of a device's weights, from the fits of other devices.

The logarithm :math:`u_{dj}` of the weight of feature :math:`j` on device :math:`d` is taken as

.. math:: u_{dj} = \mu_j + b_{p(d)j} + e_{dj},

a mean of the feature, what devices of one platform :math:`p` share, and what a device has alone,
the last two normal. The prior of a new device is the conditional distribution given the known
:math:`u_{dj}`, each with the variance that its own fit left (kriging, feature by feature): the mean
over devices, those of its platform before the others, with a spread that is the larger the less
they agree. The scale of a feature's spread is its own where many devices say it, and that of all
features else (an inverse-gamma prior on it: empirical Bayes). The features of a device share what
all its weights, and all those of its memory, are off by.

Much of a fit's error on a kernel belongs to the kernel: the residuals of one device explain 24 to
83 % of the variance of those of another device of the same platform, kernel by kernel (structural
models, classes left out). So a share of the known fits' residuals is taken out of each measured
time before weights are fitted to it (`KnownModel.carried`). Few kernels then show how the device
differs from the known ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from countperf.documents import Document, Part
from countperf.execution.memory_hierarchy import MemoryHierarchy
from countperf.fitting.solve import LogPrior, Vector
from countperf.hardware.identity import DeviceIdentity, platform_prefix
from countperf.models.compiled import COMPILED
from countperf.models.definition import ModelDefinition
from countperf.models.function import Column
from countperf.models.shipped import fitted_model

SPREAD = 0.5
"""Standard deviation of a weight's logarithm between devices of one platform, of most features."""

BETWEEN_PLATFORMS = 0.8
"""That of a feature's mean from platform to platform, in units of the spread within one."""

_DEGREES = 4.0
"""The common spread counts for so many devices where a feature's own is found."""

_LEAST_SPREAD, _LARGEST_SPREAD = 0.2, 2.0

_ENOUGH_ALIKE = 2
"""Number of known devices of a platform from which on they alone are the prior."""

CARRIED = 0.7
"""Share of the known fits' residual of a kernel that is expected of a fit to a new device."""

_SPEED, _OTHER_SPEED = 0.2, 2.0
"""Standard deviation of the logarithm of a device's speed; of one whose kind no known device is."""

FOLDER = Path(__file__).parent
"""Place of the documents that ship."""

_MEMORY_TERMS = ("traffic", "misses")
_LAUNCH = "launch"


ModelKind = Literal["structural", "compiled"]


class KnownDevice(Part):
    """A device whose weights are known, and how well its measurements determine them."""

    device: DeviceIdentity  # the device
    logs: tuple[float | None, ...]  # logarithm of each weight (s per unit)
    variances: tuple[NonNegativeFloat | None, ...]  # what its measurements leave open of each
    # logarithm of measured over fitted time of each of the model's kernels, the mean over sizes
    residuals: tuple[float | None, ...] = ()


class ExpectedErrors(Part):
    """Errors of kernels that a calibration has not seen, by how many it has measured."""

    kernels: PositiveInt  # measured kernels
    log_error_90: PositiveFloat
    log_error_95: PositiveFloat
    typical_error: PositiveFloat  # geometric mean of their relative errors
    typical_held_out_error: PositiveFloat


class KnownModel(Part):
    """Weights of one model on several devices."""

    kind: ModelKind  # which model
    columns: tuple[tuple[str, str], ...]  # term and feature of each weight
    error: PositiveFloat  # size of the model's own errors, relative
    devices: tuple[KnownDevice, ...] = Field(min_length=1)  # the devices
    errors: tuple[ExpectedErrors, ...] = ()  # by the number of measured kernels, the fewest first
    # measurement kernels that the devices' residuals belong to, in their order
    kernels: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _each_device_has_all_columns(self) -> Self:
        for device in self.devices:
            if {len(device.logs), len(device.variances)} != {len(self.columns)}:
                raise ValueError(f"{device.device.slug} has not one weight for each column")
            if len(device.residuals) not in {0, len(self.kernels)}:
                raise ValueError(f"{device.device.slug} has not one residual for each kernel")
        return self

    def definition(self, device: DeviceIdentity, memory: MemoryHierarchy) -> ModelDefinition:
        """Return the model for a device."""
        return fitted_model(self.kind, device, memory)

    def near(self, device: DeviceIdentity) -> Self:
        """Return the known devices of the platform if there are enough of them, else all.

        Machine code costs about as much on a processor whatever runtime made it, so that models
        that read it keep all devices.
        """
        alike = sum(is_alike(each.device, device) for each in self.devices)
        if self.kind == COMPILED or alike < _ENOUGH_ALIKE:
            return self
        return self.without(lambda other: not is_alike(other, device))

    def carried(self, device: DeviceIdentity) -> dict[str, float]:
        """Return the residuals that are expected of a fit to a new device, by kernel.

        A residual is the logarithm of measured over fitted time. The expected one is a share
        (`CARRIED`) of the mean over known devices of the platform.
        """
        carried: dict[str, list[float]] = {}
        for each in self.devices:
            if is_alike(each.device, device):
                for kernel, off in zip(self.kernels, each.residuals, strict=False):
                    if off is not None:
                        carried.setdefault(kernel, []).append(off)
        return {kernel: CARRIED * float(np.mean(offs)) for kernel, offs in carried.items()}

    def without(self, left_out: Callable[[DeviceIdentity], bool]) -> Self:
        """Return the same without some of the devices."""
        kept = tuple(device for device in self.devices if not left_out(device.device))
        return self.model_copy(update={"devices": kept})

    def errors_on(self, device: DeviceIdentity, kernels: int) -> ExpectedErrors | None:
        """Return the errors expected after so many kernels, if a known device has the platform."""
        if not self.errors or not any(is_alike(each.device, device) for each in self.devices):
            return None
        wanted = [error for error in self.errors if error.kernels <= kernels]
        return wanted[-1] if wanted else self.errors[0]


class KnownDevices(Document):
    """Knowledge of the weights of many devices."""

    format: Literal["countperf-known-devices"] = "countperf-known-devices"
    version: Literal[1] = 1
    counting_rules: int  # version of the counting rules of the measurements that it follows from
    models: tuple[KnownModel, ...]  # by model
    own_caches: bool = False  # whether kernels were counted for each device's own caches

    def of(self, kind: str) -> KnownModel | None:
        """Return what is known of a model's weights; None if nothing is."""
        return next((model for model in self.models if model.kind == kind), None)


class ChosenSize(Part):
    """One launch size of a kernel."""

    parameters: dict[str, NonNegativeInt]  # its sizes
    run_s: PositiveFloat  # typical time of a run, s, over known devices


class ChosenKernel(Part):
    """A kernel of the catalogue."""

    name: str  # of the kernel
    family: str
    sizes: tuple[ChosenSize, ...]  # one that fits the caches, and one beyond where there is one


class KernelChoice(Document):
    """Kernels in the order in which a calibration measures them."""

    format: Literal["countperf-calibration-kernels"] = "countperf-calibration-kernels"
    version: Literal[1] = 1
    kernels: tuple[ChosenKernel, ...]  # the most telling for its cost first


@cache
def shipped_devices() -> KnownDevices:
    """Return what ships of known devices."""
    return KnownDevices.read_file(FOLDER / "known-devices.json")


@cache
def shipped_choice() -> KernelChoice:
    """Return the choice of kernels that ships."""
    return KernelChoice.read_file(FOLDER / "calibration-kernels.json")


def is_alike(one: DeviceIdentity, other: DeviceIdentity) -> bool:
    """Tell whether two devices have one platform and are of one type."""
    same = platform_prefix(one.platform) == platform_prefix(other.platform)
    return same and one.device_type == other.device_type


def prior_for(
    model: KnownModel,
    device: DeviceIdentity,
    columns: Sequence[Column],
    guess: Callable[[Column], float | None],
) -> LogPrior:
    """Return the prior of a new device's weights."""
    known = model.devices
    near = [is_alike(each.device, device) for each in known]
    places = {column: position for position, column in enumerate(model.columns)}
    mean, variance = np.empty(len(columns)), np.empty(len(columns))
    for number, column in enumerate(columns):
        position = places.get(column)
        found = [] if position is None else _values(known, near, position)
        if not found:
            value = guess(column)
            mean[number] = -30.0 if value is None else value
            variance[number] = _LARGEST_SPREAD**2
            continue
        mean[number], variance[number] = _of_new_device(*map(np.array, zip(*found, strict=True)))
    is_kin = any(each.device.device_type == device.device_type for each in known)
    covariance = np.diag(variance)
    for members in _shared(columns):
        covariance += (_SPEED if is_kin else _OTHER_SPEED) ** 2 * np.outer(members, members)
    return LogPrior(mean=mean, covariance=covariance)


def _values(
    known: Sequence[KnownDevice], near: Sequence[bool], place: int
) -> list[tuple[float, float, bool]]:
    """Return logarithm, variance and platform of each device that has a weight."""
    values: list[tuple[float, float, bool]] = []
    for each, alike in zip(known, near, strict=True):
        log, variance = each.logs[place], each.variances[place]
        if log is not None and variance is not None:
            values.append((log, variance, alike))
    return values


def _shared(columns: Sequence[Column]) -> tuple[Vector, ...]:
    """Return which weights a device's speed changes, and which that of its memory."""
    works = np.array([term != _LAUNCH for term, _ in columns], np.float64)
    memory = np.array([term in _MEMORY_TERMS for term, _ in columns], np.float64)
    return works, memory


def _of_new_device(values: Vector, variances: Vector, alike: Vector) -> tuple[float, float]:
    """Return mean and variance of the logarithm of a weight, given those of known devices."""
    spread = _spread(values, variances, alike)
    between = (BETWEEN_PLATFORMS * spread) ** 2
    same = alike.astype(bool)
    covariance = np.where(same[:, np.newaxis] == same, between, 0.0)
    covariance = covariance + np.diag(spread**2 + variances)
    cross = np.where(same, between, 0.0)
    inverse = np.linalg.inv(covariance)
    ones = np.ones_like(values)
    information = float(ones @ inverse @ ones)
    mean = float(ones @ inverse @ values) / information
    gained = cross @ inverse
    left = between + spread**2 - gained @ cross + (1.0 - gained @ ones) ** 2 / information
    return mean + float(gained @ (values - mean)), float(left)


def _spread(values: Vector, variances: Vector, alike: Vector) -> float:
    """Return the standard deviation between devices of one platform."""
    squares, freedom = _DEGREES * SPREAD**2, _DEGREES
    for platform in (False, True):
        members = alike.astype(bool) == platform
        if np.count_nonzero(members) < 2:
            continue
        trust = SPREAD**2 / (SPREAD**2 + variances[members])
        mean = np.average(values[members], weights=trust)
        squares += float(np.sum(trust * (values[members] - mean) ** 2))
        freedom += np.count_nonzero(members) - 1
    return float(np.clip(np.sqrt(squares / freedom), _LEAST_SPREAD, _LARGEST_SPREAD))
