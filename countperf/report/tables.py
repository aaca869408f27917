"""Results as data frames, and as tables for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.errors import ParameterError
from countperf.fitting.comparison import Comparison
from countperf.fitting.ranking import RankingEvaluation
from countperf.fitting.result import FitResult
from countperf.fitting.transfer.result import CalibrationResult
from countperf.harness.characterization.document import Characterization
from countperf.measurements.sets import MeasurementSet
from countperf.mechanistic.answers import ModelAnswers
from countperf.mechanistic.applications import Schedule
from countperf.mechanistic.occupancy_advice import KernelOccupancy
from countperf.mechanistic.sweep import Sweep
from countperf.metrics import Evaluation
from countperf.models.coverage import Coverage
from countperf.models.explanation import Explanation
from countperf.models.library import short_name
from countperf.models.units import unit_of
from countperf.models.weights import WeightSet
from countperf.predictions import Prediction
from countperf.properties.taxonomy import describe
from countperf.properties.vector import PropertyVector
from countperf.report.against import PredictionPair, compared_parts, names_apart, side_by_side
from countperf.report.breakdown import breakdown_rows
from countperf.report.calibration import calibration_rows, calibration_text
from countperf.report.comparison import ranking_evaluation_rows
from countperf.report.mechanistic import (
    answers_head,
    answers_rows,
    answers_text,
    occupancy_rows,
    occupancy_text,
    schedule_head,
    schedule_rows,
    schedule_text,
    sweep_head,
    sweep_rows,
    sweep_text,
)
from countperf.report.names import plain_name
from countperf.report.numbers import format_percent, format_quantity, point_text
from countperf.report.objects import picked
from countperf.report.rows import Printed, Rows, ends, table_of
from countperf.report.text import prediction_head, prediction_text, times_rows
from countperf.report.tuning import (
    ranking_text,
    tuning_text,
)
from countperf.tuning.export import tuning_frame
from countperf.tuning.ranking import Ranking
from countperf.tuning.result import TuningResult

if TYPE_CHECKING:
    import pandas as pd


def rows_of(result: object) -> Rows:
    """Return the rows of a result that is a table, with full values in s."""
    return _writer(result)[0](result)


def frame_of(result: object) -> pd.DataFrame:
    """Return a result as a pandas data frame; parameters and errors are those of `rows_of`."""
    import pandas as pd

    return pd.DataFrame(rows_of(result))


def html_of(result: object) -> str:
    """Return a result as a heading and a table of at most 25 rows, for notebooks.

    Parameters and errors are those of `rows_of`.
    """
    head = _writer(result)[1](result)
    if isinstance(result, Prediction) and not isinstance(result.time_s, np.ndarray):
        rows: Rows = [
            {
                "group": row.group,
                "time": format_quantity(row.time_s, "s"),
                "share": row.share,
                "part": row.text,
            }
            for row in breakdown_rows(result)
        ]
    else:
        rows = rows_of(result)
    table = table_of(rows) if rows else None
    notes: list[str] = []
    if isinstance(result, PredictionPair):
        table, notes = side_by_side(result.first, result.second), [result.cause]
    return Printed(head=head, table=table, notes=notes).html()


def text_of(result: object) -> str:
    """Return the text of a result that prints as one."""
    return _TEXTS[type(result)](result)


def _writer(result: object) -> tuple[Callable[[Any], Rows], Callable[[Any], list[str]]]:
    for kind, writer in _WRITERS.items():
        if isinstance(result, kind):
            return writer
    named = ", ".join(kind.__name__ for kind in _WRITERS)
    raise ParameterError(
        f"a {type(result).__name__} is no table; tables are {named}", parameter="result"
    )


def _weights_rows(weights: WeightSet) -> Rows:
    model = weights.definition
    return [
        {
            "feature": name,
            "group": plain_name(name).group,
            "name": plain_name(name).text,
            "weight_s": weight.value_s,
            "standard_error_s": weight.standard_error_s,
            "unit": unit_of(weight, model),
        }
        for name, weight in weights.by_feature.items()
    ]


def _weights_head(weights: WeightSet) -> list[str]:
    quality = weights.quality
    error = None if quality is None else quality.held_out_error
    said = "" if error is None else f", error over left-out families {format_percent(error)}"
    return [f"{short_name(weights.model)} model of {weights.device.slug}{said}"]


def _vector_rows(vector: PropertyVector) -> Rows:
    return [
        {
            "property": name,
            "unit": describe(name).unit,
            "count": str(count),
            "exact": count.exact,
            "meaning": describe(name).description,
        }
        for name, count in vector.items()
    ]


_MEASURED = (
    *("case", "kernel", "family", "variant", "element_type", "purpose", "time_s", "spread"),
    *("noise_floor", "noise", "stable", "settling"),
)


def _measurement_rows(measured: MeasurementSet) -> Rows:
    return [
        {
            **picked(entry, *_MEASURED),
            "group_x": entry.group_shape[0],
            "group_y": entry.group_shape[1],
            "runs": sum(map(len, entry.samples_s)),
            **entry.parameters,
        }
        for entry in measured
    ]


def _fit_rows(fit: FitResult) -> Rows:
    held_out = {case.name: case.predicted_s for case in fit.held_out}
    return [
        {
            "case": case.name,
            "kernel": case.kernel,
            "family": case.family,
            "measured_s": float(fit.design.times_s[place]),
            "predicted_s": float(fit.predicted_s[place]),
            "relative_error": float(fit.relative_errors[place]),
            "noise": float(fit.design.noise[place]),
            "held_out_s": held_out.get(case.name),
            "stable": case.stable,
        }
        for place, case in enumerate(fit.observations)
    ]


def _ranking_rows(ranking: Ranking) -> Rows:
    return [
        {
            "place": place,
            **each.choice,
            "predicted_s": each.time_s,
            **ends(each.interval_s),
            **({"model": each.model} if each.model else {}),
        }
        for place, each in enumerate(ranking.best, start=1)
    ]


def _tuning_rows(result: TuningResult) -> Rows:
    rows = tuning_frame(result).to_dict("records")
    return [
        {str(name): value for name, value in row.items()}
        | {"is_winner": each.choice == result.winner.choice}
        for row, each in zip(rows, result.tried, strict=True)
    ]


def _evaluation_rows(evaluation: Evaluation) -> Rows:
    return [
        {
            **picked(case, "kernel", "purpose"),
            **case.parameters,
            **picked(case, "measured_s", "predicted_s", "relative_error", "noise"),
            **ends(case.interval_s),
            "complete": case.complete,
        }
        for case in evaluation.cases
    ]


def _comparison_rows(comparison: Comparison) -> Rows:
    return [
        {
            "model": each.model,
            "constants": each.level,
            "error": None if (overall := each.overall()) is None else overall.value,
            "in_sample": each.in_sample,
            "cases": len(each.cases),
            "lacking": each.lacking,
        }
        for each in comparison.models
    ]


def _coverage_rows(coverage: Coverage) -> Rows:
    return [
        {
            "feature": each.name,
            "name": plain_name(each.name).text,
            "status": each.status,
            "share": each.share,
            "value": each.value,
            "unit": each.unit,
            "smallest_measured": None if each.measured is None else each.measured.smallest,
            "largest_measured": None if each.measured is None else each.measured.largest,
        }
        for each in coverage.features
    ]


def _explanation_rows(explanation: Explanation) -> Rows:
    return [
        {
            "part": each.name,
            "group": plain_name(each.name).group,
            "name": plain_name(each.name).text,
            "time_s": each.part_s,
            "count": each.count,
            "weight_s": None if each.weight is None else each.weight.value_s,
        }
        for each in explanation.parts
    ]


def _prediction_rows(prediction: Prediction) -> Rows:
    if not isinstance(prediction.time_s, np.ndarray):
        return [
            {
                "part": name,
                "group": plain_name(name).group,
                "name": plain_name(name).text,
                "time_s": float(np.asarray(seconds).item()),
            }
            for name, seconds in prediction.breakdown.items()
        ]
    return times_rows(prediction)


def _prediction_title(prediction: Prediction) -> list[str]:
    if isinstance(prediction.time_s, np.ndarray):
        return [_of(prediction) + f"; {short_name(prediction.model)} model, warm caches"]
    return prediction_head(prediction)


def _explanation_head(explanation: Explanation) -> list[str]:
    return [*prediction_head(explanation.prediction), f"time_s = {explanation.expression}"]


def _tuning_head(result: TuningResult) -> list[str]:
    choice = point_text(result.winner.choice)
    return [
        f"{result.space} on {result.device}: {choice} takes"
        f" {format_quantity(result.winner.time_s, 's')}; {len(result.tried)} variants ran",
    ]


def _pair_rows(pair: PredictionPair) -> Rows:
    names = names_apart(pair.first, pair.second)
    return [
        {"part": text, names[0]: first, names[1]: second, "difference_s": second - first}
        for text, first, second in compared_parts(pair.first, pair.second)
    ]


def _of(result: Any) -> str:
    sizes = getattr(result, "sizes", None) or getattr(result, "parameters", None) or {}
    given = ", ".join(
        f"{name} = {value}" for name, value in sizes.items() if not isinstance(value, np.ndarray)
    )
    what = getattr(result, "kernel", None) or getattr(result, "space", "")
    return f"{what} on {result.device}{', ' if given else ''}{given}"


_WRITERS: Mapping[type, tuple[Callable[[Any], Rows], Callable[[Any], list[str]]]] = {
    WeightSet: (_weights_rows, _weights_head),
    PropertyVector: (_vector_rows, lambda vector: [f"kernel {vector.kernel}, per launch"]),
    MeasurementSet: (
        _measurement_rows,
        lambda measured: [f"{len(measured)} measurements of {measured.device.slug}"],
    ),
    FitResult: (
        _fit_rows,
        lambda fit: [*_weights_head(fit.weights), f"{len(fit.observations)} cases"],
    ),
    Ranking: (_ranking_rows, lambda ranking: [f"{_of(ranking)}: {ranking.predicted} predicted"]),
    TuningResult: (_tuning_rows, _tuning_head),
    Evaluation: (
        _evaluation_rows,
        lambda found: [
            f"{short_name(found.model)} model on {found.device}:"
            f" error {format_percent(found.overall().value)}"
        ],
    ),
    Comparison: (_comparison_rows, lambda found: [f"models on {found.device}"]),
    Coverage: (
        _coverage_rows,
        lambda found: [f"{found.grade}: {found.verdict.message}", _of(found)],
    ),
    Explanation: (_explanation_rows, _explanation_head),
    ModelAnswers: (answers_rows, lambda found: [answers_head(found)]),
    Schedule: (schedule_rows, lambda found: [schedule_head(found)]),
    Sweep: (sweep_rows, lambda found: [sweep_head(found)]),
    KernelOccupancy: (occupancy_rows, lambda found: [answers_head(found)]),
    Prediction: (_prediction_rows, _prediction_title),
    CalibrationResult: (calibration_rows, lambda found: repr(found).splitlines()[:2]),
    RankingEvaluation: (
        ranking_evaluation_rows,
        lambda found: [f"ranking by the {short_name(found.model)} model on {found.device}"],
    ),
    Characterization: (
        lambda found: [each.model_dump() for each in found.findings],
        lambda found: [f"{found.device.slug}: {len(found.findings)} numbers"],
    ),
    PredictionPair: (_pair_rows, lambda pair: [repr(pair).splitlines()[0]]),
}

_TEXTS: Mapping[type, Callable[[Any], str]] = {
    CalibrationResult: calibration_text,
    KernelOccupancy: occupancy_text,
    ModelAnswers: answers_text,
    Prediction: prediction_text,
    Ranking: ranking_text,
    Schedule: schedule_text,
    Sweep: sweep_text,
    TuningResult: tuning_text,
}
