"""The predicted time of a kernel as a fast function of its parameters, for search loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.models.correction import Correction, profile
from countperf.models.definition import NAMESPACE, SCALAR_NAMESPACE, covers
from countperf.models.function import (
    ModelFunction,
    make_unmeasured_error,
    raise_to_launch,
    refuse_infinite,
    refuse_negative,
)
from countperf.models.predictions import Array, ParameterValue, Quantity
from countperf.symbolic.compiled import BLOCK, CountSource
from countperf.text import FieldsAlone, ShortRepr

if TYPE_CHECKING:
    from countperf.counting.vector import PropertyVector


@dataclass(frozen=True, kw_only=True, eq=False)
class CostFunction(ShortRepr, FieldsAlone):
    """Predicted time of a kernel on a device, s; picklable."""

    kernel: str  # name of the kernel, slug of the device
    device: str
    vector: PropertyVector
    function: ModelFunction  # the model over its weights
    weights_s: Array
    # properties and derived features whose cost is not known
    lacking: tuple[str, ...] = ()
    incomplete_ok: bool = False  # whether they are left out without a complaint
    correction: Correction | None = None
    shortest_s: float = 0.0  # of a launch

    @cached_property
    def _at_one_size(self) -> Callable[..., list[Any]]:
        return self._write_function(arrays=False)

    @cached_property
    def _at_arrays(self) -> Callable[..., list[Any]]:
        return self._write_function(arrays=True)

    @cached_property
    def _properties(self) -> list[list[str]]:
        """What each column is a sum of; nothing where the kernel has none."""
        charging = [(name, self.function.columns_of(name)) for name in self.vector]
        return [
            [feature]
            if feature in self.function.model.derived
            else [name for name, columns in charging if (term, feature) in columns]
            for term, feature in self.function.columns
        ]

    def _write_function(self, *, arrays: bool) -> Callable[..., list[Any]]:
        """Write a function of the sizes: features, the same scaled, and what has no known cost."""
        model, columns, counts = self.function.model, self.function.columns, self.vector.compiled
        source = CountSource(counts.parameters, counts.counts, arrays=arrays)
        if not arrays:
            source.lines.append(f"if not ({self.vector.condition(source)}): raise ValueError")
        numbers = source.numbers()
        known = {
            name: source.name_expression(f"np.asarray({number}, dtype=float)" if arrays else number)
            for name, number in zip(self.vector, numbers, strict=True)
        }
        source.lines.append("values = {}")
        for name, wanted in model.base_properties.items():
            among = " + ".join(text for other, text in known.items() if covers(wanted, other))
            source.lines.append(f"values[{name!r}] = {among or 0.0}")
        for name, formula in model.formulas.items():
            source.lines.append(f"values[{name!r}] = {formula.source}")
            known[name] = f"values[{name!r}]"
        features = [
            source.name_expression(" + ".join(known[name] for name in properties))
            if properties
            else "0.0"
            for properties in self._properties
        ]
        scales = [model.terms[term].scale for term, _ in columns]
        scaled = [
            f"{feature} * {known[scale]}" if scale else feature
            for feature, scale in zip(features, scales, strict=True)
        ]
        results = (features, scaled, [known[name] for name in self.lacking])
        names = NAMESPACE if arrays else SCALAR_NAMESPACE
        return source.define_function([f"[{', '.join(texts)}]" for texts in results], names)

    def __call__(self, **parameters: ParameterValue) -> Quantity:
        """Return the predicted time, s; an array where a parameter is one."""
        names = self.vector.parameters
        if len(parameters) == len(names) and {*map(type, parameters.values())} <= {int}:
            try:
                rows = self._at_one_size(*map(parameters.__getitem__, names))
                time_s = float(self._time(*np.array(rows[:2], float)))
                is_known = self.incomplete_ok or not any(rows[2])
                if is_known and 0.0 <= time_s < math.inf:
                    return time_s
            except (ArithmeticError, LookupError, ValueError):  # which arrays tell of
                pass
        values = self.vector.check_parameters(parameters, {})
        arguments, shape, _ = self.vector.compiled.safe_arrays(values)
        lines = [np.broadcast_to(a, shape).reshape(-1) for a in arguments]
        times = np.empty(math.prod(shape))
        with np.errstate(all="ignore"):
            for start in range(0, times.size, BLOCK):
                block = slice(start, start + BLOCK)
                rows = self._at_arrays(*(line[block] for line in lines))
                self._check_measured(rows[2])
                size = times[block].shape
                both = ([np.broadcast_to(row, size) for row in some] for some in rows[:2])
                times[block] = self._time(*(np.stack(some, axis=-1, dtype=float) for some in both))
        refuse_infinite(self.function.model.name, times)
        refuse_negative(self.function.model.name, self.kernel, times)
        return times.reshape(shape) if shape else float(times[0])

    def _time(self, values: Array, scaled: Array) -> Any:
        """Return times, s, of features along the last axis."""
        time_s = np.vecdot(scaled, self.weights_s)
        if self.correction is not None:
            told = profile(self.function.columns, values, scaled, self.weights_s)
            time_s = time_s * np.exp(self.correction.find_log_factors(*told))
        return raise_to_launch(time_s, self.shortest_s)

    def _check_measured(self, lacking: list[Any]) -> None:
        names = [n for n, value in zip(self.lacking, lacking, strict=True) if np.any(value != 0)]
        if names and not self.incomplete_ok:
            spec = self.function.model.features
            wanted = dict.fromkeys(spec.feature_of(name) or name for name in names)
            raise make_unmeasured_error(self.kernel, self.device, wanted)


def lacking_cost(
    function: ModelFunction, ranges: Container[str], vector: PropertyVector
) -> tuple[str, ...]:
    """Return properties, derived features and scales of a kernel whose cost is not known."""
    model, known = function.model, set(function.columns)
    based = {n for n in vector for base in model.base_properties.values() if covers(base, n)}
    lacking = [
        name
        for name in vector
        if not (charging := function.columns_of(name)) <= known
        or not (charging or name in based or model.features.ignores(name))
    ]
    charged = {(term, name) for term, spec in model.terms.items() for name in spec.charged}
    derived = {name for _, name in charged - known if name in model.derived}
    return (*lacking, *sorted(derived), *(name for name in model.scales if name not in ranges))
