r"""Prior of a device's weights, from the fits of other devices.

The logarithm :math:`u_{dj}` of the weight of feature :math:`j` on device :math:`d` is taken as
:math:`u_{dj} = \mu_j + b_{p(d)j} + e_{dj}`: a mean of the feature, what devices of one platform
:math:`p` share, and what a device has alone, the last two normal. The prior of a new device is the
conditional distribution given the known :math:`u_{dj}`, each with the variance that its own fit
left (kriging, feature by feature), with a spread that is the larger the less devices agree.

A share of the known devices' residuals is taken out of each measured time before weights are fitted
to it, kernel by kernel: few kernels then show how the device differs from the known ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from countperf.counting.structure.memory_hierarchy import CountedCaches, MemoryHierarchy
from countperf.devices.identity import DeviceIdentity, platform_prefix
from countperf.documents import Document, Part
from countperf.measuring import Header
from countperf.models.definition import ModelDefinition
from countperf.models.fitting import design as designs
from countperf.models.fitting import fit_model
from countperf.models.fitting.design import Design, Observation
from countperf.models.fitting.leaving_out import leave_families_out, log_scatter
from countperf.models.fitting.solve import LogPrior, Matrix, Recipe, Vector
from countperf.models.function import ColumnKey, model_inputs
from countperf.models.metrics import mean_error
from countperf.models.shipped import COMPILED, load_fitted_model
from countperf.models.weights import WeightSet, charge_inputs, correct_charge, find_missing
from countperf.text import Column, Printed, Result, ShortRepr, extract, format_percent

SPREAD = 0.5
"""Standard deviation of a weight's logarithm between devices of one platform, of most features."""

BETWEEN_PLATFORMS = 0.8
"""That of a feature's mean from platform to platform, in units of the spread within one."""

_DEGREES = 4.0  # the common spread counts for so many devices where a feature's own is found

_LEAST_SPREAD, _LARGEST_SPREAD = 0.2, 2.0
_ENOUGH_ALIKE = 2  # number of known devices of a platform from which on they alone are the prior

CARRIED = 0.7
"""Share of the known fits' residual of a kernel that is expected of a fit to a new device."""

_SPEED, _OTHER_SPEED = 0.2, 2.0
"""Standard deviation of the logarithm of a device's speed; of one whose kind no known device is."""

FOLDER = Path(__file__).parent  # place of the documents that ship

_MEMORY_TERMS = ("traffic", "misses")
_LAUNCH = "launch"
ModelKind = Literal["structural", "compiled"]


class KnownDevice(Part):
    """A device whose weights are known, and how well its measurements determine them."""

    device: DeviceIdentity
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

    def definition(self, device: DeviceIdentity, memory: MemoryHierarchy) -> ModelDefinition:
        """Return the model for a device, as it was when its weights were found."""
        return load_fitted_model(self.kind, device, memory, overlapped=False)

    def near(self, device: DeviceIdentity) -> Self:
        """Return the known devices of the platform if they are enough, else all."""
        alike = sum(is_alike(known.device, device) for known in self.devices)
        if self.kind == COMPILED or alike < _ENOUGH_ALIKE:
            return self
        return self.without(lambda other: not is_alike(other, device))

    def find_residuals(self, device: DeviceIdentity) -> dict[str, float]:
        """Return what logarithms of measured over fitted time a new device may have, by kernel."""
        carried: dict[str, list[float]] = {}
        for known in self.devices:
            if is_alike(known.device, device):
                for kernel, off in zip(self.kernels, known.residuals, strict=False):
                    if off is not None:
                        carried.setdefault(kernel, []).append(off)
        return {kernel: CARRIED * float(np.mean(offs)) for kernel, offs in carried.items()}

    def without(self, left_out: Callable[[DeviceIdentity], bool]) -> Self:
        """Return the same without some of the devices."""
        kept = tuple(device for device in self.devices if not left_out(device.device))
        return self.model_copy(update={"devices": kept})

    def find_errors_on(self, device: DeviceIdentity, kernels: int) -> ExpectedErrors | None:
        """Return the errors expected after so many kernels, if a known device has the platform."""
        if not self.errors or not any(is_alike(known.device, device) for known in self.devices):
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
def load_shipped_devices() -> KnownDevices:
    """Return what ships of known devices."""
    return KnownDevices.read_file(FOLDER / "known-devices.json")


@cache
def load_shipped_choice() -> KernelChoice:
    """Return the choice of kernels that ships."""
    return KernelChoice.read_file(FOLDER / "calibration-kernels.json")


