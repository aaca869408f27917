r"""A model as a function of features and weights.

With features :math:`x_c` of columns :math:`c`, each of a term :math:`t(c)` with scale
:math:`s_{t(c)}`, the time is :math:`T = \sum_c w_c \, s_{t(c)} x_c`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from countperf.documents import Part
from countperf.models.definition import CountValue, ModelDefinition, Unread, covers, to_float
from countperf.models.predictions import Array, Quantity
from countperf.text import ShortRepr

NORMAL_QUANTILES = {0.9: 1.6448536269514722, 0.95: 1.959963984540054}
"""Quantiles of the standard normal distribution for two-sided intervals of these levels."""

_WITHIN = 1 / 3
"""Share of the variance of a wider scatter that is among sizes of a kernel: with it, 91 to 98 % of
the 90 % intervals of 1,200 anchored cases held on a Zen 3 (PoCL) that had changed since the fit;
without it, 76 to 84 %."""

ColumnKey = tuple[str, str]
"""A term and a feature of it, for which there is one weight."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelInputs(ShortRepr):
    """Feature values of a kernel at given parameters."""

    values: dict[ColumnKey, Quantity]  # features that are not zero, in the order of the model
    variables: dict[str, Quantity]  # scales of terms
    ignored: tuple[str, ...]  # properties that are not zero and that the model ignores
    unknown: tuple[str, ...]  # those that it has no rule for
    issued: Mapping[str, CountValue]  # what `ModelDefinition.count_model_inputs` returns


def model_inputs(model: ModelDefinition, counts: Mapping[str, CountValue]) -> ModelInputs:
    """Sort a kernel's counts, as ``PropertyVector.evaluate`` returns them, into columns."""
    model.check_code(counts)
    seen = model.count_model_inputs(counts)
    present = {name: count for name, count in seen.items() if np.any(count != 0)}
    values: dict[ColumnKey, Quantity] = {}
    covered: set[str] = set()
    for term, spec in model.term_features.items():
        applied = spec.apply(present)
        values.update({(term, feature): value for feature, value in applied.items()})
        covered.update(name for name in present if spec.feature_of(name) is not None)
    names: dict[str, Any] = {}
    for name, wanted in model.base_properties.items():
        among = [other for other in present if covers(wanted, other)]
        covered.update(among)
        names[name] = to_float(sum((present[other] for other in among), start=0))
    for name, formula in model.formulas.items():
        names[name] = formula(names)
    names = {name: to_float(value) for name, value in names.items()}
    for term, definition in model.terms.items():
        for feature in definition.charged:
            if feature in model.derived and np.any(np.asarray(names[feature]) != 0):
                values[term, feature] = names[feature]
    rest = [name for name in present if name not in covered]
    return ModelInputs(
        values=values,
        variables={name: names[name] for name in model.scales},
        ignored=tuple(sorted(name for name in rest if model.features.ignores(name))),
        unknown=tuple(sorted(name for name in rest if not model.features.ignores(name))),
        issued=seen,
    )


_MASKED_LOCAL = re.compile(r"(issue\.\w+\.lmem\.\w+)\.masked")
_UNMASKED = ("shifted", "next")
"""As which a masked access of local memory without a weight is charged: the likeliest first.

It is ``shifted`` that not all items execute (`countperf.counting.execution.sites`), and ``next``
where the fit has not seen that either. Of the fits that are shipped, none has weights of masked
loads, and that of Intel's runtime on a Xeon none of masked stores."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelFunction(ShortRepr):
    """A model over fixed columns, for each of which there is one weight."""

    model: ModelDefinition
    columns: tuple[ColumnKey, ...]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """A name for each column: the feature, if one term has it."""
        return column_keys(self.columns)

    def find_column(self, column: ColumnKey) -> ColumnKey:
        """Return the column by whose weight a feature is charged: its own, or that of another."""
        match = _MASKED_LOCAL.fullmatch(column[1])
        if match is None or column in self.columns:
            return column
        others = ((column[0], f"{match[1]}.{kind}") for kind in _UNMASKED)
        return next((other for other in others if other in self.columns), column)

    def columns_of(self, name: str) -> set[ColumnKey]:
        """Return the columns that charge a property."""
        specs = self.model.term_features.items()
        found = {(term, feature) for term, spec in specs if (feature := spec.feature_of(name))}
        return {*map(self.find_column, found)}

    @cached_property
    def members(self) -> dict[str, NDArray[np.intp]]:
        """The columns of each term, by position."""
        of_columns = np.array([term for term, _ in self.columns])
        return {term: np.flatnonzero(of_columns == term) for term in self.model.terms}

    def scale_values(self, values: Array, variables: Mapping[str, Quantity]) -> Array:
        """Return features, along the last axis, times the scales of their terms."""
        scaled = np.array(values, np.float64)
        for term, members in self.members.items():
            if (scale := self.model.terms[term].scale) and members.size:
                scaled[..., members] *= np.asarray(variables[scale])[..., np.newaxis]
        return scaled

    @cached_property
    def lower(self) -> Array:
        """Lower bounds of the weights; minus infinity for none."""
        bounds = [self.model.terms[term].lower for term, _ in self.columns]
        return np.array([-np.inf if bound is None else bound for bound in bounds], np.float64)


def column_keys(columns: Sequence[ColumnKey]) -> tuple[str, ...]:
    """Name columns by their feature, preceded by the term where several terms have it."""
    features = [feature for _, feature in columns]
    return tuple(
        feature if features.count(feature) == 1 else f"{term}:{feature}"
        for term, feature in columns
    )


class Weight(Part):
    """Weight of one feature."""

    feature: str  # the feature: a property name, or the sum of the properties that begin with it
    value_s: float  # seconds per unit of the feature
    standard_error_s: float | None  # standard error, s
    unit: str  # what one unit of the feature is, such as ``operation``
    # of the values above zero over the measurements; None where launches are measured by themselves
    smallest: float | None = None
    largest: float  # value of the feature over the measurements
    term: str = "cost"  # the term of the model that the weight is in

    def scale_by(self, factor: float) -> Self:
        """Return it with its standard error times a factor."""
        error = self.standard_error_s
        error = None if error is None else factor * error
        return self.model_copy(update={"value_s": factor * self.value_s, "standard_error_s": error})


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

    def widened(self, factor: float, scatter: float) -> Self:
        """Return it for errors that grow by a factor, and by a scatter of logarithms."""
        grown = {
            "log_errors_90": (self.log_errors_90, NORMAL_QUANTILES[0.9]),
            "log_errors_95": (self.log_errors_95, NORMAL_QUANTILES[0.95]),
            "between_kernels": (self.between_kernels, (1 - _WITHIN) ** 0.5),
            "within_kernels": (self.within_kernels, _WITHIN**0.5),
        }
        return self.model_copy(
            update={n: float(np.hypot(factor * old, z * scatter)) for n, (old, z) in grown.items()}
        )


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
    # standard deviation of log(predicted / measured) of the fit, and of these predictions: robust,
    # or by degrees of freedom where there is no calibration
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
