"""Results as text: the one number first, then what it is made of, then the caveats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.hardware.parameters import some_of
from countperf.models.correction import CORRECTION
from countperf.models.library import short_name
from countperf.models.units import unit_of
from countperf.report.breakdown import bound_text, breakdown_rows
from countperf.report.names import OTHER, uncharged_text
from countperf.report.numbers import (
    format_percent,
    format_quantity,
    format_table,
    format_with_uncertainty,
    indented,
    interval_text,
    point_text,
    width_text,
)
from countperf.report.objects import picked
from countperf.report.plausibility import doubt, implied_rate, plausibility
from countperf.report.rows import Rows, Table, table_of

if TYPE_CHECKING:
    from countperf.counting.access_analysis import AccessAnalysis
    from countperf.fitting.result import FitResult
    from countperf.hardware.parameters import DeviceParameters
    from countperf.metrics import EvaluatedCase, Evaluation
    from countperf.models.definition import ModelDefinition
    from countperf.models.records import Candidate, Weight
    from countperf.models.weights import WeightSet
    from countperf.predictions import Prediction, Verdict
    from countperf.properties.vector import PropertyVector

NO_RATES = (
    "no rates of this device are known to hold these against: countperf characterize finds them"
)
_CASE_COLUMNS = {
    "kernel": "kernel",
    "parameters": "parameters",
    "measured_s": "measured",
    "predicted_s": "predicted",
    "relative_error": "error",
    "noise": "noise",
    "": "",
}
NAMED_OTHERS = 4
"""Number of indistinguishable features that a remark names."""


_PURPOSE_TITLES = {
    "test": "test kernels",
    "application": "applications",
    "variant": "variants of kernels",
}


def count_text(
    vector: PropertyVector,
    values: Mapping[str, Any] | None = None,
    points: Sequence[Mapping[str, int]] = (),
) -> str:
    """Write a kernel's counts: name, values where parameters were given, and symbolic count."""
    several = points if len(points) > 1 else ()
    columns = 0 if values is None else max(1, len(several))
    rows = [
        [
            name,
            *([] if values is None else _count_values(values[name], columns)),
            str(count),
            f"not exact: {caveat}" if (caveat := vector.caveat(name)) else "",
        ]
        for name, count in vector.items()
    ]
    view = "" if vector.view == "source" else f", {vector.view} view"
    title = f"kernel {vector.kernel}, per launch{view}"
    header = ["", *map(point_text, several), "", ""] if several else ()
    table = format_table(rows, header=header, right=range(1, columns + 1))
    return f"{title}\n{indented(table)}"


def prediction_text(prediction: Prediction, accesses: Iterable[AccessAnalysis] = ()) -> str:
    """Write a prediction: time, bound, at most eight rows of where it goes, caveats."""
    if isinstance(prediction.time_s, np.ndarray):
        where = f"{prediction.kernel} on {prediction.device}"
        mark = _incomplete(prediction)
        columns = {name: name for name in prediction.parameters} | {"time_s": "time"}
        level = f"to ({100 * prediction.interval_level:.0f} %)"
        columns |= {"low_s": "from", "high_s": level}
        parts = [
            f"{where}; {short_name(prediction.model)} model, warm caches"
            f"{mark and f'; at least these times{mark}'}",
            *table_of(times_rows(prediction), columns).lines(),
        ]
    else:
        parts = [*prediction_head(prediction, accesses), indented(_breakdown_table(prediction))]
    if prediction.ignored:
        parts.append(uncharged_text(prediction.ignored))
    parts += correction_lines(prediction)
    if prediction.caveats:
        parts.append(verdicts_text(prediction.caveats))
    return "\n".join(part for part in parts if part)


def _breakdown_table(prediction: Prediction) -> str:
    """Write where a time goes: a group's name stands at its first row."""
    rows: list[list[str]] = []
    group = ""
    for row in breakdown_rows(prediction):
        title = "" if row.group in (group, OTHER) else row.group
        group = row.group
        rows.append([title, format_quantity(row.time_s, "s"), row.share, row.text])
    return format_table(rows, right=(1, 2)) if rows else ""


