"""Evaluation of weights on kernels that no fit has seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from countperf.fitting.judging import evaluate as evaluate_cases
from countperf.fitting.judging import evaluate_ranking as evaluate_sets
from countperf.measurements import PURPOSES
from countperf.workflow.measured import read_measurements, with_known_transactions
from countperf.workflow.prediction import Target

if TYPE_CHECKING:
    from countperf.fitting.judging import RankingEvaluation
    from countperf.measurements import MeasurementSet, Purpose
    from countperf.metrics import Evaluation
    from countperf.models.weights import WeightSet


def evaluate(
    measurements: MeasurementSet | Path | str,
    *,
    weights: WeightSet | Path | str,
    model: str | None = None,
    force: bool = False,
    purposes: Sequence[Purpose] = (),
) -> Evaluation:
    """Compare predicted with measured times of the kernels that judge fits among measurements.

    Parameters
    ----------
    measurements : MeasurementSet, Path or str
        Measurements of one device, or their file.
    weights : WeightSet, Path or str
        Weights, or their slug or path.
    model : str, optional
        Which model's weights, where they are looked up; by default the one chosen for the device.
    force : bool
        Evaluate weights of another device.
    purposes : sequence of {"test", "application", "variant"}, optional
        Only kernels for these; by default all but those for measurement, which fits have seen.

    Returns
    -------
    Evaluation
        Cases ordered by purpose.

    Raises
    ------
    DeviceMismatchError, FitError, DocumentError, PredictionError
        The measurements are of another device, or nothing can be evaluated.
    """
    found = read_measurements(measurements)
    target = Target(weights=weights, model=model, device=found.device, force=force)
    weights = target.checked()
    judging = set(purposes or PURPOSES) - {"measurement"}
    judged = found.select(lambda m: m.purpose in judging)
    return evaluate_cases(weights, with_known_transactions(judged, weights.definition))


def evaluate_ranking(
    measurements: MeasurementSet | Path | str,
    *,
    weights: WeightSet | Path | str,
    model: str | None = None,
    force: bool = False,
) -> RankingEvaluation:
    """Compare the predicted with the measured order of the sets of variants among measurements."""
    found = read_measurements(measurements)
    target = Target(weights=weights, model=model, device=found.device, force=force)
    weights = target.checked()
    variants = found.select(lambda m: m.purpose == "variant")
    return evaluate_sets(weights, with_known_transactions(variants, weights.definition))
