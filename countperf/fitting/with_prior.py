"""Weights of a new device from few measured kernels and a prior from other devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from countperf.display import ShortRepr, Table, printed
from countperf.errors import FitError
from countperf.execution.memory_hierarchy import CountedCaches, MemoryHierarchy
from countperf.fitting.design import Design, Observation, build_design
from countperf.fitting.estimate import estimate_design, on_one_thread
from countperf.fitting.fit import FitResult, fit_quality, weight_set
from countperf.fitting.leaving_out import leave_families_out
from countperf.fitting.prior import ExpectedErrors, KnownModel, prior_for
from countperf.fitting.solve import Recipe
from countperf.hardware.identity import DeviceIdentity
from countperf.measurements import Header
from countperf.models.compiled import COMPILED
from countperf.models.function import Calibration, Column, FitQuality, ModelFunction
from countperf.models.validity import NORMAL_QUANTILES

_FOLDS = 6
"""Into at most so many parts the families of kernels go that are left out together."""

_FIRST_SHARE = 0.05
"""Share of the time that a first guess gives each feature, in the median."""

_MOST_WIDENING = 3.0
"""Factor by which intervals grow at most where a device is predicted worse than others were."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibratedModel(ShortRepr):
    """A model that was calibrated."""

    model: str  # name by which `load_weights` finds the weights
    fit: FitResult  # the fit
    path: Path  # where its weights are
    held_out_error: float | None  # relative error of left-out families
    factor: float  # by which they are predicted worse than those of other devices
    expected_error: float | None  # relative, of kernels that were not measured


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibrationResult(Table):
    """Result of a calibration."""

    name: str  # under which its weights are found
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

    __repr__ = printed


@on_one_thread
def fit_with_prior(
    observations: Sequence[Observation],
    known: KnownModel,
    header: Header,
    *,
    memory: MemoryHierarchy,
    caches: CountedCaches,
    noise: float = 0.0,
) -> FitResult:
    """Fit a model to few cases of a device, with a prior from known ones.

    `noise`, of times that did not settle, makes intervals wider.
    """
    if known.kind == COMPILED:
        observations = [case for case in observations if case.has_code]
    if not observations:
        raise FitError(
            "no measured kernel has what the model reads: measure more kernels (countperf"
            " calibrate goes on)"
        )
    device = header.device
    definition = known.definition(device, memory)
    design = build_design(observations, definition)
    columns = [column for column in known.columns if column[0] in definition.terms]
    design = with_columns(design, tuple(dict.fromkeys((*columns, *design.function.columns))))
    prior = prior_for(known.near(device), device, design.function.columns, guesses(design))
    carried = known.carried(device)
    off = np.array([carried.get(case.kernel, 0.0) for case in observations])
    without = replace(design, times_s=design.times_s * np.exp(-off))
    recipe = prior_recipe(known.error)
    found = estimate_design(without, recipe, prior=prior)
    held_out = leave_families_out(
        observations, found, recipe, design=without, prior=prior, parts=_FOLDS
    )
    found = replace(found, design=design)
    quality = fit_quality(found, held_out, known.error)
    expected = known.errors_on(device, len({case.kernel for case in observations}))
    calibration = _calibration(quality, expected, noise)
    weights = weight_set(
        observations,
        found,
        quality.model_copy(update={"calibration": calibration}),
        header,
        view="structure",
        caches=caches,
    )
    return FitResult(
        weights=weights,
        verdicts=(),
        observations=tuple(observations),
        estimate=found,
        held_out=held_out,
    )


def prior_recipe(error: float) -> Recipe:
    """Return how a model with errors of a size is fitted with a prior."""
    return Recipe(residual="log", loss="soft_l1", loss_scale=0.3, model_error=error, tolerance=1e-7)


def with_columns(design: Design, columns: Sequence[Column]) -> Design:
    """Return a design over given columns; those that it lacks are zero, others are dropped."""
    places = {column: position for position, column in enumerate(design.function.columns)}
    counts = np.zeros((len(design.times_s), len(columns)))
    for number, column in enumerate(columns):
        if column in places:
            counts[:, number] = design.counts[:, places[column]]
    function = ModelFunction(model=design.function.model, columns=tuple(columns))
    return replace(design, function=function, names=function.keys, counts=counts)


def guesses(design: Design) -> Callable[[Column], float | None]:
    """Return what guesses the logarithm of a weight: that of a small share of the time."""
    places = {column: position for position, column in enumerate(design.function.columns)}
    slopes = design.scaled

    def guess(column: Column) -> float | None:
        place = places.get(column)
        if place is None or not np.any(has := slopes[:, place] > 0):
            return None
        return float(np.log(_FIRST_SHARE * np.median(design.times_s[has] / slopes[has, place])))

    return guess


def widening(held_out_error: float | None, expected: ExpectedErrors) -> float:
    """Return by which factor a device is predicted worse than others were, from 1 to 3."""
    factor = (held_out_error or 0.0) / expected.typical_held_out_error
    return float(np.clip(factor, 1.0, _MOST_WIDENING))


def _calibration(
    quality: FitQuality, expected: ExpectedErrors | None, noise: float
) -> Calibration | None:
    """Take intervals from other devices; wider ones if this device is predicted worse than they."""
    own = quality.calibration
    if own is None:
        return None
    found = {0.9: own.log_errors_90, 0.95: own.log_errors_95}
    if expected is not None:
        factor = widening(quality.held_out_error, expected)
        found = {0.9: expected.log_error_90 * factor, 0.95: expected.log_error_95 * factor}
    wider = {at: float(np.hypot(each, NORMAL_QUANTILES[at] * noise)) for at, each in found.items()}
    return own.model_copy(update={"log_errors_90": wider[0.9], "log_errors_95": wider[0.95]})
