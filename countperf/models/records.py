"""Parts of the document of a fit: weights, uncertainty, quality."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from countperf.documents import Part
from countperf.models.definition import ModelDefinition, Unread
from countperf.properties.taxonomy import property_unit


class Weight(Part):
    """Weight of one feature."""

    feature: str  # the feature: a property name, or the sum of the properties that begin with it
    value_s: float  # seconds per unit of the feature
    standard_error_s: float | None  # standard error, s
    unit: str  # what one unit of the feature is, such as ``operation``
    smallest: Unread = Field(default=(), exclude=True)
    largest: float  # value of the feature over the measurements
    term: str = "cost"  # the term of the model that the weight is in


class Range(Part):
    """Largest value of a scale of terms over the measurements of a fit."""

    smallest: Unread = Field(default=(), exclude=True)
    largest: float


class Coverage(Part):
    """In which share of left-out cases intervals made from the *other* families hold the time."""

    share_90: float = Field(ge=0, le=1)  # for intervals of these levels
    share_95: float = Field(ge=0, le=1)
    median_factor_90: float = Field(ge=1)
    families: int = Field(gt=0)  # what was left out, one family at a time
    cases: int = Field(gt=0)


class Calibration(Part):
    """Quantiles of the errors of predictions of left-out families."""

    log_errors_90: float = Field(ge=0)
    log_errors_95: float = Field(ge=0)
    between_kernels: float = Field(ge=0)
    within_kernels: float = Field(ge=0)
    families: int = Field(gt=0)  # left-out families and cases with a prediction
    cases: int = Field(gt=0)


class IndistinguishableGroup(Part):
    """Features whose weights the measurements cannot tell apart."""

    features: tuple[str, ...] = Field(min_length=1)  # their names
    relations: tuple[dict[str, float], ...] = Field(min_length=1)


class FitQuality(Part):
    """Quality of a fit on its measurements."""

    # geometric mean of the relative errors over the measurements of the fit
    in_sample_error: float = Field(ge=0)
    # the same where each family of kernels is predicted from the others
    held_out_error: float | None = Field(ge=0)
    # factor by which these predictions are off, each family counting the same
    held_out_factor: float | None = Field(default=None, ge=1)
    # robust standard deviation of log(predicted / measured) of these predictions
    in_sample_scatter: float | None = Field(ge=0)
    held_out_scatter: float | None = Field(ge=0)
    calibration: Calibration | None = None  # what intervals are made of
    coverage: Coverage | None = None  # how well such intervals hold
    model_error: float | None = Field(default=None, gt=0)


class MeasurementSource(Part):
    """Source of a fit: its measurements."""

    # measured cases in the fit, and those of them whose samples spread too far
    cases: int = Field(gt=0)
    unstable_cases: int = Field(ge=0)
    families: tuple[str, ...]  # families of measurement kernels
    protocol: str  # how and when they were measured
    recorded_at: str


DERIVED = "unit"
"""Unit of a weight of a derived feature, in documents: the feature itself."""

_PLAIN = {"segment": "piece", "B": "byte"}
"""Units of documents, as people call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """Quantity that a weight is the cost of."""

    kind: str
    unit: str  # what amounts are counted in, such as ``byte`` or ``flop``
    size: float = 1.0  # how many of these one unit of the feature is


def charged(feature: str, unit: str, model: ModelDefinition | None = None) -> Charged | None:
    """Say what a weight is the cost of; None for what is no amount of anything."""
    kind, *rest = feature.split(".")
    if model is not None and feature in model.derived:
        return _of_derived(feature, model)
    if unit == DERIVED or rest[:1] == ["min"]:
        return None
    if kind in ("gmem", "lmem") and len(rest) > 1 and rest[1].isdigit():
        return Charged(kind=kind, unit="byte", size=int(rest[1]) / 8)
    if kind == "bytes":
        return Charged(kind="gmem", unit="byte")
    if kind == "flop":
        return Charged(kind=kind, unit="flop", size=2.0 if rest[0] == "fma" else 1.0)
    return Charged(kind=kind, unit=_plain(feature, unit))


def _of_derived(feature: str, model: ModelDefinition) -> Charged:
    """Say what a derived feature counts: what its properties do, if all are of one unit."""
    formula = model.needed_derived[feature]
    bases = {n: model.base_properties[n] for n in formula.names if n in model.base_properties}
    amounts = {n: charged(base, property_unit(base)) for n, base in bases.items()}
    known = [amount for amount in amounts.values() if amount is not None]
    if len(known) < len(bases) or len({amount.unit for amount in known}) != 1:
        return Charged(kind="derived", unit=DERIVED)
    if any(amount.size != 1 for amount in known):  # a sum of amounts, not of accesses
        ones = {n: 1.0 / amount.size for n, amount in amounts.items() if amount is not None}
        if formula(dict.fromkeys(formula.names, 1.0) | ones) != len(bases):
            return Charged(kind="derived", unit=DERIVED)
    return Charged(kind=known[0].kind, unit=known[0].unit)


def _plain(feature: str, unit: str) -> str:
    return "cycle" if feature.startswith("code.cycles") else _PLAIN.get(unit, unit)


def unit_of(weight: Weight, model: ModelDefinition) -> str:
    """Return in what the feature of a weight is counted, for people."""
    if weight.unit != DERIVED:
        return _plain(weight.feature, weight.unit)
    amount = charged(weight.feature, weight.unit, model)
    return DERIVED if amount is None else amount.unit
