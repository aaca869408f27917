r"""A model as a function of features and weights.

With features :math:`x_c` of columns :math:`c`, each of a term :math:`t(c)` with scale
:math:`s_{t(c)}`, the time is :math:`T = \sum_c w_c \, s_{t(c)} x_c`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.features import CountValue, covers
from countperf.models.definition import ModelDefinition
from countperf.predictions import Quantity

Column = tuple[str, str]
"""A term and a feature of it, for which there is one weight."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelInputs(ShortRepr):
    """Feature values of a kernel at given parameters."""

    values: dict[Column, Quantity]  # features that are not zero, in the order of the model
    variables: dict[str, Quantity]  # scales of terms
    ignored: tuple[str, ...]  # properties that are not zero and that the model ignores
    unknown: tuple[str, ...]  # those that it has no rule for
    issued: Mapping[str, CountValue]  # all that it is made of (`ModelDefinition.made_of`)


def model_inputs(model: ModelDefinition, counts: Mapping[str, CountValue]) -> ModelInputs:
    """Sort a kernel's counts, as ``PropertyVector.evaluate`` returns them, into columns."""
    seen = model.made_of(counts)
    present = {name: count for name, count in seen.items() if _is_not_zero(count)}
    values: dict[Column, Quantity] = {}
    covered: set[str] = set()
    for term, spec in model.term_features.items():
        applied = spec.apply(present)
        values.update({(term, feature): value for feature, value in applied.items()})
        covered.update(name for name in present if spec.feature_of(name) is not None)
    names: dict[str, Any] = {}
    for name, wanted in model.base_properties.items():
        among = [other for other in present if covers(wanted, other)]
        covered.update(among)
        names[name] = _to_float(sum((present[other] for other in among), start=0))
    names = {name: _to_float(value) for name, value in model.with_derived(names).items()}
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


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelFunction(ShortRepr):
    """A model over fixed columns, for each of which there is one weight."""

    model: ModelDefinition
    columns: tuple[Column, ...]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """A name for each column: the feature, if one term has it."""
        return column_keys(self.columns)

    @cached_property
    def members(self) -> dict[str, NDArray[np.intp]]:
        """The columns of each term, by position."""
        of_columns = np.array([term for term, _ in self.columns])
        return {term: np.flatnonzero(of_columns == term) for term in self.model.terms}

    def scaled(
        self, values: NDArray[np.float64], variables: Mapping[str, Quantity]
    ) -> NDArray[np.float64]:
        """Return features times the scales of their terms: derivatives of the time by weights."""
        scaled = np.array(values, np.float64)
        for term, members in self.members.items():
            if (scale := self.model.terms[term].scale) and members.size:
                scaled[members] *= variables[scale]
        return scaled

    @cached_property
    def lower(self) -> NDArray[np.float64]:
        """Lower bounds of the weights; minus infinity for none."""
        return self._bounds("lower", -np.inf)

    @cached_property
    def upper(self) -> NDArray[np.float64]:
        """Upper bounds of the weights; infinity for none."""
        return self._bounds("upper", np.inf)

    def _bounds(self, side: str, none: float) -> NDArray[np.float64]:
        bounds = [getattr(self.model.terms[term], side) for term, _ in self.columns]
        return np.array([none if bound is None else bound for bound in bounds], np.float64)

    def breakdown(
        self, scaled: NDArray[np.float64], weights: Sequence[float]
    ) -> dict[str, Quantity]:
        """Return each weight's part of the time, s, where there is any."""
        return {
            key: weight * row if row.ndim else float(weight * row)
            for key, weight, row in zip(self.keys, weights, scaled, strict=True)
            if np.any(row != 0)
        }


def column_keys(columns: Sequence[Column]) -> tuple[str, ...]:
    """Name columns by their feature, preceded by the term where several terms have it."""
    features = [feature for _, feature in columns]
    return tuple(
        feature if features.count(feature) == 1 else f"{term}:{feature}"
        for term, feature in columns
    )


def _is_not_zero(count: CountValue) -> bool:
    return bool(np.any(count != 0)) if isinstance(count, np.ndarray) else bool(count)


def _to_float(value: Any) -> Quantity:
    return np.asarray(value, np.float64) if isinstance(value, np.ndarray) else float(value)
