"""The predicted time of a kernel as a fast function of its parameters, for search loops.

At one size, and at sizes where there is nothing to complain of, a function that is written for the
kernel gives the time from few numbers: counts that are proportional to each other are one number
(`ProportionalCounts`), what is charged by the same number is summed beforehand, and the formulas
share what they have in common. Everything else goes the longer way, over arrays, with the same
results and refusals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.errors import ModelNotApplicableError, PredictionError
from countperf.features import covers
from countperf.models.compiled_correction import CompiledCorrection
from countperf.models.correction import ProjectedCorrector
from countperf.models.definition import ModelDefinition
from countperf.models.evaluation import FormulaSource, array_function
from countperf.models.expressions import Formula
from countperf.models.fitted_weights import FittedWeights
from countperf.models.loans import lent
from countperf.models.proportional_counts import ProportionalCounts
from countperf.models.unmeasured import ExercisingKernels, Unmeasured
from countperf.models.validity import refuse_negative
from countperf.predictions import ParameterValue, Quantity
from countperf.properties.transactions import transaction_roots
from countperf.symbolic.memory import FieldsAlone

_SIZES = 64
_SEED = 20161
_LARGEST_LOG = 30.0
"""At so many sets of property values it is seen whether a derived feature can be other than zero:
each property at values of its own up to 1e13, for a feature may ask for more of one than of
another."""

if TYPE_CHECKING:
    from countperf.properties.vector import CompiledVector, PropertyVector


@dataclass(frozen=True, kw_only=True, eq=False)
class CostFunction(ShortRepr, FieldsAlone):
    """Predicted time of a kernel on a device, s, in microseconds per call; picklable."""

    kernel: str  # name of the kernel, slug of the device
    device: str
    vector: CompiledVector  # the kernel's property values
    shapes: ProportionalCounts  # the same, up to factors
    model: ModelDefinition  # what the time is made of
    # the terms of the model, then the names that its formulas have for properties
    names: tuple[str, ...]
    # what a unit of each property adds to each of them: s for terms, 1 or 0 for the others
    per_unit: NDArray[np.float64]
    # weights of derived features that may be other than zero, s per unit
    derived_s: dict[tuple[str, str], float]
    unweighted: tuple[int, ...] = ()  # positions of the properties whose cost is not known
    # derived features whose cost is not known and that may be other than zero
    costless: tuple[str, ...] = ()
    unmeasured: Unmeasured | None = None  # what to complain of where one of them is not zero
    factor: float = 1.0  # what the time is multiplied by: that of an anchor
    correction: CompiledCorrection | None = None  # what corrects the time
    # values that the types of the kernel's arguments have
    held_sizes: Mapping[str, range] = field(default_factory=dict[str, range])

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
        unranged = {n for n in model.scales if n not in weights.ranges}
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
            unweighted=tuple(
                i for i, name in enumerate(compiled.names) if name in lacking | unknown
            ),
            costless=_not_zero(model, costless, present),
            correction=CompiledCorrection.build(weights, compiled.names, possible),
            held_sizes=vector.held_sizes,
        )

    @property
    def unweighted_names(self) -> tuple[str, ...]:
        """The properties and derived features whose cost is not known."""
        return (*(self.vector.names[i] for i in self.unweighted), *self.costless)

    @cached_property
    def _needed(self) -> dict[str, Formula]:
        """The derived features that the time follows from, in order."""
        wanted = {feature for _, feature in self.derived_s} | set(self.model.scales)
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
        source, shapes = FormulaSource(), self.shapes
        source.give_up_if(f"not ({shapes.condition})")
        if self.unmeasured is not None:
            costly = np.flatnonzero(shapes.factors[list(self.unweighted)].any(axis=0))
            for place in costly.tolist():
                source.give_up_if(f"{shapes.names[place]} != 0")
        for name, row in zip(self.names, self.per_unit @ shapes.factors, strict=True):
            source.variables[name] = source.weighted_sum(row, shapes.names)
        for name, formula in self._needed.items():
            source.variables[name] = source.formula(formula)
        if self.unmeasured is not None:
            for name in self.costless:
                source.give_up_if(f"{source.variables[name]} != 0")
        for (term, feature), value_s in self.derived_s.items():
            terms = source.variables[term], source.variables[feature]
            source.variables[term] = source.weighted_sum((1.0, value_s), terms)
        sums: dict[str, list[str]] = {}
        for name, term in self.model.terms.items():
            sums.setdefault(term.scale, []).append(source.variables[name])
        time_s = source.assigned(
            " + ".join(
                f"{source.variables[scale]} * ({' + '.join(terms)})" if scale else " + ".join(terms)
                for scale, terms in sums.items()
            )
        )
        source.give_up_if(f"not isfinite({time_s})")
        arguments = [*shapes.guard_names, *shapes.names]
        if self.correction is None:
            return source.function(arguments, time_s), None
        numbers, corrector = self.correction.written(source, shapes)
        return source.function(arguments, f"({time_s}, {numbers})"), corrector

    def __call__(self, **parameters: ParameterValue) -> Quantity:
        """Return the predicted time, s; an array where a parameter is one."""
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
        for name, held in self.held_sizes.items():
            if name in values and values[name] not in held:
                return None
        function, corrector = self._written
        try:
            found = function(*self.shapes.counts.at(values))
            if found is None:
                return None
            if corrector is None:
                time_s = self.factor * found
            else:
                time_s, numbers = found
                time_s *= self.factor * math.exp(corrector.log_factor(numbers))
            return time_s if 0 <= time_s < math.inf else None
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
        refuse_negative(self.model.name, self.kernel, times)
        return times if values.ndim > 1 else float(times)

    def _array_times(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = np.einsum("ij,j...->i...", self.per_unit, values)
        named: dict[str, Any] = dict(zip(self.names, rows, strict=True))
        for name, array in self._derived:
            named[name] = array(named)
        if self.unmeasured is not None and any(np.any(named[n] != 0) for n in self.costless):
            raise self.unmeasured.error()
        for (term, feature), value_s in self.derived_s.items():
            named[term] = named[term] + value_s * named[feature]
        found = np.zeros(values.shape[1:])
        for name, term in self.model.terms.items():
            found = found + named[name] * (named[term.scale] if term.scale else 1.0)
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
            f" a derived feature divides by zero, or takes the logarithm of what is not positive"
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
    if weights.definition.reads_code:
        raise PredictionError(
            f"the {weights.model} model reads compiled code, and a cost function has formulas"
            " only: predict(...) at the sizes of interest, or compile weights of a model that reads"
            f" none, such as load_weights({weights.device.slug!r}, model='structural')"
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


def _feeds(model: ModelDefinition, name: str, costless: set[str]) -> bool:
    """Return whether a property's name enters a derived feature whose cost is not known."""
    return any(
        name in formula.names and (derived in costless or _feeds(model, derived, costless))
        for derived, formula in model.needed_derived.items()
    )
