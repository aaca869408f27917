"""Weights of a new device from few measured kernels and a prior from other devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from countperf.display import ShortRepr
from countperf.errors import FitError
from countperf.execution.memory_hierarchy import MemoryHierarchy
from countperf.execution.policy import ExecutionPolicy
from countperf.fitting.design import Observation, build_design
from countperf.fitting.estimate import Estimate, estimate_design
from countperf.fitting.leaving_out import HeldOutCase, held_out_figure, leave_families_out
from countperf.fitting.selection import candidate_of
from countperf.fitting.solve import LogPrior, Recipe, Vector
from countperf.fitting.threads import on_one_thread
from countperf.fitting.transfer.changed import changed_prior
from countperf.fitting.transfer.common_unknowns import guesses, with_columns
from countperf.fitting.transfer.prior import KnownDevice, KnownModel, prior_for
from countperf.hardware.identity import DeviceIdentity
from countperf.models.compiled import COMPILED
from countperf.models.definition import ModelDefinition
from countperf.models.function import Column
from countperf.models.linear import LINEAR
from countperf.models.records import Candidate
from countperf.models.weights import WeightSet

_FOLDS = 6
"""Into at most so many parts the families of kernels go that are left out together."""

_FALLBACK_GAIN = 0.03
"""Part by which a model that others' weights say nothing of has to be better (logarithm of the
factor over left-out families) to be taken."""

_SIMPLEST = ExecutionPolicy(width=1, vectorized="never")
_SIMPLEST_ON_GPUS = ExecutionPolicy(width=32, along="group")
_WIDE = 2.0
_ERROR = 0.3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TransferFit(ShortRepr):
    """A model fitted to few cases with a prior."""

    estimate: Estimate  # the fitted model over all columns that have a weight
    prior: LogPrior  # what was known before
    error: float  # size of the model's own errors that the fit assumed
    held_out: tuple[HeldOutCase, ...] = ()  # the cases, each predicted without its family's
    candidates: tuple[Candidate, ...] = field(default=())  # models among which this one was chosen

    @property
    def definition(self) -> ModelDefinition:
        """The model."""
        return self.estimate.function.model

    @property
    def logs(self) -> Vector:
        """Logarithms of the weights."""
        return np.log(self.estimate.solution.coefficients)

    @property
    def held_out_factor(self) -> float:
        """Factor by which left-out families are off, in the geometric mean."""
        return held_out_figure(self.held_out).factor


@on_one_thread
def fit_new_device(
    observations: Sequence[Observation],
    known: KnownModel,
    device: DeviceIdentity,
    memory: MemoryHierarchy,
) -> TransferFit:
    """Fit a model to a new device, with a prior from known ones.

    Each execution policy of a known device of the platform is tried; the device's own weights, with
    what may have changed since, if it is known itself; and models that no prior is needed for: the
    simplest policy, and a sum of what kernels do, as the paper's. Families of kernels that are left
    out choose.
    """
    if known.kind == COMPILED:
        observations = [case for case in observations if case.has_code]
    if not observations:
        raise FitError(
            "no measured kernel has what the model reads: measure more kernels (countperf"
            " calibrate goes on)"
        )
    units = device.compute_units
    definitions = [
        known.definition(policy, memory, units=units) for policy in known.policies(device)
    ]
    near = known.near(device)
    fits = [_fitted(observations, near, device, definition) for definition in definitions]
    if (own := known.itself(device)) is not None:
        fits.append(_changed(observations, known, own, memory))
    fits.sort(key=lambda fit: fit.held_out_factor)
    best = fits[0]
    if known.kind != COMPILED:
        others = [
            _fitted(observations, near, device, model)
            for model in _fallbacks(known, device, memory)
            if model not in definitions
        ]
        fits += others
        for other in others:
            if np.log(best.held_out_factor / other.held_out_factor) > _FALLBACK_GAIN:
                best = other
    candidates = tuple(
        candidate_of(
            f"{fit.definition.name}-{number}",
            fit.definition,
            fit.held_out,
            fit.estimate,
            held_out_figure(fit.held_out),
            chosen=fit is best,
        )
        for number, fit in enumerate(fits, start=1)
    )
    return replace(best, candidates=candidates)


@on_one_thread
def fit_definition(
    observations: Sequence[Observation],
    definition: ModelDefinition,
    columns: Sequence[Column],
    prior_of: Callable[[Sequence[Column], Callable[[Column], float | None]], LogPrior],
    *,
    error: float,
    carried: Mapping[str, float] | None = None,
) -> TransferFit:
    """Fit a model with a prior on its unknowns; families are left out, too."""
    design = build_design(observations, definition)
    wanted = (*dict.fromkeys((*columns, *design.function.columns)),)
    design = with_columns(design, wanted)
    prior = prior_of(design.function.columns, guesses(design))
    off = np.array([(carried or {}).get(case.kernel, 0.0) for case in observations])
    without = replace(design, times_s=design.times_s * np.exp(-off))
    recipe = prior_recipe(error)
    found = estimate_design(without, recipe, prior=prior)
    held_out = leave_families_out(
        observations, found, recipe, design=without, prior=prior, parts=_FOLDS
    )
    return TransferFit(
        estimate=replace(found, design=design), prior=prior, error=error, held_out=held_out
    )


def prior_recipe(error: float) -> Recipe:
    """Return how a model with errors of a size is fitted with a prior."""
    return Recipe(residual="log", loss="soft_l1", loss_scale=0.3, model_error=error, tolerance=1e-7)


def _fitted(
    observations: Sequence[Observation],
    known: KnownModel,
    device: DeviceIdentity,
    definition: ModelDefinition,
) -> TransferFit:
    """Fit one model; a model of what kernels do has no prior but a wide one."""
    if definition.policy is None:
        return fit_definition(observations, definition, (), _wide, error=_ERROR)
    terms = definition.terms
    columns = [column for column in known.columns if column[0] in terms]

    def prior_of(wanted: Sequence[Column], guess: Callable[[Column], float | None]) -> LogPrior:
        return prior_for(known, device, wanted, guess)

    return fit_definition(
        observations,
        definition,
        columns,
        prior_of,
        error=known.error,
        carried=known.carried(device),
    )


def _changed(
    observations: Sequence[Observation],
    known: KnownModel,
    own: KnownDevice,
    memory: MemoryHierarchy,
) -> TransferFit:
    """Fit the model of a device that is known, with its own weights and residuals as the prior."""
    off = zip(known.kernels, own.residuals, strict=False)
    return fit_definition(
        observations,
        known.definition(own.policy, memory, units=own.device.compute_units),
        [column for column, log in zip(known.columns, own.logs, strict=True) if log is not None],
        partial(changed_prior, known, own),
        error=known.error,
        carried={kernel: residual for kernel, residual in off if residual is not None},
    )


def _wide(columns: Sequence[Column], guess: Callable[[Column], float | None]) -> LogPrior:
    """Return a prior that says little: each weight about what a small share of the time gives."""
    found = [guess(column) for column in columns]
    mean = np.array([-30.0 if value is None else value for value in found])
    return LogPrior(mean=mean, covariance=np.diag(np.full(mean.size, _WIDE**2)))


def _fallbacks(
    known: KnownModel, device: DeviceIdentity, memory: MemoryHierarchy
) -> tuple[ModelDefinition, ...]:
    """Return models for devices unlike the others."""
    simplest = _SIMPLEST if device.device_type == "cpu" else _SIMPLEST_ON_GPUS
    units = device.compute_units
    return known.definition(simplest, memory, units=units), LINEAR


def predicted_by(
    weights: WeightSet, observations: Sequence[Observation]
) -> tuple[HeldOutCase, ...]:
    """Predict cases by weights that there are, without a correction by similar kernels.

    Cases with what has no weight are left out.
    """
    predicted: list[HeldOutCase] = []
    for case in observations:
        inputs = weights.inputs(case.counts)
        if not weights.missing(inputs):
            predicted.append(
                HeldOutCase(
                    name=case.name,
                    kernel=case.kernel,
                    family=case.family,
                    measured_s=case.time_s,
                    predicted_s=float(np.asarray(weights.charge(inputs).time_s)),
                )
            )
    return tuple(predicted)
