"""Results as JSON-able objects, in the shapes that programs rely on; nothing is rounded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel

if TYPE_CHECKING:
    from countperf.fitting.result import FitResult
    from countperf.metrics import Evaluation
    from countperf.predictions import Prediction
    from countperf.properties.vector import PropertyVector


def count_object(vector: PropertyVector, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return ``{"kernel", "view"?, "properties": {name: {"symbolic", "exact", "value"?}}}``.

    The view is there if it is not the source's.
    """
    return {
        "kernel": vector.kernel,
        **({} if vector.view == "source" else {"view": vector.view}),
        "properties": {
            name: {
                "symbolic": str(count),
                "exact": not vector.caveat(name),
                **({} if values is None else {"value": plain(values[name])}),
            }
            for name, count in vector.items()
        },
    }


def prediction_object(prediction: Prediction) -> dict[str, Any]:
    """Return the time, its interval and its breakdown.

    The shape is ``{"kernel", "device", "parameters", "time_s", "interval_s": [low, high] | null,
    "interval_level", "breakdown_s": {name: seconds}, "complete", "caches": "warm"}``; arrays become
    lists.
    Weights are fitted to runs whose data the run before left in the caches.
    """
    what = ("kernel", "device", "parameters", "time_s", "interval_s", "interval_level")
    return {
        **picked(prediction, *what),
        "breakdown_s": plain(prediction.breakdown),
        "complete": prediction.complete,
        "caches": "warm",
    }


_CASE = (
    *("kernel", "purpose", "parameters", "measured_s", "predicted_s", "relative_error", "noise"),
    *("within_noise", "interval_s"),
)


def evaluation_object(evaluation: Evaluation) -> dict[str, Any]:
    """Return each case with its error, and the geometric means, also for each purpose of kernels.

    The shape is ``{"device", "cases": [{"kernel", "purpose", "parameters", "measured_s",
    "predicted_s", "relative_error", "noise", "within_noise", "interval_s": [low, high] | null}],
    "geometric_mean": MEANS, "by_purpose": {purpose: MEANS}, "coverage": {"level", "covered",
    "cases", "median_factor": factor | null}}``, where MEANS is ``{"overall", "by_kernel": {kernel:
    mean}, "worst_factor": {kernel: factor | null}, "cases", "zero_errors"}``; a factor is
    null where a prediction is not positive.
    """
    covered, cases = evaluation.coverage()
    factor = evaluation.interval_factor()
    return {
        "device": evaluation.device,
        "cases": [picked(case, *_CASE) for case in evaluation.cases],
        "geometric_mean": _means(evaluation),
        "by_purpose": {purpose: _means(part) for purpose, part in evaluation.by_purpose().items()},
        "coverage": {
            "level": 0.9,
            "covered": covered,
            "cases": cases,
            "median_factor": None if factor is None or math.isinf(factor) else factor,
        },
    }


def _means(evaluation: Evaluation) -> dict[str, Any]:
    overall = evaluation.overall()
    return {
        "overall": overall.value,
        "by_kernel": {kernel: mean.value for kernel, mean in evaluation.by_kernel().items()},
        "worst_factor": {
            kernel: factor if math.isfinite(factor) else None
            for kernel, factor in evaluation.worst_factors().items()
        },
        "cases": overall.count,
        "zero_errors": overall.zero_errors,
    }


def fit_object(fit: FitResult) -> dict[str, Any]:
    """Return the weights document of a fit, and its verdicts."""
    return {
        "device": fit.weights.device.slug,
        "model": fit.weights.model,
        "cases": len(fit.observations),
        "rank": fit.diagnosis.rank,
        "condition": fit.diagnosis.condition,
        "verdicts": plain(fit.verdicts),
        "weights": fit.weights.to_object(),
    }


def plain(value: Any) -> Any:
    """Return a value as JSON has it: objects for records, lists for arrays, texts for paths."""
    if isinstance(value, np.ndarray):
        return [plain(entry) for entry in value] if value.ndim else plain(value.item())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return picked(value, *(field.name for field in fields(value)))
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(part) for part in value]
    return str(value) if isinstance(value, PurePath) else value


def picked(record: Any, *names: str) -> dict[str, Any]:
    """Return some of a record's attributes as plain values, by name."""
    return {name: plain(getattr(record, name)) for name in names}
