"""The document of a fit: weights, errors, a correction by similar kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from countperf.execution.memory_hierarchy import CountedCaches
from countperf.fitting.correcting import learn
from countperf.fitting.design import Observation
from countperf.fitting.estimate import Estimate
from countperf.fitting.intervals import coverage_without_own_family, interval_calibration
from countperf.fitting.leaving_out import HeldOutCase, corrected, held_out_figure
from countperf.fitting.selection import REFINEMENT
from countperf.fitting.validation import log_scatter
from countperf.hardware.identity import DeviceIdentity
from countperf.metrics import mean_error
from countperf.models.correction import Correction
from countperf.models.records import (
    Candidate,
    FitQuality,
    MeasurementSource,
    Range,
    Weight,
)
from countperf.models.units import DERIVED
from countperf.models.weights import WeightSet
from countperf.properties.taxonomy import COUNTING_RULES_VERSION, View, property_unit
from countperf.version import __version__

_SUPPLIERS = 5
"""Kernels that are stored for each feature without a weight."""


def weight_set(
    observations: Sequence[Observation],
    fitted: Estimate,
    quality: FitQuality,
    *,
    device: DeviceIdentity,
    view: View,
    caches: CountedCaches,  # for which the kernels were counted
    protocol: str,
    recorded_at: str,
    exercising_kernels: Mapping[str, Sequence[str]] = MappingProxyType({}),
    candidates: tuple[Candidate, ...] = (),
    correction: Correction | None = None,
) -> WeightSet:
    """Return the document of a fit."""
    model = fitted.function.model
    charged = {feature for _, feature in fitted.function.columns}
    return WeightSet(
        model=model.name,
        definition=model,
        device=device,
        counting_rules=COUNTING_RULES_VERSION,
        view=view,
        counted_caches=caches,
        weights=_weights(fitted),
        ranges={
            name: Range(smallest=float(values[values != 0].min()), largest=float(values.max()))
            for name, values in fitted.design.scales.items()
            if np.any(values)
        },
        indistinguishable=fitted.diagnosis.groups,
        quality=quality,
        source=MeasurementSource(
            cases=len(observations),
            unstable_cases=sum(not case.stable for case in observations),
            families=tuple(dict.fromkeys(case.family for case in observations)),
            protocol=protocol,
            recorded_at=recorded_at,
        ),
        exercising_kernels={
            name: tuple(kernels[:_SUPPLIERS])
            for name, kernels in exercising_kernels.items()
            if name not in charged
        },
        candidates=candidates,
        correction=correction,
        written_by=__version__,
    )


def _standard_error(fitted: Estimate, place: int) -> float | None:
    """Return a standard error; None at a bound, among inseparable unknowns, and without effect."""
    covariance = fitted.solution.covariance
    key = fitted.function.keys[place]
    grouped = {name for group in fitted.diagnosis.groups for name in group.features}
    if covariance is None or fitted.solution.at_bound[place]:
        return None
    if key in grouped:
        return None
    return max(float(covariance[place, place]), 0.0) ** 0.5


def _weights(fitted: Estimate) -> tuple[Weight, ...]:
    design = fitted.design
    weights: list[Weight] = []
    for i, (term, feature) in enumerate(fitted.function.columns):
        exercised = design.counts[:, i][design.counts[:, i] != 0]
        derived = feature in fitted.function.model.derived
        weights.append(
            Weight(
                feature=feature,
                term=term,
                value_s=float(fitted.solution.coefficients[i]),
                standard_error_s=_standard_error(fitted, i),
                unit=DERIVED if derived else property_unit(feature),
                smallest=float(exercised.min()) if exercised.size else 0.0,
                largest=float(exercised.max(initial=0.0)),
            )
        )
    return tuple(weights)


def fit_quality(
    fitted: Estimate, held_out: Sequence[HeldOutCase], model_error: float | None
) -> FitQuality:
    """Return the errors of a fit, in sample and on families that are left out."""
    determined = [(c.predicted_s, c.measured_s) for c in held_out if c.predicted_s is not None]
    errors = [error for case in held_out if (error := case.relative_error) is not None]
    counts = any(c.predicted_s is not None and not c.overhead_only for c in held_out)
    return FitQuality(
        in_sample_error=mean_error(fitted.relative_errors).value,
        held_out_error=mean_error(errors).value if errors else None,
        held_out_factor=held_out_figure(held_out).factor if counts else None,
        in_sample_scatter=log_scatter(fitted.predicted_s.tolist(), fitted.design.times_s.tolist()),
        held_out_scatter=log_scatter([p for p, _ in determined], [m for _, m in determined]),
        calibration=interval_calibration(held_out),
        coverage=coverage_without_own_family(held_out),
        model_error=model_error,
    )


def correction_of(
    observations: Sequence[Observation], fitted: Estimate, held_out: Sequence[HeldOutCase]
) -> Correction | None:
    """Return what corrects predictions, if families that are left out are predicted better so."""
    with_it = corrected(held_out)
    if not any(case.predicted_s is not None for case in with_it):
        return None
    uncorrected, better = (held_out_figure(cases).factor for cases in (held_out, with_it))
    if np.log(uncorrected / better) <= REFINEMENT:
        return None
    return learn(fitted, observations, factor=better, uncorrected_factor=uncorrected)
