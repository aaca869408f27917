"""Explanation of a predicted time, term by term and weight by weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.display import Drawable, ShortRepr, Table
from countperf.errors import ParameterError
from countperf.models.fitted_weights import Charge, FittedWeights
from countperf.models.function import Weight
from countperf.predictions import Prediction

if TYPE_CHECKING:
    from countperf.properties.vector import PropertyVector


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPart(ShortRepr):
    """A part of a time that the breakdown names."""

    name: str
    weight: Weight | None  # none for the correction
    count: float | None  # of the feature
    part_s: float  # weight times count times the scale of its term; parts sum to the time


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation(Table, Drawable, ShortRepr):
    """A prediction with what it is made of."""

    prediction: Prediction  # at one size
    expression: str
    parts: tuple[ExplainedPart, ...]  # largest first
    global_bytes: float  # what the kernel asks of global memory
    flops: float  # a fused multiply-add as two


def explain(weights: FittedWeights, vector: PropertyVector, prediction: Prediction) -> Explanation:
    """Explain a prediction of a kernel by weights."""
    if isinstance(prediction.time_s, np.ndarray):
        raise ParameterError("a prediction is explained at one size at a time, not at an array")
    counts = vector.evaluate(prediction.parameters)
    inputs = weights.inputs(counts)
    charge = weights.charge(inputs)
    return Explanation(
        prediction=prediction,
        expression=weights.expression,
        parts=tuple(
            _part(weights, charge, name, float(np.asarray(seconds).item()))
            for name, seconds in prediction.breakdown.items()
        ),
        global_bytes=_total(counts, _access_bytes),
        flops=_total(counts, _flops),
    )


def _part(weights: FittedWeights, charge: Charge, name: str, part_s: float) -> ExplainedPart:
    weight = weights.by_feature.get(name)
    count = None if weight is None else float(charge.values[name])
    return ExplainedPart(name=name, weight=weight, count=count, part_s=part_s)


def _total(counts: Mapping[str, Any], size: Any) -> float:
    return sum(size(*name.split(".")) * float(count) for name, count in counts.items())


def _access_bytes(kind: str, *rest: str) -> float:
    return int(rest[1]) / 8 if kind == "gmem" and rest[0] in ("load", "store") else 0.0


def _flops(kind: str, *rest: str) -> float:
    work = {"fma": 2.0, "add": 1.0, "mul": 1.0, "div": 1.0, "pow": 1.0, "special": 1.0}
    return work.get(rest[0], 0.0) if kind == "flop" else 0.0