def is_alike(one: DeviceIdentity, other: DeviceIdentity) -> bool:
    """Tell whether two devices have one platform and are of one type."""
    same = platform_prefix(one.platform) == platform_prefix(other.platform)
    return same and one.device_type == other.device_type


def prior_for(
    model: KnownModel,
    device: DeviceIdentity,
    columns: Sequence[ColumnKey],
    guess: Callable[[ColumnKey], float | None],
) -> LogPrior:
    """Return the prior of a new device's weights."""
    near = [is_alike(other.device, device) for other in model.devices]
    positions = {column: position for position, column in enumerate(model.columns)}
    mean, variance = np.full(len(columns), -30.0), np.full(len(columns), _LARGEST_SPREAD**2)
    for number, column in enumerate(columns):
        position = positions.get(column)
        values = [
            (log, left, alike)
            for known, alike in zip(model.devices, near, strict=True)
            if position is not None
            and (log := known.logs[position]) is not None
            and (left := known.variances[position]) is not None
        ]
        if values:
            logs, left_open, alike = map(np.array, zip(*values, strict=True))
            mean[number], variance[number] = _of_new_device(logs, left_open, alike)
        elif (value := guess(column)) is not None:
            mean[number] = value
    covariance = np.diag(variance)
    is_kin = any(other.device.device_type == device.device_type for other in model.devices)
    speed = (_SPEED if is_kin else _OTHER_SPEED) ** 2
    works = np.array([term != _LAUNCH for term, _ in columns], np.float64)
    memory = np.array([term in _MEMORY_TERMS for term, _ in columns], np.float64)
    for members in (works, memory):
        covariance += speed * np.outer(members, members)
    return LogPrior(mean=mean, covariance=covariance)


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


_FOLDS = 6  # into at most so many parts the families of kernels go that are left out together

_FIRST_SHARE = 0.05  # share of the time that a first guess gives each feature, in the median

_UNLIKE = 1.25
"""Factor of errors over those of other devices from which on a device is called unlike them."""

