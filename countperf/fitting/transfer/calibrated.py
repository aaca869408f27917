"""Weights of a new device from few measured kernels and a prior from other devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.errors import FitError
from countperf.execution.memory_hierarchy import MemoryHierarchy
from countperf.execution.policy import ExecutionPolicy
from countperf.fitting.design import Design, Observation, build_design
from countperf.fitting.solve import Vector
from countperf.fitting.threads import on_one_thread
from countperf.fitting.transfer.changed import changed_prior
from countperf.fitting.transfer.common_unknowns import guesses, with_columns
from countperf.fitting.transfer.penalised import LogPrior, PenalisedFit, Times, fit_with_prior
from countperf.fitting.transfer.prior import KnownDevice, KnownModel, prior_for
from countperf.fitting.validation import HeldOutCase
from countperf.hardware.identity import DeviceIdentity
from countperf.metrics import factor_between
from countperf.models.compiled import COMPILED, order_of
from countperf.models.definition import ModelDefinition
from countperf.models.function import Column, model_inputs
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

    definition: ModelDefinition  # the model
    design: Design  # the measured cases, over all columns that have a weight
    prior: LogPrior  # what was known before
    fitted: PenalisedFit  # what is known now
    error: float  # size of the model's own errors that the fit assumed
    held_out: tuple[HeldOutCase, ...] = ()  # the cases, each predicted without its family's
    candidates: tuple[Candidate, ...] = field(default=())  # models among which this one was chosen

    @property
    def held_out_factor(self) -> float:
        """Factor by which left-out families are off, in the geometric mean."""
        return factor_of(self.held_out)

    @property
    def predicted_s(self) -> Vector:
        """Times that the fit gives its own cases, s."""
        return self.design.times_s * np.exp(self.fitted.residuals)


@on_one_thread
def fit_new_device(
    observations: Sequence[Observation],
    known: KnownModel,
    device: DeviceIdentity,
    memory: MemoryHierarchy,
    *,
    design_of: Callable[[Sequence[Observation], ModelDefinition], Design] = build_design,
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
    fits = [_fitted(observations, near, device, each, design_of) for each in definitions]
    if (own := known.itself(device)) is not None:
        fits.append(_changed(observations, known, own, memory, design_of))
    fits.sort(key=lambda fit: fit.held_out_factor)
    best = fits[0]
    if known.kind != COMPILED:
        others = [
            _fitted(observations, near, device, model, design_of)
            for model in _fallbacks(known, device, memory)
            if model not in definitions
        ]
        fits += others
        for other in others:
            if np.log(best.held_out_factor / other.held_out_factor) > _FALLBACK_GAIN:
                best = other
    candidates = tuple(
        _candidate(name, fit, chosen=fit is best)
        for name, fit in zip(_names([fit.definition for fit in fits]), fits, strict=True)
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
    design_of: Callable[[Sequence[Observation], ModelDefinition], Design] = build_design,
) -> TransferFit:
    """Fit a model with a prior on its unknowns; families are left out, too."""
    design = design_of(observations, definition)
    wanted = (*dict.fromkeys((*columns, *design.function.columns)),)
    design = with_columns(design, wanted)
    prior = prior_of(design.function.columns, guesses(design))
    off = np.array([(carried or {}).get(case.kernel, 0.0) for case in observations])
    without = replace(design, times_s=design.times_s * np.exp(-off))
    fitted = fit_with_prior(without, prior, error=error)
    return TransferFit(
        definition=definition,
        design=design,
        prior=prior,
        fitted=replace(fitted, residuals=fitted.residuals - off),
        error=error,
        held_out=_leave_families_out(observations, without, prior, fitted, error),
    )


def _fitted(
    observations: Sequence[Observation],
    known: KnownModel,
    device: DeviceIdentity,
    definition: ModelDefinition,
    design_of: Callable[[Sequence[Observation], ModelDefinition], Design],
) -> TransferFit:
    """Fit one model; a model of what kernels do has no prior but a wide one."""
    if definition.policy is None:
        return fit_definition(
            observations, definition, (), _wide, error=_ERROR, design_of=design_of
        )
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
        design_of=design_of,
    )


def _changed(
    observations: Sequence[Observation],
    known: KnownModel,
    own: KnownDevice,
    memory: MemoryHierarchy,
    design_of: Callable[[Sequence[Observation], ModelDefinition], Design],
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
        design_of=design_of,
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


def _leave_families_out(
    observations: Sequence[Observation],
    design: Design,
    prior: LogPrior,
    fitted: PenalisedFit,
    error: float,
) -> tuple[HeldOutCase, ...]:
    """Predict each case from the other families' and the prior."""
    families = list(dict.fromkeys(case.family for case in observations))
    fold_of = {family: number % _FOLDS for number, family in enumerate(families)}
    folds = np.array([fold_of[case.family] for case in observations])
    predicted = np.empty(len(observations))
    for fold in range(min(_FOLDS, len(families))):
        out = folds == fold
        again = fit_with_prior(rows_of(design, ~out), prior, error=error, start=fitted.logs)
        predicted[out] = Times(rows_of(design, out))(again.logs)[0]
    return tuple(map(_held_out, observations, predicted.tolist()))