def correction_lines(prediction: Prediction) -> list[str]:
    """Write after which measured kernels a time was corrected, if it was."""
    found = [verdict for verdict in prediction.verdicts if verdict.name == CORRECTION]
    return [f"{verdict.name}: {verdict.message}" for verdict in found]


def prediction_head(prediction: Prediction, accesses: Iterable[AccessAnalysis] = ()) -> list[str]:
    """Write the time of a prediction at one size, what bounds it, and what it is of."""
    low_high = prediction.interval_s
    interval = (
        ""
        if low_high is None
        else f" ({100 * prediction.interval_level:.0f} % interval: {interval_text(low_high)})"
    )
    given = point_text(prediction.parameters)
    mark = _incomplete(prediction)
    model, comma, more = prediction.model.partition(", ")
    return [
        f"{'at least ' if mark else ''}{format_quantity(float(prediction.time_s), 's')}"
        f"{interval}{mark}",
        *filter(None, [bound_text(prediction, accesses)]),
        f"{prediction.kernel} on {prediction.device}{', ' if given else ''}{given};"
        f" {short_name(model)}{comma}{more} model, warm caches",
    ]


def _incomplete(prediction: Prediction) -> str:
    """Say that a time is without some costs, so that it is a lower bound; nothing if it is not."""
    if prediction.complete:
        return ""
    return f" (incomplete: without the cost of {some_of(prediction.missing, most=NAMED_OTHERS)})"


def weights_text(weights: WeightSet, device: DeviceParameters | None = None) -> str:
    """Write weights rounded to their uncertainty, and the rates that they imply."""
    model = weights.definition
    shared = not_told_apart(weights)
    rows = [
        [
            key,
            weight_value(weight),
            f"per {unit_of(weight, model)}",
            implied_rate(weight, model),
            weight_remark(shared.get(key), weight, device, model),
        ]
        for key, weight in weights.by_feature.items()
    ]
    return format_table(rows, header=("feature", "weight", "", "implied rate", ""), right=(3,))


def not_told_apart(weights: WeightSet) -> dict[str, str]:
    """Return, for each weight and parameter that is one of several, the first of the others."""
    return {
        name: some_of([other for other in group.features if other != name], most=NAMED_OTHERS)
        for group in weights.indistinguishable
        for name in group.features
    }


def weight_remark(
    shared: str | None,
    weight: Weight | None,
    device: DeviceParameters | None,
    model: ModelDefinition,
) -> str:
    """Say what to make of a weight."""
    if shared is not None:
        return f"not told apart from {shared}"
    if weight is None:
        return ""
    return doubt(weight) or plausibility(weight, device, model)


def candidates_text(candidates: Sequence[Candidate]) -> str:
    """Write the models that were tried, with their factors and errors over left-out families."""
    columns = {"model": "model", "factor": "factor", "held_out_error": "families left out"}
    columns |= {"in_sample_error": "in-sample", "predicted": "cases predicted", "failure": ""}
    rows = [
        {
            "model": f"{candidate.model}{' (chosen)' if candidate.chosen else ''}",
            "factor": candidate.held_out_factor,
            **picked(candidate, "held_out_error", "in_sample_error", "failure"),
            "predicted": f"{candidate.predicted_cases} of {candidate.cases}",
        }
        for candidate in candidates
    ]
    chosen = [
        f"{each.model}: {each.description}"
        for each in candidates
        if each.chosen and each.description
    ]
    return "\n".join([*table_of(rows, columns).lines(indent=""), *chosen])


def fit_text(fit: FitResult, device: DeviceParameters | None = None) -> str:
    """Write a fit: how well it describes and predicts, its weights, its verdicts."""
    quality = fit.weights.quality
    errors = [] if quality is None else [f"in-sample {format_percent(quality.in_sample_error)}"]
    if quality is not None and quality.held_out_error is not None:
        errors.append(f"families left out {format_percent(quality.held_out_error)}")
    return "\n".join(
        [
            f"error: {', '.join(errors)} (geometric means of relative errors)",
            f"{short_name(fit.weights.model)} model on {fit.weights.device.slug},"
            f" {len(fit.observations)} cases,"
            f" rank {fit.diagnosis.rank} of {len(fit.weights.unknowns)}",
            *(
                [f"time_s = {fit.weights.expression}"]
                if len(fit.weights.definition.terms) > 1
                else []
            ),
            *(
                [indented(candidates_text(fit.weights.candidates))]
                if fit.weights.candidates
                else []
            ),
            indented(weights_text(fit.weights, device)),
            *([] if device is not None else [NO_RATES]),
            verdicts_text(fit.verdicts),
        ]
    )


