"""The predicted time of a kernel as a fast function of its parameters, for search loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from countperf.errors import ModelNotApplicableError
from countperf.features import covers
from countperf.models.correction import Corrector, groups_column, logs_of, roots_of
from countperf.models.definition import FittedModel
from countperf.models.evaluation import array_function, derivative, scalar_function
from countperf.models.expressions import Formula
from countperf.models.unmeasured import Unmeasured
from countperf.predictions import ParameterValue, Quantity

_SIZES = 64
_SEED = 20161
_LARGEST_LOG = 30.0
"""At so many sets of property values it is seen whether a derived feature can be other than zero:
each property at values of its own up to 1e13, for a feature may ask for more of one than of
another."""

if TYPE_CHECKING:
    from countperf.models.weights import WeightSet
    from countperf.properties.vector import PropertyVector


class CompiledCounts(Protocol):
    """Property values as one function of the parameters (``PropertyVector.compile``)."""

    @property
    def names(self) -> tuple[str, ...]:
        """Property of each row of the result."""
        ...

    def __call__(self, **parameters: ParameterValue) -> NDArray[Any]:
        """Return the values, shape ``(len(names), *broadcast shape of the parameters)``."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledCorrection:
    """The correction of a kernel's time (`countperf.models.correction`), over its own weights.

    Attributes
    ----------
    model : FittedModel
        What the time is made of.
    corrector : Corrector
        Over the weights that charge something of the kernel, and the distance of measured kernels
        by the others.
    charged : ndarray, shape (n_weights, n_properties)
        1 where a weight charges a property, else 0.
    derived : tuple of (int, str)
        Which of the weights charge a derived feature instead, by position, and its name.
    terms : tuple of str
        The term of each weight.
    value_s : ndarray, shape (n_weights,)
        The weights, s per unit.
    groups : int or None
        Position of the weight of groups.
    """

    model: FittedModel
    corrector: Corrector
    charged: NDArray[np.float64]
    derived: tuple[tuple[int, str], ...]
    terms: tuple[str, ...]
    value_s: NDArray[np.float64]
    groups: int | None

    @classmethod
    def build(
        cls, weights: WeightSet, properties: Sequence[str], derived: Collection[str]
    ) -> Self | None:
        """Leave out weights that charge nothing of a kernel; None without a correction.

        Parameters
        ----------
        weights : WeightSet
            The weights.
        properties : sequence of str
            The kernel's properties.
        derived : collection of str
            Derived features that may be other than zero.
        """
        if weights.correction is None:
            return None
        model = weights.definition
        specs = model.term_features
        rows = np.array(
            [
                [float(specs[term].feature_of(name) == feature) for name in properties]
                for term, feature in weights.function.columns
            ]
        ).reshape(len(weights.weights), len(properties))
        kept = [
            i
            for i, weight in enumerate(weights.weights)
            if rows[i].any() or weight.feature in derived
        ]
        columns = tuple(weights.function.columns[i] for i in kept)
        return cls(
            model=model,
            corrector=weights.correction.corrector.restricted(kept),
            charged=rows[kept],
            derived=tuple((i, f) for i, (_, f) in enumerate(columns) if f in model.derived),
            terms=tuple(term for term, _ in columns),
            value_s=np.array([weights.weights[i].value_s for i in kept]),
            groups=groups_column(columns),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @cached_property
    def _slopes(self) -> tuple[tuple[NDArray[np.intp], Any, Any], ...]:
        """Derivatives of the time by terms, of numbers and of arrays, and for which weights."""
        terms = np.array(self.terms)
        alike: dict[Formula, list[str]] = {}
        for term in dict.fromkeys(self.terms):
            alike.setdefault(derivative(self.model.formula, term), []).append(term)
        return tuple(
            (np.flatnonzero(np.isin(terms, names)), scalar_function(each), array_function(each))
            for each, names in alike.items()
        )

    def log_factor(self, counts: NDArray[Any], named: Mapping[str, Any]) -> Quantity:
        """Return the logarithm by which the time is corrected.

        Parameters
        ----------
        counts : ndarray, shape (n_properties, *shape)
            The kernel's property values.
        named : Mapping from str to float or ndarray
            Values of all names of the expression.
        """
        values = np.tensordot(self.charged, counts.astype(np.float64), axes=1)
        for place, feature in self.derived:
            values[place] = named[feature]
        parts = (self.value_s * values.T).T
        for places, scalar, array in self._slopes:
            parts[places] *= (scalar if values.ndim == 1 else array)(named)
        return self.corrector.log_factor(roots_of(parts), logs_of(values, self.groups))


@dataclass(frozen=True, kw_only=True, eq=False)
class CostFunction:
    """Predicted time of a kernel on a device, s, at parameters; microseconds per call; picklable.

    Attributes
    ----------
    kernel, device : str
        Name of the kernel, slug of the device.
    vector : CompiledCounts
        The kernel's property values.
    model : FittedModel
        What the time is made of.
    names : tuple of str
        The terms of the model, then the names that its formulas have for properties.
    per_unit : ndarray, shape (n_names, n_properties)
        What a unit of each property adds to each of them: s for terms, 1 or 0 for the others.
    derived_s : dict from (term, derived feature) to float
        Weights of derived features that may be other than zero, s per unit; 0.0 for one whose cost
        is not known.
    parameters : dict from str to float
        Parameters of the expression.
    unweighted : tuple of int
        Positions of the properties whose cost is not known.
    costless : tuple of str
        Derived features whose cost is not known and that may be other than zero.
    unmeasured : Unmeasured or None
        What to complain of where one of them is not zero; None to leave them out.
    factor : float
        What the time is multiplied by: that of an anchor.
    correction : CompiledCorrection or None
        What corrects the time; None if nothing does.
    """

    kernel: str
    device: str
    vector: CompiledCounts
    model: FittedModel
    names: tuple[str, ...]
    per_unit: NDArray[np.float64]
    derived_s: dict[tuple[str, str], float]
    parameters: dict[str, float]
    unweighted: tuple[int, ...] = ()
    costless: tuple[str, ...] = ()
    unmeasured: Unmeasured | None = None
    factor: float = 1.0
    correction: CompiledCorrection | None = None

    @classmethod
    def build(cls, weights: WeightSet, vector: PropertyVector) -> Self:
        """Compile a kernel with weights; what has no weight is left out, and listed."""
        model = weights.definition
        compiled = vector.compile()
        value_s = {(w.term, w.feature): w.value_s for w in weights.weights}
        rows: dict[str, list[float]] = {}
        covered: set[str] = set()
        for term, spec in model.term_features.items():
            charged = {name: spec.feature_of(name) for name in compiled.names}
            rows[term] = [value_s.get((term, f or ""), 0.0) for f in charged.values()]
            covered.update(n for n, f in charged.items() if f is not None)
        lacking = {
            name
            for name in compiled.names
            for term, spec in model.term_features.items()
            if (f := spec.feature_of(name)) is not None and (term, f) not in value_s
        }
        unranged = {n for n in model.variables if n not in weights.ranges}
        derived_s = {
            (term, feature): value_s.get((term, feature), 0.0)
            for term, definition in model.terms.items()
            for feature in definition.charged
            if feature in model.derived
        }
        costless = {f for (term, f) in derived_s if (term, f) not in value_s}
        present: set[str] = set()
        for name, wanted in model.base_properties.items():
            among = [covers(wanted, other) for other in compiled.names]
            rows[name] = [float(one) for one in among]
            inside = {n for n, one in zip(compiled.names, among, strict=True) if one}
            covered |= inside
            present |= {name} if inside else set()
            if name in unranged or _feeds(model, name, unranged):
                lacking |= inside
        possible = _not_zero(model, {feature for _, feature in derived_s}, present)
        unknown = {n for n in compiled.names if n not in covered and not model.features.ignores(n)}
        return cls(
            kernel=vector.kernel,
            device=weights.device.slug,
            vector=compiled,
            model=model,
            names=tuple(rows),
            per_unit=np.array(list(rows.values()), np.float64).reshape(
                len(rows), len(compiled.names)
            ),
            derived_s={key: value for key, value in derived_s.items() if key[1] in possible},
            parameters={p.name: p.value for p in weights.parameters},
            unweighted=tuple(
                i for i, name in enumerate(compiled.names) if name in lacking | unknown
            ),
            costless=_not_zero(model, costless, present),
            correction=CompiledCorrection.build(weights, compiled.names, possible),
        )

    @property
    def unweighted_names(self) -> tuple[str, ...]:
        """The properties and derived features whose cost is not known."""
        return (*(self.vector.names[i] for i in self.unweighted), *self.costless)

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @cached_property
    def _scalar(self) -> Callable[[dict[str, Any]], Any]:
        return scalar_function(self.model.formula)

    @cached_property
    def _array(self) -> Callable[[dict[str, Any]], Any]:
        return array_function(self.model.formula)

    @cached_property
    def _derived(self) -> tuple[tuple[str, Any, Any], ...]:
        wanted = {feature for _, feature in self.derived_s} | set(self.model.formula.names)
        found: list[tuple[str, Any, Any]] = []
        for name, formula in reversed(self.model.needed_derived.items()):
            if name in wanted:
                wanted |= set(formula.names)
                found.append((name, scalar_function(formula), array_function(formula)))
        return tuple(reversed(found))

    @cached_property
    def _sum(self) -> NDArray[np.float64] | None:
        """What a unit of each property costs, where the model is one term and no more."""
        is_all = self.model.is_plain_sum and not self.model.derived and self.correction is None
        return self.per_unit[0] if is_all else None

    def __call__(self, **parameters: ParameterValue) -> Quantity:
        """Return the predicted time, s; an array where a parameter is one.

        Raises
        ------
        UnmeasuredPropertyError
            A property without a weight is not zero at these parameters.
        ParameterError
            A parameter is missing or outside the kernel's assumptions, or the model has no finite
            time there.
        """
        values = self.vector(**parameters)
        if (
            self.unmeasured is not None
            and self.unweighted
            and np.any(values[list(self.unweighted)] != 0)
        ):
            raise self.unmeasured.error()
        if values.ndim == 1:
            if self._sum is not None:
                return self.factor * float(self._sum @ values)
            return self.factor * self._scalar_time(values)
        return self.factor * self._array_times(values.astype(np.float64))

    def _scalar_time(self, values: NDArray[Any]) -> float:
        named = dict(zip(self.names, (self.per_unit @ values).tolist(), strict=True))
        named.update(self.parameters)
        try:
            for name, scalar, _ in self._derived:
                named[name] = scalar(named)
            if self.unmeasured is not None and any(named[name] for name in self.costless):
                raise self.unmeasured.error()
            for (term, feature), value_s in self.derived_s.items():
                named[term] += value_s * named[feature]
            time_s = float(self._scalar(named))
            if self.correction is None:
                return time_s
            return time_s * math.exp(float(self.correction.log_factor(values, named)))
        except (ArithmeticError, ValueError) as error:
            raise self._no_time() from error

    def _array_times(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = np.tensordot(self.per_unit, values, axes=1)
        named: dict[str, Any] = dict(zip(self.names, rows, strict=True))
        named.update(self.parameters)
        for name, _, array in self._derived:
            named[name] = array(named)
        if self.unmeasured is not None and any(np.any(named[n] != 0) for n in self.costless):
            raise self.unmeasured.error()
        for (term, feature), value_s in self.derived_s.items():
            named[term] = named[term] + value_s * named[feature]
        times = np.broadcast_to(np.asarray(self._array(named), np.float64), values.shape[1:])
        if not np.all(np.isfinite(times)):
            raise self._no_time()
        if self.correction is None:
            return times.copy()
        return times * np.exp(self.correction.log_factor(values, named))

    def _no_time(self) -> ModelNotApplicableError:
        return ModelNotApplicableError(
            f"the {self.model.name} model gives no finite time here for {self.kernel!r}:"
            f" {self.model.expression!r} divides by zero, or takes the logarithm of what is not"
            " positive"
        )


def _not_zero(
    model: FittedModel, names: Iterable[str], present: Collection[str]
) -> tuple[str, ...]:
    """Return the derived features that are not zero whatever the properties of a kernel are."""
    random = np.random.default_rng(_SEED)
    sizes = np.exp(random.uniform(0.0, _LARGEST_LOG, (len(model.base_properties), _SIZES)))
    named: dict[str, Any] = {
        name: row if name in present else np.zeros(_SIZES)
        for name, row in zip(model.base_properties, sizes, strict=True)
    }
    for name, formula in model.needed_derived.items():
        named[name] = array_function(formula)(named)
    return tuple(sorted({name for name in names if np.any(np.asarray(named[name]) != 0)}))


def _feeds(model: FittedModel, name: str, costless: set[str]) -> bool:
    """Whether a property's name enters a derived feature whose cost is not known."""
    return any(
        name in formula.names and (derived in costless or _feeds(model, derived, costless))
        for derived, formula in model.needed_derived.items()
    )
