"""The predicted time of a kernel as a fast function of its parameters, for search loops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.errors import ModelNotApplicableError, PredictionError
from countperf.features import covers
from countperf.models.correction import Correction, profile
from countperf.models.fitted_weights import FittedWeights
from countperf.models.function import ModelFunction
from countperf.models.unmeasured import ExercisingKernels, Unmeasured
from countperf.models.validity import refuse_negative
from countperf.predictions import ParameterValue, Quantity
from countperf.properties.transactions import transaction_roots

if TYPE_CHECKING:
    from countperf.properties.vector import CompiledVector, PropertyVector


@dataclass(frozen=True, kw_only=True, eq=False)
class CostFunction(ShortRepr):
    """Predicted time of a kernel on a device, s; picklable."""

    kernel: str  # name of the kernel, slug of the device
    device: str
    vector: CompiledVector  # the kernel's property values
    function: ModelFunction  # the model over its weights
    weights_s: NDArray[np.float64]
    charged: NDArray[np.float64]  # 1 where a weight charges a property, else 0
    base: NDArray[np.float64]  # 1 where a name of the model's formulas stands for a property
    # positions of the properties whose cost is not known, and derived features of which it is not
    unweighted: tuple[int, ...] = ()
    costless: tuple[str, ...] = ()
    unmeasured: Unmeasured | None = None  # what to complain of where one of them is not zero
    factor: float = 1.0  # what the time is multiplied by: that of an anchor
    correction: Correction | None = None

    @classmethod
    def build(cls, weights: FittedWeights, vector: PropertyVector) -> Self:
        """Compile a kernel with weights; what has no weight is left out, and listed."""
        model, function, compiled = weights.definition, weights.function, vector.compile()
        names = compiled.names
        features = {
            (term, name): feature
            for term, spec in model.term_features.items()
            for name in names
            if (feature := spec.feature_of(name)) is not None
        }
        known = set(function.columns)
        lacking = {name for (term, name), f in features.items() if (term, f) not in known}
        based = {name for name in names for b in model.base_properties.values() if covers(b, name)}
        covered = {name for _, name in features} | based
        lacking |= {n for n in names if n not in covered and not model.features.ignores(n)}
        derived = {
            (term, feature)
            for term, definition in model.terms.items()
            for feature in definition.charged
            if feature in model.derived
        }
        return cls(
            kernel=vector.kernel,
            device=weights.device.slug,
            vector=compiled,
            function=function,
            weights_s=np.array(weights.unknowns, np.float64),
            correction=weights.correction,
            charged=_matrix(
                (
                    [features.get((term, name)) == feature for name in names]
                    for term, feature in function.columns
                ),
                len(names),
            ),
            base=_matrix(
                ([covers(b, n) for n in names] for b in model.base_properties.values()), len(names)
            ),
            unweighted=tuple(i for i, name in enumerate(names) if name in lacking),
            costless=(
                *sorted({feature for _, feature in derived - known}),
                *(name for name in model.scales if name not in weights.ranges),
            ),
        )

    @cached_property
    def _derived(self) -> list[tuple[int, str]]:
        """Columns of derived features, by position."""
        derived = self.function.model.derived
        columns = enumerate(self.function.columns)
        return [(place, feature) for place, (_, feature) in columns if feature in derived]

    def __call__(self, **parameters: ParameterValue) -> Quantity:
        """Return the predicted time, s; an array where a parameter is one."""
        counts = self.vector(**parameters).astype(np.float64)
        model = self.function.model
        base = zip(model.base_properties, _product(self.base, counts), strict=True)
        named = model.with_derived(dict(base))
        self._check_measured(counts, named)
        features = _product(self.charged, counts)
        for place, feature in self._derived:
            features[place] = named[feature]
        scaled = self.function.scaled(features, named)
        times = self.factor * _product(self.weights_s, scaled)
        if not np.all(np.isfinite(times)):
            raise ModelNotApplicableError(
                f"the {model.name} model gives no finite time here for {self.kernel!r}: a derived"
                " feature divides by zero, or takes the logarithm of what is not positive"
            )
        if self.correction is not None:
            told = profile(self.function, features, scaled, self.weights_s)
            times = times * np.exp(self.correction.log_factor(*told))
        refuse_negative(model.name, self.kernel, times)
        return times if times.ndim else float(times)

    def _check_measured(self, counts: NDArray[np.float64], named: dict[str, Any]) -> None:
        if self.unmeasured is None:
            return
        found = [self.vector.names[i] for i in self.unweighted if np.any(counts[i] != 0)]
        found += [name for name in self.costless if np.any(np.asarray(named[name]) != 0)]
        if found:
            spec, kernels = self.function.model.features, self.unmeasured.exercising_kernels
            wanted = {spec.feature_of(name) or name: None for name in found}
            some = {name: kernels[name] for name in wanted}
            raise replace(self.unmeasured, exercising_kernels=some).error()


def _product(matrix: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    return matrix @ values if values.ndim < 3 else np.tensordot(matrix, values, 1)


def _matrix(rows: Iterable[list[bool]], width: int) -> NDArray[np.float64]:
    found = list(rows)
    return np.array(found, np.float64).reshape(len(found), width)


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
    if incomplete_ok:
        return function
    names = [*(function.vector.names[i] for i in function.unweighted), *function.costless]
    missing = [weights.features.feature_of(n) or n for n in names]
    return replace(
        function, unmeasured=weights.unmeasured(vector.kernel, missing, exercising_kernels)
    )
