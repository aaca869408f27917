"""The weights document of a calibration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from countperf.execution.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.fitting.design import Observation
from countperf.fitting.fitted_document import fit_quality, weight_set
from countperf.fitting.transfer.calibrated import TransferFit
from countperf.fitting.transfer.prior import ExpectedErrors
from countperf.hardware.identity import DeviceIdentity
from countperf.models.records import Calibration, FitQuality
from countperf.models.validity import NORMAL_QUANTILES
from countperf.models.weights import WeightSet

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
    is_emitted = fit.definition.policy is None and not fit.definition.named_shape
    quality = fit_quality(fit.estimate, fit.held_out, fit.error)
    calibration = _calibration(quality, expected, noise)
    return weight_set(
        observations,
        fit.estimate,
        quality.model_copy(update={"calibration": calibration}),
        device=device,
        view="source" if is_emitted else "structure",
        caches=caches,
        protocol=protocol,
        recorded_at=recorded_at,
        candidates=fit.candidates,
    )


def widening(held_out_error: float, expected: ExpectedErrors) -> float:
    """Return by which factor a device is predicted worse than others were, from 1 to 3."""
    factor = held_out_error / expected.typical_held_out_error
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
        factor = widening(quality.held_out_error or 0.0, expected)
        found = {0.9: expected.log_error_90 * factor, 0.95: expected.log_error_95 * factor}
    wider = {at: float(np.hypot(each, NORMAL_QUANTILES[at] * noise)) for at, each in found.items()}
    return own.model_copy(update={"log_errors_90": wider[0.9], "log_errors_95": wider[0.95]})