_MOST_WIDENING = 3.0
"""Factor by which intervals grow at most where a device is predicted worse than others were."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibratedModel(ShortRepr):
    """A model that was calibrated."""

    model: str  # name by which `load_weights` finds the weights
    weights: WeightSet  # as they are stored
    path: Path | None  # where its weights are; None if they are not stored
    held_out_error: float | None  # relative error of left-out families
    # that of the weights that ship for the device, on the same kernels
    shipped_error: float | None = None
    factor: float  # by which they are predicted worse than those of other devices
    expected_error: float | None  # relative, of kernels that were not measured


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibrationResult(Result):
    """Result of a calibration."""

    # under which its weights are found: those that ship, where they predict better
    name: str
    device: DeviceIdentity  # the device
    # slugs of devices whose fits the prior is from, those of the platform first
    known: tuple[str, ...]
    is_kin: bool  # whether one of them has the platform
    store: Path  # the measurements
    kernels: int  # what was fitted to, and cases whose times did not repeat
    cases: int
    unsettled: int
    busy: bool  # whether these were used as well
    spent_s: float  # time that this call took, s
    # without compiled code, and with it where the runtime keeps it
    models: tuple[CalibratedModel, ...]
    without_code: str  # why there is no model that reads compiled code
    is_complete: bool  # whether no kernel of the choice is left

    __repr__ = Result.__str__

    @property
    def is_stored(self) -> bool:
        """Whether what was fitted predicts better than the weights that ship, and is stored."""
        return self.models[0].path is not None

    def lay_out(self) -> Printed:
        """Give what was reached, what is unsure, and what more time would buy."""
        used = "used: intervals are wider" if self.busy else "left out, to be measured again"
        unsettled = f" ({self.unsettled} times did not settle and were {used})"
        strange = ": no known device has this platform, so that it says little"
        what = ("model", "held_out_error", "shipped_error", "expected_error", "factor")
        rows = [{**extract(m, *what), "weights": m.path and str(m.path)} for m in self.models]
        notes = [
            f"{model.model}: errors are {model.factor:.1f} times those of other devices: this one"
            " is unlike them, or other programs disturbed it"
            for model in self.models
            if model.factor > _UNLIKE
        ]
        if not self.is_stored:
            notes.append(
                f"nothing is stored: the shipped weights, {self.name}, are off by less on these"
                " kernels"
            )
        if self.without_code:
            notes.append(f"no weights that read compiled code: {self.without_code}")
        if self.is_complete:
            notes.append(
                "all kernels of the choice are measured; for more: countperf measure"
                " --profile broad and countperf fit --model structural"
            )
        return Printed(
            head=[
                f"{self.name}: {self.device.slug} ({self.device.name})",
                f"  {self.kernels} kernels, {self.cases} cases, {self.spent_s / 60:.1f} minutes"
                f"{unsettled if self.unsettled else ''}; measurements: {self.store}",
                f"  prior: {', '.join(self.known)}{'' if self.is_kin else strange}",
            ],
            rows=rows,
            columns={
                "model": Column("model"),
                "held_out_error": Column("error on classes left out", format_percent),
                "shipped_error": Column("shipped weights", format_percent),
                "expected_error": Column("expected error", format_percent),
            },
            notes=[*notes, f"to use it: countperf predict KERNEL SIZES --weights {self.name}"],
            facts={
                **extract(self, "name", "known", "store", "kernels", "cases", "unsettled"),
                **extract(self, "spent_s", "without_code"),
                "device": self.device.slug,
                "prior_of_platform": self.is_kin,
                "complete": self.is_complete,
                "stored": self.is_stored,
                "models": [
                    {**extract(m, *what[:4]), "written": m.path and str(m.path)}
                    for m in self.models
                ],
            },
        )


@designs.on_one_thread
def fit_with_prior(
    cases: Sequence[Observation],
    known: KnownModel,
    header: Header,
    *,
    memory: MemoryHierarchy,
    caches: CountedCaches,
    noise: float = 0.0,
) -> fit_model.FitResult:
    """Fit a model to few cases of a device, with a prior; `noise` widens intervals."""
    device = header.device
    definition = known.definition(device, memory)
    cases = fit_model.select_readable(cases, definition, "structure")
    design = designs.build_design(cases, definition)
    columns = [column for column in known.columns if column[0] in definition.terms]
    design = design.with_columns(tuple(dict.fromkeys((*columns, *design.function.columns))))
    prior = prior_for(known.near(device), device, design.function.columns, guesses(design))
    carried = known.find_residuals(device)
    off = np.array([carried.get(case.kernel, 0.0) for case in cases])
    without = replace(design, times_s=design.times_s * np.exp(-off))
    recipe = prior_recipe(known.error)
    fitted = designs.estimate_design(without, recipe, prior=prior)
    left = leave_families_out(cases, fitted, recipe, design=without, prior=prior, parts=_FOLDS)
    fitted = replace(fitted, design=design)
    quality = fit_model.fit_quality(fitted, left, known.error)
    expected = known.find_errors_on(device, len({case.kernel for case in cases}))
    if (own := quality.calibration) is not None:
        factor = 1.0
        if expected is not None:  # intervals are those of other devices, or wider ones
            errors = {f"log_errors_{n}": getattr(expected, f"log_error_{n}") for n in (90, 95)}
            own = own.model_copy(update=errors)
            factor = widening(quality.held_out_error, expected)
        quality = quality.model_copy(update={"calibration": own.widen(factor, noise)})
    weights = fit_model.weight_set(cases, fitted, quality, header, view="structure", caches=caches)
    return fit_model.FitResult(weights=weights, observations=cases, estimate=fitted, held_out=left)


def prior_recipe(error: float) -> Recipe:
    """Return how a model with errors of a size is fitted with a prior."""
    return Recipe(residual="log", loss="soft_l1", loss_scale=0.3, model_error=error, tolerance=1e-7)


def guesses(design: Design) -> Callable[[ColumnKey], float | None]:
    """Return what guesses the logarithm of a weight: that of a small share of the time."""
    logs: dict[ColumnKey, float] = {}
    for column, slopes in zip(design.function.columns, design.scaled.T, strict=True):
        if np.any(has := slopes > 0):
            typical_s = np.median(design.times_s[has] / slopes[has])
            logs[column] = float(np.log(_FIRST_SHARE * typical_s))
    return logs.get


def widening(held_out_error: float | None, expected: ExpectedErrors) -> float:
    """Return by which factor a device is predicted worse than others were, from 1 to 3."""
    factor = (held_out_error or 0.0) / expected.typical_held_out_error
    return float(np.clip(factor, 1.0, _MOST_WIDENING))


CORE, FAR, MEMORY = GROUPS = ("core", "far", "memory")

_PRIOR = np.array([[1 / 0.5, 0.0, 0.0], [0.0, 1 / 0.3, -1 / 0.3], [0.0, 0.0, 1 / 1.0]])
"""Of the logarithms of factors: they are small, and memory's are alike."""
_SCATTER = 0.5  # scatter of logarithms of errors that is assumed of weights without one
_STEPS = 20

_IN_MEMORY = re.compile(r"beyond_llc|load_memory")
_BEYOND_L2 = re.compile(r"beyond_l\d|beyond_streams|out_of_reach|load_distinct")