def verdicts_text(verdicts: Sequence[Verdict]) -> str:
    """Write what was checked: one line for each, and a remedy below those that failed."""
    lines: list[str] = []
    for verdict in verdicts:
        lines.append(f"{'ok' if verdict.passed else '!!'}  {verdict.name}: {verdict.message}")
        if verdict.remedy:
            lines.append(f"      mend: {verdict.remedy}")
    return "\n".join(lines)


def evaluation_text(evaluation: Evaluation) -> str:
    """Write predicted against measured times for each purpose of kernels, mean errors first."""
    parts = evaluation.by_purpose()
    return "\n".join(
        [
            f"{short_name(evaluation.model)} model on {evaluation.device}",
            *(_purpose_text(purpose, part) for purpose, part in parts.items()),
        ]
    )


def _purpose_text(purpose: str, evaluation: Evaluation) -> str:
    overall = evaluation.overall()
    zeros = f", {overall.zero_errors} of them zero" if overall.zero_errors else ""
    rows = [
        {
            **picked(case, "kernel", "measured_s", "predicted_s", "relative_error"),
            "parameters": case.parameters,
            "noise": case.noise or None,
            "": ", ".join(_remarks(case)),
        }
        for case in evaluation.cases
    ]
    covered, intervals = evaluation.coverage()
    factor = evaluation.interval_factor()
    width = "" if factor is None else f", median half-width {width_text(factor)}"
    held = [f"  90 % intervals hold {covered} of {intervals} times{width}"] if intervals else []
    return "\n".join(
        [
            f"{_PURPOSE_TITLES.get(purpose, purpose)}: error {format_percent(overall.value)}"
            f" (geometric mean over {len(evaluation.by_kernel())} kernels, {overall.count}"
            f" cases{zeros})",
            *held,
            *table_of(rows, _CASE_COLUMNS).lines(),
            "  per kernel: geometric mean of relative errors, and the worst factor between"
            " predicted and measured times",
            *means_table(evaluation).lines(),
        ]
    )


def means_table(evaluation: Evaluation) -> Table:
    """Return a table of mean errors and worst factors of the kernels."""
    worst = evaluation.worst_factors()
    return table_of(
        [
            {"kernel": kernel, "error": mean.value, "worst": worst[kernel]}
            for kernel, mean in evaluation.by_kernel().items()
        ]
    )


def _remarks(case: EvaluatedCase) -> list[str]:
    found = [] if case.complete else ["incomplete"]
    if case.within_noise:
        found.append("within noise")
    return found if case.is_covered is not False else [*found, "outside its interval"]


def times_rows(prediction: Prediction) -> Rows:
    """Return a row for each size of a prediction: sizes, time and ends of the interval, s."""
    columns: dict[str, Any] = {**prediction.parameters, "time_s": prediction.time_s}
    if prediction.interval_s is not None:
        columns |= dict(zip(("low_s", "high_s"), prediction.interval_s, strict=True))
    arrays = np.broadcast_arrays(*columns.values())
    return [
        {name: value.item() for name, value in zip(columns, row, strict=True)}
        for row in zip(*(array.ravel() for array in arrays), strict=True)
    ]


def weight_value(weight: Weight) -> str:
    """Write a weight rounded to its standard error, in s."""
    if weight.standard_error_s is None:
        return format_quantity(weight.value_s, "s")
    return format_with_uncertainty(weight.value_s, weight.standard_error_s, "s")


def _count_values(value: Any, columns: int) -> list[str]:
    """Write a value for each column; a count that is the same at all points, in each."""
    array = np.asarray(value, object)
    if columns > 1:
        return [str(entry) for entry in np.broadcast_to(array, (columns,))]
    if array.ndim == 0:
        return [str(value)]
    entries = [str(entry) for entry in array.ravel()[:4]]
    return [", ".join(entries) + (", ..." if array.size > len(entries) else "")]