def _held_out(case: Observation, time_s: float) -> HeldOutCase:
    return HeldOutCase(
        name=case.name,
        kernel=case.kernel,
        family=case.family,
        measured_s=case.time_s,
        predicted_s=time_s,
    )


def rows_of(design: Design, chosen: NDArray[np.bool_ | np.intp]) -> Design:
    """Return some rows of a design."""
    return replace(
        design,
        counts=design.counts[chosen],
        times_s=design.times_s[chosen],
        noise=design.noise[chosen],
        scales={name: values[chosen] for name, values in design.scales.items()},
    )


def predicted_by(
    weights: WeightSet, observations: Sequence[Observation]
) -> tuple[HeldOutCase, ...]:
    """Predict cases by weights that there are, without a correction by similar kernels.

    Cases with what has no weight are left out.
    """
    plain = weights.uncorrected
    found: list[HeldOutCase] = []
    for case in observations:
        inputs = model_inputs(plain.definition, case.counts)
        if not plain.missing(inputs):
            time_s = float(np.asarray(plain.charge(inputs).time_s))
            found.append(_held_out(case, time_s))
    return tuple(found)


def factor_of(held_out: Sequence[HeldOutCase]) -> float:
    """Return the factor by which families are off: each counts the same."""
    by_family: dict[str, list[float]] = {}
    for case in held_out:
        factor = factor_between(case.predicted_s or 0.0, case.measured_s)
        by_family.setdefault(case.family, []).append(float(np.log(factor)))
    return float(np.exp(np.mean([np.mean(logs) for logs in by_family.values()])))


def mean_held_out_error(held_out: Sequence[HeldOutCase]) -> float:
    """Return the geometric mean of the relative errors of left-out families."""
    by_family: dict[str, list[float]] = {}
    for case in held_out:
        error = abs((case.predicted_s or 0.0) / case.measured_s - 1.0)
        by_family.setdefault(case.family, []).append(float(np.log(max(error, 1e-3))))
    return float(np.exp(np.mean([np.mean(logs) for logs in by_family.values()])))


def _candidate(name: str, fit: TransferFit, *, chosen: bool) -> Candidate:
    errors = np.abs(np.expm1(fit.fitted.residuals))
    return Candidate(
        model=name,
        description=fit.definition.description,
        held_out_error=mean_held_out_error(fit.held_out),
        held_out_factor=fit.held_out_factor,
        in_sample_error=float(np.exp(np.mean(np.log(np.maximum(errors, 1e-3))))),
        predicted_cases=len(fit.held_out),
        cases=len(fit.held_out),
        chosen=chosen,
    )


def _names(models: Sequence[ModelDefinition]) -> list[str]:
    """Return what tells candidates apart: their order of accesses, else a number if they need one.

    Numbers go by the order of the models: of several structural ones the first is ``structural-1``.
    """
    several = {name for name, number in Counter(m.name for m in models).items() if number > 1}
    numbers: Counter[str] = Counter()
    names: list[str] = []
    for model in models:
        order = order_of(model)
        numbers[model.name] += 1
        number = numbers[model.name] if model.name in several else ""
        names.append("-".join(filter(None, (model.name, order or str(number)))))
    return names
