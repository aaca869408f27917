"""The predicted time of a kernel as a fast function of its parameters, for search loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.models import function as functions
from countperf.models.correction import profile
from countperf.models.definition import NAMESPACE, SCALAR_NAMESPACE, covers
from countperf.models.predictions import Array, ParameterValue, Quantity
from countperf.symbolic.compiled import BLOCK, CountSource
from countperf.text import FieldsAlone, ShortRepr

if TYPE_CHECKING:
    from countperf.counting.vector import PropertyVector
    from countperf.models.weights import WeightSet


@dataclass(frozen=True, kw_only=True, eq=False)
class CostFunction(ShortRepr, FieldsAlone):
    """Predicted time of a kernel on a device, s; picklable."""

    weights: WeightSet  # what predicts
    vector: PropertyVector  # of the kernel
    incomplete_ok: bool = False  # whether what has no known cost is left out without a complaint

    @property
    def kernel(self) -> str:
        """Name of the kernel."""
        return self.vector.kernel

    @property
    def device(self) -> str:
        """Slug of the device."""
        return self.weights.device.slug

    @cached_property
    def _lacking(self) -> tuple[str, ...]:
        """Properties, derived features and scales of the kernel whose cost is not known."""
        function, model = self.weights.function, self.weights.definition
        known, bases = set(function.columns), model.base_properties.values()
        lacking = [
            name
            for name in self.vector
            if not (charging := function.columns_of(name)) <= known
            or (
                not (charging or model.features.ignores(name))
                and not any(covers(base, name) for base in bases)
            )
        ]
        charged = {(term, name) for term, spec in model.terms.items() for name in spec.charged}
        derived = {name for _, name in charged - known if name in model.derived}
        scales = (name for name in model.scales if name not in self.weights.ranges)
        return (*lacking, *sorted(derived), *scales)

    @cached_property
    def _at_one_size(self) -> Callable[..., list[Any]]:
        return self._write_function(arrays=False)

    @cached_property
    def _at_arrays(self) -> Callable[..., list[Any]]:
        return self._write_function(arrays=True)

    @cached_property
    def _properties(self) -> list[list[str]]:
        """What each column is a sum of; nothing where the kernel has none."""
        charging = [(name, self.weights.function.columns_of(name)) for name in self.vector]
        return [
            [feature]
            if feature in self.weights.definition.derived
            else [name for name, columns in charging if (term, feature) in columns]
            for term, feature in self.weights.function.columns
        ]

    def _write_function(self, *, arrays: bool) -> Callable[..., list[Any]]:
        """Write a function of the sizes: features, the same scaled, and what has no known cost."""
        model, counts = self.weights.definition, self.vector.compiled
        source = CountSource(counts.parameters, counts.counts, arrays=arrays)
        if not arrays:
            source.lines.append(f"if not ({self.vector.condition(source)}): raise ValueError")
        numbers = source.numbers()
        as_array = "np.asarray({}, dtype=float)" if arrays else "{}"
        named = (source.name_expression(as_array.format(number)) for number in numbers)
        known = dict(zip(self.vector, named, strict=True))
        source.lines.append("values = {}")
        for name, wanted in model.base_properties.items():
            among = " + ".join(text for other, text in known.items() if covers(wanted, other))
            source.lines.append(f"values[{name!r}] = {among or 0.0}")
        for name, formula in model.formulas.items():
            source.lines.append(f"values[{name!r}] = {formula.source}")
            known[name] = f"values[{name!r}]"
        sums = (" + ".join(known[name] for name in names) for names in self._properties)
        features = [source.name_expression(text) if text else "0.0" for text in sums]
        scales = [model.terms[term].scale for term, _ in self.weights.function.columns]
        pairs = zip(features, scales, strict=True)
        scaled = [f"{feature} * {known[scale]}" if scale else feature for feature, scale in pairs]
        results = (features, scaled, [known[name] for name in self._lacking])
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
        functions.refuse_infinite(self.weights.model, times)
        functions.refuse_negative(self.weights.model, self.kernel, times)
        return times.reshape(shape) if shape else float(times[0])

    def _time(self, values: Array, scaled: Array) -> Any:
        """Return times, s, of features along the last axis."""
        time_s = np.vecdot(scaled, self.weights.unknowns)
        if (correction := self.weights.correction) is not None:
            told = profile(self.weights.function.columns, values, scaled, self.weights.unknowns)
            time_s = time_s * np.exp(correction.find_log_factors(*told))
        return functions.raise_to_launch(time_s, self.weights.shortest_launch_s)

    def _check_measured(self, lacking: list[Any]) -> None:
        names = [n for n, value in zip(self._lacking, lacking, strict=True) if np.any(value != 0)]
        if names and not self.incomplete_ok:
            spec = self.weights.definition.features
            wanted = dict.fromkeys(spec.feature_of(name) or name for name in names)
            raise functions.make_unmeasured_error(self.kernel, self.device, wanted)
