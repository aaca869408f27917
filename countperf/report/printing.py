"""The printer of each kind of result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from countperf.errors import ParameterError
from countperf.report import accuracy, counts, mechanistic, predictions, tuning, weights

if TYPE_CHECKING:
    from countperf.report.rows import Printed

_PRINTERS: Mapping[str, Callable[..., Printed]] = {
    "WeightSet": weights.weights,
    "FitResult": weights.fit,
    "CalibrationResult": weights.calibration,
    "Characterization": weights.characterization,
    "AvailableWeights": weights.available,
    "PropertyVector": counts.counts,
    "Prediction": predictions.prediction,
    "PredictionPair": predictions.pair,
    "Explanation": predictions.explanation,
    "MeasurementSet": accuracy.measurements,
    "Evaluation": accuracy.evaluation,
    "Comparison": accuracy.comparison,
    "RankingEvaluation": accuracy.ranking_evaluation,
    "TimingDocument": tuning.timing,
    "LaunchLog": tuning.launches,
    "Ranking": tuning.ranking,
    "TuningResult": tuning.search,
    "ModelAnswers": mechanistic.answers,
    "DeviceAnswers": mechanistic.on_devices,
    "KernelOccupancy": mechanistic.occupancy,
    "Sweep": mechanistic.sweep,
    "StepFormulas": mechanistic.steps,
    "Schedule": mechanistic.schedule,
}
"""By the names of classes, so that a kind of result is not imported for another one."""


def printed(result: object, *more: Any, **named: Any) -> Printed:
    """Give facts, rows and sentences of a result."""
    for kind in type(result).__mro__:
        if kind.__name__ in _PRINTERS:
            return _PRINTERS[kind.__name__](result, *more, **named)
    raise ParameterError(
        f"a {type(result).__name__} is no table; tables are {', '.join(_PRINTERS)}",
        parameter="result",
    )