def group_of(feature: str) -> str | None:
    """Return the group of weights that a feature belongs to; None for launches."""
    if feature == "launches":
        return None
    if _IN_MEMORY.search(feature):
        return MEMORY
    return FAR if _BEYOND_L2.search(feature) else CORE


def split_time(weights: WeightSet, case: Observation) -> tuple[float, list[float]]:
    """Predict the time of a measured case, s, and return it with the share of each group."""
    charge = charge_inputs(weights, model_inputs(weights.definition, case.counts))
    parts = charge.scaled * weights.unknowns
    groups = [group_of(feature) for _, feature in weights.function.columns]
    whole = parts.sum() or 1.0
    pairs = [*zip(parts, groups, strict=True)]
    shares = [float(sum(p for p, g in pairs if g == one) / whole) for one in GROUPS]
    return float(correct_charge(weights, charge)[0]), shares


def find_factors(expected_s: Vector, shares: Matrix, times_s: Vector, scatter: float) -> Vector:
    """Return the factor of each group by which kernels take some times; rows are kernels."""
    rest, ratios = 1.0 - shares.sum(axis=1), np.log(times_s / expected_s)
    logs = np.zeros(len(GROUPS))
    for _ in range(_STEPS):  # of Gauss and Newton
        parts = shares * np.exp(logs)
        whole = rest + parts.sum(axis=1)
        off = (ratios - np.log(whole)) / scatter
        trust = (1.0 + off**2) ** -0.25  # times that are far off count for less (soft L1)
        off, slopes = trust * off, (trust / whole / scatter)[:, np.newaxis] * parts
        target = np.concatenate([off, -_PRIOR @ logs])
        logs += np.linalg.lstsq(np.vstack([slopes, _PRIOR]), target, rcond=None)[0]
    return np.exp(logs)


def find_error(weights: WeightSet, observations: Sequence[Observation]) -> float | None:
    """Return the mean relative error of weights on measured cases that they can predict."""
    cases = _select_complete(weights, observations)
    errors = [abs(split_time(weights, case)[0] / case.time_s - 1.0) for case in cases]
    return mean_error(np.array(errors)).value if errors else None


def _select_complete(
    weights: WeightSet, observations: Sequence[Observation]
) -> Sequence[Observation]:
    model = weights.definition
    known = [c for c in observations if not find_missing(weights, model_inputs(model, c.counts))]
    return fit_model.select_readable(known, model, "structure")


def rescale_weights(
    weights: WeightSet, observations: Sequence[Observation], header: Header, *, noise: float = 0.0
) -> WeightSet:
    r"""Rescale weights that ship for a device to its measured kernels: its clock and its memory.

    Weights expect a kernel :math:`i` to take :math:`e_i`, of which group :math:`g` of weights takes
    a share :math:`a_{ig}`. From times :math:`t_i` now, they are multiplied by the most likely
    factors: :math:`\min_s \sum_i (\log(e_i \sum_g a_{ig} s_g / t_i) / \tau)^2`, and the squares of
    `_PRIOR` times their logarithms. Intervals get wider as far as left-out families are predicted
    worse than in the fit, and by `noise` of the times.
    """
    cases = _select_complete(weights, observations)
    split = [split_time(weights, case) for case in cases]
    expected, shares = (np.array(column) for column in zip(*split, strict=True))
    measured = np.array([case.time_s for case in cases])
    families = np.array([case.family for case in cases])
    quality = weights.quality
    then = (quality and quality.held_out_scatter) or _SCATTER
    predicted = expected * (1.0 - shares.sum(axis=1))
    for family in np.unique(families):
        out = families == family
        factors = find_factors(expected[~out], shares[~out], measured[~out], then)
        predicted[out] += expected[out] * (shares[out] @ factors)
    if quality is not None:
        now = log_scatter(predicted.tolist(), measured.tolist()) or then
        error = mean_error(np.abs(predicted / measured - 1.0)).value
        changes: dict[str, Any] = {"held_out_error": error, "held_out_scatter": now}
        if quality.calibration is not None:
            changes["calibration"] = quality.calibration.widen(max(1.0, now / then), noise)
        quality = quality.model_copy(update=changes)
    found = find_factors(expected, shares, measured, then).tolist()
    by_group = {None: 1.0, **dict(zip(GROUPS, found, strict=True))}
    rescaled = tuple(one.scale_by(by_group[group_of(one.feature)]) for one in weights.weights)
    source = fit_model.measurement_source(cases, header)
    return weights.model_copy(update={"weights": rescaled, "quality": quality, "source": source})
