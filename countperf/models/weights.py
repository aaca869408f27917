"""Fitted weights: their document, the times that they give for counts, and cost functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, Self, cast

import numpy as np
from pydantic import Field, model_validator

from countperf import errors
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.counting.taxonomy import COUNTING_RULES_VERSION, UNKNOWN_GROUPS, CountingRules, View
from countperf.counting.vector import PropertyVector, transaction_roots
from countperf.devices.identity import DeviceIdentity
from countperf.documents import Document
from countperf.models import function as functions
from countperf.models import predictions
from countperf.models.correction import Correction, Origin, profile
from countperf.models.definition import (
    NAMESPACE,
    SCALAR_NAMESPACE,
    ModelDefinition,
    Unread,
    covers,
    first_cover,
)
from countperf.models.explanation import lay_out_weights
from countperf.models.function import ColumnKey, Level, ModelFunction, ModelInputs, Weight, Where
from countperf.models.predictions import Array, ParameterValue, Prediction, Quantity, Verdict
from countperf.sizes import checks_keywords, merge_sizes
from countperf.symbolic.compiled import BLOCK, CountSource
from countperf.text import FieldsAlone, Printed, Result, ShortRepr

MOST_GUESSED = 0.5
"""Share of a time that may rest on weights which the fit cannot tell apart; more is refused."""

_WELL_FITTED = 3.0  # standard errors from zero of a weight of launches that is known

_SHORT = (
    "the model gives less than {:.3g} µs, the time of the shortest launch known of a {}, which is"
    " predicted"
)
_NEGATIVE = "the predicted time is not positive: negative weights outweigh the others"


class WeightSet(Document, Result):
    """Weights of a fitted model on a device, which predict."""

    format: Literal["countperf-weights"] = "countperf-weights"
    version: Literal[4] = 4
    name: str = Field(default="", exclude=True)  # by which they were loaded
    remade_by = "fit measurements again, countperf fit STORE --name NAME, or countperf calibrate"
    model: str  # its name
    definition: ModelDefinition
    device: DeviceIdentity  # what they were measured on
    # version of the rules, view and caches by which the kernels of the fit were counted
    counting_rules: CountingRules
    view: View = "source"
    counted_caches: CountedCaches = DEFAULT_CACHES
    # one for each feature of a term that the measurements exercise
    weights: tuple[Weight, ...] = Field(min_length=1)
    ranges: dict[str, functions.Range] = Field(default_factory=dict)  # by scale of terms
    # which weights are a choice among many that fit as well
    indistinguishable: tuple[functions.IndistinguishableGroup, ...] = ()
    # errors and intervals of the fit, and its measurements; None for weights from elsewhere
    quality: functions.FitQuality | None = None
    source: functions.MeasurementSource | None = None
    exercising_kernels: Unread = Field(default=(), exclude=True)
    candidates: Unread = Field(default=(), exclude=True)
    # what measured kernels say of kernels like them, by which predictions are corrected
    correction: Correction | None = None
    remark: str = ""  # for whoever predicts, such as for which counts they were printed
    written_by: str = ""  # version of countperf

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        columns = self.function.columns
        if len(set(columns)) < len(columns):
            raise ValueError("two weights are for the same feature")
        if strange := {term for term, _ in columns} - set(self.definition.terms):
            raise ValueError(f"the model has no term {', '.join(sorted(strange))}")
        for low, (key, weight) in zip(self.function.lower, self.by_feature.items(), strict=True):
            if weight.value_s < low:
                raise ValueError(f"{key} is {weight.value_s}, below the bound of its model, {low}")
        if self.correction is not None and len(self.correction.roots[0]) != len(columns):
            raise ValueError(f"the correction is not of {len(columns)} weights")
        return self

    @cached_property
    def function(self) -> ModelFunction:
        """The model over the weights."""
        columns = tuple((weight.term, weight.feature) for weight in self.weights)
        return ModelFunction(model=self.definition, columns=columns)

    @cached_property
    def unknowns(self) -> Array:
        """The weights, s per unit."""
        return np.array([weight.value_s for weight in self.weights], np.float64)

    @cached_property
    def by_feature(self) -> dict[str, Weight]:
        """The weights by feature; by ``term:feature`` where several terms charge it."""
        return dict(zip(self.function.keys, self.weights, strict=True))

    @cached_property
    def resources(self) -> dict[str, str]:
        """Resources by part of a time, where the model states them."""
        resources = {functions.LAUNCH: "launch"}
        for key, (term, feature) in zip(self.function.keys, self.function.columns, strict=True):
            stated = self.definition.terms[term].resource
            if (place := first_cover(tuple(stated), feature)) is not None:
                resources[key] = [*stated.values()][place]
        return resources

    @cached_property
    def shortest_launch_s(self) -> float:
        """Shortest time of a launch, s: known of the kind of device, or well fitted here."""
        fitted = [
            weight.value_s
            for weight in self.weights
            if weight.feature == "launches"
            and weight.standard_error_s is not None
            and weight.value_s > _WELL_FITTED * weight.standard_error_s
        ]
        return min([functions.SHORTEST_LAUNCH_S.get(self.device.device_type, 0.0), *fitted])

    def check_counting_rules(self) -> None:
        """Raise `PredictionError` if kernels are now counted by other rules than in the fit."""
        if self.counting_rules != COUNTING_RULES_VERSION:
            raise errors.PredictionError(
                f"the weights for {self.device.slug} were fitted under counting rules"
                f" {self.counting_rules}, and kernels are now counted under"
                f" {COUNTING_RULES_VERSION}: refit from measurements"
            )

    def check_device(self, device: DeviceIdentity | None, *, force: bool = False) -> None:
        """Raise `DeviceMismatchError` if the weights belong to another device."""
        if device is None or force or self.device.matches(device):
            return
        raise errors.DeviceMismatchError(
            f"the weights are for {self.device.slug} ({self.device.name}), not for {device.slug}"
            f" ({device.name}), which differ in {self.device.differences_text(device)}: name"
            f" the weights' device ({errors.option('device', repr(self.device.slug))}), or"
            f" fit weights for {device.slug}, or force the use of these"
            f" ({errors.option('force', 'True')})"
        )

    __str__ = Result.__str__

    def lay_out(self) -> Printed:
        """Give the weights of a model."""
        return lay_out_weights(self)

    @checks_keywords
    def predict(
        self,
        counts: Mapping[str, Any],
        parameters: Mapping[str, ParameterValue] | None = None,
        /,
        *,
        incomplete_ok: bool = False,
        level: Level = 0.95,
        **more: ParameterValue,
    ) -> Prediction:
        """Predict the time of one launch of a kernel from its counts, by these weights.

        Parameters
        ----------
        counts : PropertyVector or Mapping from str to int or str
            Counts in the view of the weights, or counts written by hand. A kernel is counted and
            predicted by `countperf.predict`.
        parameters, **more : int or ndarray of integers
            Values of the size parameters.
        incomplete_ok, level
            As for `countperf.predict`, which also predicts for other devices.

        Raises
        ------
        ParameterError, PredictionError, MismatchError
            A kernel was given, or a size is missing; a property has no weight; the view is another.
        """
        if not isinstance(counts, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
            raise errors.ParameterError(
                f"weights predict counts of a kernel, not what is a {type(counts).__name__}: pass a"
                " kernel to countperf.predict(kernel, sizes, weights=weights)",
                parameter="counts",
            )
        asked = read_vector(counts, self), merge_sizes(parameters, more)
        made = self.predict_counts(*asked, incomplete_ok=incomplete_ok, level=level)
        functions.refuse_negative(made.model, made.kernel, made.time_s)
        return made

    def predict_counts(
        self,
        kernel: PropertyVector,
        parameters: Mapping[str, ParameterValue],
        *,
        incomplete_ok: bool = False,
        level: Level = 0.95,
        shrink: float = 1.0,
        device: DeviceIdentity | None = None,
    ) -> Prediction:
        """Predict for any device, also times below zero; `shrink` narrows intervals."""
        self.check_counting_rules()
        vector = self.count(kernel)
        self._check_what_has_no_formula(vector)
        counts = vector.evaluate(parameters)
        inputs = functions.model_inputs(self.definition, counts)
        missing = find_missing(self, inputs)
        if missing and not incomplete_ok:
            raise functions.make_unmeasured_error(vector.kernel, self.device.slug, missing)
        charge = charge_inputs(self, inputs)
        time_s, parts, corrections = correct_charge(self, charge)
        if not incomplete_ok:
            self._check_guessed(vector.kernel, charge)
        values = np.moveaxis(charge.values, -1, 0)
        outside, below = functions.features_outside(self.by_feature, values, parts)
        for name, value in inputs.variables.items():
            limit = self.ranges[name].largest if name in self.ranges else np.inf
            if np.any(beyond := np.asarray(value) > functions.EXTRAPOLATION_FACTOR * limit):
                outside[name] = beyond
        changes = name_changes(self, charge)
        unsure = (functions.breaks(group, changes) for group in self.indistinguishable)
        reach = shrink * find_log_reach(self, charge, level)
        by_data = np.asarray(counts.get(UNKNOWN_GROUPS, 0) if self.definition.reads_code else 0) > 0
        is_wide = functions.anywhere((*outside.values(), *below.values(), by_data))
        widening = np.where(is_wide, functions.EXTRAPOLATION_WIDENING, 1.0)
        known = ~functions.anywhere((*missing.values(), *unsure))
        reach = np.where(known, widening * reach, np.nan)
        interval_s = functions.interval(time_s, reach)
        widened = "" if interval_s is None else "; the interval is widened"
        columns = {own: self.function.find_column(own) for own in inputs.values}
        charged = [f"{own[1]} as {to[1]}" for own, to in columns.items() if own != to]
        caveats = functions.make_caveats(
            complete=missing and f"without the cost of {', '.join(missing)}",
            indistinguishable=functions.describe_guess(self.indistinguishable, changes),
            extrapolation=(outside or below) and functions.describe_range(outside, below) + widened,
            masked=charged and f"without weights of their own, charged are {', '.join(charged)}",
            launch=np.any(np.asarray(parts.get(functions.LAUNCH, 0.0)) > 0)
            and _SHORT.format(self.shortest_launch_s * 1e6, self.device.device_type.upper()),
            interval=self.quality and functions.describe_interval(reach),
            groups=np.any(by_data) and _BY_DATA + widened,
            sign=not np.all(np.asarray(time_s) > 0) and _NEGATIVE,
            device=device and functions.describe_device(self.device, device),
        )
        options = {"level": level, "incomplete_ok": incomplete_ok, "device": device}
        return Prediction(
            kernel=vector.kernel,
            device=self.device.slug if device is None else device.slug,
            model=self.model,
            weights=self.name,
            parameters=dict(parameters),
            time_s=time_s,
            interval_s=interval_s,
            interval_level=level,
            breakdown=predictions.largest_first(parts),
            missing=tuple(missing),
            ignored=inputs.ignored,
            verdicts=(*caveats, *corrections, *functions.make_caveats(weights=self.remark)),
            resources=self.resources,
            origin=Origin(weights=self, kernel=kernel, options=options),
        )

    def compile(self, kernel: object, *, incomplete_ok: bool = False) -> CostFunction:
        """Return the predicted time of a kernel as a fast function of its parameters.

        Errors are those of `predict`; a property without a weight raises when the function is
        called with parameters at which it is not zero.
        """
        self.check_counting_rules()
        vector = self.count(kernel)
        there = transaction_roots(vector)
        without = [name for name in self.definition.named_transactions if name not in there]
        if without or self.definition.reads_code:
            reads = f"names {', '.join(without)}" if without else "reads compiled code"
            raise errors.PredictionError(
                f"the {self.model} model {reads}, which is found at single sizes and has no"
                " formula, and a cost function has formulas only: predict(...) at the sizes of"
                " interest, or compile weights of another model, such as the structural one"
            )
        return CostFunction(weights=self, vector=vector, incomplete_ok=incomplete_ok)

    def _check_guessed(self, kernel: str, charge: Charge) -> None:
        """Refuse a time of which much is shared among weights that were never told apart."""
        changes = name_changes(self, charge)
        groups = functions.find_broken_groups(self.indistinguishable, changes)
        names = {name for group in groups for name in group.features}
        sizes = {name: np.abs(np.asarray(part)) for name, part in charge.parts.items()}
        guessed = sum((part for n, part in sizes.items() if n in names), start=np.zeros(()))
        whole = sum(sizes.values(), start=np.zeros(()))
        if np.any(guessed > MOST_GUESSED * whole):
            problem = functions.describe_guess(groups, changes)
            raise errors.PredictionError(
                f"kernel {kernel!r}: {problem}; {functions.REMEDIES['indistinguishable']}, or ask"
                f" for the guess ({errors.option('incomplete_ok', 'True')})"
            )

    def count(self, kernel: object) -> PropertyVector:
        """Return the vector of a kernel, counted under the view of the weights."""
        vector = read_vector(kernel, self)
        if self.view == "source":
            vector = vector.take_source_view()
        if vector.view != self.view:
            raise errors.MismatchError(
                f"kernel '{vector.kernel}' was counted in the {vector.view} view, and the weights"
                f" for {self.device.slug} were fitted to the {self.view} view: count it with"
                f" count_kernel(..., view={self.view!r}), or fit weights to vectors of the other"
                " view"
            )
        if self.view == "source":
            return vector
        self._check_caches(vector)
        return vector.map_counts(self.definition.count_model_inputs)

    def _check_caches(self, vector: PropertyVector) -> None:
        if (caches := vector.caches) is None:
            return
        wanted, there = self.counted_caches, caches
        if wanted.counts_alike(caches):
            if not self.definition.reads_code or wanted.code == caches.code:
                return
            wanted, there = wanted.code, caches.code
        raise errors.MismatchError(
            f"kernel '{vector.kernel}' was counted for caches of {there.text}, and the {self.model}"
            f" weights for {self.device.slug} are for {wanted.text}: predict the kernel itself, or"
            " count it with count_kernel(..., view='structure', caches=weights.counted_caches);"
            " counts of measurements are made anew by countperf.api.evaluation.recount"
        )

    def _check_what_has_no_formula(self, vector: PropertyVector) -> None:
        if lacking := [n for n in self.definition.named_transactions if not vector.knows(n)]:
            raise errors.PredictionError(
                f"the {self.model} model names {', '.join(lacking)}, which counts of kernel"
                f" {vector.kernel!r} do not say: pass the kernel itself"
            )
        if self.definition.reads_code and not vector.knows("code"):
            raise errors.PredictionError(
                f"the {self.model} model reads compiled code, and there is none with the counts of"
                f" kernel {vector.kernel!r}: add it with countperf.with_compiled_code(kernel,"
                f" sizes), or countperf.predict(kernel, sizes, weights={self.device.slug!r})"
            )


def read_vector(kernel: object, weights: WeightSet) -> PropertyVector:
    """Return the property vector of whatever stands for a kernel."""
    if isinstance(kernel, PropertyVector):
        return kernel
    view = weights.view
    if isinstance(kernel, Mapping):
        return PropertyVector.from_mapping(cast("Mapping[str, str | int]", kernel), view=view)
    from countperf.counting.analysis import with_transactions
    from countperf.counting.count_properties import count_kernel

    vector = count_kernel(kernel, view=view, caches=weights.counted_caches)
    return with_transactions(vector, kernel, weights.definition.named_transactions)


_BY_DATA = "data decides what work groups execute: each is taken to execute all that it can"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Charge(ShortRepr):
    """A time, and what it is made of."""

    time_s: Quantity
    values: Array  # features of the weights, along the last axis
    scaled: Array  # the same times the scales of their terms: derivatives of the time by weights
    parts: dict[str, Quantity]  # the breakdown of the time, s, by key of the weights


def charge_inputs(weights: WeightSet, inputs: ModelInputs) -> Charge:
    """Charge what the model sees of a kernel; what has no weight is left out."""
    function = weights.function
    amounts: dict[ColumnKey, Quantity] = {}
    for own, amount in inputs.values.items():
        column = function.find_column(own)
        amounts[column] = amounts[column] + amount if column in amounts else amount
    rows = [amounts.get(column, 0.0) for column in function.columns]
    shape = np.broadcast_shapes(*map(np.shape, (*rows, *inputs.variables.values())))
    values = np.stack([np.broadcast_to(row, shape) for row in rows], axis=-1).astype(np.float64)
    scaled = function.scale_values(values, inputs.variables)
    times = np.vecdot(scaled, weights.unknowns)
    functions.refuse_infinite(weights.model, times)
    rows = zip(function.keys, weights.unknowns, np.moveaxis(scaled, -1, 0), strict=True)
    parts = {key: _plain(weight * row) for key, weight, row in rows if np.any(row != 0)}
    return Charge(time_s=_plain(times), values=values, scaled=scaled, parts=parts)


def correct_charge(
    weights: WeightSet, charge: Charge
) -> tuple[Quantity, dict[str, Quantity], tuple[Verdict, ...]]:
    """Return the time that is predicted, s, its parts, s, and what it is corrected by."""
    time_s, parts, verdicts = charge.time_s, charge.parts, ()
    if (correction := weights.correction) is not None:
        told = profile(weights.function.columns, charge.values, charge.scaled, weights.unknowns)
        log_factor = correction.find_log_factors(*told)
        time_s = _plain(np.asarray(charge.time_s * np.exp(log_factor)))
        parts = {**parts, predictions.CORRECTION: time_s - charge.time_s}
        verdicts = (correction.verdict(log_factor, told),)
    raised = functions.raise_to_launch(time_s, weights.shortest_launch_s)
    added = raised - time_s
    return raised, {**parts, functions.LAUNCH: added} if np.any(added) else parts, verdicts


def name_changes(weights: WeightSet, charge: Charge) -> dict[str, Quantity]:
    """Return the derivatives of the time by weights, by key of the weights."""
    return dict(zip(weights.function.keys, np.moveaxis(charge.scaled, -1, 0), strict=True))


def find_missing(weights: WeightSet, inputs: ModelInputs) -> dict[str, Where]:
    """Return the features and names that the kernel has and the fit had not, and where."""
    known, find = set(weights.function.columns), weights.function.find_column
    names = weights.definition.base_properties
    amounts = {
        **{c[1]: n for c, n in inputs.values.items() if find(c) not in known},
        **{names.get(n, n): v for n, v in inputs.variables.items() if n not in weights.ranges},
        **{name: inputs.issued[name] for name in inputs.unknown},
    }
    places = {name: np.asarray(amount) != 0 for name, amount in amounts.items()}
    return {name: where for name, where in places.items() if np.any(where)}


def find_log_reach(weights: WeightSet, charge: Charge, level: Level) -> Quantity:
    """Return what ``|log(predicted / measured)|`` stays below; NaN if nothing is known."""
    if weights.quality is None:
        return np.nan
    rank = len(weights.weights) - sum(len(g.relations) for g in weights.indistinguishable)
    deviations = zip(weights.weights, np.moveaxis(charge.scaled, -1, 0), strict=True)
    squares = (((weight.standard_error_s or 0.0) * row) ** 2 for weight, row in deviations)
    error = np.sqrt(sum(squares)) / np.maximum(charge.time_s, np.finfo(np.float64).tiny)
    freedom = 0 if weights.source is None else weights.source.cases - rank
    return functions.log_quantile(weights.quality, level, freedom=freedom, error=error)


def _plain(row: Array) -> Quantity:
    return row if row.ndim else float(row)


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
    def _function(self) -> Callable[[bool], Callable[..., list[Any]]]:
        return cache(self._write_function)

    @cached_property
    def _properties(self) -> list[list[str]]:
        """Names that each column sums up; empty where the kernel has none."""
        charging = [(name, self.weights.function.columns_of(name)) for name in self.vector]
        return [
            [feature]
            if feature in self.weights.definition.derived
            else [name for name, columns in charging if (term, feature) in columns]
            for term, feature in self.weights.function.columns
        ]

    def _write_function(self, arrays: bool) -> Callable[..., list[Any]]:
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
                rows = self._function(False)(*map(parameters.__getitem__, names))
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
                rows = self._function(True)(*(line[block] for line in lines))
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
