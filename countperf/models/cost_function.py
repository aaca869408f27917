"""The predicted time of a kernel as a fast function of its parameters, for search loops.

At one size, and at sizes where there is nothing to complain of, a function that is written for the
kernel gives the time from few numbers: counts that are proportional to each other are one number
(`ProportionalCounts`), what is charged by the same number is summed beforehand, and the formulas
share what they have in common. Everything else goes the longer way, over arrays, with the same
results, but for what the correction there loses in single precision (`ProjectedCorrector`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.errors import ModelNotApplicableError, PredictionError
from countperf.features import covers
from countperf.models.correction import (
    Corrector,
    ProjectedCorrector,
    groups_column,
    logs_of,
    roots_of,
)
from countperf.models.definition import ModelDefinition
from countperf.models.evaluation import ScalarSource, array_function, derivative
from countperf.models.expressions import Formula
from countperf.models.fitted_weights import FittedWeights
from countperf.models.loans import lent
from countperf.models.unmeasured import ExercisingKernels, Unmeasured
from countperf.predictions import ParameterValue, Quantity
from countperf.properties.transactions import transaction_roots
from countperf.symbolic.compiled import CompiledCounts
from countperf.symbolic.memory import FieldsAlone
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial

_SIZES = 64
_SEED = 20161
_LARGEST_LOG = 30.0
"""At so many sets of property values it is seen whether a derived feature can be other than zero:
each property at values of its own up to 1e13, for a feature may ask for more of one than of
another."""

if TYPE_CHECKING:
    from countperf.properties.vector import PropertyVector


class CompiledVector(Protocol):
    """Property values as one function of the parameters (``PropertyVector.compile``)."""

    @property
    def names(self) -> tuple[str, ...]:
        """Property of each row of the result."""
        ...

    def __call__(self, **parameters: ParameterValue) -> NDArray[Any]:
        """Return the values, shape ``(len(names), *broadcast shape of the parameters)``."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class ProportionalCounts(ShortRepr, FieldsAlone):
    """A kernel's counts but for factors: one of all that are proportional to each other.

    Attributes
    ----------
    counts : CompiledCounts
        The guards of the kernel's assumptions, one alternative after the other, then the shapes,
        all integers: those of counts that have to be integers are no integers where these are not.
    guards : tuple of (int, int)
        For each alternative, how many of its guards are to be at least zero, and how many zero.
    factors : ndarray, shape (n_properties, n_shapes)
        How often each property has each shape; one of a row is not zero.
    """

    counts: CompiledCounts
    guards: tuple[tuple[int, int], ...]
    factors: NDArray[np.float64]

    @classmethod
    def of(cls, vector: PropertyVector) -> Self:
        """Find the shapes of a kernel's counts."""
        sizes: dict[tuple[PiecewiseQuasiPolynomial, bool], dict[int, Fraction]] = {}
        for place, name in enumerate(vector):
            quantity = vector[name].quantity
            size = Fraction(sum(map(abs, _coefficients(quantity))))
            key = quantity.scale(1 / size), vector[name].exact and vector[name].integral
            sizes.setdefault(key, {})[place] = size
        shapes: list[tuple[PiecewiseQuasiPolynomial, bool]] = []
        factors = np.zeros((len(vector), len(sizes)))
        for column, ((unit, integral), members) in enumerate(sizes.items()):
            step = _divisor(members.values() if integral else _coefficients(unit))
            shapes.append((unit.scale(step if integral else 1 / step), True))
            for place, size in members.items():
                factors[place, column] = float(size / step if integral else size * step)
        guards = [
            (PiecewiseQuasiPolynomial.from_value(guard), True)
            for nonnegative, zero in vector.assumption_guards
            for guard in (*nonnegative, *zero)
        ]
        return cls(
            counts=CompiledCounts(vector.parameters, [*guards, *shapes]),
            guards=tuple((len(a), len(b)) for a, b in vector.assumption_guards),
            factors=factors,
        )

    @property
    def guard_names(self) -> list[str]:
        """Names for the guards in functions of all counts."""
        return [f"g{place}" for place in range(sum(map(sum, self.guards)))]

    @property
    def names(self) -> list[str]:
        """Names for the shapes, which follow the guards."""
        return [f"s{place}" for place in range(self.factors.shape[1])]

    @property
    def condition(self) -> str:
        """Condition, in terms of the guards, under which the assumptions hold."""
        places = count()
        alternatives = [
            " and ".join(
                [f"g{next(places)} >= 0" for _ in range(nonnegative)]
                + [f"g{next(places)} == 0" for _ in range(zero)]
            )
            for nonnegative, zero in self.guards
        ]
        if not all(alternatives):
            return "True"
        return " or ".join(f"({each})" for each in alternatives) or "True"


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledCorrection(ShortRepr, FieldsAlone):
    """The correction of a kernel's time (`countperf.models.correction`), over its own weights.

    Attributes
    ----------
    model : ModelDefinition
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

    model: ModelDefinition
    corrector: Corrector
    charged: NDArray[np.float64]
    derived: tuple[tuple[int, str], ...]
    terms: tuple[str, ...]
    value_s: NDArray[np.float64]
    groups: int | None

    @classmethod
    def build(
        cls, weights: FittedWeights, properties: Sequence[str], derived: Collection[str]
    ) -> Self | None:
        """Leave out weights that charge nothing of a kernel; None without a correction.

        Parameters
        ----------
        weights : FittedWeights
            The weights.
        properties : sequence of str
            The kernel's properties.
        derived : collection of str
            Derived features that may be other than zero.
        """
        if weights.correction is None:
            return None
        model = weights.definition
        features = {
            term: [spec.feature_of(name) for name in properties]
            for term, spec in model.term_features.items()
        }
        rows = np.array(
            [
                [float(found == feature) for found in features[term]]
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

    @cached_property
    def _alike(self) -> dict[Formula, NDArray[np.intp]]:
        """Derivatives of the time by terms, and the weights that they are for."""
        alike: dict[Formula, list[str]] = {}
        for term in dict.fromkeys(self.terms):
            alike.setdefault(derivative(self.model.formula, term), []).append(term)
        terms = np.array(self.terms)
        return {each: np.flatnonzero(np.isin(terms, names)) for each, names in alike.items()}

    @cached_property
    def _slopes(self) -> tuple[tuple[NDArray[np.intp], Any], ...]:
        return tuple((places, array_function(each)) for each, places in self._alike.items())

    def log_factor(self, counts: NDArray[np.float64], named: Mapping[str, Any]) -> Quantity:
        """Return the logarithm by which the time is corrected.

        Parameters
        ----------
        counts : ndarray, shape (n_properties, *shape)
            The kernel's property values.
        named : Mapping from str to float or ndarray
            Values of all names of the expression.
        """
        values = np.einsum("ij,j...->i...", self.charged, counts)
        for place, feature in self.derived:
            values[place] = named[feature]
        parts = (self.value_s * values.T).T
        for places, slope in self._slopes:
            parts[places] *= slope(named)
        return self.corrector.log_factor(roots_of(parts), logs_of(values, self.groups))

    def written(
        self, source: ScalarSource, shapes: ProportionalCounts
    ) -> tuple[str, ProjectedCorrector]:
        """Write what the correction follows from into a function of shapes.

        Weights are taken together that charge the same, whose logarithms are equal, and those that
        charge what is proportional by terms whose derivatives are equal, whose shares are
        proportional. What is charged for a group in the same way at all sizes is constant. Derived
        features come first or last, so that the correction may leave them out where they are zero.

        Parameters
        ----------
        source : ScalarSource
            A function that has all names of the expression.
        shapes : ProportionalCounts
            The kernel's counts.

        Returns
        -------
        str
            A list of numbers.
        ProjectedCorrector
            What corrects the time after them.
        """
        charging = {feature for _, feature in self.derived}
        features = [feature for feature in self.model.needed_derived if feature in charging]
        variables = [*shapes.names, *(source.variables[feature] for feature in features)]
        charged = np.zeros((len(self.terms), len(variables)))
        charged[:, : len(shapes.names)] = self.charged @ shapes.factors
        for place, feature in self.derived:
            charged[place, len(shapes.names) + features.index(feature)] = 1.0
        if variables:
            source.give_up_if(f"min({', '.join([*variables, '0.0'])}) < 0.0")
        logs, of_logs, fixed = self._written_logs(source, charged, variables)
        shares, of_roots = self._written_shares(source, charged, variables)
        projected = self.corrector.projected(roots=of_roots, logs=of_logs, fixed=fixed)
        return f"[{', '.join([*logs, '1.0', '1.0', *shares])}]", projected

    def _written_logs(
        self, source: ScalarSource, charged: NDArray[np.float64], variables: Sequence[str]
    ) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
        per_group = ""
        groups = np.zeros(len(variables))
        if self.groups is not None:
            groups = charged[self.groups]
            number = source.weighted_sum(groups, variables)
            source.give_up_if(f"{number} < 1.0")
            per_group = " * " + source.assigned(f"1.0 / {number}")
        fixed = np.zeros(len(charged))
        equal: dict[tuple[float, ...], list[int]] = {}
        for place, row in enumerate(charged):
            if groups.any() and _direction(row) == _direction(groups):
                fixed[place] = np.log1p(row.sum() / groups.sum())
            else:
                equal.setdefault(tuple(row.tolist()), []).append(place)
        keys = sorted(equal, key=_farthest, reverse=True)
        rows = np.zeros((len(keys), len(charged)))
        for row, key in zip(rows, keys, strict=True):
            row[equal[key]] = 1.0
        logs = [source.weighted_sum(key, variables) + per_group for key in keys]
        return logs, rows, fixed

    def _written_shares(
        self, source: ScalarSource, charged: NDArray[np.float64], variables: Sequence[str]
    ) -> tuple[list[str], NDArray[np.float64]]:
        costs = np.abs(self.value_s) * charged.sum(axis=1)
        proportional: dict[tuple[Formula, tuple[float, ...]], list[int]] = {}
        for formula, members in self._alike.items():
            for place in members[costs[members] > 0].tolist():
                proportional.setdefault((formula, _direction(charged[place])), []).append(place)
        parts: list[str] = []
        rows = np.zeros((len(proportional), len(charged)))
        keys = sorted(proportional, key=lambda key: _farthest(key[1]))
        for row, (formula, direction) in zip(rows, keys, strict=True):
            places = proportional[formula, direction]
            cost = costs[places].sum()
            row[places] = np.sqrt(costs[places] / cost)
            amount = source.weighted_sum(cost * np.array(direction), variables)
            slope = source.assigned(f"abs({source.formula(formula)})")
            parts.append(source.assigned(f"{amount} * {slope}"))
        whole = source.assigned(" + ".join(parts) or "0.0")
        source.give_up_if(f"not {whole} > 0.0")
        per_whole = source.assigned(f"1.0 / {whole}")
        return [f"{part} * {per_whole}" for part in parts], rows


@dataclass(frozen=True, kw_only=True, eq=False)
class CostFunction(ShortRepr, FieldsAlone):
    """Predicted time of a kernel on a device, s, at parameters; microseconds per call; picklable.

    Attributes
    ----------
    kernel, device : str
        Name of the kernel, slug of the device.
    vector : CompiledVector
        The kernel's property values.
    shapes : ProportionalCounts
        The same, up to factors.
    model : ModelDefinition
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
    vector: CompiledVector
    shapes: ProportionalCounts
    model: ModelDefinition
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
    def build(cls, weights: FittedWeights, vector: PropertyVector) -> Self:
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
            shapes=ProportionalCounts.of(vector),
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

    @cached_property
    def _array(self) -> Callable[[dict[str, Any]], Any]:
        return array_function(self.model.formula)

    @cached_property
    def _needed(self) -> dict[str, Formula]:
        """The derived features that the time follows from, in order."""
        wanted = {feature for _, feature in self.derived_s} | set(self.model.formula.names)
        found: list[tuple[str, Formula]] = []
        for name, formula in reversed(self.model.needed_derived.items()):
            if name in wanted:
                wanted |= set(formula.names)
                found.append((name, formula))
        return dict(reversed(found))

    @cached_property
    def _derived(self) -> tuple[tuple[str, Any], ...]:
        return tuple((name, array_function(formula)) for name, formula in self._needed.items())

    @cached_property
    def _written(self) -> tuple[Callable[..., Any], ProjectedCorrector | None]:
        """The function of guards and shapes, and what corrects its result.

        It returns the time, or the time and what its correction follows from; None where something
        is out of the ordinary.
        """
        source, shapes = ScalarSource(), self.shapes
        source.give_up_if(f"not ({shapes.condition})")
        if self.unmeasured is not None:
            costly = np.flatnonzero(shapes.factors[list(self.unweighted)].any(axis=0))
            for place in costly.tolist():
                source.give_up_if(f"{shapes.names[place]} != 0")
        for name, row in zip(self.names, self.per_unit @ shapes.factors, strict=True):
            source.variables[name] = source.weighted_sum(row, shapes.names)
        source.variables.update({n: repr(value) for n, value in self.parameters.items()})
        for name, formula in self._needed.items():
            source.variables[name] = source.formula(formula)
        if self.unmeasured is not None:
            for name in self.costless:
                source.give_up_if(f"{source.variables[name]} != 0")
        for (term, feature), value_s in self.derived_s.items():
            terms = source.variables[term], source.variables[feature]
            source.variables[term] = source.weighted_sum((1.0, value_s), terms)
        time_s = source.formula(self.model.formula)
        source.give_up_if(f"not isfinite({time_s})")
        arguments = [*shapes.guard_names, *shapes.names]
        if self.correction is None:
            return source.function(arguments, time_s), None
        numbers, corrector = self.correction.written(source, shapes)
        return source.function(arguments, f"({time_s}, {numbers})"), corrector

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
        time_s = self._quick_time(parameters)
        return self._any_time(parameters) if time_s is None else time_s

    def _quick_time(self, parameters: Mapping[str, ParameterValue]) -> float | None:
        """Return the time at one size; None where something is out of the ordinary."""
        if len(parameters) != len(self.shapes.counts.parameters):
            return None
        values: dict[str, int] = {}
        for name, value in parameters.items():
            if type(value) is int:
                values[name] = value
            elif isinstance(value, np.integer):
                values[name] = int(value)
            else:
                return None
        function, corrector = self._written
        try:
            found = function(*self.shapes.counts.at(values))
            if found is None:
                return None
            if corrector is None:
                return self.factor * found
            time_s, numbers = found
            return self.factor * time_s * math.exp(corrector.log_factor(numbers))
        except (ArithmeticError, LookupError, ValueError):
            return None

    def _any_time(self, parameters: Mapping[str, ParameterValue]) -> Quantity:
        values = self.vector(**parameters)
        if (
            self.unmeasured is not None
            and self.unweighted
            and np.any(values[list(self.unweighted)] != 0)
        ):
            raise self.unmeasured.error()
        times = self.factor * self._array_times(values.astype(np.float64))
        return times if values.ndim > 1 else float(times)

    def _array_times(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = np.einsum("ij,j...->i...", self.per_unit, values)
        named: dict[str, Any] = dict(zip(self.names, rows, strict=True))
        named.update(self.parameters)
        for name, array in self._derived:
            named[name] = array(named)
        if self.unmeasured is not None and any(np.any(named[n] != 0) for n in self.costless):
            raise self.unmeasured.error()
        for (term, feature), value_s in self.derived_s.items():
            named[term] = named[term] + value_s * named[feature]
        found = np.asarray(self._array(named), np.float64)
        times = np.array(np.broadcast_to(found, values.shape[1:]))
        if self.correction is not None and np.all(np.isfinite(times)):
            with np.errstate(all="ignore"):
                times *= np.exp(self.correction.log_factor(values, named))
        if not np.all(np.isfinite(times)):
            raise self._no_time()
        return times

    def _no_time(self) -> ModelNotApplicableError:
        return ModelNotApplicableError(
            f"the {self.model.name} model gives no finite time here for {self.kernel!r}:"
            f" {self.model.expression!r} divides by zero, or takes the logarithm of what is not"
            " positive"
        )


def compile_cost(
    weights: FittedWeights,
    kernel: object,
    *,
    incomplete_ok: bool = False,
    exercising_kernels: ExercisingKernels | None = None,
) -> CostFunction:
    """Return the predicted time of a kernel as a fast function; see `WeightSet.compile`."""
    weights.check_counting_rules()
    vector = weights.counted(kernel)
    vector = vector.mapped(lambda counts: lent(counts, weights.lenders.loans(counts)))
    if weights.definition.reads_code and not any(name.startswith("code.") for name in vector):
        raise PredictionError(
            f"the {weights.model} model reads compiled code, and a cost function has formulas"
            " only: pass with_compiled_code(kernel, ..., formulas=True), which finds them from a"
            " few sizes, or compile weights of a model that reads none, such as"
            f" load_weights({weights.device.slug!r})"
        )
    there = transaction_roots(vector)
    if without := [n for n in weights.definition.named_transactions if n not in there]:
        raise PredictionError(
            f"the {weights.model} model names {', '.join(without)}, which is found at single sizes"
            " and has no formula, and a cost function has formulas only: predict(...) at the"
            " sizes of interest, or compile weights of a model that does not name it"
        )
    function = CostFunction.build(weights, vector)
    if function.unweighted_names and not incomplete_ok:
        missing = [weights.features.feature_of(n) or n for n in function.unweighted_names]
        return replace(
            function, unmeasured=weights.unmeasured(vector.kernel, missing, exercising_kernels)
        )
    return function


def _not_zero(
    model: ModelDefinition, names: Iterable[str], present: Collection[str]
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


def _coefficients(quantity: PiecewiseQuasiPolynomial) -> list[int | Fraction]:
    return [c for term in quantity.terms for c in term.value.terms.values()]


def _divisor(numbers: Iterable[int | Fraction]) -> Fraction:
    """Return the largest number of which all are integer multiples."""
    fractions = [Fraction(number) for number in numbers]
    common = math.lcm(*(each.denominator for each in fractions))
    return Fraction(math.gcd(*(int(each * common) for each in fractions)), common)


def _farthest(row: Sequence[float] | NDArray[np.float64]) -> int:
    """Return the last position that is not zero."""
    return int(np.flatnonzero(row)[-1])


def _direction(row: NDArray[np.float64]) -> tuple[float, ...]:
    """Return a row's shares of its sum, equal for rows that are proportional."""
    return tuple((row / row.sum()).tolist())


def _feeds(model: ModelDefinition, name: str, costless: set[str]) -> bool:
    """Return whether a property's name enters a derived feature whose cost is not known."""
    return any(
        name in formula.names and (derived in costless or _feeds(model, derived, costless))
        for derived, formula in model.needed_derived.items()
    )
