"""The weights document of a calibration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from countperf.execution.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.fitting.design import Observation
from countperf.fitting.exercise import exercise
from countperf.fitting.intervals import coverage_without_own_family, interval_calibration
from countperf.fitting.transfer.calibrated import TransferFit, mean_held_out_error
from countperf.fitting.transfer.prior import ExpectedErrors
from countperf.fitting.validation import log_scatter
from countperf.hardware.identity import DeviceIdentity
from countperf.metrics import mean_error
from countperf.models.records import (
    Calibration,
    FitQuality,
    MeasurementSource,
    Range,
    Weight,
)
from countperf.models.units import DERIVED
from countperf.models.validity import NORMAL_QUANTILES
from countperf.models.weights import WeightSet
from countperf.properties.taxonomy import COUNTING_RULES_VERSION, View, describe
from countperf.version import __version__

_MOST_WIDENING = 3.0
"""Factor by which intervals grow at most where a device is predicted worse than others were."""


def weights_document(
    fit: TransferFit,
    observations: Sequence[Observation],
    *,
    device: DeviceIdentity,
    protocol: str,
    recorded_at: str,
    expected: ExpectedErrors | None,
    caches: CountedCaches = DEFAULT_CACHES,
    noise: float = 0.0,
) -> WeightSet:
    """Return the document of a fit with a prior."""
    function = fit.design.function
    unknowns = np.exp(fit.fitted.logs)
    covariance = fit.fitted.covariance * np.outer(unknowns, unknowns)
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0)).tolist()

    weights = tuple(
        Weight(
            feature=feature,
            term=term,
            value_s=float(unknowns[i]),
            standard_error_s=errors[i],
            unit=DERIVED if feature in fit.definition.derived else describe(feature).unit,
            smallest=_smallest(fit.design.counts[:, i]),
            largest=float(fit.design.counts[:, i].max(initial=0.0)),
        )
        for i, (term, feature) in enumerate(function.columns)
    )
    is_emitted = fit.definition.policy is None and not fit.definition.named_shape
    view: View = "source" if is_emitted else "structure"
    return WeightSet(
        model=fit.definition.name,
        definition=fit.definition,
        device=device,
        counting_rules=COUNTING_RULES_VERSION,
        view=view,
        counted_caches=caches,
        weights=weights,
        ranges={
            name: Range(smallest=_smallest(values), largest=float(values.max()))
            for name, values in fit.design.scales.items()
            if np.any(values)
        },
        covariance_s2=tuple(tuple(row) for row in covariance.tolist()),
        quality=_quality(fit, expected, noise),
        source=MeasurementSource(
            cases=len(observations),
            unstable_cases=sum(not case.stable for case in observations),
            families=tuple(dict.fromkeys(case.family for case in observations)),
            protocol=protocol,
            recorded_at=recorded_at,
        ),
        candidates=fit.candidates,
        exercise=exercise(function, unknowns.tolist(), observations),
        written_by=__version__,
    )


def widening(held_out_error: float, expected: ExpectedErrors) -> float:
    """Return by which factor a device is predicted worse than others were, from 1 to 3."""
    factor = held_out_error / expected.typical_held_out_error
    return float(np.clip(factor, 1.0, _MOST_WIDENING))


def _smallest(values: np.ndarray) -> float:
    exercised = values[values != 0]
    return float(exercised.min()) if exercised.size else 0.0


def _quality(fit: TransferFit, expected: ExpectedErrors | None, noise: float) -> FitQuality:
    """Return errors, and what intervals are made of."""
    predicted = fit.predicted_s.tolist()
    measured = fit.design.times_s.tolist()
    held_out = fit.held_out
    error = mean_held_out_error(held_out)
    own = interval_calibration(held_out)
    return FitQuality(
        in_sample_error=mean_error(np.abs(np.expm1(fit.fitted.residuals)), floor=1e-3).value,
        held_out_error=error,
        in_sample_scatter=log_scatter(predicted, measured),
        held_out_scatter=log_scatter([case.predicted_s or 0.0 for case in held_out], measured),
        calibration=_calibration(own, expected, error, noise),
        coverage=coverage_without_own_family(held_out),
        model_error=fit.error,
    )


def _calibration(
    own: Calibration | None, expected: ExpectedErrors | None, error: float, noise: float
) -> Calibration | None:
    """Take intervals from other devices; wider ones if this device is predicted worse than they."""
    if own is None:
        return None
    found = {0.9: own.log_errors_90, 0.95: own.log_errors_95}
    if expected is not None:
        factor = widening(error, expected)
        found = {0.9: expected.log_error_90 * factor, 0.95: expected.log_error_95 * factor}
    wider = {at: float(np.hypot(each, NORMAL_QUANTILES[at] * noise)) for at, each in found.items()}
    return own.model_copy(update={"log_errors_90": wider[0.9], "log_errors_95": wider[0.95]})
