"""Explanation of a predicted time, term by term, alone and as other terms overlap it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.display import Drawable, ShortRepr, Table
from countperf.errors import ParameterError
from countperf.models.charge import Charge
from countperf.models.evaluation import multiplied_with
from countperf.models.fitted_weights import FittedWeights
from countperf.models.function import ModelInputs
from countperf.models.records import FittedParameter, Weight
from countperf.models.units import as_weight
from countperf.predictions import Prediction

if TYPE_CHECKING:
    from countperf.properties.vector import PropertyVector


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPart(ShortRepr):
    """A weight's part of a time.

    Attributes
    ----------
    name : str
        As the breakdown names it.
    weight : Weight or None
        The weight, or what a parameter is as one; None for a parameter that is the cost of nothing
        counted, and for the remainder.
    count : float or None
        Of the feature; None where there is no weight.
    own_s : float or None
        Weight times count, s: its time if nothing hid it.
    part_s : float
        Its part of the time, s: weight times derivative. Parts sum to the time.
    """

    name: str
    weight: Weight | None
    count: float | None
    own_s: float | None
    part_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedTerm:
    """A term of the model's expression.

    Attributes
    ----------
    name : str
        Its name.
    own_s : float
        What it comes to by itself, s.
    part_s : float
        The sum of its weights' parts, s.
    overlaps : bool
        Whether it is in an overlap, so that the two differ.
    """

    name: str
    own_s: float
    part_s: float
    overlaps: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation(Table, Drawable, ShortRepr):
    """A prediction with what it is made of.

    Attributes
    ----------
    prediction : Prediction
        At one size.
    expression : str
        The formula of the model.
    terms : tuple of ExplainedTerm
        In the order of the model.
    parts : tuple of ExplainedPart
        In the order of the breakdown, largest first.
    shapes : tuple of FittedParameter
        The pure numbers of the expression, such as the sharpness of an overlap.
    global_bytes, flops : float
        What the kernel asks of global memory, byte, and of arithmetic, a fused multiply-add as two
        operations.
    """

    prediction: Prediction
    expression: str
    terms: tuple[ExplainedTerm, ...]
    parts: tuple[ExplainedPart, ...]
    shapes: tuple[FittedParameter, ...]
    global_bytes: float
    flops: float


def explain(weights: FittedWeights, vector: PropertyVector, prediction: Prediction) -> Explanation:
    """Explain a prediction of a kernel by weights.

    Raises
    ------
    ParameterError
        It is of several sizes.
    """
    if isinstance(prediction.time_s, np.ndarray):
        raise ParameterError("a prediction is explained at one size at a time, not at an array")
    counts = vector.evaluate(prediction.parameters)
    inputs = weights.inputs(counts)
    charge = weights.charge(inputs)
    terms = tuple(
        ExplainedTerm(
            name=term,
            own_s=float(own),
            part_s=sum(
                float(charge.parts.get(key, 0.0))
                for key, (other, _) in zip(
                    weights.function.keys, weights.function.columns, strict=False
                )
                if other == term
            ),
            overlaps=term in weights.definition.formula.overlapped,
        )
        for term, own in charge.terms.items()
    )
    shapes = weights.definition.all_parameters
    return Explanation(
        prediction=prediction,
        expression=weights.expression,
        terms=terms,
        parts=tuple(
            _part(weights, inputs, charge, name, float(np.asarray(seconds).item()))
            for name, seconds in prediction.breakdown.items()
        ),
        shapes=tuple(p for p in weights.parameters if shapes[p.name].shape),
        global_bytes=_total(counts, _access_bytes),
        flops=_total(counts, _flops),
    )


def _part(
    weights: FittedWeights, inputs: ModelInputs, charge: Charge, name: str, part_s: float
) -> ExplainedPart:
    if name in weights.by_feature:
        weight, count = weights.by_feature[name], float(charge.values[name])
        own_s = weight.value_s * count
        return ExplainedPart(name=name, weight=weight, count=count, own_s=own_s, part_s=part_s)
    for parameter in weights.parameters:
        if parameter.name != name:
            continue
        partner = multiplied_with(weights.definition.formula, name)
        found = as_weight(weights.definition, parameter, weights.ranges)
        if partner and found is not None:
            count = float(inputs.variables[partner])
            own_s = found.value_s * count
            return ExplainedPart(name=name, weight=found, count=count, own_s=own_s, part_s=part_s)
        own = parameter.value if partner == "" else None
        return ExplainedPart(name=name, weight=None, count=None, own_s=own, part_s=part_s)
    return ExplainedPart(name=name, weight=None, count=None, own_s=None, part_s=part_s)


def _total(counts: Mapping[str, Any], size: Any) -> float:
    return sum(size(*name.split(".")) * float(count) for name, count in counts.items())


def _access_bytes(kind: str, *rest: str) -> float:
    return int(rest[1]) / 8 if kind == "gmem" and rest[0] in ("load", "store") else 0.0


def _flops(kind: str, *rest: str) -> float:
    work = {"fma": 2.0, "add": 1.0, "mul": 1.0, "div": 1.0, "pow": 1.0, "special": 1.0}
    return work.get(rest[0], 0.0) if kind == "flop" else 0.0
