r"""A model as a function of features, weights and parameters, with its derivatives.

With features :math:`x_c` of columns :math:`c`, each of a term :math:`t(c)`, and other names
:math:`\theta` of the expression :math:`E`:

.. math::

   T = E(\tau, \theta), \quad \tau_t = \sum_{c: t(c) = t} w_c x_c, \quad
   \frac{\partial T}{\partial w_c} = \frac{\partial E}{\partial \tau_{t(c)}} x_c

Where :math:`E` is homogeneous of degree one in the terms and the parameters that are costs, the
time is the sum of :math:`w_c \, \partial T / \partial w_c` (Euler), which is the breakdown.
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
from countperf.models.evaluation import array_function, derivative
from countperf.predictions import Quantity

Column = tuple[str, str]
"""A term and a feature of it, for which there is one weight."""

REMAINDER = "remainder"
"""Part of a time that belongs to no weight: that of an expression that is not homogeneous."""

_NEGLIGIBLE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelInputs(ShortRepr):
    """Feature values of a kernel at given parameters.

    Attributes
    ----------
    values : dict from (term, feature) to float or ndarray
        The features that are not zero, in the order of the model.
    variables : dict from str to float or ndarray
        The counted names of the expression.
    ignored, unknown : tuple of str
        Properties that are not zero and that the model ignores, or has no rule for.
    issued : tuple of str
        All properties that it is made of (`ModelDefinition.made_of`), be they zero.
    """

    values: dict[Column, Quantity]
    variables: dict[str, Quantity]
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]
    issued: tuple[str, ...]


def model_inputs(model: ModelDefinition, counts: Mapping[str, CountValue]) -> ModelInputs:
    """Sort a kernel's counts into the terms and names of a model.

    Parameters
    ----------
    model : ModelDefinition
        What to charge.
    counts : Mapping from str to int, Fraction or ndarray
        Property values, as ``PropertyVector.evaluate`` returns them.
    """
    seen = model.made_of(counts)
    present = {name: count for name, count in seen.items() if _is_not_zero(count)}
    values: dict[Column, Quantity] = {}
    covered: set[str] = set()
    for term, spec in model.term_features.items():
        found = spec.apply(present)
        values.update({(term, feature): value for feature, value in found.values.items()})
        covered.update(name for name in present if spec.feature_of(name) is not None)
    names: dict[str, Any] = {}
    for name, wanted in model.base_properties.items():
        among = [other for other in present if covers(wanted, other)]
        covered.update(among)
        names[name] = _to_float(sum((present[other] for other in among), start=0))
    for name, formula in model.needed_derived.items():
        names[name] = _to_float(array_function(formula)(names))
    for term, definition in model.terms.items():
        for feature in definition.charged:
            if feature in model.derived and np.any(np.asarray(names[feature]) != 0):
                values[term, feature] = names[feature]
    rest = [name for name in present if name not in covered]
    return ModelInputs(
        values=values,
        variables={name: names[name] for name in model.variables},
        ignored=tuple(sorted(name for name in rest if model.features.ignores(name))),
        unknown=tuple(sorted(name for name in rest if not model.features.ignores(name))),
        issued=tuple(seen),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelFunction(ShortRepr):
    """A model over fixed columns.

    Attributes
    ----------
    model : ModelDefinition
        The model.
    columns : tuple of (term, feature)
        The weights, in order.
    """

    model: ModelDefinition
    columns: tuple[Column, ...]

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the expression, in order; they follow the weights."""
        return tuple(self.model.all_parameters)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """A name for each column, and then the parameters: the feature, if one term has it."""
        return (*column_keys(self.columns), *self.parameters)

    @cached_property
    def members(self) -> dict[str, NDArray[np.intp]]:
        """The columns of each term, by position."""
        terms = enumerate(self.model.terms)
        return {term: np.flatnonzero(self._of_columns == place) for place, term in terms}

    @cached_property
    def _of_columns(self) -> NDArray[np.intp]:
        terms = list(self.model.terms)
        return np.array([terms.index(term) for term, _ in self.columns], np.intp)

    def names(
        self,
        values: NDArray[np.float64],
        variables: Mapping[str, Quantity],
        unknowns: Sequence[float] | NDArray[np.float64],
    ) -> dict[str, Any]:
        """Return the value of every name of the expression; arguments as for `times`."""
        found: dict[str, Any] = dict(variables)
        weights = np.asarray(unknowns, np.float64)
        for term, members in self.members.items():
            found[term] = np.tensordot(weights[members], values[members], 1)
        for i, name in enumerate(self.parameters, len(self.columns)):
            found[name] = unknowns[i]
        return found

    def times(
        self,
        values: NDArray[np.float64],
        variables: Mapping[str, Quantity],
        unknowns: Sequence[float] | NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return predicted times, s.

        Parameters
        ----------
        values : ndarray, shape (n_columns, *shape)
            Feature values.
        variables : dict from str to float or ndarray
            The counted names of the expression.
        unknowns : sequence of float
            Weights, s per unit, then parameters.
        """
        names = self.names(values, variables, unknowns)
        return self._shaped(array_function(self.model.formula)(names), values)

    def gradient(
        self,
        values: NDArray[np.float64],
        variables: Mapping[str, Quantity],
        unknowns: Sequence[float] | NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the derivatives by each unknown, shape (n_columns + n_parameters, *shape)."""
        names = self.names(values, variables, unknowns)
        formula = self.model.formula
        by_term = [
            self._shaped(array_function(derivative(formula, term))(names), values)
            for term in self.model.terms
        ]
        rows = np.empty((len(self.keys), *values.shape[1:]))
        columns = len(self.columns)
        if columns:
            np.multiply(np.stack(by_term)[self._of_columns], values, out=rows[:columns])
        for place, name in enumerate(self.parameters, columns):
            rows[place] = self._shaped(array_function(derivative(formula, name))(names), values)
        return rows

    @staticmethod
    def _shaped(found: Any, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.broadcast_to(np.asarray(found, np.float64), values.shape[1:])

    @cached_property
    def is_linear(self) -> bool:
        """Whether no derivative by an unknown has an unknown in it."""
        unknown = {*self.model.terms, *self.parameters}
        return all(
            unknown.isdisjoint(derivative(self.model.formula, name).names) for name in unknown
        )

    @cached_property
    def lower(self) -> NDArray[np.float64]:
        """Lower bounds of the unknowns; minus infinity for none."""
        return self._bounds("lower", -np.inf)

    @cached_property
    def upper(self) -> NDArray[np.float64]:
        """Upper bounds of the unknowns; infinity for none."""
        return self._bounds("upper", np.inf)

    def _bounds(self, side: str, none: float) -> NDArray[np.float64]:
        owners = [self.model.terms[term] for term, _ in self.columns]
        bounds = [getattr(owner, side) for owner in [*owners, *self.model.all_parameters.values()]]
        return np.array([none if bound is None else bound for bound in bounds], np.float64)

    @cached_property
    def shapes(self) -> NDArray[np.bool_]:
        """Unknowns that are pure numbers."""
        shape = [parameter.shape for parameter in self.model.all_parameters.values()]
        return np.array([*(False for _ in self.columns), *shape], np.bool_)

    def breakdown(
        self, time_s: Quantity, gradient: NDArray[np.float64], unknowns: Sequence[float]
    ) -> dict[str, Quantity]:
        """Split a time into weight times derivative, and what is left over if anything is."""
        parts: dict[str, Quantity] = {
            key: value * row if row.ndim else float(value * row)
            for key, value, row, shape in zip(
                self.keys, unknowns, gradient, self.shapes, strict=True
            )
            if not shape and np.any(row != 0)
        }
        rest = time_s - sum(parts.values(), start=0.0)
        size = np.abs(np.asarray(time_s)) + sum(
            (np.abs(part) for part in parts.values()), start=0.0
        )
        if np.any(np.abs(rest) > _NEGLIGIBLE * size):
            parts[REMAINDER] = rest
        return parts


def column_keys(columns: Sequence[Column]) -> tuple[str, ...]:
    """Name columns by their feature, preceded by the term where several terms have it.

    Examples
    --------
    >>> column_keys([("cost", "groups"), ("a", "lmem.load.32"), ("b", "lmem.load.32")])
    ('groups', 'a:lmem.load.32', 'b:lmem.load.32')
    """
    features = [feature for _, feature in columns]
    return tuple(
        feature if features.count(feature) == 1 else f"{term}:{feature}"
        for term, feature in columns
    )


def _is_not_zero(count: CountValue) -> bool:
    return bool(np.any(count != 0)) if isinstance(count, np.ndarray) else bool(count)


def _to_float(value: Any) -> Quantity:
    return np.asarray(value, np.float64) if isinstance(value, np.ndarray) else float(value)
