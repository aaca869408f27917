"""Comparison of a user's own fit with the one that ships for the same device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countperf.errors import FitError
from countperf.models.fit_summaries import ShippedComparison
from countperf.models.library import find_fit, load_weights
from countperf.workflow.evaluating import evaluate

if TYPE_CHECKING:
    from countperf.measurements import MeasurementSet
    from countperf.models.weights import WeightSet


def compared_with_shipped(
    weights: WeightSet, measurements: MeasurementSet
) -> ShippedComparison | None:
    """Compare weights with those that ship for their device."""
    fit = find_fit(weights.device.slug)
    if fit is None or fit.is_own:
        return None
    shipped = load_weights(fit.name)
    cases, error = _judged(weights, measurements)
    _, shipped_error = _judged(shipped, measurements)
    return ShippedComparison(
        name=fit.name,
        held_out_error=None if weights.quality is None else weights.quality.held_out_error,
        shipped_held_out_error=None if shipped.quality is None else shipped.quality.held_out_error,
        judged_cases=cases,
        judged_error=error,
        shipped_judged_error=shipped_error,
    )


def _judged(weights: WeightSet, measurements: MeasurementSet) -> tuple[int, float | None]:
    """Return how many cases judge fits, and the geometric mean of the relative errors on them."""
    try:
        found = evaluate(measurements, weights=weights, force=True)
    except FitError:  # there are none
        return 0, None
    return len(found.cases), found.overall().value
